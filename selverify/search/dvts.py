"""Diverse verifier tree search (Beeching et al. 2024): beams that do not compete with each other.

Knows: N // expansion subtrees, each a beam of width one. Does not know: any model, or who counts.
"""

from __future__ import annotations

from selverify.domains.base import Domain
from selverify.search.aggregation import AGGREGATIONS
from selverify.search.expand import Branch, expand, vote_of_finished
from selverify.search.protocol import Asking
from selverify.types import Outcome, Problem


def dvts(
    domain: Domain,
    problem: Problem,
    *,
    n: int,
    expansion: int,
    gates: bool,
    max_moves: int,
    aggregation: str,
    temperature: float | None,
) -> Asking[Outcome]:
    """The answer with the largest sum of scores over the ends of all subtrees.

    A state's score is the ``aggregation`` of the scores of its moves.

    There are N // expansion subtrees, at least one. In each step each samples min(expansion, N)
    moves and keeps the one of highest score, ties to the first proposed; one without admissible
    moves dies. When the kept move ends a subtree, every sample of that step that ends it votes with
    its own score, so that there are up to N votes.
    """
    aggregate = AGGREGATIONS[aggregation]
    trees = [Branch(domain.initial_state(problem, budget=n))] * max(1, n // expansion)
    finished: list[Branch] = []
    for _ in range(max_moves):
        counts = [min(expansion, n)] * len(trees)
        grown = yield from expand(
            domain, trees, counts=counts, moves=1, gates=gates, temperature=temperature
        )
        trees = []
        for children in filter(None, grown):
            ranked = sorted(children, key=lambda one: -aggregate(one.scores))
            if domain.is_final(ranked[0].state):
                finished += [child for child in ranked if domain.is_final(child.state)]
            else:
                trees.append(ranked[0])
        if not trees:
            break
    return vote_of_finished(domain, finished, aggregate)
