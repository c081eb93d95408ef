"""The grader before hostile answers: a status in time, no worker left, and no code that runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bombs import BOMBS
from waiting import lives, wait_until

from selverify.data import grading
from selverify.data.grading import Grader

SECONDS = 0.5
START = 60.0
"""Seconds that a worker may take to start on a busy machine."""
STATUSES = {"correct", "wrong", "unparsed", "timeout"}
HUNG = {
    "tower": "9^{9^{9^{9}}}",
    "plain tower": "9**9**9**9",
    "power": "$2^{2^{40}}$",
    "factorial": r"1000000000!",
    "binomial": r"\binom{1000000000}{500000000}",
    "sum": r"\sum_{n=1}^{10^9} n^n",
    "limit of a product": r"\prod_{n=1}^{100000000} n",
    "expansion": "(x+1)^{100000}",
    "brackets": "(" * 1_900 + "1" + ")" * 1_900,
    "braces": "{" * 1_900 + "1" + "}" * 1_900,
    "fractions": r"\frac{1}{" * 300 + "1" + "}" * 300,
    "set": r"\{" + ",".join(map(str, range(900))) + r"\}",
    "list": "1," * 1_900 + "1",
    "signs": "-" * 3_900 + "1",
    "intervals": r"[0,1] \cup " * 300 + "[2,3]",
    "digits": "0." + "9" * 3_900,
    "exponent": "10^{-" + "9" * 300 + "}",
}
DIFFERENT = {"tower", "power", "brackets", "set", "intervals", "digits"}
"""Each meets other code: mpmath, sympy's powers, the grammar, elements, what needs no worker."""


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    """One worker, so that what hangs must be replaced before the next pair; after all of them it
    still grades."""
    with Grader(SECONDS, 1) as one:
        yield one
        one._seconds = START  # the machine may be busy
        assert one.matches("2x + 1", "1 + 2x")
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] * (name not in DIFFERENT)) for name in HUNG],
)
def test_what_would_take_for_ever_has_a_status_in_time(grader: Grader, name: str) -> None:
    """Within the limit, the start of a new worker aside."""
    began = time.monotonic()
    (found,) = grader.grade_many((("24", HUNG[name]),))
    assert found.status in STATUSES - {"correct"}
    assert time.monotonic() - began < SECONDS + START
    assert len(multiprocessing.active_children()) <= 1


def test_what_is_too_long_goes_to_no_worker() -> None:
    """Every bomb above the cap is settled by its length."""
    long = [text for text in BOMBS.values() if len(text.strip()) > grading.MAX_ANSWER]
    before = multiprocessing.active_children()
    with Grader(SECONDS, 1) as one:
        grades = one.grade_many([("24", text) for text in long])
        assert multiprocessing.active_children() == before
    assert {found.status for found in grades} == {"unparsed"}


def take_memory(gold: str, answer: str) -> str:
    """Stands for an expression that grows within the time that it has."""
    return "correct" if bytearray(int(answer)) else gold


def test_what_wants_too_much_memory_is_unparsed() -> None:
    """More than the cap; less is granted."""
    with Grader(20.0, 1, compare=take_memory) as one:
        more, less = one.grade_many((("x", f"{2 * grading.WORKER_MEMORY} "), ("x", "1000000 ")))
    assert (more.status, less.status) == ("unparsed", "correct")


ORPHAN = """
import sys, threading, time, multiprocessing
from selverify.data.grading import Grader

def told():
    while True:
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        time.sleep(0.2)

if __name__ == "__main__":
    threading.Thread(target=told, daemon=True).start()
    with Grader(2.0, 1) as grader:
        grader.matches("x", "y + 1")
        print("ready", flush=True)
        if sys.argv[1] == "hung":
            # A power of whole numbers: one instruction of C that no exception can interrupt.
            grader.matches("24", "2^{2^{38}}")
        time.sleep(600)
"""


@pytest.mark.parametrize("state", ["idle", pytest.param("hung", marks=pytest.mark.soak)])
def test_no_worker_outlives_a_killed_parent(tmp_path: Path, state: str) -> None:
    """An idle one sees the pipe close; one that hangs in C has set itself an alarm."""
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN, encoding="utf-8")
    parent = subprocess.Popen(
        [sys.executable, str(script), state], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    worker, ready = 0, False
    for line in parent.stdout:
        ready = ready or line.strip() == "ready"
        worker = int(line) if line.strip().isdigit() else worker
        if ready and worker:
            break
    assert ready and worker, "the script began"
    if state == "hung":
        time.sleep(0.5)
    orphan = psutil.Process(worker)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not lives(orphan), patience=START)
