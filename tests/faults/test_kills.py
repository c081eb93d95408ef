"""``kill -9`` of the whole pipeline at random moments, and the same command again.

Two copies of the project run undisturbed once: one with models that are trained here, one with a
generator, embeddings and a judge behind a server. Then a stage is made to have never run, its run
is killed, killed again, and run to its end. Stages after it come from DVC's cache, which happens
only where what they depend on is equal byte for byte.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pipelines
import psutil
import pytest
import stand_in
from ledger_totals import check_totals
from pipelines import KILLS, Checkout, Run, State, repeated
from proxy import Proxy

from flows.environment import PREFECT_DIRECTORY
from flows.server import PREFECT_API_URL, prefect_server
from selverify.params import load_params
from tasks.models import resolve_tau

pytestmark = pytest.mark.soak

SEED = 6
KILLS_A_CHAIN = 2
MOST_TRIES = 3 * KILLS_A_CHAIN
# Near the end outputs are renamed; then DVC puts them into its cache and writes its lock.
LATE = 0.8
WRITING_SECONDS = 1.5
SLACK = 0.05
OWN_SERVER = "run"
"""``make run``, with a Prefect server of its own; elsewhere all share one."""


class Chain(NamedTuple):
    """Kills of one stage, in the copy with models of this kind."""

    kind: str
    phase: str
    stage: str
    command: str


CHAINS = (
    Chain("local", "decode", "rollouts@small", "pipeline"),
    Chain("local", "decode", "difficulty@small", "pipeline"),
    Chain("local", "training", "verifier@small-strong", "pipeline"),
    Chain("local", "training", "residual@small-strong", "pipeline"),
    Chain("local", "decode and verification", "evaluation@small-strong", OWN_SERVER),
    Chain("local", "writing", "report", "pipeline"),
    Chain("served", "verification", "exploration@served-strong", "pipeline"),
    Chain("served", "verification", "evaluation@served-strong", OWN_SERVER),
    Chain("served", "training", "residual@served-strong", "pipeline"),
    Chain("served", "writing", "benchmark", "pipeline"),
)


@dataclass(frozen=True)
class Whole:
    """A copy after an undisturbed run: what it left, and from when to when each stage worked."""

    checkout: Checkout
    state: State
    seconds: dict[str, float]


@pytest.fixture(scope="session")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one Prefect server; starting one takes many seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("prefect"))
        patch.setenv("PREFECT_HOME", str(Path.cwd() / PREFECT_DIRECTORY))
        patch.delenv(PREFECT_API_URL, raising=False)
        with prefect_server() as address:
            yield address


@pytest.fixture(scope="session")
def server() -> Iterator[Proxy]:
    with Proxy(stand_in.answer) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def wholes(
    prefect: str, server: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Whole]]:
    """Both copies, each made when it is first asked for; nothing of theirs is left running."""
    with ExitStack() as ending:
        yield _Made(prefect, server, tmp_path_factory.mktemp("copies"), ending)


class _Made(dict[str, Whole]):
    def __init__(self, prefect: str, server: Proxy, folder: Path, ending: ExitStack) -> None:
        super().__init__()
        self._prefect, self._server, self._folder, self._ending = prefect, server, folder, ending

    def __missing__(self, kind: str) -> Whole:
        root = pipelines.copy(self._folder / kind)
        if kind == "served":
            pipelines.write_benchmarks(root)
            pipelines.set_params(root, pipelines.served_params(self._server.url))
        else:
            pipelines.set_params(root, pipelines.local_params())
            pipelines.set_shards(root, "evaluation", size=3)  # two, each in a process of its own
        checkout = Checkout(root, {PREFECT_API_URL: self._prefect})
        self._ending.callback(_end_all, root)
        run = checkout.finish("pipeline")
        assert checkout.leftovers() == []
        seconds = {
            name: run.when(f"{name}: finished in") - run.when(f"{name}: started")
            for name, stage in checkout.stages.items()
            if not stage.frozen
        }
        self[kind] = Whole(checkout, checkout.state(), seconds)
        return self[kind]


def _end_all(root: Path) -> None:
    """Whatever still runs in a copy, after a test that failed."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(root):
                process.kill()


