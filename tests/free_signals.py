"""Does the search need a trained ranker? Signals that cost no training in its place.

    python -m flows exec python tests/free_signals.py

After an evaluation, in its folder. A signal is the generator's likelihood of a move, how many of
its samples at the state agree on the move, or both. A logistic regression, fitted to the verdicts
of the ranker's own training lists, makes the chance of rejection of it; h is its log odds. Settings
are chosen as on the results page; hull and full are the rows that the evaluation kept.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from likelihood_vote import trained
from sklearn.linear_model import LogisticRegression

from selverify.data.benchmark import FURTHER, Task
from selverify.experiment.equal_cost import HULL, equal_cost, operating_points
from selverify.experiment.evaluation import evaluate
from selverify.experiment.methods import Conditions
from selverify.experiment.selection import cross_validate
from selverify.experiment.statistics import Bootstrap, FloatArray, mean_interval
from selverify.models.assembly import OpenModels
from selverify.params import Params
from selverify.report.names import baseline_methods
from selverify.search.allocation import dispersion
from selverify.search.backend import Backend
from selverify.search.compute import Sizes
from selverify.search.gated import REJECT_PROBABILITY
from selverify.search.requests import Propose, ProposeItem, Rank, RankItem, Reply, Request
from selverify.training.exploration import parse_moves, state_of
from selverify.types import Move, Sample
from tasks.artifacts import read_facts, read_frame, read_rows, read_tasks
from tasks.models import open_models

LIKELIHOOD, AGREEMENT = "likelihood", "agreement"
SIGNALS = {LIKELIHOOD: (LIKELIHOOD,), AGREEMENT: (AGREEMENT,), "both": (LIKELIHOOD, AGREEMENT)}
SEARCHES = ("full", "full_always_asks", "ranker_only")
DRAWN = 16
"""Samples that may agree; those that the search draws are among them, or they are more."""
SHARD = 125
"""Problems that are searched at once."""


def main() -> None:
    """Measure and print a table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--problems", type=int, help="the first ones (evaluation.problems)")
    asked.add_argument("--signals", nargs="+", choices=SIGNALS, default=[*SIGNALS])
    given = asked.parse_args()
    logging.disable(logging.INFO)
    params, inputs = trained()
    backbone, strength = params.backbones[0], params.strengths[0]
    evaluation = params.evaluation
    problems = given.problems or evaluation.problems
    tasks = read_tasks(Path("data/benchmark"), evaluation.split, limit=problems)
    kept = Path(f"results/evaluation/{backbone}-{strength}")
    outcomes = read_frame(kept, "evaluation", "outcomes")
    named = {task.problem.problem_id for task in tasks}
    lists = read_rows(Path(f"data/exploration/{backbone}-{strength}"), "exploration", "lists")
    found = [outcomes[outcomes["problem_id"].isin(named)]]
    for seed in evaluation.sampling_seeds:
        models = open_models(params, inputs, seed=seed, cached=True)
        for signal in given.signals:
            backend = BySignal(models.backend, models, SIGNALS[signal], lists)
            rows = _searched(params, models, backend, tasks)
            found.append(rows.assign(sampling_seed=seed, method=rows["method"] + f"_by_{signal}"))
    sizes = Sizes(**read_facts(kept, "evaluation", "rules")["sizes"])
    rows = pd.concat(found, ignore_index=True)
    difficulty = read_frame(Path(f"data/difficulty/{backbone}"), "difficulty", "difficulty")
    bins = dict(zip(difficulty["problem_id"], difficulty["difficulty_bin"], strict=True))
    _print(params, rows.assign(compute=sizes.operations(rows)), bins, given.signals)


