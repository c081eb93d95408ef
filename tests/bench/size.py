"""What a large log, many candidates and many searches at once take, each measured once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event as Signal
from threading import Thread

import duckdb
import learning
import served
import test_policy_training
import torch
from rows import Row
from toy import ToyDomain, toy_problem

from selverify.search.traces import Event, write_events
from selverify.training.policy import MappedLists, train_policy

SEARCHES = 400_000
"""In the log, of ``learning.ROUNDS`` events."""
PROBLEMS = 1_000
LISTS = 125_000
"""Of ``learning.MOVES`` candidates."""
AT_ONCE, DIGITS = 10_000, 2
SAMPLED = 0.01
"""Seconds between two looks at the memory."""
GIB = 2**20
"""In KiB."""


Told = Iterator[tuple[str, float, str]]
"""What was measured, its value and unit."""
Work = Mapping[str, Callable[[], Told]]


def measure(_: int) -> list[Row]:
    """Each in a process of its own, whose memory is told."""
    return in_processes(__file__, WORK)


def in_processes(file: str, work: Work) -> list[Row]:
    """What each of ``work`` tells in a process of its own, which is ``file`` run with its name."""
    rows = []
    for name in work:
        told = subprocess.run(
            [sys.executable, file, name], stdout=subprocess.PIPE, text=True, check=True
        )
        for line in told.stdout.splitlines():
            what, value, unit = line.split("\t")
            rows.append(Row(what, float(value), unit, None))
    return rows


class Log(Mapping[str, tuple[Event, ...]]):
    """Searches whose events are made when they are asked for."""

    def __init__(self) -> None:
        domain = ToyDomain()
        some = [toy_problem(3, f"p{place}") for place in range(PROBLEMS)]
        self._kinds = [tuple(learning._events(domain, one)) for one in some]

    def __len__(self) -> int:
        return SEARCHES

    def __iter__(self) -> Iterator[str]:
        return (f"s{place}" for place in range(SEARCHES))

    def __getitem__(self, name: str) -> tuple[Event, ...]:
        return self._kinds[int(name[1:]) % PROBLEMS]


def logs() -> Told:
    count, log = SEARCHES * learning.ROUNDS, Log()
    with TemporaryDirectory() as folder:
        path = Path(folder, "events.parquet")
        began = time.perf_counter()
        write_events(path, log)
        yield f"{count:,} events written", count / (time.perf_counter() - began), "events a second"
        yield "an event takes", path.stat().st_size / count, "bytes"
        began = time.perf_counter()
        duckdb.sql(learning.QUERY.format(path=path)).fetchall()
        yield "calls by kind of event, by DuckDB", time.perf_counter() - began, "s"
    yield "memory at most, both together", memory(), "GiB"


def candidates() -> Told:
    torch.set_num_threads(1)
    before = memory("RssAnon")
    settings = test_policy_training.SETTINGS.model_copy(update={"epochs": 1, "hidden": 64})
    with anonymous() as seen:
        lists = MappedLists(learning._lists(LISTS))
        began = time.perf_counter()
        train_policy(lists, settings, report=lambda epoch: None)
        rate = LISTS * learning.MOVES / (time.perf_counter() - began)
    yield (
        f"{LISTS * learning.MOVES:,} candidates, an epoch of a ranker",
        rate,
        "candidates a second",
    )
    yield "anonymous memory before the first of them", before, "GiB"
    yield "the same at most, until the ranker is trained", max(seen), "GiB"
    yield "resident at most, with pages of mapped files", memory(), "GiB"


def searches() -> Told:
    before = memory()
    with served.server() as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        spent = time.process_time()
        seconds, found = served.drive(url, lockstep=False, problems=AT_ONCE, digits=DIGITS)
        spent = time.process_time() - spent
        asked = len(served.asked_of(process))
    assert len(found) == AT_ONCE
    yield f"{AT_ONCE:,} searches at once over a server", seconds, "s"
    yield "their requests", asked / seconds, "a second"
    yield "processor time of the driver a request", 1e3 * spent / asked, "ms"
    yield "a search takes", (memory() - before) * 2**20 / AT_ONCE, "KiB"


def memory(kind: str = "VmHWM") -> float:
    """The most that this process has held, in GiB; ``ru_maxrss`` begins with its parent's.

    ``RssAnon``: what it holds now without pages of files, which the system can take back.
    """
    told = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(told.partition(f"{kind}:")[2].split()[0]) / GIB


@contextmanager
def anonymous() -> Iterator[list[float]]:
    """Anonymous memory, looked at all the time by a thread, in GiB."""
    seen, ended = [memory("RssAnon")], Signal()

    def look() -> None:
        while not ended.wait(SAMPLED):
            seen.append(memory("RssAnon"))

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def tell(work: Work) -> None:
    """A line for each figure of the one that was asked for."""
    for what, value, unit in work[sys.argv[1]]():
        print(what, value, unit, sep="\t", flush=True)


WORK: Work = {
    "logs": logs,
    "candidates": candidates,
    "searches": searches,
}

if __name__ == "__main__":
    tell(WORK)
