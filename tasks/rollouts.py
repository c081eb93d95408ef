"""Stage ``rollouts``: values of the steps of sampled solutions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from selverify.data.benchmark import SPLITS, check_held_out
from selverify.data.grading import Grader
from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.models.sources import has_adapter, has_source
from selverify.params import Params
from selverify.storage import check_digests
from selverify.training.rollouts import (
    SampledSolution,
    Values,
    explore_candidates,
    of_solved_problems,
    sample_training_solutions,
    solution_rows,
    state_values,
    up_to_the_first_wrong,
    value_solutions,
    written_solutions,
    written_values,
)
from tasks.artifacts import read_facts, read_rows, read_tasks, read_training, say, write_rows
from tasks.models import open_grader, open_models
from tasks.shards import Mapper, Shard, map_shards, work_on

if TYPE_CHECKING:
    from selverify.models.assembly import OpenModels

SHARD = 50
"""Problems a shard."""


def run(
    params: Params,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    mapper: Mapper = map_shards,
) -> dict[str, float]:
    """Write ``values``: training problems, valued."""
    _check_held_out(inputs)
    if params.verifier.kind[params.domain] == "source":
        say("rollouts: none, for the verifier is not trained here")
        write_rows(outputs["rollouts"], "rollouts", "values", [])
        return {"rows": 0}
    learned, others = read_training(inputs["benchmark"], params.rollouts.share)
    known, new = ([task for task in part if task.split == "train"] for part in (learned, others))
    for_tau = new[: round(params.rollouts.threshold_share * len(known + new))]
    tasks = *learned, *for_tau
    parts = work_on(value_shard, tasks, params, inputs, size=SHARD, mapper=mapper)
    rows = [row for part, _, _ in parts for row in part]
    write_rows(outputs["rollouts"], "rollouts", "values", rows)
    parsed, drawn = sum(one for _, one, _ in parts), sum(one for _, _, one in parts)
    return {"rows": len(rows), "parsed_share": parsed / max(1, drawn)}


def value_shard(shard: Shard) -> tuple[list[dict[str, object]], int, int]:
    """The valued solutions of one shard, how many samples could be parsed and how many there were.

    Raises:
        ParamsError: the benchmark has no written solutions, and they are to say what is right.
    """
    settings = shard.params.rollouts
    by_what_is_written = shard.params.verifier.targets[shard.params.domain] == "written"
    # Rollouts would push what was sampled before out of memory, and it would be read again.
    embeds = by_what_is_written and shard.params.verifier.kind[shard.params.domain] == "head"
    models = open_models(shard.params, shard.inputs, seed=settings.seed, embeds=embeds)
    domain, backend = models.domain, models.backend
    written = _written(shard, domain) if by_what_is_written else []
    tasks = [one.task for one in written] if by_what_is_written else shard.tasks
    sampled = sample_training_solutions(domain, backend, tasks, solutions=settings.solutions)
    parsed = sum(one.count for one in sampled)
    explored: list[SampledSolution] = []
    with open_grader(shard.params) as grader:
        if by_what_is_written:
            values = written_values(domain, written, sampled, grader=grader)
            sampled = up_to_the_first_wrong(sampled, values)
        else:
            sampled, explored, values = _roll_out(shard.params, models, sampled, grader)
    both = [*sampled, *explored]
    valued = value_solutions(both, values)
    if embeds:  # what was sampled need not be read again
        from selverify.training.head import embed_moves  # imports torch

        valued = embed_moves(valued, domain, models.embedding())
    rows = solution_rows(domain, valued, both)
    last = shard.tasks[-1].problem.problem_id
    say(f"rollouts: to {last}, {len(sampled)} solutions, {len(explored)} candidates valued")
    return rows, parsed, settings.solutions * len(tasks)


def _roll_out(
    params: Params, models: OpenModels, sampled: list[SampledSolution], grader: Grader
) -> tuple[list[SampledSolution], list[SampledSolution], Values]:
    """Those of the solutions that are rolled out, what is explored beside them, all values."""
    domain, backend, settings = models.domain, models.backend, params.rollouts
    if params.verifier.targets[params.domain] == "relative":
        sampled = of_solved_problems(domain, sampled, grader=grader)
    valued = partial(
        state_values,
        domain,
        backend,
        solutions=settings.solutions,
        rollouts=settings.rollouts,
        grader=grader,
    )
    values = valued(sampled)
    explored = explore_candidates(
        domain,
        backend,
        sampled,
        values,
        proposals=settings.proposals,
        skipped=max(settings.solutions, settings.rollouts),
        explored_from=settings.explored_from,
    )
    learned = [one for one in sampled if one.fresh < len(one.states)]
    return learned, explored, values | valued(explored)


def _written(shard: Shard, domain: Domain) -> list[SampledSolution]:
    """The problems' written solutions, of those that have one."""
    rows = read_rows(shard.inputs["benchmark"], "benchmark", "written")
    if not rows:
        raise ParamsError(
            f"verifier.targets.{domain.name}: given written, expected other targets: the benchmark "
            "has no written solutions that can be read as moves"
        )
    return written_solutions(
        domain, shard.tasks, {row["problem_id"]: tuple(row["moves"]) for row in rows}
    )


def _check_held_out(inputs: Mapping[str, Path]) -> None:
    """The first use of the frozen generator: no test problem may be in its training."""
    if has_source(inputs["generator"]) and not has_adapter(inputs["generator"]):
        say(f"rollouts: the training data of {inputs['generator']} are unknown")
        return
    check_digests(inputs["generator"])
    marks = read_facts(inputs["generator"], "generator", "held_out")["marks"]
    for split in SPLITS:
        tasks = read_tasks(inputs["benchmark"], split)
        known = check_held_out(tasks, marks, checkpoint=str(inputs["generator"]))
        if known:
            say(
                f"rollouts: {inputs['generator']} may have been trained on {known} of {len(tasks)} "
                f"problems of split {split!r}; verifier and ranker may learn from what it knows by "
                "heart (python -m flows generator trains it without them)"
            )
