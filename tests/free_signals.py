"""Does the search need a trained ranker? Signals that no network learned, in its place.

    python -m flows exec python tests/free_signals.py

After an evaluation, in its folder. The ranker serves the full method twice: h orders the moves of a
state, and the chance of rejection says which move is committed without a call. Either or both are
replaced by a logistic regression on signals of the generator: the log probability of the move;
those of its words, and how far each is behind the likeliest word; how many of 16 samples agree on
the move. It is fitted to the verdicts of the ranker's own training lists: for h to all moves (its
log odds are h), for the chance to the first move of each list. All rows have one grid, in which
calls are left out nowhere to everywhere. The hull is of the rows that the evaluation kept.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from likelihood_vote import trained
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from selverify.data.benchmark import FURTHER, Task
from selverify.errors import ProtocolError
from selverify.experiment.equal_cost import HULL, EqualCost, equal_cost, operating_points
from selverify.experiment.evaluation import evaluate
from selverify.experiment.methods import FULL_SCORER, Conditions
from selverify.experiment.selection import cross_validate
from selverify.experiment.statistics import Bootstrap, FloatArray, mean_interval
from selverify.models.assembly import OpenModels
from selverify.models.heuristic.embedding import MoveKey, move_keys
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

LIKELIHOOD, WORDS, AGREEMENT = "likelihood", "words", "agreement"
SIGNALS = {
    LIKELIHOOD: (LIKELIHOOD,),
    WORDS: (LIKELIHOOD, WORDS),
    AGREEMENT: (AGREEMENT,),
    "all": (LIKELIHOOD, WORDS, AGREEMENT),
}
ORDER, CHANCE = "order", "chance"
PARTS = {ORDER: (ORDER,), CHANCE: (CHANCE,), "both": (ORDER, CHANCE)}
RANKER = "the ranker"
SKIP_BELOW = (0.0, 0.05, 0.3, 0.8, 0.95, 0.99, np.inf)
Scores = tuple[float, ...]
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
    kept = Path(f"results/evaluation/{backbone}-{strength}")
    difficulty = read_frame(Path(f"data/difficulty/{backbone}"), "difficulty", "difficulty")
    bins = dict(zip(difficulty["problem_id"], difficulty["difficulty_bin"], strict=True))
    sizes = Sizes(**read_facts(kept, "evaluation", "rules")["sizes"])
    outcomes = read_frame(kept, "evaluation", "outcomes")
    params = _with_grid(params)
    settings = params.evaluation
    problems = given.problems or settings.problems
    tasks = read_tasks(Path("data/benchmark"), settings.split, limit=problems)
    named = {task.problem.problem_id for task in tasks}
    listed = read_rows(Path(f"data/exploration/{backbone}-{strength}"), "exploration", "lists")
    lists = Lists(open_models(params, inputs, seed=params.exploration.seed, cached=True), listed)
    of_baselines = outcomes["method"].isin(baseline_methods())
    found = [outcomes[outcomes["problem_id"].isin(named) & of_baselines]]
    for seed in settings.sampling_seeds:
        models = open_models(params, inputs, seed=seed, cached=True)
        read = Signals(models)
        rows = {RANKER: _searched(params, models, BySignal(models, read, lists, (), ()), tasks)}
        for signal in given.signals:
            for part, parts in PARTS.items():
                backend = BySignal(models, read, lists, SIGNALS[signal], parts)
                rows[f"{signal}, {part}"] = _searched(params, models, backend, tasks)
        found += [one.assign(sampling_seed=seed, method=name) for name, one in rows.items()]
    whole = pd.concat(found, ignore_index=True)
    _print(params, whole.assign(compute=sizes.operations(whole)), bins, [*rows])


def _with_grid(params: Params) -> Params:
    """``params`` with the grid of this comparison."""
    axes = {"k_base": (2.0,), "tau": (params.search.tau,), "skip_below": SKIP_BELOW}
    grid = params.evaluation.grid.model_copy(update=axes)
    evaluation = params.evaluation.model_copy(update={"grid": grid})
    return params.model_copy(update={"evaluation": evaluation})


@dataclass(frozen=True)
class Signals:
    """What the generator says of moves, read once."""

    models: OpenModels
    words: dict[MoveKey, FloatArray] = field(default_factory=dict)
    samples: dict[MoveKey, Counter[str]] = field(default_factory=dict)

    def of(self, items: Sequence[RankItem], names: Sequence[str]) -> list[FloatArray]:
        """[moves, signals] of each item."""
        parts = [self._one(name, items) for name in names]
        return [np.concatenate(one, axis=1) for one in zip(*parts, strict=True)]

    def _one(self, name: str, items: Sequence[RankItem]) -> list[FloatArray]:
        if name == AGREEMENT:
            return self._agreement(items)
        return [rows[:, :1] if name == LIKELIHOOD else rows[:, 1:] for rows in self._words(items)]

    def _words(self, items: Sequence[RankItem]) -> list[FloatArray]:
        """The log probability of each move, then what is told of its words."""
        keys = [move_keys(item.state, [move.text for move in item.moves]) for item in items]
        new = [
            item
            for item, own in zip(items, keys, strict=True)
            if any(key not in self.words for key in own)
        ]
        for item, rows in zip(new, self.models.embedding()(new) if new else (), strict=True):
            told = np.column_stack([rows.logprob.numpy(), rows.token_logprobs.numpy()])
            own = move_keys(item.state, [move.text for move in item.moves])
            self.words.update(zip(own, told.astype(np.float64), strict=True))
        return [np.stack([self.words[key] for key in own]) for own in keys]

    def _agreement(self, items: Sequence[RankItem]) -> list[FloatArray]:
        """The log of the share of samples that are the move; half a sample more, for none."""
        places = {move_keys(item.state, [""])[0]: item.state for item in items}
        new = {key: state for key, state in places.items() if key not in self.samples}
        asked = Propose(tuple(ProposeItem(state, 0, DRAWN) for state in new.values()))
        drawn = cast(Sequence[Sequence[Sample]], self.models.backend.answer(asked) if new else ())
        for key, samples in zip(new, drawn, strict=True):
            parsed = (self.models.domain.parse(sample.text) for sample in samples)
            self.samples[key] = Counter(move.text for move in parsed if isinstance(move, Move))
        counts = [self.samples[move_keys(item.state, [""])[0]] for item in items]
        return [
            np.log([[(own[move.text] + 0.5) / DRAWN] for move in item.moves])
            for item, own in zip(items, counts, strict=True)
        ]


class Lists:
    """The ranker's candidate lists, with their signals and what the ranker says of them."""

    def __init__(self, models: OpenModels, rows: Sequence[dict[str, Any]]) -> None:
        folder = Path("data/benchmark")
        listed = [task for name in ("train", FURTHER) for task in read_tasks(folder, name)]
        tasks = {task.problem.problem_id: task for task in listed}
        self.items = [
            RankItem(
                state_of(models.domain, tasks[row["problem_id"]], row),
                parse_moves(models.domain, row["moves"], where="candidate list"),
                FULL_SCORER,
            )
            for row in rows
        ]
        self.rejected = [[not label for label in row["labels"]] for row in rows]
        self.signals = Signals(models)
        scores = models.backend.answer(Rank(tuple(self.items)))
        self.h = [np.array(own) for own in cast(Sequence[Scores], scores)]


