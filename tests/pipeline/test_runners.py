"""Shards as Prefect tasks, here and on Dask: results, calls and what is left to look at."""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Any

import httpx
import pipelines
import proxy
import pytest
import stand_in
from conftest import ROOT
from mlflow import MlflowClient
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.context import TaskRunContext
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL as API_URL
from prefect.settings import temporary_settings
from shard_work import ends
from small_pipeline import run_stages, set_params

from flows import mapping
from flows.artifacts import shown
from flows.environment import PARENT_TASK
from flows.preflight import name_sources
from flows.server import PREFECT_API_URL
from flows.stage_flow import _run, _show, run_stage
from flows.stages import Stage, load_stages
from flows.tracking import Published
from selverify.data.benchmark import Task
from selverify.errors import NoReply, ParamsError, ProtocolError, Refusal
from selverify.models.sources import write_source
from selverify.params import Tracking, check_params, load_params
from selverify.storage import digest
from selverify.types import Problem, Truth
from tasks import evaluation
from tasks.shards import Shard

BEFORE = ("benchmark", "rollouts", "verifier", "difficulty", "exploration", "residual")
"""The stages that an evaluation needs, apart from the frozen one."""
EVALUATION = "evaluation@served-strong"
SHARD = 2
FILES = ("outcomes.parquet", "steps.parquet", "events.parquet", "rules.json", "metrics.json")


