"""A small project of two stages in a temporary directory, run by the real machinery."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows import environment
from flows.profiles import PROFILES
from flows.server import PREFECT_API_URL
from flows.stages import PARAMS_FILE, PIPELINE_FILE

ROOT = Path(__file__).parents[2]

DVC_YAML = """
stages:
  parameters:
    cmd: python -m flows parameters
    deps: [params.yaml]
  first:
    cmd: python -m flows first
    deps: [tasks/first.py]
    params: [domain, "benchmark.${domain}.train"]
    outs: [data/first]
  second:
    cmd: python -m flows second
    deps: [data/first, tasks/second.py]
    params: [evaluation.budgets]
    outs: [results/second, models/one/solver.json]
    metrics: [{results/metrics.json: {cache: false}}]
"""

FIRST = """
import logging
from selverify.storage import write_table

def run(params, inputs, outputs):
    logging.getLogger(__name__).info("working on %s", params.domain)
    rows = [{"n": n} for n in range(params.benchmark[params.domain].train.problems)]
    write_table(outputs["first"] / "numbers.parquet", rows, schema="first.numbers", version=1)
    return {"rows": len(rows)}
"""

SECOND = """
from selverify.storage import read_table

def run(params, inputs, outputs):
    table = read_table(inputs["first"] / "numbers.parquet", schema="first.numbers", version=1)
    lines = ["method,fold,n,accuracy"]
    lines += [f"full,0,{n},{n / 100}" for n in params.evaluation.budgets]
    (outputs["second"] / "curves.csv").write_text("\\n".join(lines))
    (outputs["second"] / "main.txt").write_text("the main table")
    outputs["solver"].write_text("{}")
    (outputs["second"] / "figures").mkdir()
    (outputs["second"] / "figures" / "curve.svg").write_text("<svg/>")
    return {"sum": float(sum(table["n"].to_pylist()))}
"""


@dataclass(frozen=True)
class Project:
    """A project directory and how to run ``python -m flows`` in it."""

    root: Path

    def flows(
        self, *arguments: str, timeout: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one command of the project in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "flows", *arguments],
            cwd=self.root,
            env={**clean_environment(self.root), **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def clean_environment(root: Path) -> dict[str, str]:
    """This process's variables without the project's own, so that the command sets them itself."""
    own = {*environment.settings(root), PREFECT_API_URL}
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return {**kept, "PYTHONPATH": str(ROOT)}


def make_project(root: Path) -> Project:
    """Write the two-stage project into ``root``."""
    for folder in (".dvc", "tasks"):
        (root / folder).mkdir(parents=True)
    (root / ".dvc" / "config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (root / "dvc.yaml").write_text(DVC_YAML)
    shutil.copy(ROOT / "params.yaml", root)
    for name in ("__init__.py", "shards.py"):
        shutil.copy(ROOT / "tasks" / name, root / "tasks")
    (root / "tasks" / "first.py").write_text(FIRST)
    (root / "tasks" / "second.py").write_text(SECOND)
    return Project(root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh two-stage project that has not run."""
    return make_project(tmp_path / "project")


@pytest.fixture
def parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's parameters, profiles and stages in a folder of their own, to run in."""
    monkeypatch.chdir(tmp_path)
    for name in (PARAMS_FILE, PIPELINE_FILE):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / PROFILES, tmp_path / PROFILES)
    return tmp_path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, api: str) -> tuple[Project, str]:
    """A two-stage project after one ``python -m flows run``, and what that printed."""
    project = make_project(tmp_path_factory.mktemp("finished") / "project")
    done = project.flows("run", PREFECT_API_URL=api)
    assert done.returncode == 0, done.stdout + done.stderr
    return project, done.stdout + done.stderr
