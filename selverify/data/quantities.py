r"""Numbers with their units, read exactly: ``1,234.5``, ``-2 1/2``, ``\frac{3}{4}``, ``50\%``.

Knows: the usual notations of a number, words and signs of units. Does not know: expressions,
variables, collections. What is no number for certain is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType

NOISY_DIGITS = 16
"""Significant digits from which a number is taken for the output of floating-point arithmetic."""
NOISE = Fraction(1, 2 * 10**15)
LONGEST_SUM = 80
LEAST_NOUN = 3
"""Letters of a word that is not in the table but may be what is counted."""
ROUNDED_DIGITS = 6
"""Decimals from which a decimal may stand for a fraction whose expansion does not end."""

_WHOLE = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)|[1-9]\d{0,2}(?:\ \d{3})+(?!\d)|\d+)"
_NUMBER = re.compile(
    rf"""
    (?P<sign>[-+]?)\ ?(?P<currency>[$\u20ac\u00a3]?)\ ?(?P<inner>-?)\ ?
    (?: (?:(?P<whole>{_WHOLE})(?:\ (?:and\ )?(?=[1-9\\])|(?=\\)))?
        (?: (?P<over>{_WHOLE})\ ?/\ ?(?P<under>{_WHOLE})
          | \\frac\ ?(?:\{{\ ?(?P<top>\d+)\ ?\}}|(?P<digit>\d))
                  \ ?(?:\{{\ ?(?P<bottom>\d+)\ ?\}}|(?P<second>\d)) )
      | (?P<begun>\d*)\.(?P<once>\d*)\\(?:overline|bar)\ ?(?:\{{(?P<many>\d+)\}}|(?P<again>\d))
      | (?P<decimal>{_WHOLE}(?:\.\d*)?|\.\d+|(?P<comma>\d+,\d+))
        (?: [eE](?P<power>[-+]?\d{{1,3}})
          | \ ?(?:\\times|\\cdot|[*x\u00d7])\ ?10\ ?\^\ ?
            (?:\{{\ ?(?P<braced>[-+]?\d{{1,3}})\ ?\}}|(?P<bare>[-+]?\d{{1,3}})) )?
    )
    (?P<rest>\ ?[%A-Za-z$\u20ac\u00a3/].*)?
    """,
    re.VERBOSE | re.ASCII,
)
_PERCENT = re.compile(r" ?(?:%|percent|pct)")
_ORDINAL = frozenset({"st", "nd", "rd", "th"})
_WORD = r"(?!per\b)[A-Za-z]+"
_PART = rf"{_WORD}(?: {_WORD}){{0,3}}(?: ?\^ ?\{{?[23]\}}?)?"
_UNIT = re.compile(
    rf"(?P<space> ?)(?P<over>(?:{_PART})?)(?: ?(?:/|(?<= )per(?= )) ?(?P<under>{_PART}))?\.?"
)
_AND = re.compile(r",? and |, | (?=\d)")
_SCALES = MappingProxyType(
    {"dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
)
_CHANGING = re.compile(
    r"""(?:
    pi|sin|cos|tan|sec|csc|cot|arc\w+|log|ln|exp|mod|and|or|to|gcd|lcm|max|sqrt|roots?|times|x|pairs?
    |base|not|no|than|plus|minus|multiples?|half|halves|thirds?|quarters?|scores?|gross|tens
    |(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w+teen|\w+tie|hundred|thousand|\w+illion)ths?
    |\w+illions?|lakhs?|crores?|squared|cubed|factorial|more|less|fewer|remainder|choose|of|by|over
    |alpha|beta|gamma|delta|theta|lambda|mu|phi|omega|epsilon|sigma|rho|tau|infinity|am|pm
    )$""",
    re.VERBOSE | re.IGNORECASE,
)
"""A word behind a number that may change its value; the number is then left unread."""
_POWERS = MappingProxyType({"square": 2, "sq": 2, "cubic": 3, "squared": 2, "cubed": 3})
_CURRENCIES = MappingProxyType({"$": "dollar", "\u20ac": "euro", "\u00a3": "sterling"})
_UNIT_TABLE = """
length^1 0.001 mm millimeter millimetre
length^1 0.01 cm centimeter centimetre
length^1 1 m meter metre
length^1 1000 km kilometer kilometre
length^1 0.0254 in inch
length^1 0.3048 ft foot feet
length^1 0.9144 yd yard
length^1 1609.344 mi mile
length^3 0.000001 ml milliliter millilitre cc
length^3 0.001 l liter litre
length^3 0.000946352946 qt quart
length^3 0.003785411784 gal gallon
length^1/time^1 0.44704 mph
length^1/time^1 5/18 kmh kph
mass^1 0.001 mg milligram
mass^1 1 g gram
mass^1 1000 kg kilogram
mass^1 28.349523125 oz ounce
mass^1 453.59237 lb pound
time^1 1 s sec second
time^1 60 min minute
time^1 3600 h hr hour
time^1 86400 day
time^1 604800 wk week
calendar^1 1 month
calendar^1 12 yr year
money^1 0.01 cent
money^1 1 dollar usd
euro^1 1 euro eur
sterling^1 1 sterling gbp
angle^1 1 degree
"""
_UNITS: Mapping[str, tuple[str, Fraction]] = MappingProxyType(
    {
        name: (dimension, Fraction(factor))
        for dimension, factor, *names in map(str.split, _UNIT_TABLE.strip().splitlines())
        for name in names
    }
)
_CAPITALS = frozenset({"L", "KM", "Km", "CM", "MM", "KG", "Kg", "ML", "mL", "LB", "OZ", "MI", "FT"})
"""Short units that are also written so; elsewhere m is no M, and mg no Mg."""


@dataclass(frozen=True, slots=True)
class Unit:
    """``words`` in the singular, empty without a unit, and what is known of them.

    ``dimension`` is what it measures, as in ``length^1/time^1``, and ``factor`` its size there;
    None and 1 for words that the table does not have.
    """

    words: str
    dimension: str | None
    factor: Fraction


NO_UNIT = Unit("", None, Fraction(1))


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number exactly, with its unit; ``decimals`` behind the point, None for a fraction."""

    value: Fraction
    decimals: int | None
    percent: bool
    unit: Unit


