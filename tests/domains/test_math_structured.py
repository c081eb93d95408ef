"""Structured moves: what a JSON object may say, and what the gates refuse."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from gated_walks import GatedWalks
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains.math_structured import Answer, Compute, MathStructured
from selverify.errors import ProtocolError, SchemaError
from selverify.search.gates import reject
from selverify.types import Malformed, Move

DOMAIN = MathStructured()
TEXT = r"In triangle ABC the side AB is 2.75 and $f(x) = mx + b_1$. What is its height h?"
WALKS = GatedWalks(DOMAIN, TEXT)
start, after, why = WALKS.start, WALKS.after, WALKS.why
SECONDS = 0.05


def line(op: str, **args: object) -> str:
    """A move's text."""
    return json.dumps({"op": op, "args": args})


def define(symbol: str, meaning: str = "a number") -> str:
    return line("define", symbol=symbol, meaning=meaning)


def bind(symbol: str, value: str, because: str = "so it is told") -> str:
    return line("bind", symbol=symbol, because=because, value=value)


def compute(symbol: str, expression: str, value: str, because: str = "in all") -> str:
    return line("compute", symbol=symbol, because=because, expression=expression, value=value)


def derive(equation: str, *premises: int, because: str = "it follows") -> str:
    return line("derive", premises=premises, because=because, equation=equation)


def require(symbol: str, condition: str) -> str:
    return line("require", symbol=symbol, condition=condition)


def bound(symbol: str, relation: str, value: str) -> str:
    return line("bound", symbol=symbol, relation=relation, value=value)


def answer(symbol: str, value: str) -> str:
    return line("answer", symbol=symbol, value=value)


def test_equal_moves_have_equal_texts() -> None:
    """Whatever the order of the keys, the white space, or a code fence around the object."""
    canonical = compute("n", "48/2", "24", "half of 48")
    again = """```json
    {"args": {"value": "24", "expression": "48/2",
              "because": "half  of 48 ", "symbol": "n"}, "op": "compute"}
    ```"""
    first, second = DOMAIN.parse(canonical), DOMAIN.parse(again)
    assert isinstance(first, Move) and first == second
    assert first.text == canonical
    assert first.args == Compute(symbol="n", because="half of 48", expression="48/2", value="24")


@pytest.mark.parametrize(
    "written", [r"\frac{1}{2} \times \text{x}", r"90^\circ", r"(0,1) \cup \{2\}"]
)
def test_latex_needs_no_second_backslash(written: str) -> None:
    """Models forget it; both spellings are one move, and its text is JSON."""
    forgotten = DOMAIN.parse(f'{{"op": "answer", "args": {{"symbol": "h", "value": "{written}"}}}}')
    assert isinstance(forgotten, Move) and isinstance(forgotten.args, Answer)
    assert forgotten.args.value == written
    assert forgotten == DOMAIN.parse(answer("h", written)) == DOMAIN.parse(forgotten.text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: Expecting value"),
        ("half of 48 is 24", "not JSON: Expecting value"),
        ("Here it is: " + answer("h", "1"), "not JSON: Expecting value"),
        (answer("h", "1") + answer("h", "2"), "not JSON: Extra data"),
        ("[]", "expected one object with the keys op and args"),
        ('{"op": "answer"}', "expected one object with the keys op and args"),
        (line("guess", value="1"), "unknown op: 'guess', expected one of define"),
        ('{"op": ["answer"], "args": {}}', "unknown op: \"['answer']\", expected one of define"),
        (line("answer", symbol="h"), "missing: value: Field required"),
        (line("answer", symbol="h", value="1", sure="yes"), "extra forbidden: sure: Extra inputs"),
        (line("answer", symbol="h", value=""), "too short: value: Value should have at least 1"),
        (line("answer", symbol="h", value=1), "string type: value: Input should be a valid string"),
        (
            line("answer", symbol="2h", value="1"),
            "string pattern mismatch: symbol: String should match pattern",
        ),
        (
            line("answer", symbol="h\n", value="1"),
            "string pattern mismatch: symbol: String should match pattern",
        ),
        (
            line("answer", symbol="h", value="1\x00"),
            "value error: value: Value error, control characters",
        ),
        (
            line("answer", symbol="h", value="1" * 301),
            "too long: value: Value should have at most 300",
        ),
        (require("n", "big"), "literal error: condition: Input should be 'integer', 'even'"),
        (
            derive("x = 1", 0),
            "greater than equal: premises.0: Input should be greater than or equal to 1",
        ),
        ('{"op": "answer", "op": "answer", "args": {}}', "a key stands twice"),
        ('{"op": "answer", "args": {"symbol": "h", "value": NaN}}', "a number: NaN"),
        ('{"op": "answer", "args": {"symbol": "h", "value": -Infinity}}', "a number: -Infinity"),
        ('{"op": "answer", "args": {"symbol": "h", "value": 1e999}}', "a number: 1e999"),
        ('{"op": "derive", "args": {"premises": [' + "9" * 50 + "]}}", "a number: 9999"),
        ('{"op": "answer", "args": "\\ud800"}', "json invalid: : Invalid JSON"),
        (
            line("answer", **{f"k{n}": "v" for n in range(9)}),
            "too many keys: 9, expected at most 8",
        ),
        (line("answer", symbol=[[["h"]]]), "nested deeper than 3"),
        (answer("h", "1" * 4_000), "longer than 4000 characters"),
    ],
)
def test_what_is_no_move(text: str, reason: str) -> None:
    """Each with a reason that names what was found."""
    candidate = DOMAIN.parse(text)
    assert isinstance(candidate, Malformed)
    assert candidate.reason.startswith(reason)


