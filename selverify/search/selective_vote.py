"""Selective vote: N solutions vote, and verifier calls go where they may change who wins.

Knows: which solution is verified next, and when the vote is settled. Does not know: how a score
comes about.

Between majority vote, which makes no call, and best-of-N weighted, which makes one a distinct
solution. A call scores every step of a solution, so it also tells of others that begin alike; the
score of a step is taken to depend on nothing behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from selverify.domains.base import Domain
from selverify.domains.claims import canonical_answer
from selverify.search.adaptive_consistency import STOPPING_RULES
from selverify.search.aggregation import AGGREGATIONS, Aggregate
from selverify.search.protocol import Asking, note, verify
from selverify.search.requests import VerifyItem
from selverify.search.solutions import Solution, eligible, sample_solutions, vote
from selverify.types import Outcome, Problem, State

_Steps = tuple[tuple[str, ...], ...]
"""For each step of a solution the texts up to it, which name it."""


@dataclass(frozen=True, slots=True)
class _Voter:
    """A distinct solution, how often it was sampled, and its answer in plain form."""

    state: State
    count: int
    steps: _Steps
    answer: str | None


def selective_vote(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    gates: bool,
    aggregation: str,
    rule: str,
    confidence: float,
    temperature: float | None,
) -> Asking[Outcome]:
    """The answer of the largest sum of scores over N sampled solutions, ties to the first seen.

    A step without a score counts as the mean of the known scores. The solution of the largest
    weight among those with such a step is verified next, until none is left or the vote is settled:
    the support of ``rule`` (adaptive consistency) for the weights, scaled to sum to the number of
    votes, is at least ``confidence``. With a ``confidence`` of 0 this is ``majority_vote``, above 1
    ``best_of_n``. Gates, free checks and solutions that do not answer are treated as there.

    Args:
        aggregation: ``last``, ``min`` or ``prod`` of the step scores.
        rule: a name of ``STOPPING_RULES``.
        confidence: in [0, 1].
    """
    solutions = yield from sample_solutions(domain, problem, n=n, temperature=temperature)
    pool = eligible(domain, solutions, gates=gates)
    any_legal = any(one.legal for one in pool)
    without_calls = domain.checks_answers() if any_legal else gates
    start = domain.initial_state(problem, budget=n)
    voters = [_voter(domain, one) for one in pool]
    scores: dict[tuple[str, ...], float] = {}
    while True:
        weights = _weights(voters, scores, AGGREGATIONS[aggregation])
        unverified = [at for at, one in enumerate(voters) if one.steps[-1] not in scores]
        support = _support(voters, weights, rule=rule)
        if without_calls or not unverified or support >= confidence:
            break
        chosen = voters[max(unverified, key=weights.__getitem__)]
        yield note("settle", start, support=support, unverified=len(unverified))
        (verdict,) = yield from verify(VerifyItem(start, chosen.state.derivation))
        scores = dict(zip(chosen.steps, verdict.step_scores, strict=True)) | scores
    return vote(domain, zip((one.state for one in voters), weights, strict=True))


def _voter(domain: Domain, solution: Solution) -> _Voter:
    said, answer = solution.state.said, domain.answer(solution.state)
    steps = tuple(said[: size + 1] for size in range(len(said)))
    plain = None if answer is None else canonical_answer(answer)
    return _Voter(solution.state, solution.count, steps, plain)


def _weights(
    voters: Sequence[_Voter], scores: Mapping[tuple[str, ...], float], aggregate: Aggregate
) -> list[float]:
    """How often each solution was sampled, times what its steps' scores come to."""
    unknown = fmean(scores.values()) if scores else 1.0
    return [
        one.count * aggregate([scores.get(step, unknown) for step in one.steps]) for one in voters
    ]


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