@dataclass(frozen=True)
class BySignal:
    """A backend whose scores of a move follow from free signals, and all else from ``whole``.

    ``lists``: the ranker's candidate lists, rows of the stage ``exploration``.
    """

    whole: Backend
    models: OpenModels
    names: tuple[str, ...]
    lists: Sequence[dict[str, Any]]

    def answer(self, request: Request) -> Reply:
        """As the whole one does, but for the scores of moves."""
        if not isinstance(request, Rank):
            return self.whole.answer(request)
        scores = [self._log_odds(rows) for rows in self._signals(request.items)]
        return tuple(
            tuple((1 / (1 + np.exp(-own)) if item.scorer == REJECT_PROBABILITY else own).tolist())
            for item, own in zip(request.items, scores, strict=True)
        )

    def identity(self, kind: str) -> str:
        """Its own of the scores."""
        return " ".join(self.names) if kind == Rank.kind else self.whole.identity(kind)

    def concurrency(self, kind: str) -> int:
        """That of the whole one."""
        return self.whole.concurrency(kind)

    def tokens(self, text: str) -> int:
        """Likewise."""
        return self.whole.tokens(text)

    def sizes(self) -> Sizes:
        """Likewise."""
        return self.whole.sizes()

    @cached_property
    def dispersion(self) -> float:
        """sigma-bar of h over the lists."""
        return float(np.mean([dispersion(self._log_odds(rows).tolist()) for rows in self._told]))

    def _log_odds(self, rows: FloatArray) -> FloatArray:
        odds: FloatArray = self._fit.decision_function(rows)
        return odds

    @cached_property
    def _fit(self) -> LogisticRegression:
        rejected = [not label for row in self.lists for label in row["labels"]]
        return LogisticRegression(C=np.inf).fit(np.concatenate(self._told), rejected)

    @cached_property
    def _told(self) -> list[FloatArray]:
        """The signals of the moves of each list."""
        domain, folder = self.models.domain, Path("data/benchmark")
        listed = [task for name in ("train", FURTHER) for task in read_tasks(folder, name)]
        tasks = {task.problem.problem_id: task for task in listed}
        items = tuple(
            RankItem(
                state_of(domain, tasks[row["problem_id"]], row),
                parse_moves(domain, row["moves"], where="candidate list"),
                LIKELIHOOD,
            )
            for row in self.lists
        )
        return self._signals(items)

    def _signals(self, items: Sequence[RankItem]) -> list[FloatArray]:
        """[moves, signals] of each item."""
        columns = {LIKELIHOOD: self._likelihood, AGREEMENT: self._agreement}
        parts = [columns[name](items) for name in self.names]
        return [np.stack(one, axis=1) for one in zip(*parts, strict=True)]

    def _likelihood(self, items: Sequence[RankItem]) -> list[FloatArray]:
        """Minus the log probability of each move."""
        asked = Rank(tuple(replace(item, scorer=LIKELIHOOD) for item in items))
        scores = cast(Sequence[Sequence[float]], self.whole.answer(asked))
        return [np.array(one) for one in scores]

    def _agreement(self, items: Sequence[RankItem]) -> list[FloatArray]:
        """The log of the share of samples that are the move; half a sample more, for none."""
        asked = Propose(tuple(ProposeItem(item.state, 0, DRAWN) for item in items))
        drawn = cast(Sequence[Sequence[Sample]], self.whole.answer(asked))
        found = []
        for item, samples in zip(items, drawn, strict=True):
            parsed = (self.models.domain.parse(sample.text) for sample in samples)
            counts = Counter(move.text for move in parsed if isinstance(move, Move))
            found.append(np.log([(counts[move.text] + 0.5) / DRAWN for move in item.moves]))
        return found


def _searched(
    params: Params, models: OpenModels, backend: BySignal, tasks: Sequence[Task]
) -> pd.DataFrame:
    conditions = Conditions(params, {"hybrid": backend.dispersion}, ())
    rows: list[dict[str, Any]] = []
    for start in range(0, len(tasks), SHARD):
        part = tasks[start : start + SHARD]
        rows += evaluate(
            models.domain, backend, part, conditions, methods=SEARCHES, report=lambda *_: None
        )
    return pd.DataFrame(rows)


def _print(
    params: Params, rows: pd.DataFrame, bins: dict[str, int], signals: Sequence[str]
) -> None:
    settings = params.evaluation
    ours = [name for one in SEARCHES for name in (one, *(f"{one}_by_{s}" for s in signals))]
    methods = (*sorted(set(rows["method"]) & set(baseline_methods())), *ours)
    cross = cross_validate(
        rows[rows["method"].isin(methods)],
        {name: bins[name] for name in set(rows["problem_id"])},
        folds=settings.folds,
        repetitions=settings.repetitions,
        seed=settings.seed,
        methods=methods,
        rule=settings.selection,
    )
    entries = equal_cost(
        operating_points(cross.pooled, runs=cross.runs),
        cross.folds,
        cost="verifier_calls",
        levels=settings.calls,
        baselines=baseline_methods(),
    )
    bootstrap = Bootstrap(settings.resamples, settings.seed)
    place = entries.entrants.index
    seeds = ", ".join(map(str, sorted(set(rows["sampling_seed"]))))
    print(f"{len(set(rows['problem_id']))} problems, seeds {seeds}: right, %\n")
    print("| Method | " + " | ".join(f"B = {level}" for level in entries.levels) + " |")
    print("| --- |" + " ---: |" * len(entries.levels))
    for name in (HULL, *ours):
        _line(name, [f"{100 * one.mean():.1f}" for one in entries.correct[place(name)]])
    for name in SEARCHES:
        for signal in signals:
            one, other = place(name), place(f"{name}_by_{signal}")
            gaps = 100 * (entries.correct[one] - entries.correct[other])
            found = [mean_interval(gap, bootstrap) for gap in gaps]
            written = [f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]" for gap in found]
            _line(f"{name}: ranker minus {signal}", written)
            over = 100 * (entries.repeated[:, one] - entries.repeated[:, other]).mean(axis=0)
            _line("the same, mean over divisions", [f"{mean:+.1f}" for mean in over])


def _line(name: str, cells: Sequence[str]) -> None:
    """A row of the table; a dash where nothing is that cheap."""
    print(f"| {name} | " + " | ".join("-" if "nan" in one else one for one in cells) + " |")


if __name__ == "__main__":
    main()
