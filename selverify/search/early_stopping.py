"""Best-of-N with early stopping: sample until the verifier gives a solution a score high enough.

Knows: the order of samples and calls, and what is left to vote without a stop. Does not know: how
a score comes about.
"""

from __future__ import annotations

from collections.abc import Sequence

from selverify.domains.base import Domain
from selverify.search.aggregation import AGGREGATIONS
from selverify.search.protocol import Asking, verify
from selverify.search.requests import VerifyItem
from selverify.search.solutions import Solution, admitted, draw_more, eligible, vote
from selverify.types import Outcome, Problem, State


def early_stopping(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    threshold: float,
    gates: bool,
    aggregation: str,
    temperature: float | None,
) -> Asking[Outcome]:
    """The answer of the first of N solutions whose score is at least ``threshold``.

    Solutions are sampled one after another, and each distinct new one is one verifier call, unless
    gates or a free check refuse it. A solution that checks has score 1 without a call. If none
    reaches ``threshold``, the answer is that of ``best_of_n`` at the same cost, so a threshold
    above 1 is ``best_of_n``.

    Args:
        threshold: of the aggregated score, in [0, 1].
        aggregation: ``last``, ``min`` or ``prod`` of the step scores.
    """
    start = domain.initial_state(problem, budget=n)
    found: tuple[Solution, ...] = ()
    scores: dict[tuple[str, ...], float] = {}
    for index in range(n):
        known = len(found)
        found = yield from draw_more(
            domain, start, earlier=found, first=index, count=1, temperature=temperature
        )
        for fresh in admitted(domain, found[known:], gates=gates):
            scores |= yield from _scored(domain, start, [fresh], aggregation=aggregation)
            if scores[fresh.state.said] >= threshold:
                return vote(domain, [(fresh.state, 1.0)])
    pool = eligible(domain, found, gates=gates)
    if not scores and not gates:
        scores = yield from _scored(domain, start, pool, aggregation=aggregation)
    return vote(domain, ((one.state, one.count * scores.get(one.state.said, 1.0)) for one in pool))


def _scored(
    domain: Domain, start: State, solutions: Sequence[Solution], *, aggregation: str
) -> Asking[dict[tuple[str, ...], float]]:
    """The score of each solution by its texts: 1 if it checks for free, else by a call."""
    free = {one.state.said: 1.0 for one in solutions if one.legal and domain.checks_answers()}
    rest = [one.state for one in solutions if one.state.said not in free]
    verdicts = yield from verify(*(VerifyItem(start, state.derivation) for state in rest))
    aggregate = AGGREGATIONS[aggregation]
    pairs = zip(rest, verdicts, strict=True)
    return free | {state.said: aggregate(verdict.step_scores) for state, verdict in pairs}
