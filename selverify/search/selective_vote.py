"""Selective vote: N solutions vote, and verifier calls go where they may change who wins.

Knows: which solution is verified next, and when the vote is settled. Does not know: how a score
comes about.

Between majority vote, which makes no call, and best-of-N weighted, which makes one a distinct
solution. A call scores every step of a solution, so it also tells of others that begin alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from selverify.domains.base import Domain
from selverify.domains.claims import canonical_answer
from selverify.search.adaptive_consistency import STOPPING_RULES
from selverify.search.aggregation import AGGREGATIONS
from selverify.search.protocol import Asking, note, verify
from selverify.search.requests import VerifyItem
from selverify.search.solutions import Solution, eligible, sample_solutions, vote
from selverify.types import Outcome, Problem

_Scores = Mapping[tuple[str, ...], float]
"""The score of each step that a call was on, by the texts up to it."""


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

    A step that no call was on has the mean score of all that some was. The heaviest solution with
    such a step is verified next, until none is left or the vote is settled, as ``rule`` of adaptive
    consistency says: its support for the weights, which are scaled to sum to the number of voters,
    is at least ``confidence``. With a ``confidence`` of 0 this is ``majority_vote``, above 1
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
    scores: dict[tuple[str, ...], float] = {}
    while True:
        weights = _weights(pool, scores, aggregation=aggregation)
        unverified = [at for at, one in enumerate(pool) if one.state.said not in scores]
        support = _support(domain, pool, weights, rule=rule)
        if without_calls or not unverified or support >= confidence:
            break
        chosen = pool[max(unverified, key=weights.__getitem__)].state
        yield note("allocate", start, support=support, left=len(unverified))
        (verdict,) = yield from verify(VerifyItem(start, chosen.derivation))
        prefixes = (chosen.said[: size + 1] for size in range(len(chosen.said)))
        scores |= zip(prefixes, verdict.step_scores, strict=True)
    return vote(domain, zip((one.state for one in pool), weights, strict=True))


def _weights(pool: Sequence[Solution], scores: _Scores, *, aggregation: str) -> list[float]:
    """How often each solution was sampled, times what its steps' scores come to."""
    aggregate, unknown = AGGREGATIONS[aggregation], fmean(scores.values()) if scores else 1.0
    return [
        one.count
        * aggregate(
            [scores.get(one.state.said[: size + 1], unknown) for size in range(len(one.state.said))]
        )
        for one in pool
    ]


def _support(
    domain: Domain, pool: Sequence[Solution], weights: Sequence[float], *, rule: str
) -> float:
    """How settled the weighted vote is, in [0, 1]; 1 where there is nothing to settle."""
    votes: dict[str, float] = {}
    for one, weight in zip(pool, weights, strict=True):
        answer = domain.answer(one.state)
        if answer is not None:
            same = canonical_answer(answer)
            votes[same] = votes.get(same, 0.0) + weight
    total, voters = sum(votes.values()), sum(one.count for one in pool)
    if not total:
        return float(len(votes) < 2)
    shares = sorted((one / total for one in votes.values()), reverse=True)
    return STOPPING_RULES[rule].support([voters * share for share in shares])