PRELUDE = (
    define("n", "pens"),
    require("n", "integer"),
    bind("n", "24"),
    bind("zero", "0"),
    bind("third", "1/3"),
    bound("d", "<=", "n/2"),
    require("d", "even"),
    compute("r", "10/3", "3.33"),
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (bind("n", "24"), "structural: repeats an earlier move"),
        (define("n", "pencils"), "structural: defined already: n"),
        (derive("k = 2", 3, 9), "structural: scope: line 9 is not written yet"),
        (compute("k", "n + pence", "26"), "structural: scope: pence is not introduced"),
        (compute("k", "2*(n - q)", "26"), "structural: scope: q is not introduced"),
        (bind("k", "pence/2"), "structural: scope: pence is not introduced"),
        (compute("k", "n/2", "13"), "context: arithmetic: n/2 is not 13"),
        (compute("k", "third*9 + n", "26"), "context: arithmetic: third*9 + n is not 26"),
        (compute("k", r"\frac{48}{2}", "25"), r"context: arithmetic: \frac{48}{2} is not 25"),
        (compute("k", "sqrt(n + 1)", "6"), "context: arithmetic: sqrt(n + 1) is not 6"),
        (compute("k", "n/zero", "0"), "context: arithmetic: n/zero divides by zero"),
        (compute("k", "b_1/(n - 24)", "3"), "context: arithmetic: b_1/(n - 24) divides by zero"),
        (bind("k", "1/zero"), "context: arithmetic: 1/zero divides by zero"),
        (derive("n + 2*n = 70"), "context: arithmetic: n + 2*n is not 70"),
        (derive("x = 5 + 2 = 8"), "context: arithmetic: 5 + 2 is not 8"),
        (bind("n", "25"), "context: binding: n is 24, not 25"),
        (compute("n", "20 + 6", "26"), "context: binding: n is 24, not 26"),
        (answer("n", "25"), "context: binding: n is 24, not 25"),
        (bind("d", "7"), "context: condition: d is 7, expected even"),
        (compute("d", "n - 10", "14"), "context: condition: d is 14, expected <= 12"),
        (bind("d", "3.7"), "context: condition: d is 37/10, expected even"),
        (answer("d", "7"), "context: condition: d is 7, expected even"),
        (require("n", "odd"), "context: condition: n is 24, expected odd"),
        (bound("n", ">", "24"), "context: condition: n is 24, expected > 24"),
        (bound("zero", "!=", "0"), "context: condition: zero is 0, expected != 0"),
    ],
)
def test_what_the_gates_refuse(text: str, reason: str) -> None:
    """Each with a reason that a reader understands."""
    assert why(after(*PRELUDE), text) == reason


