"""Pairs of answers whose truth is known because both were written from values.

``python tests/data/generated_answers.py`` grades 10,000 of them and prints a table by kind.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from selverify.data.grading import Grader

SEED = 20261122
PAIRS = 10_000
UNITS = (
    ("cm", "centimeters", "\\text{ cm}", "\\mathrm{cm}", "centimetre"),
    ("m", "meters", "\\text{ m}"),
    ("kg", "kilograms", "\\text{ kg}"),
    ("hours", "hour", "hrs", "\\text{ hours}"),
    ("minutes", "min", "\\text{ minutes}"),
    ("dollars", "USD", "dollar"),
    ("cm^2", "square centimeters", "\\text{ cm}^2", "cm\u00b2"),
    ("cm^3", "cubic centimeters", "\\text{ cm}^{3}", "cc", "ml"),
    ("miles per hour", "mph", "miles/hour", "mi/h"),
    ("m/s", "meters per second", "\\text{ m/s}"),
    ("dollars per hour", "dollars/hour"),
)
NOUNS = (
    ("apples", "apple"),
    ("people", "persons"),
    ("red marbles", "marbles"),
    ("units^2", "square units"),
)
CONVERTED = (
    ("m", "cm", 100),
    ("km", "m", 1000),
    ("hours", "minutes", 60),
    ("kg", "g", 1000),
    ("m^2", "cm^2", 10_000),
    ("km/h", "meters per hour", 1000),
    ("dollars", "cents", 100),
)
SUMS = (("hours", "minutes", 60), ("feet", "inches", 12), ("dollars", "cents", 100))


@dataclass(frozen=True)
class Pair:
    """Two answers and whether they are equal."""

    kind: str
    gold: str
    answer: str
    equal: bool


def integer(rng: random.Random) -> tuple[str, str, bool]:
    """Signs, thousands and leading zeros against a value near by."""
    value = rng.choice((rng.randint(-50, 50), rng.randint(-(10**7), 10**7)))
    equal = rng.random() < 0.5
    other = value if equal else _near(rng, value)
    return _integer(rng, value), _integer(rng, other), equal


def decimal(rng: random.Random) -> tuple[str, str, bool]:
    """Decimals, their fractions and powers of ten, against the last digit changed."""
    digits = rng.randint(1, 8)
    value = Fraction(rng.randint(-(10**6), 10**6), 10**digits)
    equal = rng.random() < 0.5
    other = value if equal else value + rng.choice((-1, 1)) * Fraction(1, 10**digits)
    return _decimal(rng, value, digits), _decimal(rng, other, digits), equal


def fraction(rng: random.Random) -> tuple[str, str, bool]:
    """Fractions, reduced or not, against another numerator, a sign or the inverse."""
    value = Fraction(rng.randint(1, 60), rng.randint(2, 30)) * rng.choice((-1, 1))
    equal = rng.random() < 0.5
    near = rng.choice((-value, 1 / value, value + Fraction(1, value.denominator)))
    other = value if equal else near
    return _fraction(rng, value), _fraction(rng, other), other == value


def percent(rng: random.Random) -> tuple[str, str, bool]:
    """A share as percent or as a number, against another share."""
    value = Fraction(rng.randint(2, 999), rng.choice((1, 10)))
    equal = rng.random() < 0.5
    other = value if equal else value + rng.choice((-1, 1))
    signs = ("%", "\\%", " percent", " %")
    written = [f"{_point(other, 1)}{rng.choice(signs)}", _point(other / 100, 3)]
    return f"{_point(value, 1)}{rng.choice(signs)}", rng.choice(written), equal


def mixed_number(rng: random.Random) -> tuple[str, str, bool]:
    """2 1/2 against 5/2 and 2.5, or against 21/2, 1/2, 2 and another part."""
    whole, under = rng.randint(1, 20), rng.choice((2, 3, 4, 5, 8))
    over = rng.randint(1, under - 1)
    gold = rng.choice((f"{whole} {over}/{under}", f"{whole}\\frac{{{over}}}{{{under}}}"))
    value = whole + Fraction(over, under)
    sign = rng.choice(("", "-"))
    equal = rng.random() < 0.5
    near = (whole, Fraction(over, under), Fraction(int(f"{whole}{over}"), under), value + 1)
    other = value if equal else Fraction(rng.choice(near))
    return sign + gold, _fraction(rng, -other if sign else other), equal


def unit(rng: random.Random) -> tuple[str, str, bool]:
    """One unit in several spellings, none or a converted one, against another unit or number."""
    value = rng.randint(1, 5000)
    names = rng.choice((*UNITS, *NOUNS))
    gold = _with_unit(value, rng.choice(names))
    match rng.choice(("same", "bare", "converted", "number", "unit")):
        case "same":
            return gold, _with_unit(value, rng.choice(names)), True
        case "bare":
            return gold, str(value), True
        case "converted":
            large, small, factor = rng.choice(CONVERTED)
            equal = rng.random() < 0.5
            return f"{value} {large}", f"{value * factor + (not equal)} {small}", equal
        case "number":
            return gold, _with_unit(_near(rng, value), rng.choice(names)), False
        case _:
            # A pay without its hour may be what was asked for, so rates are among themselves.
            left, right = rng.sample(rng.choice((UNITS[:8], UNITS[8:])), 2)
            return _with_unit(value, rng.choice(left)), _with_unit(value, rng.choice(right)), False


def sum_of_units(rng: random.Random) -> tuple[str, str, bool]:
    """1 hour and 30 minutes against 90 minutes, another number of them, and its last part."""
    large, small, factor = rng.choice(SUMS)
    many, few = rng.randint(2, 40), rng.randint(1, factor - 1)
    joined = rng.choice((" and ", " ", ", "))
    gold = f"{many} {large}{joined}{few} {small}"
    total = many * factor + few
    near = rng.choice((f"{total + 1} {small}", f"{few} {small}", f"{many} {large}"))
    right = rng.choice((f"{total} {small}", f"{Fraction(total, factor)} {large}"))
    equal = rng.random() < 0.5
    return gold, right if equal else near, equal


def plus_and_minus(rng: random.Random) -> tuple[str, str, bool]:
    """Two signs written as one, in a list or alone, against one of the two and another number."""
    value = rng.randint(1, 90)
    sign = rng.choice(("\\pm ", "\\pm", "\u00b1"))
    others = rng.choice(("", "100", "0"))
    gold = f"{others}, {sign}{value}" if others else f"{sign}{value}"
    right = [str(value), str(-value), *([others] if others else [])]
    equal = rng.random() < 0.5
    if not equal:
        right = rng.choice((right[1:], [str(value + 1), *right[1:]]))
    rng.shuffle(right)
    return gold, ", ".join(right), equal


def bare_list(rng: random.Random) -> tuple[str, str, bool]:
    """Lists in any order, joined by commas, "and" or "or", against lists that differ."""
    values, others, equal = _lists(rng, ordered=False)
    return _listed(rng, values), _listed(rng, others), equal


def one_of_a_list(rng: random.Random) -> tuple[str, str, bool]:
    """A list against a single number that stands in it."""
    values, _, _ = _lists(rng, ordered=False)
    sides = _listed(rng, values), _value(rng, rng.choice(values))
    return (*(sides if rng.random() < 0.5 else sides[::-1]), False)


def braced_set(rng: random.Random) -> tuple[str, str, bool]:
    """Sets in any order against sets that differ, the braces written or not."""
    values, others, equal = _lists(rng, ordered=False)
    right = _joined(rng, others)
    return _set(_joined(rng, values)), rng.choice((_set(right), right)), equal


def ordered_tuple(rng: random.Random) -> tuple[str, str, bool]:
    """Points against points that differ in a coordinate or in order."""
    values, others, equal = _lists(rng, ordered=True)
    return _tuple(rng, values), _tuple(rng, others), equal


def interval(rng: random.Random) -> tuple[str, str, bool]:
    """Intervals and unions of two, against another end, bracket or order of the two brackets."""
    low = rng.randint(-30, 30)
    ends = (low, low + rng.randint(1, 30))
    brackets = rng.choice("(["), rng.choice(")]")
    match rng.choice(("same", "end", "bracket", "union")):
        case "same":
            return _interval(rng, ends, brackets), _interval(rng, ends, brackets), True
        case "end":
            other = (ends[0], ends[1] + 1)
            return _interval(rng, ends, brackets), _interval(rng, other, brackets), False
        case "bracket":
            other_brackets = ("[" if brackets[0] == "(" else "(", brackets[1])
            return _interval(rng, ends, brackets), _interval(rng, ends, other_brackets), False
        case _:
            equal = rng.random() < 0.5
            first, second = _interval(rng, ends, brackets), "[100, \\infty)"
            last = second if equal else "(100, \\infty)"
            return f"{first} \\cup {second}", f"{last} \\cup {first}", equal


def algebraic_list(rng: random.Random) -> tuple[str, str, bool]:
    """Lists and points of roots, which need algebra, against lists that differ in one."""
    roots = rng.sample(range(2, 30), rng.randint(2, 4))
    equal = rng.random() < 0.5
    others = roots if equal else [*roots[:-1], roots[-1] + 31]
    left = [f"{root}\\sqrt{{2}}" for root in roots]
    right = [f"\\frac{{{2 * root}}}{{\\sqrt{{2}}}}" for root in others]
    if rng.random() < 0.5:
        rng.shuffle(right)
        return ", ".join(left), ", ".join(right), equal
    return f"({','.join(left)})", f"({', '.join(right)})", equal


BY_FORM: tuple[Callable[[random.Random], tuple[str, str, bool]], ...] = (
    integer,
    decimal,
    fraction,
    percent,
    mixed_number,
    unit,
    sum_of_units,
    plus_and_minus,
    bare_list,
    one_of_a_list,
    braced_set,
    ordered_tuple,
    interval,
)


def pairs(count: int) -> Iterator[Pair]:
    """``count`` pairs of all kinds in turn; one in fifty needs algebra."""
    rng = random.Random(SEED)
    for number in range(count):
        kind = algebraic_list if number % 50 == 0 else BY_FORM[number % len(BY_FORM)]
        gold, answer, equal = kind(rng)
        dollars = rng.random() < 0.2
        yield Pair(kind.__name__, f"${gold}$" if dollars else gold, answer, equal)


def _near(rng: random.Random, value: int) -> int:
    digits = str(abs(value))
    swapped = int(digits[:-2] + digits[-2:][::-1]) if len(digits) > 1 else value + 1
    near = rng.choice((value + 1, value - 1, 10 * value, -value, swapped, value + 100))
    return near if near != value else value + 1


def _integer(rng: random.Random, value: int) -> str:
    sign = "-" if value < 0 else rng.choice(("", "", "+"))
    digits = f"{abs(value):,}"
    separator = rng.choice(("", "", ",", "{,}", ",\\!", " "))
    return f"{sign}{digits.replace(',', separator)}{rng.choice(('', '', '.0', '.'))}"


def _point(value: Fraction, digits: int) -> str:
    scaled = value * 10**digits
    whole, rest = divmod(abs(scaled.numerator), 10**digits)
    return f"{'-' if value < 0 else ''}{whole}.{rest:0{digits}d}"


def _decimal(rng: random.Random, value: Fraction, digits: int) -> str:
    plain = _point(value, digits)
    shorter = plain.replace("0.", ".", 1) if abs(value) < 1 else plain
    power = f"{_point(value * 10, digits)}e-1"
    times = f"{_point(value * 100, digits)} \\times 10^{{-2}}"
    return rng.choice((plain, plain, plain + "0", shorter, power, times, _fraction(rng, value)))


def _fraction(rng: random.Random, value: Fraction) -> str:
    times = rng.randint(1, 4)
    over, under = abs(value.numerator) * times, value.denominator * times
    sign = "-" if value < 0 else ""
    forms = [f"{over}/{under}", f"\\frac{{{over}}}{{{under}}}", f"\\dfrac{{{over}}}{{{under}}}"]
    if over < 10 and under < 10:
        forms.append(f"\\frac{over}{under}")
    return sign + rng.choice(forms)


def _with_unit(value: int, name: str) -> str:
    return f"{value}{name}" if name.startswith("\\") else f"{value} {name}"


def _lists(rng: random.Random, *, ordered: bool) -> tuple[list[Fraction], list[Fraction], bool]:
    """Distinct values, others, and whether they are equal (in order, or in any)."""
    drawn = rng.sample(range(-40, 40), rng.randint(2, 5))
    values = [one + rng.choice((Fraction(0), Fraction(0), Fraction(1, 2))) for one in drawn]
    others = list(values)
    match rng.choice(("same", "same", "changed", "shorter", "longer", "swapped")):
        case "changed":
            others[rng.randrange(len(others))] += Fraction(1, 3)
        case "shorter":
            others.pop()
        case "longer":
            others.append(Fraction(99))
        case "swapped" if ordered:
            others.reverse()
    equal = values == others if ordered else sorted(values) == sorted(others)
    if not ordered:
        rng.shuffle(others)
    return values, others, equal and len(others) > 1


def _value(rng: random.Random, value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return _point(value, 1) if value.denominator == 2 and rng.random() < 0.5 else str(value)


def _joined(rng: random.Random, values: list[Fraction]) -> str:
    return ", ".join(_value(rng, value) for value in values)


def _listed(rng: random.Random, values: list[Fraction]) -> str:
    texts = [_value(rng, value) for value in values]
    if len(texts) == 1:
        return texts[0]
    last = rng.choice((", ", " and ", ", and ", " or ", "\\text{ and }", "; "))
    between = "; " if last == "; " else ", "
    return between.join(texts[:-1]) + last + texts[-1]


def _set(inside: str) -> str:
    return f"\\{{{inside}\\}}"


def _tuple(rng: random.Random, values: list[Fraction]) -> str:
    inside = rng.choice((", ", ",")).join(_value(rng, value) for value in values)
    return rng.choice((f"({inside})", f"\\left({inside}\\right)"))


def _interval(rng: random.Random, ends: tuple[int, int], brackets: tuple[str, str]) -> str:
    inside = rng.choice((", ", ",")).join(map(str, ends))
    text = f"{brackets[0]}{inside}{brackets[1]}"
    return rng.choice((text, f"\\left{brackets[0]}{inside}\\right{brackets[1]}"))


def main() -> None:
    """Print how the pairs of each kind are graded."""
    drawn = list(pairs(PAIRS))
    with Grader(10.0, 2) as grader:
        grades = grader.grade_many([(pair.gold, pair.answer) for pair in drawn])
    counted: Counter[tuple[str, str]] = Counter()
    for pair, grade in zip(drawn, grades, strict=True):
        right = grade.status == ("correct" if pair.equal else "wrong")
        open_ = grade.status in ("unparsed", "timeout")
        counted[pair.kind, "right" if right else "unparsed" if open_ else "graded wrong"] += 1
        if not right:
            print(pair, grade.status)
    print("| Kind | Pairs | Graded right | Graded wrong | Unparsed |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for kind in dict.fromkeys(pair.kind for pair in drawn):
        row = [counted[kind, found] for found in ("right", "graded wrong", "unparsed")]
        print("|", " | ".join([kind, *map(str, [sum(row), *row])]), "|")


if __name__ == "__main__":
    main()
