"""Stage ``exploration``: the gated loop on training problems with every survivor verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from selverify.benchmark import Task
from selverify.exploration import to_rows
from selverify.params import Params
from selverify.scheduler import Result, Search, run_lockstep
from selverify.search.gated import Exploration, explore
from tasks.artifacts import local_backend, read_training, say, write_rows
from tasks.shards import map_shards, one_thread

SHARD = 100
"""Problems a shard. Fixed: sums over batches of other sizes could round otherwise."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Training problems to explore."""

    params: Params
    inputs: Mapping[str, Path]
    tasks: tuple[Task, ...]


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``lists``: the candidate lists of the training problems that were not valued."""
    _, tasks = read_training(inputs["benchmark"], params.rollouts.share)
    starts = range(0, len(tasks), SHARD)
    each = one_thread(params)
    shards = [Shard(each, inputs, tasks[start : start + SHARD]) for start in starts]
    parts = map_shards(explore_shard, shards, workers=params.tracking.threads)
    by_task = list(zip(tasks, (result for part in parts for result in part), strict=True))
    rows = [row for task, result in by_task for row in to_rows(task, result.outcome)]
    write_rows(outputs["exploration"], "exploration", "lists", rows)
    right = sum(result.outcome.outcome.answer == task.truth.answer for task, result in by_task)
    labels = [label for row in rows for label in row["labels"]]
    say(f"exploration: {len(rows)} lists, {len(labels)} labelled moves")
    return {
        "lists": len(rows),
        "accepted_share": sum(labels) / max(1, len(labels)),
        "accuracy": right / len(tasks),
        "verifier_calls": sum(result.ledger.verifier_calls for _, result in by_task) / len(tasks),
    }


def explore_shard(shard: Shard) -> list[Result[Exploration]]:
    """The walk through each problem of one shard."""
    params, settings = shard.params, shard.params.exploration
    domain, backend = local_backend(params, shard.inputs, seed=settings.seed)
    searches = {
        task.problem.problem_id: Search(
            explore(
                domain,
                task.problem,
                proposals=settings.proposals,
                tau=settings.tau,
                max_retries=settings.max_retries,
                max_moves=params.sampling[params.domain].max_moves,
            ),
            budget=None,
        )
        for task in shard.tasks
    }
    return list(run_lockstep(searches, backend, end_of_move=domain.end_of_move).values())
