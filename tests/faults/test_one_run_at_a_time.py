"""One pipeline a checkout: the others are told, and a killed one holds and breaks nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flows.preflight import alone, mend_known_runs
from selverify.errors import ArtifactError, ProtocolError

ROOT = Path(__file__).parents[2]
HOLD = """
from flows.preflight import alone, mend_known_runs
with alone():
    print("holding", flush=True)
    input()
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


def test_a_run_outside_a_project_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is created."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="run this from the project's root"), alone():
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_of_known_runs_is_removed(tmp_path: Path) -> None:
    """A kill between its making and its filling leaves one, on which DVC fails ever after."""
    old, new, filled = (tmp_path / "ab" / name for name in ("old", "new", "filled"))
    for path in (old, new, filled):
        path.mkdir(parents=True)
    (filled / "entry").write_text("cmd: x")
    for path in (old, filled):
        os.utime(path, (0, 0))
    assert mend_known_runs(tmp_path) == [old]
    assert new.is_dir() and filled.is_dir() and not old.exists()
    assert mend_known_runs(tmp_path / "absent") == []
