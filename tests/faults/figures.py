"""Figures of the fault tests: what was done, how often, what held, how long it took.

A test records them; they are kept in pytest's cache, which git ignores, and ``report.py`` makes the
page from them. A figure holds for the state of the code that it was measured on, and says so.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".pytest_cache" / "faults.json"


@dataclass(frozen=True)
class Figure:
    """One row: ``test`` is where it was measured, ``commit`` on what and ``machine`` where."""

    test: str
    fault: str
    done: str
    moments: int
    held: str
    seconds: float
    commit: str
    machine: str


def load() -> dict[str, Figure]:
    """The last figure of each test that there still is."""
    if not STORE.is_file():
        return {}
    found = {name: Figure(**one) for name, one in json.loads(STORE.read_text()).items()}
    return {name: one for name, one in found.items() if _stands(name)}


def keep(new: Mapping[str, Figure]) -> None:
    """Put ``new`` figures in the place of older ones of the same tests."""
    STORE.parent.mkdir(exist_ok=True)
    with STORE.with_suffix(".lock").open("w") as lock:  # two sessions may end at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        everything = {name: asdict(one) for name, one in sorted({**load(), **new}.items())}
        STORE.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def _stands(test: str) -> bool:
    file, _, function = test.partition("[")[0].partition("::")
    path = ROOT / file
    return path.is_file() and f"def {function}(" in path.read_text(encoding="utf-8")


def commit() -> str:
    """The commit, and whether files differ from it."""
    told = [_git("rev-parse", "--short", "HEAD").strip() or "no commit"]
    if _git("status", "--porcelain"):
        told.append("with changes")
    return " ".join(told)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout
