"""Pairs as models write them: what a teacher takes for the gold, and what not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from selverify.data.grading import Grader

RIGHT = {
    r"12\pi": [r"12\pi square units", r"12\pi cm^2", "12π", "12·π", "12pi", "12*pi"],
    r"2\sqrt{3}": [r"2\sqrt{3} square units", "2√3", "2√3 cm", "2√(3)"],
    r"\frac{1}{3}": [r"0.\overline{3}", r"0.\bar{3}"],
    r"\frac{4}{11}": [r"0.\overline{36}"],
    r"\frac{1}{6}": [r"0.1\overline{6}", r"0.1\overline6"],
    "15": [r"\$15 per hour", r"\$15/hour", "15 dollars/hour"],
    r"\$15 per hour": ["15 dollars/hour"],
    "x^2+2x+1": ["x² + 2x + 1", "x**2 + 2x + 1"],
    "x-1": ["x \N{EN DASH} 1"],
    r"\frac12": ["½"],
    r"\infty": ["∞"],
    "B": ["(B) 18", "B) 18", "B. 18", r"\text{(B) } 18", r"\textbf{(B)}\ 12"],
    r"\text{(C)}": ["C) Paris"],
    "3i": ["3 i", r"3\,i", r"3 \cdot i"],
    "1+2i": ["i(2-i)", "1 + 2 i"],
    "13": ["(3+2i)(3-2i)"],
    "1010_2": ["1010_{2}"],
    "z = 1+2i": ["2i+1", "1 + 2 i", "z = 2i + 1"],
    r"\frac43\pi abc": [r"\frac{4\pi abc}{3}"],
    r"\frac{\sqrt3}{2}mg": [r"\frac{mg\sqrt3}{2}"],
    "101_2": ["101"],
    r"\frac{7\pi}{2}": [r"\frac{7 \pi}{2}.", r"\[ \frac{7 \pi}{2}. \]"],
    "x^2+1": ["1 + x^2.", "$1 + x^2.$", r"\left( 1 + x^2 \right)."],
    "-2+7i": ["-2 + 7i."],
    "1024": ["2^{10}."],
    "(14/3)": ["14/3."],
    r"4\sqrt{3}": [r"4\sqrt{3} square inches."],
    r"\left\{ x + 1 \right.": [r"\left\{ 1 + x \right."],
    r"\frac{1}{8}x": ["\u215bx"],
    "5 or more": ["5 or more.", "at least 5"],
    r"\ge 5": [">= 5", r"$\geq 5$"],
    r"x \ge 5": ["x >= 5"],
    r"\ne 5": [r"\neq 5", "not equal to 5"],
    "5": ["minimum of 5", "5 more than Ann", "not it's not 10 it's 5"],
}
WRONG = {
    "12": [r"12\pi square units"],
    "2": [r"2\sqrt{3} square inches", r"2^{10} different ways"],
    "10": ["10! different ways"],
    r"12\pi cm": [r"12\pi cm^2"],
    r"0.\overline{3}": [r"0.\overline{4}", "0"],
    r"0.\overline{27}": [r"0.\overline{72}"],
    r"5.\overline{3}": ["5"],
    r"\frac{1}{3}": ["0.33"],
    "B": ["(C) 18"],
    r"\frac{4}{3}\pi abc": [r"\frac43\pi"],
    r"\pi ab^2": [r"\pi"],
    "a_{11}": ["a_{12}"],
    "1010_2": ["10_{10}"],
    "18": ["at least 18", "more than 18", r"\text{fewer than } 18"],
    "5": [
        *("5 or more", "5, or less", "5 or more apples", "5 and up", "5+", "5+ apples", "not 5"),
        *(r"\ge 5", r"\leq5", "> 5", "\u2264 5", r"\ne 5", "not equal to 5", "no more than 5"),
    ],
    "x+1": ["x+1.."],
    "101_2": ["101_3"],
    "3i": ["-3i", "3"],
    "x+i": ["x-i"],
}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(10.0, 1) as opened:
        yield opened


@pytest.mark.parametrize(("status", "pairs"), [("correct", RIGHT), ("wrong", WRONG)])
def test_answers_are_graded_as_a_teacher_would(
    grader: Grader, status: str, pairs: dict[str, list[str]]
) -> None:
    given = [(gold, answer) for gold, answers in pairs.items() for answer in answers]
    grades = grader.grade_many(given)
    assert [pair for pair, grade in zip(given, grades, strict=True) if grade.status != status] == []
