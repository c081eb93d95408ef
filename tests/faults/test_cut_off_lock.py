"""A kill while DVC writes ``dvc.lock``: the next run puts back what was cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.preflight import DVC_DIRECTORY, LOCK_BEFORE, alone, mend_dvc_lock

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from flows.preflight import alone
with alone():
    Path("dvc.lock").write_bytes(Path("dvc.lock").read_bytes()[:int(sys.argv[1])])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def read(text: str) -> Any:
    """By libyaml, ten times as fast as Python: the lock is long and is read often here."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


def locks() -> tuple[str, str]:
    """The project's own lock before a run, and after it: a stage is newer, and one was added."""
    before = (ROOT / "dvc.lock").read_text(encoding="utf-8")
    after = before.replace(" md5: ", " md5: 0", 1)
    return before, f"{after}  added@small:\n    cmd: python -m flows added@small\n"


def mended(tmp_path: Path, before: str, cut: str) -> str | None:
    lock, copy = tmp_path / "dvc.lock", tmp_path / "copy"
    lock.write_text(cut, encoding="utf-8")
    copy.write_text(before, encoding="utf-8")
    mend_dvc_lock(lock, copy)
    assert not copy.exists()
    return lock.read_text(encoding="utf-8") if lock.exists() else None


def test_wherever_dvc_lock_is_cut_off_nothing_of_before_is_lost(tmp_path: Path) -> None:
    """Each entry is that of before, or that of after where it was written whole."""
    before, after = locks()
    old, new = (read(text)["stages"] for text in (before, after))
    assert sum(new[name] != old[name] for name in old) == 1
    starts = {name: after.index(f"\n  {name}:\n") + 1 for name in new}
    near = (start + by for start in starts.values() for by in (-1, 0, 1, 3))
    cuts = {*range(0, starts["added@small"], 397), *near, len(after)}
    for cut in sorted(cuts):
        text = mended(tmp_path, before, after[:cut])
        assert text is not None
        found = read(text)
        whole = [name for name, start in starts.items() if start + 3 <= cut][:-1]
        assert found["schema"] == "2.0" and list(found["stages"])[: len(old)] == list(old)
        for name, entry in found["stages"].items():
            assert entry in ((new[name],) if name in whole else (old.get(name), new[name]))
        assert set(whole) <= set(found["stages"])


def test_a_whole_lock_and_a_first_one_are_left_alone(tmp_path: Path) -> None:
    """Also one of which an entry in the middle is gone."""
    before, after = locks()
    first, second = list(read(before)["stages"])[:2]
    without = before[: before.index(f"  {first}:")] + before[before.index(f"  {second}:") :]
    for text in (before, after, without, "schema: '2.0'\nstages: {}\n"):
        assert mended(tmp_path, "" if "{}" in text else before, text) == text
        assert mended(tmp_path, "", text) == text


def test_a_shorter_lock_of_another_commit_is_left_alone(tmp_path: Path) -> None:
    """It is a start of the one before, and somebody checked it out after the kill."""
    before, _ = locks()
    *_, last = read(before)["stages"]
    shorter = before[: before.index(f"  {last}:\n")]
    assert mended(tmp_path, before, shorter) != shorter
    (tmp_path / "dvc.lock").write_text(shorter, encoding="utf-8")
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    for command in (("init", "-q"), ("add", "dvc.lock"), (*identity, "commit", "-qm", "lock")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert mended(tmp_path, before, shorter) == shorter
    assert mended(tmp_path, before, shorter[:-1]) == before


def test_the_first_lock_of_all_is_removed_or_loses_its_last_entry(tmp_path: Path) -> None:
    before, _ = locks()
    assert mended(tmp_path, "", "") is None
    assert mended(tmp_path, "", before[:20]) is None
    text = mended(tmp_path, "", before[:-40])
    assert text is not None and before.startswith(text) and text.endswith("\n")
    assert list(read(text)["stages"]) == list(read(before)["stages"])[:-1]


@pytest.mark.parametrize("size", [0, 8192])
def test_the_next_run_mends_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Of a clean end no copy stays, so a lock that is cut off then is somebody's own doing."""
    (tmp_path / ".dvc").mkdir()
    lock = tmp_path / "dvc.lock"
    before, _ = locks()
    lock.write_text(before, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(size)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert lock.stat().st_size == size and (DVC_DIRECTORY / LOCK_BEFORE).is_file()
    with alone():
        assert lock.read_text(encoding="utf-8") == before
        lock.write_bytes(b"")  # DVC is killed, and the run that started it is not
    assert lock.read_text(encoding="utf-8") == before
    assert not (DVC_DIRECTORY / LOCK_BEFORE).exists()
    lock.write_bytes(b"")
    with alone():
        assert lock.read_bytes() == b""


def test_a_run_may_remove_the_lock_or_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    for text in (None, "schema: '2.0'\n"):
        lock = tmp_path / "dvc.lock"
        if text:
            lock.write_text(text, encoding="utf-8")
        with alone():
            lock.unlink(missing_ok=True)
        assert not lock.exists() and not (DVC_DIRECTORY / LOCK_BEFORE).exists()