def started(whole: Whole, name: str, command: str) -> Run:
    """A run of the pipeline whose stage ``name`` has begun its work."""
    own = {PREFECT_API_URL: ""} if command == OWN_SERVER else {}
    run = whole.checkout.start(command, **own)
    run.wait_for(f"{name}: started")
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


def by_kind(*given: object, kind: str) -> Any:
    """A case that one process runs with all others of its copy: each makes it by itself."""
    return pytest.param(*given, marks=pytest.mark.xdist_group(kind))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        by_kind("local", "small-strong", kind="local"),
        by_kind("served", "served-strong", kind="served"),
    ],
)
def test_an_undisturbed_run_adds_up(kind: str, name: str, wholes: dict[str, Whole]) -> None:
    """The totals of the ledgers are those of the event logs; so they are in every equal run."""
    root = wholes[kind].checkout.root
    params = resolve_tau(load_params(root / "params.yaml"), root / "models" / name / "verifier")
    check_totals(root / "results" / "evaluation" / name, params)


@pytest.mark.parametrize(
    "chain",
    [by_kind(chain, kind=chain.kind) for chain in CHAINS],
    ids=[f"{chain.kind}-{chain.stage}" for chain in CHAINS],
)
def test_a_killed_pipeline_ends_as_one_that_was_not(
    chain: Chain, wholes: dict[str, Whole], record
) -> None:
    """Byte for byte; nobody is left running, nothing temporary, nothing paid for twice."""
    kind, phase, name, command = chain
    whole = wholes[kind]
    checkout = whole.checkout
    rng = random.Random(f"{SEED} {kind} {name}")
    checkout.forget_replies()
    checkout.forget(name)
    told, kills, gone = [], [], []
    for _ in range(MOST_TRIES):
        if len(told) == KILLS_A_CHAIN:
            break
        run = started(whole, name, command)
        work = whole.seconds[name]
        moment = rng.uniform(LATE if phase == "writing" else 0, 1) * work
        run.wait_until(f"{name}: finished in", moment)
        time.sleep(rng.random() * (WRITING_SECONDS if phase == "writing" else 0))
        victim = rng.choice(sorted(KILLS))
        KILLS[victim](run)
        killed_at = time.time()
        gone.append(run.seconds_until_nobody_is_left())
        if run.wait() == 0:  # it had come to its end, or its stage had
            checkout.forget(name)
            continue
        kills.append((checkout.last_commit(), killed_at + gone[-1]))
        told.append(f"{victim} at {moment:.1f} s of {work:.1f}")
    finish(whole, command)
    assert len(told) == KILLS_A_CHAIN
    twice = repeated(checkout.answered())
    assert all(any(last - SLACK < at <= end for last, end in kills) for at, _ in twice)
    record(
        f"kill -9 in {phase} ({name}, models {kind})",
        "; ".join(told),
        moments=KILLS_A_CHAIN,
        held="outputs, DVC's lock and replies as undisturbed; "
        f"{len(twice)} of {len(checkout.answered())} cached answers asked twice, all of the batch "
        f"in flight; nobody left after {max(gone):.1f} s, no temporary file",
    )


@pytest.mark.xdist_group("local")
def test_a_killed_worker_ends_the_stage_and_the_next_run_makes_good(
    wholes: dict[str, Whole], record
) -> None:
    """One of two worker processes of a stage is killed: one sentence, then the same bytes."""
    whole = wholes["local"]
    checkout, name = whole.checkout, "evaluation@small-strong"
    checkout.forget_replies()
    checkout.forget(name)
    run = started(whole, name, "pipeline")
    run.wait_for("method 2 of")
    workers = [one for one in run.alive() if "spawn_main" in " ".join(one.cmdline())]
    assert len(workers) == 2
    workers[0].kill()
    assert run.wait() != 0
    left = run.seconds_until_nobody_is_left()
    assert "worker process" in run.said and "Traceback" not in run.said
    finish(whole, "pipeline")
    record(
        "kill -9 of a worker process",
        "one of two that evaluated shards",
        moments=1,
        held=f"one sentence, nobody left after {left:.1f} s, then the bytes of an undisturbed run",
    )


