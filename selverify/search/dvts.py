"""Diverse verifier tree search (Beeching et al. 2024): beams that do not compete with each other.

Knows: N // expansion subtrees, each a beam of width one. Does not know: any model, or who counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from selverify.domains.base import Domain
from selverify.search.candidates import checked, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.search.solutions import vote
from selverify.types import Outcome, Problem, State

Scored = tuple[State, float]


def dvts(
    domain: Domain, problem: Problem, *, n: int, expansion: int, gates: bool, max_moves: int
) -> Asking[Outcome]:
    """The answer with the largest sum of last-step scores over the ends of all subtrees.

    There are N // expansion subtrees, at least one. In each step each samples min(expansion, N)
    moves and keeps the one of highest score, ties to the first proposed; one without admissible
    moves dies. When the kept move ends a subtree, every sample of that step that ends it votes with
    its own score, so that there are up to N votes. Subtrees at the same state draw different
    samples, and a (state, move) pair that several hold is one call. Where answers check for free,
    ends that check win before the vote.
    """
    trees: list[State] = [domain.initial_state(problem, budget=n)] * max(1, n // expansion)
    finished: list[Scored] = []
    for _ in range(max_moves):
        grown = yield from _grow(domain, trees, min(expansion, n), gates=gates)
        for ends in grown:
            if domain.is_final(ends[0][0]):
                finished += [pair for pair in ends if domain.is_final(pair[0])]
        trees = [ends[0][0] for ends in grown if not domain.is_final(ends[0][0])]
        if not trees:
            break
    return vote(domain, [pair for pair in finished if checked(domain, pair[0])] or finished)


def _grow(
    domain: Domain, trees: Sequence[State], count: int, *, gates: bool
) -> Asking[list[list[Scored]]]:
    """Of each subtree the states after its samples with their scores, the kept one first."""
    seen: Counter[str] = Counter()
    asked = []
    for state in trees:
        asked.append(ProposeItem(state, seen[state.trace] * count, count))
        seen[state.trace] += 1
    replies = yield from propose(*asked)
    sifted = [
        sift(domain, state, samples, gates=GATES if gates else ())
        for state, samples in zip(trees, replies, strict=True)
    ]
    pairs = {
        (state.trace, move.text): (state, move)
        for state, found in zip(trees, sifted, strict=True)
        for move in found.survivors
    }
    verdicts = yield from verify(*(VerifyItem(state, (move,)) for state, move in pairs.values()))
    after = {
        key: (domain.apply(state, move), verdict.score)
        for (key, (state, move)), verdict in zip(pairs.items(), verdicts, strict=True)
    }
    grown = []
    for state, found in zip(trees, sifted, strict=True):
        ends = [
            after[state.trace, move.text]
            for move, times in zip(found.survivors, found.counts, strict=True)
            for _ in range(times)
        ]
        grown.append(sorted(ends, key=lambda end: -end[1]))
    return [ends for ends in grown if ends]
