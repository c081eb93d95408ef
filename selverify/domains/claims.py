"""Arithmetic claims in a step of ordinary text: ``48 / 2 = 24`` is one, ``x + 3 = 7`` is not.

Knows: where a numeric expression begins and ends in a sentence, units, LaTeX around it. Does not
know: what the step is about. A claim is taken only where both of its sides are numeric from end to
end, nobody asks, denies, supposes or tries it, and units agree; it is false only if no reading of
it is true. A gate must not refuse a right step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from selverify.domains.answers import bare_answer
from selverify.domains.arithmetic import (
    FUNCTIONS,
    MAX_TOKENS,
    NUMERAL,
    OPEN,
    Expression,
    NotNumeric,
    read_expression,
)

MAX_CLAIM_TEXT = 2_000
UNEQUAL = "\u2260"
MAX_RELATIONS = 40
"""Equality signs of a step that are looked at."""
MAX_UNITS = 3
"""Words between a number and the next operation: 5 red apples + 3."""
NEAR = 14
"""How many tokens away a word like "about" still concerns a claim."""
ROUNDED = Fraction(1, 100)
"""How far apart, relatively, the sides may lie where one of them is written as a decimal."""

REPLACED = (
    (re.compile(r"\\!"), ""),
    (re.compile(r"(?<=[a-z]n)['\u2019]t\b"), " not"),  # can't
    (re.compile(r"!=|\\neq?\b|\\not\s*=|[\u2260]"), f" {UNEQUAL} "),
    (re.compile(r"<="), " \u2264 "),
    (re.compile(r">="), " \u2265 "),
    (re.compile(r"==+|=>|:="), " # "),
    (re.compile(r"~\s*=|=\s*~|\\(?:approx|doteq|simeq|cong|sim)\b|[\u2248\u2243\u2245]"), " # "),
    (re.compile(r"=\s*\*\*([^*\n]+)\*\*"), r"= \1"),
    (re.compile(r"(?<=[\d)])\s*\*\*\s*(?=[\d(])"), "^"),
    (re.compile(r"\$\$|\$\s+\$"), " ; "),
    (re.compile(r"\\q?quad\b(?!\s*[-+*/=])"), " ; "),
    (re.compile(r"\\left\b|\\right\b|\\displaystyle\b|\\q?quad\b|\\[,;: ]|\\\$|[$~&]"), " "),
    (re.compile(r"\\[\[\]()]|<<|>>|\*\*"), " ; "),
    (re.compile(r"\{,\}"), ","),
    (re.compile("\\\\times\\b|\\\\cdot\\b|[\u00d7\u00b7\u22c5\u2217]"), "*"),
    (re.compile("\\\\div\\b|\u00f7"), "/"),
    (re.compile("[\u2212\u2013]"), "-"),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\[dt]binom"), r"\\binom"),
    (re.compile(r"\\(frac|binom)\s*(\d)\s*(\d)"), r"\\\1{\2}{\3}"),
    (re.compile(r"\\sqrt\s*(\d)"), r"\\sqrt{\1}"),
    (re.compile("\\^\\s*\\{?\\\\circ\\}?|\u00b0|\\^\\s*\\\\degree"), " "),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\(?:text|textbf|mathrm|mbox|textit)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\(?:boxed|fbox)\s*(?=\{)"), " "),
)
_FORMATTED = re.compile(r"(?<!\\)\\[()\[\]]|(?<![\d)])\*\*([^*]+)\*\*")
"""Signs of a formula and bold type, which are no powers."""
_SPELLED = (
    (re.compile(r"(?<=\d)\\,(?=\d{3}(?!\d))"), ","),
    (re.compile(r"([\^_])\{(\w)\}"), r"\1\2"),
)
"""Of one number or power: 10\\,000 is 10,000, and x^{2} is x^2."""
_TOKEN = re.compile(
    rf"(?P<number>{NUMERAL.pattern})|(?P<command>\\[A-Za-z]+)|(?P<word>[^\W\d_]+)|(?P<dots>\.\.+|…)"
    r"|(?P<newline>\\\\(?:[^\S\n]*\n)?|\n)|(?P<space>[^\S\n]+)|(?P<sign>.)",
    re.DOTALL | re.ASCII,
)
NUMERIC = frozenset("+-*/^!%(){}")
OPERATIONS = frozenset("+-*/^")
_ENDS = frozenset({".", ",", ";", "?", "\n", "="})
AFTER_A_POINT = frozenset({")", '"', "'", ";", "\n", "}", "]"})
ENDS_A_SENTENCE = frozenset({".", "?", "!", "\n"})
SPOILING = frozenset(
    """
    of times plus minus by than to from per half halves double twice thrice triple quarter quarters
    third thirds fourth fourths fifth fifths sixth sixths eighth eighths tenth tenths square squared
    cube cubed root sqrt log ln lg exp abs sin cos tan cot sec csc arcsin arccos arctan max min
    gcd lcm mod modulo remainder floor ceil sum product difference quotient average mean ratio
    power base factorial choose each every multiplied divided more less over at with negative
    opposite inverse pi one two three four five six seven eight nine ten ones tens hundred hundreds
    thousand thousands million millions billion dozen percent cents ago later past o clock am pm
    step case part day week month year question problem figure equation number method
    """.split()  # noqa: SIM905
)
"""Words beside an expression that change its value; without them a word is a unit or prose."""
_JOINING = frozenset({"of", "to", "by", "than", "from", "with", "at"})
DENYING = frozenset(
    """
    not no never cannot isn aren doesn don didn wouldn false untrue wrong wrongly incorrect
    incorrectly invalid contradiction contradicts impossible mistake error fails nope oops wait
    """.split()  # noqa: SIM905
)
"""Words of a sentence that may deny its claims."""
SUPPOSING = DENYING.union(
    """
    if whether suppose supposing assume assuming would could should instead unless
    """.split()  # noqa: SIM905
)
"""Words of a sentence that may not assert its claims."""
TAKING_BACK = DENYING | {UNEQUAL}
"""Words of a sentence that may deny what the one before it says."""
DENIED_WITH_NO = frozenset({"such", "solution", "solutions", "way"})
"""What there is none of where something is denied; of other things "no" is a number."""
TRYING = frozenset(
    """
    check checking try trying test testing verify verifying guess guessing
    """.split()  # noqa: SIM905
)
"""Words behind which a sentence only tries out what it says, where a colon follows them or"""
BEFORE_A_TRY = frozenset({"", "s", "us", "we", "ll", "i", "to", "by", "can", "now", "so", "and"})
"""nothing or one of these stands before them; the s is of "let's"."""
ELSEWHERE = frozenset(
    """
    base bases binary octal hexadecimal hex mod modulo pmod bmod congruent parity xor digit digits
    """.split()  # noqa: SIM905
)
"""Words of a step that may reckon in other numbers."""
ROUNDING_WORDS = frozenset(
    """
    about approximately approx roughly around nearly almost rounded round rounds rounding estimate
    estimated estimating estimates nearest
    """.split()  # noqa: SIM905
)
LEFT_OVER = frozenset(
    {"remainder", "remaining", "remains", "left", "leftover", "leftovers", "full", "whole"}
)
"""Words near a quotient of which only the whole part may be meant."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``left`` equals ``right``: their tokens without units. ``holds``: under some reading."""

    left: str
    right: str
    holds: bool


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    kind: str
    spaced: bool  # white space stands before it


