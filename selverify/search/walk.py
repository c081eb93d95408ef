"""Frozen values of one gated competition: the states it has visited and what it may still spend.

Knows: visits and how one value follows from another. Does not know: rules, requests, models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from selverify.types import Move, State


class Judged(NamedTuple):
    """A verified move: its verifier score in [0, 1] and its rank score h (lower is better)."""

    move: Move
    score: float
    h: float


class Visit(NamedTuple):
    """One visited state.

    ``parent`` is the place of the visit that it was entered from, ``drawn`` the number of samples
    drawn here. ``pool`` holds the unverified survivors, oldest first; ``counts`` how often each
    survivor's text was sampled; ``judged`` the verified moves in the order of verification;
    ``taken`` the texts of the moves committed here. ``forced``: its best rejected move was
    committed.
    """

    state: State
    parent: int | None = None
    drawn: int = 0
    pool: tuple[Move, ...] = ()
    counts: Mapping[str, int] = MappingProxyType({})
    judged: tuple[Judged, ...] = ()
    taken: tuple[str, ...] = ()
    forced: bool = False

    @property
    def depth(self) -> int:
        """How many moves the state's derivation has."""
        return len(self.state.derivation)

    @property
    def open(self) -> tuple[Judged, ...]:
        """The verified moves that were not committed here."""
        return tuple(one for one in self.judged if one.move.text not in self.taken)

    def pooled(self, candidates: Iterable[tuple[Move, int]]) -> Visit:
        """With ``candidates`` (a move, times sampled) that were not yet verified or committed."""
        pool = {move.text: move for move in self.pool}
        counts = dict(self.counts)
        done = {*self.taken, *(one.move.text for one in self.judged)}
        for move, times in candidates:
            if move.text not in done:
                pool.setdefault(move.text, move)
                counts[move.text] = counts.get(move.text, 0) + times
        return self._replace(pool=tuple(pool.values()), counts=counts)


class Walk(NamedTuple):
    """All visits in their order, the place ``here``, and the calls and samples left."""

    visits: tuple[Visit, ...]
    here: int
    calls: int
    samples: int

    @property
    def visit(self) -> Visit:
        """The visit at ``here``."""
        return self.visits[self.here]

    @property
    def state(self) -> State:
        """The state at ``here``."""
        return self.visit.state

    def with_visit(self, visit: Visit) -> Walk:
        """The same walk with another value of the visit at ``here``."""
        before, after = self.visits[: self.here], self.visits[self.here + 1 :]
        return Walk((*before, visit, *after), self.here, self.calls, self.samples)

    def changed(self, **changes: Any) -> Walk:
        """The same walk with fields of the visit at ``here`` replaced."""
        return self.with_visit(self.visit._replace(**changes))

    def at(self, place: int) -> Walk:
        """Back at an earlier visit; calls that were spent since then stay spent."""
        walk = Walk(self.visits, place, self.calls, self.samples)
        return walk.changed(state=walk.state.with_budget(self.calls))

    def with_judged(self, verified: Sequence[Judged]) -> Walk:
        """With moves of the pool verified, one call each."""
        texts = {one.move.text for one in verified}
        walk = self.changed(
            state=self.state.spend(len(verified)),
            pool=tuple(move for move in self.visit.pool if move.text not in texts),
            judged=(*self.visit.judged, *verified),
        )
        return Walk(walk.visits, walk.here, self.calls - len(verified), walk.samples)

    def committed(self, move: Move, after: State) -> Walk:
        """With ``move`` committed here, standing at the state ``after`` it."""
        left = self.changed(
            pool=tuple(one for one in self.visit.pool if one.text != move.text),
            taken=(*self.visit.taken, move.text),
        )
        visits = (*left.visits, Visit(after, parent=self.here))
        return Walk(visits, len(left.visits), self.calls, self.samples)
