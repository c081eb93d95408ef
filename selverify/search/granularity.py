"""Granularity search (Chen et al. 2025, arXiv 2505.11730): beams that are verified every g moves.

Knows: how groups of moves grow and which of their ends are kept. Does not know: which g suits a
problem, or how step scores make one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from selverify.domains.base import Domain
from selverify.search.candidates import sift
from selverify.search.expand import Child, vote_of_finished
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.types import Outcome, Problem, State


class _Beam(NamedTuple):
    """A state and the step scores of its derivation, in order."""

    state: State
    scores: tuple[float, ...]


def granularity_search(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    g: int,
    expansion: int,
    aggregate: Callable[[Sequence[float]], float],
    gates: bool,
    max_moves: int,
) -> Asking[Outcome]:
    """The answer with the largest sum of scores over finished beams, verified every ``g`` moves.

    N continuations of the start, and min(expansion, N) of every later beam, grow by ``g`` moves
    each, fewer where an answer or ``max_moves`` comes first. Each distinct end is one verifier call
    on the moves since the last one; the best N // expansion (at least one) are kept, ties to the
    first proposed, and finished ones leave the beam as in ``beam_search``. A beam's score is
    ``aggregate`` of all step scores along its derivation: the product is that of the group times
    its parent's score, for scores of a move given that its state is right; where a step score
    already covers the steps before it, the last one says the same.

    With ``g`` 1 and the last score it is ``beam_search`` in the variant ``snell``; with ``g`` at
    least ``max_moves`` every distinct sampled solution is one call. The paper extends each kept
    beam by a single chain of g - 1 moves and samples only the last of them ``expansion`` times;
    here continuations share no sample, so that they differ in all g moves.
    """
    keep = max(1, n // expansion)
    beams = [_Beam(domain.initial_state(problem, budget=n), ())]
    finished: list[Child] = []
    for depth in range(0, max_moves, g):
        ends = yield from _grown(
            domain,
            [beam.state for beam in beams],
            count=min(expansion, n) if depth else n,
            moves=min(g, max_moves - depth),
            gates=gates,
        )
        grown = yield from _verified(beams, ends, depth=depth)
        ranked = sorted(grown, key=lambda beam: -aggregate(beam.scores))
        best = ranked[: keep - len(finished)]
        over = [beam for beam in best if domain.is_final(beam.state)]
        finished += [Child(beam.state, aggregate(beam.scores), 1) for beam in over]
        beams = [beam for beam in best if not domain.is_final(beam.state)]
        if not beams:
            break
    return vote_of_finished(domain, finished)


def _grown(
    domain: Domain, states: Iterable[State], *, count: int, moves: int, gates: bool
) -> Asking[list[State]]:
    """The distinct ends of ``count`` continuations of each state, in the order of proposals.

    A refused move drops its continuation. Continuations at one state draw different samples.
    """
    front = [(state, count) for state in states]
    for _ in range(moves):
        alive = [(state, times) for state, times in front if not domain.is_final(state)]
        replies = yield from propose(*(ProposeItem(state, 0, times) for state, times in alive))
        children: dict[tuple[str, ...], list[tuple[State, int]]] = {}
        for (state, _), samples in zip(alive, replies, strict=True):
            found = sift(domain, state, samples=samples, gates=GATES if gates else ())
            after = (domain.apply(state, move) for move in found.survivors)
            children[state.said] = list(zip(after, found.counts, strict=True))
        front = [one for pair in front for one in children.get(pair[0].said, [pair])]
    return [state for state, _ in front]


def _verified(beams: Sequence[_Beam], ends: Sequence[State], *, depth: int) -> Asking[list[_Beam]]:
    """``ends``, each a call on its moves after ``depth``, where it was one of ``beams``."""
    parents = {beam.state.said: beam for beam in beams}
    origins = [parents[end.said[:depth]] for end in ends]
    pairs = zip(origins, ends, strict=True)
    verdicts = yield from verify(
        *(VerifyItem(parent.state, end.derivation[depth:]) for parent, end in pairs)
    )
    return [
        _Beam(end, parent.scores + verdict.step_scores)
        for parent, end, verdict in zip(origins, ends, verdicts, strict=True)
    ]
