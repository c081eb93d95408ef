"""The package by itself: built, installed into empty environments, and used there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from small_pipeline import ROOT, copy_project
from test_ranker import sums

from selverify.audit.log import write_log

SUFFIXES = (".py", ".typed", ".html", ".json")
NOT_ASKED_FOR = ("dask", "dvc", "mlflow", "prefect", "pytest")
ASKED = "from importlib.metadata import requires; print(requires('selverify'))"
USED = """
import time

started = time.perf_counter()
import selverify

assert time.perf_counter() - started < 0.3, time.perf_counter() - started
from selverify import CandidateList, Ranker

ranker = Ranker.load("ranker")
plan = ranker.plan("What is 2 + 3 + 4?", [], ["So 2 + 3 = 5.", "Then 2 + 3 = 9."])
assert sorted(plan.order) == [0, 1], plan


def generate(question, steps, n):
    texts = ["So 2 + 3 = 5.", "Then 2 + 3 = 9."] if not steps else ["The answer is 9."]
    return [texts[place % len(texts)] for place in range(n)]


def score(question, steps):
    return [0.1 if "2 + 3 = 9" in step else 0.9 for step in steps]


solved = selverify.solve(
    "What is 2 + 3 + 4?", generator=generate, verifier=score, ranker="ranker", calls=8
)
assert solved.answer == "9", solved
print(solved.ledger)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel and a source distribution of the project as it is now."""
    root = tmp_path_factory.mktemp("project")
    copy_project(root)
    run(sys.executable, "-m", "build", "--outdir", root / "dist", root)
    (wheel,), (source,) = ((root / "dist").glob(one) for one in ("*.whl", "*.tar.gz"))
    return wheel, source


def run(*command: object, cwd: Path | None = None) -> str:
    """What a command prints that does not see this checkout, which pip would take for installed."""
    told = [str(one) for one in command]
    seen = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(told, cwd=cwd, env=seen, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def interpreter(version: str) -> str:
    """A Python of ``version`` that starts."""
    found = shutil.which(f"python{version}")
    if not found or subprocess.run([found, "-V"], capture_output=True, check=False).returncode:
        pytest.skip(f"python{version} is not installed")
    return found


@pytest.mark.soak
def test_they_hold_the_library_and_nothing_else(built: tuple[Path, Path]) -> None:
    """Stages and flows belong to a clone; the files that the library reads come with it."""
    wheel, source = built
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in names} == {"selverify"}
    kept = {f"{one.relative_to(ROOT)}" for one in (ROOT / "selverify").rglob("*")}
    assert {one for one in kept if Path(one).suffix in SUFFIXES} <= names
    with tarfile.open(source) as packed_source:
        folders = {name.split("/")[1] for name in packed_source.getnames() if "/" in name}
    assert {"selverify", "LICENSE", "README.md"} <= folders
    assert not {"flows", "tasks", "tests"} & folders


@pytest.mark.soak
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_they_install_alone_and_work(
    version: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    """Trained from a log on the command line, loaded, asked, and searched with.

    The source distribution follows the wheel into its environment: they ask for the same packages.
    """
    binaries = tmp_path / "empty" / "bin"
    run(interpreter(version), "-m", "venv", binaries.parent)
    pip = (binaries / "python", "-m", "pip")
    write_log(sums(1), tmp_path / "log.jsonl")
    asked = []
    for distribution in built:
        run(*pip, "install", "--no-compile", distribution)
        listed = run(*pip, "list").lower()
        assert not [name for name in NOT_ASKED_FOR if f"\n{name} " in listed]
        asked.append(run(binaries / "python", "-c", ASKED))
        assert "Usage: selverify" in run(binaries / "selverify", "--help")
        run(binaries / "selverify", "train", "log.jsonl", "-o", "ranker", cwd=tmp_path)
        run(binaries / "selverify", "audit", "log.jsonl", cwd=tmp_path)
        assert "verifier_calls" in run(binaries / "python", "-c", USED, cwd=tmp_path)
        shutil.rmtree(tmp_path / "ranker")
        run(*pip, "uninstall", "--yes", "selverify")
    assert asked[0] == asked[1] and "torch" in asked[0]
    shutil.rmtree(binaries.parent)  # 6 GB