@dataclass(frozen=True, slots=True)
class _Side:
    """The readings of one side of an equality sign, and its units (right of it: all its words)."""

    readings: tuple[tuple[str, ...], ...]
    units: frozenset[str]


_Read = dict[tuple[str, ...], Expression | None]
"""Sides by their tokens; one that stands between two equality signs is read once."""


def find_claims(text: str) -> tuple[Claim, ...]:
    """The arithmetic claims of ``text``, from left to right.

    Of a longer text the first 2,000 characters are read, of many equality signs the first 40.
    """
    if "=" not in text:
        return ()
    if len(text) > MAX_CLAIM_TEXT:
        text = text[:MAX_CLAIM_TEXT].rpartition(" ")[0]
    tokens = _tokens(text)
    if any(token.text.lower().lstrip("\\") in ELSEWHERE for token in tokens):
        return ()
    relations = [place for place, token in enumerate(tokens) if token.text == "="]
    denied = _denied(tokens)
    read: _Read = {}
    found = (
        _claim(tokens, place, read) for place in relations[:MAX_RELATIONS] if place not in denied
    )
    return tuple(claim for claim in found if claim is not None)


@lru_cache(maxsize=100_000)
def canonical_answer(answer: str) -> str:
    """The same text for answers that are plainly equal: 1/2, 0.5 and \\frac12.

    By the exact value where an answer is a number with one reading; otherwise, as a pair in
    brackets always is, without the spacing, signs and spellings that mean nothing.
    """
    if answer.isascii() and answer.isdigit() and len(answer) < MAX_TOKENS:
        return str(int(answer))
    plain = _FORMATTED.sub(r" \1 ", bare_answer(answer[:MAX_CLAIM_TEXT]))
    for pattern, replacement in _SPELLED:
        plain = pattern.sub(replacement, plain)
    read = _tokens(plain)
    tokens = tuple(token.text for token in read)
    bracketed = not {"(", "[", "\\"}.isdisjoint(tokens)
    a_pair = bracketed and any("," in token for token in tokens)  # (100,200)
    try:
        values = frozenset() if a_pair else read_expression(tokens).values
    except NotNumeric:
        values = frozenset()
    if len(values) == 1:
        return str(min(values))
    if all(token.kind == "word" and len(token.text) > 1 for token in read):
        return " ".join(tokens).casefold()
    if not a_pair:  # 1,234 dollars
        tokens = tuple(t.text.replace(",", "") if t.kind == "number" else t.text for t in read)
    return " ".join(tokens)


