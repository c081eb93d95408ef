"""What algebra says of two answers, and that what is faster says the same."""

import time
from typing import Any

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from selverify.data import algebra
from selverify.data.algebra import compare_with_math_verify

READ_AT_ONCE = (r"\frac{1}{2}", r"(0,9) \cup (9,36)", r"1 < x \le 2", r"\sqrt[3]{x} + y")
READ_IN_CONTEXT = (
    r"x^3+3x-6",
    r"\frac{5(a^2 + b^2 + c^2 - 3R^2)}{4}",
    r"\left[ \frac{\pi^2}{8}, \frac{5 \pi^2}{4} \right]",
    "F_{85}",
)
NOT_READ = (r"x +", r"\frac{1}{", "x ; # y", "2 \N{SNOWMAN}", "")


@pytest.fixture
def reader() -> Any:
    """The module whose parser reads in two stages."""
    algebra.load_backend()
    from latex2sympy2_extended import latex2sympy2

    return latex2sympy2


def expression(reader: Any, text: str) -> str | None:
    """What is read in ``text``; None where that is an error."""
    try:
        return str(sympy.srepr(reader.latex2sympy(text)))
    except Exception:
        return None


@pytest.mark.parametrize("text", [*READ_AT_ONCE, *READ_IN_CONTEXT, *NOT_READ])
def test_two_stages_read_what_one_does(
    text: str, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = expression(reader, text)
    monkeypatch.setattr(reader, "PSParser", reader.PSParser.__base__)
    assert reader.PSParser.__module__.startswith("latex2sympy2_extended")
    assert found == expression(reader, text)
    assert (found is None) == (text in NOT_READ)


def test_the_second_stage_is_asked_only_where_the_first_errs(
    reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[Any] = []
    reset = reader.PSParser.reset
    monkeypatch.setattr(
        reader.PSParser, "reset", lambda parser: (resets.append(parser), reset(parser))
    )
    for text in (*READ_AT_ONCE, *READ_IN_CONTEXT):
        resets.clear()
        assert expression(reader, text)
        assert len(resets) == 1 + (text in READ_IN_CONTEXT), text  # one to begin with


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"\frac{1}{2}", "0.5", "correct"),
        ("10", "10%", "correct"),
        ("10", r"10 cm^2", "correct"),
        ("1000", "1 000", "correct"),
        (r"x \geq 5", "$x >= 5$", "correct"),
        (r"74^\circ", "74°", "correct"),
        ("no solution", "No Solution.", "correct"),
        ("2", r"2\pi", "wrong"),
        ("3", "3x", "wrong"),
        ("4", r"4\sqrt{3}", "wrong"),
        ("7", "7i", "wrong"),
        ("3", "n=3k", "wrong"),
        ("5", "6 or 5", "wrong"),
        ("5", "between 3 and 5", "wrong"),
        ("3", "3 dozen", "wrong"),
        ("1", "1e5", "wrong"),
    ],
)
def test_math_verify_on_bare_answers_and_prose(gold: str, answer: str, status: str) -> None:
    """What is put in dollars, what is read as plain text, and what only looks like the number."""
    found = compare_with_math_verify(gold, answer)
    assert found == status or (status == "wrong" and found == "unparsed")


def test_numbers_that_are_far_apart_need_no_algebra() -> None:
    """To simplify their difference takes sympy minutes."""
    began = time.perf_counter()
    assert compare_with_math_verify(r"-\sqrt{3}", r"\sin(80) (4 \cos 80 - 1)") == "wrong"
    assert time.perf_counter() - began < 10


