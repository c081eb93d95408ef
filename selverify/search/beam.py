"""Beam search guided by the verifier's score of each state's last step, in two variants.

``keep_b`` (the paper's words): keep the top ``width`` states and spread N proposals over them as
evenly as possible, the first beams taking the remainder; N < width keeps N beams.
``snell`` (Snell et al. 2024): N beams; keep N // expansion of them (at least one) and expand each
min(expansion, N) times. The two coincide at N = width * expansion only.
"""

from __future__ import annotations

from dataclasses import replace

from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.search.expand import Child, expand, vote_of_finished
from selverify.search.protocol import Asking
from selverify.types import Outcome, Problem


def beam_search(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    variant: str,
    width: int,
    expansion: int,
    gates: bool,
    max_moves: int,
) -> Asking[Outcome]:
    """The answer with the largest sum of last-step scores over finished beams.

    A finished beam leaves the beam and its place stays empty. Ends when no beam is alive or after
    ``max_moves`` moves; without a finished beam there is no answer. A move that a state sampled
    several times is one beam.

    Raises:
        ParamsError: ``variant`` is neither ``keep_b`` nor ``snell``.
    """
    keep = _kept(variant, n=n, width=width, expansion=expansion)
    beams = [domain.initial_state(problem, budget=n)]
    finished: list[Child] = []
    for depth in range(max_moves):
        spread = variant == "keep_b" or depth == 0
        counts = _even(n, len(beams)) if spread else [min(expansion, n)] * len(beams)
        grown = yield from expand(domain, beams, counts=counts, gates=gates)
        ranked = sorted(
            (child for children in grown for child in children), key=lambda child: -child.score
        )
        best = ranked[: keep - len(finished)]
        finished += [replace(one, times=1) for one in best if domain.is_final(one.state)]
        beams = [one.state for one in best if not domain.is_final(one.state)]
        if not beams:
            break
    return vote_of_finished(domain, finished)


def _kept(variant: str, *, n: int, width: int, expansion: int) -> int:
    if variant == "keep_b":
        return min(width, n)
    if variant == "snell":
        return max(1, n // expansion)
    raise ParamsError(f"variant: given {variant!r}, expected 'keep_b' or 'snell'")


def _even(n: int, beams: int) -> list[int]:
    return [n // beams + (index < n % beams) for index in range(beams)]