def _tokens(text: str) -> list[_Token]:
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    tokens: list[_Token] = []
    spaced = True
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        if kind == "space":
            spaced = True
            continue
        tokens.append(_Token("\n" if kind == "newline" else match[0], kind, spaced))
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


def _claim(tokens: Sequence[_Token], place: int, read: _Read) -> Claim | None:
    if _is_near(tokens, place, ROUNDING_WORDS):
        return None
    left, right = _left_side(tokens, place), _right_side(tokens, place)
    if left is None or right is None or not _units_agree(left, right):
        return None
    lefts, rights = _expressions(left, read), _expressions(right, read)
    if not lefts or not rights or _is_mixed(tokens, place, lefts, rights):
        return None
    if not any(side.operations for side in (*lefts, *rights)):
        return None
    if not lefts[0].operations and not _stands_alone(tokens, place):
        return None  # all 4 subjects = 186 + 62
    goes_on, floored = _goes_on(tokens, place), _is_near(tokens, place, LEFT_OVER)
    holds = any(
        _agree(one, other, goes_on=goes_on, floored=floored) for one in lefts for other in rights
    )
    return Claim(" ".join(left.readings[0]), " ".join(right.readings[0]), holds)


def _expressions(side: _Side, read: _Read) -> list[Expression]:
    """What the readings of a side are worth; none unless all of them are numeric."""
    for reading in side.readings:
        if reading not in read:
            try:
                read[reading] = read_expression(reading)
            except NotNumeric:
                read[reading] = None
    found = [read[reading] for reading in side.readings]
    return [one for one in found if one is not None] if None not in found else []


def _left_side(tokens: Sequence[_Token], place: int) -> _Side | None:
    """The expression that ends before ``place``; None unless it begins cleanly."""
    start = place
    kept: list[str] = []
    units: set[str] = set()
    while start and len(kept) <= MAX_TOKENS:
        token = tokens[start - 1]
        if _is_numeric(token):
            kept.append(token.text)
        elif _is_unit(tokens, start - 1):
            if tokens[start].kind != "word":  # apples, of 5 red apples
                units.add(_singular(token.text))
        else:
            break
        start -= 1
    kept.reverse()
    if not kept or (start and not _is_clean(tokens, start - 1)):
        return None
    if kept[0] in ("+", "-"):
        opening = not start or tokens[start - 1].text in ("\n", ";", "=")
        if not opening or kept[0] == "+" or len(kept) == 1:
            return None
        return _Side((tuple(kept), tuple(kept[1:])), frozenset(units))  # a sign, or a list's dash
    return _Side((tuple(kept),), frozenset(units))


