"""The driver: advances all searches together and is the only place that counts calls.

Knows: generators that yield requests, one backend, budgets. Does not know: what a search is for,
nor how a request is answered. A search ends as it would alone where the backend is a pure function
of each item. A server that draws several samples under one seed is none: what it draws depends on
which were requested together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from selverify.errors import BudgetError, ProtocolError
from selverify.search.backend import Backend
from selverify.search.compute import Reading
from selverify.search.in_flight import InFlight, Job
from selverify.search.ledger import Ledger, cost
from selverify.search.requests import (
    Complete,
    Note,
    Propose,
    Rank,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.search.traces import Event

_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
_Asked = Complete | Propose | Rank | Verify
_KINDS: tuple[type[_Asked], ...] = (Complete, Propose, Rank, Verify)
_LIMITED_TOGETHER: Mapping[type[_Asked], str] = MappingProxyType(
    {Complete: "generator", Propose: "generator"}
)
"""Kinds that one model answers; others are limited by themselves."""


@dataclass(frozen=True, slots=True)
class Search(Generic[_T]):
    """A search to drive, and the verifier calls it may make (None: as many as it asks for)."""

    generator: Generator[Request, Reply, _T]
    budget: int | None


@dataclass(frozen=True, slots=True)
class Result(Generic[_T]):
    """What a search returned, what it asked for, and its events (none unless traced)."""

    outcome: _T
    ledger: Ledger
    events: tuple[Event, ...]


@dataclass(slots=True)
class _Run(Generic[_K, _T]):
    """A search under way: its open request, and what it has cost so far.

    ``answered``: replies to it and to those that it followed.
    """

    key: _K
    search: Search[_T]
    reading: Reading
    events: list[Event] | None
    answered: int
    ledger: Ledger = field(default_factory=Ledger)
    request: _Asked | None = None
    outcome: _T | None = None


def run_searches(
    searches: Mapping[_K, Search[_T]],
    backend: Backend,
    *,
    end_of_move: str,
    traced: bool = False,
    then: Callable[[_K, Result[_T]], Mapping[_K, Search[_T]]] = lambda _key, _result: {},
) -> dict[_K, Result[_T]]:
    """Drive all searches to their end.

    What the backend computes itself goes in lock-step, with one call a kind and round: in a round
    each kind has its turn in the order of ``_KINDS``, and a search that was answered joins the next
    kind's turn of the same round, so batches stay large. What it waits for (``concurrency``) is
    asked for each search by itself, which goes on with its reply at once: none waits for the
    slowest of a round. Of those that wait for their turn the one with the fewest replies goes
    first, those to searches that it followed included, so one that was held up does not end long
    after the others.

    Args:
        searches: by key; the result has the same keys in the same order, then those that followed.
        backend: answers the requests; in several threads, where it has a ``concurrency``.
        end_of_move: the domain's word that closes a move; counts the moves of solutions.
        traced: whether to keep events.
        then: called with the key and the result of each search that ends; returns further searches,
            under keys of their own, which join those under way.

    Raises:
        BudgetError: a budget is below 1, or a search asks for more calls than it has left.
        ProtocolError: a search yields something else than a request, or a reply has a wrong
            length, or two searches have one key.
    """
    results: dict[_K, Result[_T] | None] = {}
    waiting: dict[type[_Asked], list[_Run[_K, _T]]] = {kind: [] for kind in _KINDS}

    def begun(searches: Mapping[_K, Search[_T]], answered: int) -> list[_Run[_K, _T]]:
        if again := results.keys() & searches.keys():
            raise ProtocolError(f"search {again.pop()!r}: begun twice, expected a key of its own")
        results.update(dict.fromkeys(searches))
        return [
            _Run(
                key,
                _checked(key, search),
                Reading(backend.tokens, end_of_move=end_of_move),
                [] if traced else None,
                answered,
            )
            for key, search in searches.items()
        ]

    def advance(runs: Sequence[_Run[_K, _T]], replies: Sequence[Reply]) -> None:
        """Up to the next requests, also of searches that begin where one ends."""
        while runs:
            further: list[_Run[_K, _T]] = []
            for run, reply in zip(runs, replies, strict=True):
                request = _advance(run, reply)
                if request is not None:
                    waiting[type(request)].append(run)
                    continue
                result = Result(cast(_T, run.outcome), run.ledger, tuple(run.events or ()))
                results[run.key] = result
                further += begun(then(run.key, result), run.answered)
            runs, replies = further, [None] * len(further)

    first = begun(searches, 0)
    advance(first, [None] * len(first))
    with InFlight[_Run[_K, _T], tuple[Any, ...]]() as under_way:
        while under_way or any(waiting.values()):
            for kind in _KINDS:
                turn, waiting[kind] = waiting[kind], []
                if not turn:
                    continue
                _check_budgets(turn)
                if most := backend.concurrency(kind.kind):
                    for run in turn:
                        under_way.begin(_job(run, backend, most=most))
                else:
                    advance(turn, _answer(kind, turn, backend=backend, end_of_move=end_of_move))
            if under_way:
                for run, reply in under_way.take(wait=not any(waiting.values())):
                    _charge(run, reply, end_of_move=end_of_move)
                    advance([run], [reply])
    return cast("dict[_K, Result[_T]]", results)


def _checked(key: Hashable, search: Search[_T]) -> Search[_T]:
    if search.budget is not None and search.budget < 1:
        raise BudgetError(f"search {key!r}: budget is {search.budget}, expected at least 1")
    return search


def _advance(run: _Run[_K, _T], reply: Reply) -> _Asked | None:
    """Send the reply; the next open request, or None at the end. Notes are taken on the way."""
    try:
        request = run.search.generator.send(reply)
        while isinstance(request, Note):
            if run.events is not None:
                run.events.append(
                    Event(len(run.events), request.event, request.state, Ledger(), request.data)
                )
            request = run.search.generator.send(None)
    except StopIteration as stop:
        run.request, run.outcome = None, stop.value
        return None
    if type(request) not in _KINDS:
        raise ProtocolError(f"search {run.key!r}: yielded {request!r}, expected a request")
    run.request = request
    return request


def _job(run: _Run[_K, _T], backend: Backend, *, most: int) -> Job[_Run[_K, _T], tuple[Any, ...]]:
    """The open request of one search; what is under way is not asked for by another."""
    request = cast(_Asked, run.request)
    kind = type(request)
    return Job(
        run,
        run.answered,
        partial(_ask, kind, request.items, backend=backend),
        places=frozenset(_place(kind.kind, item) for item in request.items),
        kind=_LIMITED_TOGETHER.get(kind, kind.kind),
        most=most,
    )


def _place(kind: str, item: Any) -> tuple[Hashable, ...]:
    """What items share that may be asked the same of: the state; where steps of a solution are
    verified, which may begin as another's, the problem."""
    problem = item.state.problem.problem_id
    return (kind, problem) if isinstance(item, VerifyItem) else (kind, problem, item.state.said)


