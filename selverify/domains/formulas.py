"""Formulas of structured moves: the names in them, and what they are worth.

Knows: arithmetic over numbers and names that have values, values that were rounded. Does not know:
moves, states, what a problem asks. What is no arithmetic for certain has no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from selverify.domains.arithmetic import (
    FUNCTIONS,
    NUMERAL,
    OPEN,
    Expression,
    NotNumeric,
    read_expression,
)
from selverify.domains.claims import (
    ELSEWHERE,
    NUMERIC,
    OPERATIONS,
    REPLACED,
    rounding_explains,
)

_MAX_DIVISORS = 8
_REMEMBERED = 4_096
"""Expressions whose tokens are kept: a gate and ``apply`` look at one several times."""
_TOKEN = re.compile(
    rf"(?P<number>{NUMERAL.pattern})|(?P<name>[A-Za-z][A-Za-z0-9_]*)|(?P<command>\\[A-Za-z]+)"
    r"|(?P<space>\s+)|(?P<sign>.)",
    re.DOTALL | re.ASCII,
)
_LETTERS = re.compile(r"[A-Za-z]+", re.ASCII)
_INDEXED = re.compile(r"([A-Za-z])_?\{?([A-Za-z0-9]+)\}?", re.ASCII)
_FORMULA_BEGINS_OR_ENDS = re.compile(r"\$\$?|\\[\[\]()]")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_HYPHENATED = re.compile(r"[A-Za-z]{2}-[A-Za-z]|[A-Za-z]-[A-Za-z]{2}", re.ASCII)
_UNORDINARY = re.compile(r"\d_\{?\d|[A-Za-z]\s?\*\s?[A-Za-z]", re.ASCII)
"""In a problem: a number in another base, or an operation that it may define itself."""
_AMBIGUOUS = re.compile(r"&|\\boxed|\(\s*[\d,]*\d,\d{3}\s*\)", re.ASCII)
"""In an expression: a table, a box beside a number, a pair that reads like one number."""
_MAX_GLUED = 6
"""Letters of a formula, or capitals, that may be several names written together: ABC, xy."""
_BEFORE_A_NAME = frozenset({*"+-*/^({", ""})
_AFTER_A_NAME = frozenset({*"+-*/^!%)}", ""})
_CONSTANTS = frozenset({"pi", "e", "i", "infinity", "inf"})
_OTHER_NUMBERS = ELSEWHERE - {"digit", "digits", "parity"}
"""Words of a problem whose arithmetic may not be the ordinary one."""


@dataclass(frozen=True, slots=True)
class Known:
    """A value as it was written: the true one lies at most ``slack`` away."""

    value: Fraction
    slack: Fraction


KnownValues = Mapping[str, Known]


def names_in(text: str) -> frozenset[str]:
    """Names that a text uses: its words, and what formulas and capitals may be made of."""
    words = frozenset(_LETTERS.findall(text))
    capitals = (_parts(word) for word in words if word.isupper())
    formulas = _FORMULA_BEGINS_OR_ENDS.split(text.replace("\\$", " "))[1::2]
    return words.union(*capitals, *map(names_of_formula, formulas))


def names_of_formula(formula: str) -> frozenset[str]:
    """Names that a formula may be made of: letters, with and without an index, and commands."""
    plain = _COMMAND.sub(" ", formula)
    indexed = _INDEXED.findall(plain)
    spelled = {f"{letter}{sign}{index}" for letter, index in indexed for sign in ("", "_")}
    runs = _LETTERS.findall(plain)
    return frozenset(spelled).union(_COMMAND.findall(formula), *map(_parts, runs))


def _parts(run: str) -> frozenset[str]:
    """Every piece of a short run of letters, the run itself alone of a long one."""
    if len(run) > _MAX_GLUED:
        return frozenset({run})
    ends = range(len(run) + 1)
    return frozenset(run[start:stop] for stop in ends for start in range(stop))


def is_ordinary(text: str) -> bool:
    """Whether a problem's arithmetic is that of numbers to the base ten, without a modulus."""
    return not words_of(text) & _OTHER_NUMBERS and not _UNORDINARY.search(text)


def words_of(text: str) -> frozenset[str]:
    """The words of ``text`` in lower case."""
    return frozenset(_LETTERS.findall(text.lower()))


