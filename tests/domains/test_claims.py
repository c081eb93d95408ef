"""Arithmetic in ordinary text: exact values, every reading, and what is no claim at all."""

from __future__ import annotations

import time
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selverify.domains.arithmetic import NotNumeric, read_expression
from selverify.domains.claims import canonical_answer, find_claims

EVERY_CALL = 0.05  # seconds


def values(text: str) -> set[Fraction]:
    """The readings of an expression written with spaces."""
    return set(read_expression(text.split()).values)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Fraction]:
    """A fully bracketed expression, and its value by Python's own fractions."""
    if not depth or draw(st.booleans()):
        number = draw(st.integers(0, 999))
        return str(number), Fraction(number)
    sign = draw(st.sampled_from("+-*/"))
    left, a = draw(expressions(depth=depth - 1))
    right, b = draw(expressions(depth=depth - 1))
    if sign == "/" and not b:
        sign = "+"
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[sign]
    return f"( {left} {sign} {right} )", value


@pytest.mark.parametrize(
    ("one", "other"),
    [("1/2", "0.5"), (r"\frac{1}{2}", r"\dfrac12"), ("007", "7"), (r"x + 1", r"x+1"),
     (r"\left( 3, 4 \right)", "(3,4)"), ("1,000", "1000"), ("1{,}000", "1000"),
     (r"\boxed{1,000}", "1000"), (r"\frac{1,000}{3}", r"\frac{1000}{3}"),
     (r"\text{Evelyn}", "Evelyn"), (r"\(4\)", "4"), (r"\[4\]", "4"), ("$$4$$", "4"),
     (r"\(1\), \(2\)", "1, 2"), (r"x = \(4\)", "x=4"), ("**4** cm", "4 cm"),
     ("3x^{2}", "3x^2"), (r"10\,000", "10,000"), ("1,234 dollars", "1234 dollars"),
     (r"\text{Yes}", "yes"), ("**4**", "4"), ("4.", "4"), (r"\( x + 1 \).", "x+1")],
)  # fmt: skip
def test_answers_that_are_plainly_equal_vote_together(one: str, other: str) -> None:
    assert canonical_answer(one) == canonical_answer(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *[("20%", "20"), ("(3,4)", "(4,3)"), ("3", "-3"), ("x^2", "x^3"), ("2/3", "3/2")],
        *[("x >= 3", "x <= 3"), ("x != 3", "x <= 3"), ("X", "x"), ("(100,200)", "(100200)")],
        *[("0.333...", "0.333"), ("2**3", "23"), ("2**3**2", "232"), ("4!", "4"), (".5", "5")],
        *[
            ("(100,200)", "100200"),
            (r"\{100,200\}", "100200"),
            (r"\left(100,200\right)", "100200"),
            ("(1,234)", "1234"),
            ("[100,200]", "[100200]"),
            (r"\{100,200\}", r"\{100200\}"),
        ],
    ],
)
def test_other_answers_vote_apart(one: str, other: str) -> None:
    assert canonical_answer(one) != canonical_answer(other)


@given(expressions())
def test_brackets_leave_one_reading(drawn: tuple[str, Fraction]) -> None:
    """The value is exact, whatever is nested."""
    text, value = drawn
    assert values(text) == {value}


