"""Diverse verifier tree search (Beeching et al. 2024): beams that do not compete with each other.

Knows: N // expansion subtrees, each a beam of width one. Does not know: any model, or who counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from selverify.domains.base import Domain
from selverify.gates import GATES
from selverify.requests import ProposeItem, VerifyItem
from selverify.search.asking import Asking, propose, verify
from selverify.search.candidates import checked, sift
from selverify.search.solutions import vote
from selverify.types import Move, Outcome, Problem, State

Scored = tuple[State, float]


def dvts(
    domain: Domain, problem: Problem, *, n: int, expansion: int, gates: bool, max_moves: int
) -> Asking[Outcome]:
    """The answer with the largest sum of last-step scores over finished subtrees.

    There are N // expansion subtrees, at least one. In each step each samples min(expansion, N)
    moves and keeps the one of highest score, ties to the first proposed; one without admissible
    moves dies. Subtrees at the same state draw different samples, and a (state, move) pair that
    several hold is one call. Where answers check for free, subtrees that check win before the vote.
    """
    trees: list[State] = [domain.initial_state(problem, budget=n)] * max(1, n // expansion)
    finished: list[Scored] = []
    for _ in range(max_moves):
        grown = yield from _grow(domain, trees, min(expansion, n), gates=gates)
        finished += [pair for pair in grown if domain.is_final(pair[0])]
        trees = [state for state, _ in grown if not domain.is_final(state)]
        if not trees:
            break
    return vote(domain, [pair for pair in finished if checked(domain, pair[0])] or finished)


def _grow(
    domain: Domain, trees: Sequence[State], count: int, *, gates: bool
) -> Asking[list[Scored]]:
    """Each subtree after its best move, with that move's score."""
    seen: Counter[str] = Counter()
    asked = []
    for state in trees:
        asked.append(ProposeItem(state, seen[state.trace] * count, count))
        seen[state.trace] += 1
    replies = yield from propose(*asked)
    survivors = [
        sift(domain, state, samples, gates=GATES if gates else ()).survivors
        for state, samples in zip(trees, replies, strict=True)
    ]
    pairs = {
        (state.trace, move.text): (state, move)
        for state, moves in zip(trees, survivors, strict=True)
        for move in moves
    }
    verdicts = yield from verify(*(VerifyItem(state, (move,)) for state, move in pairs.values()))
    scores = {key: verdict.score for key, verdict in zip(pairs, verdicts, strict=True)}

    def score(state: State, move: Move) -> float:
        return scores[state.trace, move.text]

    kept = [
        (state, max(moves, key=lambda move: score(state, move)))
        for state, moves in zip(trees, survivors, strict=True)
        if moves
    ]
    return [(domain.apply(state, move), score(state, move)) for state, move in kept]