@pytest.mark.xdist_group("local")
@pytest.mark.parametrize(
    "name", ["rollouts@small", "verifier@small-strong", "evaluation@small-strong", "report"]
)
def test_an_interrupt_ends_a_run_in_every_phase(
    name: str, wholes: dict[str, Whole], record
) -> None:
    """Ctrl-C reaches the terminal's processes: exit code 130, no page of a traceback."""
    whole = wholes["local"]
    whole.checkout.forget_replies()
    whole.checkout.forget(name)
    run = started(whole, name, OWN_SERVER)
    time.sleep(0.5 * whole.seconds[name])
    os.killpg(run.process.pid, signal.SIGINT)
    code = run.wait()
    left = run.seconds_until_nobody_is_left()
    assert code == 130
    assert run.said.rstrip().endswith("interrupted")
    assert "Traceback" not in run.said, run.said[-4000:]
    finish(whole, "pipeline")
    record(
        f"Ctrl-C in {name}",
        "an interrupt of the process group in the middle of the stage's work",
        moments=1,
        held=f"exit code 130, no traceback, nobody left after {left:.1f} s, then the bytes of an "
        "undisturbed run",
    )


@pytest.mark.xdist_group("local")
def test_a_second_run_of_a_checkout_is_refused(wholes: dict[str, Whole], record) -> None:
    """In one sentence; the first one ends as if it had been alone."""
    whole = wholes["local"]
    whole.checkout.forget_replies()
    whole.checkout.forget("rollouts@small")
    first = started(whole, "rollouts@small", "pipeline")
    for command in ("pipeline", "run"):
        second = whole.checkout.start(command)
        assert second.wait() == 1
        assert second.said.count("runs the pipeline in this checkout, expected nobody") >= 1
        assert "Traceback" not in second.said
    assert first.wait() == 0, first.said[-3000:]
    finish(whole, "pipeline")
    record(
        "two pipelines at once on one checkout",
        "a second and a third started while the first decodes",
        moments=2,
        held="each refused in one sentence; the first one's bytes as undisturbed",
    )


DAMAGED = (
    "data/rollouts/small/values.parquet",
    "models/small-strong/verifier/model.safetensors",
    "models/small-strong/policy/heuristic.safetensors",
    "results/evaluation/small-strong/events.parquet",
)


@pytest.mark.xdist_group("local")
def test_a_damaged_output_is_found_by_its_checksum_and_restored(
    wholes: dict[str, Whole], record
) -> None:
    """A bit of each is changed, then half of each cut off: the next run has their bytes again."""
    whole = wholes["local"]
    paths = [whole.checkout.root / name for name in DAMAGED]
    kept = [path.read_bytes() for path in paths]
    for cut in (False, True):
        for path, told in zip(paths, kept, strict=True):
            middle = len(told) // 2
            end = b"" if cut else bytes([told[middle] ^ 1]) + told[middle + 1 :]
            path.unlink()  # it may share its bytes with DVC's cache
            path.write_bytes(told[:middle] + end)
        finish(whole, "pipeline")
        assert [path.read_bytes() for path in paths] == kept
    record(
        "outputs that are damaged on disk: a shard, two checkpoints, an event log",
        "one bit of each changed; half of each cut off; the pipeline run again",
        moments=2 * len(DAMAGED),
        held="found by their checksums, restored from DVC's cache, the same bytes",
    )


@pytest.mark.xdist_group("served")
def test_no_key_is_written_anywhere(wholes: dict[str, Whole], record) -> None:
    """A run with keys leaves them in no file: logs, parameters, databases, caches, results."""
    checkout = wholes["served"].checkout
    key = pipelines.KEY.encode()
    files = [path for path in checkout.root.rglob("*") if path.is_file() and not path.is_symlink()]
    prefect_home = sorted(checkout.root.parent.parent.glob("prefect*/**/*"))
    files += [path for path in prefect_home if path.is_file()]
    assert any(path.name == "mlflow.db" for path in files)
    assert any(path.name == "prefect.db" for path in files)
    assert any(path.name == "replies.sqlite" for path in files)
    assert [str(path) for path in files if key in path.read_bytes()] == []
    assert shutil.which("git") is None or not (checkout.root / ".git").exists()
    record(
        "keys of servers",
        "a whole run with a generator, embeddings and a judge that need a key",
        moments=1,
        held=f"the key stands in none of {len(files)} files: logs, params.yaml, MLflow's and "
        "Prefect's databases, reply cache, DVC's lock and cache, results",
    )
