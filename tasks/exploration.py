"""Stage ``exploration``: the gated loop on training problems with every survivor verified."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

from selverify.models.reply_cache import CachedBackend
from selverify.models.sources import has_source
from selverify.models.threshold import known_tau, resolve_tau
from selverify.params import Params
from selverify.search.driver import Result, Search, run_searches
from selverify.search.exploration import Exploration, explore
from selverify.search.requests import RankItem
from selverify.training.exploration import exploration_rows
from tasks.artifacts import read_training, say, write_rows
from tasks.models import open_grader, open_models
from tasks.shards import Mapper, Shard, map_shards, work_on

SHARD = 100
"""Problems a shard."""


def run(
    params: Params,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    mapper: Mapper = map_shards,
) -> dict[str, float]:
    """Write ``lists``: the candidate lists of the training problems that were not valued."""
    params = resolve_tau(params, inputs["verifier"])
    _, tasks = read_training(inputs["benchmark"], params.rollouts.share)
    parts = work_on(explore_shard, tasks, params, inputs, size=SHARD, mapper=mapper)
    results = [result for part, _ in parts for result in part]
    with open_grader(params) as grader:
        right = [
            grader.matches(task.truth.answer, result.outcome.outcome.answer)
            for task, result in zip(tasks, results, strict=True)
        ]
    lists = [
        row
        for task, result, matches in zip(tasks, results, right, strict=True)
        for row in exploration_rows(task, result.outcome, right=matches)
    ]
    embedded = [kept for _, part in parts for kept in part]
    rows = [{**row, "embedded": kept} for row, kept in zip(lists, embedded, strict=True)]
    write_rows(outputs["exploration"], "exploration", "lists", rows)
    labels = [label for row in rows for label in row["labels"]]
    say(f"exploration: {len(rows)} lists, {len(labels)} labelled moves")
    return {
        "lists": len(rows),
        "accepted_share": sum(labels) / max(1, len(labels)),
        "accuracy": sum(right) / len(tasks),
        "verifier_calls": sum(result.ledger.verifier_calls for result in results) / len(tasks),
    }


def explore_shard(shard: Shard) -> tuple[list[Result[Exploration]], list[bytes]]:
    """The walk through each problem of one shard, and of each list the embeddings.

    They are kept (``pack_moves``) where a model of others would have to read the moves again.
    """
    params, settings = shard.params, shard.params.exploration
    models = open_models(
        params,
        shard.inputs,
        seed=settings.seed,
        cached=True,
        embeds=has_source(shard.inputs["generator"]),
    )
    domain = models.domain
    # Before the first call: a server without embeddings is found now.
    embed = models.embedding() if has_source(shard.inputs["generator"]) else None
    searches = {
        task.problem.problem_id: Search(
            explore(
                domain,
                task.problem,
                proposals=settings.proposals,
                tau=known_tau(settings.tau, "exploration.tau"),
                max_retries=settings.max_retries,
                max_moves=params.sampling[params.domain].max_moves,
            ),
            budget=None,
        )
        for task in shard.tasks
    }
    with closing(cast(CachedBackend, models.backend)) as backend:
        found = list(run_searches(searches, backend, end_of_move=domain.end_of_move).values())
        backend.write()
    items = [RankItem(one.state, one.moves, "") for result in found for one in result.outcome.lists]
    if embed is None:
        return found, [b""] * len(items)
    from selverify.models.heuristic.embedding import pack_moves  # imports torch

    return found, [pack_moves(rows) for rows in embed(items)]
