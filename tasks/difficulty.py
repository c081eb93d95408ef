"""Stage ``difficulty``: pass@1 of every test problem from its own samples, and five equal bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from selverify.benchmark import Task
from selverify.difficulty import bin_agreement, difficulty_bins
from selverify.domains.base import GeneratedDomain
from selverify.params import Params
from selverify.requests import Complete, CompleteItem
from selverify.search.solutions import read_solution
from selverify.types import Sample
from tasks.artifacts import local_backend, read_tasks, write_rows


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``difficulty``: pass rates, halves, right derivations and the bin of each problem."""
    settings = params.difficulty
    domain, backend = local_backend(params, inputs, seed=settings.seed)
    tasks = read_tasks(inputs["benchmark"], "test", limit=params.evaluation.problems)
    items = tuple(
        CompleteItem(domain.initial_state(task.problem, budget=1), 0, settings.samples)
        for task in tasks
    )
    replies = cast(tuple[tuple[Sample, ...], ...], backend.answer(Complete(items)))
    hits = np.array([_hits(domain, task, s) for task, s in zip(tasks, replies, strict=True)])
    answered, derived = hits[..., 0], hits[..., 1]
    rates = answered.mean(1)
    half = settings.samples // 2
    halves = answered[:, :half].mean(1), answered[:, half:].mean(1)
    bins = difficulty_bins(rates, bins=settings.bins, seed=settings.seed)
    rows = [
        {
            "problem_id": task.problem.problem_id,
            "pass_at_1": float(rates[index]),
            "first_half": float(halves[0][index]),
            "second_half": float(halves[1][index]),
            "right_derivation_rate": float(derived[index].mean()),
            "difficulty_bin": int(bins[index]),
        }
        for index, task in enumerate(tasks)
    ]
    write_rows(outputs["difficulty"], "difficulty", "difficulty", rows)
    agreement = bin_agreement(*halves, bins=settings.bins, seed=settings.seed)
    return {
        "pass_at_1": float(rates.mean()),
        "pass_at_all": float(answered.any(1).mean()),
        "right_derivation_at_1": float(derived.mean()),
        "right_derivation_at_all": float(derived.any(1).mean()),
        "bin_agreement": agreement.same_bin,
        "bin_spearman": agreement.spearman or 0.0,
    }


def _hits(
    domain: GeneratedDomain, task: Task, samples: Sequence[Sample]
) -> list[tuple[bool, bool]]:
    """For each sample whether its answer is right, and whether its derivation is, too."""
    start = domain.initial_state(task.problem, budget=1)
    found = []
    for sample in samples:
        solution = read_solution(domain, start, sample.text, count=1)
        right = solution is not None and domain.answer(solution.state) == task.truth.answer
        derived = right and solution is not None and domain.alive(solution.state, task.truth)
        found.append((right, derived))
    return found
