"""The command line and a whole small pipeline, each in processes of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import httpx
import psutil
import pytest
import yaml
from conftest import ROOT, Project, clean_environment, make_project
from mlflow import MlflowClient
from prefect.settings import PREFECT_API_URL as API_URL
from prefect.settings import temporary_settings
from small_pipeline import set_params
from waiting import lives, wait_until

from flows import environment, server, tracking
from flows.__main__ import main
from flows.environment import KERNELS, fix_kernels
from flows.preflight import check_methods
from flows.server import PREFECT_API_URL, check_answers
from flows.tracking import comparison_page, publish_stage
from selverify.errors import ParamsError
from selverify.params import load_params
from selverify.storage import digest


def test_a_training_fixes_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only stages that train, and what the environment says already wins."""
    for name in KERNELS:
        monkeypatch.delenv(name, raising=False)
    fix_kernels("evaluation", trained_here=True)
    fix_kernels("verifier", trained_here=False)
    assert not KERNELS.keys() & os.environ.keys()
    monkeypatch.setenv("MKL_CBWR", "AUTO")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    fix_kernels("verifier", trained_here=True)
    assert os.environ["MKL_CBWR"] == "AUTO"
    assert os.environ["ATEN_CPU_CAPABILITY"] == "avx2"


def test_a_stage_that_cannot_begin_says_so_in_one_sentence(project: Project) -> None:
    """An input is missing: exit code 1, and nothing written."""
    done = project.flows("second")
    said = "data/first: missing; stage 'second' reads it and stage 'first' writes it"
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {said}") and done.stderr.count("\n") == 1
    assert not (project.root / "results").exists()


def test_a_run_brings_every_stage_up_to_date(finished: tuple[Project, str]) -> None:
    """Outputs, metrics and the main table are there, and no temporary is left."""
    project, printed = finished
    metrics = json.loads((project.root / "results" / "metrics.json").read_text())
    assert metrics == {"sum": sum(range(1000))}
    assert "the main table" in printed
    assert "working on word_problems" in printed
    assert not list(project.root.rglob("*.tmp-*"))


def test_a_run_records_the_digests_that_dvc_records(finished: tuple[Project, str]) -> None:
    """Our digest of an output and of a source is the one in ``dvc.lock``."""
    root = finished[0].root
    lock = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    recorded = [*lock["second"]["deps"], *lock["second"]["outs"]]
    assert {entry["path"]: digest(root / entry["path"]) for entry in recorded} == {
        entry["path"]: entry["md5"] for entry in recorded
    }


@pytest.fixture
def publish(
    finished: tuple[Project, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[], str]:
    """``python -m flows publish`` in the finished project, in this process; what it prints."""
    root = finished[0].root
    monkeypatch.chdir(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root / '.mlflow' / 'mlflow.db'}")

    def published() -> str:
        assert main(["publish"]) == 0
        return capsys.readouterr().out

    return published


def test_a_run_is_logged_once_with_its_origin(
    finished: tuple[Project, str], publish: Callable[[], str]
) -> None:
    """Publishing again adds nothing; below the pipeline stand its stages and its curves."""
    project, _ = finished
    assert "0 runs of them now" in publish()
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("selverify")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"first", "pipeline word_problems", "full/0"}
    parent = runs["pipeline word_problems"]
    for name in ("first", "full/0"):
        assert runs[name].data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert "mlflow.parentRunId" not in parent.data.tags
    (read,) = parent.inputs.dataset_inputs
    assert read.dataset.name == "data/first"
    assert digest(project.root / "data" / "first").startswith(read.dataset.digest)
    second = parent.data
    assert second.metrics["sum"] == sum(range(1000))
    assert second.params["evaluation.budgets"] == "[2, 4, 8, 16, 32, 64]"
    assert second.params["benchmark.word_problems.train.problems"] == "1000", "of another stage"
    assert len(client.get_metric_history(parent.info.run_id, "pipeline_seconds")) == 1
    assert second.tags["git.commit"] and second.tags["dvc.deps"]
    assert not any(name.startswith("dvc.dep.") for name in second.tags)
    needed = json.loads(
        Path(client.download_artifacts(parent.info.run_id, "dependencies.json")).read_text()
    )
    assert needed["data/first"] == digest(project.root / "data" / "first")
    took = (parent.info.end_time - parent.info.start_time) / 1000
    assert took == pytest.approx(second.metrics["seconds"], abs=0.01), (
        "of the work, not the logging"
    )
    history = client.get_metric_history(runs["full/0"].info.run_id, "accuracy")
    assert [(point.step, point.value) for point in history][:2] == [(2, 0.02), (4, 0.04)]
    (checkpoint,) = client.list_artifacts(parent.info.run_id, "one")
    assert checkpoint.path == "one/solver.json"
    (folder,) = client.list_artifacts(parent.info.run_id, "second/figures")
    assert folder.path == "second/figures/curve.svg"


