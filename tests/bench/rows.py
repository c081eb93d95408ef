"""What a benchmark gives: rows of a table, each the median of its repeats."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

median = statistics.median


@dataclass(frozen=True)
class Row:
    """``value`` in ``unit``; ``ratio`` to what the section compares with, None for none."""

    what: str
    value: float
    unit: str
    ratio: float | None


def rate(work: Callable[[], int]) -> float:
    """What ``work`` makes a second, by its own count, when an accelerator has ended it, too."""
    _wait()
    began = time.perf_counter()
    made = work()
    _wait()
    return made / (time.perf_counter() - began)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def median_rates(ways: Mapping[str, Callable[[], int]], repeats: int) -> dict[str, float]:
    """Of each way, all of them in turn as often as ``repeats`` says."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            found[name].append(rate(way))
    return {name: median(rates) for name, rates in found.items()}


def compared(rates: Mapping[str, float], unit: str) -> list[Row]:
    """A row each, with its ratio to the first."""
    base = next(iter(rates.values()))
    return [Row(name, found, unit, found / base) for name, found in rates.items()]


def commit() -> str:
    """The commit that is measured, with a mark where files have changed since."""
    run = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    root = Path(__file__).parents[2]
    return subprocess.run(run, capture_output=True, text=True, check=True, cwd=root).stdout.strip()
