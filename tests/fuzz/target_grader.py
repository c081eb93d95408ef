"""Fuzz target: pairs of answers, graded by the pool of processes."""

import atexit
import multiprocessing
import time

from fuzz_words import MATH

from selverify.data.grading import Grader

BETWEEN = ""
WORDS = MATH


def start() -> None:
    """There is no state."""


SECONDS = 1.0
PATIENCE = 60.0
"""Seconds for a worker to start anew on a busy machine."""
GRADER = Grader(SECONDS, 1)
atexit.register(GRADER.close)
FORMS = ("{}", "${}$", "\\boxed{{{}}}", "{}%", "{} cm")


def feed(state: None, text: str) -> None:
    """Each pair has a status in time, and no more than one worker is there."""
    gold, _, answer = text.partition("=")
    shown = FORMS[len(text) % len(FORMS)].format(answer)
    began = time.monotonic()
    (found,) = GRADER.grade_many(((gold or "1", shown),))
    assert found.status in ("correct", "wrong", "unparsed", "timeout")
    assert time.monotonic() - began < SECONDS + PATIENCE
    assert len(multiprocessing.active_children()) <= 1
