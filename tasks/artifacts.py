"""The artifacts that stages hand to each other: names, schemas, versions, in one place.

Knows: files of a stage's output folder. Does not know: where the folder is, which ``dvc.yaml``
states.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from selverify.data.benchmark import FURTHER, Task, read_split
from selverify.errors import ParamsError
from selverify.storage import read_json, read_table, write_json, write_table

VERSION = 1
log = logging.getLogger(__name__)


def write_rows(folder: Path, stage: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``rows`` as ``<folder>/<name>.parquet``."""
    write_table(folder / f"{name}.parquet", rows, schema=f"{stage}.{name}", version=VERSION)


def read_rows(folder: Path, stage: str, name: str) -> list[dict[str, Any]]:
    """The rows that ``write_rows`` wrote."""
    path = folder / f"{name}.parquet"
    rows: list[dict[str, Any]] = read_table(
        path, schema=f"{stage}.{name}", version=VERSION
    ).to_pylist()
    return rows


def read_frame(folder: Path, stage: str, name: str) -> pd.DataFrame:
    """The same as a data frame."""
    path = folder / f"{name}.parquet"
    frame: pd.DataFrame = read_table(path, schema=f"{stage}.{name}", version=VERSION).to_pandas()
    return frame


def write_facts(folder: Path, stage: str, name: str, facts: Mapping[str, Any]) -> None:
    """Write a few named numbers as ``<folder>/<name>.json``."""
    write_json(folder / f"{name}.json", dict(facts), schema=f"{stage}.{name}", version=VERSION)


def read_facts(folder: Path, stage: str, name: str) -> dict[str, Any]:
    """The facts that ``write_facts`` wrote."""
    path = folder / f"{name}.json"
    facts: dict[str, Any] = read_json(path, schema=f"{stage}.{name}", version=VERSION)
    return facts


def read_tasks(folder: Path, split: str, *, limit: int | None = None) -> tuple[Task, ...]:
    """The first ``limit`` tasks of a split of the benchmark.

    Raises:
        ParamsError: the split has fewer problems than ``limit``.
    """
    tasks = read_split(folder, split)
    if limit is not None and limit > len(tasks):
        raise ParamsError(
            f"params.yaml: given {limit} problems of split {split!r}, expected at most "
            f"{len(tasks)} (benchmark.*.{split}.problems)"
        )
    return tasks[:limit]


def read_training(folder: Path, share: float) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """The training problems, and then further ones: the first ``share`` of both for the reward
    model, the others.

    The reward model's scores are better on the first than they will be on new problems, so the
    ranker learns from the others.

    Raises:
        ParamsError: one of the two would be without training problems.
    """
    tasks, further = read_tasks(folder, "train"), read_tasks(folder, FURTHER)
    valued, more = round(share * len(tasks)), round(share * len(further))
    if not 0 < valued < len(tasks):
        raise ParamsError(
            f"params.yaml: given rollouts.share {share} of {len(tasks)} training problems, "
            "expected at least one problem in the share and one outside it"
        )
    return (*tasks[:valued], *further[:more]), (*tasks[valued:], *further[more:])


def say(text: str) -> None:
    """Log one line of progress."""
    log.info(text)
