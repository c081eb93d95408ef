"""Problems of algebra drawn at random, and right derivations of them.

Knows: families of problems by size, how a careful writer solves each. Does not know: gates, states.

The size of a problem is the number of moves of its shortest derivation among those written here::

    2  a x = c
    3  a x + b = c x + d                a system, nothing to scale, one unknown asked
    4  one product or quotient          1 xx + p x = q      a system, one equation to scale
    5  1 xx + b x + c = d x + e         a system, both equations to scale
    6  ( 1 xx + b x + c ) / ( 1 x + d ) = k     a xx + b x + c = d x + e
       a system of which a sum, difference or product is asked
    7  a quotient with a xx             such a system, one equation to scale
    8                                   such a system, both equations to scale

Every quadratic problem tells, or implies by a denominator, a constraint that one root violates and
the other one satisfies; half of the others tell a constraint that the solution satisfies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from selverify.domains.algebra_equations import (
    CONSTANT,
    HIGHEST,
    LABELS,
    PLAIN,
    PRODUCT,
    QUOTIENT,
    UNKNOWNS,
    Constraint,
    Equation,
    Sum,
    Told,
    asked_unknowns,
    asked_value,
    make_sum,
    read_told,
    tell,
)
from selverify.domains.algebra_moves import Claim, make_move
from selverify.types import Move

HIGHEST_VALUE = 9
HIGHEST_FACTOR = 9
HIGHEST_SHIFT = 20
HIGHEST_SYSTEM = 5
HIGHEST_LEAD = 3
FARTHEST_BOUND = 6
TOLD_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Draft:
    """A problem as drawn, with the values that solve it."""

    told: Told
    values: Mapping[str, int]


Builder = Callable[[random.Random], Draft]


def draw(rng: random.Random, size: int) -> Draft:
    """A problem of ``size`` in words that fit the vocabulary, its answer not in its goal."""
    while True:
        draft = rng.choice(BUILDERS[size])(rng)
        answer = asked_value(draft.told.asked, draft.values)
        if read_told(str(draft.told)) is not None and str(answer) not in draft.told.goal.split():
            return draft


def _value(rng: random.Random) -> int:
    return rng.randint(-HIGHEST_VALUE, HIGHEST_VALUE)


def _factor(rng: random.Random) -> int:
    return rng.randint(2, HIGHEST_FACTOR)


def _linear_sum(unknown: str, factor: int, number: int) -> Sum:
    return make_sum({unknown: factor, CONSTANT: number})


def _one(
    rng: random.Random,
    unknown: str,
    value: int,
    equation: Equation,
    constraints: Sequence[Constraint],
) -> Draft:
    """The problem of one equation; without constraints it may get one that ``value`` satisfies."""
    told = list(constraints)
    if not told and not equation.squared and rng.random() < TOLD_SHARE:
        told.append(rng.choice(_satisfied(rng, unknown, value)))
    return Draft(tell([equation], told, (unknown,)), {unknown: value})


def _satisfied(rng: random.Random, unknown: str, value: int) -> list[Constraint]:
    """One constraint of each kind that ``value`` satisfies."""
    distance = rng.randint(1, FARTHEST_BOUND)
    candidates = [Constraint(unknown, kind) for kind in ("positive", "negative", "even", "odd")]
    bounds = [
        Constraint(unknown, "above", value - distance),
        Constraint(unknown, "below", value + distance),
    ]
    return [one for one in [*candidates, *bounds] if one.allows(value)]


def _selecting(rng: random.Random, unknown: str, value: int, false: int) -> Constraint:
    """A constraint that ``value`` satisfies and ``false`` violates."""
    low, high = sorted((value, false))
    bound = rng.randrange(low, high) + (value < false)
    between = Constraint(unknown, "below" if value < false else "above", bound)
    others = [one for one in _satisfied(rng, unknown, value) if not one.allows(false)]
    return rng.choice([between, *others])


def _short(rng: random.Random) -> Draft:
    unknown, value, factor = rng.choice(UNKNOWNS), _value(rng), _factor(rng)
    equation = Equation(make_sum({unknown: factor}), make_sum({CONSTANT: factor * value}))
    return _one(rng, unknown, value, equation, ())


def _two_sided(rng: random.Random) -> Draft:
    unknown, value = rng.choice(UNKNOWNS), _value(rng)
    left, right = rng.sample(range(HIGHEST_FACTOR + 1), 2)
    number = rng.choice([-1, 1]) * rng.randint(1, HIGHEST_SHIFT)
    equation = Equation(
        _linear_sum(unknown, left, number),
        _linear_sum(unknown, right, number + (left - right) * value),
    )
    return _one(rng, unknown, value, equation, ())


def _bracketed(rng: random.Random, *, form: str) -> Draft:
    """``a x + b = k ( 1 x + c )``, or its quotient; the bracket is not zero."""
    unknown, value = rng.choice(UNKNOWNS), _value(rng)
    left, factor = rng.sample(range(2, HIGHEST_FACTOR + 1), 2)
    shift = rng.choice(
        [c for c in range(-HIGHEST_VALUE, HIGHEST_VALUE + 1) if c not in (0, -value)]
    )
    number = factor * (value + shift) - left * value
    equation = Equation(
        _linear_sum(unknown, left, number), _linear_sum(unknown, 1, shift), form, factor
    )
    return _one(rng, unknown, value, equation, ())


def _roots(rng: random.Random, *, lead: bool) -> tuple[int, int, int, int]:
    """The true root, the other one, a third number, and a leading coefficient that fits."""
    while True:
        value, false, other = rng.sample(range(-HIGHEST_VALUE, HIGHEST_VALUE + 1), 3)
        factor = rng.randint(2, HIGHEST_LEAD) if lead else 1
        if factor * abs(value * false) <= HIGHEST:
            return value, false, other, factor


def _quadratic(rng: random.Random, *, collected: bool, lead: bool) -> Draft:
    """Two roots, told to be equal to a number alone or with terms on both sides."""
    unknown = rng.choice(UNKNOWNS)
    value, false, _, factor = _roots(rng, lead=lead)
    moved = 0 if collected else rng.choice([-1, 1]) * rng.randint(1, HIGHEST_FACTOR)
    number = 0 if collected else rng.choice([-1, 1]) * rng.randint(1, HIGHEST_SHIFT)
    left = {
        2 * unknown: factor,
        unknown: moved - factor * (value + false),
        CONSTANT: number,
    }
    right = _linear_sum(unknown, moved, number - factor * value * false)
    limits = [_selecting(rng, unknown, value, false)]
    return _one(rng, unknown, value, Equation(make_sum(left), right), limits)


def _quotient(rng: random.Random, *, lead: bool) -> Draft:
    """A quadratic over a linear; half of the time the denominator excludes the false root."""
    unknown = rng.choice(UNKNOWNS)
    value, false, other, factor = _roots(rng, lead=lead)
    excludes = rng.random() < TOLD_SHARE
    zero = false if excludes else other
    multiple = rng.choice([-1, 1]) * _factor(rng)
    left = {
        2 * unknown: factor,
        unknown: multiple - factor * (value + false),
        CONSTANT: factor * value * false - multiple * zero,
    }
    limits = [] if excludes else [_selecting(rng, unknown, value, false)]
    denominator = _linear_sum(unknown, 1, -zero)
    equation = Equation(make_sum(left), denominator, QUOTIENT, multiple)
    return _one(rng, unknown, value, equation, limits)


def _system(rng: random.Random, *, scaled: int, combined: bool) -> Draft:
    """Two equations of which ``scaled`` must be scaled before an unknown can be eliminated."""
    names = sorted(rng.sample(UNKNOWNS, 2))
    values = {name: _value(rng) for name in names}
    while True:
        rows = [_row(rng, values) for _ in range(2)]
        asked = tuple(rng.sample(names, 2))
        counts = [sum(factor > 1 for factor in _factors(rows, gone)) for gone in asked]
        if (min(counts) if combined else counts[1]) == scaled and _fits(rows, names):
            break
    question = (asked[0], rng.choice("+-*"), asked[1]) if combined else asked[:1]
    limits = []
    if rng.random() < TOLD_SHARE:
        about = rng.choice(names)
        limits.append(rng.choice(_satisfied(rng, about, values[about])))
    return Draft(tell(rows, limits, question), values)


def _row(rng: random.Random, values: Mapping[str, int]) -> Equation:
    factors = {name: rng.choice([-1, 1]) * rng.randint(1, HIGHEST_SYSTEM) for name in values}
    number = sum(factors[name] * values[name] for name in values)
    return Equation(make_sum(factors), make_sum({CONSTANT: number}))


def _factors(rows: Sequence[Equation], gone: str) -> tuple[int, int]:
    """What each of two equations is scaled by so that ``gone`` cancels."""
    one, other = (abs(row.left[gone]) for row in rows)
    return math.lcm(one, other) // one, math.lcm(one, other) // other


def _fits(rows: Sequence[Equation], names: Sequence[str]) -> bool:
    """Whether the equations are independent and no number on the way exceeds the vocabulary."""
    (a, b), (c, d) = ([row.left[name] for name in names] for row in rows)
    sizes = [
        sum(
            factor * abs(row.right[CONSTANT])
            for factor, row in zip(_factors(rows, gone), rows, strict=True)
        )
        for gone in names
    ]
    return a * d != b * c and max(sizes) <= HIGHEST


BUILDERS: Mapping[int, tuple[Builder, ...]] = MappingProxyType(
    {
        2: (_short,),
        3: (_two_sided, partial(_system, scaled=0, combined=False)),
        4: (
            partial(_bracketed, form=PRODUCT),
            partial(_bracketed, form=QUOTIENT),
            partial(_quadratic, collected=True, lead=False),
            partial(_system, scaled=1, combined=False),
        ),
        5: (
            partial(_quadratic, collected=False, lead=False),
            partial(_system, scaled=2, combined=False),
        ),
        6: (
            partial(_quadratic, collected=False, lead=True),
            partial(_quotient, lead=False),
            partial(_system, scaled=0, combined=True),
        ),
        7: (partial(_quotient, lead=True), partial(_system, scaled=1, combined=True)),
        8: (partial(_system, scaled=2, combined=True),),
    }
)


def write_solution(told: Told, values: Mapping[str, int], rng: random.Random) -> tuple[Move, ...]:
    """A derivation of the asked value; what may be done in several orders is drawn at random."""
    writer = _Writer(told, values, rng)
    if len(told.equations) == 1:
        writer.single()
    else:
        writer.system()
    answer = asked_value(told.asked, values)
    return (*writer.moves, make_move("answer", value=answer))


class _Writer:
    """Writes right moves one after the other and keeps the equations that they claim."""

    def __init__(self, told: Told, values: Mapping[str, int], rng: random.Random) -> None:
        self.moves: list[Move] = []
        self._told = told
        self._values = values
        self._rng = rng
        self._equations = dict(zip(LABELS, told.equations, strict=False))

    def single(self) -> None:
        """Expand, collect, then solve a linear equation or choose a root of a quadratic one."""
        label = LABELS[0]
        if self._equations[label].form != PLAIN:
            label = self._expand(label)
        equation = self._equations[label]
        if equation.right.unknowns or equation.left[CONSTANT]:
            label = self._collect(label)
        if equation.squared:
            self._select(label)
        else:
            self._solve(label)

    def system(self) -> None:
        """Eliminate one unknown, drawn at random, and go on until all that is asked is known."""
        one, other = LABELS[:2]
        gone, kept = self._rng.sample(sorted(self._values), 2)
        self._solve(self._eliminate(one, other, gone))
        if gone in asked_unknowns(self._told.asked):
            self._solve(self._collect(self._put(kept, self._rng.choice([one, other]))))

    def _claim(
        self,
        op: str,
        left: Sum,
        right: Sum,
        *,
        first: int,
        second: int,
        result: int,
        **head: object,
    ) -> str:
        label = LABELS[len(self._equations)]
        numbers = {"first": first, "second": second, "result": result}
        move = make_move(op, label=label, left=left.terms, right=right.terms, **numbers, **head)
        self.moves.append(move)
        if isinstance(move.args, Claim):
            self._equations[label] = move.args.equation
        return label

    def _expand(self, label: str) -> str:
        equation = self._equations[label]
        factor, number = equation.factor, equation.right[CONSTANT]
        terms = Sum(()).plus(equation.right.without(CONSTANT), factor)
        return self._claim(
            "expand",
            equation.left,
            terms,
            first=factor,
            second=number,
            result=factor * number,
            source=label,
        )

    def _collect(self, label: str) -> str:
        """To the side of the squares, else of the unknown; where both hold it, to either."""
        equation = self._equations[label]
        sides = [equation.left, equation.right]
        both = all(side.unknowns for side in sides) and not equation.squared
        if self._rng.random() < TOLD_SHARE if both else not equation.left.unknowns:
            sides.reverse()
        terms = sides[0].plus(sides[1], -1).without(CONSTANT)
        first, second = sides[1][CONSTANT], sides[0][CONSTANT]
        return self._claim(
            "collect",
            terms,
            Sum(()),
            first=first,
            second=second,
            result=first - second,
            source=label,
        )

    def _multiple(self, op: str, label: str, number: int) -> str:
        """Both sides of a collected equation times ``number``, or divided by it."""
        equation = self._equations[label]
        side = equation.right[CONSTANT]
        divides = op == "divide"
        terms = {name: n // number if divides else n * number for name, n in equation.left.terms}
        return self._claim(
            op,
            make_sum(terms),
            Sum(()),
            first=side if divides else number,
            second=number if divides else side,
            result=side // number if divides else side * number,
            source=label,
            number=number,
        )

    def _eliminate(self, one: str, other: str, gone: str) -> str:
        """The label of an equation without ``gone``."""
        factors = _factors([self._equations[one], self._equations[other]], gone)
        pairs = list(zip((one, other), factors, strict=True))
        self._rng.shuffle(pairs)
        ready = [self._multiple("scale", label, n) if n > 1 else label for label, n in pairs]
        self._rng.shuffle(ready)
        first, second = (self._equations[label] for label in ready)
        op = "subtract" if first.left[gone] == second.left[gone] else "add"
        sign = 1 if op == "add" else -1
        numbers = first.right[CONSTANT], second.right[CONSTANT]
        return self._claim(
            op,
            first.left.plus(second.left, sign),
            Sum(()),
            first=numbers[0],
            second=numbers[1],
            result=numbers[0] + sign * numbers[1],
            source=ready[0],
            other=ready[1],
        )

    def _put(self, unknown: str, label: str) -> str:
        equation, value = self._equations[label], self._values[unknown]
        factor = equation.left[unknown]
        return self._claim(
            "put",
            equation.right,
            equation.left.without(unknown),
            first=factor,
            second=value,
            result=factor * value,
            source=label,
            unknown=unknown,
        )

    def _solve(self, label: str) -> None:
        equation = self._equations[label]
        ((unknown, factor),) = equation.left.terms
        number = equation.right[CONSTANT]
        fields = {"first": number, "second": factor, "result": number // factor}
        self.moves.append(make_move("solve", source=label, unknown=unknown, **fields))

    def _select(self, label: str) -> None:
        """State the roots of a collected equation, drop the one that is none, choose the other."""
        equation = self._equations[label]
        (unknown,) = equation.unknowns
        lead = equation.left[2 * unknown]
        if lead > 1:
            label = self._multiple("divide", label, lead)
            equation = self._equations[label]
        total, product = -equation.left[unknown], -equation.right[CONSTANT]
        value = self._values[unknown]
        low, high = sorted((value, total - value))
        numbers = {"total": total, "product": product, "low": low, "high": high}
        self.moves.append(make_move("roots", source=label, **numbers))
        self._drop(unknown, total - value)
        self.moves.append(make_move("choose", unknown=unknown, value=value))

    def _drop(self, unknown: str, false: int) -> None:
        """By one of the constraints that it violates."""
        violated = [one for one in self._told.constraints if not one.allows(false)]
        reason = self._rng.choice(violated)
        fields = {"unknown": unknown, "kind": reason.kind, "bound": reason.bound}
        self.moves.append(make_move("drop", value=false, **fields))
