"""Requests under way: each is answered in a thread of its own, as many at once as are allowed.

Knows: threads, which requests must wait for another, and what has been answered. Does not know:
searches, budgets, servers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:  # of the extra that asks servers
    from anyio import Event
    from anyio.abc import TaskStatus
    from anyio.from_thread import BlockingPortal

PORTAL: ContextVar[BlockingPortal | None] = ContextVar("PORTAL", default=None)
"""In the threads that answer, the event loop whose tasks are cancelled when the searches end."""

_K = TypeVar("_K")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Job(Generic[_K, _R]):
    """Something to answer for ``key``, beside at most ``most`` - 1 others of its ``kind``.

    Of those that wait the one with the smallest ``order`` goes first. Of two jobs that share one of
    their ``places`` the second waits until the first is taken.
    """

    key: _K
    order: int
    answer: Callable[[], _R]
    places: frozenset[Hashable]
    kind: str
    most: int


class _Gate:
    """Lets ``free`` jobs through at once, in the order of their numbers; of one event loop."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._ready: list[tuple[int, int, Event]] = []
        self._arrived = count()

    async def enter(self, order: int) -> None:
        from anyio import Event  # noqa: PLC0415 (an extra's)

        let_in = Event()
        waiting = (order, next(self._arrived), let_in)
        heappush(self._ready, waiting)
        self._let_in()
        try:
            await let_in.wait()
        except BaseException:  # cancelled: others may go before it, or in its place
            if let_in.is_set():
                self.leave()
            else:
                self._ready.remove(waiting)
                heapify(self._ready)
            raise

    def leave(self) -> None:
        self._free += 1
        self._let_in()

    def _let_in(self) -> None:
        while self._free and self._ready:
            self._free -= 1
            heappop(self._ready)[-1].set()


@dataclass(slots=True)
class _Shared:
    """An event loop in which the searches of several threads make their requests."""

    portal: BlockingPortal
    gates: dict[str, _Gate] = field(default_factory=dict)


_SHARED: ContextVar[_Shared | None] = ContextVar("_SHARED", default=None)


@contextmanager
def shared_limits() -> Iterator[Callable[[], object]]:
    """What this yields is called in each thread whose searches are to be under one limit together.

    Of the jobs of a kind that wait the first goes first, whichever search it is of: by the number
    of replies, searches that others follow would wait for ever. What is under way at the end is
    cancelled.
    """
    from anyio.from_thread import start_blocking_portal  # noqa: PLC0415 (an extra's)

    with start_blocking_portal(name="selverify-requests") as portal:
        try:
            yield partial(_SHARED.set, _Shared(portal))
        finally:
            portal.call(portal.stop, True)


@contextmanager
def _portal_within(outer: BlockingPortal) -> Iterator[BlockingPortal]:
    """A portal into the event loop of another, with tasks of its own to cancel."""
    ended, portal = outer.start_task(_another_portal)
    failed = True
    try:
        yield portal
        failed = False
    finally:
        portal.call(portal.stop, failed)
        ended.result()


async def _another_portal(*, task_status: TaskStatus[BlockingPortal]) -> None:
    from anyio.from_thread import BlockingPortal  # noqa: PLC0415 (an extra's)

    async with BlockingPortal() as portal:
        task_status.started(portal)
        await portal.sleep_until_stopped()


class InFlight(Generic[_K, _R]):
    """Jobs under way. With its context they end: they are cancelled, and their threads end first.

    Used by one thread; the answers alone are computed in others.
    """

    def __init__(self) -> None:
        self._ending = ExitStack()
        self._portal: BlockingPortal | None = None
        self._shared = _SHARED.get()
        self._gates: dict[str, _Gate] = self._shared.gates if self._shared else {}
        self._done: SimpleQueue[tuple[Job[_K, _R], Future[_R]]] = SimpleQueue()
        self._held: dict[Hashable, list[Job[_K, _R]]] = {}
        """By a place that is taken, the jobs that wait for it."""
        self._count = 0

    def __enter__(self) -> InFlight[_K, _R]:
        return self

    def __exit__(self, *error: Any) -> None:
        self._ending.__exit__(*error)

    def __len__(self) -> int:
        """How many jobs were begun, or wait to be, and were not taken."""
        return self._count

    def begin(self, job: Job[_K, _R]) -> None:
        """Answer ``job`` as soon as its places are free and there are few enough of its kind."""
        self._count += 1
        self._begin(job)

    def take(self, *, wait: bool) -> list[tuple[_K, _R]]:
        """Keys and answers of all that is done; ``wait`` until there is one.

        Raises:
            Exception: what a job raised.
        """
        taken = [self._done.get()] if wait else []
        while not self._done.empty():
            taken.append(self._done.get())
        answers = [(job.key, future.result()) for job, future in taken]
        freed = [one for job, _ in taken for place in job.places for one in self._held.pop(place)]
        self._count -= len(taken)
        for job in freed:
            self._begin(job)
        return answers

    def _begin(self, job: Job[_K, _R]) -> None:
        for place in job.places:
            if place in self._held:
                self._held[place].append(job)
                return
        self._held.update((place, []) for place in job.places)
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415 (an extra's)

        if self._portal is None:
            portal = (
                _portal_within(self._shared.portal)
                if self._shared
                else start_blocking_portal(name="selverify-requests")
            )
            self._portal = self._ending.enter_context(portal)
        gate = self._gates.setdefault(job.kind, _Gate(job.most))
        order = 0 if self._shared else job.order
        future = self._portal.start_task_soon(_answered, job, gate, order, self._portal)
        future.add_done_callback(lambda done: self._done.put((job, done)))


async def _answered(job: Job[_K, _R], gate: _Gate, order: int, portal: BlockingPortal) -> _R:
    from anyio import CapacityLimiter, to_thread  # noqa: PLC0415 (an extra's)

    def work() -> _R:
        PORTAL.set(portal)
        _SHARED.set(None)  # a search inside would wait for the place of this one
        return job.answer()

    await gate.enter(order)
    try:
        return await to_thread.run_sync(work, limiter=CapacityLimiter(1))
    finally:
        gate.leave()
