"""Grading against golds and against facts that other projects recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import recorded
import recorded_samples
from recorded import Fact

from selverify.data import algebra
from selverify.data.algebra import compare_with_math_verify
from selverify.data.equivalence import CORRECT
from selverify.data.grading import compare_quickly


@pytest.fixture(scope="module")
def facts() -> tuple[Fact, ...]:
    """Every recorded fact, graded twice."""
    return recorded.grading_facts()


def test_every_gold_equals_itself() -> None:
    """The answer stated in the written solution is the gold, 500 of 500 and 1,319 of 1,319."""
    assert recorded.golds_against_themselves() == {
        "MATH-500": (500, 500),
        "GSM8K test": (1319, 1319),
    }


@pytest.mark.soak  # with the next: every fact is graded twice
def test_at_least_as_many_facts_as_math_verify_alone(facts: tuple[Fact, ...]) -> None:
    """In all, and in every source."""
    ours: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for fact in facts:
        ours[fact.source] += (fact.status == CORRECT) == fact.equal
        alone[fact.source] += (fact.alone == CORRECT) == fact.equal
    assert ours.total() >= alone.total() + 20
    assert all(ours[source] >= alone[source] for source in ours)


@pytest.mark.soak
def test_no_false_positive_that_math_verify_avoids(facts: tuple[Fact, ...]) -> None:
    """What we call equal and is not, Math-Verify calls equal too."""
    ours = [one for one in facts if one.status == CORRECT and not one.equal]
    assert [one for one in ours if one.alone != CORRECT] == []


@pytest.mark.soak
def test_the_fast_ways_say_of_recorded_answers_what_math_verify_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two expressions with variables, simplified where their values differ, too."""
    both = ((one.gold, recorded_samples.answer_of(one)) for one in recorded_samples.samples())
    pairs = dict.fromkeys((gold, answer) for gold, answer in both if gold and answer)
    hard = [pair for pair in pairs if compare_quickly(*pair) is None]
    found = list(map(status, hard))
    from latex2sympy2_extended import latex2sympy2
    from math_verify import parser

    monkeypatch.setattr(latex2sympy2, "PSParser", latex2sympy2.PSParser.__base__)
    algebra._kept.cache_clear()
    parser.parse_latex_cached.cache_clear()
    value = algebra._value
    monkeypatch.setattr(
        algebra, "_value", lambda side: None if has_variables(side) else value(side)
    )
    assert found == list(map(status, hard))
    assert len(hard) > 500


def status(pair: tuple[str, str]) -> str:
    """As a worker finds it."""
    try:
        return compare_with_math_verify(*pair)
    except Exception:
        return "unparsed"


def has_variables(side: Sequence[Any]) -> bool:
    """Whether there is a variable in what was read."""
    return any(getattr(one, "free_symbols", None) for one in side)
