r"""Numbers with their units, read exactly: ``1,234.5``, ``-2 1/2``, ``\frac{3}{4}``, ``50\%``.

Knows: the usual notations of a number, words and signs of units. Does not know: expressions,
variables, collections. What is no number for certain is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

NOISY_DIGITS = 15
"""Decimals from which a number is taken for the output of floating-point arithmetic."""
NOISE = Fraction(1, 10**14)
ROUNDED_DIGITS = 6
"""Decimals from which a decimal may stand for a fraction whose expansion does not end."""

_WHOLE = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)|[1-9]\d{0,2}(?:\ \d{3})+(?!\d)|\d+)"
_NUMBER = re.compile(
    rf"""
    (?P<sign>[-+]?)\ ?(?P<currency>[$\u20ac\u00a3]?)\ ?(?P<inner>-?)\ ?
    (?: (?:(?P<whole>{_WHOLE})(?:\ (?=[1-9\\])|(?=\\)))?
        (?: (?P<over>{_WHOLE})\ ?/\ ?(?P<under>{_WHOLE})
          | \\frac\ ?(?:\{{\ ?(?P<top>\d+)\ ?\}}|(?P<digit>\d))
                  \ ?(?:\{{\ ?(?P<bottom>\d+)\ ?\}}|(?P<second>\d)) )
      | (?P<decimal>{_WHOLE}(?:\.\d*)?|\.\d+|(?P<comma>\d+,\d+))
        (?: [eE](?P<power>[-+]?\d{{1,3}})
          | \ ?(?:\\times|\\cdot|[*x\u00d7])\ ?10\ ?\^\ ?
            (?:\{{\ ?(?P<braced>[-+]?\d{{1,3}})\ ?\}}|(?P<bare>[-+]?\d{{1,3}})) )?
    )
    (?P<rest>\ ?[%A-Za-z$\u20ac\u00a3].*)?
    """,
    re.VERBOSE | re.ASCII,
)
_PERCENT = re.compile(r" ?(?:%|percent|pct)")
_UNIT = re.compile(
    r"(?P<space> ?)(?P<words>[A-Za-z]+(?:[ /][A-Za-z]+){0,3})(?: ?\^ ?\{?(?P<power>[23])\}?)?\.?"
)
_SCALES = MappingProxyType(
    {"dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
)
_NO_UNITS = frozenset(
    """
    pi sin cos tan sec csc cot arcsin arccos arctan log ln exp mod and or to gcd lcm max sqrt
    pair pairs base not no than plus minus multiples half halves third thirds quarter quarters
    score trillion
    """.split()  # noqa: SIM905
)
"""Words behind a number that change its value."""
_POWERS = MappingProxyType({"square": "2", "squared": "2", "sq": "2", "cubic": "3", "cubed": "3"})
_CURRENCIES = MappingProxyType({"$": "dollar", "\u20ac": "euro", "\u00a3": "sterling"})
_UNIT_TABLE = """
length 0.001 mm millimeter millimetre
length 0.01 cm centimeter centimetre
length 1 m meter metre
length 1000 km kilometer kilometre
length 0.0254 in inch
length 0.3048 ft foot feet
length 0.9144 yd yard
length 1609.344 mi mile
mass 0.001 mg milligram
mass 1 g gram
mass 1000 kg kilogram
mass 28.349523125 oz ounce
mass 453.59237 lb pound
time 1 s sec second
time 60 min minute
time 3600 h hr hour
time 86400 day
time 604800 wk week
volume 0.001 ml milliliter millilitre
volume 1 l liter litre
money 0.01 cent
money 1 dollar
angle 1 degree
"""
_UNITS: Mapping[str, tuple[str, Fraction]] = MappingProxyType(
    {
        name: (dimension, Fraction(factor))
        for dimension, factor, *names in map(str.split, _UNIT_TABLE.strip().splitlines())
        for name in names
    }
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number exactly, with its unit: words in the singular, ``^2`` and ``^3`` among them.

    ``decimals`` counts the digits behind the point, None for a fraction. ``dimension`` is what the
    unit measures, and ``factor`` its size there; None and 1 for a unit that is only a word.
    """

    value: Fraction
    decimals: int | None
    percent: bool
    unit: frozenset[str]
    dimension: str | None
    factor: Fraction


