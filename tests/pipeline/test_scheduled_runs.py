"""``python -m flows up``: what is scheduled runs, what is asked for is checked, nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest
import yaml
from checkouts import checkout, git
from conftest import ROOT, Project, clean_environment, make_project
from waiting import PATIENCE, lives, wait_until

from flows.environment import PREFECT_DIRECTORY, TRACKING_DIRECTORY
from flows.overrides import combinations
from flows.profiles import PROFILES
from flows.scheduling import DEPLOYMENTS_FILE, POOL, read_deployments
from flows.server import (
    PREFECT_API_URL,
    PREFECT_PORT,
    ServerError,
    find_port,
    starting_mlflow,
    starting_prefect,
    without_secrets,
)
from flows.supervisor import supervised
from selverify.errors import ArtifactError, ParamsError

# Every ten seconds from a time that has passed: the next one is due within ten seconds.
SOON = {"interval": 10, "anchor_date": "2026-01-01T00:00:00+00:00", "timezone": "UTC"}
EVIL = "http://evil.example"
BLOCKING = """
import os, pathlib, time

def run(params, inputs, outputs):
    (outputs["first"] / "half").write_text("of an output")
    pathlib.Path({mark!r}).write_text(str(os.getpid()))
    time.sleep(600)
    return {{}}
"""

BLOCKING_SHARDS = """
import os, pathlib, time
from selverify.data.benchmark import Task
from selverify.types import Problem, Truth
from tasks.shards import Shard

def work(shard):
    pathlib.Path({mark!r}).write_text(str(os.getppid()))
    time.sleep(600)

def run(params, inputs, outputs, mapper):
    task = Task("test", Problem("p", "math", "", ""), Truth("p", "", ""), "0")
    mapper(work, [Shard(params, inputs, (task,))] * 3, workers=2)
    return {{}}
"""


def test_the_deployments_state_what_their_flows_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """All in the one pool; what they are started with passes the check."""
    monkeypatch.chdir(ROOT)
    assert read_deployments() == [
        "nightly: 0 3 * * * UTC", "health: 30 */6 * * * UTC", "sweep: when asked for",
    ]  # fmt: skip
    stated = yaml.safe_load(DEPLOYMENTS_FILE.read_text(encoding="utf-8"))["deployments"]
    assert {one["work_pool"]["name"] for one in stated} == {POOL}
    given = {one["name"]: one["parameters"] for one in stated if "parameters" in one}
    for name, runs in {"health": 1, "sweep": 4}.items():
        assert len(combinations(given[name]["profile"], given[name]["overrides"])) == runs


@pytest.mark.parametrize("text", ["", "name: [", "name: x", "deployments: 3", "deployments: [a]"])
def test_a_file_without_deployments_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Before any server is started."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="no such file"):
        read_deployments()
    DEPLOYMENTS_FILE.write_text(text)
    with pytest.raises(ParamsError, match=r"^prefect\.yaml: [^\n]*$"):
        read_deployments()


def test_an_address_is_shown_without_its_password() -> None:
    """Addresses of servers and databases may hold one."""
    assert without_secrets("https://me:secret@host:4200/api") == "https://host:4200/api"
    assert without_secrets("http://127.0.0.1:4200/api") == "http://127.0.0.1:4200/api"
    for wrong in ("http://me:se#cret@host/api", "http://me:se/cret@[host/api", "me:secret@host"):
        assert "cret" not in without_secrets(wrong)
    assert without_secrets("sqlite:////a@b/runs.db") == "sqlite:////a@b/runs.db"


@pytest.mark.parametrize("port", ["0", "65536", "0420011", "4_200", "٤٢٠٠", "9" * 5000])
def test_a_wrong_port_is_one_sentence(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    """It names the variable."""
    monkeypatch.setenv(PREFECT_PORT[0], port)
    with pytest.raises(
        ParamsError, match=r"^PREFECT_SERVER_API_PORT: given .*, expected a port, 1"
    ):
        find_port(*PREFECT_PORT)


def test_a_port_in_use_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise another program's page would be taken for ours."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        monkeypatch.setenv(PREFECT_PORT[0], port)
        with pytest.raises(ServerError, match=rf"127\.0\.0\.1:{port} is in use .*_API_PORT"):
            find_port(*PREFECT_PORT)


def test_a_log_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where a server's folder should be; nothing was started."""
    monkeypatch.chdir(tmp_path)
    for name in (PREFECT_DIRECTORY, TRACKING_DIRECTORY):
        (tmp_path / name).write_text("x")
        start = starting_prefect if name == PREFECT_DIRECTORY else starting_mlflow
        with pytest.raises(ArtifactError, match=rf"{name}/\S+: not opened \(\w.*\), expected"):
            start(1).__enter__()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
        ("import os, time; os.kill(os.getppid(), 15); time.sleep(600)", 128 + signal.SIGTERM),
    ],
    ids=["exit", "kill", "supervisor told to end"],
)
def test_the_exit_code_of_a_supervised_command_is_its_own(command: str, code: int) -> None:
    """Whoever watches a server sees its supervisor; one told to end has not done its work."""
    supervisor = supervised([sys.executable, "-c", command])
    done = subprocess.run(supervisor, start_new_session=True, timeout=PATIENCE, check=False)
    assert done.returncode == code