def read_quantity(text: str) -> Quantity | None:
    """The number that all of ``text`` states, LaTeX already simplified; None if it is none.

    ``1 hour and 30 minutes`` is one: units of one kind, each smaller than the one before.
    """
    single = _read_single(text)
    if single is not None or len(text) > LONGEST_SUM:
        return single
    parts = [_read_single(part) for part in _AND.split(text)]
    units = [part.unit for part in parts if part is not None and part.unit.dimension is not None]
    if not 1 < len(units) == len(parts) or len({unit.dimension for unit in units}) > 1:
        return None
    if any(left.factor <= right.factor for left, right in pairwise(units)):
        return None
    total = sum((part.value * part.unit.factor for part in parts if part), Fraction(0))
    return Quantity(total / units[-1].factor, 0, False, units[-1])


def _read_single(text: str) -> Quantity | None:
    found = _NUMBER.fullmatch(text)
    if found is None or (found["sign"] and found["inner"]):
        return None
    if (found["rest"] or "").lstrip().startswith("/") and not found["currency"]:
        return None
    value = _value(found)
    if value is None:
        return None
    if "-" in (found["sign"], found["inner"]):
        value = -value
    rest = found["rest"] or ""
    if rest in _ORDINAL and (found["decimal"] or "").isdigit():
        return Quantity(value, 0, False, NO_UNIT)
    if _PERCENT.fullmatch(rest):
        return Quantity(value, _decimals(found), True, NO_UNIT)
    scale, _, behind = rest.strip().partition(" ")
    if (times := _SCALES.get(scale.lower().removesuffix("s"))) is not None:
        value, rest = value * times, f" {behind}" if behind else ""
    unit = _unit(rest, found["currency"])
    return None if unit is None else Quantity(value, _decimals(found), False, unit)


def read_unit(words: str) -> Unit | None:
    """The unit that ``words`` behind a number name; None where they are something else."""
    return _unit(f" {words}", "")


def equal(one: Quantity, other: Quantity) -> bool | None:
    """Whether both say the same; None where it hangs on words that are not known.

    A missing unit or percent sign is no difference. Nor is another noun: answers to one question
    count the same things.
    """
    if one.percent != other.percent:
        share, plain = (one, other) if one.percent else (other, one)
        return plain.unit == NO_UNIT and plain.value in (share.value, share.value / 100)
    left, right = one.unit, other.unit
    if left.dimension is None or right.dimension is None:
        if not _same_number(one, other):
            return False
        rated = "/" in left.words + right.words
        return True if not rated or left.words == right.words or NO_UNIT in (left, right) else None
    if left.dimension == right.dimension:
        return one.value * left.factor == other.value * right.factor
    short, long = sorted((left.dimension, right.dimension), key=len)
    return None if long.startswith(f"{short}/") and _same_number(one, other) else False