@pytest.mark.parametrize(
    "text",
    [
        compute("k", "n/2", "12"),
        compute("k", "n/2", "12 pens"),
        compute("k", "5 m/s * 2 s", "10"),
        compute("k", "f(2)", "7"),
        compute("k", "2n", "47"),
        compute("k", "AB*h", "33"),
        compute("k", "m*x + b_1 + b1", "4"),
        compute("k", "pi*n^2", "1809.56"),
        compute("k", "r*3", "10"),
        compute("k", "1/3", "0.33"),
        compute("k", "n/5", "5", "whole boxes, so round up"),
        compute("k", "1234", "1200", "rounded to hundreds"),
        compute("k", "7 + 5", "15", "the units digit in base 7"),
        compute("k", "n/5", "4", "suppose that nothing is left"),
        compute("k", "20% * 50", "10"),
        compute("k", "1/zero", "undefined"),
        compute("k", "(x-2)*(x-t)", "x^2"),
        compute("k", "n/(zero)^zero", "24"),
        compute("k", "n/", "3"),
        compute("k", "***", "3"),
        bind("k", "z^2 - 5*z + 6"),
        bind("k", "a_k + c_k"),
        bind("k", "north-west"),
        bind("k", "Tuesday or Friday"),
        bind("k", "60 km/h"),
        bind("k", "n"),
        bind("third", "0.33"),
        bind("n", "12", "if we try the second case"),
        bind("r", "3"),
        derive("x = 3 or x = -3"),
        derive("n = -24"),
        derive("0 = 5"),
        derive("n != 5 + 2"),
        derive("2*n = 50", because="this is false, so there is no solution"),
        derive("x^2 + 2*x = 15", 1),
        derive("17 = 2 mod 5"),
        derive("= ="),
        require("zero", "nonnegative"),
        require("third", "positive"),
        bound("n", "<", "t"),
        answer("third", r"\frac{1}{3}"),
        answer("third", "33.3"),
        answer("third", "33"),
        answer("n", "24 pens"),
        answer("unknown", "7"),
        answer("d", r"\text{even}"),
    ],
)
def test_what_cannot_be_decided_passes(text: str) -> None:
    """Units, functions, words, roundings, suppositions, other roots, shares as percentages."""
    assert why(after(*PRELUDE), text) is None


@pytest.mark.parametrize(
    "problem", ["What is 7 + 5 in base 8?", "Let $a * b = ab + 1$. What is 7 * 5?", "Find 12_8."]
)
def test_values_are_not_judged_where_arithmetic_may_be_another(problem: str) -> None:
    """A base, a modulus, or an operation that the problem defines."""
    assert why(start(problem), compute("k", "7 + 5", "14")) is None
    assert why(start("What is 7 + 5?"), compute("k", "7 + 5", "14")) is not None


def test_a_rounded_value_is_not_calculated_with() -> None:
    """Neither is one that two moves round differently; a decimal of the problem is exact."""
    assert why(after(bind("r", "3.33")), compute("k", "r*300", "1000")) is None
    assert why(after(bind("r", "10/3"), bind("r", "4")), compute("k", "r*6", "24")) is None
    twice = after(bind("r", "7"), bind("r", "10", "rounded to tens"))
    assert why(twice, compute("k", "r*6", "60")) is None
    assert why(after(bind("r", "2.75")), compute("k", "r*4", "12")) is not None
    assert why(after(bind("r", "2.7")), compute("k", "r*4", "11")) is None


def test_names_of_an_equation_may_be_used() -> None:
    """Also those written together."""
    assert why(after(derive("vt = s")), compute("k", "v*t + s", "4")) is None
    assert why(start(), compute("k", "v*t + s", "4")) is not None


def test_a_state_with_an_answer_is_final() -> None:
    """The answer stands, and the text so far is the problem and one line a move."""
    texts = (bind("h", "3"), answer("h", "3"))
    state = after(*texts)
    assert not DOMAIN.is_final(start()) and DOMAIN.answer(start()) is None
    assert DOMAIN.is_final(state) and DOMAIN.answer(state) == "3"
    assert DOMAIN.serialise(state) == "\n".join((TEXT, *texts))
    assert not DOMAIN.checks_answers()
    assert DOMAIN.pattern(state, state.derivation[0]) is None
    assert DOMAIN.instantiate(state, "") == ()


def test_a_problem_has_text_and_its_last_sentence_is_its_goal() -> None:
    """An empty one is refused."""
    problem = DOMAIN.read(TEXT, problem_id="p")
    assert (problem.domain, problem.goal) == ("math_structured", "What is its height h?")
    with pytest.raises(SchemaError, match="p: given a problem of 0 characters"):
        DOMAIN.read(" ", problem_id="p")


