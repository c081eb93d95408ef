"""Majority vote (self-consistency): the most frequent answer of N samples, no verifier."""

from __future__ import annotations

from selverify.domains.base import Domain
from selverify.search.protocol import Asking
from selverify.search.solutions import eligible, sample_solutions, vote
from selverify.types import Outcome, Problem


def majority_vote(
    domain: Domain, problem: Problem, *, n: int, gates: bool, temperature: float | None
) -> Asking[Outcome]:
    """The most frequent answer, ties to the first seen.

    With ``gates`` only solutions whose every move passes vote, or all if none does. Where answers
    check for free, those that check win before any vote. Costs no verifier call.
    """
    solutions = yield from sample_solutions(domain, problem, n=n, temperature=temperature)
    voters = eligible(domain, solutions, gates=gates)
    return vote(domain, ((voter.state, float(voter.count)) for voter in voters))
