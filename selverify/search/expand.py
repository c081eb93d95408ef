"""One step of a search over several states: sample moves, gate them, verify every distinct one.

Knows: which samples and verifier calls states share. Does not know: which states are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from selverify.domains.base import Domain
from selverify.search.aggregation import Aggregate
from selverify.search.candidates import checked, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.search.solutions import vote
from selverify.types import Move, Outcome, State


@dataclass(frozen=True, slots=True)
class Branch:
    """A state, the verifier's score of each of its moves, how often its last move was sampled."""

    state: State
    scores: tuple[float, ...] = ()
    times: int = 1


def expand(
    domain: Domain,
    parents: Sequence[Branch],
    *,
    counts: Sequence[int],
    gates: bool,
    temperature: float | None,
) -> Asking[list[list[Branch]]]:
    """The children of each parent in proposal order; ``counts`` samples are drawn of each.

    Each distinct (state, move) pair is one verifier call. Parents at the same state draw different
    samples.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    items = []
    for state, count in zip((parent.state for parent in parents), counts, strict=True):
        items.append(ProposeItem(state, seen[state.said], count, temperature))
        seen[state.said] += count
    replies = yield from propose(*items)
    sifted = [
        sift(domain, parent.state, samples=samples, gates=GATES if gates else ())
        for parent, samples in zip(parents, replies, strict=True)
    ]
    pairs = {
        (parent.state.said, move.text): VerifyItem(parent.state, (move,))
        for parent, found in zip(parents, sifted, strict=True)
        for move in found.survivors
    }
    verdicts = yield from verify(*pairs.values())
    after = {
        key: (domain.apply(item.state, *item.steps), verdict.score)
        for (key, item), verdict in zip(pairs.items(), verdicts, strict=True)
    }

    def child(parent: Branch, move: Move, times: int) -> Branch:
        state, score = after[parent.state.said, move.text]
        return Branch(state, (*parent.scores, score), times)

    return [
        [
            child(parent, move, times)
            for move, times in zip(found.survivors, found.counts, strict=True)
        ]
        for parent, found in zip(parents, sifted, strict=True)
    ]


def vote_of_finished(domain: Domain, finished: Iterable[Branch], aggregate: Aggregate) -> Outcome:
    """The answer with the largest sum of scores, each counted as often as it was sampled.

    Where answers check for free, finished states that check win before the vote.
    """
    ends = [(end.state, aggregate(end.scores)) for end in finished for _ in range(end.times)]
    return vote(domain, [pair for pair in ends if checked(domain, pair[0])] or ends)