@given(st.lists(st.sampled_from((*"012+-*/^!%(){}", "17", "3.5", "\\frac", "\\sqrt", "\\binom"))))
def test_any_tokens_are_read_or_refused(tokens: list[str]) -> None:
    """Nothing else than a value or NotNumeric, and soon."""
    started = time.process_time()
    with suppress(NotNumeric):
        assert read_expression(tokens).values
    assert time.process_time() - started < EVERY_CALL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 + 3 * 4", {14}),
        ("8 - 3 - 2", {3}),
        ("- 2 ^ 2", {-4, 4}),
        ("2 ^ 3 ^ 2", {512}),
        ("2 \\frac { 1 } { 2 } %", {Fraction(5, 2), 1, Fraction(1, 40), Fraction(1, 100)}),
        ("200 + 10 %", {210, 220, 2200, Fraction(2001, 10)}),
        ("2 1 / 2", {Fraction(5, 2)}),
        ("2 \\frac { 1 } { 2 }", {Fraction(5, 2), 1}),
        ("1 / 2 ( 3 )", {Fraction(3, 2), Fraction(1, 6)}),
        ("28 / 1 / 5", {Fraction(28, 5), 140}),
        ("20 %", {20, Fraction(1, 5)}),
        ("5 !", {5, 120}),
        ("\\sqrt { 16 }", {4}),
        ("8 ^ ( 1 / 3 )", {2}),
        ("\\binom { 5 } { 2 }", {10}),
        ("1,200 * 2", {2400}),
    ],
)
def test_readings(text: str, expected: set[Fraction]) -> None:
    """Where people differ about the meaning, all meanings are kept."""
    assert values(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2 +",
        "\\frac ² 3",
        "1 ² / 3",
        "( 2",
        "2 )",
        "x",
        "1 / 0",
        "\\sqrt { 2 }",
        "0130 + 1",
        "9 ^ 9 ^ 9 ^ 9",
        "* 2",
    ],
)
def test_what_has_no_rational_value_is_refused(text: str) -> None:
    """Also what is too large, or may be a time."""
    with pytest.raises(NotNumeric):
        values(text)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("She sold 48 / 2 = <<48/2=24>>24 clips", True),
        ("So 3 x 4 = 13.", False),
        ("$\\frac{1}{2} + \\frac13 = \\frac{5}{6}$", True),
        ("5 red apples + 3 apples = 9 apples", False),
        ("- 3 + 4 = 7", True),  # an item of a list, or a sign
        ("10/3 = 3.33", True),
        ("10/3 = 4", False),
        ("17 / 5 = 3, remainder 2", True),
        ("$13 \\times 4 \\times 12 \\times 6 = 3,\\!744$", True),
        ("\\[ 3 + 4 = 8 \\]", False),
        ("**9**2 = 81**", True),
        ("\\$1.50 * 4 = \\$7", False),
        ("4 / 3 = 1 and 1/3", None),
        ("Each is $\\frac{5}{6} = 83\\frac{1}{3}\\%$.", True),
        ("2/3 = 67%", True),
        ("2 ** 3 + 1 = 9", True),
        ("1 hour + 30 minutes = 90 minutes", None),
        ("3 * 2 feet = 72 inches", None),
        ("2 thirds + 1 = 5/3", None),
        ("Is 3 + 4 = 8? No, it is 7.", None),
        ("If x = 2 then 3*2 + 1 = 8, which is wrong.", None),
        ("This would give 2 + 2 = 5.", None),
        ("In base 8, $7 + 1 = 10$.", None),
        ("$3\\cdot 5=1\\quad(\\text{mod }7)$", None),
        ("So 2 + 3 != 6.", None),
        ("10 / 3 ~= 3", None),
        ("17 % (2 * 5) = 7", None),
        ("3 : 4 = 3 * 5 : 4 * 5", None),
        ("12 : 4 + 1 = 4", None),
        ("1/7 = 0.(142857)", None),
        ("5!! = 15", None),
        ("23 * 47 \\approx 20 * 50", None),
        ("17/3 = 6, rounding up", None),
        ("2 and 1/2 + 1 = 3 1/2", None),
        ("The sum is negative 3 + 5 = 2.", None),
        ("sqrt (16) + 2 = 6", None),
        ("2\n(3+4) = 14", None),
        ("10+10 = 4\n(5)", None),
        ("Step 2 1/2 + 1/2 = 1", None),
        ("x" * 3985 + " 1000 + 234 = 1234", None),
        ("x + 3 = 7", None),
        ("2xy + 2yz = 384", None),
        ("f(3) + 4 = 9", None),
        ("twice 4 + 3 = 11", None),
        ("1 + 2 + ... + 9 + 10 = 55", None),
        ("7 mod 3 = 1", None),
        ("12/4 = 3x", None),
        ("100 / 6 = 16 and (2/3)", None),
        ("100 &= 3 \\cdot 5 \\\\\n&\\quad + 85", None),
        ("12_5 + 1 = 13_5", None),
        ("all 4 subjects = 186+62", None),
        ("at 2:30 + 1 = 31", None),
        ("7\\cdot 6\\cdot\n5 = 210", None),
        ("Half of \\(12 + 4 = 8\\).", None),
        ("Twice \\[4 + 3 = 14\\]", None),
        ("A total of \\(12 + 4 = 17\\).", False),
        ("This is equal to \\[12 + 4 = 17\\]", False),
        ("5 + 6 + 7\n- 8 - 9 = 1", None),
        ("x &= 5 + 6 + 7 \\\\\n&\\quad - 8 - 9 = 1", None),
        ("Items:\n- 3 + 4 = 8", False),
        ("- 1 + 2 = b\n- 3 + 4 = 8", False),
        ("x = 2 + 3 = 5   (2)", True),
        ("$3+4 = 7$ (3).", True),
        ("3 + 4 = 8 (3)", False),
        ("10 + 11 = 7 (3)", True),
        ("(2 + 5) + 25 = (7) + (25)", True),
        ("1/3 = 0.333...", None),
    ],
)
def test_claims_in_sentences(text: str, holds: bool | None) -> None:
    """None: nothing in it is a claim that can be checked."""
    found = [claim.holds for claim in find_claims(text)]
    assert found == ([] if holds is None else [holds])