@pytest.fixture
def prefect(api: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of the server that flows in this process report to."""
    monkeypatch.setenv(PREFECT_API_URL, api)
    with temporary_settings({API_URL: api}), get_client(sync_client=True) as client:
        yield client


def tracking(**changes: object) -> Tracking:
    return load_params(ROOT / "params.yaml").tracking.model_copy(update=changes)


def shards(inputs: dict[str, Path]) -> list[Shard]:
    """Three of one problem each."""
    tasks = [
        Task("test", Problem(f"p{{{n}}}", "math", "", ""), Truth(f"p{n}", "", ""), f"{n}")
        for n in range(3)
    ]
    return [Shard(load_params(ROOT / "params.yaml"), inputs, (task,)) for task in tasks]


def mapped(work: Any, given: list[Shard], *, workers: int) -> list[Any]:
    """What a flow's shards come to on processes of this machine."""
    told = tracking(threads=workers)
    with mapping.task_runner(told) as runner:

        @flow(name="mapped", task_runner=runner)
        def body() -> list[Any]:
            return mapping.mapper("mapped", told, key="mapped-progress")(
                work, given, workers=workers
            )

        return body()


@pytest.fixture
def served(tmp_path: Path) -> dict[str, Path]:
    """Inputs of a stage whose generator is behind a server."""
    source = load_params(ROOT / "params.yaml").generator["math"]["served"]
    write_source(tmp_path / "generator", source)
    (tmp_path / "marks").mkdir()
    return {"generator": tmp_path / "generator", "marks": tmp_path / "marks"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_whose_server_is_busy_is_tried_again(
    prefect: Any, served: dict[str, Path], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Each shard is a task run named by its problems; the progress artifact ends at 100."""
    monkeypatch.setattr(mapping, "RETRY_SECONDS", 0.0)
    given = shards({**served, "failing": Path("busy")})
    names = ["p{0} to p{0}", "p{1} to p{1}", "p{2} to p{2}"]
    assert mapped(ends, given, workers=workers) == names
    latest = prefect.read_flow_runs(sort="START_TIME_DESC", limit=1)[0]
    (progress,) = artifacts_of(prefect, latest.id)
    assert (progress.key, progress.type, progress.data) == ("mapped-progress", "progress", 100.0)


@pytest.mark.parametrize(
    ("failing", "error"), [("refusing", Refusal), ("broken", ProtocolError), ("busy", NoReply)]
)
def test_what_would_fail_again_is_not_tried_again(
    prefect: Any, served: dict[str, Path], failing: str, error: type[ProtocolError]
) -> None:
    """A refusal is for good, a broken protocol is ours; without a server nothing can come back."""
    inputs = {**served, "failing": Path(failing)}
    if failing == "busy":
        del inputs["generator"]
    with pytest.raises(error):
        mapped(ends, shards(inputs), workers=1)
    assert len(list(served["marks"].iterdir())) == 1


def test_dask_without_its_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prefect_dask", None)
    with (
        pytest.raises(ParamsError, match=r"pip install '\.\[dask\]' in the clone"),
        mapping.task_runner(tracking(runner="dask")),
    ):
        pass


def test_a_scheduler_that_does_not_answer_is_one_sentence(prefect: Any) -> None:
    pytest.importorskip("prefect_dask", reason="the extra dask is not installed")
    config = import_module("dask").config
    told = tracking(runner="dask", dask="tcp://127.0.0.1:9")
    with (
        config.set({"distributed.comm.timeouts.connect": "1s"}),
        mapping.task_runner(told) as runner,
    ):

        @flow(name="nobody", task_runner=runner)
        def body() -> None:
            mapping.mapper("nobody", told, key="nobody")(ends, shards({}), workers=1)

        with pytest.raises(ParamsError, match=r"tracking\.dask: no scheduler answers"):
            body()


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8786", "http://a:1", "tcp://a", "tcp://u:p@a:1", "tcp://a:1 b"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    raw = load_params(ROOT / "params.yaml").model_dump(mode="json")
    raw["tracking"]["dask"] = address
    with pytest.raises(ParamsError, match=r"tracking\.dask"):
        check_params(raw, Path("params.yaml"))


def test_no_result_depends_on_who_maps_the_shards() -> None:
    """No stage has a parameter of ``tracking``, so none runs again when it changes."""
    stages = load_stages(load_params(ROOT / "params.yaml"), ROOT / "dvc.yaml")
    named = {name.split(".")[0] for stage in stages.values() for name in stage.params}
    assert "evaluation" in named and "tracking" not in named


@dataclass(frozen=True)
class Done:
    """An evaluation: its files, what was asked of generator and judge, and what was kept."""

    files: dict[str, bytes]
    asked: Counter[str]
    replies: frozenset[tuple[bytes, int, bytes]]


@contextmanager
def a_project(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Up to its evaluation, with a generator, embeddings and a judge behind a server."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root}/mlflow.db")
    monkeypatch.setenv(pipelines.SECRET, pipelines.KEY)
    monkeypatch.setattr(evaluation, "SHARD", SHARD)
    for name in ("params.yaml", "dvc.yaml"):
        (root / name).write_bytes((ROOT / name).read_bytes())
    pipelines.write_benchmarks(root)
    with proxy.Proxy(stand_in.answer) as line:
        told = pipelines.served_params(line.url)
        set_params(root, {**told, "tracking.reply_cache": "before.sqlite"})
        params = load_params(root / "params.yaml")
        name_sources(params, load_stages(params))
        paid = []
        for _ in range(2):
            run_stages(params, BEFORE)
            paid.append(len(asked_for(line.answered)))
        assert paid[0] == paid[1] > 0, "no stage pays for a reply that it was given before"
        yield line


def asked_for(answered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was asked of the generator and the judge; embeddings are not kept."""
    return [body for body in answered if "input" not in body]


def evaluated(root: Path, line: Any, runner: str, cache: str) -> Done:
    """Run the evaluation's flow with ``runner``, its replies in ``cache``."""
    set_params(root, {"tracking.runner": runner, "tracking.reply_cache": cache})
    before = len(line.answered)
    run_stage(EVALUATION)
    folder = Path("results/evaluation/served-strong")
    asked = asked_for(line.answered[before:])
    with closing(sqlite3.connect(cache)) as connection:
        replies = frozenset(connection.execute("SELECT key, position, value FROM replies"))
    return Done(
        {name: (folder / name).read_bytes() for name in FILES},
        Counter(json.dumps(body, sort_keys=True) for body in asked),
        replies,
    )


def artifacts_of(client: Any, flow_run: Any) -> list[Any]:
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run]))
    return list(client.read_artifacts(artifact_filter=wanted))


