"""Grading against golds and against facts that other projects recorded."""

from __future__ import annotations

from collections import Counter

import pytest
import recorded
from recorded import Fact

from selverify.data.equivalence import CORRECT


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
