"""The embedded benchmarks: problems and truths of three splits that share no problem.

Knows: seeds, sizes, fingerprints, the two tables that a benchmark is kept in. Does not know:
models. The test split is drawn first, so it does not change when the others grow.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selverify.domains.base import GeneratedDomain
from selverify.errors import LeakError, ParamsError, SchemaError
from selverify.params import Benchmark
from selverify.storage import read_table
from selverify.types import Problem, Truth

SPLITS = ("test", "validation", "train")
FURTHER = "further"
"""A split of training problems that the generator may know, for verifier and ranker alone."""
TRANSFER = "transfer"
"""A split of questions of another benchmark, which no stage learns from or chooses on."""
VERSION = 1
"""Of the tables."""
MOST_DRAWS, REDRAWS = 100_000, 100
"""Problems drawn for a split, at least and for each one wanted, before there seem to be no more."""


@dataclass(frozen=True, slots=True)
class Task:
    """A problem, the truth that only grading and audits may see, and its split."""

    split: str
    problem: Problem
    truth: Truth
    fingerprint: str


def build(domain: GeneratedDomain, settings: Benchmark) -> tuple[Task, ...]:
    """All tasks, test first; a problem drawn twice, in any split, is drawn again.

    Raises:
        ParamsError: the domain has too few problems of these sizes.
    """
    seen: set[str] = set()
    tasks: list[Task] = []
    for name in SPLITS:
        split = getattr(settings, name)
        rng = random.Random(split.seed)
        found = drawn = 0
        while found < split.problems:
            drawn += 1
            if drawn > MOST_DRAWS + REDRAWS * split.problems:
                raise ParamsError(
                    f"benchmark.{domain.name}.{name}.problems: given {split.problems}, expected at "
                    f"most about {found}: {drawn} draws gave no more new ones"
                )
            problem_id = f"{domain.name}-{name}-{found:05d}"
            problem, truth = domain.generate(
                rng,
                problem_id=problem_id,
                minimum=settings.minimum,
                maximum=settings.maximum,
                hard=settings.hard,
            )
            fingerprint = domain.fingerprint(problem)
            if fingerprint not in seen:
                seen.add(fingerprint)
                tasks.append(Task(name, problem, truth, fingerprint))
                found += 1
    return tuple(tasks)


def check_leaks(tasks: Iterable[Task]) -> None:
    """Refuse a problem that stands in two splits.

    Raises:
        LeakError: names both problems and both splits.
    """
    first: dict[str, Task] = {}
    for task in tasks:
        other = first.setdefault(task.fingerprint, task)
        if other.split != task.split:
            raise LeakError(
                f"problem {task.problem.problem_id!r} of split {task.split!r} also stands in "
                f"split {other.split!r} as {other.problem.problem_id!r}; expected disjoint splits"
            )


def held_out_marks(tasks: Iterable[Task]) -> list[str]:
    """Short hashes of the problems that a backbone is not trained on, sorted."""
    return sorted(map(_mark, tasks))


def check_held_out(tasks: Iterable[Task], marks: Collection[str], *, checkpoint: str) -> int:
    """Refuse validation and test problems that a checkpoint may have been trained on.

    Args:
        marks: what ``held_out_marks`` gave when ``checkpoint`` was trained.

    Returns:
        How many training problems it may have been trained on. They are no leak; but what it does
        on those is not what it does on new ones, and verifier and ranker learn from it.

    Raises:
        LeakError: names the first validation or test problem that was not held out then.
    """
    known = frozenset(marks)
    unmarked = [task for task in tasks if _mark(task) not in known]
    for task in unmarked:
        if task.split != "train":
            raise LeakError(
                f"{checkpoint}: was trained without holding out problem "
                f"{task.problem.problem_id!r} of split {task.split!r}; expected every "
                "validation and test problem held out; train it again (python -m flows generator)"
            )
    return len(unmarked)


def _mark(task: Task) -> str:
    return hashlib.blake2b(task.fingerprint.encode(), digest_size=8).hexdigest()


def benchmark_rows(tasks: Sequence[Task]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Rows of the problems table and of the truths table."""
    problems = [
        {"split": task.split, **asdict(task.problem), "fingerprint": task.fingerprint}
        for task in tasks
    ]
    return problems, [asdict(task.truth) for task in tasks]


def read_split(folder: Path, split: str) -> tuple[Task, ...]:
    """The tasks of one split of the benchmark in ``folder``, in its order.

    Raises:
        ArtifactError, SchemaError: a table is missing, or is none of a benchmark.
    """
    problems, truths = (
        read_table(folder / f"{name}.parquet", schema=f"benchmark.{name}", version=VERSION)
        for name in ("problems", "truths")
    )
    return tasks_from_rows(problems.to_pylist(), truths.to_pylist(), split)


def tasks_from_rows(
    problems: Sequence[Mapping[str, Any]], truths: Sequence[Mapping[str, Any]], split: str
) -> tuple[Task, ...]:
    """The tasks of one split, in table order.

    Raises:
        SchemaError: a row lacks a column, or a problem its truth.
    """
    try:
        answers = {row["problem_id"]: Truth(**row) for row in truths}
        return tuple(
            Task(
                split,
                Problem(row["problem_id"], row["domain"], row["text"], row["goal"]),
                answers[row["problem_id"]],
                row["fingerprint"],
            )
            for row in problems
            if row["split"] == split
        )
    except (KeyError, TypeError) as error:
        raise SchemaError(
            f"benchmark: given tables of other rows ({error}), expected problems and their truths "
            "as stage 'benchmark' writes them"
        ) from error