def test_another_domains_context_is_refused() -> None:
    """The message names what was given and what was expected."""
    with pytest.raises(ProtocolError, match="p: given a context str, expected Facts"):
        DOMAIN.is_final(replace(start(), context="l"))


NAMES = ("a", "bc", "d_1")
WHOLE = st.integers(-60, 60)
SIGNS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else None,
}


@st.composite
def calculations(draw: st.DrawFn) -> tuple[dict[str, Fraction], str, Fraction | None]:
    """Values of names, a bracketed expression over them, and its value by Python's fractions."""
    known = {name: Fraction(draw(WHOLE), draw(st.integers(1, 9))) for name in NAMES}

    def expression(depth: int) -> tuple[str, Fraction | None]:
        if not depth or draw(st.booleans()):
            name = draw(st.sampled_from(NAMES))
            return name, known[name]
        sign = draw(st.sampled_from(sorted(SIGNS)))
        (left, one), (right, other) = expression(depth - 1), expression(depth - 1)
        defined = one is not None and other is not None
        return f"({left} {sign} {right})", SIGNS[sign](one, other) if defined else None

    return known, *expression(3)


@given(calculations(), st.fractions(-9, 9, max_denominator=9))
@settings(deadline=None)
def test_exactly_the_false_calculations_are_refused(
    drawn: tuple[dict[str, Fraction], str, Fraction | None], error: Fraction
) -> None:
    """A computed value over bound symbols passes if and only if Python's fractions agree."""
    known, expression, value = drawn
    state = after(*(bind(name, str(one)) for name, one in known.items()))
    claimed = str((value or 0) + error)
    right = value is not None and not error
    assert (why(state, compute("k", expression, claimed)) is None) == right


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        ("integer", lambda value: value.denominator == 1),
        ("even", lambda value: value.denominator == 1 and value % 2 == 0),
        ("odd", lambda value: value.denominator == 1 and value % 2 == 1),
        ("positive", lambda value: value > 0),
        ("negative", lambda value: value < 0),
        ("nonnegative", lambda value: value >= 0),
        ("nonzero", lambda value: value != 0),
    ],
)
@given(value=st.fractions(-5, 5, max_denominator=3))
@settings(deadline=None)
def test_a_condition_refuses_exactly_the_values_that_miss_it(
    condition: str, meets: Any, value: Fraction
) -> None:
    """Whichever of the two is stated first."""
    pair = (require("k", condition), bind("k", str(value)))
    for first, second in (pair, pair[::-1]):
        assert (why(after(first), second) is None) == meets(value)


@pytest.mark.parametrize(
    ("relation", "meets"),
    [
        ("<", lambda value, limit: value < limit),
        ("<=", lambda value, limit: value <= limit),
        (">", lambda value, limit: value > limit),
        (">=", lambda value, limit: value >= limit),
        ("!=", lambda value, limit: value != limit),
    ],
)
@given(value=st.integers(-3, 3), limit=st.integers(-3, 3))
@settings(deadline=None)
def test_a_bound_refuses_exactly_the_values_beyond_it(
    relation: str, meets: Any, value: int, limit: int
) -> None:
    """Whichever of the two is stated first."""
    pair = (bound("k", relation, str(limit)), bind("k", str(value)))
    for first, second in (pair, pair[::-1]):
        assert (why(after(first), second) is None) == meets(value, limit)


@pytest.mark.parametrize(
    "text",
    [
        "```" * 1_300,
        '{"op": "derive", "args": {"premises": [' + "9" * 3_900 + "]}}",
        '{"op": "derive", "args": {"premises": [' + "1," * 1_900 + "1]}}",
        "{" + ",".join(f'"{n}":1' for n in range(450)) + "}",
        compute("k", "(" * 300, "1"),
        compute("k", "20%+" * 74 + "1", "1"),
        compute("k", "(1+20%)/" * 37 + "1", "1"),
        bind("k", "1/" * 149 + "1"),
        derive("=" * 300),
        derive("1+1=" * 74),
        derive("\\text{" * 60),
    ],
)
def test_hostile_text_is_settled_at_once(text: str) -> None:
    """Parsed, gated and applied; also as much of it as the cap on length lets in."""
    state = after(*PRELUDE)
    for part in (text, text[:4_000]):
        began = time.process_time()
        candidate = DOMAIN.parse(part)
        reject(DOMAIN, state, candidate=candidate)
        if isinstance(candidate, Move):
            DOMAIN.apply(state, candidate)
        assert time.process_time() - began < SECONDS
