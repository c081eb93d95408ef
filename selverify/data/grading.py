r"""Whether an answer equals the gold (protocol, section Grading).

Knows: what strings and the form of answers tell, and algebra behind a pool of killable processes.
Does not know: problems, domains, methods.

The fast path compares strings, numbers and collections of them, and settles every pair of the
embedded domains. What it leaves open goes to worker processes, because sympy can hang or exhaust
memory inside C code where neither a thread nor SIGALRM can stop it. ``pebble`` kills and replaces a
worker that exceeds the limit.
"""

from __future__ import annotations

import math
import re
import resource
import signal
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from selverify.data.algebra import BACKEND, compare_with_math_verify, load_backend
from selverify.data.equivalence import CORRECT, UNPARSED, WRONG, TooMuchWork, compare_by_form
from selverify.errors import ParamsError, ProtocolError
from selverify.types import Grade

TIMEOUT = "timeout"
MAX_ANSWER = 4_000
_MAX_DIGITS = 1_000
MOST_PAIRS = 1_000
"""Parts of two answers that are compared where they are; a worker compares more."""
START_SECONDS = 120.0
GRADING_SECONDS = 5.0
"""A comparison, where no parameters say otherwise."""
ORPHAN_SECONDS = 5
WORKER_MEMORY = 4 << 30
"""Bytes that comparisons may take in a worker; a pair that wants more is unparsed."""
TAKEN = Path("/proc/self/statm")
NOT_STARTED = (
    f"grader: a worker did not start; expected it ready within {START_SECONDS:g} s and the "
    f"package {BACKEND} installed"
)

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)

Pair = tuple[str, str]
Compare = Callable[[str, str], str]


def compare_quickly(gold: str, answer: str | None) -> Grade | None:
    """The grade where the form of the two answers settles it, else None; no algebra."""
    answer = (answer or "").strip()
    gold = gold.strip()
    if not answer:
        return Grade(UNPARSED)
    if answer == gold:
        return Grade(CORRECT)
    if len(answer) > MAX_ANSWER or len(gold) > MAX_ANSWER:
        return Grade(UNPARSED)
    if _is_integer(gold) and _is_integer(answer):
        return Grade(CORRECT if int(gold) == int(answer) else WRONG)
    try:
        return Grade(compare_by_form(gold, answer, _open, most=MOST_PAIRS))
    except (_Open, TooMuchWork):
        return None


class _Open(Exception):
    """The form of two answers does not tell whether they are equal."""


def _open(gold: str, answer: str) -> str:
    raise _Open


def _is_integer(text: str) -> bool:
    return len(text) <= _MAX_DIGITS and _INTEGER.fullmatch(text) is not None


class Grader:
    """Grades pairs, memoised, in at most ``workers`` processes of ``seconds`` a comparison.

    Processes start when the fast path leaves a pair open, and end with ``close`` or the ``with``
    block. Not for use from several threads at once. A script that grades such pairs needs the
    usual ``if __name__ == "__main__":`` of ``multiprocessing``.
    """

    def __init__(
        self, seconds: float, workers: int, *, compare: Compare = compare_with_math_verify
    ) -> None:
        if seconds <= 0 or workers < 1:
            raise ParamsError(
                f"grader: given seconds {seconds} and workers {workers}, "
                f"expected seconds above 0 and workers of at least 1"
            )
        self._seconds = seconds
        self._workers = workers
        self._compare = compare
        self._memo: dict[Pair, Grade] = {}
        self._pool: ProcessPool | None = None

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill every worker and wait until it is gone."""
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None

    def grade(self, gold: str, answer: str | None) -> Grade:
        """The grade of one pair; asked for again, it costs a look-up."""
        return self.grade_many(((gold, answer),))[0]

    def matches(self, gold: str, answer: str | None) -> bool:
        """Whether ``answer`` grades correct."""
        return self.grade(gold, answer).correct

    def grade_many(self, pairs: Sequence[tuple[str, str | None]]) -> tuple[Grade, ...]:
        """One grade a (gold, answer). A candidate that kills its worker is ``unparsed``.

        Raises:
            ProtocolError: a worker does not start.
        """
        keys = [(gold.strip(), (answer or "").strip()) for gold, answer in pairs]
        for key in keys:
            if key not in self._memo and (quick := compare_quickly(*key)):
                self._memo[key] = quick
        waiting = [key for key in dict.fromkeys(keys) if key not in self._memo]
        try:
            if waiting:
                self._settle(waiting)
        except BaseException:
            self.close()  # a half-done task must not answer for a later one
            raise
        return tuple(self._memo[key] for key in keys)

    def _settle(self, waiting: Sequence[Pair]) -> None:
        try:
            self._compare_all(waiting)
        except RuntimeError:  # an idle worker had died, and the pool was not seen to be broken yet
            self.close()
            try:
                self._compare_all([pair for pair in waiting if pair not in self._memo])
            except RuntimeError as error:
                raise ProtocolError(NOT_STARTED) from error

    def _compare_all(self, waiting: Sequence[tuple[str, str]]) -> None:
        """Grade these pairs in the pool.

        Raises:
            RuntimeError: the pool is broken (pebble's ``BrokenProcessPool`` is one).
            ProtocolError: no worker is ready in time.
        """
        pool = self._started()
        futures = [
            pool.schedule(_status, (self._compare, *pair, self._seconds), timeout=self._seconds)
            for pair in waiting
        ]
        for pair, future in zip(waiting, futures, strict=True):
            self._memo[pair] = Grade(self._awaited(future))

    def _started(self) -> ProcessPool:
        """The pool; a new one where there is none, or where the last idle worker died."""
        if self._pool is not None and not self._pool.active:
            self.close()
        if self._pool is None:
            # spawn: a fork would copy torch's threads in an unknown state
            context = get_context("spawn")
            self._pool = ProcessPool(self._workers, initializer=_prepare, context=context)
        return self._pool

    def _awaited(self, future: ProcessFuture[str]) -> str:
        """The status of the oldest open comparison: it runs, or is the next that a worker takes."""
        try:
            return future.result(START_SECONDS + self._seconds)
        except ProcessExpired:
            return UNPARSED
        except TimeoutError as error:
            if future.done():
                return TIMEOUT
            raise ProtocolError(NOT_STARTED) from error


def _prepare() -> None:
    """What a worker does once, before its first pair."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler of Python's would wait for sympy's C
    load_backend()
    _cap_memory()


def _cap_memory() -> None:
    """``WORKER_MEMORY`` above what the imports took, where the system tells how much that is."""
    if not TAKEN.is_file():
        return
    taken = int(TAKEN.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = taken + WORKER_MEMORY
    cap = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_AS, (cap, most))


def _status(compare: Compare, gold: str, answer: str, seconds: float) -> str:
    """The status of a pair, found in a worker."""
    # The default action of SIGALRM ends a hung worker whose parent is gone.
    signal.alarm(math.ceil(seconds) + ORPHAN_SECONDS)
    try:
        return compare(gold, answer)
    except Exception:  # a candidate's failure is data, whatever sympy raises
        return UNPARSED
    finally:
        signal.alarm(0)
