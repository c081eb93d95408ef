"""Adaptive consistency (Aggarwal et al. 2023): sample until the vote is settled, no verifier.

Knows: two rules for when a vote is settled. Does not know: the verifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from scipy.special import betainc

from selverify.domains.base import Domain
from selverify.domains.claims import canonical_answer
from selverify.search.protocol import Asking
from selverify.search.solutions import Solution, admitted, draw_more, eligible, vote
from selverify.types import Outcome, Problem


class StoppingRule(NamedTuple):
    """When votes are counted, and how settled they are.

    ``following``: from the number of samples drawn, their number at the next count. ``support``:
    from the votes of each answer, or their weights, most first and at least one, a number in
    [0, 1].
    """

    following: Callable[[int], int]
    support: Callable[[Sequence[float]], float]


def _ahead(votes: Sequence[float]) -> float:
    """P(p_1 > 1/2 | v_1, v_2) = 1 - I_{1/2}(v_1 + 1, v_2 + 1) = I_{1/2}(v_2 + 1, v_1 + 1).

    p_1 is the leading answer's share of the probability of the two most frequent ones, with a
    uniform prior.
    """
    first, second = (*votes, 0)[:2]
    return float(betainc(second + 1, first + 1, 0.5))


def _share(votes: Sequence[float]) -> float:
    return votes[0] / sum(votes)


STOPPING_RULES: Mapping[str, StoppingRule] = MappingProxyType(
    {
        "beta": StoppingRule(lambda drawn: drawn + 1, _ahead),
        "supermajority": StoppingRule(lambda drawn: max(2, 2 * drawn), _share),
    }
)
"""``beta``: after each sample, the probability that the most frequent answer stays ahead of the
second (Aggarwal et al. 2023). ``supermajority``: after 2, 4, 8, ... samples, its share of votes."""


def adaptive_consistency(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    rule: str,
    confidence: float,
    gates: bool,
    temperature: float | None,
) -> Asking[Outcome]:
    """The most frequent answer, ties to the first seen, as soon as the vote is settled.

    At most N samples and no verifier call. The vote is settled when the support of ``rule`` is at
    least ``confidence``. With ``gates`` only legal solutions settle it; if none of N is legal, all
    vote. A solution that checks for free settles it with support 1. With a ``confidence`` above 1
    this is ``majority_vote``.

    Args:
        rule: a name of ``STOPPING_RULES``.
        confidence: in [0, 1]; Aggarwal et al. take 0.95 with ``beta``.
    """
    start = domain.initial_state(problem, budget=n)
    following, support = STOPPING_RULES[rule]
    found: tuple[Solution, ...] = ()
    drawn, settled = 0, False
    while drawn < n and not settled:
        upto = min(following(drawn), n)
        found = yield from draw_more(
            domain, start, earlier=found, first=drawn, count=upto - drawn, temperature=temperature
        )
        drawn = upto
        votes = _votes(domain, admitted(domain, found, gates=gates))
        checked = domain.checks_answers()
        settled = bool(votes) and (1.0 if checked else support(votes)) >= confidence
    voters = eligible(domain, found, gates=gates)
    return vote(domain, ((voter.state, float(voter.count)) for voter in voters))


def _votes(domain: Domain, voters: Iterable[Solution]) -> list[int]:
    """The votes of each answer, most first; answers that are plainly equal are one."""
    votes: Counter[str] = Counter()
    for voter in voters:
        answer = domain.answer(voter.state)
        if answer is not None:
            votes[canonical_answer(answer)] += voter.count
    return sorted(votes.values(), reverse=True)
