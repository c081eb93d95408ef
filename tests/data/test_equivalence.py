"""Equality by form: generated pairs of known truth, the readings of one text, limits."""

from __future__ import annotations

import math
import random
import time

import generated_answers
import pytest

from selverify.data.equivalence import MAX_PARTS, compare_by_form
from selverify.data.grading import Grader, compare_quickly


def by_text(gold: str, answer: str) -> str:
    """Stands for algebra: equal texts only."""
    return "correct" if gold == answer else "wrong"


@pytest.mark.parametrize(
    "count", [1_000, pytest.param(generated_answers.PAIRS, marks=pytest.mark.soak)]
)
def test_no_generated_pair_is_graded_wrong(count: int) -> None:
    """Pairs of every kind, equal and nearly so; none is left unparsed either."""
    pairs = list(generated_answers.pairs(count))
    with Grader(30.0, 2) as grader:
        grades = grader.grade_many([(pair.gold, pair.answer) for pair in pairs])
    amiss = [
        (pair, grade.status)
        for pair, grade in zip(pairs, grades, strict=True)
        if grade.status != ("correct" if pair.equal else "wrong")
    ]
    assert amiss == []
    assert {(pair.kind, pair.equal) for pair in pairs} >= {
        (kind.__name__, False) for kind in generated_answers.BY_FORM
    }


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        ("1, 5", "2, 5", "wrong"),
        ("10, 4, 2", "2", "wrong"),
        ("2", "4, 12, 2", "wrong"),
        ("3 and 5", "5, 3", "correct"),
        ("3 and 5", "5", "wrong"),
        ("(1, 2)", "(2, 1)", "wrong"),
        (r"\{1, 2\}", "2, 1", "correct"),
        ("[1, 2)", "[1, 2]", "wrong"),
        ("[1, 2, 3]", "[1, 2, 4]", "wrong"),
        ("(1, 2), (3, 4)", "(3, 4), (1, 2)", "correct"),
        ("(1, 2), (3, 4)", "(3, 4), (2, 1)", "wrong"),
        (r"[0, 1) \cup (2, 3]", r"(2, 3] \cup [0, 1)", "correct"),
        ("x = 1, y = 2", "1, 2", "correct"),
        ("x = 1, y = 2", "2, 1", "wrong"),
        ("x = 1, y = 2", "y = 2, x = 1", "correct"),
        ("x = 1 or x = 2", "2, 1", "correct"),
        ("1 to 5", "1\u20135", "correct"),
        ("1 to 5", "1-5", "correct"),
        ("between 1 and 5", "from 1 to 6", "wrong"),
        ("between 3 and 5", "5", "wrong"),
        ("2 1/2", "2.5", "correct"),
        ("2 1/2", "1", "wrong"),
        ("2 1/2", "21/2", "wrong"),
        ("1 000/3", "1000/3", "correct"),
        ("1e3", "1000", "correct"),
        (r"1.2 \times 10^{-3}", "0.0012", "correct"),
        ("1,234", "1234", "correct"),
        ("0,111", "0.111", "correct"),
        ("100,200", "200, 100", "correct"),
        ("1/12", "0.0833333333333333", "correct"),
        ("1/3", "0.333", "wrong"),
        ("0.3", "0.30000000000000004", "correct"),
        ("12.3456789", "12.3456788", "wrong"),
        ("5%", "0.05", "correct"),
        ("5%", "5 cm", "wrong"),
        ("$5", "500 cents", "correct"),
        ("10 people", "10 persons", "correct"),
        ("60 miles per hour", "60 mph", "correct"),
        ("5 m/s", "18 km/h", "correct"),
        ("60 m/s", "60 s/m", "wrong"),
        ("12 miles per gallon", "12 gallons per mile", "wrong"),
        ("1 hour and 30 minutes", "1.5 hours", "correct"),
        ("1 hour and 30 minutes", "30 minutes", "wrong"),
        ("5 hours and 3 minutes", "5, 3", "wrong"),
        ("$3 and 50 cents", "$3.50", "correct"),
        ("2 and 1/2", "2.5", "correct"),
        ("2 and 1/2", "2, 1/2", "correct"),
        ("5 USD", "$5", "correct"),
        ("5 cc", "5 ml", "correct"),
        ("3 m squared", "3 m^2", "correct"),
        (r"\pm 1, 2", "1, -1, 2", "correct"),
        (r"\pm 1, \pm 2", "1, -1, 2, -2", "correct"),
        (r"\pm 3", "1, 2", "wrong"),
        (r"2 \pm \sqrt{3}", r"2 + \sqrt{3}, 2 - \sqrt{3}", "correct"),
        ("5, 5 cm", "5 cm, 5 m", "correct"),
        (r"\{1, 1, 2\}", r"\{1, 2\}", "correct"),
        ("a_1 = 5", "a_{1} = 5", "correct"),
        ("0.999999999999999", "1", "wrong"),
        ("3 dozen", "36", "correct"),
        ("100 cm", "1 m", "correct"),
        ("1 m^2", "10000 square centimeters", "correct"),
        ("10 cm", "10 cm^2", "wrong"),
        ("-5", "5", "wrong"),
        ("5", "- 5", "wrong"),
        ("True", "true", "correct"),
        ("TRUE", "True", "correct"),
        ("NO", "no", "correct"),
        ("10:00 am", "10:00 pm", "wrong"),
        ("9 a.m.", "9 P.M.", "wrong"),
        ("9 a.m.", "9 am", "correct"),
        ("5% increase", "5% decrease", "wrong"),
        ("5 miles north", "5 miles south", "wrong"),
        (r"20^\circ C", r"20^\circ F", "wrong"),
        ("3 more", "3 fewer apples", "wrong"),
        ("8 am", "8pm", "wrong"),
        ("decrease of 5%", "5 % increase", "wrong"),
        ("decrease of 5%", "5 % decrease", "correct"),
        ("$5 profit", "5 loss", "wrong"),
        ("5 miles north", "5 mi south", "wrong"),
        ("20 degrees Celsius", "20 degrees Fahrenheit", "wrong"),
        ("5 left, 5 right", "5 right, 5 left", "correct"),
        ("12 before and 12 after", "12 after and 12 before", "correct"),
        *[
            ("5 deaths", "5", "correct"),
            ("12 booths", "12", "correct"),
            ("24 teeth", "24", "correct"),
        ],
        *[("2nd", "2", "correct"), ("4th", "4", "correct"), ("2nd", "3rd", "wrong")],
        *[("\u2153", "1/3", "correct"), ("2\u00bd", "2 1/2", "correct")],
        *[("-2 \u215e", "-2.875", "correct"), ("\u215b cup", "1/8 cups", "correct")],
        ("\u2154", "1/3", "wrong"),
    ],
)
def test_what_the_form_of_two_answers_tells(gold: str, answer: str, status: str) -> None:
    """Both ways round, and without any algebra."""
    assert compare_by_form(gold, answer, by_text) == status
    assert compare_by_form(answer, gold, by_text) == status


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("3", "3x"),
        ("2", "2ab"),
        ("2", r"2\pi"),
        ("4", "4 sin x"),
        ("7", "3 + 4"),
        ("3", "7-4"),
        (r"\frac{1}{2}", r"\frac{-1}{-2}"),
        ("2.74", "Soucis : 2,74 $ a.."),
        ("yes, 5", "5"),
        ("(A)", "A"),
        ("10 m/s", "10 m"),
        ("3 to 5", "3/5"),
        ("x = 5", "X = 5"),
        ("5 M", "5 m"),
        ("2 fifths", "2"),
        ("5 hundredths", "5"),
        ("3 squared", "3"),
        ("4 quadrillion", "4"),
        ("3 times x", "3"),
        (r"2 \theta", "2"),
        ("", "5"),
        ("AB", "ab"),
        ("0% increase", "0% decrease"),
        ("8 am", "9 pm"),
        ("x up to 5", "5 or more"),
        ("no more than 3", "3 or less"),
    ],
)
def test_what_is_left_to_algebra(gold: str, answer: str) -> None:
    """Expressions and prose are no numbers and no lists."""

    def undecided(*_: str) -> str:
        return "left"

    assert compare_by_form(gold, answer, undecided) == "left"


