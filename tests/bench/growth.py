"""How the orchestration grows with problems, with N and with depth: the exponent of its time.

The generator draws from a list and scores are hashes, so models cost nothing. An exponent is the
slope of log time over log size; 1 is proportional.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from rows import Row
from scipy import stats

sys.path.extend([str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "search")])

from fake_backend import FakeBackend, pool_proposer
from toy import SETTINGS, ToyDomain, toy_problem

from selverify.search.beam import beam_search
from selverify.search.driver import Search, run_searches
from selverify.search.gated import gated_competition
from selverify.search.protocol import Asking
from selverify.types import Outcome
from tasks.models import COLLECTED_AFTER

DOMAIN = ToyDomain()
PROBLEMS, N, DEPTH = 100, 16, 8
GROWN = {"problems": (100, 300, 1000), "N": (8, 32, 128), "moves": (4, 8, 16)}
ONES = ("add 1 ;", "add 2 ;", "add 3 ;")
"""Nothing is answered, so that every search is as deep as it may be."""


def measure(repeats: int) -> list[Row]:
    """The exponent of each, for our method and the beam; collected as in a stage."""
    gc.set_threshold(COLLECTED_AFTER, *gc.get_threshold()[1:])
    methods: dict[str, Callable[[int, int, str], Asking[Outcome]]] = {
        "full": _full,
        "beam search": _beam,
    }
    found = []
    for method, build in methods.items():
        for name, sizes in GROWN.items():
            slope, low, high = _slope(build, name, sizes, repeats)
            text = f"{method}, against {name} ({', '.join(map(str, sizes))})"
            found.append(Row(text, slope, f"exponent, {low:.3f} to {high:.3f}", None))
    return found


def _slope(
    build: Callable[[int, int, str], Asking[Outcome]],
    name: str,
    sizes: tuple[int, ...],
    repeats: int,
) -> tuple[float, float, float]:
    """The slope of log time over log size, and its 95 % interval over all runs."""
    runs = [size for _ in range(repeats) for size in sizes]
    times = []
    for size in runs:
        given = {"problems": PROBLEMS, "N": N, "moves": DEPTH, name: size}
        times.append(_seconds(build, **{key.lower(): one for key, one in given.items()}))
    fit = stats.linregress(np.log(runs), np.log(times))
    half = stats.t.ppf(0.975, len(runs) - 2) * fit.stderr
    return float(fit.slope), float(fit.slope - half), float(fit.slope + half)


def _seconds(
    build: Callable[[int, int, str], Asking[Outcome]], *, problems: int, n: int, moves: int
) -> float:
    backend = FakeBackend(DOMAIN, pool_proposer(ONES), name="ones", seed=7, max_moves=moves)
    searches = {place: Search(build(n, moves, f"p{place}"), None) for place in range(problems)}
    began = time.process_time()
    run_searches(searches, backend, end_of_move=";")
    return time.process_time() - began


def _full(n: int, moves: int, name: str) -> Asking[Outcome]:
    settings = replace(SETTINGS, proposals=n, max_moves=moves, tau=0.0)
    return gated_competition(
        DOMAIN,
        toy_problem(9, name),
        rules=settings.rules(DOMAIN),
        budget=n * moves,
        generation_cap=n * moves,
    )


def _beam(n: int, moves: int, name: str) -> Asking[Outcome]:
    return beam_search(
        DOMAIN, toy_problem(9, name), n=n, width=4, every=1, gates=True, max_moves=moves,
        aggregation="last", temperature=None,
    )  # fmt: skip
