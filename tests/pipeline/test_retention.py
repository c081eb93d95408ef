"""What experiments that are not kept leave in Prefect and MLflow."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from checkouts import commit, git
from conftest import ROOT, Project
from mlflow import MlflowClient
from mlflow.entities import ViewType
from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter, FlowRunFilterId
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_URL as API_URL
from prefect.settings import temporary_settings

from flows import experiments, retention
from flows.stages import Stage

EXPERIMENTS = """
from flows import experiments

experiments.KEPT = 2
for budgets in ("[1,64]", "[2,64]", "[3,64]", "[1,2,64]"):
    try:
        experiments.experiments(
            overrides=[f"evaluation.budgets={budgets}"], anew=True, keep=False
        )
    except Exception as error:
        print("failed:", error)
"""


@flow(name="child", persist_result=False)
def child() -> None:
    create_markdown_artifact("of a stage", key="of-a-stage")


@flow(name="asked", persist_result=False)
def asked(keep: bool) -> None:
    child()


@pytest.mark.soak  # a server and six runs
def test_the_last_runs_of_a_deployment_stay(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a run go those below it and their artifacts; one that kept its experiments stays."""
    monkeypatch.setattr(retention, "KEPT", 3)
    with temporary_settings({API_URL: api}), get_client(sync_client=True) as client:
        known = client.create_flow(asked)
        deployment = client.create_deployment(flow_id=known, name="some")
        runs = []
        for keep in (True, False, False, False, False):
            given = {"keep": keep}
            run = client.create_flow_run_from_deployment(deployment, parameters=given)
            run_flow(asked, flow_run=run, parameters=given)
            runs.append(run.id)
        asked(keep=False)  # by nobody's deployment
        retention.forget_old_runs(deployment)
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=runs))
        left = client.read_flow_runs(flow_run_filter=chosen)
        assert {run.id for run in left} == {runs[0], *runs[3:]}, "of three one is to come"
        everyone = {run.id: run.name for run in client.read_flow_runs(limit=200)}
        made = client.read_artifacts(artifact_filter=ArtifactFilter(), limit=200)
        ours = [one for one in made if one.key == "of-a-stage"]
        assert len(ours) == 4 and {one.flow_run_id for one in ours} <= {*everyone}


def test_only_a_killed_experiment_loses_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that are at work each have their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retention, "create_database", lambda: None)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    other, killed = (
        tmp_path / ".mlflow" / f"{retention.ASIDE}{process}-x"
        for process in (os.getppid(), ended.pid)
    )
    for folder in (other, killed):
        folder.mkdir(parents=True)
    with retention.tracked_aside():
        (own,) = set((tmp_path / ".mlflow").iterdir()) - {other}
        assert own.name.startswith(f"{retention.ASIDE}{os.getpid()}-")
        assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{own}/mlflow.db"
    assert list((tmp_path / ".mlflow").iterdir()) == [other]


def test_an_experiment_of_an_earlier_try_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry has the same id, so the same names, which DVC would refuse."""
    (tmp_path / "params.yaml").touch()
    monkeypatch.chdir(commit(tmp_path))
    git(tmp_path, "update-ref", f"refs/exps/ab/{'c' * 38}/run-1", "HEAD")
    ran: list[str] = []
    files = SimpleNamespace(read_text=lambda _: "{}")
    monkeypatch.setattr(experiments, "run_python", lambda *words: ran.append(words[-1]))
    monkeypatch.setattr(experiments, "DVCFileSystem", lambda rev: files)
    monkeypatch.setattr(experiments, "create_markdown_artifact", lambda *_, **__: None)
    outputs = {"report": Path("report")}
    table = Stage("report", "report", {}, {}, outputs, (), (), (), frozen=False)
    for name in ("run-1", "run-2"):
        experiments.run_experiment.fn(name, (), anew=False, logged=None, table=table)
    assert ran == ["run-2"]


@pytest.mark.soak  # four experiments
def test_an_experiment_that_is_not_kept_is_one_run_in_mlflow(project: Project, api: str) -> None:
    """With its metrics, also one that failed; the last ones stay, and the stages' own runs none."""
    root = project.root
    (root / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    (root / ".gitignore").write_text("/data\n/results/second\n/models\n.mlflow\n.prefect\n.cache\n")
    second = root / "tasks" / "second.py"
    fails = "def run(params, inputs, outputs):\n    assert 3 not in params.evaluation.budgets\n"
    second.write_text(second.read_text().replace("def run(params, inputs, outputs):\n", fails))
    commit(root)
    started = datetime.now(UTC)
    done = project.flows(
        "exec", sys.executable, "-c", EXPERIMENTS, PREFECT_API_URL=api, PYTHONPATH=f"{ROOT}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("failed: experiments failed: run-") == 1, done.stdout + done.stderr
    client = MlflowClient(f"sqlite:///{root / '.mlflow' / 'mlflow.db'}")
    (experiment,) = (one for one in client.search_experiments() if one.name != "Default")
    whole, failed = client.search_runs([experiment.experiment_id])
    assert (whole.info.status, failed.info.status) == ("FINISHED", "FAILED")
    assert set(whole.data.metrics) == {"sum", "seconds"} and set(failed.data.metrics) == {"seconds"}
    deleted = client.search_runs([experiment.experiment_id], run_view_type=ViewType.DELETED_ONLY)
    assert len(deleted) == 2
    assert [one.name for one in (root / ".mlflow").iterdir()] == ["mlflow.db"]
    with temporary_settings({API_URL: api}), get_client(sync_client=True) as prefect:
        ours = [one for one in prefect.read_flow_runs(limit=200) if one.created >= started]
    stages = [one for one in ours if one.name.startswith("first")]
    assert len(stages) == 4 and all(one.parent_task_run_id for one in stages)
