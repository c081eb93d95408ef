"""The numbers that a text states, in digits and in words.

Knows: thousands separators, currency, decimals, percent, cents, fractions, mixed numbers, and
English number words. Does not know: what a number counts, units, or numbers that a reader infers.

It reads generously, as a gate asks only whether a number may come from the text: a fraction gives
its parts too, and a percentage its share. The text is hostile: one pass, and caps on digits and on
how many numbers are kept.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

MAX_DIGITS = 12
"""Digits of a number; a longer one is not read."""
MAX_NUMBERS = 2_000
"""Different numbers of a text that are kept."""
MAX_WORDS = 8
"""Words of one number in words: two hundred and twenty-five thousand six hundred."""
_REMEMBERED = 2**11

_SEPARATORS = "\u00a0\u202f\u2009"
_JOINED = re.compile(rf"(?<=\d)[{_SEPARATORS}](?=\d{{3}}(?!\d))", re.ASCII)
NUMERAL = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+", re.ASCII)
_TOKEN = re.compile(
    rf"(?P<numeral>{NUMERAL.pattern})(?P<times>[kKM](?!\w))?|[^\W\d_]+|[%/\u00a2]", re.ASCII
)
_MILLION_DOLLARS = re.compile(r"(\$ ?[\d,.]++)m(?!\w)", re.ASCII)
_TIMES_SIGNS = MappingProxyType({"k": "thousand", "K": "thousand", "M": "million"})
_SLASH = "\u2044"
VULGAR_FRACTIONS: Mapping[str, str] = MappingProxyType(
    {
        sign: unicodedata.normalize("NFKC", sign).replace(_SLASH, "/")
        for sign in map(chr, (*range(0xBC, 0xBF), *range(0x2150, 0x215F)))
    }
)
"""Fractions of one character, as they are written with digits: 1/2."""
_SIGN_TABLE = str.maketrans({_SLASH: "/"} | {k: f" {v}" for k, v in VULGAR_FRACTIONS.items()})

_ONES = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen
""".split()  # noqa: SIM905
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES: Mapping[str, int] = MappingProxyType(
    {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "dozen": 12}
)
CARDINALS: Mapping[str, int] = MappingProxyType(
    {
        **{word: value for value, word in enumerate(_ONES)},
        **{word: 10 * value for value, word in enumerate(_TENS, 2)},
    }
)
_PARTS = """
    half third quarter fourth fifth sixth seventh eighth ninth tenth eleventh twelfth fifteenth
    sixteenth twentieth thirtieth fiftieth hundredth
""".split()  # noqa: SIM905
_PART_VALUES = (2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 20, 30, 50, 100)
PARTS: Mapping[str, int] = MappingProxyType(
    {
        **dict(zip(_PARTS, _PART_VALUES, strict=True)),
        **{f"{part}s": value for part, value in zip(_PARTS, _PART_VALUES, strict=True)},
        "halves": 2,
        "halved": 2,
    }
)
_TIMES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("once", "single"), 1),
        **dict.fromkeys(("twice", "double", "doubled", "doubles", "doubling", "couple"), 2),
        **dict.fromkeys(("pair", "pairs", "both", "twin", "twins", "second", "duo", "couples"), 2),
        **dict.fromkeys(("thrice", "triple", "tripled", "triples", "tripling", "trio"), 3),
        **dict.fromkeys(("triplet", "triplets"), 3),
        **dict.fromkeys(("quadruple", "quadrupled", "quadruples", "quartet"), 4),
        **dict.fromkeys(("dozens",), 12),
    }
)
_PERCENT = frozenset({"%", "percent", "percentage", "cent", "cents", "\u00a2"})


def joined(text: str) -> str:
    """``text`` with a comma for each no-break space between thousands."""
    return _JOINED.sub(",", text)


def numeral_value(numeral: str) -> Fraction | None:
    """The value of digits with separators and a point; None with too many digits."""
    plain = numeral.replace(",", "").rstrip(".")
    if sum(map(str.isdigit, plain)) > MAX_DIGITS:
        return None
    return Fraction(plain)


