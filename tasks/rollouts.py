"""Stage ``rollouts``: Monte-Carlo values of the steps of sampled solutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from selverify.benchmark import SPLITS, Task, check_held_out
from selverify.params import Params
from selverify.rollouts import sample_solutions, to_rows, value_solutions
from tasks.artifacts import local_backend, read_facts, read_tasks, read_training, say, write_rows
from tasks.shards import map_shards, one_thread

SHARD = 50
"""Problems a shard. Fixed: sums over batches of other sizes could round otherwise."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Training problems to value."""

    params: Params
    inputs: Mapping[str, Path]
    tasks: tuple[Task, ...]


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``values``: training problems, valued."""
    _check_held_out(inputs)
    tasks, _ = read_training(inputs["benchmark"], params.rollouts.share)
    starts = range(0, len(tasks), SHARD)
    each = one_thread(params)
    shards = [Shard(each, inputs, tasks[start : start + SHARD]) for start in starts]
    parts = map_shards(value_shard, shards, workers=params.tracking.threads)
    rows = [row for part, _ in parts for row in part]
    write_rows(outputs["rollouts"], "rollouts", "values", rows)
    parsed = sum(count for _, count in parts) / (params.rollouts.solutions * len(tasks))
    return {"solutions": len(rows), "parsed_share": parsed}


def value_shard(shard: Shard) -> tuple[list[dict[str, object]], int]:
    """The valued solutions of one shard, and how many samples could be parsed."""
    settings = shard.params.rollouts
    domain, backend = local_backend(shard.params, shard.inputs, seed=settings.seed)
    sampled = sample_solutions(domain, backend, shard.tasks, solutions=settings.solutions)
    valued = value_solutions(domain, backend, sampled, rollouts=settings.rollouts)
    rows = to_rows(domain, valued, sampled)
    say(f"rollouts: to {shard.tasks[-1].problem.problem_id}, {len(rows)} solutions valued")
    return rows, sum(one.count for one in sampled)


def _check_held_out(inputs: Mapping[str, Path]) -> None:
    """The first use of the frozen generator: no test problem may stand in its training."""
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
