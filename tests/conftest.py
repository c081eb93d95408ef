"""What several folders of tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports torch: spinning threads starve each other on a busy machine, and a test
# of a second takes half a minute.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# How long an example takes says more of what else the machine does.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like ``models/small-strong``, with random weights; the backbone stands beside it."""
    from tiny_checkpoints import build  # imports transformers, which most tests do not need

    folder = tmp_path_factory.mktemp("models") / "small-strong"
    build(folder)
    return folder
