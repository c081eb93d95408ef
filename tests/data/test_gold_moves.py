"""Gold moves from annotated solutions; the records are invented."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from selverify.data.gold_moves import (
    MAX_SOLUTION,
    GoldSolution,
    annotated_moves,
    gold_solutions,
    label_of,
)
from selverify.data.text_benchmarks import Questions, load_questions

PENS = "Ann buys 4 boxes of 12 pens for $24. She gives 1/4 of the pens away. How many are left?"


def written(folder: Path, *records: tuple[str, str]) -> Questions:
    """Of a file of questions and solutions."""
    path = folder / "own.jsonl"
    lines = (json.dumps({"question": question, "answer": answer}) for question, answer in records)
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_questions(path)


def only(folder: Path, question: str, solution: str, *, words: bool = False) -> GoldSolution:
    """The gold solution of the one record."""
    (found,), left_out = gold_solutions(written(folder, (question, solution)), words=words)
    assert not left_out
    return found


def reason(folder: Path, solution: str) -> dict[str, int]:
    """Why the one record is left out."""
    found, left_out = gold_solutions(written(folder, (PENS, solution)), words=False)
    assert not found
    return dict(left_out)


def test_annotations_become_moves(tmp_path: Path) -> None:
    """In their order, with the answer at the end, and with the id that the benchmark gives."""
    solution = (
        "Ann has 4*12=<<4*12=48>>48 pens in all.\n"
        "She gives away 48/4=<<48/4=12>>12 pens.\n"
        "So 48-12=<<48-12=36>>36 pens are left.\n#### 36"
    )
    assert only(tmp_path, PENS, solution) == GoldSolution(
        "own-00000", PENS, ("4 * 12 = 48", "48 / 4 = 12", "48 - 12 = 36", "Answer 36")
    )
    assert only(tmp_path, PENS, solution, words=True).moves == (
        "pens in all: 4 * 12 = 48",
        "she gives away pens: 48 / 4 = 12",
        "pens are left: 48 - 12 = 36",
        "Answer 36",
    )


@pytest.mark.parametrize(
    ("solution", "moves"),
    [
        ("<<25/100*12=3>>3\n#### 3", ("25 / 100 * 12 = 3", "Answer 3")),
        ("<<.25*12=3.00>>3\n#### 3", ("0.25 * 12 = 3", "Answer 3")),
        ("<<25%*12=3>>3\n#### 3", ("25% * 12 = 3", "Answer 3")),
        ("$<<$24/4=$6>>6\n#### $6", ("24 / 4 = 6", "Answer 6")),
        ("<<1/4*48=12>>\n#### 12", ("1 / 4 * 48 = 12", "Answer 12")),
        ("<<24//4=6>>\n#### 6", ("24 / 4 = 6", "Answer 6")),
        ("<<12*1000=12000>>\n#### 12,000", ("12 * 1000 = 12000", "Answer 12000")),
        ("<<4=4>> <<4*12=48>>\n#### 48", ("4 * 12 = 48", "Answer 48")),
        ("<<4*12=48>> <<12*4=48>>\n#### 48", ("4 * 12 = 48", "Answer 48")),
        ("<<4*12=48>>48 - 12 = 36\n#### 36", ("4 * 12 = 48", "48 - 12 = 36", "Answer 36")),
        ("x + 4 - 1 = 9, <<4*12=48>>\n#### 48", ("4 * 12 = 48", "Answer 48")),
        ("4 * 12 = 50, no: <<4*12=48>>\n#### 48", ("4 * 12 = 48", "Answer 48")),
    ],
)
def test_what_annotations_hold(tmp_path: Path, solution: str, moves: tuple[str, ...]) -> None:
    """Percent, currency, zeros at the end, nothing computed, a repeat, an equation without one."""
    assert only(tmp_path, PENS, solution).moves == moves


@pytest.mark.parametrize(
    ("solution", "why"),
    [
        ("48 pens\n#### 48", "no annotations"),
        ("<<4*12=48>>48\n#### 36", "ends in another number"),
        ("<<4*12=48>>48\n#### many", "ends in another number"),
        ("<<4*12=49>>49\n#### 49", "arithmetic"),
        ("<<4*7777=31108>>31108\n#### 31108", "scope"),
        ("<<4*y=48>> <<4*12=48>>\n#### 48", "malformed"),
        ("<<4/0=48>> <<4*12=48>>\n#### 48", "malformed"),
    ],
)
def test_what_is_left_out_is_counted(tmp_path: Path, solution: str, why: str) -> None:
    assert reason(tmp_path, solution) == {why: 1}


@pytest.mark.parametrize(
    ("sentence", "label"),
    [
        ("He sold 48/2 = <<48/2=24>>24 clips in May.", "clips in may"),
        ("Eva earns 12/60 = $<<12/60=0.2>>0.2 per minute.", "eva earns per minute"),
        ("Her aunt gave her 15 * 2 = $<<15*2=30>>30.", "her aunt gave her"),
        ("There are <<3*2=6>>6 red, round, small pears.", "red"),
        ("<<3*2=6>>6", ""),
        ("We cut. Then the 2 ropes give 3 x 2 = <<3*2=6>>6 pieces of twelve", "pieces"),
    ],
)
def test_a_label_says_what_is_computed(sentence: str, label: str) -> None:
    """A few words, no numbers, in small letters."""
    assert label_of(sentence, sentence.index("<<"), sentence.index(">>") + 2) == label


@pytest.mark.parametrize(
    "piece", ["1+", "111111111111+", "1 + ", "$1+", "1x", "1+1=", "<<1", "1,1+"]
)
def test_a_long_solution_takes_linear_time(piece: str) -> None:
    text = piece * (MAX_SOLUTION // len(piece))
    began = time.process_time()
    assert list(annotated_moves(text, words=False)) == []
    assert time.process_time() - began < 0.5