@dataclass(frozen=True)
class BySignal:
    """A backend with some ``parts`` of the ranker replaced by ``names`` of signals."""

    models: OpenModels
    read: Signals
    lists: Lists
    names: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def whole(self) -> Backend:
        """What answers all else."""
        return self.models.backend

    def answer(self, request: Request) -> Reply:
        """As the whole one does, but for what is replaced.

        Raises:
            ProtocolError: another score is asked than the full method asks for.
        """
        if not isinstance(request, Rank):
            return self.whole.answer(request)
        asked = {item.scorer for item in request.items}
        if others := asked - {FULL_SCORER, REJECT_PROBABILITY}:
            raise ProtocolError(f"given scorer {others.pop()!r}, expected {FULL_SCORER!r}")
        replaced = {FULL_SCORER: ORDER in self.parts, REJECT_PROBABILITY: CHANCE in self.parts}
        kept = tuple(item for item in request.items if not replaced[item.scorer])
        own = [item for item in request.items if replaced[item.scorer]]
        by_ranker = iter(cast(Sequence[Scores], self.whole.answer(Rank(kept)) if kept else ()))
        by_signals = map(self._scores, own, self.read.of(own, self.names) if own else ())
        return tuple(
            next(by_signals) if replaced[item.scorer] else next(by_ranker) for item in request.items
        )

    def _scores(self, item: RankItem, signals: FloatArray) -> Scores:
        if item.scorer == REJECT_PROBABILITY:
            return tuple(self._chance.predict_proba(signals)[:, 1].tolist())
        return tuple(self._order.decision_function(signals).tolist())

    def identity(self, kind: str) -> str:
        """Its own of the scores."""
        return f"{self.names} {self.parts}" if kind == Rank.kind else self.whole.identity(kind)

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
        return float(np.mean([dispersion(own.tolist()) for own in self._h]))

    @cached_property
    def _told(self) -> list[FloatArray]:
        return self.lists.signals.of(self.lists.items, self.names)

    @cached_property
    def _order(self) -> Pipeline:
        return _fitted(np.concatenate(self._told), np.concatenate(self.lists.rejected))

    @cached_property
    def _h(self) -> list[FloatArray]:
        if ORDER not in self.parts:
            return self.lists.h
        return [self._order.decision_function(one) for one in self._told]

    @cached_property
    def _chance(self) -> Pipeline:
        first = [int(own.argmin()) for own in self._h]
        rows = [one[place] for one, place in zip(self._told, first, strict=True)]
        labels = [one[place] for one, place in zip(self.lists.rejected, first, strict=True)]
        return _fitted(np.stack(rows), np.array(labels))


