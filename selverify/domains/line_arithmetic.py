"""One line of arithmetic: expressions of numbers with + - * / and parentheses, read one way only.

Knows: the grammar, exact values, canonical texts, and when a rounded number stands for an exact
one. Does not know: which numbers may be used. ``arithmetic`` reads mathematics under every reading
that it allows; here a line that could be read in two ways is none. A whitelist of tokens, a
recursive descent with caps, rational arithmetic; nothing is evaluated by Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from selverify.domains.stated_numbers import MAX_DIGITS, NUMERAL, numeral_value

MAX_READ = 200
MAX_EXPRESSION = 100
"""Characters of an expression's canonical text."""
MAX_DEPTH = 6
MAX_OPERATIONS = 16
MAX_WRITTEN = 14
"""Characters of a value that is written down."""
MOST_DECIMALS = 6
"""Digits after the point of a value that is written exactly."""
ROUNDED_DECIMALS = 2
_REMEMBERED = 2**13

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("$\u20ac\u00a3\u00a5", " "),
        **dict.fromkeys("xX\u00d7\u00b7", "*"),
        **dict.fromkeys("\u2212\u2013", "-"),
        "\u00f7": "/",
    }
)
_MIXED = r"\d{1,12} \d{1,3}/\d{1,3}(?![\d.,/])"
_NUMBER = rf"(?:{_MIXED}|(?:{NUMERAL.pattern})%?)"
_TOKEN = re.compile(rf" *({_NUMBER}|[-+*/()])", re.ASCII)
_ALONE = re.compile(rf"(-?) ?({_NUMBER}|\d{{1,12}}/\d{{1,12}}(?![\d.,/]))\.?", re.ASCII)


class NotAnExpression(ValueError):
    """The text is no line of arithmetic, or one beyond the caps; the message is a short reason."""


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number as it is written: ``value``, and how many digits stand after its point.

    ``percent`` where it is a percentage: 25% is worth 1/4, and may also mean 25.
    """

    text: str
    value: Fraction
    decimals: int
    percent: bool

    @property
    def values(self) -> tuple[Fraction, ...]:
        """What it may stand for, its value first."""
        return (self.value, self.value * 100) if self.percent else (self.value,)

    @property
    def trimmed(self) -> Numeral:
        """The same number without zeros at its end."""
        if self.percent or not self.decimals:
            return self
        text = self.text.rstrip("0").rstrip(".")
        return replace(self, text=text, decimals=len(text.partition(".")[2]))


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression's canonical text, exact value (None: it divides by zero) and operands.

    ``key`` is equal for expressions that differ in the order of terms and factors only.
    """

    text: str
    value: Fraction | None
    operands: tuple[Numeral, ...]
    key: str


def terminates(value: Fraction) -> bool:
    """Whether the decimals of ``value`` end: its denominator divides a power of ten."""
    return pow(10, value.denominator.bit_length(), value.denominator) == 0


def counts_as(numeral: Numeral, exact: Fraction) -> bool:
    """Whether ``numeral`` is ``exact``, or that value rounded.

    Rounded numbers lie within half a unit of their last digit. They have two decimals or more, or
    one where the exact value has no end.
    """
    if exact in numeral.values:
        return True
    least = 2 if terminates(exact) else 1
    decimals = [numeral.decimals + 2, numeral.decimals] if numeral.percent else [numeral.decimals]
    return any(
        places >= least and 2 * abs(value - exact) * Fraction(10) ** places <= 1
        for value, places in zip(numeral.values, decimals, strict=True)
    )


def written(value: Fraction) -> str | None:
    """The digits of ``value``: exact where they are few, else rounded to two decimals.

    None where they would be too long, or say zero of what is not.
    """
    exact = terminates(value) and (value * 10**MOST_DECIMALS).denominator == 1
    decimals = MOST_DECIMALS if exact else ROUNDED_DECIMALS
    shifted = round(value * 10**decimals)
    if (value and not shifted) or abs(shifted) >= 10 ** (MAX_WRITTEN + decimals):
        return None
    digits = f"{abs(shifted):0{decimals + 1}d}"
    text = f"{digits[:-decimals]}.{digits[-decimals:]}"
    text = text.rstrip("0").rstrip(".") if exact else text
    if sum(map(str.isdigit, text)) > MAX_DIGITS:
        return None
    text = f"-{text}" if value < 0 else text
    return text if len(text) <= MAX_WRITTEN else None


def read_numeral(text: str) -> Numeral:
    """A number alone: sign, currency, separators, percent, a fraction or a mixed number.

    Raises:
        NotAnExpression: it is something else.
    """
    found = _ALONE.fullmatch(" ".join(text[:MAX_READ].translate(_SIGNS).split()))
    if found is None:
        raise NotAnExpression("the value is no number")
    numeral = _numeral(found[2])
    if found[1] and numeral.value:
        return replace(numeral, text=f"-{numeral.text}", value=-numeral.value)
    return numeral


