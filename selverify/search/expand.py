"""A step of a search over several states: sample moves, gate them, verify every distinct result.

Knows: which samples and verifier calls states share. Does not know: which states are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from selverify.domains.base import Domain
from selverify.search.aggregation import Aggregate
from selverify.search.candidates import checked, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.search.solutions import vote
from selverify.types import Outcome, Sample, State


@dataclass(frozen=True, slots=True)
class Branch:
    """A state, the verifier's score of each of its moves, how often it was sampled."""

    state: State
    scores: tuple[float, ...] = ()
    times: int = 1


def expand(
    domain: Domain,
    parents: Sequence[Branch],
    *,
    counts: Sequence[int],
    moves: int,
    gates: bool,
    temperature: float | None,
) -> Asking[list[list[Branch]]]:
    """The states ``moves`` moves after each parent, in proposal order; ``counts`` a parent.

    Fewer moves where an answer comes first; a refused move drops its continuation. Continuations of
    one state draw different samples. Each distinct (parent's state, new moves) is one verifier
    call, with as many step scores as it has moves. Where answers check for free, those that do are
    all that is left, and nothing is verified: their moves score 1.
    """
    pairs = zip(parents, counts, strict=True)
    front = [[Branch(parent.state, times=count)] for parent, count in pairs]
    drawn: Counter[tuple[str, ...]] = Counter()
    for _ in range(moves):
        growing = [one for line in front for one in line if not domain.is_final(one.state)]
        replies = yield from propose(*_items(growing, drawn, temperature))
        answers = iter(replies)
        front = [
            [child for one in line for child in _children(domain, one, answers, gates=gates)]
            for line in front
        ]
    right = [[one for one in line if checked(domain, one.state)] for line in front]
    if any(right):
        return [
            [replace(one, scores=_filled(parent.scores, one.state)) for one in line]
            for parent, line in zip(parents, right, strict=True)
        ]
    return (yield from _verified(parents, front))


def _filled(scores: Sequence[float], state: State) -> tuple[float, ...]:
    """One score a move: 1 for those that have none."""
    return (*scores, *(1.0 for _ in state.derivation[len(scores) :]))


def _items(
    growing: Iterable[Branch], drawn: Counter[tuple[str, ...]], temperature: float | None
) -> Iterator[ProposeItem]:
    """The next samples of each state; ``drawn`` counts those of each."""
    for one in growing:
        said = one.state.said
        yield ProposeItem(one.state, drawn[said], one.times, temperature)
        drawn[said] += one.times


def _children(
    domain: Domain, one: Branch, answers: Iterator[Sequence[Sample]], *, gates: bool
) -> Iterator[Branch]:
    """A final state as it is; of another the states after the admissible of its next samples."""
    if domain.is_final(one.state):
        yield one
        return
    found = sift(domain, one.state, samples=next(answers), gates=GATES if gates else ())
    for move, times in zip(found.survivors, found.counts, strict=True):
        yield Branch(domain.apply(one.state, move), times=times)


def _verified(
    parents: Sequence[Branch], front: Sequence[Sequence[Branch]]
) -> Asking[list[list[Branch]]]:
    """``front``, the states after each parent, with the scores of all their moves."""
    calls = {
        (parent.state.said, end.state.said): VerifyItem(
            parent.state, end.state.derivation[len(parent.state.derivation) :]
        )
        for parent, line in zip(parents, front, strict=True)
        for end in line
    }
    verdicts = yield from verify(*calls.values())
    scores = {key: one.step_scores for key, one in zip(calls, verdicts, strict=True)}
    return [
        [
            Branch(
                end.state,
                (*parent.scores, *scores[parent.state.said, end.state.said]),
                end.times,
            )
            for end in line
        ]
        for parent, line in zip(parents, front, strict=True)
    ]


def vote_of_finished(domain: Domain, finished: Iterable[Branch], aggregate: Aggregate) -> Outcome:
    """The answer with the largest sum of scores, each counted as often as it was sampled.

    Where answers check for free, finished states that check win before the vote.
    """
    ends = [(end.state, aggregate(end.scores)) for end in finished for _ in range(end.times)]
    return vote(domain, [pair for pair in ends if checked(domain, pair[0])] or ends)
