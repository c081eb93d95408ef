"""Kills of the whole pipeline at random moments: copies that run undisturbed, chains of kills.

There are two copies: one with models that are trained here, one with a generator, embeddings and a
judge behind a server. A stage is made to have never run, its run is killed, killed again, and run
to its end. Stages after it come from DVC's cache, which happens only where what they depend on is
equal byte for byte.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pipelines
import psutil
from ledger_totals import check_totals
from pipelines import KILLS, Checkout, Run, State, repeated
from proxy import Proxy
from small_pipeline import HEALTH, set_params

from flows.server import PREFECT_API_URL
from selverify.models.threshold import resolve_tau
from selverify.params import load_params

SEED = 6
KILLS_A_CHAIN = 2
MOST_TRIES = 3 * KILLS_A_CHAIN
# Near the end outputs are renamed; then DVC puts them into its cache and writes its lock.
LATE = 0.8
AFTER, DONE = "1 of 3 shards are done", "3 of 3 shards are done"
WRITING_SECONDS = 1.5
SLACK = 0.05
ON_SHARDS = ("rollouts", "difficulty", "exploration", "evaluation")
OPEN = "models are open"
"""Until then such a stage imports what models need, which takes seconds and tests nothing."""
OWN_SERVER = "run"
"""``make run``, with a Prefect server of its own; elsewhere all share one."""


class Chain(NamedTuple):
    """Kills of one stage, in the copy with models of this kind.

    The last one comes when the stage has said ``after``, and has kept some replies and not all.
    """

    kind: str
    phase: str
    stage: str
    command: str
    after: str = ""


@dataclass(frozen=True)
class Whole:
    """A copy after an undisturbed run: what it left, how long each stage worked, what it kept."""

    checkout: Checkout
    state: State
    seconds: dict[str, float]
    kept: dict[str, frozenset[str]]


class Wholes(dict[str, Whole]):
    """The copies by kind, each made when it is first asked for."""

    def __init__(self, prefect: str, server: Proxy, folder: Path, ending: ExitStack) -> None:
        super().__init__()
        self._prefect, self._server, self._folder, self._ending = prefect, server, folder, ending

    def __missing__(self, kind: str) -> Whole:
        root = pipelines.copy(self._folder / kind)
        if kind == "served":
            pipelines.write_benchmarks(root)
            set_params(root, pipelines.served_params(self._server.url))
            pipelines.set_shards(root, "evaluation", size=4)
        else:
            set_params(root, HEALTH)
            # Three for two processes: one may have ended when another is killed.
            pipelines.set_shards(root, "evaluation", size=2)
        checkout = Checkout(root, {PREFECT_API_URL: self._prefect})
        self._ending.callback(_end_all, root)
        run = checkout.finish("pipeline")
        assert checkout.leftovers() == []
        worked = {
            name: worked_from_to(run, name)
            for name, stage in checkout.stages.items()
            if not stage.frozen
        }
        seconds = {name: end - start for name, (start, end) in worked.items()}
        passed = time.time() - time.monotonic()
        kept = {
            name: frozenset(
                what for at, what in checkout.answered() if start <= at - passed <= end + SLACK
            )
            for name, (start, end) in worked.items()
        }
        assert kept[next(name for name in kept if name.startswith("evaluation"))]
        self[kind] = Whole(checkout, checkout.state(), seconds, kept)
        return self[kind]


def _end_all(root: Path) -> None:
    """Whatever still runs in a copy, after a test that failed."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(root):
                process.kill()


def worked_from_to(run: Run, name: str) -> tuple[float, float]:
    """When the work of stage ``name`` began, and when it ended."""
    start, end = run.when(f"{name}: started"), run.when(f"{name}: finished in")
    if name.startswith(ON_SHARDS):
        start = next((at for at, line in run.lines if start <= at <= end and OPEN in line), start)
    return start, end


