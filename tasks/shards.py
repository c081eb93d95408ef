"""Shards of a stage: how they are cut, and processes that work on one each.

Knows: processes, how their progress reaches the terminal, how they end. Does not know: what a shard
holds, or how the pipeline maps the shards (``flows/mapping.py`` may give another mapper). Results
do not depend on the number of processes: each stage fixes the size of its shards.
"""

from __future__ import annotations

import atexit
import gc
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Protocol, TypeVar

from selverify.data.benchmark import Task
from selverify.errors import ProtocolError
from selverify.models.sources import sources_of
from selverify.params import Params, PretrainedParams

S = TypeVar("S")
T = TypeVar("T")
POLL_SECONDS = 0.2
LARGE = 400
"""Problems a shard at least where a model of the hub runs here: rounds of few rows take nearly as
long as large ones."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Tasks that one process works on, with all that a stage gives it."""

    params: Params
    inputs: Mapping[str, Path]
    tasks: tuple[Task, ...]

    @property
    def name(self) -> str:
        """The first and the last of its problems."""
        first, last = (self.tasks[place].problem.problem_id for place in (0, -1))
        return f"{first} to {last}"


class Mapper(Protocol):
    """``work`` of every shard, in their order, ``workers`` of them at a time."""

    def __call__(
        self, work: Callable[[Shard], T], shards: Sequence[Shard], *, workers: int
    ) -> list[T]:
        """The results; the first failure ends what is under way and is raised."""
        ...


def work_on(
    work: Callable[[Shard], T],
    tasks: Sequence[Task],
    params: Params,
    inputs: Mapping[str, Path],
    *,
    size: int,
    mapper: Mapper,
) -> list[T]:
    """``work`` of every ``size`` tasks, each shard on one thread, in the order of the tasks.

    ``size`` is fixed by the stage: sums over batches of other sizes, or on several threads, could
    round otherwise. A model of the hub, which is large, or behind a server is asked by one process
    of this machine, on all threads; of a model of the hub a shard has at least ``LARGE`` problems.
    """
    size = shard_size(size, sources_of(inputs).get("generator"))
    workers, threads = workers_and_threads(params, inputs)
    tracking = params.tracking.model_copy(update={"threads": threads})
    each = params.model_copy(update={"tracking": tracking})
    starts = range(0, len(tasks), size)
    shards = [Shard(each, inputs, tuple(tasks[start : start + size])) for start in starts]
    return mapper(work, shards, workers=workers) if shards else []


def shard_size(size: int, generator: object) -> int:
    """Tasks of a shard, of a stage that fixed it at ``size``; ``generator``: its settings."""
    return max(size, LARGE) if isinstance(generator, PretrainedParams) else size


def workers_and_threads(params: Params, inputs: Mapping[str, Path]) -> tuple[int, int]:
    """How many processes of this machine work on the shards of a stage with these inputs, and on
    how many threads each."""
    threads = params.tracking.threads
    return (1, threads) if sources_of(inputs) else (threads, 1)


def map_shards(work: Callable[[S], T], shards: Sequence[S], *, workers: int) -> list[T]:
    """The plain ``Mapper``: with one worker or one shard in this process.

    ``work``, shards and results are pickled between our own processes only. When one fails, or this
    process is interrupted or killed, the others end at once.

    Raises:
        ProtocolError: a worker process ended before its shard was done.
        Exception: what ``work`` raised for the first shard that failed.
    """
    workers = min(workers, len(shards))
    if workers <= 1:
        return [work(shard) for shard in shards]
    with ThreadPoolExecutor(workers) as threads, processes(workers) as call:
        futures = [threads.submit(call, work, shard) for shard in shards]
        for future in as_completed(futures):
            future.result()
        return [future.result() for future in futures]


@contextmanager
def processes(workers: int) -> Iterator[Callable[[Callable[[Any], Any], Any], Any]]:
    """``call(work, shard)``, which returns what ``work`` does in one of ``workers`` processes.

    Threads call it. When the block is left, what is under way and what is called later ends with a
    ProtocolError; the processes' log lines come out in this one, in the context of the block.
    """
    # spawn: a fork would copy torch's threads in an unknown state
    context = multiprocessing.get_context("spawn")
    lines: Queue[logging.LogRecord] = context.Queue()
    # Its far end is closed when we leave, and by the system when we are killed.
    lifeline, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start, initargs=(lines, lifeline)
    )

    closing = threading.Lock()  # twice at once would close what has the same number by then

    def call(work: Callable[[Any], Any], shard: Any) -> Any:
        try:
            future = pool.submit(work, shard)
            # The executor watches the processes that it has when it is given something to do.
            pool.submit(int)
            if len(pool._processes or ()) == workers:
                _close_our_sending_end(pool, closing)
        except (RuntimeError, OSError) as error:
            raise ProtocolError(f"{work.__name__}: no worker, for another shard failed") from error
        try:
            return future.result()
        except (BrokenProcessPool, CancelledError) as error:
            raise ProtocolError(
                f"{work.__name__}: one of {workers} worker processes died; expected it to live "
                "until its shard is done (was it killed, or is memory short?)"
            ) from error

    try:
        with _relayed(lines):
            try:
                yield call
            except BaseException:
                ours.close()
                _close_our_sending_end(pool, closing)
                raise
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        for end in (ours, lifeline, lines):
            end.close()


def _close_our_sending_end(pool: ProcessPoolExecutor, closing: threading.Lock) -> None:
    """Of the pipe of results, on which only workers send, once they are all there or none will be.

    A worker that ends while it sends a result leaves a part of it, and the executor would wait for
    the rest as long as anybody could send it.
    """
    results: Any = pool._result_queue
    with closing:
        if results is not None and not results._writer.closed:  # None: the executor has ended
            results._writer.close()


@contextmanager
def _relayed(lines: Queue[logging.LogRecord]) -> Iterator[None]:
    """Log records of the workers reach the loggers here, in this context, while the block runs.

    Nothing waits on the queue for ever: a worker that is killed while it writes leaves it locked.
    """
    ended = threading.Event()

    def relay() -> None:
        while True:
            try:
                record = lines.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if ended.is_set():
                    return
            else:
                logger = logging.getLogger(record.name)
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)

    thread = threading.Thread(target=copy_context().run, args=(relay,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _start(lines: Queue[logging.LogRecord], lifeline: Connection) -> None:
    """A worker's first act: its log lines go to the parent, and it ends when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers itself
    root = logging.getLogger()
    root.handlers = [QueueHandler(lines)]
    root.setLevel(logging.INFO)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    # What is imported stays to the end, and no collection of garbage need look through it.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)


def _watch(lifeline: Connection) -> None:
    """Nothing is ever sent: the pipe becomes readable when its far end is closed."""
    lifeline.poll(None)
    os._exit(1)
