"""Frozen values of one gated competition: the states it has visited and what it may still spend.

Knows: visits and how one value follows from another. Does not know: rules, requests, models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

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
    committed. ``pending`` holds the moves before this state that were committed without a call
    since the last verified one, oldest first; ``risk`` is the probability that the verifier rejects
    any of them, ``risk_after`` the same with the move that is committed here without a call.
    ``abandoned``: it stands behind a move that was rejected after all.
    """

    state: State
    parent: int | None = None
    drawn: int = 0
    pool: tuple[Move, ...] = ()
    counts: Mapping[str, int] = MappingProxyType({})
    judged: tuple[Judged, ...] = ()
    taken: tuple[str, ...] = ()
    forced: bool = False
    pending: tuple[Move, ...] = ()
    risk: float = 0.0
    risk_after: float = 0.0
    abandoned: bool = False

    @property
    def depth(self) -> int:
        """How many moves the state's derivation has."""
        return len(self.state.derivation)

    @property
    def open(self) -> tuple[Judged, ...]:
        """The verified moves that were not committed here."""
        return tuple(one for one in self.judged if one.move.text not in self.taken)

    def risk_with(self, probability: float) -> float:
        """``risk`` with one more move, which the verifier rejects with this probability."""
        return 1.0 - (1.0 - self.risk) * (1.0 - probability)

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

    @property
    def unverified(self) -> tuple[int, ...]:
        """The places of the visits where the pending moves were committed, oldest first."""
        places = [self.here]
        for _ in self.visit.pending:
            places.append(cast(int, self.visits[places[-1]].parent))
        return tuple(reversed(places[1:]))

    def kept(self, place: int) -> int:
        """The place of the deepest visit on the way to ``place`` that is not abandoned."""
        while self.visits[place].abandoned:
            place = cast(int, self.visits[place].parent)
        return place

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

    def checked(self, scores: Sequence[float], accepts: Callable[[float], bool]) -> Walk:
        """With the verifier's scores of the pending moves.

        Back where the first rejected one was committed, without calls that were spent since; here
        if all are accepted.
        """
        known = zip(self.visit.pending, scores, self.unverified, strict=True)
        for move, score, place in known:
            if not accepts(score):
                back = self.at(place).without(move)
                judged = (*back.visit.judged, Judged(move, score, 0.0))
                return back.changed(judged=judged, pending=(), risk=0.0)
        return self.changed(pending=(), risk=0.0)

    def without(self, move: Move) -> Walk:
        """With nothing left to try at the states behind ``move``, which was committed here."""
        said = (*self.state.said, move.text)
        visits = tuple(
            one._replace(pool=(), judged=(), counts=MappingProxyType({}), abandoned=True)
            if one.state.said[: len(said)] == said
            else one
            for one in self.visits
        )
        return self._replace(visits=visits)

    def committed(self, move: Move, after: State) -> Walk:
        """With ``move`` committed here, standing at the state ``after`` it."""
        left = self.changed(
            pool=tuple(one for one in self.visit.pool if one.text != move.text),
            taken=(*self.visit.taken, move.text),
        )
        child = Visit(after, parent=self.here)
        if all(one.move.text != move.text for one in self.visit.judged):
            pending = (*self.visit.pending, move)
            child = child._replace(pending=pending, risk=self.visit.risk_after)
        visits = (*left.visits, child)
        return Walk(visits, len(left.visits), self.calls, self.samples)
