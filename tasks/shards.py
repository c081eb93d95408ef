"""Shards of a stage, each worked on by a process of its own.

Knows: processes, how their progress reaches the terminal, how they end. Does not know: what a shard
holds. Results do not depend on how many processes there are: who cuts the shards fixes their size.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from pathlib import Path
from typing import TypeVar

from selverify.benchmark import Task
from selverify.errors import ProtocolError
from selverify.params import Params
from selverify.sources import has_source

S = TypeVar("S")
T = TypeVar("T")
POLL_SECONDS = 0.2


def one_thread(params: Params) -> Params:
    """``params`` for a shard: one thread, since sums on several can round otherwise."""
    tracking = params.tracking.model_copy(update={"threads": 1})
    return params.model_copy(update={"tracking": tracking})


@dataclass(frozen=True, slots=True)
class Shard:
    """Tasks that one process works on, with all that a stage gives it."""

    params: Params
    inputs: Mapping[str, Path]
    tasks: tuple[Task, ...]


def work_on(
    work: Callable[[Shard], T],
    tasks: Sequence[Task],
    params: Params,
    inputs: Mapping[str, Path],
    *,
    size: int,
) -> list[T]:
    """``work`` of every ``size`` tasks, each shard on one thread, in the order of the tasks.

    ``size`` is fixed by the stage: sums over batches of other sizes could round otherwise. A model
    of the hub, which is large, or behind a server is asked by one process.
    """
    each = one_thread(params)
    starts = range(0, len(tasks), size)
    shards = [Shard(each, inputs, tuple(tasks[start : start + size])) for start in starts]
    named = [inputs[name] for name in ("generator", "verifier") if name in inputs]
    workers = 1 if any(map(has_source, named)) else params.tracking.threads
    return map_shards(work, shards, workers=workers)


def map_shards(work: Callable[[S], T], shards: Sequence[S], *, workers: int) -> list[T]:
    """``work`` of every shard, in their order; with one worker or one shard in this process.

    ``work``, shards and results are pickled between our own processes only. When one fails, or this
    process is interrupted or killed, the others end at once.

    Raises:
        ProtocolError: a worker died.
        Exception: what ``work`` raised for the first shard that failed.
    """
    workers = min(workers, len(shards))
    if workers <= 1:
        return [work(shard) for shard in shards]
    with _pool(workers) as (pool, lines):
        try:
            futures = [pool.submit(work, shard) for shard in shards]
            # The executor watches the processes that it has when it is given something to do.
            pool.submit(int)
            _await(futures, lines)
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise ProtocolError(
                f"{work.__name__}: one of {workers} worker processes died; expected it to live "
                "until its shard is done (was it killed, or is memory short?)"
            ) from error


@contextmanager
def _pool(
    workers: int,
) -> Iterator[tuple[ProcessPoolExecutor, Queue[logging.LogRecord]]]:
    # spawn: a fork would copy torch's threads in an unknown state
    context = multiprocessing.get_context("spawn")
    lines: Queue[logging.LogRecord] = context.Queue()
    # Its far end is closed when we leave early, and by the system when we are killed.
    lifeline, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start, initargs=(lines, lifeline)
    )
    try:
        yield pool, lines
    except BaseException:
        ours.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        _tell(lines)
        ours.close()
        lifeline.close()
        lines.close()


def _await(futures: Sequence[Future[T]], lines: Queue[logging.LogRecord]) -> None:
    """Until all are done or one failed; the workers' progress is told meanwhile."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=POLL_SECONDS)
        _tell(lines)
        for future in done:
            future.result()


def _tell(lines: Queue[logging.LogRecord]) -> None:
    while True:
        try:
            record = lines.get_nowait()
        except queue.Empty:
            return
        logger = logging.getLogger(record.name)
        if logger.isEnabledFor(record.levelno):
            logger.handle(record)


def _start(lines: Queue[logging.LogRecord], lifeline: Connection) -> None:
    """A worker's first act: its log lines go to the parent, and it ends when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers itself
    root = logging.getLogger()
    root.handlers = [QueueHandler(lines)]
    root.setLevel(logging.INFO)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _watch(lifeline: Connection) -> None:
    """Nothing is ever sent: the pipe becomes readable when its far end is closed."""
    lifeline.poll(None)
    os._exit(1)
