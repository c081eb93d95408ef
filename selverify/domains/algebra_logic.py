"""What follows from what in algebra: by sympy, and by exact arithmetic of our own.

Knows: solution sets. Does not know: states, gates, the values that a problem was made from.

A claim follows from equations if these have a solution and every solution of them satisfies it;
solutions are complex, so a quadratic equation always has one. Nothing follows from equations that
contradict each other, for what was derived from them is no evidence, and nothing from an equation
with a square, brackets or a denominator that holds everywhere. Several equations must be linear.

``BY_SYMPY`` is what a tool verifier executes, ``BY_ARITHMETIC`` what audits can afford; each is the
test of the other. Expressions are built from integers, never from text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

from sympy import (  # type: ignore[import-untyped]
    Eq,
    Expr,
    FiniteSet,
    Integer,
    S,
    Symbol,
    __version__,
    expand,
    linsolve,
    solveset,
)

from selverify.domains.algebra_equations import (
    CONSTANT,
    PLAIN,
    QUOTIENT,
    SQUARES,
    UNKNOWNS,
    Equation,
    Sum,
    make_sum,
)

TOOL = f"algebra 1, sympy {__version__}"
"""What a tool verifier's verdicts depend on; the first number counts changes of these rules."""
CACHE = 2**16
SAMPLES = (0, 1, 2)
"""A sum whose degree is at most 2 in each unknown is zero everywhere if it is at three values."""
SYMPY_SYMBOLS = {name: Symbol(name) for name in UNKNOWNS}

Point = Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Logic:
    """Two exact questions.

    Attributes:
        implied: whether a claim follows from the equations before it.
        rooted: whether an equation in one unknown holds at these values and nowhere else.
    """

    implied: Callable[[tuple[Equation, ...], Equation], bool]
    rooted: Callable[[Equation, frozenset[int]], bool]


def binding(unknown: str, value: int) -> Equation:
    """The equation unknown = value."""
    return Equation(make_sum({unknown: 1}), make_sum({CONSTANT: value}))


def _linear(equations: Sequence[Equation]) -> bool:
    return all(one.form == PLAIN and not one.difference.squared for one in equations)


@lru_cache(maxsize=CACHE)
def implied_by_sympy(premises: tuple[Equation, ...], claim: Equation) -> bool:
    """Whether ``claim`` is zero at all that linsolve or solveset finds for ``premises``."""
    gap = _expression(claim.difference)
    if _linear(premises):
        symbols = [SYMPY_SYMBOLS[name] for name in UNKNOWNS]
        found = linsolve([_equality(one) for one in premises], *symbols)
        places = [dict(zip(symbols, place, strict=True)) for place in found]
    else:
        roots = _sympy_roots(premises[0]) if len(premises) == 1 else None
        places = [] if roots is None else [{roots[0]: root} for root in roots[1]]
    return bool(places) and all(expand(gap.subs(place)) == 0 for place in places)


def rooted_by_sympy(equation: Equation, values: frozenset[int]) -> bool:
    """Whether ``values`` are what solveset finds."""
    roots = _sympy_roots(equation)
    return roots is not None and roots[1] == FiniteSet(*values)


@lru_cache(maxsize=CACHE)
def _sympy_roots(equation: Equation) -> tuple[Symbol, FiniteSet] | None:
    """The unknown and its values, of an equation in one that holds at finitely many."""
    if len(equation.unknowns) != 1:
        return None
    (name,) = equation.unknowns
    symbol = SYMPY_SYMBOLS[name]
    found = solveset(_equality(equation), symbol, S.Complexes)
    return (symbol, found) if isinstance(found, FiniteSet) else None


def _expression(terms: Sum) -> Expr:
    powers = {square: SYMPY_SYMBOLS[name] ** 2 for square, name in SQUARES.items()}
    factors = {CONSTANT: Integer(1), **SYMPY_SYMBOLS, **powers}
    return sum((number * factors[symbol] for symbol, number in terms.terms), Integer(0))


def _equality(equation: Equation) -> Eq:
    """The equation as it stands; the sides of a plain one are on the left already."""
    left, right = _expression(equation.left), _expression(equation.right)
    if equation.form == QUOTIENT:
        return Eq(left / right - equation.factor, 0, evaluate=False)
    return Eq(left - equation.factor * right, 0, evaluate=False)


