r"""Whether two answers are equal, as far as their form tells: numbers, lists, sets, intervals.

Knows: how LaTeX and people write a collection, which is compared element by element. Does not know:
algebra. What is neither a number nor a collection goes to the ``Leaf`` that it is given.

An answer may be ambiguous (``1,5`` is a list or a decimal, ``100,200`` a list or a number). Two
answers are equal if some reading of the one equals some reading of the other.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from selverify.data.quantities import Quantity, equal, read_quantity
from selverify.domains.stated_numbers import VULGAR_FRACTIONS

CORRECT, WRONG, UNPARSED = "correct", "wrong", "unparsed"
MAX_PARTS = 100
_MAX_DEPTH = 4

Leaf = Callable[[str, str], str]
"""Compares two answers, or parts of them, of which one has another form: (gold, answer)."""

_CLEANED = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\!\s*", ""),
        (r"\{,\}", ","),
        (r"\\(?:left|right|displaystyle)(?![A-Za-z])", ""),
        (r"\\[dtc]frac", r"\\frac"),
        (r"\\(?:text|textbf|textit|mathrm|mbox)\s*\{([^{}]*)\}", r" \1 "),
        (r"\\([%$])", r"\1"),
        ("\u2212", "-"),
        (r"\^\s*(?:\\circ|\{\s*\\circ\s*\})|\u00b0", " degrees"),
        ("\u00b2", "^2"),
        ("\u00b3", "^3"),
        (r"\\[,;: ]|~|\\q?quad(?![A-Za-z])|\s+", " "),
        (" {2,}", " "),
    )
)
_FRACTIONS = str.maketrans({sign: f" {spelled}" for sign, spelled in VULGAR_FRACTIONS.items()})
_DELIMITED = re.compile(r"\$\$?([^$]*)\$\$?|\\\((.*)\\\)|\\\[(.*)\\\]", re.DOTALL)
_NAMED = re.compile(r"([A-Za-z](?:_\{?\w+\}?)?) ?(?:=|\\in(?![A-Za-z])) ?(?=\S)")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_CHOICE = re.compile(r"\(?([A-J])\)?")
_CHOSEN = re.compile(r"\(?([A-J])(?:\) ?|[.:] )(?!,|and\b|or\b)(\S.*)", re.DOTALL)
_ANOTHER = re.compile(r"\b[A-J]\)")
_BASE = re.compile(r"(?=[A-Za-z]*\d)([0-9A-Za-z]{1,40})_\{?(\d{1,2})\}?", re.ASCII)
_BOUND = re.compile(
    r"(?:at least|at most|up to|(?:(?:no|not) )?(?:more|less|fewer|greater) than|not equal to) "
    r"|\\(?:geq?|geqslant|gt|leq?|leqslant|lt|neq?|not)(?![A-Za-z])"
    r"|[>\u2264\u2265\u2260]|!=|<(?!.*>)",
    re.IGNORECASE | re.DOTALL,
)
_BOUND_BEHIND = re.compile(
    r"(?:(?<=\d)\+|,? (?:or|and) (?:more|fewer|greater|higher|lower|above|over|below|under|up)"
    r"|,?(?<!more) or less)(?: [A-Za-z]{2,})?$",
    re.IGNORECASE,
)
"""Behind the number: 5+, 5 or more apples; but not 5, more or less."""
_ALIKE = re.compile(r"[A-Za-z][a-z]{2,}|[A-Z]{4,}|[Nn][Oo]|YES")  # whatever their case
_OPPOSITE = re.compile(
    r"(?<![A-Za-z\\])(?:(a\.?m\.?)|(p\.?m\.?)|(north)|(south)|(east)|(west)|(left)|(right)|(up)|(down)"
    r"|(increase)|(decrease)|(gain|profit)|(loss)|(more)|(less|fewer)|(before)|(after)"
    r"|(above)|(below)|(degrees C(?:elsius)?)|(degrees F(?:ahrenheit)?))(?![A-Za-z])",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\b(?:of|by|an?|the)\b| {2,}", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2}")
_AND = re.compile(r",? (?:and|or) ")
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])|\u00b1")
_END = r"-?[\d.,]+"
_RANGE = re.compile(
    rf"(?:from )?({_END}) to ({_END})|between ({_END}) and ({_END})|({_END}) ?\u2013 ?({_END})"
)
_HYPHEN = re.compile(rf"({_END}) ?- ?({_END})")
_BRACKET = r"\\?[\[({\])}]"
_UNION = r"\\cup(?![A-Za-z])|\u222a"
_SEPARATORS = (";", r",(?=\ )|;", "[,;]")
_OPENING = frozenset("([{")
_INTERVALS = frozenset({"()", "[]", "(]", "[)"})
_UNORDERED = frozenset({"list", "{}", "union"})


@dataclass(frozen=True, slots=True)
class Collection:
    """Parts as written; ``kind`` is the two brackets, ``list``, ``union`` or ``range``."""

    kind: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The variable that is given a value (empty without one), the value, what it can be read as."""

    name: str
    text: str
    quantity: Quantity | None
    collections: tuple[Collection, ...]