@lru_cache(maxsize=_REMEMBERED)
def read_expression(text: str) -> Expression:
    """The expression that all of ``text`` is.

    Raises:
        NotAnExpression: it is none, computes nothing, or exceeds a cap.
    """
    if len(text) > MAX_READ:
        raise NotAnExpression(f"longer than {MAX_READ} characters")
    reader = _Reader(_tokens(text.translate(_SIGNS)))
    found = reader.sum(0)
    if reader.place != len(reader.tokens):
        raise NotAnExpression("the expression does not end")
    if not reader.operations:
        raise NotAnExpression("nothing is computed")
    canonical = _unwrapped(found.text)
    if len(canonical) > MAX_EXPRESSION:
        raise NotAnExpression(f"an expression longer than {MAX_EXPRESSION} characters")
    return Expression(canonical, found.value, tuple(reader.operands), found.key)


def _unwrapped(text: str) -> str:
    """Without a pair of parentheses around all of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if not depth:
            return text[1:-1] if place == len(text) - 1 else text
    return text


def _tokens(text: str) -> list[str]:
    tokens, place, text = [], 0, " ".join(text.split())
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise NotAnExpression("not numbers, + - * / and parentheses alone")
        tokens.append(found[1])
        place = found.end()
    return tokens


def _numeral(token: str) -> Numeral:
    if "/" in token:
        return _with_fraction(token)
    percent = token.endswith("%")
    digits = token.rstrip("%")
    value = numeral_value(digits)
    if value is None:
        raise NotAnExpression(f"a number of more than {MAX_DIGITS} digits")
    whole, point, decimals = digits.replace(",", "").partition(".")
    text = (whole.lstrip("0") or "0") + point + decimals + "%" * percent
    return Numeral(text, value / 100 if percent else value, len(decimals), percent)


def _with_fraction(token: str) -> Numeral:
    """``1/3`` or ``3 1/3``."""
    whole, _, part = token.rpartition(" ")
    above, below = (int(digits) for digits in part.split("/"))
    if not below:
        raise NotAnExpression("division by zero")
    text = f"{int(whole)} {above}/{below}" if whole else f"{above}/{below}"
    return Numeral(text, int(whole or 0) + Fraction(above, below), 0, percent=False)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a rule of the grammar has read; ``value`` None after a division by zero."""

    text: str
    value: Fraction | None
    key: str


class _Reader:
    """Recursive descent over tokens; a method reads one rule of the grammar and moves on."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.place = 0
        self.operations = 0
        self.operands: list[Numeral] = []

    def sum(self, depth: int) -> _Part:
        if depth > MAX_DEPTH:
            raise NotAnExpression("nested too deeply")
        first = self.product(depth)
        terms = [("+", first)]
        while self.peek() in ("+", "-"):
            terms.append((self.operator(), self.product(depth)))
        return _combined(terms)

    def product(self, depth: int) -> _Part:
        factors = [("*", self.signed(depth))]
        while self.peek() in ("*", "/"):
            factors.append((self.operator(), self.signed(depth)))
        return _combined(factors)

    def signed(self, depth: int) -> _Part:
        if self.peek() not in ("+", "-"):
            return self.atom(depth)
        negative = self.take() == "-"
        part = self.atom(depth)
        if not negative:
            return part
        value = None if part.value is None else -part.value
        return _Part(f"-{part.text}", value, f"~{part.key}")

    def atom(self, depth: int) -> _Part:
        token = self.take()
        if token == "(":
            inner = self.sum(depth + 1)
            if self.take() != ")":
                raise NotAnExpression("a parenthesis is left open")
            return replace(inner, text=f"({_unwrapped(inner.text)})")
        if not token or token in "+-*/)":
            raise NotAnExpression("a number is missing")
        numeral = _numeral(token).trimmed
        self.operands.append(numeral)
        return _Part(numeral.text, numeral.value, str(numeral.value))

    def operator(self) -> str:
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise NotAnExpression(f"more than {MAX_OPERATIONS} operations")
        return self.take()

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.place += 1
        return token


def _combined(parts: list[tuple[str, _Part]]) -> _Part:
    """Terms or factors, each with the operator before it, from left to right."""
    first, others = parts[0][1], parts[1:]
    if not others:
        return first
    text, value = first.text, first.value
    for operator, part in others:
        text = f"{text} {operator} {part.text}"
        value = _result(value, operator, part.value)
    key = " ".join(sorted(f"{operator}{part.key}" for operator, part in parts))
    return _Part(text, value, f"({key})")


def _result(left: Fraction | None, operator: str, right: Fraction | None) -> Fraction | None:
    if left is None or right is None or (operator == "/" and not right):
        return None
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return left / right
