"""Arithmetic claims in a step of ordinary text: ``48 / 2 = 24`` is one, ``x + 3 = 7`` is not.

Knows: where a numeric expression begins and ends in a sentence, units, LaTeX around it. Does not
know: what the step is about. A claim is taken only where both of its sides are numeric from end to
end, and is false only if no reading of it is true: a gate must not refuse a right step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from selverify.domains.arithmetic import (
    FUNCTIONS,
    MAX_TOKENS,
    NUMBER,
    OPEN,
    Expression,
    NotNumeric,
    read_expression,
)

MAX_TEXT = 4_000
MAX_CLAIMS = 50
MAX_UNITS = 3
"""Words between a number and the next operation: 5 red apples + 3."""

ROUNDED = Fraction(1, 100)
"""How far apart, relatively, the sides may lie where one of them is written as a decimal."""

REPLACED = (
    (re.compile(r"\\!"), ""),
    (re.compile(r"\$\$|\$\s+\$|\\q?quad\b"), " ; "),
    (re.compile(r"\\left\b|\\right\b|\\displaystyle\b|\\[,;: ]|\\\$|[$~&]"), " "),
    (re.compile(r"\\[\[\]()]|<<|>>|\*\*(?=\s|$)|(?:(?<=\s)|^)\*\*"), " ; "),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\*\*(?=\d)"), "^"),
    (re.compile("\\\\times\\b|\\\\cdot\\b|[\u00d7\u00b7\u22c5\u2217]"), "*"),
    (re.compile(r"\\div\b|÷"), "/"),
    (re.compile("[\u2212\u2013]"), "-"),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\[dt]binom"), r"\\binom"),
    (re.compile(r"\\(frac|binom)\s*(\d)\s*(\d)"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\sqrt\s*(\d)"), r"\\sqrt{\1}"),
    (re.compile(r"\^\s*\{?\\circ\}?|°|\^\s*\\degree"), " "),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\(?:approx|doteq)\b|≈|≃"), "≈"),
    (re.compile(r"\\(?:text|textbf|mathrm|mbox|textit)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\(?:boxed|fbox)\s*(?=\{)"), " "),
)
TOKEN = re.compile(
    rf"(?P<number>{NUMBER.pattern})|(?P<command>\\[A-Za-z]+)|(?P<word>[^\W\d_]+)|(?P<dots>\.\.+|…)"
    r"|(?P<newline>\\\\|\n)|(?P<space>[^\S\n]+)|(?P<sign>.)",
    re.DOTALL | re.ASCII,
)
NUMERIC = frozenset("+-*/^!%(){}")
OPERATIONS = frozenset("+-*/^")
ENDS = frozenset({".", ",", ";", "?", "\n", "=", "≈", ":"})
SPOILING = frozenset(
    """
    of times plus minus by than to from per half double twice thrice triple quarter third
    square squared cube cubed root log ln lg sin cos tan cot sec csc arcsin arccos arctan max min
    gcd lcm mod modulo remainder floor ceil sum product difference quotient average mean ratio
    power base factorial choose each every multiplied divided more less over at with one
    two three four five six seven eight nine ten hundred thousand million billion dozen percent
    cents ago later past o clock am pm
    """.split()  # noqa: SIM905
)
"""Words beside an expression that change its value; without them a word is a unit or prose."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``left`` equals ``right``, as it was written; ``holds`` under at least one reading."""

    left: str
    right: str
    holds: bool


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    kind: str
    spaced: bool  # white space stands before it


def find_claims(text: str) -> tuple[Claim, ...]:
    """The arithmetic claims of ``text``, from left to right; at most 50, in 4,000 characters."""
    if "=" not in text and "≈" not in text and "\\approx" not in text:
        return ()
    tokens = _tokens(text[:MAX_TEXT])
    found: list[Claim] = []
    for place, token in enumerate(tokens):
        if token.text in ("=", "≈") and len(found) < MAX_CLAIMS:
            claim = _claim(tokens, place)
            if claim is not None:
                found.append(claim)
    return tuple(found)


def _tokens(text: str) -> list[_Token]:
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    tokens: list[_Token] = []
    spaced = True
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        if kind == "space":
            spaced = True
            continue
        token = _Token("\n" if kind == "newline" else match[0], kind, spaced)
        tokens.append(token)
        spaced = kind == "newline"
    return _with_times(tokens)


def _with_times(tokens: list[_Token]) -> list[_Token]:
    """``3 x 4`` is a product; an x elsewhere stays a letter."""
    found = list(tokens)
    for place in range(1, len(tokens) - 1):
        before, token, after = tokens[place - 1 : place + 2]
        if token.text in ("x", "X") and before.kind == after.kind == "number":
            found[place] = _Token("*", "sign", token.spaced)
    return found


def _claim(tokens: Sequence[_Token], place: int) -> Claim | None:
    left = _left_side(tokens, place)
    right = _right_side(tokens, place)
    if left is None or right is None:
        return None
    try:
        sides = [[read_expression(way) for way in ways] for ways in (left, right)]
    except NotNumeric:
        return None
    if not any(side.operations for ways in sides for side in ways):
        return None
    if not sides[0][0].operations and not _stands_alone(tokens, place):
        return None  # all 4 subjects = 186 + 62
    goes_on = _goes_on(tokens, place)
    nearly = tokens[place].text == "≈" or _is_near(tokens, place, HEDGES)
    whole = _is_near(tokens, place, LEFT_OVER)
    holds = any(
        _agree(one, other, goes_on=goes_on, nearly=nearly, whole=whole)
        for one in sides[0]
        for other in sides[1]
    )
    return Claim(" ".join(left[0]), " ".join(right[0]), holds)