SHUFFLED = tuple(
    random.Random(place).sample([f"{number}.0" for number in range(40)], 40) for place in range(12)
)
HOSTILE = {
    "sets of sets": ", ".join(rf"\{{{', '.join(one)}\}}" for one in SHUFFLED),
    "numbers": ", ".join(map(str, range(MAX_PARTS))),
    "too many": "1," * 1_900 + "1",
    "brackets": "(" * 1_900 + "1" + ")" * 1_900,
    "open brackets": "(1," * 1_200,
    "nested": "(1, " * 900 + "2" + ")" * 300,
    "sets": r"\{1," * 400 + "2" + r"\}" * 400,
    "spaces": "1" + " " * 3_900,
    "digits": "9" * 3_900,
    "thousands": "1" + ",000" * 900,
    "groups": "1" + " 000" * 900 + "x",
    "units": "1 " + "a " * 1_900,
    "ands": "1 and " * 600,
    "unions": r"[0,1] \cup " * 300 + "[2,3]",
    "dollars": "$" * 3_900,
    "commands": r"\text{" * 600,
    "fractions": r"\frac1" * 600,
    "signs of fractions": "\u215e" * 3_900,
    "power": "9" * 3_400 + "e999",
    "bounds": "5 or more " * 390,
    "open ends": "5+ a" * 900,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_long(name: str) -> None:
    """At most 50 ms against itself with another end or other numerals, where it is asked. Others
    on the machine slow some of ten attempts, not all of them."""
    text = HOSTILE[name]
    for other in (f"{text[:-1]}7", text.replace(".0", ".00"), text[::-1]):
        taken = math.inf
        for _ in range(10):
            began = time.process_time()
            compare_quickly(text, other)
            taken = min(taken, time.process_time() - began)
            if taken < 0.05:
                break
        assert taken < 0.05
