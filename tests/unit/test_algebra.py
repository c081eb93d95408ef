"""Algebra: hand-made cases for gates and truth, and two exact logics as each other's test."""

import random
import time
from dataclasses import replace

import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from selverify.domains.algebra import LARGEST, SMALLEST, Algebra
from selverify.domains.algebra_equations import (
    LABELS,
    NUMBERS,
    PLAIN,
    PRODUCT,
    QUOTIENT,
    UNKNOWNS,
    Equation,
    Sum,
    asked_value,
    make_sum,
    read_told,
    valid,
)
from selverify.domains.algebra_logic import BY_ARITHMETIC, BY_SYMPY, binding
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.gates import reject
from selverify.types import Malformed, Move, Problem, State, Truth

DOMAIN = Algebra()
SEEDS = st.integers(0, 2**32)

LINEAR = "e1 : 5 x + 4 = 2 x + 19 . x is odd . x is below 9 . find x ."
PRODUCT_TEXT = "e1 : 5 x + 4 = 3 ( 1 x + 6 ) . find x ."
SYSTEM = "e1 : 2 x + 3 y = 9 . e2 : 4 x + -3 y = 9 . y is positive . find x - y ."
ROOTS = "e1 : 1 xx + -2 x = 3 . x is positive . find x ."
FRACTION = "e1 : ( 1 xx + 2 x + -15 ) / ( 1 x + -3 ) = 4 . find x ."

SUM = "add e1 e2 as e3 : 6 x = 9 + 9 = 18 ;"
OF_SYSTEM = (SUM, "solve e3 : x = 18 / 6 = 3 ;")
SYSTEM_END = (
    "put x in e1 as e4 : 9 = 3 y + 2 * 3 = 6 ;",
    "collect e4 as e5 : 3 y = 9 - 6 = 3 ;",
    "solve e5 : y = 3 / 3 = 1 ;",
    "answer 2 ;",
)
OF_FRACTION = (
    "expand e1 as e2 : 1 xx + 2 x + -15 = 4 x + 4 * -3 = -12 ;",
    "collect e2 as e3 : 1 xx + -2 x = -12 - -15 = 3 ;",
    "roots e3 : sum 2 product -3 so -1 or 3 ;",
)
FRACTION_END = ("drop 3 : x is not 3 ;", "x = -1 ;", "answer -1 ;")


def move(text: str) -> Move:
    parsed = DOMAIN.parse(text)
    assert isinstance(parsed, Move), parsed
    return parsed


def after(problem: str, *texts: str) -> State:
    state = DOMAIN.initial_state(DOMAIN.read(problem, problem_id="p"), budget=9)
    for text in texts:
        state = DOMAIN.apply(state, move(text))
    return state


def truth(answer: int, **values: int) -> Truth:
    pairs = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return Truth("p", str(answer), f'{{"values": {{{pairs}}}}}')


def draw(seed: int, minimum: int = SMALLEST, maximum: int = LARGEST) -> tuple[Problem, Truth]:
    rng = random.Random(seed)
    return DOMAIN.generate(rng, problem_id="p", minimum=minimum, maximum=maximum)


def solve(problem: Problem, fact: Truth, seed: int) -> tuple[Move, ...]:
    return DOMAIN.solution(problem, fact, random.Random(seed))


# The text of problems.


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_problem_is_read_from_its_words_alone(seed: int) -> None:
    """Text and goal come back; the goal is what the text says beside its equations."""
    problem, _ = draw(seed)
    assert DOMAIN.read(problem.text, problem_id="p") == problem
    assert problem.text.endswith(problem.goal)
    assert "e1" not in problem.goal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "find x .",
        "e1 : 5 x = 10 .",
        "e1 : 5 x = 10 . find y .",
        "e1 : 5 x = 10 . find x",
        "e1 : 5 x = 10 . find x . find x .",
        "e2 : 5 x = 10 . find x .",
        "e1 : 5 x = 10 = 10 . find x .",
        "e1 : 5 = 10 . find x .",
        "e1 : 5 x + 5 x = 10 . find x .",
        "e1 : 4 + 5 x + = 10 . find x .",
        "e1 : 0 x = 10 . find x .",
        "e1 : 5 x = 201 . find x .",
        "e1 : 5 x = 010 . find x .",
        "e1 : 1 xx + 1 y = 10 . find x .",
        "e1 : 1 x + 1 y + 1 z = 10 . find x .",
        "e1 : 1 x + 1 y = 10 . e2 : 1 z = 3 . find x .",
        "e1 : 1 x = 1 . e2 : 1 x = 1 . e3 : 1 x = 1 . find x .",
        "e1 : 5 x = 3 ( 2 x + 1 ) . find x .",
        "e1 : 5 x = 3 ( 1 y + 1 ) . find x .",
        "e1 : ( 5 x ) / ( 1 xx + 1 ) = 3 . find x .",
        "e1 : ( 5 x ) / ( 1 x + 1 ) = 1 x . find x .",
        "e1 : 5 x / 1 x = 3 . find x .",
        "e1 : 5 x = 10 . x is . find x .",
        "e1 : 5 x = 10 . x is prime . find x .",
        "e1 : 5 x = 10 . x is above . find x .",
        "e1 : 5 x = 10 . y is even . find x .",
        "e1 : 5 x = 10 . x is even 2 . find x .",
        "e1 : 5 x = 10 . find x + x .",
        "e1 : 5 x = 10 . find x / y .",
        "e1 : 5 x = 10 .  find x .",
        "e1 : 5 x = 10 . x is even . " + "x is even . " * 1_000 + "find x .",
        "use 4 7 8 8 to make 24 .",
        "a" * 1_000_000,
    ],
)
def test_a_text_of_something_else_is_refused(text: str) -> None:
    """The error names the problem, the text's beginning and a text that can be read."""
    with pytest.raises(SchemaError, match=r"p: given the text .*, expected one like 'e1 : ") as one:
        DOMAIN.read(text, problem_id="p")
    assert len(str(one.value)) < 1_000


