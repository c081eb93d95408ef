"""Best-of-N weighted (Snell et al. 2024): a verifier call a distinct solution, then a vote."""

from __future__ import annotations

from selverify.domains.base import Domain
from selverify.search.aggregation import AGGREGATIONS
from selverify.search.protocol import Asking, verify
from selverify.search.requests import VerifyItem
from selverify.search.solutions import eligible, sample_solutions, vote
from selverify.types import Outcome, Problem


def best_of_n(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    gates: bool,
    aggregation: str,
    temperature: float | None,
) -> Asking[Outcome]:
    """The answer with the largest sum of scores over N sampled solutions, ties to the first seen.

    Identical solutions share one call, and their score counts as often as they were sampled.
    Solutions that do not parse or do not answer are not verified. With ``gates`` only those whose
    every move passes are; if none does, the majority of all decides without a call. Where answers
    check for free, a solution that checks wins without a call.

    Args:
        aggregation: ``last``, ``min`` or ``prod`` of the step scores.
        temperature: of the samples; None is the generator's own.
    """
    solutions = yield from sample_solutions(domain, problem, n=n, temperature=temperature)
    pool = eligible(domain, solutions, gates=gates)
    any_legal = any(solution.legal for solution in pool)
    right_for_free = any_legal and domain.checks_answers()
    none_passes = gates and not any_legal
    if right_for_free or none_passes:
        return vote(domain, ((solution.state, float(solution.count)) for solution in pool))
    start = domain.initial_state(problem, budget=n)
    verdicts = yield from verify(*(VerifyItem(start, one.state.derivation) for one in pool))
    aggregate = AGGREGATIONS[aggregation]
    scored = zip(pool, verdicts, strict=True)
    return vote(
        domain, ((one.state, one.count * aggregate(verdict.step_scores)) for one, verdict in scored)
    )
