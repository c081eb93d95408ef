"""Waiting for processes and for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

# As long as a machine takes that is at work on something else; an idle one takes a tenth.
PATIENCE = 400.0


def wait_until(condition: Callable[[], Any], *, patience: float = PATIENCE) -> Any:
    """What ``condition`` returns once it is true."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
    return found


def lives(process: psutil.Process) -> bool:
    """Whether it is at work; one that has ended stands in the table until it is waited for."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
