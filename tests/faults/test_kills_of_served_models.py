"""``kill -9`` of a pipeline whose models are behind a server (``kills``)."""

from __future__ import annotations

import shutil

import pipelines
import pytest
from kills import OWN_SERVER, Chain, Wholes, adds_up, kill_twice

pytestmark = pytest.mark.soak

CHAINS = (
    Chain("served", "verification", "exploration@served-strong", "pipeline"),
    Chain("served", "verification", "evaluation@served-strong", OWN_SERVER),
    Chain("served", "training", "residual@served-strong", "pipeline"),
    Chain("served", "writing", "benchmark", "pipeline"),
)


def test_an_undisturbed_run_adds_up(wholes: Wholes) -> None:
    adds_up(wholes["served"], "served-strong")


def test_no_key_is_written_anywhere(wholes: Wholes, record) -> None:
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


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.stage)
def test_a_killed_pipeline_ends_as_one_that_was_not(chain: Chain, wholes: Wholes, record) -> None:
    kill_twice(chain, wholes["served"], record)