def test_the_comparison_is_of_the_pipeline_whose_outputs_are_here(
    finished: tuple[Project, str], publish: Callable[[], str]
) -> None:
    """Where one is missing, as in a fresh clone that has the metrics only, of all pipelines."""
    publish()
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    (run,) = client.search_runs(["1"], "attributes.run_name = 'pipeline word_problems'")
    address = unquote(comparison_page())
    chosen = re.search(r"searchFilter=([^&]*)", address)[1]
    assert f"tags.`mlflow.parentRunId` = '{run.info.run_id}'" in chosen
    assert "params.method != 'oracle'" in chosen
    assert client.search_runs(["1"], chosen.replace("params.fold = 'all' and ", ""))
    outputs = finished[0].root / "results" / "second"
    outputs.rename(outputs.with_name("elsewhere"))
    try:
        assert "parentRunId" not in unquote(comparison_page())
    finally:
        outputs.with_name("elsewhere").rename(outputs)


def test_a_publication_that_was_cut_short_is_made_again(publish: Callable[[], str]) -> None:
    """What it had written is removed, children too; in the end each run is there once."""
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name("selverify")
    runs = client.search_runs([experiment.experiment_id])
    parent = next(run for run in runs if run.info.run_name.startswith("pipeline"))
    client.delete_tag(parent.info.run_id, "selverify.key")
    assert "2 runs of them now" in publish()
    names = [run.info.run_name for run in client.search_runs([experiment.experiment_id])]
    assert sorted(names) == ["first", "full/0", "pipeline word_problems"]


def test_old_results_are_not_logged_under_new_parameters(
    finished: tuple[Project, str], publish: Callable[[], str]
) -> None:
    """Nor others than DVC's; what neither changed for is logged."""
    root = finished[0].root
    parameters = (root / "params.yaml").read_text(encoding="utf-8")
    try:
        set_params(root, {"evaluation.budgets": [2, 4, 64]})
        printed = publish()
        assert "MLflow: second: not logged, because dvc.lock states other parameters" in printed
        assert "MLflow: 1 stages are logged, 0 runs of them now" in printed
    finally:
        (root / "params.yaml").write_text(parameters, encoding="utf-8")
    params = load_params(root / "params.yaml")
    first, second = tracking._finished(params)
    lock = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8"))
    assert tracking._is_recorded(second, params, lock)
    lock["stages"]["first"]["outs"][0]["md5"] = "0"
    assert not tracking._is_recorded(first, params, lock)
    assert not tracking._is_recorded(first, params, {})