@lru_cache(maxsize=_REMEMBERED)
def stated_numbers(text: str) -> frozenset[Fraction]:
    """What ``text`` states, without signs; parts of fractions and of numbers in words as well."""
    found: set[Fraction] = set()
    for value in _values(list(_tokens(joined(text).translate(_SIGN_TABLE)))):
        if len(found) == MAX_NUMBERS:
            break
        found.add(value)
    return frozenset(found)


def _tokens(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(_MILLION_DOLLARS.sub(r"\1M", text)):
        yield match["numeral"] or match[0].lower()
        if match["times"]:  # 25k is said as 25, 25 thousand
            yield from (match["numeral"], _TIMES_SIGNS[match["times"]])


def _values(tokens: Sequence[str]) -> Iterator[Fraction]:
    place = 0
    while place < len(tokens):
        if tokens[place] == "per" and tokens[place + 1 : place + 2] == ["cent"]:
            place += 2
            continue
        value, after = _cardinal(tokens, place)
        if value is None:
            yield from _single(tokens[place])
            place += 1
            continue
        for token in tokens[place:after]:
            yield from _single(token)
        yield from _with_what_follows(value, tokens, after)
        place = after


def _single(token: str) -> Iterator[Fraction]:
    """What a word says alone."""
    if token in PARTS:
        yield Fraction(PARTS[token])
        yield Fraction(1, PARTS[token])
    elif (number := CARDINALS.get(token, _TIMES.get(token, _SCALES.get(token)))) is not None:
        yield Fraction(number)


def _with_what_follows(value: Fraction, tokens: Sequence[str], place: int) -> Iterator[Fraction]:
    """A number, and what a percent sign, a slash, a part or ``and a half`` makes of it."""
    yield value
    following = tokens[place : place + 4]
    match following:
        case [sign, *_] if sign in _PERCENT:
            yield value / 100
        case ["per", "cent", *_]:
            yield value / 100
        case ["/", below, *_] if below[0].isdigit() or below[0] == ".":
            yield from _divided(value, below)
        case [part, *_] if part in PARTS:
            yield value / PARTS[part]
        case ["and", "a" | "one", part, *_] if part in PARTS:
            yield value + Fraction(1, PARTS[part])
        case [above, "/", below, *_] if above[0].isdigit() and below[0].isdigit():
            yield from (value + share for share in _divided(numeral_value(above), below))
        case ["and", above, "/", below] if above[0].isdigit() and below[0].isdigit():
            yield from (value + share for share in _divided(numeral_value(above), below))


def _divided(above: Fraction | None, below: str) -> Iterator[Fraction]:
    number = numeral_value(below)
    if number and above is not None:
        yield above / number


def _cardinal(tokens: Sequence[str], place: int) -> tuple[Fraction | None, int]:
    """The number that begins at ``place``, and where it ends: 2.5 million, two hundred and ten."""
    if tokens[place][0].isdigit() or tokens[place][0] == ".":
        value, after = numeral_value(tokens[place]), place + 1
        while value is not None and after < len(tokens) and tokens[after] in _SCALES:
            value, after = value * _SCALES[tokens[after]], after + 1
            if after - place > MAX_WORDS:
                break
        return value, after
    return _in_words(tokens, place)


def _in_words(tokens: Sequence[str], place: int) -> tuple[Fraction | None, int]:
    """Tens and ones add up below ``bound``; a scale multiplies what stands since the last one."""
    start, bound, total, part = place, 100, 0, 0
    while place < len(tokens) and place - start < MAX_WORDS:
        word = tokens[place]
        number, scale = CARDINALS.get(word), _SCALES.get(word)
        if number is not None and number < bound:
            part, bound = part + number, 10 if number >= 20 else 0
        elif scale and part:
            whole = scale >= 1_000
            total, part = (total + part * scale, 0) if whole else (total, part * scale)
            bound = 1_000 if whole else 100
        elif not (word == "and" and bound >= 100 and place > start and _goes_on(tokens, place)):
            break
        place += 1
    return (Fraction(total + part), place) if place > start else (None, start + 1)


def _goes_on(tokens: Sequence[str], place: int) -> bool:
    return tokens[place + 1 : place + 2] != [] and tokens[place + 1] in CARDINALS