class TooMuchWork(Exception):
    """Two answers have more pairs of parts than were to be compared."""


@dataclass(slots=True)
class _Work:
    """Who compares what has another form, and how many more comparisons are made."""

    leaf: Leaf
    left: int

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooMuchWork


def compare_by_form(gold: str, answer: str, leaf: Leaf, *, most: int = sys.maxsize) -> str:
    """``correct``, ``wrong``, or what ``leaf`` says where the form does not tell.

    A missing unit, percent sign or variable name is no difference; another one is. Lists, sets and
    unions have no order, all else has.

    Raises:
        TooMuchWork: more than ``most`` pairs of parts would have to be compared.
    """
    chosen = _compare_choices(gold, answer)
    return chosen or _compare(gold, answer, _Work(leaf, most), _MAX_DEPTH)


def _compare_choices(gold: str, answer: str) -> str | None:
    """Of a gold that is a letter, and an answer that says it with what it stands for: ``B) 18``."""
    letter = _CHOICE.fullmatch(_clean(gold))
    chosen = _CHOSEN.match(_clean(answer)) if letter else None
    if letter is None or chosen is None or _ANOTHER.search(chosen[2]):  # (B), or rather (C)
        return None
    return CORRECT if chosen[1] == letter[1] else WRONG


def _compare(gold: str, answer: str, work: _Work, depth: int) -> str:
    work.take()
    one, other = _read(gold), _read(answer)
    if one.name and other.name and one.name != other.name:
        known = one.quantity and other.quantity and one.name.lower() != other.name.lower()
        return WRONG if known else work.leaf(gold, answer)
    if (settled := _settled(one, other)) is not None:
        return settled
    same = equal(one.quantity, other.quantity) if one.quantity and other.quantity else None
    if same:
        return CORRECT
    found = _compare_collections(one, other, work, depth)
    if found is None and same is False:
        return WRONG
    return found or work.leaf(gold, answer)


def _settled(one: _Answer, other: _Answer) -> str | None:
    """The status of equal texts and words, of opposites, of bases, of a number beside a bound."""
    texts = one.text, other.text
    if one.text == other.text != "":
        return CORRECT
    if one.text.casefold() == other.text.casefold() and all(map(_ALIKE.fullmatch, texts)):
        return CORRECT
    if (directed := _directed(*texts)) is not None:
        return directed
    bound = [side for side in (one, other) if _is_bound(side.text)]
    if len(bound) == 1 and (one.quantity or other.quantity):
        return WRONG
    left, right = _BASE.fullmatch(one.text), _BASE.fullmatch(other.text)
    if left is None or right is None:
        return None
    return CORRECT if left.groups() == right.groups() else WRONG


def _is_bound(text: str) -> bool:
    return bool(_BOUND.match(text) or _BOUND_BEHIND.search(text))


