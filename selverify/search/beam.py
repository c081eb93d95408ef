"""Beam search guided by the verifier's scores of each state's moves.

One search, three rows of the table of methods. The paper keeps the top b states. Snell et al.
(2024) keep N // M of them and expand each M times; where fewer distinct ones are left, N are still
drawn. So N proposals are spread over the states.
Granularity search (Chen et al. 2025, arXiv 2505.11730) verifies every g-th move only.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from selverify.domains.base import Domain
from selverify.search.aggregation import AGGREGATIONS
from selverify.search.expand import Branch, expand, vote_of_finished
from selverify.search.protocol import Asking
from selverify.types import Outcome, Problem


def beam_search(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    width: int,
    every: int,
    gates: bool,
    max_moves: int,
    aggregation: str,
    temperature: float | None,
) -> Asking[Outcome]:
    """The answer with the largest sum of scores over finished beams.

    N proposals are spread over the beams as evenly as possible, the first taking the remainder. A
    beam's score is the ``aggregation`` of the scores of its moves. A finished beam leaves the beam
    and its place stays empty. Ends when no beam is alive or after ``max_moves`` moves; without a
    finished beam there is no answer. A move that a state sampled several times is one beam.

    Args:
        width: beams that are kept, at most N.
        every: moves between verifications, g. A call is then on as many moves. Chen et al. extend a
            beam by one chain of g - 1 moves and branch at the last; here continuations share no
            sample.
        temperature: of the proposals; None is the generator's own.
    """
    aggregate, keep = AGGREGATIONS[aggregation], min(width, n)
    beams = [Branch(domain.initial_state(problem, budget=n))]
    finished: list[Branch] = []
    for depth in range(0, max_moves, every):
        grown = yield from expand(
            domain,
            beams,
            counts=[n // len(beams) + (index < n % len(beams)) for index in range(len(beams))],
            moves=min(every, max_moves - depth),
            gates=gates,
            temperature=temperature,
        )
        ranked = sorted(chain.from_iterable(grown), key=lambda one: -aggregate(one.scores))
        best = ranked[: keep - len(finished)]
        finished += [replace(one, times=1) for one in best if domain.is_final(one.state)]
        beams = [one for one in best if not domain.is_final(one.state)]
        if not beams:
            break
    return vote_of_finished(domain, finished, aggregate)