def test_a_denominator_is_a_constraint() -> None:
    """What makes it zero is no root, though no sentence says so."""
    told = read_told(FRACTION)
    assert told is not None
    assert [str(one) for one in told.constraints] == ["x is not 3"]
    assert told.goal == "find x ."


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("positive", {1, 2, 3}),
        ("negative", {-3, -2, -1}),
        ("even", {-2, 0, 2}),
        ("odd", {-3, -1, 1, 3}),
        ("above 1", {2, 3}),
        ("below 1", {-3, -2, -1, 0}),
        ("not 1", {-3, -2, -1, 0, 2, 3}),
    ],
)
def test_constraints(kind: str, allowed: set[int]) -> None:
    """Zero is even and has no sign; bounds are strict."""
    told = read_told(f"e1 : 1 x = 1 . x is {kind} . find x .")
    assert told is not None
    assert {value for value in range(-3, 4) if told.constraints[0].allows(value)} == allowed


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SYSTEM, SYSTEM.replace("x", "z"), True),
        (SYSTEM, SYSTEM.replace("find x - y", "find y - x"), False),
        (SYSTEM, SYSTEM.replace("find x - y", "find x + y"), False),
        (
            "e1 : 2 x + 3 y = 9 . e2 : 4 x + -3 y = 9 . find x + y .",
            "e1 : -3 x + 4 y = 9 . e2 : 9 = 3 x + 2 y . find y + x .",
            True,
        ),
        (LINEAR, LINEAR.replace("x is odd . x is below 9", "x is below 9 . x is odd"), True),
        (LINEAR, LINEAR.replace("x is odd . ", ""), False),
        (LINEAR, "e1 : 2 y + 19 = 5 y + 4 . y is odd . y is below 9 . find y .", True),
        (LINEAR, LINEAR.replace("19", "18"), False),
        (ROOTS, ROOTS.replace("xx", "yy").replace("x ", "y "), True),
        (PRODUCT_TEXT, "e1 : 5 x + 4 = 3 x + 18 . find x .", False),
    ],
)
def test_fingerprints(one: str, other: str, same: bool) -> None:
    """Names, the order of sentences and the sides of a plain equation do not make a new problem."""
    prints = [DOMAIN.fingerprint(DOMAIN.read(text, problem_id=text)) for text in (one, other)]
    assert (prints[0] == prints[1]) is same


# Problems and derivations drawn at random.


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_the_truth_is_the_only_solution_that_sympy_finds(seed: int) -> None:
    """The values solve the equations and satisfy what is told, and no others do."""
    problem, fact = draw(seed)
    told = read_told(problem.text)
    assert told is not None
    names = sorted(told.equations[0].unknowns)
    symbols = [sympy.Symbol(name) for name in names]
    found = sympy.solve([expression(one) for one in told.equations], symbols, dict=True)
    places = [{str(name): int(value) for name, value in place.items()} for place in found]
    kept = [
        place for place in places if all(one.allows(place[one.unknown]) for one in told.constraints)
    ]
    assert len(kept) == 1
    assert str(asked_value(told.asked, kept[0])) == fact.answer