def _directed(one: str, other: str) -> str | None:
    """The status of two texts with a word of direction each that else say the same: ``8 am`` and
    ``8pm``. None where they do not, and of 0, which has no direction."""
    sides = [[found.lastindex or 0 for found in _OPPOSITE.finditer(text)] for text in (one, other)]
    if [len(side) for side in sides] != [1, 1]:
        return None
    (first,), (second,) = sides
    rests = [_BETWEEN.sub(" ", _OPPOSITE.sub(" ", text)).strip() for text in (one, other)]
    left, right = map(read_quantity, rests)
    alike = rests[0].replace(" ", "") == rests[1].replace(" ", "")
    if left is not None and right is not None:
        alike = bool(left.value) and equal(left, right) is True
    if not alike or (first + 1) // 2 != (second + 1) // 2:
        return None
    return CORRECT if first == second else WRONG


@lru_cache(maxsize=4096)
def _read(text: str) -> _Answer:
    name, value = _named(_clean(text))
    quantity = read_quantity(value)
    measured = quantity is not None and quantity.unit.dimension is not None  # 5 feet and 3 inches
    return _Answer(name, value, quantity, () if measured else tuple(_collections(value)))


def _clean(text: str) -> str:
    """Without what means nothing: delimiters, spacing, a full stop; spellings made one."""
    text = text.strip().translate(_FRACTIONS)
    whole = _DELIMITED.fullmatch(text)
    if whole is not None:
        text = next(group for group in whole.groups() if group is not None)
    for pattern, replacement in _CLEANED:
        text = pattern.sub(replacement, text)
    text = text.strip()
    return text[:-1].rstrip() if text.endswith(".") else text


def _named(text: str) -> tuple[str, str]:
    found = _NAMED.match(text)
    if found is None or "=" in text[found.end() :]:
        return "", text
    return re.sub("[{}]", "", found[1]), text[found.end() :]


def _collections(text: str) -> list[Collection]:
    """What the cleaned ``text`` can mean as a collection."""
    ranged = _RANGE.fullmatch(text)
    if ranged is not None:
        return [Collection("range", tuple(part for part in ranged.groups() if part is not None))]
    if len(union := _split(text, _UNION)) > 1:
        return [Collection("union", union)]
    kind, inner = _brackets(text)
    ways = (_split(_AND.sub(", ", inner), separator) for separator in _SEPARATORS)
    found = dict.fromkeys(_spelled_out(parts, kind) for parts in ways)
    return [
        Collection(kind, parts)
        for parts in found
        if 1 < len(parts) <= MAX_PARTS and not any(map(_is_prose, parts))
    ]


