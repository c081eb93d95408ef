"""Grading: answers as a benchmark has them, cold and again, and those that form does not settle.

The answers are the recorded ones of MATH-500 where ``SELVERIFY_DATA`` has them, else written from
values.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rows import Row, median

sys.path.extend(str(Path(__file__).parents[1] / part) for part in ("data", "real"))

import generated_answers
import recorded
import recorded_samples

from selverify.data.grading import Grader, compare_quickly

SECONDS, WORKERS = 5.0, 2
HARD = 600
Pairs = Sequence[tuple[str, str]]


def measure(repeats: int) -> list[Row]:
    """Pairs a second, on two processes."""
    pairs, told = _answers()
    hard = [one for one in dict.fromkeys(pairs) if compare_quickly(*one) is None][:HARD]
    cold, again, ours, theirs = [], [], [], []
    for _ in range(repeats):
        with Grader(SECONDS, WORKERS) as grader:
            cold.append(_rate(pairs, grader.grade_many))
            again.append(_rate(pairs, grader.grade_many))
        with Grader(SECONDS, WORKERS) as grader:
            grader.grade_many([("\\sqrt{8}", "2\\sqrt{2}")] * WORKERS)  # its processes start
            ours.append(_rate(hard, grader.grade_many))
        with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
            list(pool.map(math_verify_alone, [("1", "1")] * 8))
            theirs.append(_rate(hard, lambda given: list(pool.map(math_verify_alone, given))))
    unit, named = "pairs a second", f"{len(hard)} pairs that form does not settle"
    return [
        Row(f"{told}, none graded before, no process started", median(cold), unit, None),
        Row("the same again", median(again), unit, None),
        Row(f"{named}, Math-Verify alone", median(theirs), unit, 1.0),
        Row(f"{named}, ours", median(ours), unit, median(ours) / median(theirs)),
    ]


def math_verify_alone(pair: tuple[str, str]) -> bool:
    """With its own time limits."""
    from math_verify import parse, verify

    gold, answer = (parse(f"${side}$") for side in pair)
    return bool(verify(gold, answer))


def _answers() -> tuple[Pairs, str]:
    if recorded.DATA.is_dir():
        found = recorded_samples.samples()
        both = ((one.gold, recorded_samples.answer_of(one)) for one in found)
        pairs = [(gold, answer) for gold, answer in both if gold and answer]
        return pairs, f"{len(pairs):,} answers to MATH-500"
    pairs = [(one.gold, one.answer) for one in generated_answers.pairs(generated_answers.PAIRS)]
    return pairs, f"{len(pairs):,} answers written from values"


def _rate(pairs: Pairs, grade: Callable[[Pairs], object]) -> float:
    began = time.perf_counter()
    grade(pairs)
    return len(pairs) / (time.perf_counter() - began)