@pytest.mark.parametrize("victim", ["owner", "supervisor", "command"])
def test_a_kill_leaves_no_orphan(tmp_path: Path, victim: str) -> None:
    """Whoever is killed, what a command started in a session of its own ends too."""
    marks = {name: tmp_path / name for name in ("command", "away")}
    mark = "import os, sys, time; open({!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    command = (
        "import subprocess, sys; subprocess.Popen("
        f"[sys.executable, '-c', {mark.format(str(marks['away']))!r}], start_new_session=True); "
        + mark.format(str(marks["command"]))
    )
    keeping = (
        "import subprocess, sys\nfrom flows.supervisor import supervised, nothing_left\n"
        "with nothing_left():\n"
        f"  subprocess.run(supervised([sys.executable, '-c', {command!r}]), start_new_session=True)"
    )
    owner = psutil.Popen([sys.executable, "-c", keeping], cwd=ROOT)
    try:
        wait_until(lambda: all(path.is_file() and path.read_text() for path in marks.values()))
        below = {name: psutil.Process(int(path.read_text())) for name, path in marks.items()}
        everyone = {"owner": owner, "supervisor": below["command"].parent(), **below}
        everyone[victim].kill()
        wait_until(lambda: not any(lives(one) for one in everyone.values()))
    finally:
        with suppress(psutil.NoSuchProcess):
            owner.kill()


