"""Do votes need a trained ranker? Samples weighed by the generator's own likelihood instead.

    python -m flows exec python tests/likelihood_vote.py

After an evaluation, in its folder: solutions, scores and verdicts come from its reply cache. Every
row votes on the same N samples under all sampling seeds, with gates. The power of a weight is not
chosen on other questions; all are shown, so the best row of likelihood flatters it.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from selverify.data.benchmark import TRANSFER, Task
from selverify.data.grading import Grader
from selverify.domains.base import Domain
from selverify.experiment.statistics import Bootstrap, paired_difference
from selverify.models.threshold import resolve_tau
from selverify.params import Params, load_params
from selverify.search.backend import Backend
from selverify.search.best_of_n import best_of_n
from selverify.search.driver import Search, run_searches
from selverify.search.majority import majority_vote
from selverify.search.protocol import Asking, complete
from selverify.search.requests import CompleteItem
from selverify.search.selective_vote import selective_vote
from selverify.search.solutions import eligible, read_solution, vote
from selverify.types import Outcome, Problem, Sample
from tasks.artifacts import read_tasks
from tasks.models import open_grader, open_models

RESAMPLES = Bootstrap(resamples=10_000, seed=0)
RANKED = "the ranker (ranked vote)"
Vote = Callable[..., Asking[Outcome]]


def main() -> None:
    """Measure and print a table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--n", type=int, help="samples a question (evaluation.headline_budget)")
    asked.add_argument("--problems", type=int, help="the first ones (evaluation.problems)")
    asked.add_argument("--seeds", type=int, nargs="+", help="(evaluation.sampling_seeds)")
    asked.add_argument("--split", choices=("test", TRANSFER), default="test")
    given = asked.parse_args()
    logging.disable(logging.INFO)
    params, inputs = trained()
    limit = given.problems or (params.evaluation.problems if given.split == "test" else None)
    tasks = read_tasks(Path("data/benchmark"), given.split, limit=limit)
    seeds = given.seeds or params.evaluation.sampling_seeds
    n = given.n or params.evaluation.headline_budget
    right: dict[str, list[list[bool]]] = {}
    calls: dict[str, list[float]] = {}
    with open_grader(params) as grader:
        for seed in seeds:
            for name, found, cost in _under_seed(params, inputs, tasks, grader, seed=seed, n=n):
                right.setdefault(name, []).append(found)
                calls.setdefault(name, []).append(cost)
    means = {name: np.mean(found, axis=0) for name, found in right.items()}
    ranked = means[RANKED]
    print(f"{len(tasks)} questions of {given.split}, seeds {', '.join(map(str, seeds))}, N = {n}\n")
    print("| Weight of a sample by | Right, % | Calls | Ranker minus it, points |")
    print("| --- | ---: | ---: | ---: |")
    for name, own in means.items():
        gap = paired_difference(100 * ranked, 100 * own, bootstrap=RESAMPLES)
        written = f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]"
        print(
            f"| {name} | {100 * own.mean():.1f} | {np.mean(calls[name]):.1f} "
            f"| {'-' if own is ranked else written} |"
        )


def trained() -> tuple[Params, dict[str, Path]]:
    """The parameters of this folder, narrowed to the first backbone and strength, and their models.

    tau is the verifier's where the parameters leave it open.
    """
    params = load_params(Path("params.yaml"))
    backbone, strength = params.backbones[0], params.strengths[0]
    params = params.narrowed(backbone=backbone, strength=strength)
    inputs = {
        "generator": Path(f"models/{params.domain}-{backbone}"),
        "verifier": Path(f"models/{backbone}-{strength}/verifier"),
        "residual": Path(f"models/{backbone}-{strength}/policy"),
    }
    return resolve_tau(params, inputs["verifier"]), inputs


def _under_seed(
    params: Params,
    inputs: dict[str, Path],
    tasks: Sequence[Task],
    grader: Grader,
    *,
    seed: int,
    n: int,
) -> Iterator[tuple[str, list[bool], float]]:
    """Of each vote its name, whether it is right by question, and its mean calls."""
    models = open_models(params, inputs, seed=seed, cached=True)
    for name, cast_votes in VOTES.items():
        right, calls = _outcomes(models.domain, models.backend, tasks, cast_votes, grader, n=n)
        yield name, right, calls


def _outcomes(
    domain: Domain,
    backend: Backend,
    tasks: Sequence[Task],
    cast_votes: Vote,
    grader: Grader,
    *,
    n: int,
) -> tuple[list[bool], float]:
    searches = {
        task.problem.problem_id: Search(cast_votes(domain, task.problem, n=n), budget=n)
        for task in tasks
    }
    results = run_searches(searches, backend, end_of_move=domain.end_of_move)
    answers = [results[task.problem.problem_id].outcome.answer for task in tasks]
    pairs = [(task.truth.answer, answer) for task, answer in zip(tasks, answers, strict=True)]
    calls = float(np.mean([one.ledger.verifier_calls for one in results.values()]))
    return [grade.correct for grade in grader.grade_many(pairs)], calls


def likelihood_vote(
    domain: Domain, problem: Problem, *, n: int, weigh: Callable[[Sample], float]
) -> Asking[Outcome]:
    """The answer of the largest sum of weights over N samples, of legal ones where there are."""
    start = domain.initial_state(problem, budget=n)
    (samples,) = yield from complete(CompleteItem(start, 0, n, None))
    read = [(read_solution(domain, start, text=one.text, count=1), one) for one in samples]
    found = [(solution, weigh(one)) for solution, one in read if solution is not None]
    voters = set(eligible(domain, tuple(solution for solution, _ in found), gates=True))
    return vote(domain, ((one.state, weight) for one, weight in found if one in voters))


def of_word(sample: Sample, *, power: float) -> float:
    """The geometric mean of its words' probabilities, to a power."""
    return math.exp(power * sample.logprob / sample.tokens)


def of_solution(sample: Sample, *, power: float) -> float:
    """The probability of the whole solution, to a power."""
    return math.exp(power * sample.logprob)


VOTES: dict[str, Vote] = {
    "nothing (majority vote)": partial(majority_vote, gates=True, temperature=None),
    **{
        f"the mean probability of a word, to the power of {power}": partial(
            likelihood_vote, weigh=partial(of_word, power=power)
        )
        for power in (1, 4, 16)
    },
    **{
        f"the probability of the solution, to the power of {power}": partial(
            likelihood_vote, weigh=partial(of_solution, power=power)
        )
        for power in (0.25, 0.5, 1)
    },
    RANKED: partial(
        selective_vote,
        gates=True,
        ranked=True,
        aggregation="prod",
        rule="beta",
        confidence=0.0,
        temperature=None,
    ),
    "the verifier (best-of-N weighted)": partial(
        best_of_n, gates=True, aggregation="prod", temperature=None
    ),
}


if __name__ == "__main__":
    main()
