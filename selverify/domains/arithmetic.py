"""Exact values of numeric expressions in plain or LaTeX notation, under every reading they allow.

Knows: numbers, ``+ - * / ^ ! %``, brackets, fractions, roots, binomials, mixed numbers. Does not
know: variables, sentences. The text is hostile: a whitelist of tokens, caps on length, depth,
digits and powers, rational arithmetic of our own; nothing is evaluated by Python or sympy.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_TOKENS = 200
_MAX_DEPTH = 24
MAX_DIGITS = 40
MAX_POWER = 64
MAX_BITS = 512
MAX_FACTORIAL = 60
MAX_READINGS = 6
ROOTS = (2, 3, 4)

NUMERAL = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+", re.ASCII)
CLOCK = re.compile(r"0\d+", re.ASCII)
OPEN = {"(": ")", "{": "}"}
FUNCTIONS = ("\\frac", "\\sqrt", "\\binom")
Values = frozenset[Fraction]


class NotNumeric(ValueError):
    """The tokens are no numeric expression, or one beyond the caps."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A numeric expression: its values under every reading, and what it consists of.

    ``operations`` counts the binary ones, ``decimals`` is the most digits after a point (a percent
    sign is worth two), ``begun`` holds the values of what it begins with: of 12 + 5 - 3 those of
    12 and of 12 + 5.
    """

    values: Values
    operations: int
    decimals: int
    begun: Values


def read_expression(tokens: Sequence[str]) -> Expression:
    """The expression that all of ``tokens`` make up.

    Several readings: ``2\\frac12`` (mixed number or product), ``-2^2``, ``1/2(3)``, ``28 / 1/5``,
    ``20%`` (0.2 or 20), ``200 + 10%``, ``5!`` (factorial, or the end of a sentence).

    Raises:
        NotNumeric: they do not, or a cap is exceeded.
    """
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise NotNumeric(f"{len(tokens)} tokens")
    reader = _Reader(tokens)
    values = reader.sum(0)
    if reader.place != len(tokens):
        raise NotNumeric(f"stopped at {tokens[reader.place]!r}")
    decimals = max((len(token.partition(".")[2]) for token in tokens if "." in token), default=0)
    if "%" in tokens:
        decimals += 2
    return Expression(values, reader.operations, decimals, reader.begun)


class _Reader:
    """Recursive descent over tokens; a method reads one rule of the grammar and moves on."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.place = 0
        self.operations = 0
        self.begun: Values = frozenset()

    def sum(self, depth: int) -> Values:
        if depth > _MAX_DEPTH:
            raise NotNumeric("nested too deeply")
        total = self.product(depth, begins=not depth)
        while self.peek() in ("+", "-"):
            if not depth:
                self.begun |= total
            sign = 1 if self.take() == "+" else -1
            term = frozenset(sign * value for value in self.product(depth))
            ways = [_combined(total, term, operator.add)]
            if self.tokens[self.place - 1] == "%":
                ways.append(_combined(total, term, lambda a, b: a + a * b))
            total = _within_caps(ways)
            self.operations += 1
        return total

    def product(self, depth: int, *, begins: bool = False) -> Values:
        total = self.signed(depth)
        divided: Values | None = None  # the dividend, while its divisor may go on: 1/2(3)
        last = total
        while True:
            token = self.peek()
            if begins and token is not None:
                self.begun |= total
            if token in ("*", "/"):
                self.take()
                factor = self.signed(depth)
                ways = [_combined(total, factor, operator.mul if token == "*" else _divide)]
                if token == "/" and divided is not None:  # 28 / 1/5
                    ways.append(_combined(divided, _combined(last, factor, _divide), _divide))
                divided = total if token == "/" else None
                total, last = _within_caps(ways), factor
            elif token in OPEN or token in FUNCTIONS:
                factor = self.power(depth)
                ways = [_combined(total, factor, operator.mul)]
                if divided is not None:
                    ways.append(_combined(divided, _combined(last, factor, operator.mul), _divide))
                total = _within_caps(ways)
            else:
                return total
            self.operations += 1

    def signed(self, depth: int) -> Values:
        if self.peek() in ("+", "-"):
            negative = self.take() == "-"
            start = self.place
            if depth >= _MAX_DEPTH:
                raise NotNumeric("too many signs")
            values = self.signed(depth + 1)
            if not negative:
                return values
            turned = frozenset(-value for value in values)
            powered = "^" in self.tokens[start : self.place] and _is_number(self.tokens[start])
            return _within_caps((turned, values)) if powered else turned
        return self.power(depth)

    def power(self, depth: int) -> Values:
        base = self.postfixed(depth)
        if self.peek() != "^":
            return base
        self.take()
        exponent = self.sum_in_brackets(depth) if self.peek() in OPEN else self.signed(depth + 1)
        self.operations += 1
        return _combined(base, exponent, _power)

    def postfixed(self, depth: int) -> Values:
        values = self.atom(depth)
        while self.peek() in ("!", "%"):
            sign, after = self.take(), self.peek()
            if after == sign or (sign == "%" and after is not None and _begins_a_term(after)):
                raise NotNumeric(f"{sign}{after}")  # a double factorial, a remainder
            if sign == "%":
                values = _within_caps((values, frozenset(value / 100 for value in values)))
            else:
                self.operations += 1
                grown = [_factorial(value) for value in values if 0 <= value <= MAX_FACTORIAL]
                values = _within_caps((values, frozenset(one for one in grown if one is not None)))
        return values

    def atom(self, depth: int) -> Values:
        token = self.peek()
        if token is None:
            raise NotNumeric("ends early")
        if _is_number(token):
            self.take()
            return self.mixed(_number(token), depth)
        if token in OPEN:
            return self.sum_in_brackets(depth)
        if token == "\\frac":
            self.take()
            above, below = self.argument(depth), self.argument(depth)
            self.operations += 1
            return _combined(above, below, _divide)
        if token == "\\binom":
            self.take()
            self.operations += 1
            return _combined(self.argument(depth), self.argument(depth), _binomial)
        if token == "\\sqrt":
            self.take()
            self.operations += 1
            return _combined(self.argument(depth), frozenset({Fraction(2)}), _root)
        raise NotNumeric(f"unexpected {token!r}")

    def mixed(self, whole: Fraction, depth: int) -> Values:
        """``whole``, or with the fraction that follows it: 2 1/2, 2\\frac12."""
        after = list(self.tokens[self.place : self.place + 3])
        if whole.denominator == 1 and self.peek() == "\\frac":
            self.operations += 1
            values, part = frozenset({whole}), self.atom(depth)
            return _within_caps(
                (_combined(values, part, operator.add), _combined(values, part, operator.mul))
            )
        is_fraction = len(after) == 3 and after[1] == "/" and _is_integer(after[0])
        if not (is_fraction and _is_integer(after[2]) and whole.denominator == 1):
            return frozenset({whole})
        self.place += 3
        part_value = _divide(_number(after[0]), _number(after[2]))
        if part_value is None:
            raise NotNumeric("division by zero")
        return frozenset({whole + part_value})

    def argument(self, depth: int) -> Values:
        """What a LaTeX command is given: a bracket, or one digit: \\frac12."""
        token = self.peek()
        if token in OPEN:
            return self.sum_in_brackets(depth)
        if token is not None and len(token) == 1 and _is_integer(token):
            self.take()
            return frozenset({Fraction(int(token))})
        raise NotNumeric("a command without arguments")

    def sum_in_brackets(self, depth: int) -> Values:
        close = OPEN[self.take()]
        values = self.sum(depth + 1)
        if self.peek() != close:
            raise NotNumeric(f"expected {close!r}")
        self.take()
        return values

    def peek(self) -> str | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1]