@pytest.mark.soak
@pytest.mark.parametrize("interrupts", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_stage_ends_with_a_killed_dvc(
    interrupts: signal.Handlers, project: Project, api: str
) -> None:
    """Nobody could wait for its result; half an output is removed. In a shell's background, where
    interrupts are ignored, too."""
    mark = project.root / "mark"
    (project.root / "tasks" / "first.py").write_text(BLOCKING.format(mark=str(mark)))
    repro = psutil.Popen(
        [sys.executable, "-m", "flows", "exec", sys.executable, "-m", "dvc", "repro"],
        cwd=project.root,
        # A shell that waits for the stage, where the machine's is one: it outlives DVC.
        env={**clean_environment(project.root), PREFECT_API_URL: api, "SHELL": "/bin/sh"},
        preexec_fn=partial(signal.signal, signal.SIGINT, interrupts),
    )
    try:
        wait_until(lambda: mark.is_file() and mark.read_text())
        stage = psutil.Process(int(mark.read_text()))
        done = project.flows("run")
        assert done.returncode == 1 and "error: a stage is at work in this checkout" in done.stderr
    finally:
        repro.kill()
        repro.wait()
    wait_until(lambda: not lives(stage))
    assert not list(project.root.rglob("*.tmp-*"))


@pytest.mark.soak
def test_a_pipelines_state_says_why_its_stage_failed(project: Project, api: str) -> None:
    """And the stage's run names the pipeline's."""
    failing = project.root / "tasks" / "second.py"
    failing.write_text(
        "from selverify.errors import SchemaError\n\n"
        "def run(params, inputs, outputs):\n"
        '    raise SchemaError("work: given much, expected less")\n'
    )
    done = project.flows("pipeline", PREFECT_API_URL=api)
    assert done.returncode == 1
    runs = ask(f"{api}/flow_runs/filter", {"sort": "START_TIME_DESC"})
    first, second, pipeline = (
        next(run for run in runs if run["name"].startswith(f"{name} at "))
        for name in ("first", "second", "pipeline")
    )
    assert pipeline["state"]["type"] == "FAILED"
    assert (
        "'second' failed: SchemaError: work: given much, expected less"
        in (pipeline["state"]["message"])
    )
    for run in (first, second):
        assert f"parent {pipeline['name']}" in run["tags"]


@pytest.mark.parametrize(
    ("work", "command"),
    [
        pytest.param(BLOCKING, ["first"], marks=pytest.mark.soak),
        pytest.param(
            BLOCKING,
            ["exec", sys.executable, "-m", "dvc", "repro", "first"],
            marks=pytest.mark.soak,
        ),
        pytest.param(BLOCKING_SHARDS, ["first"], marks=pytest.mark.soak),
    ],
    ids=["by hand", "by DVC", "in shards"],
)
def test_a_stage_that_is_told_to_end_says_so_in_one_sentence(
    project: Project, api: str, work: str, command: list[str]
) -> None:
    """Exit code 143, half an output removed, and Prefect knows that it crashed."""
    mark = project.root / "mark"
    (project.root / "tasks" / "first.py").write_text(work.format(mark=str(mark)))
    begun = psutil.Popen(
        [sys.executable, "-m", "flows", *command],
        cwd=project.root,
        env={**clean_environment(project.root), PREFECT_API_URL: api},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: mark.is_file() and mark.read_text())
    psutil.Process(int(mark.read_text())).terminate()
    said, _ = begun.communicate(timeout=PATIENCE)
    assert begun.returncode == (143 if command == ["first"] else 255)
    ours = said.partition("first: started\n")[2].splitlines()
    assert ours[0] == "ended by a termination signal (SIGTERM)"
    by_dvc = "ERROR: failed to reproduce 'first': failed to run: python -m flows first, exited with"
    assert [line.strip() for line in ours[1:]] == ([] if len(command) == 1 else [f"{by_dvc} 143"])
    latest = {"sort": "START_TIME_DESC", "limit": 1}
    (run,) = ask(f"{api}/flow_runs/filter", latest)
    assert run["state"]["type"] == "CRASHED"
    assert "termination signal" in run["state"]["message"]
    assert not list(project.root.rglob("*.tmp-*"))


@pytest.mark.parametrize("gone", [True, False])
def test_a_stage_whose_run_was_killed_while_it_started_ends_at_once(gone: bool) -> None:
    """Its ancestors cannot tell: who is there now may be whoever takes orphans."""
    script = (
        "import sys, time; from flows import supervisor; supervisor.POLL_SECONDS = 0.1; "
        f"supervisor.end_with_starter('NONE', sys.argv[1]); time.sleep({30 if gone else 1})"
    )
    absent = subprocess.Popen([sys.executable, "-c", ""])
    absent.wait()
    run = absent.pid if gone else os.getpid()
    done = subprocess.run(
        [sys.executable, "-c", script, str(run)], cwd=ROOT, stderr=subprocess.PIPE, check=False
    )
    assert (b"KeyboardInterrupt" in done.stderr) is gone
    assert (done.returncode == 0) is not gone


def test_a_stage_that_was_told_to_end_is_not_disturbed_when_its_starter_ends(
    tmp_path: Path,
) -> None:
    """Both are told at once; how the stage ended would else stay unknown to Prefect's server."""
    told = tmp_path / "told"
    stage = (
        "import signal, sys, time; from pathlib import Path; from flows import supervisor\n"
        "supervisor.POLL_SECONDS = 0.1\n"
        "def report(*_):\n"
        "  time.sleep(10 * supervisor.POLL_SECONDS)\n"
        "  Path(sys.argv[1]).write_text('reported'); exit()\n"
        "signal.signal(signal.SIGTERM, report)\n"
        "supervisor.end_with_starter('NONE', None); print('ready', flush=True); time.sleep(60)"
    )
    starter = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-c', *sys.argv[1:]]\n"
        "stage = subprocess.Popen(command, stdout=subprocess.PIPE)\n"
        "stage.stdout.readline(); stage.terminate()"
    )
    command = [sys.executable, "-c", starter, stage, str(told)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=50)
    said = wait_until(lambda: told.is_file() and told.read_text(), patience=30)
    assert said == "reported"


