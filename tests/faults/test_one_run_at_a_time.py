"""One pipeline a checkout: the others are told, and a killed one holds and breaks nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from flows.preflight import RUN_PROCESS, alone, mend_known_runs, stage_at_work
from selverify.errors import ArtifactError, ProtocolError

ROOT = Path(__file__).parents[2]
HOLD = """
from flows.preflight import alone, mend_known_runs
with alone():
    print("holding", flush=True)
    input()
"""

KEEP = """
import sys, time
from flows.supervisor import supervising
from flows.preflight import alone
with alone(), supervising([sys.executable, "-u", "-c", {work!r}]):
    time.sleep(600)
"""
WORK = """
import signal, time
def end(*_):
    time.sleep(2)
    print("done")
    raise SystemExit
signal.signal(signal.SIGINT, end)
print("at work")
time.sleep(600)
"""


def test_a_second_run_is_refused_and_a_killed_one_gives_the_checkout_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record
) -> None:
    """The sentence names the process; the system frees the lock of one that was killed."""
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    for how in (signal.SIGKILL, signal.SIGTERM, None):
        with subprocess.Popen(
            [sys.executable, "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as holder:
            assert holder.stdin is not None and holder.stdout is not None
            assert holder.stdout.readline() == b"holding\n"
            told = f"process {holder.pid} runs the pipeline in"
            with pytest.raises(ProtocolError, match=told), alone():
                pass
            if how is None:
                holder.stdin.write(b"\n")
                holder.stdin.flush()
            else:
                holder.send_signal(how)
            holder.wait()
        with alone():
            pass
    record(
        "a second run while one is at work, or after it was killed",
        "the holder of the checkout is asked against, then killed, terminated, ended",
        moments=3,
        held="refused in one sentence that names the process; free at once afterwards",
    )


def test_a_killed_run_holds_the_checkout_until_its_work_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor ends what it started, in its own time: here some seconds after the kill."""
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", KEEP.format(work=WORK)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"at work\n"
        holder.kill()
        holder.wait()
        told = f"what process {holder.pid}, which was killed, had started is still ending"
        with pytest.raises(ProtocolError, match=told), alone():
            pass
        assert holder.stdout.readline() == b"done\n"  # by the work, which has now ended
    for _ in range(100):
        with suppress(ProtocolError), alone():
            return
        time.sleep(0.1)
    pytest.fail("the checkout is not given back")


def test_a_stage_that_dvc_started_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may outlive its run for a moment, and it may be somebody's own ``dvc repro``."""
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    with (
        stage_at_work(),
        stage_at_work(),
        pytest.raises(ProtocolError, match="a stage is at work in this checkout"),
        alone(),
    ):
        pass
    with alone(), stage_at_work():
        assert os.environ[RUN_PROCESS] == str(os.getpid())
    assert RUN_PROCESS not in os.environ


def test_a_run_outside_a_project_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is created."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="run this from the project's root"), alone():
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_of_known_runs_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between its making and its filling leaves one, on which DVC fails ever after.

    One that was made a moment ago is given the time to be filled.
    """
    empty, late, filled = (tmp_path / "ab" / name for name in ("empty", "late", "filled"))
    for path in (empty, late, filled):
        path.mkdir(parents=True)
    (filled / "entry").write_text("cmd: x")
    waited: list[float] = []

    def fill(seconds: float) -> None:
        waited.append(seconds)
        (late / "entry").write_text("cmd: y")

    monkeypatch.setattr("time.sleep", fill)
    mend_known_runs(tmp_path)
    assert late.is_dir() and filled.is_dir() and not empty.exists()
    assert len(waited) == 1 and 4 < waited[0] <= 5
    mend_known_runs(tmp_path / "absent")
    assert len(waited) == 1
