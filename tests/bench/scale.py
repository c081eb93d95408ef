"""What MATH-500 at N = 256 takes on 1, 8 and 64 accelerators: computed from rates of the page, and
a simulation of the driver that checks how its part was computed.

A search of the simulation asks a server that is a sleep: no weights, no network. What is simulated
is the driver, its threads, the reply cache and the event log.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

sys.path.append(str(Path(__file__).parents[1] / "real"))

import accelerator
import hub
import size
from fake_backend import FakeBackend, PassingBackend, pool_proposer
from recorded import DATA
from recorded_llama_runs import RUNS, runs
from rows import Row
from toy import ToyDomain, toy_problem

from selverify.models.generators.pretrained import load_hub_model
from selverify.models.prompting import load_prompt
from selverify.models.reply_cache import CachedBackend
from selverify.search.beam import beam_search
from selverify.search.driver import Search, run_searches
from selverify.search.ledger import Ledger
from selverify.search.protocol import Asking
from selverify.search.requests import Propose, Reply, Request, Verify
from selverify.search.traces import write_events
from selverify.types import Outcome

QUESTIONS, N, WIDTH = 500, 256, 4
FEW = 8
"""Solutions of a question that are verified where a selection comes first."""
ACCELERATORS = 1, 8, 64
PARAMETERS = {"1B": 1.24e9, "8B": 8.03e9}
AT_ONCE, SEARCHES = 16, 10_000
"""Requests of each model that a simulated accelerator answers at once; searches."""
MEDIAN, SPREAD = 0.5, 0.5
"""Of the lognormal seconds of a reply."""
STARTS = 20
"""Seconds within which a process has started."""
CACHED, LOGGED = "their requests, with the cache", "their events, written at the end"
"""Rows of the simulation, a second: what one reply cache and one log take in."""
MOVES, PROPOSALS = 3, 8
DOMAIN = ToyDomain()
PROPOSER = pool_proposer(("add 1 ;", "add 2 ;", "add 3 ;"))
"""Nothing is answered, so that every search is as deep as it may be."""


@dataclass(frozen=True)
class Solutions:
    """Of a 1B model: tokens and steps of one, on average."""

    tokens: float
    steps: float


@dataclass(frozen=True)
class Load:
    """What a method asks for: tokens written and verified, and requests to both servers."""

    written: float
    verified: float
    requests: float


def loads(one: Solutions) -> Mapping[str, Load]:
    """Of all questions: every solution is written whole; a step is verified once."""
    tokens = QUESTIONS * N * one.tokens
    few = FEW / N
    rounds = QUESTIONS * one.steps
    return {
        f"best of {N}, all verified": Load(tokens, tokens, QUESTIONS * (1 + N)),
        f"beam search, N = {N}": Load(tokens, tokens, rounds * (N / WIDTH + N)),
        f"{FEW} of {N} verified": Load(tokens, few * tokens, QUESTIONS * (1 + FEW)),
    }


def recorded_solutions() -> Solutions:
    """Of Llama 3.2 1B on MATH-500, as recorded; tokens are those of SmolLM2."""
    said = [
        one.steps
        for run in runs(gated=False)
        if run.model == "Llama-3.2-1B-Instruct" and run.method == "best_of_n"
        for one in run.samples
    ]
    tokenizer = load_hub_model(
        hub.MODEL, revision=hub.REVISION, dtype="float32", device="cpu"
    ).tokenizer
    tokens = fmean(len(tokenizer.encode("\n\n".join(steps))) for steps in said)
    return Solutions(tokens, fmean(map(len, said)))


def measure(_: int) -> list[Row]:
    """What each method takes by the rates of the page, and what was simulated; nothing where the
    recorded solutions are absent."""
    if not (DATA / RUNS).is_file():
        print(f"{DATA / RUNS}: absent, expected the recorded solutions (SELVERIFY_DATA)")
        return []
    simulated = size.in_processes(__file__, WORK)
    one = recorded_solutions()
    write, read, most = (rates()[name] for name in ("write", "read", "products"))
    found = [
        Row("tokens of a recorded solution", one.tokens, "tokens", None),
        Row("steps of a recorded solution", one.steps, "steps", None),
        Row("1B generator", write, "tokens a second", None),
        Row("8B verifier", read, "tokens a second", None),
        Row("8B verifier, matrix products alone", most, "tokens a second", None),
    ]
    told = {row.what: row.value for row in simulated}
    shared = {"reply cache": told[CACHED], "event log": told[LOGGED]}
    for name, load in loads(one).items():
        models = load.written / write + load.verified / read
        least = load.written / write + load.verified / most
        driver = load.requests * rates()["request"]
        for count in ACCELERATORS:
            what = f"{name}: {count} accelerator{'s' * (count > 1)}"
            found.append(Row(what, models / count / 60, "min", None))
        found += [
            Row(f"{name}: 1 accelerator, verifier at its products", least / 60, "min", None),
            Row(f"{name}: one driver", driver / 60, "min", None),
            Row(
                f"{name}: drivers that keep up with {ACCELERATORS[-1]} accelerators",
                math.ceil(driver * ACCELERATORS[-1] / models),
                "",
                None,
            ),
        ]
        found += [
            Row(
                f"{name}: accelerators that one {part} keeps up with",
                math.floor(models * rate / load.requests),
                "",
                None,
            )
            for part, rate in shared.items()
        ]
    return [*found, *simulated]


@cache
def rates() -> Mapping[str, float]:
    """From the page: tokens a second of the generator and of reading by a verifier of 8B, which is
    that of 1B divided by the parameters; seconds of a driver for a request."""
    larger = PARAMETERS["8B"] / PARAMETERS["1B"]
    question = len(load_prompt("math_steps").examples[0].question)
    tokens = len(accelerator.STEP.format(0, 1)) + question / accelerator.SIBLINGS
    return {
        "write": figure("ours, prompts kept, 1,024 rows"),
        "read": figure("step tokens, siblings together") * tokens / larger,
        "products": figure("matrix products alone, 1,024 rows") / larger,
        "request": figure("processor time of the driver a request") / 1e3,
    }


def figure(what: str) -> float:
    """Of the first row of the page that begins so."""
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    for line in page.splitlines():
        if line.startswith(f"| {what}"):
            return float(line.split("|")[2])
    raise LookupError(f"{what}: expected a row of docs/performance.md that begins so")


class Server(PassingBackend):
    """Another backend after the lognormal seconds that follow from the request, or at once.

    A request holds all states, or all steps, of one round of a search.
    """

    def __init__(self, accelerators: int) -> None:
        super().__init__(FakeBackend(DOMAIN, PROPOSER, name="ones", seed=7, max_moves=MOVES))
        self._places = AT_ONCE * max(1, accelerators)
        self._waits = accelerators > 0
        self.took: list[tuple[str, float]] = []

    def concurrency(self, kind: str) -> int:
        """All accelerators'."""
        return self._places

    def answer(self, request: Request) -> Reply:
        """A little later."""
        seconds = seconds_of(request) if self._waits else 0.0
        self.took.append((request.kind, seconds))
        if seconds:
            time.sleep(seconds)
        return self.backend.answer(request)

    def bound(self) -> float:
        """Seconds below which no order of the requests gets."""
        kinds = (Propose.kind, Verify.kind)
        work = [sum(seconds for kind, seconds in self.took if kind == one) for one in kinds]
        return max(work) / self._places


