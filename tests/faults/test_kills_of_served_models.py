"""``kill -9`` of a pipeline whose models are behind a server (``kills``)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping

import pipelines
import pytest
from kills import AFTER, OWN_SERVER, Chain, Wholes, adds_up, finish, kill_twice, started
from pipelines import KILLS, Run
from small_pipeline import set_params

pytestmark = pytest.mark.soak

CHAINS = (
    Chain("served", "verification", "exploration@served-strong", "pipeline"),
    Chain("served", "verification", "evaluation@served-strong", OWN_SERVER, AFTER),
    Chain("served", "training", "residual@served-strong", "pipeline"),
    Chain("served", "writing", "benchmark", "pipeline"),
)


def interrupt(run: Run) -> None:
    """Ctrl-C, which reaches every process of the terminal."""
    os.killpg(run.process.pid, signal.SIGINT)


AT_WORK = re.compile(r"evaluation: (\S+) to \S+, seed \d+: \d+ of \d+ methods done")
"""A shard by its first problem."""
INTERRUPT = "Ctrl-C"
ENDS: Mapping[str, Callable[[Run], None]] = {
    INTERRUPT: interrupt,
    "kill -9 of the stage": KILLS["the stage"],
}


def test_an_undisturbed_run_adds_up(wholes: Wholes) -> None:
    adds_up(wholes["served"], "served-strong")


def test_no_key_is_written_anywhere(wholes: Wholes, record) -> None:
    """A run with keys leaves them in no file: logs, parameters, databases, caches, results."""
    checkout = wholes["served"].checkout
    key = pipelines.KEY.encode()
    files = [path for path in checkout.root.rglob("*") if path.is_file() and not path.is_symlink()]
    prefect_home = sorted(checkout.root.parent.parent.glob("server*/**/*"))
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


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.stage)
def test_a_killed_pipeline_ends_as_one_that_was_not(chain: Chain, wholes: Wholes, record) -> None:
    kill_twice(chain, wholes["served"], record)


@pytest.mark.parametrize("what", ENDS)
def test_workers_of_dask_end_with_their_run(what: str, wholes: Wholes, record) -> None:
    """Each while two workers evaluate shards; then the same run, on Dask as well."""
    pytest.importorskip("prefect_dask", reason="the extra dask is not installed")
    whole, name = wholes["served"], "evaluation@served-strong"
    checkout = whole.checkout
    set_params(checkout.root, {"tracking.runner": "dask"})
    try:
        checkout.forget_replies()
        checkout.forget(name)
        run = started(whole, name, "pipeline")
        while len(set(AT_WORK.findall(run.said))) < 2:
            assert run.process.poll() is None, run.said[-4000:]
            time.sleep(0.02)
        ENDS[what](run)
        code = run.wait()
        left = run.seconds_until_nobody_is_left()
        assert "Traceback" not in run.said, run.said[-4000:]
        if what == INTERRUPT:
            assert code == 130 and run.said.rstrip().endswith("interrupted")
        finish(whole, "pipeline")
    finally:
        set_params(checkout.root, {"tracking.runner": "local"})
    record(
        f"{what} of a run whose shards are with Dask",
        "two workers of a local cluster evaluate",
        moments=1,
        held=f"nobody left after {left:.1f} s, no temporary file, then the bytes of an "
        "undisturbed run",
    )
