"""Whole solutions drawn a few at a time, where a search may stop before all N are drawn.

Knows: which samples come next, how they join those before, and which may end the sampling. Does not
know: when it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from selverify.domains.base import Domain
from selverify.search.protocol import Asking, complete
from selverify.search.requests import CompleteItem
from selverify.search.solutions import Solution, read_solution
from selverify.types import State


def draw_more(
    domain: Domain, start: State, *, earlier: Iterable[Solution], first: int, count: int
) -> Asking[tuple[Solution, ...]]:
    """``earlier`` and the solutions of samples ``first`` to ``first + count``, joined.

    Distinct, first seen first, and those that do not parse or do not answer left out: drawn in any
    portions, all N together are what ``sample_solutions`` finds among N.
    """
    (samples,) = yield from complete(CompleteItem(start, first, count))
    found = {solution.state.said: solution for solution in earlier}
    for sample in samples:
        solution = read_solution(domain, start, text=sample.text, count=1)
        if solution is not None:
            same = found.get(solution.state.said, replace(solution, count=0))
            found[solution.state.said] = replace(same, count=same.count + 1)
    return tuple(found.values())


def admitted(domain: Domain, solutions: Iterable[Solution], *, gates: bool) -> tuple[Solution, ...]:
    """Who may end the sampling: with gates, or where answers check for free, the legal ones alone.

    Unlike ``eligible``, none while there is no legal one: all of them vote only after N samples.
    """
    legal_only = gates or domain.checks_answers()
    return tuple(solution for solution in solutions if solution.legal or not legal_only)
