"""One step of a search over several states: sample moves, gate them, verify every distinct one.

Knows: which samples and verifier calls states share. Does not know: which states are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from selverify.domains.base import Domain
from selverify.search.candidates import checked, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.search.solutions import vote
from selverify.types import Outcome, State


@dataclass(frozen=True, slots=True)
class Child:
    """A state after one admissible move, its verifier score and how often it was sampled."""

    state: State
    score: float
    times: int


def expand(
    domain: Domain, parents: Sequence[State], *, counts: Sequence[int], gates: bool
) -> Asking[list[list[Child]]]:
    """The children of each parent in proposal order; ``counts`` samples are drawn of each.

    Each distinct (state, move) pair is one verifier call. Parents at the same state draw different
    samples.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    items = []
    for state, count in zip(parents, counts, strict=True):
        items.append(ProposeItem(state, seen[state.said], count))
        seen[state.said] += count
    replies = yield from propose(*items)
    sifted = [
        sift(domain, state, samples=samples, gates=GATES if gates else ())
        for state, samples in zip(parents, replies, strict=True)
    ]
    pairs = {
        (state.said, move.text): (state, move)
        for state, found in zip(parents, sifted, strict=True)
        for move in found.survivors
    }
    verdicts = yield from verify(*(VerifyItem(state, (move,)) for state, move in pairs.values()))
    after = {
        key: (domain.apply(state, move), verdict.score)
        for (key, (state, move)), verdict in zip(pairs.items(), verdicts, strict=True)
    }
    return [
        [
            Child(*after[state.said, move.text], times)
            for move, times in zip(found.survivors, found.counts, strict=True)
        ]
        for state, found in zip(parents, sifted, strict=True)
    ]


def vote_of_finished(domain: Domain, finished: Iterable[Child]) -> Outcome:
    """The answer with the largest sum of scores, each counted as often as it was sampled.

    Where answers check for free, finished states that check win before the vote.
    """
    ends = [(end.state, end.score) for end in finished for _ in range(end.times)]
    return vote(domain, [pair for pair in ends if checked(domain, pair[0])] or ends)
