"""What a person sees on the terminal: progress of our own loggers, one sentence for our errors.

Knows: the standard logging of Python, and what Prefect sends to its server in the background, whose
pages keep every traceback.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

from selverify.errors import SelverifyError

FLUSH_SECONDS = 5.0
PACKAGES = ("selverify", "tasks", "flows")


class OneSentence(logging.Filter):
    """Keeps tracebacks of our own errors off the terminal; the command line prints the sentence."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a record that carries one of our errors."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        return not isinstance(error, SelverifyError)


@contextmanager
def quiet_once_terminated() -> Iterator[None]:
    """After a SIGTERM in the block, no tool logs here: the command line reports the signal.

    The handler that was there before, such as Prefect's in a flow, is still called, and no second
    signal disturbs it while it reports how the flow ended.
    """
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before):
        yield
        return
    tell: Callable[[int, FrameType | None], object] = before

    def hear(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for handler in logging.getLogger().handlers:
            handler.addFilter(lambda record: False)
        tell(number, frame)

    signal.signal(signal.SIGTERM, hear)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is hear:
            signal.signal(signal.SIGTERM, before)


def prepare() -> None:
    """Show progress of the project's loggers; call it after Prefect was imported."""
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(OneSentence())
    # DVC prints its lines itself.
    logging.getLogger("dvc").propagate = False


def flush() -> None:
    """Hand over what waits for Prefect's server, logs and events, before that server is stopped."""
    for handler in logging.getLogger("prefect.flow_runs").handlers:
        handler.flush()
    events = import_module("prefect.events.worker").EventsWorker
    events.drain_all(timeout=FLUSH_SECONDS, at_exit=False)
