"""Stage ``residual``: train the ranker's heads from the candidate lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from selverify.data.benchmark import FURTHER
from selverify.domains.base import Domain
from selverify.experiment.audits import ScoredCandidates, ranker_table
from selverify.experiment.statistics import Bootstrap
from selverify.models.assembly import OpenModels
from selverify.models.generators.checkpoints import save_ranker_checkpoint
from selverify.models.heuristic.embedding import unpack_moves
from selverify.models.heuristic.hybrid import Heuristic, scorers
from selverify.models.sources import has_source
from selverify.params import Params
from selverify.search.requests import RankItem
from selverify.search.retrieval import PatternStore
from selverify.storage import write_table
from selverify.training.exploration import parse_moves, state_of
from selverify.training.fit import Epoch
from selverify.training.policy import LabelledList, MappedLists, split_lists, train_policy
from selverify.training.reproducible import reproducible
from selverify.types import Move, State
from tasks.artifacts import VERSION, read_rows, read_tasks, say
from tasks.models import open_models

RECALL_AT = (1, 2, 3, 4)


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write the policy with its patterns, and ``rankers`` (audit on held-out training problems)."""
    settings = params.residual
    models = open_models(params, inputs, seed=settings.seed)
    domain = models.domain
    rows = read_rows(inputs["exploration"], "exploration", "lists")
    items = _items(domain, rows, inputs["benchmark"])
    # Reading with a model of the hub takes hours on one thread, and depends on the machine anyway.
    with nullcontext() if has_source(inputs["generator"]) else reproducible():
        lists = MappedLists(_label(models, rows, items))
    heuristic, dispersion = train_policy(lists, settings, report=_report)
    store = PatternStore.build(domain, _labelled_moves(items, rows))
    folder = outputs["residual"]
    save_ranker_checkpoint(
        folder,
        heuristic,
        backbone=models.backbone,
        reference_dispersion=dispersion,
        patterns=store.patterns(settings.retrieval_patterns),
    )
    table = _audit(heuristic, lists, params)
    # As a table it keeps its columns where no state has an accepted move, and so no row.
    kept_columns = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata()
    path = folder / "rankers.parquet"
    write_table(path, kept_columns, schema="residual.rankers", version=VERSION)
    hybrid = table[table["ranker"] == "hybrid"]
    kept = dict(zip(hybrid["metric"], hybrid["value"], strict=True))
    return {**kept, "reference_dispersion": dispersion["hybrid"], "lists": len(rows)}


def _items(domain: Domain, rows: Sequence[Mapping[str, Any]], benchmark: Path) -> list[RankItem]:
    splits = (read_tasks(benchmark, name) for name in ("train", FURTHER))
    tasks = {task.problem.problem_id: task for split in splits for task in split}
    return [
        RankItem(
            state_of(domain, tasks[row["problem_id"]], row),
            parse_moves(domain, row["moves"], where="candidate list"),
            "",
        )
        for row in rows
    ]


def _label(
    models: OpenModels, rows: Sequence[dict[str, Any]], items: Sequence[RankItem]
) -> Iterator[LabelledList]:
    """One after the other; what was stored with a row is given up with it."""
    bare = [item for item, row in zip(items, rows, strict=True) if not row["embedded"]]
    read = iter(models.embedding()(bare) if bare else ())
    for row in rows:
        stored = row.pop("embedded")
        yield LabelledList(
            row["problem_id"],
            unpack_moves(stored) if stored else next(read),
            tuple(row["labels"]),
            row["committed"],
            row["remaining"],
            tuple(row["scores"]),
        )


def _labelled_moves(
    items: Sequence[RankItem], rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[State, Move, bool]]:
    for item, row in zip(items, rows, strict=True):
        for move, label in zip(item.moves, row["labels"], strict=True):
            yield item.state, move, label


def _audit(heuristic: Heuristic, lists: MappedLists, params: Params) -> pd.DataFrame:
    """Rankers against random and oracle order, on the problems held out of the training."""
    _, held_out = split_lists(lists.items, params.residual)
    with torch.inference_mode():
        audited = [
            ScoredCandidates(
                lists.items[at].problem_id,
                np.array(lists.items[at].labels),
                np.array(lists.items[at].scores),
                {n: score(lists.rows(at)).numpy() for n, score in scorers(heuristic).items()},
            )
            for at in held_out
        ]
    bootstrap = Bootstrap(params.evaluation.resamples, params.evaluation.seed)
    return ranker_table(audited, ks=RECALL_AT, bootstrap=bootstrap)


def _report(epoch: Epoch) -> None:
    if epoch.epoch % 5 == 0:
        say(f"residual: {epoch}")
