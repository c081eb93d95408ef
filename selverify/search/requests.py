"""The plural typed requests that a search yields, and their replies.

The driver (``selverify.search.driver``) answers the requests of searches and counts their cost.
Training, difficulty and the audits of verifier and gates send requests to a backend themselves.
Every request is a tuple of items and every reply is a tuple of the same length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selverify.types import Move, Sample, State, Verdict


@dataclass(frozen=True, slots=True)
class ProposeItem:
    """Sample moves ``start`` to ``start + count`` at ``state``; index and state fix the seed.

    ``temperature``: None is the generator's own.
    """

    state: State
    start: int
    count: int
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class CompleteItem:
    """Sample whole solutions ``start`` to ``start + count`` from ``state``.

    ``temperature``: None is the generator's own, 0 takes the most probable words.
    """

    state: State
    start: int
    count: int
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class RankItem:
    """Score surviving ``moves`` at ``state`` with the named scorer; lower ranks first.

    ``reject_probability`` is the chance that the verifier rejects a move, ``expected_loss`` one
    less the score that it is expected to give.
    """

    state: State
    moves: tuple[Move, ...]
    scorer: str


@dataclass(frozen=True, slots=True)
class VerifyItem:
    """One verifier call: score ``steps`` appended to ``state`` (one move, or a whole solution)."""

    state: State
    steps: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Propose:
    """Reply: for each item a tuple of ``count`` samples, each one move's text."""

    items: tuple[ProposeItem, ...]
    kind: ClassVar[str] = "propose"


@dataclass(frozen=True, slots=True)
class Complete:
    """Reply: for each item a tuple of ``count`` samples, each a whole continuation's text."""

    items: tuple[CompleteItem, ...]
    kind: ClassVar[str] = "complete"


@dataclass(frozen=True, slots=True)
class Rank:
    """Reply: for each item a tuple of scores h(w, m), one a move, lower first. No verifier call."""

    items: tuple[RankItem, ...]
    kind: ClassVar[str] = "rank"


@dataclass(frozen=True, slots=True)
class Verify:
    """Reply: for each item one verdict. Each item is one verifier call (Eq. C_ver)."""

    items: tuple[VerifyItem, ...]
    kind: ClassVar[str] = "verify"


@dataclass(frozen=True, slots=True)
class Note:
    """An event for the trace; the driver records it and sends None back."""

    event: str
    state: State
    data: tuple[tuple[str, object], ...] = ()
    kind: ClassVar[str] = "note"


Request = Propose | Complete | Rank | Verify | Note
Reply = tuple[tuple[Sample, ...], ...] | tuple[tuple[float, ...], ...] | tuple[Verdict, ...] | None