def expression(equation: Equation) -> sympy.Expr:
    """The equation's difference as sympy writes it, brackets and denominators as they stand."""
    left, right = (
        sum(
            (number * sympy.Symbol(name[:1]) ** len(name) if name else number)
            for name, number in side.terms
        )
        for side in (equation.left, equation.right)
    )
    if equation.form == QUOTIENT:
        return left / right - equation.factor
    return left - equation.factor * right


@pytest.mark.parametrize("size", range(SMALLEST, LARGEST + 1))
def test_the_size_is_the_length_of_the_shortest_derivation(size: int) -> None:
    """Over many orders of solving, none is shorter and one is as short."""
    for seed in range(25):
        problem, fact = draw(seed, size, size)
        lengths = {len(solve(problem, fact, order)) for order in range(12)}
        assert min(lengths) == size


def test_every_size_in_the_range_and_every_family_is_drawn() -> None:
    """Sizes stay within the bounds; systems, quotients, products and squares all turn up."""
    drawn = [draw(seed, 3, 7) for seed in range(150)]
    texts = " ".join(problem.text for problem, _ in drawn)
    assert all(word in texts.split() for word in ("e2", "/", "xx", "even", "above", "negative"))
    assert any("= 3 (" in problem.text for problem, _ in drawn)
    assert {len(solve(problem, fact, 0)) for problem, fact in drawn} == set(range(3, 9))


@pytest.mark.parametrize(("minimum", "maximum"), [(1, 4), (4, 3), (4, 9)])
def test_sizes_that_no_problem_has_are_refused(minimum: int, maximum: int) -> None:
    """The message names both sizes."""
    with pytest.raises(ParamsError, match=f"minimum {minimum} and maximum {maximum}"):
        draw(0, minimum, maximum)


def test_a_derivation_has_several_orders() -> None:
    """The unknown that is eliminated, what it is put in and which side gathers terms are drawn."""
    problem = DOMAIN.read(SYSTEM, problem_id="p")
    texts = {
        " ".join(one.text for one in solve(problem, truth(2, x=3, y=1), seed)) for seed in range(60)
    }
    assert len(texts) == 8
    linear = DOMAIN.read(LINEAR, problem_id="p")
    firsts = {solve(linear, truth(5, x=5), seed)[0].text for seed in range(20)}
    assert firsts == {
        "collect e1 as e2 : 3 x = 19 - 4 = 15 ;",
        "collect e1 as e2 : -3 x = 4 - 19 = -15 ;",
    }


# Moves as text.


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (
            "collect e2 as e3 : -2 x + 1 xx = -12 - -15 = 3 ;",
            "collect e2 as e3 : 1 xx + -2 x = -12 - -15 = 3 ;",
        ),
        ("roots e3 : sum 2 product -3 so 3 or -1 ;", "roots e3 : sum 2 product -3 so -1 or 3 ;"),
        ("  answer\t3 ; ", "answer 3 ;"),
        (
            "put x in e1 as e4 : 0 = 3 y + 2 * 3 = 6 ;",
            "put x in e1 as e4 : 0 = 3 y + 2 * 3 = 6 ;",
        ),
    ],
)
def test_parse_puts_a_move_in_order(text: str, canonical: str) -> None:
    """One text for moves that say the same."""
    assert move(text).text == canonical
    assert move(canonical) == move(text)


@pytest.mark.parametrize(
    "text",
    [
        "answer = 3 ;",
        "answer 201 ;",
        "answer -0 ;",
        "answer 03 ;",
        "answer +3 ;",
        "answer 3 ; ;",
        "answer \u0663 ;",
        "answer \uff13 ;",
        "answer \u00b2 ;",
        "answer 3\x00 ;",
        "answer 1_0 ;",
        "answer 1e2 ;",
        "answer 9**9**9 ;",
        "answer " + "9" * 100_000 + " ;",
        "answer 3",
        "choose = 3 ;",
        "w = 3 ;",
        "x = 3 = 3 ;",
        "drop 3 : x is prime ;",
        "drop 3 : x is above ;",
        "roots e3 : sum 2 product -3 so 3 ;",
        "solve e3 : x = 6 / 2 ;",
        "solve e3 : x = 6 * 2 = 12 ;",
        "collect e1 as e2 : 3 x = 19 + 4 = 23 ;",
        "collect e1 as e2 : 3 x + 1 x = 19 - 4 = 15 ;",
        "collect e1 as e2 : 0 x = 19 - 4 = 15 ;",
        "collect e1 as e2 : 3 = 19 - 4 = 15 ;",
        "collect e1 as e2 : 1 xx + 3 y = 19 - 4 = 15 ;",
        "collect e1 as e2 : 1 x + 1 y + 1 z = 19 - 4 = 15 ;",
        "collect e1 as e2 : 3 x = 4 + 19 - 4 = 15 ;",
        "collect e1 as e2 : 3 x = 15 ;",
        "collect e1 as e99 : 3 x = 19 - 4 = 15 ;",
        "collect e1 as : 3 x = 19 - 4 = 15 ;",
        "collect as e2 : 3 x = 19 - 4 = 15 ;",
        "collect e1 e2 as e3 : 3 x = 19 - 4 = 15 ;",
        "scale e1 as e2 : 3 x = 3 * 5 = 15 ;",
        "scale e1 by x as e2 : 3 x = 3 * 5 = 15 ;",
        "add e1 as e2 : 3 x = 3 + 5 = 8 ;",
        "put 3 in e1 as e2 : 9 = 3 y + 2 * 3 = 6 ;",
        "put x in e1 as e2 : 9 = 3 y 2 * 3 = 6 ;",
        "__import__('os').system('true') ;",
        "collect e1 as e2 : " + "1 x + " * 200_000 + "1 x = 1 - 1 = 0 ;",
        "( " * 100_000 + ") " * 100_000 + ";",
        ";",
        "",
        " \n ",
    ],
)
def test_other_text_is_malformed_at_once(text: str) -> None:
    """Nothing is evaluated, nothing takes long, and little of the text is kept."""
    began = time.perf_counter()
    parsed = DOMAIN.parse(text)
    assert time.perf_counter() - began < 0.05
    assert isinstance(parsed, Malformed)
    assert 0 < len(parsed.reason) < 80
    assert len(parsed.text) <= 200


