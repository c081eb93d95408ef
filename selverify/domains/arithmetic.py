"""Exact values of numeric expressions in plain or LaTeX notation, under every reading they allow.

Knows: numbers, ``+ - * / ^ ! %``, brackets, fractions, roots, binomials, mixed numbers. Does not
know: variables, sentences. The text is hostile: a whitelist of tokens, caps on length, depth,
digits and powers, rational arithmetic of our own; nothing is evaluated by Python or sympy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_TOKENS = 200
MAX_DEPTH = 24
MAX_DIGITS = 40
MAX_POWER = 64
MAX_BITS = 2048
MAX_FACTORIAL = 60
MAX_READINGS = 16

NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+", re.ASCII)
CLOCK = re.compile(r"0\d+", re.ASCII)
OPEN = {"(": ")", "[": "]", "{": "}"}
FUNCTIONS = ("\\frac", "\\sqrt", "\\binom")
Values = frozenset[Fraction]


class NotNumeric(ValueError):
    """The tokens are no numeric expression, or one beyond the caps."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A numeric expression: its values under every reading, and what it consists of.

    ``operations`` counts the binary ones, ``decimals`` is the most digits after a point, ``first``
    holds the values of the first operand alone.
    """

    values: Values
    operations: int
    decimals: int
    first: Values


def read_expression(tokens: Sequence[str]) -> Expression:
    """The expression that all of ``tokens`` make up.

    Several readings: ``2 1/2`` and ``2\\frac12`` (mixed number or product), ``-2^2``,
    ``1/2(3)``, ``28 / 1/5``, ``20%`` (0.2 or 20), ``5!`` (factorial, or the end of a sentence).

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
    return Expression(values, reader.operations, decimals, reader.first)


class _Reader:
    """Recursive descent over tokens; a method reads one rule of the grammar and moves on."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.place = 0
        self.operations = 0
        self.first: Values = frozenset()

    def sum(self, depth: int) -> Values:
        if depth > MAX_DEPTH:
            raise NotNumeric("nested too deeply")
        total = self.product(depth)
        if not depth and not self.first:
            self.first = total
        while self.peek() in ("+", "-"):
            sign = self.take()
            total = _both(
                total, self.product(depth), _add if sign == "+" else lambda a, b: _add(a, -b)
            )
            self.operations += 1
        return total

    def product(self, depth: int) -> Values:
        total = self.signed(depth)
        if not depth and not self.first:
            self.first = total
        divided: Values | None = None  # the dividend, while its divisor may go on: 1/2(3)
        last = total
        while True:
            token = self.peek()
            if token in ("*", "/"):
                self.take()
                factor = self.signed(depth)
                ways = [_both(total, factor, _multiply if token == "*" else _divide)]
                if token == "/" and divided is not None:  # 28 / 1/5
                    ways.append(_both(divided, _both(last, factor, _divide), _divide))
                divided = total if token == "/" else None
                total, last = _any(ways), factor
            elif token in OPEN or token in FUNCTIONS:
                factor = self.power(depth)
                ways = [_both(total, factor, _multiply)]
                if divided is not None:
                    ways.append(_both(divided, _both(last, factor, _multiply), _divide))
                total = _any(ways)
            else:
                return total
            self.operations += 1

    def signed(self, depth: int) -> Values:
        if self.peek() in ("+", "-"):
            negative = self.take() == "-"
            start = self.place
            values = self.signed(depth + 1) if depth < MAX_DEPTH else self.fail("signs")
            if not negative:
                return values
            turned = frozenset(-value for value in values)
            powered = "^" in self.tokens[start : self.place] and _is_number(self.tokens[start])
            return _any((turned, values)) if powered else turned
        return self.power(depth)

    def power(self, depth: int) -> Values:
        base = self.postfixed(depth)
        if self.peek() != "^":
            return base
        self.take()
        exponent = self.sum_in_brackets(depth) if self.peek() in OPEN else self.signed(depth + 1)
        self.operations += 1
        return _both(base, exponent, _power)

    def postfixed(self, depth: int) -> Values:
        values = self.atom(depth)
        while self.peek() in ("!", "%"):
            if self.take() == "%":
                values = _any((values, frozenset(value / 100 for value in values)))
            else:
                self.operations += 1
                grown = [_factorial(value) for value in values if 0 <= value <= MAX_FACTORIAL]
                values = _any((values, frozenset(one for one in grown if one is not None)))
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
            return _both(above, below, _divide)
        if token == "\\binom":
            self.take()
            self.operations += 1
            return _both(self.argument(depth), self.argument(depth), _binomial)
        if token == "\\sqrt":
            self.take()
            self.operations += 1
            index: Values = frozenset({Fraction(2)})
            if self.peek() == "[":
                index = self.sum_in_brackets(depth)
            return _both(self.argument(depth), index, _root)
        raise NotNumeric(f"unexpected {token!r}")

    def mixed(self, whole: Fraction, depth: int) -> Values:
        """``whole``, or with the fraction that follows it: 2 1/2, 2\\frac12."""
        after = list(self.tokens[self.place : self.place + 3])
        if whole.denominator == 1 and self.peek() == "\\frac":
            self.operations += 1
            values, part = frozenset({whole}), self.power(depth)
            return _any((_both(values, part, _add), _both(values, part, _multiply)))
        is_fraction = len(after) == 3 and after[1] == "/" and after[0].isdigit()
        if not (is_fraction and after[2].isdigit() and whole.denominator == 1):
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
        if token is not None and len(token) == 1 and token.isdigit():
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

    def fail(self, why: str) -> Values:
        raise NotNumeric(f"too many {why}")


def _is_number(token: str) -> bool:
    return NUMBER.fullmatch(token) is not None


def _number(token: str) -> Fraction:
    if len(token) > MAX_DIGITS:
        raise NotNumeric("too many digits")
    if CLOCK.fullmatch(token):
        raise NotNumeric(f"{token!r} may be a time or a code")
    return Fraction(token.replace(",", ""))


def _both(
    left: Values, right: Values, combine: Callable[[Fraction, Fraction], Fraction | None]
) -> Values:
    """Every value of the combination that is defined and within the caps."""
    found = (combine(a, b) for a in left for b in right)
    return _any([frozenset(value for value in found if value is not None)])


def _any(ways: Iterable[Values]) -> Values:
    values = frozenset().union(*ways)
    if not values:
        raise NotNumeric("no value")
    if len(values) > MAX_READINGS or any(_bits(value) > MAX_BITS for value in values):
        raise NotNumeric("beyond the caps")
    return values


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _add(a: Fraction, b: Fraction) -> Fraction:
    return a + b


def _multiply(a: Fraction, b: Fraction) -> Fraction:
    return a * b


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
    """The rational root, or None where it is not rational."""
    if index.denominator != 1 or not 2 <= index <= MAX_POWER or value < 0:
        return None
    parts = [_integer_root(part, index.numerator) for part in (value.numerator, value.denominator)]
    return Fraction(parts[0], parts[1]) if None not in parts else None  # type: ignore[arg-type]


def _integer_root(value: int, index: int) -> int | None:
    low, high = 0, 1 << (value.bit_length() // index + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**index < value else (low, middle)
    return low if low**index == value else None