def _fitted(rows: FloatArray, rejected: FloatArray) -> Pipeline:
    fit = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, max_iter=2000))
    return fit.fit(rows, rejected)


def _searched(
    params: Params, models: OpenModels, backend: BySignal, tasks: Sequence[Task]
) -> pd.DataFrame:
    conditions = Conditions(params, {FULL_SCORER: backend.dispersion}, ())
    rows: list[dict[str, Any]] = []
    for start in range(0, len(tasks), SHARD):
        part = tasks[start : start + SHARD]
        rows += evaluate(
            models.domain, backend, part, conditions, methods=["full"], report=lambda *_: None
        )
    return pd.DataFrame(rows)


def at_equal_calls(
    params: Params,
    rows: pd.DataFrame,
    bins: Mapping[str, int],
    methods: Sequence[str],
    *,
    baselines: Collection[str],
) -> EqualCost:
    """What ``methods`` and the hull of ``baselines`` do for each number of verifier calls."""
    settings = params.evaluation
    cross = cross_validate(
        rows,
        {name: bins[name] for name in set(rows["problem_id"])},
        folds=settings.folds,
        repetitions=settings.repetitions,
        seed=settings.seed,
        methods=methods,
        rule=settings.selection,
    )
    return equal_cost(
        operating_points(cross.pooled, runs=cross.runs),
        cross.folds,
        cost="verifier_calls",
        levels=settings.calls,
        baselines=baselines,
    )


def _print(params: Params, rows: pd.DataFrame, bins: dict[str, int], ours: Sequence[str]) -> None:
    settings = params.evaluation
    methods = (*sorted(set(rows["method"]) & set(baseline_methods())), *ours)
    entries = at_equal_calls(params, rows, bins, methods, baselines=baseline_methods())
    seeds = ", ".join(map(str, sorted(set(rows["sampling_seed"]))))
    print(f"{len(set(rows['problem_id']))} problems, seeds {seeds}\n")
    print("Right, % (mean calls)\n")
    _head(entries)
    calls = entries.costs["verifier_calls"].mean(axis=-1)
    for name in (HULL, *ours):
        place = entries.entrants.index(name)
        right = 100 * entries.correct[place].mean(axis=-1)
        _line(name, [f"{a:.1f} ({b:.1f})" for a, b in zip(right, calls[place], strict=True)])
    print("\nThe ranker minus it, points [95 %], mean over all divisions\n")
    _head(entries)
    bootstrap = Bootstrap(settings.resamples, settings.seed)
    one = entries.entrants.index(RANKER)
    for name in (HULL, *ours[1:]):
        other = entries.entrants.index(name)
        gaps = 100 * (entries.correct[one] - entries.correct[other])
        over = 100 * (entries.repeated[:, one] - entries.repeated[:, other]).mean(axis=0)
        found = zip((mean_interval(gap, bootstrap) for gap in gaps), over, strict=True)
        _line(name, [f"{a.value:+.1f} [{a.low:+.1f}, {a.high:+.1f}], {b:+.1f}" for a, b in found])


def _head(entries: EqualCost) -> None:
    print("| Scores by | " + " | ".join(f"B = {level}" for level in entries.levels) + " |")
    print("| --- |" + " ---: |" * len(entries.levels))


def _line(name: str, cells: Sequence[str]) -> None:
    """A row of the table; a dash where nothing is that cheap."""
    print(f"| {name} | " + " | ".join("-" if "nan" in one else one for one in cells) + " |")


if __name__ == "__main__":
    main()