@pytest.mark.soak
def test_two_workers_of_dask_do_what_one_process_does(
    prefect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes, the same requests, each once, and the same replies in one shared cache.

    Afterwards all replies are there: one process goes through them without asking anything.
    """
    pytest.importorskip("prefect_dask", reason="the extra dask is not installed")
    with a_project(tmp_path, monkeypatch) as line:
        local = evaluated(tmp_path, line, "local", "local.sqlite")
        dask = evaluated(tmp_path, line, "dask", "dask.sqlite")
        again = evaluated(tmp_path, line, "local", "dask.sqlite")
    assert dask.files == local.files == again.files
    assert dask.asked == local.asked and dask.asked.total() > 100
    assert dask.replies == local.replies == again.replies
    assert again.asked.total() == 0
    check_links(prefect, tmp_path)


def test_figures_and_the_main_table_are_artifacts(prefect: Any, tmp_path: Path) -> None:
    """Each with its stage in its key; a figure is data, so its page needs no network."""
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "accuracy.svg").write_text("<svg/>")
    (folder / "main.csv").write_text("method,accuracy\nfull,0.5\n")
    stage = Stage("report@A_b", "report", {}, {}, {"report": folder}, (), (), (), frozen=False)

    @flow(name="shown")
    def body() -> str:
        _show(stage, {"sum": 1.0}, Published(0, None, None, {"report": "0" * 32}, "abc"))
        return str(flow_run.id)

    kept = {one.key: one for one in artifacts_of(prefect, body())}
    prefix = "report-a-b"
    assert set(kept) == {prefix, f"{prefix}-links", f"{prefix}-accuracy", f"{prefix}-main"}
    data = kept[f"{prefix}-accuracy"].data
    assert base64.b64decode(data.removeprefix("data:image/svg+xml;base64,")) == b"<svg/>"
    assert json.loads(kept[f"{prefix}-main"].data) == [{"method": "full", "accuracy": "0.5"}]
    assert "not logged" in kept[f"{prefix}-links"].data


def check_links(prefect: Any, root: Path) -> None:
    """From MLflow to Prefect's run, from its artifact back, and both to the digest in the lock."""
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    experiment = client.get_experiment_by_name("selverify")
    (run,) = client.search_runs([experiment.experiment_id])
    folder = "results/evaluation/served-strong"
    assert run.data.tags[f"dvc.out.{folder}"] == digest(Path(folder))
    kept = {one.key: one for one in artifacts_of(prefect, run.data.tags["prefect.flow_run"])}
    prefix = "evaluation-served-strong"
    assert set(kept) == {prefix, f"{prefix}-links", f"{prefix}-progress"}
    assert run.info.run_id in kept[f"{prefix}-links"].data
    assert digest(Path(folder)) in kept[f"{prefix}-links"].data
    problems = load_params(Path("params.yaml")).evaluation.problems
    assert kept[f"{prefix}-progress"].description == f"{ceil(problems / SHARD)} shards"


def test_a_stage_has_tags_and_its_tasks_have_none(prefect: Any) -> None:
    """Prefect asks the server before each task whether a limit is set on one of its tags."""

    @task
    def tags_of_task() -> list[str]:
        return list(TaskRunContext.get().task_run.tags)

    @flow(name="tagged")
    def body() -> Any:
        return {"flow": flow_run.id, "task": tags_of_task()}

    found: dict[str, Any] = _run(body, "tagged at abc", ("report", "commit abc"))
    run = prefect.read_flow_run(found["flow"])
    assert (run.name, sorted(run.tags)) == ("tagged at abc", ["commit abc", "report"])
    assert found["task"] == []


def test_a_stage_below_what_is_no_run_stands_by_itself(
    prefect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it stands in Prefect is no reason to fail."""
    monkeypatch.setenv(PARENT_TASK, "no uuid")

    @flow(name="alone")
    def body() -> Any:
        return {"flow": flow_run.id}

    with caplog.at_level(logging.WARNING):
        found: dict[str, Any] = _run(body, "alone at abc", ("report",))
    run = prefect.read_flow_run(found["flow"])
    assert (run.name, run.parent_task_run_id) == ("alone at abc", None)
    assert "alone at abc: not shown below its pipeline" in caplog.text


def test_a_server_that_is_gone_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """One sentence, with the name of what was to be shown."""
    with caplog.at_level(logging.WARNING), shown("report"):
        raise httpx.ConnectError("refused")
    assert [record.getMessage() for record in caplog.records] == [
        "report: not shown in Prefect: refused"
    ]


def test_other_errors_stay_errors() -> None:
    """A fault of ours is no fault of the server."""
    with pytest.raises(KeyError), shown("report"):
        raise KeyError("main")
