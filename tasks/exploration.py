"""Stage ``exploration``: the gated loop on training problems with every survivor verified."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from selverify.exploration import to_rows
from selverify.params import Params
from selverify.scheduler import Search, run_lockstep
from selverify.search.gated import explore
from tasks.artifacts import local_backend, read_training, say, write_rows


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``lists``: the candidate lists of the training problems that were not valued."""
    settings = params.exploration
    domain, backend = local_backend(params, inputs, seed=settings.seed)
    _, tasks = read_training(inputs["benchmark"], params.rollouts.share)
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
        for task in tasks
    }
    results = run_lockstep(searches, backend, end_of_move=domain.end_of_move)
    by_task = [(task, results[task.problem.problem_id]) for task in tasks]
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
