"""Requests under way: each is answered in a thread of its own, as many at once as are allowed.

Knows: threads, which requests must wait for another, and what has been answered. Does not know:
searches, budgets, servers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:  # of the extra that asks servers
    from anyio import CapacityLimiter
    from anyio.from_thread import BlockingPortal

PORTAL: ContextVar[BlockingPortal | None] = ContextVar("PORTAL", default=None)
"""In the threads that answer, the event loop whose tasks are cancelled when the searches end."""

_K = TypeVar("_K")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Job(Generic[_K, _R]):
    """Something to answer for ``key``, beside at most ``most`` - 1 others of its ``kind``.

    Of two jobs that share one of their ``places`` the second begins when the first is taken.
    """

    key: _K
    answer: Callable[[], _R]
    places: frozenset[Hashable]
    kind: str
    most: int


class InFlight(Generic[_K, _R]):
    """Jobs under way. With its context they end: they are cancelled, and their threads end first.

    Used by one thread; the answers alone are computed in others.
    """

    def __init__(self) -> None:
        self._ending = ExitStack()
        self._portal: BlockingPortal | None = None
        self._limits: dict[str, CapacityLimiter] = {}
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
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415 (an extra's)
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415

        if self._portal is None:
            portal = start_blocking_portal(name="selverify-requests")
            self._portal = self._ending.enter_context(portal)
        limit = self._limits.setdefault(job.kind, CapacityLimiter(job.most))
        task = _within(self._portal, job.answer)
        future = self._portal.start_task_soon(_in_thread, to_thread.run_sync, task, limit)
        future.add_done_callback(lambda done: self._done.put((job, done)))


async def _in_thread(run: Any, task: Callable[[], _R], limit: Any) -> _R:
    answer: _R = await run(task, limiter=limit)
    return answer


def _within(portal: BlockingPortal, answer: Callable[[], _R]) -> Callable[[], _R]:
    def work() -> _R:
        PORTAL.set(portal)
        return answer()

    return work
