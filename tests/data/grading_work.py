"""What worker processes do in the tests of grading; each imports this, so it imports little."""

from __future__ import annotations

import os
import signal
import time

from selverify.data import grading


def prepare_little() -> None:
    """As ``grading._prepare``, without Math-Verify."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    grading._cap_memory()


def hang_or_answer(gold: str, answer: str) -> str:
    """Stands for Math-Verify inside a worker: some answers hang, crash or raise."""
    if "hang" in answer:
        time.sleep(600)
    if "crash" in answer:
        os._exit(7)
    if "raise" in answer:
        raise RecursionError("deep")
    return "correct" if gold == answer[::-1] else "wrong"


def exit_at_once() -> None:
    os._exit(3)


class DeadOnArrival:
    """A comparison function that ends the worker while it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return exit_at_once, ()

    def __call__(self, gold: str, answer: str) -> str:
        """Never reached."""
        return gold + answer