@lru_cache(maxsize=CACHE)
def implied_by_arithmetic(premises: tuple[Equation, ...], claim: Equation) -> bool:
    """Whether ``claim`` is zero at enough solutions of ``premises`` to be so at all of them."""
    gap = claim.difference
    if _linear(premises):
        points = list(_points([one.difference for one in premises]))
        return bool(points) and all(_value(gap, point) == 0 for point in points)
    if len(premises) != 1 or len(premises[0].unknowns) != 1:
        return False
    return _implied_by_one(premises[0], gap)


def _implied_by_one(premise: Equation, gap: Sum) -> bool:
    """``premise`` holds one unknown, and brackets, a denominator or a square."""
    (name,) = premise.unknowns
    if not gap.unknowns <= premise.unknowns:
        return False
    excluded = {Fraction(-premise.right[CONSTANT])} if premise.form == QUOTIENT else set()
    sought, claimed = (_coefficients(one, name) for one in (premise.difference, gap))
    if not any(sought):
        return False
    roots = _rational_roots(sought)
    if roots is None:  # irrational ones come in pairs that no other quadratic has
        return _proportional(sought, claimed)
    left = roots - excluded
    return bool(left) and all(_value(gap, {name: root}) == 0 for root in left)


def _coefficients(terms: Sum, name: str) -> tuple[int, int, int]:
    return terms[2 * name], terms[name], terms[CONSTANT]


def _proportional(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a * d == b * c for (a, b), (c, d) in product(zip(one, other, strict=True), repeat=2))


def _rational_roots(coefficients: tuple[int, int, int]) -> set[Fraction] | None:
    """All roots where they are rational, none for a contradiction; None for irrational ones."""
    a, b, c = coefficients
    if a == 0:
        return {Fraction(-c, b)} if b else set()
    discriminant = b * b - 4 * a * c
    root = math.isqrt(max(discriminant, 0))
    if root * root != discriminant:
        return None
    return {Fraction(-b + sign * root, 2 * a) for sign in (-1, 1)}


@lru_cache(maxsize=CACHE)
def rooted_by_arithmetic(equation: Equation, values: frozenset[int]) -> bool:
    """Whether ``values`` are all roots of ``equation``."""
    if len(equation.unknowns) != 1:
        return False
    (name,) = equation.unknowns
    excluded = {-equation.right[CONSTANT]} if equation.form == QUOTIENT else set()
    coefficients = _coefficients(equation.difference, name)
    roots = _rational_roots(coefficients) if any(coefficients) else None
    return roots is not None and roots - excluded == values


def _points(rows: Sequence[Sum]) -> Iterator[Point]:
    """Solutions of linear equations, each unknown that is left free at every one of SAMPLES."""
    solved = _eliminate(rows)
    if solved is None:
        return
    free = [name for name in UNKNOWNS if name not in solved]
    for chosen in product(SAMPLES, repeat=len(free)):
        point = dict(zip(free, map(Fraction, chosen), strict=True))
        yield {**point, **{name: _value_of(row, point) for name, row in solved.items()}}


def _eliminate(rows: Sequence[Sum]) -> dict[str, dict[str, Fraction]] | None:
    """Each determined unknown by the free ones and a number; None for a contradiction."""
    solved: dict[str, dict[str, Fraction]] = {}
    for row in rows:
        rest = _substitute({name: Fraction(number) for name, number in row.terms}, solved)
        pivot = next((name for name in UNKNOWNS if rest.get(name)), None)
        if pivot is None and rest.get(CONSTANT):
            return None
        if pivot is not None:
            lead = rest.pop(pivot)
            own = {name: -number / lead for name, number in rest.items()}
            solved = {name: _substitute(old, {pivot: own}) for name, old in solved.items()}
            solved[pivot] = own
    return solved


def _substitute(
    row: Mapping[str, Fraction], known: Mapping[str, Mapping[str, Fraction]]
) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for name, number in row.items():
        for symbol, factor in known.get(name, {name: Fraction(1)}).items():
            total[symbol] = total.get(symbol, Fraction(0)) + number * factor
    return total


def _value_of(row: Mapping[str, Fraction], point: Point) -> Fraction:
    return sum((number * point.get(name, Fraction(1)) for name, number in row.items()), Fraction(0))


def _value(terms: Sum, point: Point) -> Fraction:
    """The sum at a point that has all its unknowns."""
    powers = {square: point[name] ** 2 for square, name in SQUARES.items() if name in point}
    factors = {CONSTANT: Fraction(1), **point, **powers}
    return sum((number * factors[symbol] for symbol, number in terms.terms), Fraction(0))


BY_SYMPY = Logic(implied_by_sympy, rooted_by_sympy)
BY_ARITHMETIC = Logic(implied_by_arithmetic, rooted_by_arithmetic)
