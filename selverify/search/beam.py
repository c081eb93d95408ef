"""Beam search guided by the verifier's score of each state's last step, in two variants.

``keep_b`` (the paper's words): keep the top ``width`` states and spread N proposals over them as
evenly as possible, the first beams taking the remainder; N < width keeps N beams.
``snell`` (Snell et al. 2024): N beams; keep N // expansion of them (at least one) and expand each
min(expansion, N) times. The two coincide at N = width * expansion only.
"""

from __future__ import annotations

from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.search.candidates import checked, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.search.solutions import vote
from selverify.types import Outcome, Problem, State

Scored = tuple[State, float]


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
    ``max_moves`` moves; without a finished beam there is no answer. Each distinct (state, move)
    pair is one call. Where answers check for free, finished beams that check win before the vote.

    Raises:
        ParamsError: ``variant`` is neither ``keep_b`` nor ``snell``.
    """
    keep = _kept(variant, n=n, width=width, expansion=expansion)
    beams: tuple[State, ...] = (domain.initial_state(problem, budget=n),)
    finished: list[Scored] = []
    for depth in range(max_moves):
        spread = variant == "keep_b" or depth == 0
        shares = _even(n, len(beams)) if spread else [min(expansion, n)] * len(beams)
        scored = yield from _expand(domain, beams, shares, gates=gates)
        best = sorted(scored, key=lambda pair: -pair[1])[: keep - len(finished)]
        finished += [pair for pair in best if domain.is_final(pair[0])]
        beams = tuple(state for state, _ in best if not domain.is_final(state))
        if not beams:
            break
    return vote(domain, [pair for pair in finished if checked(domain, pair[0])] or finished)


def _kept(variant: str, *, n: int, width: int, expansion: int) -> int:
    if variant == "keep_b":
        return min(width, n)
    if variant == "snell":
        return max(1, n // expansion)
    raise ParamsError(f"variant: given {variant!r}, expected 'keep_b' or 'snell'")


def _even(n: int, beams: int) -> list[int]:
    return [n // beams + (index < n % beams) for index in range(beams)]


def _expand(
    domain: Domain, beams: tuple[State, ...], shares: list[int], *, gates: bool
) -> Asking[list[Scored]]:
    """Every distinct admissible move at every beam, applied, with its verifier score."""
    asked = [ProposeItem(beam, 0, share) for beam, share in zip(beams, shares, strict=True)]
    replies = yield from propose(*asked)
    pairs = [
        (beam, move)
        for beam, samples in zip(beams, replies, strict=True)
        for move in sift(domain, beam, samples, gates=GATES if gates else ()).survivors
    ]
    verdicts = yield from verify(*(VerifyItem(beam, (move,)) for beam, move in pairs))
    return [
        (domain.apply(beam, move), verdict.score)
        for (beam, move), verdict in zip(pairs, verdicts, strict=True)
    ]
