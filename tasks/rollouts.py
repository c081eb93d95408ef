"""Stage ``rollouts``: values of steps: of sampled solutions, or of what is sampled beside written
ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from selverify.data.benchmark import SPLITS, check_held_out
from selverify.errors import ParamsError
from selverify.models.sources import has_adapter, has_source
from selverify.params import Params
from selverify.storage import check_digests
from selverify.training.rollouts import (
    explore_candidates,
    of_solved_problems,
    sample_training_solutions,
    solution_rows,
    state_values,
    value_solutions,
    written_solutions,
    written_values,
)
from tasks.artifacts import read_facts, read_rows, read_tasks, read_training, say, write_rows
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
    """Write ``values``: training problems, valued."""
    _check_held_out(inputs)
    if params.verifier.kind[params.domain] == "source":
        say("rollouts: none, for the verifier is not trained here")
        write_rows(outputs["rollouts"], "rollouts", "values", [])
        return {"rows": 0}
    learned, others = read_training(inputs["benchmark"], params.rollouts.share)
    tasks = *learned, *others[: round(params.rollouts.threshold_share * len(learned + others))]
    parts = work_on(value_shard, tasks, params, inputs, size=SHARD, mapper=mapper)
    rows = [row for part, _ in parts for row in part]
    write_rows(outputs["rollouts"], "rollouts", "values", rows)
    if _by_what_is_written(params):
        return {"rows": len(rows)}
    parsed = sum(count for _, count in parts) / (params.rollouts.solutions * len(tasks))
    return {"rows": len(rows), "parsed_share": parsed}


def value_shard(shard: Shard) -> tuple[list[dict[str, object]], int]:
    """The valued solutions of one shard, and how many samples could be parsed."""
    settings = shard.params.rollouts
    models = open_models(shard.params, shard.inputs, seed=settings.seed)
    domain, backend = models.domain, models.backend
    written = _by_what_is_written(shard.params)
    with open_grader(shard.params) as grader:
        if written:
            sampled = written_solutions(domain, shard.tasks, _written(shard))
            drawn = 0
            valued = partial(written_values, domain, sampled, grader=grader)
            values = valued([])
        else:
            count = settings.solutions
            sampled = sample_training_solutions(domain, backend, shard.tasks, solutions=count)
            drawn = sum(one.count for one in sampled)
            if shard.params.verifier.targets[shard.params.domain] == "relative":
                sampled = of_solved_problems(domain, sampled, grader=grader)
            valued = partial(
                state_values, domain, backend, rollouts=settings.rollouts, grader=grader
            )
            values = valued(sampled)
        explored = explore_candidates(
            domain,
            backend,
            sampled,
            values,
            proposals=settings.proposals,
            explored_from=settings.explored_from,
            continued=written,
        )
        values |= valued(explored)
    both = explored if written else [*sampled, *explored]
    rows = solution_rows(domain, value_solutions(both, values), both)
    last = shard.tasks[-1].problem.problem_id
    say(f"rollouts: to {last}, {len(sampled)} solutions, {len(explored)} candidates valued")
    return rows, drawn


def _by_what_is_written(params: Params) -> bool:
    return params.verifier.targets[params.domain] == "written"


def _written(shard: Shard) -> dict[str, tuple[str, ...]]:
    """The moves of the problems' written solutions.

    Raises:
        ParamsError: the benchmark has none.
    """
    rows = read_rows(shard.inputs["benchmark"], "benchmark", "written")
    if not rows:
        domain = shard.params.domain
        raise ParamsError(
            f"verifier.targets.{domain}: given written, expected other targets: the benchmark has "
            "no written solutions that can be read as moves"
        )
    return {row["problem_id"]: tuple(row["moves"]) for row in rows}


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