def test_a_second_run_does_nothing_and_says_so(finished: tuple[Project, str]) -> None:
    """It starts no server and still shows the table."""
    project, _ = finished
    done = project.flows("run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Nothing to do: every stage is up to date.")
    assert "the main table" in done.stdout
    assert not (project.root / ".prefect" / "server.log").exists()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("domain: word_problems", "domain: chess", "domain: given 'chess', expected"),
        ("evaluation:\n", "evaluations:\n", "unknown key 'evaluations'"),
    ],
    ids=["value", "name"],
)
def test_a_wrong_parameter_costs_no_output_under_plain_dvc(
    finished: tuple[Project, str], tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    """DVC removes the outputs of a stage before it runs it; mended, there is nothing to do."""
    project = Project(tmp_path / "copy")
    shutil.copytree(finished[0].root, project.root)
    path = project.root / "params.yaml"
    text = path.read_text(encoding="utf-8")
    assert right in text
    before = contents(project)
    path.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    repro = ("exec", sys.executable, "-m", "dvc", "repro")
    done = project.flows(*repro)
    assert done.returncode != 0
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert sentence.startswith("error: params.yaml: ") and said in sentence
    assert "Traceback" not in done.stderr
    assert contents(project) == before
    path.write_text(text, encoding="utf-8")
    assert "Data and pipelines are up to date." in project.flows(*repro).stdout
    assert contents(project) == before


def contents(project: Project) -> dict[str, bytes]:
    """DVC's lock and every file of every output."""
    files = [project.root / "dvc.lock"]
    for folder in ("data", "results", "models"):
        files += (path for path in (project.root / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(project.root)): path.read_bytes() for path in files}


@pytest.mark.soak
def test_the_pipeline_flow_restores_stops_and_cleans(
    finished: tuple[Project, str], api: str, tmp_path: Path
) -> None:
    """The deployed flow takes from DVC's cache; a failing stage ends it without half an output."""
    project = Project(tmp_path / "copy")
    shutil.copytree(finished[0].root, project.root)
    shutil.rmtree(project.root / "data")
    second = project.root / "tasks" / "second.py"
    failing = 'raise SchemaError("a column is missing")'
    second.write_text(
        "from selverify.errors import SchemaError\n"
        + second.read_text().replace("    return {", f"    {failing}\n    return {{")
    )
    stages = {"flows": {"name": {"any_": ["second"]}}}
    before = httpx.post(f"{api}/flow_runs/filter", json=stages).json()  # of other tests
    done = project.flows("pipeline", PREFECT_API_URL=api)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error: a column is missing" in done.stderr
    assert "error: stage 'second' failed" in done.stderr
    found = httpx.post(f"{api}/flow_runs/filter", json=stages).json()
    known = {run["id"] for run in before}
    below = [run for run in found if run["parent_task_run_id"] and run["id"] not in known]
    assert [run["name"] for run in below] == ["second at none"]
    assert below[0]["state"]["message"].endswith("a column is missing")
    assert {"second", "commit none"} <= set(below[0]["tags"])
    assert (project.root / "data" / "first" / "numbers.parquet").is_file()
    assert not list((project.root / "results").iterdir())
    assert project.flows("clean").returncode == 0
    assert not (project.root / "data" / "first").exists()
    assert (project.root / ".mlflow" / "mlflow.db").is_file()


@pytest.mark.soak
def test_a_run_in_the_background_of_a_script_can_be_ended(tmp_path: Path, api: str) -> None:
    """Such a run begins with interrupts ignored; a termination ends it and its stage."""
    project = make_project(tmp_path / "project")
    mark = tmp_path / "stage"
    sleeping = f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))"
    (project.root / "tasks" / "first.py").write_text(
        f"{sleeping}\ntime.sleep(300)\ndef run(params, inputs, outputs): return {{}}\n"
    )
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, '-m', 'flows', 'run'])"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", ignoring],
        cwd=project.root,
        env={**clean_environment(project.root), PREFECT_API_URL: api},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        stage = psutil.Process(int(wait_until(lambda: mark.is_file() and mark.read_text())))
        launcher.terminate()
        assert launcher.wait(60) != 0
        wait_until(lambda: not lives(stage), patience=30)
    finally:
        launcher.kill()