def started(whole: Whole, name: str, command: str) -> Run:
    """A run of the pipeline whose stage ``name`` has begun its work."""
    own = {PREFECT_API_URL: ""} if command == OWN_SERVER else {}
    run = whole.checkout.start(command, **own)
    run.wait_for(f"{name}: started")
    if name.startswith(ON_SHARDS):
        run.wait_for(OPEN)  # no stage before it works, for only its own outputs are not there
    return run


def finish(whole: Whole, command: str) -> None:
    """The same command again leaves what an undisturbed run leaves, and no more."""
    own = {PREFECT_API_URL: ""} if command == OWN_SERVER else {}
    run = whole.checkout.finish(command, **own)
    run.seconds_until_nobody_is_left()
    assert "Traceback" not in run.said
    found = whole.checkout.state()
    assert found.outputs == whole.state.outputs
    assert found.lock == whole.state.lock
    assert set(found.replies) <= set(whole.state.replies)
    assert whole.checkout.leftovers() == []


def adds_up(whole: Whole, name: str) -> None:
    """The totals of the ledgers are those of the event logs; so they are in every equal run."""
    root = whole.checkout.root
    params = resolve_tau(load_params(root / "params.yaml"), root / "models" / name / "verifier")
    check_totals(root / "results" / "evaluation" / name, params)


def kill_twice(chain: Chain, whole: Whole, record: Callable[..., None]) -> None:
    """Kill the work of a stage, and again, then run it to its end: byte for byte as undisturbed.

    Nobody is left running, nothing temporary, nothing paid for twice.
    """
    kind, phase, name, command, after = chain
    checkout = whole.checkout
    rng = random.Random(f"{SEED} {kind} {name}")
    checkout.forget_replies()
    checkout.forget(name)
    told, kills, gone = [], [], []
    for _ in range(MOST_TRIES):
        if len(told) == KILLS_A_CHAIN:
            break
        waits = bool(after) and len(told) == KILLS_A_CHAIN - 1
        run = started(whole, name, command)
        began = time.monotonic()
        work = whole.seconds[name]
        if waits:
            run.wait_for(after)
        else:
            first = LATE if phase == "writing" else 0
            # One in each part of the work, of equal length.
            share = (len(told) + rng.random()) / KILLS_A_CHAIN
            run.wait_until(f"{name}: finished in", (first + (1 - first) * share) * work)
            time.sleep(rng.random() * (WRITING_SECONDS if phase == "writing" else 0))
        # The command alone leaves a stage that works on for seconds.
        victim = rng.choice(sorted(set(KILLS) - ({"the command alone"} if waits else set())))
        moment = time.monotonic() - began
        KILLS[victim](run)
        killed_at = time.time()
        gone.append(run.seconds_until_nobody_is_left())
        if run.wait() == 0 or (waits and DONE in run.said):  # it or its stage came to its end
            checkout.forget_replies()
            checkout.forget(name)
            continue
        kills.append((checkout.last_commit(), killed_at + gone[-1]))
        what = f"{victim} at {moment:.1f} s of {work:.1f}"
        told.append(f"{what}, when {after}" if waits else what)
    replies = len(checkout.replies())
    finish(whole, command)
    assert len(told) == KILLS_A_CHAIN
    there = {(key.hex(), place) for key, place, _ in checkout.replies()}
    assert {(key, int(place)) for _, key, place in map(str.split, whole.kept[name])} <= there
    assert not after or 0 < replies < len(checkout.replies())
    held = "outputs, DVC's lock and replies as undisturbed; "
    if phase == "verification":  # what is behind a server is kept, and paid for, batch by batch
        answered = checkout.answered()
        twice = repeated(answered)
        assert all(any(last - SLACK < at <= end for last, end in kills) for at, _ in twice)
        assert answered and (not after or min(answered)[0] < killed_at < max(answered)[0])
        held += f"{len(twice)} of {len(answered)} answers asked twice, of the batch in flight; "
    record(
        f"kill -9 in {phase} ({name}, models {kind})",
        "; ".join(told),
        moments=KILLS_A_CHAIN,
        held=f"{held}nobody left after {max(gone):.1f} s, no temporary file",
    )
