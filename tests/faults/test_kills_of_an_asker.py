"""``kill -9`` of a process that asks a paid server, at random moments, and the same again.

This file is also that process: ``python FILE URL`` imports once; for each line "CACHE RESULT" on
stdin it forks a process that solves the problems with the replies in CACHE and writes its outcomes
to RESULT, and prints its id and how it ended.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import stand_in
from proxy import Proxy, Reply

from selverify.domains.math_steps import MathSteps
from selverify.models.reply_cache import CachedBackend
from selverify.params import Sampling
from selverify.search.backend import ComposedBackend
from selverify.search.beam import beam_search
from selverify.search.driver import Search, run_searches

MOMENTS = 20
SEED = 20
SLOWLY = 0.003
PATIENCE = 400.0
SLACK = 0.02
"""Seconds by which the clock of files may be behind."""
DOMAIN = MathSteps()
QUESTIONS = ("What is 2+3+4?", "What is 7+1+9?", "What is 5+5+6?")
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=32, max_solution_tokens=96, max_moves=6, batch_rows=1
)


def solve(url: str, cache: Path, result: Path) -> None:
    """One search after the other, so that there are many batches."""
    writer, judge = stand_in.served(url, SAMPLING, concurrency=3, seconds=20.0, retries=4)
    backend = CachedBackend(ComposedBackend(writer, ranker=None, verifier=judge), cache)
    shape = {"n": 6, "width": 2, "every": 1, "gates": True, "max_moves": 5}
    rules = {**shape, "aggregation": "last", "temperature": None}
    found = []
    for number, question in enumerate(QUESTIONS):
        problem = DOMAIN.read(question, problem_id=f"p{number}")
        search = Search(beam_search(DOMAIN, problem, **rules), None)
        done = run_searches({number: search}, backend, end_of_move=DOMAIN.end_of_move)[number]
        found.append([repr(done.outcome), dataclasses.asdict(done.ledger)])
    backend.close()
    result.write_text(json.dumps(found), encoding="utf-8")


def main(url: str) -> None:
    """See the module's text."""
    for line in sys.stdin:
        cache, result = line.split()
        child = os.fork()
        if child == 0:
            solve(url, Path(cache), Path(result))
            os._exit(0)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


def upstream(path: str, body: Reply) -> Reply:
    """The stand-in, which takes a moment."""
    time.sleep(SLOWLY)
    return stand_in.answer(path, body)


class Asker:
    """The process that forks one asker after the other."""

    def __init__(self, url: str) -> None:
        paths = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[2])))
        self.process = subprocess.Popen(
            [sys.executable, __file__, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )

    def start(self, cache: Path, result: Path) -> int:
        """The number of a process that has begun."""
        print(cache, result, file=self.process.stdin, flush=True)
        return self.wait()

    def wait(self) -> int:
        """How it ended, as the system says it."""
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with Proxy(upstream) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def asker(server: Proxy) -> Iterator[Asker]:
    started = Asker(server.url)
    yield started
    started.process.stdin.close()
    started.process.wait(30)


def bodies(server: Proxy, start: int) -> list[tuple[float, str]]:
    """What was asked since request ``start``, and when on the clock of files."""
    ahead = time.time() - time.monotonic()
    seen = server.seen[start:]
    return [(one.at + ahead, json.dumps([one.path, one.body], sort_keys=True)) for one in seen]


@pytest.mark.soak
def test_an_asker_killed_at_random_moments_asks_only_the_batch_in_flight_again(
    server: Proxy, asker: Asker, tmp_path: Path, record
) -> None:
    """Outcomes, costs and stored replies are those of an undisturbed run."""
    asker.start(tmp_path / "whole.sqlite", tmp_path / "whole.json")
    assert asker.wait() == 0
    undisturbed = Counter(what for _, what in bodies(server, 0))
    expected = (tmp_path / "whole.json").read_text()
    total = len(server.seen)
    assert total == undisturbed.total() > 40 and max(undisturbed.values()) == 1

    rng = random.Random(SEED)
    again = []
    for moment in range(MOMENTS):
        start, stop = len(server.seen), rng.randrange(1, total)
        cache, result = tmp_path / f"{moment}.sqlite", tmp_path / f"{moment}.json"
        child = asker.start(cache, result)
        until = time.monotonic() + PATIENCE
        while len(server.seen) < start + stop:
            assert time.monotonic() < until, "the asker asks no more"
            time.sleep(0.0005)
        time.sleep(rng.random() * 2 * SLOWLY)
        os.kill(child, signal.SIGKILL)
        assert asker.wait() == signal.SIGKILL and not result.exists()
        asked = bodies(server, start)
        written = (path.stat().st_mtime for path in tmp_path.glob(f"{cache.name}*"))
        committed = max(written, default=0.0)

        asker.start(cache, result)
        assert asker.wait() == 0
        assert result.read_text() == expected
        both = Counter(what for _, what in bodies(server, start))
        assert both.keys() == undisturbed.keys()
        repeated = {what for what, count in both.items() if count > 1}
        assert max(both.values()) <= 2
        assert all(at > committed - SLACK for at, what in asked if what in repeated)
        again.append(len(repeated))
    record(
        "kill -9 of a process that asks a paid server",
        f"killed at a random one of {total} requests, run again",
        moments=MOMENTS,
        held=f"outcomes, costs and requests of an undisturbed run; {sum(again)} of "
        f"{MOMENTS * total} requests asked twice, at most {max(again)} a kill, each of the batch "
        "in flight",
    )


if __name__ == "__main__":
    main(sys.argv[1])