# Gates.


@pytest.mark.parametrize(
    ("problem", "before", "text", "reason"),
    [
        (LINEAR, (), "collect e1 as e2 : 3 x = 19 - 4 = 15 ;", None),
        (LINEAR, (), "collect e2 as e2 : 3 x = 19 - 4 = 15 ;", "no such equation"),
        (LINEAR, (), "collect e1 as e1 : 3 x = 19 - 4 = 15 ;", "not the next label"),
        (LINEAR, (), "collect e1 as e3 : 3 x = 19 - 4 = 15 ;", "not the next label"),
        (LINEAR, (), "collect e1 as e2 : 3 y = 19 - 4 = 15 ;", "unknown is not there"),
        (LINEAR, (), "collect e1 as e2 : 3 x = 19 - 4 = 14 ;", "arithmetic"),
        (LINEAR, (), "expand e1 as e2 : 3 x = 3 * 5 = 15 ;", "nothing to expand"),
        (PRODUCT_TEXT, (), "collect e1 as e2 : 2 x = 18 - 4 = 14 ;", "not expanded yet"),
        (PRODUCT_TEXT, (), "solve e1 : x = 14 / 2 = 7 ;", "equation is not linear"),
        (LINEAR, (), "put x in e1 as e2 : 3 y = 3 * 5 = 15 ;", "unknown has no value"),
        (LINEAR, (), "solve e1 : x = 15 / 3 = 5 ;", None),
        (LINEAR, (), "solve e1 : x = 15 / 3 = 6 ;", "arithmetic"),
        (LINEAR, (), "solve e1 : x = 15 / 0 = 5 ;", "arithmetic"),
        (LINEAR, (), "solve e1 : x = 16 / 3 = 5 ;", "arithmetic"),
        (LINEAR, (), "solve e1 : x = 12 / 3 = 4 ;", "value breaks a constraint: parity"),
        (LINEAR, (), "solve e1 : x = 18 / 2 = 9 ;", "value breaks a constraint: bound"),
        (LINEAR, (), "answer 5 ;", "answer before derivation"),
        (LINEAR, ("solve e1 : x = 15 / 3 = 5 ;",), "answer 5 ;", None),
        (LINEAR, ("solve e1 : x = 15 / 3 = 5 ;",), "answer 6 ;", "answer is not the value"),
        (LINEAR, ("solve e1 : x = 15 / 3 = 5 ;",), "solve e1 : x = 9 / 3 = 3 ;", "has a value"),
        (LINEAR, ("solve e1 : x = 15 / 3 = 5 ;", "answer 5 ;"), "answer 5 ;", "after the answer"),
        (SYSTEM, (), SUM, None),
        (SYSTEM, (), SUM.replace("e2", "e4"), "no such equation"),
        (SYSTEM, (), SUM.replace("18", "19"), "arithmetic"),
        (SYSTEM, (), "scale e1 by 2 as e3 : 4 x + 6 y = 2 * 9 = 18 ;", None),
        (SYSTEM, (), "scale e1 by 3 as e3 : 4 x + 6 y = 2 * 9 = 18 ;", "not the one named"),
        (SYSTEM, (), "divide e1 by 3 as e3 : 1 x + 1 y = 9 / 3 = 3 ;", None),
        (SYSTEM, (), "divide e1 by 9 as e3 : 1 x + 1 y = 9 / 3 = 3 ;", "not the one named"),
        (SYSTEM, (), "solve e1 : x = 9 / 3 = 3 ;", "equation is not in this unknown alone"),
        (SYSTEM, (SUM,), SUM.replace("e3", "e4"), "repeats an earlier step"),
        (SYSTEM, (SUM,), "solve e3 : y = 18 / 6 = 3 ;", "equation is not in this unknown alone"),
        (SYSTEM, OF_SYSTEM, SYSTEM_END[0], None),
        (SYSTEM, OF_SYSTEM, SYSTEM_END[0].replace("* 3 = 6", "* 4 = 8"), "not the binding"),
        (SYSTEM, OF_SYSTEM, SYSTEM_END[0].replace("3 y", "3 x"), "unknown is not there"),
        (SYSTEM, OF_SYSTEM, "put x in e9 as e4 : 9 = 3 y + 2 * 3 = 6 ;", "no such equation"),
        (SYSTEM, OF_SYSTEM, "answer 3 ;", "answer before derivation"),
        (SYSTEM, (*OF_SYSTEM, *SYSTEM_END[:2]), "solve e5 : y = 3 / -3 = -1 ;", "sign"),
        (SYSTEM, (*OF_SYSTEM, *SYSTEM_END[:3]), "answer 2 ;", None),
        (SYSTEM, (*OF_SYSTEM, *SYSTEM_END[:3]), "answer 4 ;", "answer is not the value"),
        (ROOTS, (), "roots e1 : sum 2 product -3 so -1 or 3 ;", None),
        (ROOTS, (), "roots e2 : sum 2 product -3 so -1 or 3 ;", "no such equation"),
        (ROOTS, (), "roots e1 : sum 2 product 3 so -1 or 3 ;", "arithmetic"),
        (ROOTS, (), "roots e1 : sum 3 product -3 so -1 or 3 ;", "arithmetic"),
        (ROOTS, (), "roots e1 : sum -4 product 3 so -3 or -1 ;", "no root satisfies"),
        (ROOTS, (), "solve e1 : x = 3 / 1 = 3 ;", "equation is not linear"),
        (ROOTS, (), "drop -1 : x is positive ;", "no such root"),
        (ROOTS, (), "x = 3 ;", "no such root"),
        (LINEAR, (), "roots e1 : sum 2 product -3 so -1 or 3 ;", "equation is not quadratic"),
        (FRACTION, OF_FRACTION[:1], "roots e1 : sum 2 product -3 so -1 or 3 ;", "not quadratic"),
        (FRACTION, OF_FRACTION, "roots e2 : sum 2 product -3 so -1 or 3 ;", "roots are stated"),
        (FRACTION, OF_FRACTION, "x = -1 ;", "another root is left"),
        (FRACTION, OF_FRACTION, "drop 3 : x is even ;", "no such constraint"),
        (FRACTION, OF_FRACTION, "drop 3 : x is not 4 ;", "no such constraint"),
        (FRACTION, OF_FRACTION, "drop -1 : x is not 3 ;", "root satisfies the constraint"),
        (FRACTION, OF_FRACTION, FRACTION_END[0], None),
        (FRACTION, (*OF_FRACTION, FRACTION_END[0]), "x = 3 ;", "no such root"),
        (FRACTION, (*OF_FRACTION, FRACTION_END[0]), "x = -1 ;", None),
        (FRACTION, (*OF_FRACTION, *FRACTION_END[:2]), "x = -1 ;", "unknown has a value"),
        (
            FRACTION,
            (OF_FRACTION[0], "collect e2 as e3 : 1 x = 4 - 1 = 3 ;"),
            "solve e3 : x = 3 / 1 = 3 ;",
            "value breaks a constraint: denominator",
        ),
    ],
)
def test_gates(problem: str, before: tuple[str, ...], text: str, reason: str | None) -> None:
    """Each condition is refused for its own reason."""
    refusal = reject(DOMAIN, after(problem, *before), move(text))
    if reason is None:
        assert refusal is None
    else:
        assert refusal is not None and reason in refusal.reason