def read_quantity(text: str) -> Quantity | None:
    """The number that all of ``text`` states, LaTeX already simplified; None if it is none."""
    found = _NUMBER.fullmatch(text)
    if found is None or (found["sign"] and found["inner"]):
        return None
    value = _value(found)
    if value is None:
        return None
    if "-" in (found["sign"], found["inner"]):
        value = -value
    rest = found["rest"] or ""
    if _PERCENT.fullmatch(rest):
        return Quantity(value, _decimals(found), True, frozenset(), None, Fraction(1))
    scale, _, behind = rest.strip().partition(" ")
    if (times := _SCALES.get(_singular(scale))) is not None:
        value, rest = value * times, f" {behind}" if behind else ""
    unit = _unit(rest, found["currency"])
    return None if unit is None else Quantity(value, _decimals(found), False, unit, *_size(unit))


def equal(one: Quantity, other: Quantity) -> bool:
    """Whether both say the same; a missing unit or percent sign is no difference."""
    if one.percent != other.percent:
        share, plain = (one, other) if one.percent else (other, one)
        return not plain.unit and plain.value in (share.value, share.value / 100)
    if not one.unit or not other.unit:
        return _same_number(one, other)
    if one.dimension is not None and other.dimension is not None:
        same = one.dimension == other.dimension
        return same and one.value * one.factor == other.value * other.factor
    return (one.unit <= other.unit or other.unit <= one.unit) and _same_number(one, other)


def _value(found: re.Match[str]) -> Fraction | None:
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


def _unit(rest: str, currency: str) -> frozenset[str] | None:
    """The words of the unit; empty without one, None where ``rest`` is something else."""
    signs = [_CURRENCIES[sign] for sign in (currency, rest.strip()) if sign in _CURRENCIES]
    if not rest or rest.strip() in _CURRENCIES:
        return frozenset(signs)
    found = _UNIT.fullmatch(rest)
    if found is None:
        return None
    written = re.split("[ /]", found["words"])
    words = [_singular(word) for word in written]
    if _NO_UNITS.intersection(map(str.lower, written)):
        return None
    known = all(word in _UNITS or word in _POWERS for word in words)
    if not (known and (found["space"] or len(written[0]) > 1)) and (
        not found["space"] or len(written[0]) < 3
    ):
        return None  # 3x, 2 ab
    power = found["power"] or next((_POWERS[word] for word in words if word in _POWERS), None)
    named = {word for word in words if word not in _POWERS and word != "unit"}
    return frozenset([*named, *signs, *([f"^{power}"] if power else [])])


def _singular(word: str) -> str:
    lower = word.lower()
    if lower in _UNITS or not lower.endswith("s") or lower.endswith("ss"):
        return lower
    return lower[:-2] if lower.endswith(("sses", "xes", "ches", "shes")) else lower[:-1]


def _size(unit: frozenset[str]) -> tuple[str | None, Fraction]:
    """What the unit measures and its size, where the table has it."""
    names = [word for word in unit if not word.startswith("^")]
    power = next((int(word[1]) for word in unit if word.startswith("^")), 1)
    if len(names) != 1 or names[0] not in _UNITS:
        return None, Fraction(1)
    dimension, factor = _UNITS[names[0]]
    return f"{dimension}^{power}", factor**power


def _same_number(one: Quantity, other: Quantity) -> bool:
    """Exactly, but for what floating-point arithmetic or an endless expansion leaves."""
    apart = abs(one.value - other.value)
    if not apart:
        return True
    exact, decimal = sorted((one, other), key=lambda side: side.decimals or 0)
    digits = decimal.decimals or 0
    if exact.decimals is None and not _ends(exact.value):
        return digits >= ROUNDED_DIGITS and apart < Fraction(1, 10**digits)
    return digits >= NOISY_DIGITS and apart <= NOISE * max(abs(exact.value), Fraction(1))


def _ends(value: Fraction) -> bool:
    """Whether the decimal expansion ends."""
    under = value.denominator
    for prime in (2, 5):
        while under % prime == 0:
            under //= prime
    return under == 1