def _is_number(token: str) -> bool:
    return NUMERAL.fullmatch(token) is not None


def _is_integer(token: str) -> bool:
    return token.isascii() and token.isdigit()


def _begins_a_term(token: str) -> bool:
    return _is_number(token) or token in OPEN or token in FUNCTIONS


def _number(token: str) -> Fraction:
    if len(token) > MAX_DIGITS:
        raise NotNumeric("too many digits")
    if CLOCK.fullmatch(token):
        raise NotNumeric(f"{token!r} may be a time or a code")
    return Fraction(token.replace(",", ""))


def _combined(
    left: Values, right: Values, combine: Callable[[Fraction, Fraction], Fraction | None]
) -> Values:
    """Every value of the combination that is defined and within the caps."""
    found = (combine(a, b) for a in left for b in right)
    return _within_caps([frozenset(value for value in found if value is not None)])


def _within_caps(ways: Iterable[Values]) -> Values:
    values = frozenset().union(*ways)
    if not values:
        raise NotNumeric("no value")
    if len(values) > MAX_READINGS or any(_bits(value) > MAX_BITS for value in values):
        raise NotNumeric("beyond the caps")
    return values


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _divide(a: Fraction, b: Fraction) -> Fraction | None:
    return a / b if b else None


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        root = _root(base, Fraction(exponent.denominator))
        return None if root is None else _power(root, Fraction(exponent.numerator))
    size = abs(exponent.numerator)
    if size > MAX_POWER or _bits(base) * size > MAX_BITS or (not base and exponent < 0):
        return None
    return base**exponent.numerator


def _factorial(value: Fraction) -> Fraction | None:
    return Fraction(math.factorial(value.numerator)) if value.denominator == 1 else None


def _binomial(n: Fraction, k: Fraction) -> Fraction | None:
    whole = n.denominator == k.denominator == 1 and 0 <= k <= n <= MAX_FACTORIAL
    return Fraction(math.comb(n.numerator, k.numerator)) if whole else None


def _root(value: Fraction, index: Fraction) -> Fraction | None:
    """The rational square, cube or fourth root, or None."""
    if index not in ROOTS or value < 0:
        return None
    above, below = (
        _integer_root(part, index.numerator) for part in (value.numerator, value.denominator)
    )
    return None if above is None or below is None else Fraction(above, below)


def _integer_root(value: int, index: int) -> int | None:
    low, high = 0, 1 << (value.bit_length() // index + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**index < value else (low, middle)
    return low if low**index == value else None