@pytest.mark.parametrize(
    ("command", "name", "given"),
    [
        ("deploy", "PREFECT_API_URL", "http://127.0.0.1:1/api"),
        ("deploy", "PREFECT_API_URL", "nonsense"),
        ("setup", "MLFLOW_TRACKING_URI", "nonsense"),
        ("setup", "MLFLOW_TRACKING_URI", "sqlite:////nowhere/mlflow.db"),
    ],
)
def test_a_server_that_is_not_there_is_one_sentence(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    command: str,
    name: str,
    given: str,
) -> None:
    """What the environment names wrongly is named, in one line without a traceback."""
    shutil.copy(ROOT / "prefect.yaml", project.root)
    monkeypatch.chdir(project.root)
    monkeypatch.setenv(name, given)
    with temporary_settings({API_URL: given}) if command == "deploy" else nullcontext():
        assert main([command]) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"error: {name}: given {given!r}, expected")


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ("https://mlflow.example", None),
        ("sqlite:////data/runs/mlflow.db", "/data/runs/artifacts"),
        ("postgresql://me@host/mlflow", "/checkout/.mlflow/artifacts"),
    ],
)
def test_files_of_runs_are_kept_where_their_database_is(
    monkeypatch: pytest.MonkeyPatch, given: str, folder: str | None
) -> None:
    """Never in the copy that a DVC experiment runs in; a server decides for itself."""
    monkeypatch.setenv("DVC_ROOT", "/checkout")
    assert tracking.artifact_location(given) == (folder and f"file://{folder}")
    monkeypatch.delenv("DVC_ROOT")
    here = (Path.cwd() / ".mlflow" / "artifacts").as_uri()
    assert tracking.artifact_location("postgresql://me@host/mlflow") == here


@pytest.mark.parametrize("given", ["postgresql+none://me:secret@host/runs", "sqlite:///{file}/db"])
def test_a_database_that_cannot_be_used_costs_a_warning(
    finished: tuple[Project, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    given: str,
) -> None:
    """Never the result of a stage; what is asked for MLflow alone says so in one sentence."""
    root = finished[0].root
    monkeypatch.chdir(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given.format(file=root / "params.yaml"))
    params = load_params(root / "params.yaml")
    (_, second) = tracking._finished(params)
    assert publish_stage(second, params).run is None
    assert tracking.seconds_of(second, params) is None
    tracking.publish_experiment("one", None, tracking.Logged("some", 1), seconds=1.0)
    assert [line.partition(":")[0] for line in caplog.messages] == ["second", "one"]
    assert main(["publish"]) == 0
    assert "MLflow: 0 stages are logged" in capsys.readouterr().out
    assert main(["setup"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: MLFLOW_TRACKING_URI: given") and "secret" not in said
    with pytest.raises(ParamsError, match="MLFLOW_TRACKING_URI: given"), server._told():
        comparison_page()


def test_a_run_of_an_experiment_tells_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "dvc.exp" not in tracking._origin({})
    monkeypatch.setenv("DVC_EXP_NAME", "humid-kook")
    assert tracking._origin({})["dvc.exp"] == "humid-kook"


@pytest.mark.parametrize(
    "given", ["http://127.0.0.1:1/api", "nonsense", "http://[", "http://no.such.host.invalid/api"]
)
def test_a_prefect_server_that_does_not_answer_is_refused(given: str) -> None:
    """Before a stage starts."""
    with pytest.raises(ParamsError, match=r"PREFECT_API_URL: given .*, expected the address"):
        check_answers(given)


def test_a_prefect_server_with_a_login_or_without_time_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "slow" in self.path:
                time.sleep(1.0)
            self.send_error(401)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    monkeypatch.setattr("flows.server.ANSWER_SECONDS", 0.3)
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for path in ("api", "slow"):
            check_answers(f"http://127.0.0.1:{server.server_port}/{path}")
        server.shutdown()


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("full", "nosuch"), "given 'nosuch', expected some of"),
        (("cot", "best_of_n_gated"), "expected full and a baseline with gates"),
        (("full", "best_of_n"), "expected full and a baseline with gates"),
    ],
)
def test_methods_of_which_no_report_could_be_made_are_refused(
    names: tuple[str, ...], sentence: str
) -> None:
    check_methods(("full", "best_of_n_gated"))
    with pytest.raises(ParamsError, match=sentence):
        check_methods(names)


def test_a_stage_whose_metrics_came_with_git_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "metrics.json").write_text("{}")
    assert tracking._finished(load_params(Path("params.yaml"))) == []


def test_an_empty_address_of_mlflow_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    environment.load(tmp_path)
    assert os.environ["MLFLOW_TRACKING_URI"].startswith("sqlite:///")