WRONG = [
    (LINEAR, (), "collect e1 as e2 : 3 x = 19 - -4 = 23 ;"),
    (LINEAR, (), "collect e1 as e2 : 7 x = 19 - 4 = 15 ;"),
    (LINEAR, (), "solve e1 : x = 15 / 5 = 3 ;"),
    (PRODUCT_TEXT, (), "expand e1 as e2 : 5 x + 4 = 1 x + 3 * 6 = 18 ;"),
    (PRODUCT_TEXT, (), "expand e1 as e2 : 5 x + 4 = 3 x + 1 * 6 = 6 ;"),
    (SYSTEM, (), "add e1 e2 as e3 : 6 x + 6 y = 9 + 9 = 18 ;"),
    (SYSTEM, (), "subtract e1 e2 as e3 : -2 x = 9 - 9 = 0 ;"),
    (SYSTEM, (), "scale e1 by 2 as e3 : 4 x + 3 y = 2 * 9 = 18 ;"),
    (SYSTEM, (), "divide e1 by 3 as e3 : 2 x + 1 y = 9 / 3 = 3 ;"),
    (SYSTEM, OF_SYSTEM, "put x in e1 as e4 : 9 = 3 y + 3 * 3 = 9 ;"),
    (ROOTS, (), "roots e1 : sum -2 product -3 so -3 or 1 ;"),
    (FRACTION, OF_FRACTION[:2], "roots e3 : sum -2 product -3 so -3 or 1 ;"),
    (FRACTION, OF_FRACTION[:1], "collect e2 as e3 : 1 xx + 6 x = -12 - -15 = 3 ;"),
]
TRUTHS = {
    LINEAR: truth(5, x=5),
    PRODUCT_TEXT: truth(7, x=7),
    SYSTEM: truth(2, x=3, y=1),
    ROOTS: truth(3, x=3),
    FRACTION: truth(-1, x=-1),
}


