"""Does the search need a trained ranker? The generator's own likelihood in its place.

    python -m flows exec python tests/likelihood_search.py

After an evaluation, in its folder. Where the full method asks the ranker, the search gets minus the
log probability of a move as h, and as the chance of rejection a logistic regression on it: two
numbers, fitted to the verdicts of the ranker's own training lists. Settings are chosen as on the
results page; hull and full are the rows that the evaluation kept.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from selverify.search.backend import Backend
from selverify.search.compute import Sizes
from selverify.search.gated import REJECT_PROBABILITY
from selverify.search.requests import Rank, RankItem, Reply, Request
from selverify.training.exploration import parse_moves, state_of
from tasks.artifacts import read_facts, read_frame, read_rows, read_tasks
from tasks.models import open_models

LIKELIHOOD = "likelihood"
BY_LIKELIHOOD = "_by_likelihood"
SEARCHES = ("full", "full_always_asks", "ranker_only")
SHARD = 125
"""Problems that are searched at once."""


def main() -> None:
    """Measure and print a table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--problems", type=int, help="the first ones (evaluation.problems)")
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
    lists = Path(f"data/exploration/{backbone}-{strength}")
    found = [outcomes[outcomes["problem_id"].isin(named)]]
    for seed in evaluation.sampling_seeds:
        models = open_models(params, inputs, seed=seed, cached=True)
        chance = fitted_chance(models, lists)
        found.append(_searched(params, models, tasks, chance).assign(sampling_seed=seed))
    sizes = Sizes(**read_facts(kept, "evaluation", "rules")["sizes"])
    rows = pd.concat(found, ignore_index=True)
    difficulty = read_frame(Path(f"data/difficulty/{backbone}"), "difficulty", "difficulty")
    bins = dict(zip(difficulty["problem_id"], difficulty["difficulty_bin"], strict=True))
    _print(params, rows.assign(compute=sizes.operations(rows)), bins)


def fitted_chance(models: OpenModels, lists: Path) -> Callable[[FloatArray], FloatArray]:
    """The chance that the verifier rejects a move, from minus its log probability."""
    rows = read_rows(lists, "exploration", "lists")
    told = [
        task for name in ("train", FURTHER) for task in read_tasks(Path("data/benchmark"), name)
    ]
    tasks = {task.problem.problem_id: task for task in told}
    items = tuple(
        RankItem(
            state_of(models.domain, tasks[row["problem_id"]], row),
            parse_moves(models.domain, row["moves"], where="candidate list"),
            LIKELIHOOD,
        )
        for row in rows
    )
    scores = cast(Sequence[Sequence[float]], models.backend.answer(Rank(items)))
    rejected = [not label for row in rows for label in row["labels"]]
    fit = LogisticRegression(C=np.inf).fit(np.concatenate(scores)[:, None], rejected)
    return lambda values: fit.predict_proba(values[:, None])[:, 1]


@dataclass(frozen=True, slots=True)
class ByLikelihood:
    """A backend whose every score of a move follows from its log probability."""

    whole: Backend
    chance: Callable[[FloatArray], FloatArray]

    def answer(self, request: Request) -> Reply:
        """As the whole one does, but for the scores of moves."""
        if not isinstance(request, Rank):
            return self.whole.answer(request)
        asked = Rank(tuple(replace(item, scorer=LIKELIHOOD) for item in request.items))
        scores = cast(tuple[tuple[float, ...], ...], self.whole.answer(asked))
        return tuple(
            tuple(self.chance(np.array(own)).tolist()) if item.scorer == REJECT_PROBABILITY else own
            for item, own in zip(request.items, scores, strict=True)
        )

    def identity(self, kind: str) -> str:
        """Its own of the scores."""
        return LIKELIHOOD if kind == Rank.kind else self.whole.identity(kind)

    def concurrency(self, kind: str) -> int:
        """That of the whole one."""
        return self.whole.concurrency(kind)

    def tokens(self, text: str) -> int:
        """Likewise."""
        return self.whole.tokens(text)

    def sizes(self) -> Sizes:
        """Likewise."""
        return self.whole.sizes()


def _searched(
    params: Params,
    models: OpenModels,
    tasks: Sequence[Task],
    chance: Callable[[FloatArray], FloatArray],
) -> pd.DataFrame:
    assert models.policy is not None
    spread = models.policy.reference_dispersion[LIKELIHOOD]
    conditions = Conditions(params, {"hybrid": spread}, ())
    backend = ByLikelihood(models.backend, chance)
    rows: list[dict[str, Any]] = []
    for start in range(0, len(tasks), SHARD):
        part = tasks[start : start + SHARD]
        rows += evaluate(
            models.domain, backend, part, conditions, methods=SEARCHES, report=lambda *_: None
        )
    found = pd.DataFrame(rows)
    return found.assign(method=found["method"] + BY_LIKELIHOOD)


def _print(params: Params, rows: pd.DataFrame, bins: dict[str, int]) -> None:
    settings = params.evaluation
    ours = [name for one in SEARCHES for name in (one, f"{one}{BY_LIKELIHOOD}")]
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
        one, other = place(name), place(f"{name}{BY_LIKELIHOOD}")
        gaps = 100 * (entries.correct[one] - entries.correct[other])
        found = [mean_interval(gap, bootstrap) for gap in gaps]
        written = [f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]" for gap in found]
        _line(f"{name}: ranker minus likelihood", written)
        over = 100 * (entries.repeated[:, one] - entries.repeated[:, other]).mean(axis=0)
        _line("the same, mean over divisions", [f"{mean:+.1f}" for mean in over])


def _line(name: str, cells: Sequence[str]) -> None:
    """A row of the table; a dash where nothing is that cheap."""
    print(f"| {name} | " + " | ".join("-" if "nan" in one else one for one in cells) + " |")


if __name__ == "__main__":
    main()
