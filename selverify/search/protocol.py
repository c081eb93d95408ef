"""One typed question for each request: ``verdicts = yield from verify(*items)``.

Knows: which reply belongs to which request. Does not know: who answers.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

from selverify.search.requests import (
    Complete,
    CompleteItem,
    Note,
    Propose,
    ProposeItem,
    Rank,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.types import Sample, State, Verdict

_T = TypeVar("_T")
Asking = Generator[Request, Reply, _T]
"""A search, or a part of one, that ends with a ``_T``."""


def propose(*items: ProposeItem) -> Asking[tuple[tuple[Sample, ...], ...]]:
    """Samples of single moves, a tuple for each item."""
    return cast(tuple[tuple[Sample, ...], ...], (yield Propose(items)))


def complete(*items: CompleteItem) -> Asking[tuple[tuple[Sample, ...], ...]]:
    """Samples of whole solutions, a tuple for each item."""
    return cast(tuple[tuple[Sample, ...], ...], (yield Complete(items)))


def rank(*items: RankItem) -> Asking[tuple[tuple[float, ...], ...]]:
    """Scores h(w, m), lower first, a tuple for each item."""
    return cast(tuple[tuple[float, ...], ...], (yield Rank(items)))


def verify(*items: VerifyItem) -> Asking[tuple[Verdict, ...]]:
    """Verdicts, one for each item; each is one verifier call."""
    return cast(tuple[Verdict, ...], (yield Verify(items)))


def note(event: str, state: State, **data: object) -> Note:
    """An event for the trace, to be yielded; ``data`` must be JSON."""
    return Note(event, state, tuple(data.items()))
