"""Stage ``difficulty``: pass@1 of each evaluated problem from samples of its own, and bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from selverify.data.benchmark import Task
from selverify.data.difficulty import bin_agreement, difficulty_bins
from selverify.data.grading import Grader
from selverify.domains.base import Domain, knows_truth
from selverify.params import Params
from selverify.search.backend import sample_completions
from selverify.search.solutions import read_solution
from selverify.types import Sample
from tasks.artifacts import read_tasks, say, write_rows
from tasks.models import open_grader, open_models
from tasks.shards import Mapper, Shard, map_shards, work_on

SHARD = 50
"""Problems a shard."""


def run(
    params: Params,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    mapper: Mapper = map_shards,
) -> dict[str, float]:
    """Write ``difficulty``: pass rates, halves, right derivations and the bin of each problem."""
    settings = params.difficulty
    evaluation = params.evaluation
    tasks = read_tasks(inputs["benchmark"], evaluation.split, limit=evaluation.problems)
    parts = work_on(sample_shard, tasks, params, inputs, size=SHARD, mapper=mapper)
    hits = np.array([hit for part in parts for hit in part])
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


def sample_shard(shard: Shard) -> list[list[tuple[bool, bool]]]:
    """The hits of each problem of one shard."""
    settings = shard.params.difficulty
    models = open_models(shard.params, shard.inputs, seed=settings.seed)
    domain = models.domain
    starts = [domain.initial_state(task.problem, budget=1) for task in shard.tasks]
    replies = sample_completions(models.backend, starts, count=settings.samples)
    say(f"difficulty: to {shard.tasks[-1].problem.problem_id}, {settings.samples} samples each")
    with open_grader(shard.params) as grader:
        return [
            _hits(domain, task, samples, grader)
            for task, samples in zip(shard.tasks, replies, strict=True)
        ]


def _hits(
    domain: Domain, task: Task, samples: Sequence[Sample], grader: Grader
) -> list[tuple[bool, bool]]:
    """For each sample whether its answer is right, and whether its derivation is, too.

    Where the truth about a derivation is unknown, a right answer counts as a right derivation.
    """
    start = domain.initial_state(task.problem, budget=1)
    found = []
    for sample in samples:
        solution = read_solution(domain, start, text=sample.text, count=1)
        if solution is None:
            found.append((False, False))
            continue
        right = grader.matches(task.truth.answer, domain.answer(solution.state))
        alive = not knows_truth(domain) or domain.alive(solution.state, task.truth)
        found.append((right, right and alive))
    return found