@pytest.fixture
def without_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Math-Verify compares nothing."""

    def fail(*_: Any, **__: Any) -> bool:
        raise AssertionError("Math-Verify was asked")

    monkeypatch.setattr("math_verify.verify", fail)


@pytest.mark.usefixtures("without_algebra")
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("3R^2", r"\frac{5(a^2 + b^2 + c^2 - 3R^2)}{4}"),
        ("8n^2 + 4n + 1", "8n^2 + 4n + 2"),
        (r"\cot x", r"\frac{1 - \sin x}{\cos x \sin x}"),
        (r"\frac{1}{2}", r"\frac{k^2}{4(k+1)^2}"),
        ("6 - 5i", "2 - 3i"),
        ("2x", "2y"),
    ],
)
def test_expressions_that_are_far_apart_need_no_algebra(gold: str, answer: str) -> None:
    assert compare_with_math_verify(gold, answer) == "wrong"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("(x-1)^{30}", sympy.latex(sympy.expand((sympy.Symbol("x") - 1) ** 30))),
        (r"\sin^2 x", r"1 - \cos^2 x"),
        (r"\frac{x^2-1}{x-1}", "x + 1"),
        (r"\sqrt{x + 1}^2", "x + 1"),
        ("ab", "ba"),
        (r"\text{east}", "east"),
        ("2^{n}n!", r"n! \cdot 2^n"),
        ("x = 2y", "2y"),
    ],
)
def test_expressions_that_are_equal_everywhere_are_not_far_apart(gold: str, answer: str) -> None:
    assert compare_with_math_verify(gold, answer) == "correct"


@given(st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=3), min_size=2, max_size=2))
@settings(max_examples=20)
def test_a_product_equals_its_expansion_and_nothing_else(factors: list[list[int]]) -> None:
    x = sympy.Symbol("x")
    polynomials = [sum(c * x**power for power, c in enumerate(factor)) for factor in factors]
    product = sympy.latex(sympy.Mul(*polynomials, evaluate=False))
    expanded = sympy.expand(sympy.Mul(*polynomials))
    assume(not expanded.is_Symbol)  # Math-Verify takes x \cdot 1 for something else than x
    assert compare_with_math_verify(product, sympy.latex(expanded)) == "correct"
    assert compare_with_math_verify(product, sympy.latex(expanded + 1)) == "wrong"


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"\sqrt{3}", r"4 \cos 50^\circ - \tan 40^\circ", "correct"),
        (r"-\sqrt{3}", r"\frac{\sin 80^\circ (4 \cos 80^\circ - 1)}{\cos 80^\circ}", "correct"),
        (r"-\sqrt{3}", r"\sin 80^\circ (4 \cos 80^\circ - 1)", "wrong"),
        (r"\frac{1}{2}", r"\sin\left(30^{\circ}\right)", "correct"),
        (r"\frac{1}{4}", "\\sin^2 30\N{DEGREE SIGN}", "correct"),
        (r"\frac{1}{2}", r"\sin(30)", "wrong"),
        # What is not read in radians is still read as without the sign, on both sides.
        (r"\sin 20^\circ", r"\sin{20^\circ}", "correct"),
        (r"\tan 22.5^\circ", r"\tan\frac{45^\circ}{2}", "correct"),
        (r"-\sin 30^\circ", r"\sin(-30^\circ)", "correct"),
        (r"\sin 20^\circ", r"\sin 20", "correct"),
    ],
)
def test_an_angle_in_degrees_is_one(gold: str, answer: str, status: str) -> None:
    assert compare_with_math_verify(gold, answer) == status


@pytest.mark.parametrize(
    ("gold", "answer", "status"),
    [
        (r"$3\pi$%", r"$3\pi$", "correct"),
        ("The answer is 50%", "the total is 50", "correct"),
        (
            r"\int_{-\infty}^{\infty}\frac{\cos x}{1+x^2}dx",
            r"\int_{-\infty}^{\infty} \frac{\cos(x)}{1+x^{2}} \, dx",
            "correct",
        ),
    ],
)
def test_the_value_of_a_number_decides_only_where_it_is_sure(
    gold: str, answer: str, status: str
) -> None:
    """Equal texts are equal, with a percent sign or without; integrals are left to Math-Verify."""
    assert compare_with_math_verify(gold, answer) == status


def test_what_could_not_be_read_once_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was short of memory for a gold does not call all later answers wrong."""
    monkeypatch.setattr("math_verify.parse", lambda side, **_: [side])
    assert compare_with_math_verify(r"\sqrt{72}", r"\sqrt{2}\cdot 6") == "wrong"
    monkeypatch.undo()
    assert compare_with_math_verify(r"\sqrt{72}", r"\sqrt{2}\cdot 6") == "correct"
