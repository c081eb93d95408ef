"""What a person sees on the terminal: progress of our own loggers, one sentence for our errors.

Knows: the standard logging of Python. Prefect's pages keep every traceback.
"""

from __future__ import annotations

import logging

from selverify.errors import SelverifyError

PACKAGES = ("selverify", "tasks", "flows")


class OneSentence(logging.Filter):
    """Keeps tracebacks of our own errors off the terminal; the command line prints the sentence."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a record that carries one of our errors."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        return not isinstance(error, SelverifyError)


def prepare() -> None:
    """Show progress of the project's loggers; call it after Prefect was imported."""
    for name in PACKAGES:
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(OneSentence())
    # DVC prints its lines itself.
    logging.getLogger("dvc").propagate = False


def flush() -> None:
    """Hand over what waits for Prefect's server, before that server is stopped."""
    for handler in logging.getLogger("prefect.flow_runs").handlers:
        handler.flush()