@lru_cache(maxsize=_REMEMBERED)
def _tokens(text: str) -> tuple[str, ...] | None:
    """The tokens of arithmetic over numbers and names; None for anything else.

    A name counts where operations or brackets stand around it: neither ``5 m`` nor ``f(2)``, which
    may be a unit and a function.
    """
    if _AMBIGUOUS.search(text):
        return None
    text = text.replace("**", "^")
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    found = [match[0] for match in _TOKEN.finditer(text) if not match["space"]]
    tokens = [
        "\\sqrt" if token == "sqrt" and after in OPEN else token
        for token, after in zip(found, (*found[1:], ""), strict=False)
    ]
    around = zip(("", *tokens), tokens, (*tokens[1:], ""), strict=False)
    if all(_is_arithmetic(before, token, after) for before, token, after in around):
        return tuple(tokens)
    return None


def _is_arithmetic(before: str, token: str, after: str) -> bool:
    if _is_name(token):
        return before in _BEFORE_A_NAME and after in _AFTER_A_NAME
    return token in NUMERIC or token in FUNCTIONS or NUMERAL.fullmatch(token) is not None


def _is_name(token: str) -> bool:
    return token.isascii() and token[0].isalpha()


def out_of_scope(text: str, named: frozenset[str], *, shortest: int) -> str | None:
    """A name of at least ``shortest`` letters that nothing introduced, in a calculation.

    A word alone may be a value of its own, and a letter or two the variable of a polynomial.
    """
    tokens = _tokens(text)
    if tokens is None or _HYPHENATED.search(text) or not OPERATIONS.intersection(tokens):
        return None
    for token in tokens:
        in_scope = token in named | _CONSTANTS or named.issuperset(token)
        letters = _LETTERS.match(token)
        if letters is not None and len(letters[0]) >= shortest and not in_scope:
            return f"scope: {token} is not introduced"
    return None


def calculates(text: str) -> bool:
    """Whether it has an operation between two terms: ``x = -3`` may be another root."""
    tokens = _tokens(text) or ()
    between = (
        token in OPERATIONS and before not in _BEFORE_A_NAME for before, token in pairwise(tokens)
    )
    return any(between)


def read_value(text: str, values: KnownValues) -> Expression | None:
    """What ``text`` is worth where every name in it has an exact value, else None."""
    tokens = _tokens(text)
    return None if tokens is None else _read_tokens(tokens, values)


def _read_tokens(tokens: Sequence[str], values: KnownValues) -> Expression | None:
    spelled: list[str] = []
    for token in tokens:
        known = values.get(token)
        if known is not None and not known.slack:
            spelled += _spelled(known.value)
        else:
            spelled.append(token)
    try:
        return read_expression(spelled)
    except NotNumeric:
        return None


def _spelled(value: Fraction) -> Iterable[str]:
    sign = ("-",) if value < 0 else ()
    below = ("/", str(value.denominator)) if value.denominator != 1 else ()
    return ("(", *sign, str(abs(value.numerator)), *below, ")")


def divides_by_zero(text: str, values: KnownValues) -> bool:
    """Whether a divisor of ``text`` is 0; the first few are looked at."""
    tokens = _tokens(text) or ()
    slashes = [place for place, token in enumerate(tokens) if token == "/"]
    for place in slashes[:_MAX_DIVISORS]:
        divisor = _divisor(tokens[place + 1 :])
        after = tokens[place + 1 + len(divisor) :][:1]
        read = _read_tokens(divisor, values)
        if read is not None and read.values == {0} and after not in (("^",), ("!",)):
            return True
    return False


def _divisor(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """The number, the name or the bracket that ``tokens`` begin with."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token in OPEN) - (token in OPEN.values())
        if depth <= 0:
            return tokens[: place + 1]
    return tokens


def agree(left: Expression, right: Expression, *, whole: bool) -> bool:
    """Under some reading; decimals may be rounded, and with ``whole`` whole numbers too."""
    if left.values & right.values:
        return True
    places = max(left.decimals, right.decimals)
    return any(
        rounding_explains(one, other, places)
        or (whole and other.denominator == 1 and abs(one - other) < 1)
        for one in left.values
        for other in right.values
    )


def may_be_same(one: Known, other: Known) -> bool:
    """Within what rounding explains, also to a whole number."""
    apart = abs(one.value - other.value)
    whole = (one.value.denominator == 1) != (other.value.denominator == 1)
    return apart <= one.slack + other.slack or (whole and apart < 1)


def reconciled(before: Known, after: Known) -> Known:
    """The more exact of two equal values; of two that rounding explains, what lies between."""
    apart = abs(before.value - after.value)
    if apart:
        return Known(after.value, apart + before.slack + after.slack)
    return min(before, after, key=lambda one: one.slack)


def scaled(known: Known, factor: int | Fraction) -> Known:
    """``factor`` times a value."""
    return Known(known.value * factor, known.slack * factor)
