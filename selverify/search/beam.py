"""Beam search guided by the verifier's scores of each state's moves, in two variants.

keep b (the paper's words): keep the top ``width`` states and spread N proposals over them as evenly
as possible, the first beams taking the remainder; N < width keeps N beams.
Snell et al. (2024): N beams; keep N // expansion of them (at least one) and expand each
min(expansion, N) times. The two coincide at N = width * expansion only.
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
    width: int | None,
    expansion: int | None,
    gates: bool,
    max_moves: int,
    aggregation: str,
    temperature: float | None,
) -> Asking[Outcome]:
    """The answer with the largest sum of scores over finished beams.

    A beam's score is the ``aggregation`` of the scores of its moves. A finished beam leaves the
    beam and its place stays empty. Ends when no beam is alive or after ``max_moves`` moves; without
    a finished beam there is no answer. A move that a state sampled several times is one beam.

    Args:
        width: beams that are kept; None: N // ``expansion``, at least one.
        expansion: proposals a beam after the first step; None: N spread over the beams.
        temperature: of the proposals; None is the generator's own.
    """
    each = n if expansion is None else min(expansion, n)
    keep = max(1, n // each) if width is None else min(width, n)
    aggregate = AGGREGATIONS[aggregation]
    beams = [Branch(domain.initial_state(problem, budget=n))]
    finished: list[Branch] = []
    for depth in range(max_moves):
        spread = expansion is None or depth == 0
        counts = _even(n, len(beams)) if spread else [each] * len(beams)
        grown = yield from expand(
            domain, beams, counts=counts, gates=gates, temperature=temperature
        )
        ranked = sorted(chain.from_iterable(grown), key=lambda one: -aggregate(one.scores))
        best = ranked[: keep - len(finished)]
        finished += [replace(one, times=1) for one in best if domain.is_final(one.state)]
        beams = [one for one in best if not domain.is_final(one.state)]
        if not beams:
            break
    return vote_of_finished(domain, finished, aggregate)


def _even(n: int, beams: int) -> list[int]:
    return [n // beams + (index < n % beams) for index in range(beams)]