@pytest.mark.parametrize(("problem", "before", "text"), WRONG)
def test_gates_do_not_see_what_follows(problem: str, before: tuple[str, ...], text: str) -> None:
    """A wrong sign or coefficient passes both gates; sympy and the truth see it."""
    state = after(problem, *before)
    assert DOMAIN.alive(state, TRUTHS[problem])
    assert reject(DOMAIN, state, move(text)) is None
    assert not DOMAIN.right(state, move(text), TRUTHS[problem])
    assert not DOMAIN.follows(state, move(text))
    assert not DOMAIN.alive(DOMAIN.apply(state, move(text)), TRUTHS[problem])


def test_the_context_holds_no_coefficient() -> None:
    """The gates cannot tell apart problems whose equations differ in numbers alone."""
    contexts = [after(f"e1 : {n} x + 4 = 2 x + 19 . find x .").context for n in (5, 6)]
    assert contexts[0] == contexts[1]


@pytest.mark.parametrize(
    ("problem", "moves"),
    [(SYSTEM, OF_SYSTEM + SYSTEM_END), (FRACTION, OF_FRACTION + FRACTION_END)],
)
def test_a_right_derivation(problem: str, moves: tuple[str, ...]) -> None:
    """Each move passes, follows and is right, and the last one answers."""
    fact = TRUTHS[problem]
    for count, text in enumerate(moves):
        state = after(problem, *moves[:count])
        assert reject(DOMAIN, state, move(text)) is None
        assert DOMAIN.right(state, move(text), fact)
        assert DOMAIN.follows(state, move(text))
    end = after(problem, *moves)
    assert DOMAIN.answer(end) == fact.answer
    assert DOMAIN.alive(end, fact)


@pytest.mark.parametrize(
    ("problem", "before", "text"),
    [
        (LINEAR, (), "collect e1 as e2 : 6 x = 38 - 8 = 30 ;"),
        (LINEAR, (), "collect e1 as e2 : 5 x = 2 x + 19 - 4 = 15 ;"),
        (LINEAR, (), "collect e1 as e2 : 1 xx = 25 - 0 = 25 ;"),
        (SYSTEM, (), "add e1 e1 as e3 : 4 x + 6 y = 9 + 9 = 18 ;"),
        (ROOTS, (), "scale e1 by -7 as e2 : -7 xx + 14 x = -7 * 3 = -21 ;"),
    ],
)
def test_a_useless_consequence_is_right(problem: str, before: tuple[str, ...], text: str) -> None:
    """Whatever follows is right, whether it helps or not."""
    state = after(problem, *before)
    assert DOMAIN.right(state, move(text), TRUTHS[problem])
    assert DOMAIN.follows(state, move(text))


def test_a_value_that_follows_from_a_wrong_equation_is_not_right() -> None:
    """Locally it follows; the truth knows better."""
    state = after(LINEAR, "collect e1 as e2 : 3 x = 13 - 4 = 9 ;")
    step = move("solve e2 : x = 9 / 3 = 3 ;")
    assert DOMAIN.follows(state, step)
    assert not DOMAIN.right(state, step, TRUTHS[LINEAR])