def _spelled_out(parts: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """Plus and minus as two parts, in what has no order."""
    if kind not in _UNORDERED:
        return parts
    found: list[str] = []
    for part in parts:
        if len(_PLUS_MINUS.findall(part)) == 1:
            found += [_PLUS_MINUS.sub(sign, part).removeprefix("+").strip() for sign in "+-"]
        else:
            found.append(part)
    return tuple(found)


def _is_prose(part: str) -> bool:
    """Whether there is a word in ``part`` that is no unit."""
    return _WORD.search(_COMMAND.sub(" ", part)) is not None and read_quantity(part) is None


def _brackets(text: str) -> tuple[str, str]:
    """The two brackets that hold all of ``text`` and what is in them; ``list`` without them."""
    level = 0
    for found in re.finditer(_BRACKET, text):
        level += 1 if found[0][-1] in _OPENING else -1
        if found.start() and not level and found.end() == len(text) and text[0] in "([{\\":
            opening = re.match(_BRACKET, text)
            if opening is not None:
                return opening[0][-1] + found[0][-1], text[opening.end() : found.start()]
        if not level:
            break
    return "list", text


def _split(text: str, separator: str) -> tuple[str, ...]:
    """The parts of ``text`` between separators that stand in no bracket; () if one is empty."""
    parts, begin, level = [], 0, 0
    for found in re.finditer(rf"(?P<bracket>{_BRACKET})|{separator}", text):
        if found["bracket"]:
            level += 1 if found[0][-1] in _OPENING else -1
        elif not level:
            parts.append(text[begin : found.start()].strip())
            begin = found.end()
    parts.append(text[begin:].strip())
    return tuple(parts) if all(parts) else ()


def _compare_collections(one: _Answer, other: _Answer, work: _Work, depth: int) -> str | None:
    """The status where one is a collection and the other is one too, or a number."""
    lefts, rights = _as_ranges(one, other), _as_ranges(other, one)
    if not lefts or not rights:
        number = other.quantity if lefts else one.quantity
        ratio = (
            number
            and number.decimals is None
            and any(found.kind == "range" for found in (*lefts, *rights))
        )
        return WRONG if (lefts or rights) and number and not ratio else None
    found = {
        _compare_parts(left, right, work, depth - 1) if depth else UNPARSED
        for left in lefts
        for right in rights
        if _comparable(left, right)
    }
    return next((status for status in (CORRECT, WRONG, UNPARSED) if status in found), None)


def _as_ranges(one: _Answer, other: _Answer) -> tuple[Collection, ...]:
    """The readings of ``one``; beside a range ``1-5`` is one too, elsewhere a difference."""
    hyphen = _HYPHEN.fullmatch(one.text)
    if hyphen and any(reading.kind == "range" for reading in other.collections):
        return (Collection("range", (hyphen[1], hyphen[2])),)
    return one.collections


def _comparable(one: Collection, other: Collection) -> bool:
    kinds = {one.kind, other.kind}
    if kinds <= _INTERVALS and len(one.parts) == len(other.parts) == 2:
        return True
    return len(kinds) == 1 or kinds == {"list", "{}"}


def _compare_parts(one: Collection, other: Collection, work: _Work, depth: int) -> str:
    lefts, rights = one.parts, other.parts
    if "{}" in (one.kind, other.kind):  # a set holds nothing twice
        lefts, rights = tuple(dict.fromkeys(lefts)), tuple(dict.fromkeys(rights))
    if len(lefts) != len(rights):
        return WRONG
    if one.kind in _UNORDERED and not _is_assignment(one, other):
        return _match(lefts, rights, work, depth)
    if one.kind != other.kind:
        return WRONG
    pairs = zip(lefts, rights, strict=True)
    found = {_compare(left, right, work, depth) for left, right in pairs}
    return next(status for status in (WRONG, UNPARSED, CORRECT) if status in found)


def _is_assignment(one: Collection, other: Collection) -> bool:
    """Whether one gives values to several variables and the other lists bare values."""
    names = sorted(len({_read(part).name for part in side.parts} - {""}) for side in (one, other))
    return names[0] == 0 and names[1] > 1


def _match(ones: Sequence[str], others: Sequence[str], work: _Work, depth: int) -> str:
    """Whether every part of one side has a part of its own on the other.

    Equal texts first. For the rest a perfect matching (Kuhn 1955), because equality is not
    transitive: 5 equals 5 cm and 5 m. A comparison is made only when it is asked for.
    """
    left, right = _without_common(ones, others)

    @cache
    def status(row: int, column: int) -> str:
        return _compare(left[row], right[column], work, depth)

    if _is_matched(len(left), lambda row, column: status(row, column) == CORRECT):
        return CORRECT
    if _is_matched(len(left), lambda row, column: status(row, column) != WRONG):
        return UNPARSED
    return WRONG


def _without_common(ones: Sequence[str], others: Sequence[str]) -> tuple[list[str], list[str]]:
    common = Counter(ones) & Counter(others)
    return (
        list((Counter(ones) - common).elements()),
        list((Counter(others) - common).elements()),
    )


def _is_matched(size: int, joined: Callable[[int, int], bool]) -> bool:
    """Whether the rows and columns that are ``joined`` have a perfect matching."""
    taken: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column in range(size):
            if column not in tried and joined(row, column):
                tried.add(column)
                if column not in taken or place(taken[column], tried):
                    taken[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(size))