def _right_side(tokens: Sequence[_Token], place: int) -> _Side | None:
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
    if stop < len(tokens) and not _ends_cleanly(tokens, stop):
        return None
    words = {_singular(token.text) for token in tokens[place + 1 : stop + MAX_UNITS]}
    while kept and kept[-1] in OPEN:  # a remark in brackets follows
        kept.pop()
    readings = [tuple(kept)]
    if _is_numbered(tokens[place + 1 : stop]):
        readings.append(tuple(kept[:-3]))
    return _Side(tuple(readings), frozenset(words)) if kept else None


def _is_numbered(side: Sequence[_Token]) -> bool:
    """Whether the number of an equation stands behind a value: 3 + 4 = 7 (2)."""
    if len(side) < 4:
        return False
    before, bracket, number, closed = side[-4:]
    spelled = bracket.text == "(" and number.text.isdigit() and closed.text == ")"
    return spelled and bracket.spaced and _is_counted(before)


def _is_mixed(
    tokens: Sequence[_Token], place: int, lefts: Sequence[Expression], rights: Sequence[Expression]
) -> bool:
    """Whether a value is said in two units: 150 / 60 = 2 hours and 30 minutes.

    The first has its whole part.
    """
    whole = {value for side in rights for value in side.values}
    if not any(v != int(v) and int(v) in whole for side in lefts for v in side.values):
        return False
    first = stop = place + 2
    while stop < len(tokens) and stop - first < MAX_UNITS and _is_plain_word(tokens[stop]):
        stop += 1
    if stop == first:
        return False
    if stop < len(tokens) and tokens[stop].text == ",":
        stop += 1
    if stop < len(tokens) and tokens[stop].text == "and":
        stop += 1
    rest = tokens[stop : stop + 2]
    if len(rest) < 2 or rest[0].kind != "number" or rest[1].kind != "word":
        return False
    return rest[1].text not in ("more", "less", "times")


def _units_agree(left: _Side, right: _Side) -> bool:
    """Whether all numbers count one thing: 1 hour + 30 minutes = 90 minutes is right."""
    return not left.units or (len(left.units) == 1 and left.units <= right.units)


def _singular(word: str) -> str:
    return word.lower().rstrip("s")


def _stands_alone(tokens: Sequence[_Token], place: int) -> bool:
    """Whether the side before ``place`` is all that its line or the last relation left."""
    while place and _is_numeric(tokens[place - 1]):
        place -= 1
    return not place or tokens[place - 1].text in ("\n", ";", "=")


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
    follows = after < len(tokens) and tokens[after].text in ("+", "-", "*", "/", "=", ")")
    return before >= 0 and tokens[before].kind == "number" and follows


def _is_plain_word(token: _Token) -> bool:
    return token.kind == "word" and len(token.text) > 1 and token.text.lower() not in SPOILING


def _is_clean(tokens: Sequence[_Token], place: int) -> bool:
    """Whether an expression can begin after this token."""
    token, after = tokens[place], tokens[place + 1]
    before = tokens[place - 1] if place else None
    counted = before is not None and _is_counted(before)
    if token.text == ":":
        return after.spaced and not counted  # Total: 3 + 4, but not 12 : 4
    if token.text == "\n":
        return not _is_broken(tokens, place)
    if token.text == ",":
        return after.spaced
    if token.text in ("and", "or"):
        return after.spaced and not counted  # 2 and 1/2
    if token.text == ";":
        return not _is_spoiled(tokens, place)
    return token.text in _ENDS or (_is_plain_word(token) and after.spaced)


def _is_spoiled(tokens: Sequence[_Token], place: int) -> bool:
    r"""Whether a word changes the formula that begins here: half of \(3 + 4\), no total of it."""
    while place and tokens[place - 1].text.lower() in _JOINING:
        place -= 1
    return place > 0 and tokens[place - 1].text.lower() in SPOILING


def _is_counted(token: _Token) -> bool:
    """Whether a number or a bracket ends with this token."""
    return token.kind == "number" or token.text in (")", "}")


def _is_broken(tokens: Sequence[_Token], place: int) -> bool:
    """Whether an expression goes on behind the end of a line; an item of a list does not."""
    begin = place
    while begin and tokens[begin - 1].text != "\n":
        begin -= 1
    line, after = [token.text for token in tokens[begin:place]], tokens[place + 1]
    if not line or line[-1] in OPERATIONS:
        return bool(line)
    if after.text == "-" and line[0] == "-" and "=" in line:
        return False
    goes_on = after.text in OPEN or after.text in FUNCTIONS or after.text == "-"
    return goes_on and _is_counted(tokens[place - 1])


