"""``kill -9``, Ctrl-C and damage of a pipeline whose models are trained here (``kills``)."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing

import pytest
from kills import AFTER, OWN_SERVER, Chain, Wholes, adds_up, finish, kill_twice, started

pytestmark = pytest.mark.soak

CHAINS = (
    Chain("local", "decode", "rollouts@small", "pipeline"),
    Chain("local", "decode", "difficulty@small", "pipeline"),
    Chain("local", "training", "verifier@small-strong", "pipeline"),
    Chain("local", "training", "residual@small-strong", "pipeline"),
    Chain("local", "decode and verification", "evaluation@small-strong", OWN_SERVER, AFTER),
    Chain("local", "writing", "report", "pipeline"),
)


def test_an_undisturbed_run_adds_up(wholes: Wholes) -> None:
    adds_up(wholes["local"], "small-strong")


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.stage)
def test_a_killed_pipeline_ends_as_one_that_was_not(chain: Chain, wholes: Wholes, record) -> None:
    kill_twice(chain, wholes["local"], record)


def test_a_killed_worker_ends_the_stage_and_the_next_run_makes_good(wholes: Wholes, record) -> None:
    """One of two worker processes of a stage is killed: one sentence, then the same bytes."""
    whole = wholes["local"]
    checkout, name = whole.checkout, "evaluation@small-strong"
    checkout.forget_replies()
    checkout.forget(name)
    run = started(whole, name, "pipeline")
    run.wait_for("methods done")
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


@pytest.mark.parametrize(
    "name", ["rollouts@small", "verifier@small-strong", "evaluation@small-strong", "report"]
)
def test_an_interrupt_ends_a_run_in_every_phase(name: str, wholes: Wholes, record) -> None:
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
    assert whole.checkout.leftovers() == []
    finish(whole, "pipeline")
    record(
        f"Ctrl-C in {name}",
        "an interrupt of the process group in the middle of the stage's work",
        moments=1,
        held=f"exit code 130, no traceback, nobody left after {left:.1f} s, then the bytes of an "
        "undisturbed run",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stage_by_itself_takes_its_prefect_server_with_it(
    number: signal.Signals, wholes: Wholes
) -> None:
    """Ended in its work, nobody is left; run to its end, Prefect has all that it said of it."""
    whole = wholes["local"]
    checkout = whole.checkout
    checkout.forget("report")
    run = checkout.start("report", PREFECT_API_URL="")
    run.wait_for("report: started")
    run.process.send_signal(number)
    assert run.wait() != 0
    run.seconds_until_nobody_is_left()
    assert "Traceback" not in run.said, run.said[-4000:]
    done = checkout.finish("report", PREFECT_API_URL="")
    done.seconds_until_nobody_is_left()
    assert "Error" not in done.said, done.said[-4000:]
    with closing(sqlite3.connect(checkout.root / ".prefect" / "prefect.db")) as database:
        flow, state = database.execute(
            "SELECT id, state_name FROM flow_run ORDER BY created DESC LIMIT 1"
        ).fetchone()
        tasks = database.execute("SELECT state_name FROM task_run WHERE flow_run_id = ?", [flow])
        assert state == "Completed" and {name for (name,) in tasks} == {"Completed"}
    finish(whole, "pipeline")


def test_a_second_run_of_a_checkout_is_refused(wholes: Wholes, record) -> None:
    """In one sentence; the first one ends as if it had been alone."""
    whole = wholes["local"]
    whole.checkout.forget_replies()
    whole.checkout.forget("rollouts@small")
    first = started(whole, "rollouts@small", "pipeline")
    for command in ("pipeline", "run"):
        second = whole.checkout.start(command)
        assert second.wait() == 1
        assert second.said.count("runs the pipeline in this checkout, expected no other run") >= 1
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


def test_a_damaged_output_is_found_by_its_checksum_and_restored(wholes: Wholes, record) -> None:
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