def _value(found: re.Match[str]) -> Fraction | None:
    again = found["many"] or found["again"]
    if again is not None:
        once = str(found["once"])
        ahead = int(f"{found['begun']}{once}" or "0")
        endless = Fraction(int(f"{ahead}{again}") - ahead, 10 ** len(again) - 1)
        return Fraction(endless, 10 ** len(once))
    if found["decimal"] is not None:
        digits = found["decimal"].replace(" ", "").replace(",", "." if found["comma"] else "")
        return Fraction(digits.rstrip(".")) * Fraction(10) ** _power(found)
    whole = _integer(found["whole"] or "0")
    over = _integer(found["over"] or found["top"] or found["digit"])
    under = _integer(found["under"] or found["bottom"] or found["second"])
    if not under or (whole and over >= under):
        return None
    return whole + Fraction(over, under)


def _integer(digits: str) -> int:
    return int(digits.replace(",", "").replace(" ", ""))


def _power(found: re.Match[str]) -> int:
    return int(found["power"] or found["braced"] or found["bare"] or 0)


def _decimals(found: re.Match[str]) -> int | None:
    if found["decimal"] is None:
        return None
    behind = found["decimal"].partition("," if found["comma"] else ".")[2]
    return max(0, len(behind) - _power(found))


def _unit(rest: str, currency: str) -> Unit | None:
    """The unit that ``rest`` and a sign before the number name; None where it is something else."""
    sign = _CURRENCIES.get(currency) or _CURRENCIES.get(rest.strip())
    rest = "" if rest.strip() in _CURRENCIES else rest
    if not rest and sign is None:
        return NO_UNIT
    found = _UNIT.fullmatch(rest) if rest else None
    if rest and found is None:
        return None
    over = " ".join(filter(None, (sign, found["over"].strip() if found else "")))
    under = (found["under"] or "") if found else ""
    if any(_CHANGING.match(word) for word in re.findall("[A-Za-z]+", _without_powers(rest))):
        return None
    top, bottom = _size(over), _size(under) if under else ("", Fraction(1))
    if found and not found["space"] and (top is None or (len(over) < 2 and not under)):
        return None  # 3x, 2ab
    words = " / ".join(filter(None, (_normalised(over), _normalised(under))))
    if top is None or bottom is None:
        lonely = not under and len(over) < LEAST_NOUN
        return None if lonely else Unit(words, None, Fraction(1))
    dimension = f"{top[0]}/{bottom[0]}" if under else top[0]
    return Unit(words, dimension, top[1] / bottom[1])


def _without_powers(rest: str) -> str:
    """Without "squared" and "cubed" behind a unit: 3 m squared, but not 3 squared."""
    return re.sub(r"(?<=[a-z]) (?:squared|cubed)\b", "", rest)


def _size(words: str) -> tuple[str, Fraction] | None:
    """What a unit in the table measures and its size, with its power; None for other words."""
    names = [_singular(word) for word in re.findall("[A-Za-z]+", words)]
    powers = [_POWERS[name] for name in names if name in _POWERS]
    powers += map(int, re.findall("[23]", words))
    known = [_UNITS[name] for name in names if name in _UNITS]
    if len(known) != 1 or len(names) > 1 + len(powers) or len(powers) > 1:
        return None
    (dimension, factor), power = known[0], (powers or [1])[0]
    if power == 1:
        return dimension, factor
    base, _, own = dimension.partition("^")
    return (f"{base}^{power}", factor**power) if own == "1" else None


def _normalised(words: str) -> str:
    return " ".join(_singular(word) for word in re.findall(r"[A-Za-z]+|\d", words))


def _singular(word: str) -> str:
    """In lower case, where case says nothing, and without the ending of a plural."""
    if len(word) < LEAST_NOUN and word not in _UNITS and word not in _CAPITALS:
        return word.lower() if len(word) > 1 and word.islower() else word
    lower = word.lower()
    if lower in _UNITS or not lower.endswith("s") or lower.endswith("ss"):
        return lower
    return lower[:-2] if lower.endswith(("sses", "xes", "ches", "shes")) else lower[:-1]


def _same_number(one: Quantity, other: Quantity) -> bool:
    """Exactly, but for what floating-point arithmetic or an endless expansion leaves."""
    apart = abs(one.value - other.value)
    if not apart:
        return True
    exact, decimal = sorted((one, other), key=lambda side: side.decimals or 0)
    digits = decimal.decimals or 0
    if exact.decimals is None and not _ends(exact.value):
        return digits >= ROUNDED_DIGITS and apart < Fraction(1, 10**digits)
    size = max(abs(exact.value), Fraction(1))
    return size >= 10 ** max(NOISY_DIGITS - digits, 0) and apart <= NOISE * size


def _ends(value: Fraction) -> bool:
    """Whether the decimal expansion ends: the denominator divides a power of ten."""
    return pow(10, value.denominator.bit_length(), value.denominator) == 0