def _answer(
    kind: type[_Asked], turn: Sequence[_Run[_K, _T]], *, backend: Backend, end_of_move: str
) -> list[Reply]:
    """Ask all open requests of one kind at once, charge each search and split the reply."""
    requests = [cast(_Asked, run.request) for run in turn]
    items = tuple(item for request in requests for item in request.items)
    whole = _ask(kind, items, backend=backend)
    replies: list[Reply] = []
    position = 0
    for run, request in zip(turn, requests, strict=True):
        reply = whole[position : position + len(request.items)]
        position += len(request.items)
        _charge(run, reply, end_of_move=end_of_move)
        replies.append(reply)
    return replies


def _charge(run: _Run[_K, _T], reply: tuple[Any, ...], *, end_of_move: str) -> None:
    """Count what the open request of ``run`` costs, and keep its events."""
    request = cast(_Asked, run.request)
    run.answered += 1
    read = list(map(run.reading.of, request.items, reply))
    run.ledger += cost(request, reply, read=sum(read), end_of_move=end_of_move)
    if run.events is not None:
        first = len(run.events)
        run.events += _recorded(request, reply, read, first=first, end_of_move=end_of_move)


def _ask(kind: type[Any], items: tuple[Any, ...], *, backend: Backend) -> tuple[Any, ...]:
    """One backend call for ``items``, its reply checked; none where there is nothing to ask."""
    reply: Any = backend.answer(kind(items)) if items else ()
    if not isinstance(reply, tuple) or len(reply) != len(items):
        given = len(reply) if isinstance(reply, tuple) else type(reply).__name__
        raise ProtocolError(f"{kind.kind}: reply of length {given}, expected {len(items)}")
    for item, entry in zip(items, reply, strict=True):
        given = len(entry.step_scores if isinstance(item, VerifyItem) else entry)
        if given != _width(item):
            raise ProtocolError(
                f"{kind.kind}: an item's reply has {given} entries, expected {_width(item)}"
            )
    return reply


def _width(item: Any) -> int:
    """How many entries the reply to one item has."""
    if isinstance(item, VerifyItem):
        return len(item.steps)
    if isinstance(item, RankItem):
        return len(item.moves)
    return int(item.count)


def _check_budgets(turn: Sequence[_Run[_K, _T]]) -> None:
    for run in turn:
        budget, request = run.search.budget, run.request
        if not isinstance(request, Verify) or budget is None:
            continue
        if run.ledger.verifier_calls + len(request.items) > budget:
            left = budget - run.ledger.verifier_calls
            raise BudgetError(
                f"search {run.key!r}: asks for {len(request.items)} verifier calls, "
                f"expected at most {left} (its budget of {budget} less what it spent)"
            )


def _recorded(
    request: _Asked,
    reply: tuple[Any, ...],
    read: Sequence[int],
    *,
    first: int,
    end_of_move: str,
) -> Iterator[Event]:
    """One event an item, with its own share of the cost and of what was ``read`` for it.

    ``first`` is the index of the first.
    """
    kind: Any = type(request)
    items: tuple[Any, ...] = request.items
    for index, (item, entry, new) in enumerate(zip(items, reply, read, strict=True), start=first):
        share = cost(kind((item,)), (entry,), read=new, end_of_move=end_of_move)
        yield Event(index, kind.kind, item.state, share, _summary(item, entry))


def _summary(item: Any, entry: Any) -> tuple[tuple[str, object], ...]:
    if isinstance(item, VerifyItem):
        return (("steps", [move.text for move in item.steps]), ("score", entry.score))
    if isinstance(item, RankItem):
        moves = [move.text for move in item.moves]
        return (("scorer", item.scorer), ("moves", moves), ("scores", list(entry)))
    return (("start", item.start), ("texts", [sample.text for sample in entry]))