@pytest.mark.parametrize(
    "text",
    [
        "Check:\n60 = 25 + 36 = 61. This does not work.",
        "60 = 25 + 36. That is not right.",
        "60 = 25 + 36. So no.",
        "60 = 25 + 36.\nContradiction!",
        "60 = 25 + 36. This can't be.",
        "60 = 25 + 36. But 61 \u2260 60.",
        "60 = 25 + 36. Wait, it is 61.",
        "60 = 25 + 36. There is no such triangle.",
        "Check: 25 + 36 = 60",
        "Check:\n\\[ 25 + 36 = 60 \\]",
        "Let's try it: 25 + 36 = 60",
        "Testing 5, 25 + 36 = 60",
        "Let's see if 25 + 36 = 60.",
        "If it is right\n\\[ 25 + 36 = 60 \\]",
        "For x = 1:\n\\[\n1 = 3 + 4\n\\]\n\\[\n1 = 7x\n\\]\nSo x = 1 is not a solution.",
        "\\[\n1 = \\sqrt{9} + 4\n\\]\n\\[\n1 = 3 + 4\n\\]\n\\[\n1 \\neq 7\n\\]",
    ],
)
def test_what_is_tried_or_taken_back_is_no_claim(text: str) -> None:
    """A step may try something out, and may say in the next sentence that it is false."""
    assert [claim for claim in find_claims(text) if not claim.holds] == []


@pytest.mark.parametrize(
    "text",
    [
        "25 + 36 = 60. The answer is 60.",
        "25 + 36 = 60. No apples are left.",
        "25 + 36 = 60. The answer is 60. That is not 61.",
        "That is not right. 25 + 36 = 60.",
        "25 + 36 = 60, as a check tells.",
        "On the second test she had 25 + 36 = 60 points.",
        "# Check\n25 + 36 = 60",
    ],
)
def test_what_is_stated_beside_a_denial_is_a_claim(text: str) -> None:
    """Only what a sentence or the next one is about is taken back."""
    assert [claim.holds for claim in find_claims(text)] == [False]


def test_a_running_total_may_stand_in_a_chain() -> None:
    """3 * 4 = 12 + 5 = 17 is how people write; 18 at its end is still wrong."""
    assert all(claim.holds for claim in find_claims("3 * 4 = 12 + 5 = 17"))
    assert all(claim.holds for claim in find_claims("10 + 7 = 12 + 5 - 3 = 14"))
    assert [claim.holds for claim in find_claims("3 * 4 = 12 + 5 = 18")] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "The trip takes 150 / 60 = 2 hours and 30 minutes.",
        r"\frac{150}{60} = 2 hours 30 minutes",
        "65 / 12 = 5 feet 5 inches",
        "365/7 = 52 weeks and 1 day",
        "130 / 100 = 1 dollar and 30 cents",
        "23 / 4 = 5 boxes, 3 eggs",
    ],
)
def test_a_quotient_in_two_units_or_without_its_rest_is_not_false(text: str) -> None:
    assert all(claim.holds for claim in find_claims(text))


@pytest.mark.parametrize(
    "text",
    [
        "12 + 15 = **28**",
        "12 / 4 = 5 apples.",
        "3 * 4 = 13 apples and 5 pears",
        "12 / 4 = 5 apples, 3 more",
        "48 / 2 = 25 clips and 48 clips",
        "100 - 60/2 = 60 dollars and 5 cents",
        "A complete answer: 11 / 2 = 5",
    ],
)
def test_what_is_said_in_bold_or_of_one_unit_is_checked(text: str) -> None:
    assert any(not claim.holds for claim in find_claims(text))
