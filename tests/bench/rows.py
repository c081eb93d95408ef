"""What a benchmark gives: rows of a table, each the median of its repeats."""

from __future__ import annotations

import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

median = statistics.median


@dataclass(frozen=True)
class Row:
    """``value`` in ``unit``; ``ratio`` to what the section compares with, None for none."""

    what: str
    value: float
    unit: str
    ratio: float | None


def commit() -> str:
    """The commit that is measured, with a mark where files have changed since."""
    run = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    root = Path(__file__).parents[2]
    return subprocess.run(run, capture_output=True, text=True, check=True, cwd=root).stdout.strip()