def test_nothing_follows_from_a_contradiction() -> None:
    """An equation that no number solves proves nothing."""
    state = after(LINEAR, "collect e1 as e2 : 3 x = 3 x + 19 - 4 = 15 ;")
    step = move("solve e2 : x = 15 / 3 = 5 ;")
    assert not DOMAIN.follows(state, step)
    assert not DOMAIN.right(state, step, TRUTHS[LINEAR])


def test_labels_end() -> None:
    """After the last label no equation can be claimed, and the gate says so."""
    scaled = [
        f"scale e1 by {n} as {LABELS[n]} : {2 * n} x = {n} * 8 = {8 * n} ;" for n in range(16)
    ]
    state = after("e1 : 2 x = 8 . find x .", *scaled[1:])
    refusal = reject(DOMAIN, state, move(scaled[3].replace("by 3", "by 4")))
    assert refusal is not None and refusal.reason == "not the next label"
    assert DOMAIN.alive(state, truth(4, x=4))


# The laws.


def mutate(data: st.DataObject, text: str) -> str:
    """The text with up to two words replaced by others of their kind."""
    words = text.split()
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(words) - 1))
        word = words[place]
        if word in NUMBERS:
            near = [-int(word), 2 * int(word), int(word) + 1, int(word) - 1, 0]
            words[place] = str(data.draw(st.sampled_from([n for n in near if str(n) in NUMBERS])))
        elif word in LABELS:
            words[place] = data.draw(st.sampled_from(LABELS[:6]))
        elif word in UNKNOWNS:
            words[place] = data.draw(st.sampled_from(UNKNOWNS))
    return " ".join(words)


@given(SEEDS, st.data())
@settings(max_examples=120, deadline=None)
def test_no_gate_refuses_a_right_step(seed: int, data: st.DataObject) -> None:
    """Along derivations, right and wrong ones, over moves of them all and mutations of these.

    The tool and the truth agree wherever every step so far was right.
    """
    problem, fact = draw(seed)
    pool = [one for order in (1, 2) for one in solve(problem, fact, order)]
    state = DOMAIN.initial_state(problem, budget=1)
    for own in solve(problem, fact, data.draw(st.integers(0, 3))):
        tried = [data.draw(st.sampled_from(pool)) for _ in range(4)]
        parsed = [DOMAIN.parse(mutate(data, one.text)) for one in [own, *tried]]
        moves = [one for one in parsed if isinstance(one, Move)]
        alive = DOMAIN.alive(state, fact)
        for one in moves:
            right = DOMAIN.right(state, one, fact)
            assert not right or reject(DOMAIN, state, one) is None
            assert not alive or right is DOMAIN.follows(state, one)
            assert DOMAIN.alive(DOMAIN.apply(state, one), fact) is (alive and right)
        state = DOMAIN.apply(state, data.draw(st.sampled_from([own, *moves])))


small = st.integers(-4, 4)
nonzero = small.filter(bool)


@st.composite
def equations(draw: st.DrawFn, forms: tuple[str, ...] = (PLAIN, PRODUCT, QUOTIENT)) -> Equation:
    """Equations of every form with small numbers, as text can state them."""
    form = draw(st.sampled_from(forms))
    linear = {"x": draw(small), "": draw(small)}
    if form != PLAIN:
        left = make_sum({**linear, "xx": draw(small)})
        right = make_sum({"x": 1, "": draw(small)})
        return Equation(left, right, form, draw(nonzero))
    other = draw(st.sampled_from(["xx", "y"]))
    sides = [
        make_sum({**linear, other: draw(small)}),
        make_sum({"x": draw(small), "": draw(small)}),
    ]
    equation = valid(Equation(*sides))
    assume(equation is not None)
    assert equation is not None
    return equation


@given(st.lists(equations(), min_size=1, max_size=2), equations((PLAIN,)))
@settings(max_examples=40, deadline=None)
def test_arithmetic_agrees_with_sympy_on_what_follows(
    premises: list[Equation], claim: Equation
) -> None:
    """For the claim, for sums of the premises, and for multiples of them."""
    factors = [(1, 0), (2, 0), (1, -1), (2, 3)]
    differences = [one.difference for one in (premises[0], premises[-1])]
    mixed = [
        Equation(Sum(()).plus(differences[0], a).plus(differences[1], b), Sum(()))
        for a, b in factors
    ]
    for one in [claim, *(equation for equation in mixed if valid(equation) is not None)]:
        ours = BY_ARITHMETIC.implied(tuple(premises), one)
        assert ours is BY_SYMPY.implied(tuple(premises), one)