def _left_side(tokens: Sequence[_Token], place: int) -> list[list[str]] | None:
    """The readings of the expression that ends before ``place``; None unless it begins cleanly."""
    start = place
    kept: list[str] = []
    while start and len(kept) <= MAX_TOKENS:
        token = tokens[start - 1]
        if _is_numeric(token):
            kept.append(token.text)
        elif not _is_unit(tokens, start - 1):
            break
        start -= 1
    kept.reverse()
    if not kept or (start and not _is_clean(tokens, start - 1)):
        return None
    if kept[0] in ("+", "-"):
        opening = not start or tokens[start - 1].text in ("\n", ";", "=", "≈")
        return [kept, kept[1:]] if opening and kept[0] == "-" and len(kept) > 1 else None
    if start and tokens[start - 1].text == "," and not tokens[start].spaced:
        return None
    return [kept]


def _right_side(tokens: Sequence[_Token], place: int) -> list[list[str]] | None:
    """The expression that begins after ``place``; None unless it ends cleanly."""
    stop = place + 1
    kept: list[str] = []
    while stop < len(tokens) and len(kept) <= MAX_TOKENS:
        token = tokens[stop]
        if _is_numeric(token):
            kept.append(token.text)
        elif not _is_unit(tokens, stop):
            break
        stop += 1
    if not kept or (stop < len(tokens) and not _ends_cleanly(tokens, stop)):
        return None
    while kept and kept[-1] in OPEN:  # a remark in brackets follows
        kept.pop()
    return [kept] if kept else None


def _stands_alone(tokens: Sequence[_Token], place: int) -> bool:
    """Whether the side before ``place`` is all that its line or the last relation left."""
    while place and _is_numeric(tokens[place - 1]):
        place -= 1
    return not place or tokens[place - 1].text in ("\n", ";", "=", "≈")


def _is_numeric(token: _Token) -> bool:
    return token.kind == "number" or token.text in NUMERIC or token.text in FUNCTIONS


def _is_unit(tokens: Sequence[_Token], place: int) -> bool:
    """Whether this word belongs to the number before it: 5 apples + 3 apples = 8 apples."""
    token = tokens[place]
    if not _is_plain_word(token) or not token.spaced or token.text in ("and", "or"):
        return False
    before = place - 1
    while before >= 0 and place - before <= MAX_UNITS and _is_plain_word(tokens[before]):
        before -= 1
    after = place + 1
    while after < len(tokens) and after - place < MAX_UNITS and _is_plain_word(tokens[after]):
        after += 1
    follows = after < len(tokens) and (tokens[after].text in ("+", "-", "*", "/", "=", "≈", ")"))
    return before >= 0 and tokens[before].kind == "number" and follows


def _is_plain_word(token: _Token) -> bool:
    return token.kind == "word" and len(token.text) > 1 and token.text.lower() not in SPOILING


def _is_clean(tokens: Sequence[_Token], place: int) -> bool:
    """Whether an expression can begin after this token."""
    token, after = tokens[place], tokens[place + 1]
    if token.text == ":":
        return after.spaced
    if token.text == "\n":
        return not place or tokens[place - 1].text not in OPERATIONS
    if token.text in ENDS:
        return True
    return _is_plain_word(token) and after.spaced


def _ends_cleanly(tokens: Sequence[_Token], place: int) -> bool:
    """Whether an expression can end before this token."""
    token = tokens[place]
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    if token.text in (":", ".", "\n") and after is not None:
        if token.text == "\n":
            return after.text not in OPERATIONS
        return after.spaced or after.kind == "sign"
    if token.text in ENDS:
        return True
    if token.text == "and" and after is not None and after.kind == "number":
        return False  # 5 and 2/3
    return _is_plain_word(token) and (token.spaced or tokens[place - 1].text in ("}", ")"))


def _goes_on(tokens: Sequence[_Token], place: int) -> bool:
    """Whether another relation follows in the same line: 3 * 4 = 12 + 5 = 17."""
    for token in tokens[place + 1 :]:
        if token.text in ("=", "≈"):
            return True
        if token.text in ("\n", ";", ","):
            return False
    return False


HEDGES = frozenset(
    {"about", "approximately", "approx", "roughly", "around", "nearly", "rounded", "round"}
)
LEFT_OVER = frozenset({"remainder", "remaining", "remains", "left", "leftover", "full", "whole"})


def _is_near(tokens: Sequence[_Token], place: int, words: frozenset[str]) -> bool:
    near = tokens[max(0, place - 12) : place + 16]
    return any(token.text.lower() in words for token in near)


def _agree(
    left: Expression, right: Expression, *, goes_on: bool, nearly: bool, whole: bool
) -> bool:
    others = right.values | (right.first if goes_on else frozenset())
    if left.values & others:
        return True
    if whole and any(math.floor(one) == other for one in left.values for other in others):
        return True
    places = max(left.decimals, right.decimals)
    if not places and not nearly:
        return False
    return any(_close(one, other, places) for one in left.values for other in others)


def _close(one: Fraction, other: Fraction, places: int) -> bool:
    """Within one unit of the last decimal written, or one percent."""
    apart = abs(one - other)
    return apart <= Fraction(1, 10**places) or apart <= ROUNDED * max(abs(one), abs(other))


def false_claims(text: str) -> Iterator[Claim]:
    """The claims of ``text`` that no reading makes true."""
    return (claim for claim in find_claims(text) if not claim.holds)
