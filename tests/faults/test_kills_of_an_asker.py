"""``kill -9`` of a process that asks a paid server, at random moments, and the same again."""

from __future__ import annotations

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

MOMENTS = 20
SEED = 20
ASKER = Path(__file__).with_name("asker.py")
SLOWLY = 0.003
PATIENCE = 400.0
SLACK = 0.02
"""Seconds by which the clock of files may be behind."""


def upstream(path: str, body: Reply) -> Reply:
    """The stand-in, which takes a moment."""
    time.sleep(SLOWLY)
    return stand_in.answer(path, body)


class Asker:
    """A process that forks one asker after the other."""

    def __init__(self, url: str) -> None:
        paths = os.pathsep.join((str(ASKER.parent), str(ASKER.parents[2])))
        self.process = subprocess.Popen(
            [sys.executable, str(ASKER), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )

    def start(self, cache: Path, result: Path) -> int:
        """The number of a process that has begun."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{cache} {result}\n")
        self.process.stdin.flush()
        return int(self._line())

    def wait(self) -> int:
        """How it ended, as the system says it."""
        return int(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with Proxy(upstream) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def asker(server: Proxy) -> Iterator[Asker]:
    started = Asker(server.url)
    yield started
    started.close()


def bodies(server: Proxy, start: int) -> list[tuple[float, str]]:
    """What was asked since request ``start``, and when on the clock of files."""
    ahead = time.time() - time.monotonic()
    seen = server.seen[start:]
    return [(one.at + ahead, json.dumps([one.path, one.body], sort_keys=True)) for one in seen]


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