@given(small, small, nonzero, st.sampled_from([PLAIN, QUOTIENT]), small)
@settings(max_examples=40, deadline=None)
def test_arithmetic_agrees_with_sympy_on_roots(
    low: int, high: int, lead: int, form: str, zero: int
) -> None:
    """Also where a denominator excludes one, and for values that follow from what is left."""
    terms = make_sum({"xx": lead, "x": -lead * (low + high), "": lead * low * high})
    bracket = make_sum({"x": 1, "": -zero})
    equation = Equation(terms.plus(bracket, 1), bracket, form, 1)
    left = {low, high} - ({zero} if form == QUOTIENT else set())
    for values in ({low, high}, {low}, {high}, {zero}, {low, zero}):
        assert BY_ARITHMETIC.rooted(equation, frozenset(values)) is (values == left)
        assert BY_SYMPY.rooted(equation, frozenset(values)) is (values == left)
    for value in {low, high, zero}:
        claim = binding("x", value)
        assert BY_ARITHMETIC.implied((equation,), claim) is (left == {value})
        assert BY_SYMPY.implied((equation,), claim) is (left == {value})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1 xx = 2", {1}),
        ("1 xx = -1", set()),
        ("1 xx = 1 xx + 1", {1}),
        ("1 xx = 1 xx", {0}),
        ("1 x + 1 y = 2", {2}),
        ("( 1 xx ) / ( 1 x ) = 1", {0, 1}),
    ],
)
def test_roots_that_are_no_whole_numbers(text: str, values: set[int]) -> None:
    """Irrational, imaginary, missing, excluded or countless: these are not all its roots."""
    told = read_told(f"e1 : {text} . find x .")
    assert told is not None
    for logic in (BY_ARITHMETIC, BY_SYMPY):
        assert not logic.rooted(told.equations[0], frozenset(values))
        assert not logic.implied(told.equations, binding("x", 3))


def test_a_consequence_of_irrational_roots() -> None:
    """A multiple follows from x x = 2, another quadratic that shares no root does not."""
    told = read_told("e1 : 1 xx = 2 . e2 : 3 xx = 6 . find x .")
    other = read_told("e1 : 1 xx + 1 x = 2 . find x .")
    assert told is not None and other is not None
    for logic in (BY_ARITHMETIC, BY_SYMPY):
        assert logic.implied(told.equations[:1], told.equations[1])
        assert not logic.implied(told.equations[:1], other.equations[0])


# Retrieval, and what is left of the protocol.


def test_patterns_hold_no_name_and_come_back() -> None:
    """The kind of the constraint, the choice and the answer; claims have none."""
    moves = OF_FRACTION + FRACTION_END
    names = [
        DOMAIN.pattern(after(FRACTION, *moves[:count]), move(text))
        for count, text in enumerate(moves)
    ]
    assert names == [None, None, None, "drop not", "choose", "answer"]
    for count in (3, 4, 5):
        state, name = after(FRACTION, *moves[:count]), names[count]
        assert name is not None
        assert DOMAIN.instantiate(state, name) == (move(moves[count]),)
        assert DOMAIN.instantiate(after(FRACTION, *moves[: count - 1]), name) == ()
    assert DOMAIN.instantiate(after(FRACTION, *OF_FRACTION), "drop even") == ()


def test_a_pattern_serves_another_problem() -> None:
    """A root dropped for its sign there is dropped for its sign here."""
    state = after(ROOTS, "roots e1 : sum 2 product -3 so -1 or 3 ;")
    assert DOMAIN.instantiate(state, "drop positive") == (move("drop -1 : x is positive ;"),)


def test_an_answer_that_no_word_says_is_not_retrieved() -> None:
    """The product of two values may lie outside the vocabulary."""
    text = "e1 : 1 x + 1 y = 40 . e2 : 1 x + -1 y = 0 . find x * y ."
    moves = (
        "add e1 e2 as e3 : 2 x = 40 + 0 = 40 ;",
        "solve e3 : x = 40 / 2 = 20 ;",
        "subtract e1 e2 as e4 : 2 y = 40 - 0 = 40 ;",
        "solve e4 : y = 40 / 2 = 20 ;",
    )
    assert DOMAIN.instantiate(after(text, *moves), "answer") == ()


def test_a_state_of_another_domain_is_a_broken_protocol() -> None:
    """The message says which context was given."""
    state = replace(after(LINEAR), context="elsewhere")
    with pytest.raises(
        ProtocolError, match="p: given a context str, expected a Context of algebra"
    ):
        DOMAIN.is_final(state)


def test_the_domain_checks_no_answers_and_has_no_drill() -> None:
    """Whether an answer is right is left to the verifier."""
    assert not DOMAIN.checks_answers()
    assert DOMAIN.drill(random.Random(0), recall=True) is None
