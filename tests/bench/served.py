"""Searches over a slow server: what waiting for the slowest reply of every round costs.

A server on the loopback address answers after a time that follows from the request alone: lognormal
with a median of half a second, and one request in a hundred takes 30 s. Where both ways are
compared, all times are divided by ``FASTER``. The bound is the largest of three: all that the
writer's requests take, over its concurrency, the same of the judge, and the longest chain of
replies that one search must have one after the other.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rows
from rows import Row

sys.path.append(str(Path(__file__).parents[1] / "faults"))

import proxy
import stand_in

from selverify.domains.math_steps import MathSteps
from selverify.params import Sampling
from selverify.search.backend import ComposedBackend
from selverify.search.beam import beam_search
from selverify.search.driver import Result, Search, run_searches
from selverify.search.requests import Complete, Propose, Verify
from selverify.types import Outcome

FASTER = 10.0
MEDIAN, SPREAD = 0.5, 0.5
STRAGGLERS, STRAGGLES = 0.01, 30.0
CONCURRENCY = 16
PROBLEMS, DIGITS = 300, 8
SEED = 11
DOMAIN = MathSteps()


def seconds_of(path: str, body: dict[str, object], *, faster: float = FASTER) -> float:
    """How long the server takes for it."""
    rng = random.Random(json.dumps([path, body], sort_keys=True))
    slow = rng.random() < STRAGGLERS
    return (STRAGGLES if slow else MEDIAN * rng.lognormvariate(0.0, SPREAD)) / faster


class SlowServer(proxy.Proxy):
    """Waits before it answers."""

    faster = FASTER

    async def _exchange(self, seen, reader, writer):  # type: ignore[no-untyped-def]
        await asyncio.sleep(seconds_of(seen.path, seen.body, faster=self.faster))
        return await super()._exchange(seen, reader, writer)


def serve(faster: float) -> None:
    """Serve until the input ends; then say what was asked."""
    with SlowServer(stand_in.answer) as server:
        server.faster = faster
        print(server.url, flush=True)
        for _ in sys.stdin:
            asked = [[one.path, one.body] for one in server.seen]
            server.play([])
            print(json.dumps(asked), flush=True)


@contextmanager
def server(*, faster: float = FASTER) -> Iterator[subprocess.Popen[str]]:
    """It, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(faster)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate()


def asked_of(process: subprocess.Popen[str]) -> list[tuple[str, dict[str, object]]]:
    """What the server was asked since the last time."""
    assert process.stdin is not None and process.stdout is not None
    print(file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())  # type: ignore[no-any-return]


def backend(url: str, *, lockstep: bool) -> ComposedBackend:
    """A writer and a judge behind the server."""
    sampling = Sampling(
        temperature=1.0, max_move_tokens=40, max_solution_tokens=400, max_moves=DIGITS + 1,
        batch_rows=1,
    )  # fmt: skip
    writer, judge = stand_in.served(
        url, sampling, concurrency=CONCURRENCY, seconds=120.0, retries=0
    )
    kinds = () if lockstep else (Propose.kind, Complete.kind, Verify.kind)
    return ComposedBackend(writer, verifier=judge, concurrency=dict.fromkeys(kinds, CONCURRENCY))


def drive(
    url: str, *, lockstep: bool, problems: int = PROBLEMS, digits: int = DIGITS
) -> tuple[float, dict[int, Result[Outcome]]]:
    """Seconds, and what the searches came to."""
    rng = random.Random(SEED)
    searches = {}
    for number in range(problems):
        question = f"What is {'+'.join(str(rng.randint(1, 9)) for _ in range(digits))}?"
        problem = DOMAIN.read(question, problem_id=f"p{number}")
        search = beam_search(
            DOMAIN, problem, n=8, width=2, every=1, gates=True, max_moves=digits + 1,
            aggregation="last", temperature=None,
        )  # fmt: skip
        searches[number] = Search(search, None)
    asks = backend(url, lockstep=lockstep)
    started = time.perf_counter()
    results = run_searches(searches, asks, end_of_move=DOMAIN.end_of_move)
    return time.perf_counter() - started, results


def bound(asked: list[tuple[str, dict[str, object]]], *, faster: float = FASTER) -> float:
    """Seconds below which no order of the requests gets; chains by question and steps taken."""
    work: dict[str, float] = defaultdict(float)
    chains: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for path, body in asked:
        seconds = seconds_of(path, body, faster=faster)
        work[path] += seconds
        said = json.dumps(body)
        question = stand_in.QUESTION.search(said)
        assert question is not None
        place = (path, said.count("\\n\\n"))
        chain = chains[question[1]]
        chain[place] = max(chain.get(place, 0.0), seconds)
    of_servers = [seconds / CONCURRENCY for seconds in work.values()]
    return max(*of_servers, *(sum(chain.values()) for chain in chains.values()))


def measure(repeats: int) -> list[Row]:
    """Both ways side by side, and the same outcomes."""
    times: dict[bool, list[float]] = {True: [], False: []}
    bounds = []
    with server() as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        for _ in range(repeats):
            found = {}
            for lockstep in (True, False):
                took, found[lockstep] = drive(url, lockstep=lockstep)
                times[lockstep].append(took)
                bounds.append(bound(asked_of(process)))
            assert found[True] == found[False], "the outcomes differ"
    seconds, least = as_recorded()
    best, (waited, went_on) = rows.median(bounds), map(rows.median, (times[True], times[False]))
    return [
        Row("bound of work and longest chain", best, "s", 1.0),
        Row("each search goes on with its own reply", went_on, "s", went_on / best),
        Row("lock-step, which waits for the slowest of a round", waited, "s", waited / best),
        Row("times as recorded: the bound, once", least, "s", 1.0),
        Row("times as recorded: each search goes on, once", seconds, "s", seconds / least),
    ]


def as_recorded() -> tuple[float, float]:
    """Seconds where no time is divided, and their bound."""
    with server(faster=1.0) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        seconds, _ = drive(url, lockstep=False)
        return seconds, bound(asked_of(process), faster=1.0)


if __name__ == "__main__":
    serve(float(sys.argv[1]))