def _ends_cleanly(tokens: Sequence[_Token], place: int) -> bool:
    """Whether an expression can end before this token."""
    token = tokens[place]
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    if after is not None:
        if token.text == ".":
            return after.spaced or after.text in AFTER_A_POINT
        if token.text == "\n":
            return after.text not in OPERATIONS | OPEN.keys() and after.text not in FUNCTIONS
        if token.text in ("and", "or") and (after.kind == "number" or after.text in OPEN):
            return False  # 16 and 2/3, 16 and (2/3)
    if token.text in _ENDS:
        return True
    return _is_plain_word(token) and (token.spaced or tokens[place - 1].text in ("}", ")"))


def _goes_on(tokens: Sequence[_Token], place: int) -> bool:
    """Whether another relation follows in the same line: 3 * 4 = 12 + 5 = 17."""
    for token in tokens[place + 1 :]:
        if token.text == "=":
            return True
        if token.text in ("\n", ";", ","):
            return False
    return False


def _is_near(tokens: Sequence[_Token], place: int, words: frozenset[str]) -> bool:
    near = tokens[max(0, place - NEAR) : place + NEAR]
    return any(token.text.lower() in words for token in near)


def _denied(tokens: Sequence[_Token]) -> frozenset[int]:
    """The places of what nobody asserts.

    A sentence may ask, deny or suppose what it says, or the next one in words denies it; behind a
    word such as "check" a sentence only tries out what it says.
    """
    found: list[int] = []
    taken_back = False
    for begins, ends in reversed(_sentences(tokens)):
        words = [token.text.lower() for token in tokens[begins:ends]]
        asks = ends < len(tokens) and tokens[ends].text == "?"
        if asks or taken_back or not SUPPOSING.isdisjoint(words):
            found += range(begins, ends)
        else:
            found += range(begins + _first_try(words), ends)
        if words:
            in_words = any(word.isalpha() and len(word) > 1 for word in words)
            taken_back = _denies(words) or (taken_back and not in_words)
    return frozenset(found)


def _sentences(tokens: Sequence[_Token]) -> list[tuple[int, int]]:
    """Where each begins and ends; a line goes on after a colon and before a displayed formula."""
    found: list[tuple[int, int]] = []
    begins, last = 0, ""
    for place, token in enumerate(tokens):
        after = tokens[place + 1].text if place + 1 < len(tokens) else ""
        goes_on = last == ":" or (after == ";" and last not in ENDS_A_SENTENCE)
        if token.text in ENDS_A_SENTENCE and not (token.text == "\n" and goes_on):
            found.append((begins, place))
            begins = place + 1
        if token.text not in ("\n", ";"):
            last = token.text
    return [*found, (begins, len(tokens))]


def _first_try(words: Sequence[str]) -> int:
    """Where a sentence begins to try something out; its end, where it does not."""
    before = ""
    for place, word in enumerate(words):
        if word in TRYING and (before in BEFORE_A_TRY or words[place + 1 : place + 2] == [":"]):
            return place
        before = word if word.isalpha() else before
    return len(words)


def _denies(words: Sequence[str]) -> bool:
    """Whether a sentence may deny what stands before it."""
    return any(
        word in TAKING_BACK and (word != "no" or not after.isalpha() or after in DENIED_WITH_NO)
        for word, after in zip(words, (*words[1:], ""), strict=True)
    )


def _agree(left: Expression, right: Expression, *, goes_on: bool, floored: bool) -> bool:
    others = right.values | (right.begun if goes_on else frozenset())
    if left.values & others:
        return True
    if floored and any(math.floor(one) == other for one in left.values for other in others):
        return True
    places = max(left.decimals, right.decimals)
    return any(rounding_explains(one, other, places) for one in left.values for other in others)


def rounding_explains(one: Fraction, other: Fraction, places: int) -> bool:
    """Whether two values may be one, of which so many decimals were written; without any: no."""
    return bool(places) and abs(one - other) <= slack_of(max(one, other, key=abs), places)


def slack_of(value: Fraction, places: int) -> Fraction:
    """How far a rounded value may lie from the true one: one unit of its last decimal, or 1 %."""
    return max(Fraction(1, 10**places), ROUNDED * abs(value))
