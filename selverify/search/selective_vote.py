"""Selective vote: N solutions vote, and verifier calls go where they may change who wins.

Knows: which solution is verified next, and when the vote is settled. Does not know: how a score
comes about.

Between majority vote, which makes no call, and best-of-N weighted, which makes one a distinct
solution. A call scores every step of a solution, so it also tells of others that begin alike; the
score of a step is taken to depend on nothing behind it. A trained ranker tells of all of them
before any call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from selverify.domains.base import Domain
from selverify.domains.claims import canonical_answer
from selverify.search.adaptive_consistency import STOPPING_RULES
from selverify.search.aggregation import AGGREGATIONS, Aggregate
from selverify.search.protocol import Asking, note, rank, verify
from selverify.search.requests import RankItem, VerifyItem
from selverify.search.solutions import Solution, eligible, sample_solutions, vote
from selverify.types import Move, Outcome, Problem, State

EXPECTED_LOSS = "expected_loss"
"""The scorer that gives 1 less the score that the verifier is expected to give a move."""
START = -1
"""What stands for the step before a solution's first."""


@dataclass(frozen=True, slots=True)
class _Voter:
    """A distinct solution, how often it was sampled, and its answer in plain form.

    ``steps``: the number of each step; steps of solutions that agree up to them have one number.
    """

    state: State
    count: int
    steps: tuple[int, ...]
    answer: str | None


def selective_vote(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    gates: bool,
    ranked: bool,
    aggregation: str,
    rule: str,
    confidence: float,
    temperature: float | None,
) -> Asking[Outcome]:
    """The answer of the largest sum of scores over N sampled solutions, ties to the first seen.

    A step without a score counts as the mean of the known scores. Where steps are ``ranked`` it
    counts as what the ranker expects, and that stays in the weight beside a score. The solution
    of the largest weight among those with a step without a score is verified next, until none is
    left or the vote is settled: the support of ``rule`` (adaptive consistency) for the weights,
    scaled to sum to the number of votes, is at least ``confidence``. Without a ranker this is
    ``majority_vote`` with a ``confidence`` of 0, and ``best_of_n`` with one above 1. Gates, free
    checks and solutions that do not answer are treated as there.

    Args:
        ranked: whether the trained ranker tells the score that it expects of the verifier.
        aggregation: ``last``, ``min`` or ``prod`` of the step scores.
        rule: a name of ``STOPPING_RULES``.
        confidence: in [0, 1].
    """
    solutions = yield from sample_solutions(domain, problem, n=n, temperature=temperature)
    pool = eligible(domain, solutions, gates=gates)
    any_legal = any(one.legal for one in pool)
    without_calls = domain.checks_answers() if any_legal else gates
    start = domain.initial_state(problem, budget=n)
    voters = _voters(domain, pool)
    settled = without_calls or len({one.answer for one in voters}) <= 1
    expected = (yield from _expected(domain, start, voters)) if ranked and not settled else {}
    scores: dict[int, float] = {}
    while True:
        weights = _weights(voters, scores, expected, AGGREGATIONS[aggregation])
        unverified = [at for at, one in enumerate(voters) if one.steps[-1] not in scores]
        support = _support(voters, weights, rule=rule)
        if without_calls or not unverified or support >= confidence:
            break
        chosen = voters[max(unverified, key=weights.__getitem__)]
        yield note("settle", start, support=support, unverified=len(unverified))
        (verdict,) = yield from verify(VerifyItem(start, chosen.state.derivation))
        scores = dict(zip(chosen.steps, verdict.step_scores, strict=True)) | scores
    return vote(domain, zip((one.state for one in voters), weights, strict=True))


def _voters(domain: Domain, solutions: Sequence[Solution]) -> list[_Voter]:
    numbers: dict[tuple[int, str], int] = {}
    found = []
    for one in solutions:
        steps, before = [], START
        for text in one.state.said:
            before = numbers.setdefault((before, text), len(numbers))
            steps.append(before)
        answer = domain.answer(one.state)
        plain = None if answer is None else canonical_answer(answer)
        found.append(_Voter(one.state, one.count, tuple(steps), plain))
    return found


def _expected(domain: Domain, start: State, voters: Sequence[_Voter]) -> Asking[dict[int, float]]:
    """Of each step the score that the ranker expects of the verifier; none of steps at states that
    are unlike those that it was trained on."""
    states, moves = {START: start}, dict[int, dict[int, Move]]()
    for one in voters:
        before, last = START, START
        for move, step in zip(one.state.derivation, one.steps, strict=True):
            if before not in states:
                states[before] = domain.apply(states[last], moves[last][before])
            moves.setdefault(before, {})[step] = move
            before, last = step, before
    items = [
        RankItem(states[before], tuple(own.values()), EXPECTED_LOSS)
        for before, own in moves.items()
    ]
    losses = yield from rank(*items)
    steps = (step for own in moves.values() for step in own)
    found = zip(steps, (one for some in losses for one in some), strict=True)
    return {step: 1.0 - loss for step, loss in found if loss < 1.0}


def _weights(
    voters: Sequence[_Voter],
    scores: Mapping[int, float],
    expected: Mapping[int, float],
    aggregate: Aggregate,
) -> list[float]:
    """How often each solution was sampled, times what its steps' scores come to.

    A step without a score has the one that the ranker expects, scaled as the known scores are to
    what was expected of them; of a step that the ranker does not know its mean is expected, and
    without a ranker the same of all. With a ranker a step is worth the geometric mean of its score
    and of what was expected.
    """
    prior = fmean(expected.values() or [1.0])
    before = sum(expected.get(step, prior) for step in scores)
    scale = sum(scores.values()) / before if scores else 1.0
    worths: dict[int, float] = {}
    for step in dict.fromkeys(step for one in voters for step in one.steps):
        chance = expected.get(step, prior)
        score = scores[step] if step in scores else min(1.0, scale * chance)
        worths[step] = math.sqrt(chance * score) if expected else score
    return [one.count * aggregate([worths[step] for step in one.steps]) for one in voters]


def _support(voters: Sequence[_Voter], weights: Sequence[float], *, rule: str) -> float:
    """How settled the weighted vote is, in [0, 1]; 1 where all give one answer."""
    votes: dict[str, float] = {}
    for one, weight in zip(voters, weights, strict=True):
        if one.answer is not None:
            votes[one.answer] = votes.get(one.answer, 0.0) + weight
    if len(votes) <= 1:
        return 1.0
    total, count = sum(votes.values()), sum(one.count for one in voters)
    if not total:
        return 0.0
    shares = sorted((weight / total for weight in votes.values()), reverse=True)
    return STOPPING_RULES[rule].support([count * share for share in shares])