def seconds_of(request: Request) -> float:
    """How long the reply takes."""
    state = request.items[0].state
    rng = random.Random(f"{request.kind} {state.problem.problem_id} {state.trace}")
    return MEDIAN * rng.lognormvariate(0.0, SPREAD)


@dataclass(frozen=True)
class Driven:
    """What one driver did: seconds of its searches and of writing their log, what they came to,
    requests, events and the bound of its server."""

    searched: float
    logged: float
    results: Mapping[int, tuple[Outcome, Ledger]]
    requests: int
    events: int
    bound: float

    @property
    def seconds(self) -> float:
        """Of both."""
        return self.searched + self.logged


def drive(accelerators: int, searches: range, *, cached: bool = True) -> Driven:
    """One driver of these searches."""
    drawn = {number: Search(_search(number), None) for number in searches}
    server = Server(accelerators)
    with TemporaryDirectory() as folder:
        cache = CachedBackend(server, Path(folder, "replies.sqlite"))
        began = time.perf_counter()
        results = run_searches(drawn, cache if cached else server, end_of_move=";", traced=True)
        searched = time.perf_counter() - began
        cache.close()
        log = {str(number): one.events for number, one in results.items()}
        began = time.perf_counter()
        write_events(Path(folder, "events.parquet"), log)
        logged = time.perf_counter() - began
    return Driven(
        searched,
        logged,
        {number: (one.outcome, one.ledger) for number, one in results.items()},
        len(server.took),
        sum(map(len, log.values())),
        server.bound(),
    )


def _search(number: int) -> Asking[Outcome]:
    return beam_search(
        DOMAIN, toy_problem(9, f"p{number}"), n=PROPOSALS, width=2, every=1, gates=True,
        max_moves=MOVES, aggregation="last", temperature=None,
    )  # fmt: skip


def at_once() -> size.Told:
    before = size.memory()
    bare = drive(0, range(SEARCHES), cached=False)
    yield f"simulated, {SEARCHES:,} searches, replies at once", bare.searched, "s"
    yield "their requests", bare.requests / bare.searched, "a second"
    yield "a search takes", (size.memory() - before) * 2**20 / SEARCHES, "KiB"
    kept = drive(0, range(SEARCHES))
    yield CACHED, kept.requests / kept.searched, "a second"
    yield LOGGED, kept.events / kept.logged, "a second"


def some() -> size.Told:
    done = drive(ACCELERATORS[1], range(SEARCHES))
    yield f"simulated, {ACCELERATORS[1]} accelerators: bound of the servers", done.bound, "s"
    yield f"simulated, {ACCELERATORS[1]} accelerators: a driver", done.seconds, "s"


def most() -> size.Told:
    count = ACCELERATORS[-1]
    one = drive(count, range(SEARCHES))
    yield f"simulated, {count} accelerators: bound of the servers", one.bound, "s"
    yield f"simulated, {count} accelerators: a driver", one.seconds, "s"
    yield "its requests", one.requests / one.searched, "a second"
    halves = range(SEARCHES // 2), range(SEARCHES // 2, SEARCHES)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        [*pool.map(time.sleep, (STARTS, STARTS))]
        began = time.perf_counter()
        parts = [*pool.map(drive, (count // 2, count // 2), halves)]
        seconds = time.perf_counter() - began
    assert {**parts[0].results, **parts[1].results} == one.results, "the outcomes differ"
    yield f"simulated, {count} accelerators: two drivers, the same outcomes", seconds, "s"


WORK: size.Work = {
    "at_once": at_once,
    "some": some,
    "most": most,
}

if __name__ == "__main__":
    size.tell(WORK)
