"""What several folders of tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from hypothesis import settings

# Before anything imports torch: spinning threads starve each other on a busy machine, and a test
# of a second takes half a minute.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# Tests in a shell's background would start processes that ignore the interrupts they are sent.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more of what else the machine does.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_finish() -> None:
    """What is imported by now stays to the end: collections of garbage need not look through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like ``models/small-strong``, with random weights; the backbone stands beside it."""
    from tiny_checkpoints import build  # imports transformers, which most tests do not need

    folder = tmp_path_factory.mktemp("models") / "small-strong"
    build(folder)
    return folder


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model of the hub, with random weights."""
    from tiny_text_models import build

    return build(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one Prefect server for all tests; starting one takes many seconds."""
    from flows.environment import PREFECT_DIRECTORY
    from flows.server import PREFECT_API_URL, prefect_server

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("server"))
        patch.setenv("PREFECT_HOME", str(Path.cwd() / PREFECT_DIRECTORY))
        patch.delenv(PREFECT_API_URL, raising=False)
        with prefect_server() as address:
            yield address
    with pytest.raises(URLError):
        urlopen(f"{address}/health", timeout=5.0)
