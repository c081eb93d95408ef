"""No example of a prompt is a problem of a benchmark."""

from __future__ import annotations

import re

import pytest
import recorded

from selverify.models.prompting import load_prompt

RUN = 7
"""So many words in a row, numbers among them, are no coincidence."""
BENCHMARKS = {
    "MATH-500": ("problems/math500.jsonl", "problem"),
    "MATH": ("problems/math12500.jsonl.gz", "problem"),
    "GSM8K test": ("problems/gsm8k_test.jsonl.gz", "question"),
    "GSM8K train": ("problems/gsm8k_train.jsonl.gz", "question"),
}


def runs(text: str) -> set[tuple[str, ...]]:
    """Every run of words in a text, without case, punctuation or commands of LaTeX."""
    words = re.findall(r"[a-z]+|\d+", text.lower())
    return {tuple(words[at : at + RUN]) for at in range(max(1, len(words) - RUN + 1))}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_no_example_overlaps_a_benchmark(name: str) -> None:
    """Not one run of seven words of a question stands in a problem."""
    file, key = BENCHMARKS[name]
    asked = {
        run: example.question
        for prompt in ("math_steps", "math_structured")
        for example in load_prompt(prompt).examples
        for run in runs(example.question)
    }
    found = [
        (asked[run], row[key])
        for row in recorded.records(file)
        for run in runs(row[key]) & asked.keys()
    ]
    assert found == []


def test_the_check_sees_a_problem_that_is_taken_over() -> None:
    """Also with another name in it and another number at its end."""
    row = recorded.records("problems/gsm8k_test.jsonl.gz")[0]["question"]
    assert runs(row) & runs("Dear reader: " + row.upper() + " 7")
