"""MATH-500, the MATH training split and GSM8K, read from the recorded files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import recorded

from selverify.data.benchmark import benchmark_rows, tasks_from_rows
from selverify.data.text_benchmarks import (
    Draw,
    Questions,
    load_known,
    load_questions,
    tasks_from,
    without,
)
from selverify.domains.answers import extract_boxed
from selverify.domains.math_steps import MathSteps
from selverify.errors import LeakError, SchemaError

ALL_OF_MATH = "problems/math12500.jsonl.gz"


def known(name: str) -> Questions:
    """A benchmark that is recorded as one file."""
    files = {
        "math500": "math500.jsonl",
        "gsm8k": "gsm8k_test.jsonl.gz",
        "gsm8k_train": "gsm8k_train.jsonl.gz",
    }
    return load_known(name, recorded.DATA / "problems" / files[name])


def written(path: Path, rows: Sequence[recorded.Record], *fields: str) -> Path:
    """These fields of the rows as JSON lines."""
    lines = (json.dumps({field: row[field] for field in fields}) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def math_train(tmp_path_factory: pytest.TempPathFactory) -> Questions:
    """The 12,000 problems of MATH that are not in MATH-500."""
    rows = [row for row in recorded.records(ALL_OF_MATH) if not row["in_math500"]]
    path = tmp_path_factory.mktemp("math") / "train.jsonl"
    fields = ("problem", "solution", "answer", "level", "subject")
    return load_known("math_train", written(path, rows, *fields))


def test_math500_is_read_whole_and_in_order() -> None:
    """No text stands twice, and each gold is the box of the written solution."""
    rows = recorded.records("problems/math500.jsonl")
    questions = known("math500")
    assert len(questions.items) == 500
    assert [one.question_id for one in questions.items] == [row["unique_id"] for row in rows]
    assert [one.answer for one in questions.items] == [
        extract_boxed(one["solution"]) for one in rows
    ]
    assert {one.level for one in questions.items} == {"1", "2", "3", "4", "5"}


@pytest.mark.parametrize(("name", "count"), [("gsm8k", 1_319), ("gsm8k_train", 7_473)])
def test_golds_of_gsm8k_are_integers(name: str, count: int) -> None:
    """The thousands commas of 93 of them are gone; no text stands twice."""
    questions = known(name)
    assert len(questions.items) == count
    assert all(re.fullmatch(r"-?\d+", one.answer) for one in questions.items)


def test_math_train_lacks_two_golds_and_four_texts_stand_twice(math_train: Questions) -> None:
    """Nothing else is left out."""
    assert len(math_train.items) == 12_000 - 2 - 4
    assert all(one.answer and one.subject for one in math_train.items)
    assert sum(one.level is None for one in math_train.items) == 2


def test_golds_of_math_train_can_be_read_off_the_solutions(
    math_train: Questions, tmp_path: Path
) -> None:
    """Two of them are boxed without braces."""
    rows = [row for row in recorded.records(ALL_OF_MATH) if not row["in_math500"]]
    path = written(tmp_path / "solutions.jsonl", rows, "problem", "solution", "level", "subject")
    assert load_known("math_train", path) == math_train


def test_another_file_is_not_taken_for_a_known_benchmark() -> None:
    """All of MATH is not its training split, nor any file that lacks golds without being known."""
    with pytest.raises(
        SchemaError, match=r"given 12500 records, expected the 12000 of math_train$"
    ):
        load_known("math_train", recorded.DATA / ALL_OF_MATH)
    with pytest.raises(
        SchemaError, match=r"math12500.jsonl.gz, line 5342: given .*expected an ans"
    ):
        load_questions(recorded.DATA / ALL_OF_MATH)


def test_math_less_math500_is_the_training_split(math_train: Questions, tmp_path: Path) -> None:
    """MATH-500 shares no question with the training split; taking it out of all gives that."""
    held_out = known("math500")
    assert without(math_train, held_out).items == math_train.items
    rows = [row for row in recorded.records(ALL_OF_MATH) if row["answer"]]
    everything = load_questions(written(tmp_path / "all.jsonl", rows, "problem", "answer"))
    assert len(everything.items) == len(rows) - 4 == 12_494
    rest = without(everything, held_out)
    assert {one.fingerprint for one in rest.items} == {one.fingerprint for one in math_train.items}
    draw = Draw(rest, 100, 1)
    tasks_from(MathSteps(), train=draw, validation=draw, test=Draw(held_out, 500, 1))
    leaky = Draw(everything, 100, 1)
    with pytest.raises(
        LeakError, match=r"\(split 'validation'\) also stands in math500 \(split 'te"
    ):
        tasks_from(MathSteps(), train=leaky, validation=leaky, test=Draw(held_out, 500, 1))


def test_the_splits_of_the_paper(math_train: Questions) -> None:
    """12,000 problems less what has no gold for training and validation, MATH-500 for the test."""
    tests = known("math500")
    tasks = tasks_from(
        MathSteps(),
        train=Draw(math_train, 11_494, 1),
        validation=Draw(math_train, 500, 2),
        test=Draw(tests, 500, 3),
    )
    assert len({task.fingerprint for task in tasks}) == len(tasks) == 12_494
    assert [task.problem.problem_id for task in tasks[:500]] == [
        question.question_id for question in tests.items
    ]
    assert json.loads(tasks[0].truth.facts) == {"level": "2", "subject": "Precalculus"}
    problems, truths = benchmark_rows(tasks)
    assert tasks_from_rows(problems, truths, "test") == tasks[:500]


def test_the_splits_of_gsm8k_share_no_question() -> None:
    train = Draw(known("gsm8k_train"), 1_000, 1)
    tasks = tasks_from(
        MathSteps(), train=train, validation=train, test=Draw(known("gsm8k"), 1_319, 1)
    )
    assert len({task.problem.problem_id for task in tasks}) == 3_319