def test_an_interrupt_that_python_swallows_is_sent_again() -> None:
    """One that arrives in a finalizer would be printed and forgotten."""
    script = (
        "import sys, time; from flows.supervisor import interrupt_again\n"
        "class Thing:\n  def __del__(self): raise KeyboardInterrupt\n"
        "sys.unraisablehook = interrupt_again\n"
        "try:\n  thing = Thing(); del thing; time.sleep(60)\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == (b"interrupted\n", b"")


@contextmanager
def going_up(project: Project, *, interval: dict[str, Any] | None) -> Iterator[tuple[Any, str]]:
    """``python -m flows up`` on free ports; yields its process and the address of its API."""
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        ports = [str(probe.getsockname()[1]) for probe in (first, second)]
    if interval is not None:
        stated = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
        soon = {**stated["deployments"][0], "name": "soon", "schedules": [interval]}
        stated["deployments"].append(soon)
        (project.root / "prefect.yaml").write_text(yaml.safe_dump(stated))
    variables = {"PREFECT_SERVER_API_PORT": ports[0], "MLFLOW_PORT": ports[1]}
    with (project.root / "printed.txt").open("a") as printed:
        process = psutil.Popen(
            [sys.executable, "-m", "flows", "up"],
            cwd=project.root,
            env={
                **clean_environment(project.root),
                **variables,
                "PREFECT_WORKER_QUERY_SECONDS": "2",
            },
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        text = project.root / "printed.txt"
        wait_until(lambda: "Ctrl-C" in text.read_text() or process.poll() is not None)
        assert process.poll() is None, text.read_text()
        yield process, f"http://127.0.0.1:{ports[0]}/api"
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE)


def scheduled_project(root: Path) -> Project:
    """The small project, with the flows and the profiles that deployments name."""
    project = make_project(root)
    (root / "flows").symlink_to(ROOT / "flows")
    shutil.copytree(ROOT / PROFILES, root / PROFILES)
    shutil.copy(ROOT / "prefect.yaml", root)
    return project


@pytest.mark.soak  # a real scheduler
def test_an_interrupt_in_the_middle_of_a_run_leaves_nothing(tmp_path: Path) -> None:
    """One run by the schedule, questions to the server, then one that is interrupted at work.

    No process is left and no half output; the run is known to have crashed.
    """
    project = scheduled_project(tmp_path / "project")
    with going_up(project, interval=SOON) as (process, api):
        check_run_by_schedule(project, api)
        mark = project.root / "mark"
        (project.root / "tasks" / "first.py").write_text(BLOCKING.format(mark=str(mark)))
        check_deploying_again(project, api)
        for given in HOSTILE:
            status, text = post_run(api, "experiments/sweep", given)
            assert status == 409 and "Validation failed" in text, given
        nightly = runs_of("nightly", "SCHEDULED")  # planned by a service that comes by each minute
        planned = wait_until(lambda: ask(f"{api}/flow_runs/filter", nightly))
        assert len(planned) >= 3  # under another version of SQLAlchemy it silently plans none
        assert all(run["expected_start_time"][11:19] == "03:00:00" for run in planned)
        wait_until(lambda: mark.is_file() and mark.read_text())
        family = [process, *process.children(recursive=True)]
        check_loopback(project, api, family)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert [one for one in [*family, *of_home(project.root)] if lives(one)] == []
    assert not list(project.root.rglob("*.tmp-*"))
    types = set(states(project.root).values())
    assert "RUNNING" not in types and types >= {"COMPLETED", "CRASHED"}


HOSTILE = (
    {"overrides": ["search.tau=${oc.env:HOME}"]},
    {"profile": "../../etc/passwd"},
    {"overrides": "search.tau=0.5"},
)
"""Prefect's server refuses them by the flow's own types, before there is a run."""


def check_run_by_schedule(project: Project, api: str) -> None:
    """Nobody asked for it; its outputs are there, and each stage left its table in Prefect."""
    (run, *_) = wait_until(lambda: ask(f"{api}/flow_runs/filter", runs_of("soon", "COMPLETED")))
    assert run["auto_scheduled"] and run["created_by"]["type"] == "SCHEDULE"
    assert run["work_pool_name"] == POOL
    assert json.loads((project.root / "results" / "metrics.json").read_text()) == {"sum": 499500.0}
    artifacts = ask(f"{api}/artifacts/filter", {})
    tables = {one["key"]: one for one in artifacts if one["type"] == "table"}
    assert {"first", "second"} <= set(tables)
    assert json.loads(tables["second"]["data"]) == [{"metric": "sum", "value": 499500.0}]


def check_deploying_again(project: Project, api: str) -> None:
    """The same deployments under the same ids, and the same schedules."""
    before, after = (deployed(project, api, again=again) for again in (False, True))
    assert before == after
    assert [one.partition(" ")[0] for one in after] == ["health", "nightly", "soon", "sweep"]


def check_loopback(project: Project, api: str, family: list[psutil.Process]) -> None:
    """Servers, worker and the run at work; a page of the web gets no answer from a browser."""
    assert {one.laddr.ip for process in family for one in listeners(process)} == {"127.0.0.1"}
    assert allowed_origin(api, EVIL) is None
    assert allowed_origin(api, api.removesuffix("/api")) is not None
    lines = (project.root / "printed.txt").read_text().splitlines()
    for name in ("Prefect", "MLflow"):
        (line,) = (line for line in lines if line.startswith(name))
        assert "http://127.0.0.1:" in line and "this machine only" in line
    assert any(line.startswith("worker") and f"pool {POOL!r}" in line for line in lines)


@pytest.mark.soak  # two starts of all servers
def test_a_killed_run_and_a_power_cut_are_mended(tmp_path: Path) -> None:
    """A killed run takes its stage with it, and the next one runs; that one is at work when all is
    killed at once. The next start says that it crashed, and goes on.
    """
    project = scheduled_project(tmp_path / "project")
    first = project.root / "tasks" / "first.py"
    whole, mark = first.read_text(), project.root / "mark"
    first.write_text(BLOCKING.format(mark=str(mark)))
    with going_up(project, interval=SOON) as (process, api):
        killed = killed_run(mark, f"{api}/flow_runs/filter")
        wait_until(lambda: mark.is_file() and mark.read_text())
        family = [process, *process.children(recursive=True)]
        for one in family:
            one.suspend()
        for one in family:
            one.kill()
        process.wait(PATIENCE)
    first.write_text(whole)
    (project.root / "printed.txt").unlink()
    with going_up(project, interval=SOON) as (process, api):
        wait_until(lambda: ask(f"{api}/flow_runs/filter", runs_of("soon", "COMPLETED")))
        crashed = ask(f"{api}/flow_runs/filter", runs_of("soon", "CRASHED"))
        (cut,) = (run for run in crashed if run["name"] != killed)
        assert len(crashed) == 2
        assert cut["state"]["message"] == "The run's machine or worker was stopped."
    assert (project.root / "results" / "metrics.json").is_file()
    assert not list(project.root.rglob("*.tmp-*"))
    assert not of_home(project.root)


@pytest.mark.soak  # some minutes: every stage of the real pipeline
def test_the_health_run_runs_every_stage_in_a_copy(tmp_path: Path) -> None:
    """It leaves the checkout as it was, its table in Prefect, and no experiment behind."""
    root = checkout(tmp_path / "checkout")
    project = Project(root)
    with going_up(project, interval=None) as (_, api):
        status, text = post_run(api, "experiments/health", {})
        assert status == 201, text
        query = runs_of("health", "COMPLETED", "FAILED", "CRASHED")
        (run,) = wait_until(lambda: ask(f"{api}/flow_runs/filter", query), patience=1500)
        assert run["state"]["type"] == "COMPLETED", (root / ".prefect/worker.log").read_text()
        artifacts = ask(f"{api}/artifacts/filter", {})
    kept_here = [one for one in artifacts if one["key"] == "experiments"]
    (table,) = (one for one in kept_here if one["type"] == "markdown")
    assert "Ours (full)" in table["data"] and table["data"].startswith("```\n")
    ran = {one["key"] for one in artifacts}
    assert {"benchmark", "evaluation-small-strong", "report"} <= ran
    assert git(root, "status", "--porcelain", "--untracked-files=no") == ""
    assert "run-" not in project.flows("exec", "dvc", "exp", "list").stdout
    assert not list((root / ".dvc/tmp/exps/standalone").glob("tmp*"))
    assert not of_home(root)


def killed_run(mark: Path, runs: str) -> str:
    """The run that is in its first stage, killed; its stage has ended and Prefect knows of it."""
    wait_until(lambda: mark.is_file() and mark.read_text())
    stage = psutil.Process(int(mark.read_text()))
    mark.unlink()
    # Where SHELL is not set a shell stands between, whose end is a failed stage and no killed run.
    next(one for one in stage.parents() if "python" in one.exe()).kill()
    wait_until(lambda: not lives(stage))
    (run,) = wait_until(lambda: ask(runs, runs_of("soon", "CRASHED")))
    return str(run["name"])


def runs_of(deployment: str, *types: str) -> dict[str, Any]:
    """A question for the runs of a deployment in states of these types."""
    return {
        "deployments": {"name": {"any_": [deployment]}},
        "flow_runs": {"state": {"type": {"any_": list(types)}}},
    }


def ask(address: str, body: dict[str, Any] | None = None) -> Any:
    request = Request(address, headers={"content-type": "application/json"})
    request.data = None if body is None else json.dumps(body).encode()
    with urlopen(request, timeout=PATIENCE) as reply:
        return json.loads(reply.read())


def post_run(api: str, deployment: str, parameters: dict[str, Any]) -> tuple[int, str]:
    """Ask for a run of a deployment; the status and the text of the answer."""
    found = ask(f"{api}/deployments/name/{deployment}")
    body = {"parameters": {**found["parameters"], **parameters}, "state": {"type": "SCHEDULED"}}
    try:
        return 201, json.dumps(ask(f"{api}/deployments/{found['id']}/create_flow_run", body))
    except HTTPError as error:
        return error.code, error.read().decode()


def deployed(project: Project, api: str, *, again: bool) -> list[str]:
    """The deployments there are, after creating them once more if ``again``."""
    if again:
        done = project.flows("deploy", PREFECT_API_URL=api)
        assert done.returncode == 0, done.stderr
    found = ask(f"{api}/deployments/filter", {})
    return sorted(f"{one['name']} {one['id']} {len(one['schedules'])}" for one in found)


def allowed_origin(api: str, origin: str) -> str | None:
    """The origin whose pages may read an answer, as the server tells a browser from ``origin``."""
    with urlopen(Request(f"{api}/health", headers={"Origin": origin}), timeout=60) as reply:
        found: str | None = reply.headers.get("access-control-allow-origin")
    return found


def listeners(process: psutil.Process) -> list[Any]:
    try:
        found = process.net_connections(kind="inet")
    except psutil.NoSuchProcess:
        return []
    return [one for one in found if one.status == psutil.CONN_LISTEN]


def of_home(root: Path) -> list[psutil.Process]:
    """Every process whose Prefect lives in ``root``, whoever started it."""
    found = []
    for process in psutil.process_iter():
        try:
            home = process.environ().get("PREFECT_HOME", "")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if process.pid != os.getpid() and Path(home) == (root / ".prefect").resolve():
            found.append(process)
    return found


def states(root: Path) -> dict[str, str]:
    """The type of the last state of every run that the stopped server knows, by its name."""
    with closing(sqlite3.connect(root / ".prefect" / "prefect.db")) as database:
        return dict(database.execute("select name, state_type from flow_run"))
