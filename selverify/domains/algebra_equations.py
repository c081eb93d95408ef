"""Equations, constraints and problems of algebra as values, and the words they are written in.

Knows: the grammar of a problem's text. Does not know: moves, gates, what follows from what.

Every number is one word, so it lies between -200 and 200. A sum names each symbol once, squares
first, then unknowns, then the number; coefficients are written out, ``1 x`` too, and ``xx`` is the
square of ``x``. An equation holds one unknown, squared or not, or two that are not squared::

    e1 : 5 x + 4 = 2 x + 19 .                   plain
    e1 : 5 x + 4 = 3 ( 1 x + 6 ) .              product
    e1 : ( 1 xx + 2 x + -15 ) / ( 1 x + -3 ) = 4 .      quotient; x is not 3
    x is even . x is above 3 . find x + y .            constraints and the question
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations
from types import MappingProxyType

HIGHEST = 200
MAX_PROBLEM = 400
MAX_EQUATIONS = 2
MAX_UNKNOWNS = 2
TOLD_CACHE = 2**14
NUMBERS: Mapping[str, int] = MappingProxyType(
    {str(value): value for value in range(-HIGHEST, HIGHEST + 1)}
)
LABELS = tuple(f"e{place}" for place in range(1, 17))
UNKNOWNS = ("x", "y", "z")
SQUARES: Mapping[str, str] = MappingProxyType({2 * name: name for name in UNKNOWNS})
CONSTANT = ""
SYMBOLS = (*SQUARES, *UNKNOWNS, CONSTANT)
PLAIN, PRODUCT, QUOTIENT = "plain", "product", "quotient"
BOUNDS = frozenset({"above", "below", "not"})
KINDS = frozenset({"positive", "negative", "even", "odd"}) | BOUNDS
COMBINATIONS = frozenset({"+", "-", "*"})


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms as (symbol, coefficient) in the order of ``SYMBOLS``; no coefficient is zero."""

    terms: tuple[tuple[str, int], ...]

    def __getitem__(self, symbol: str) -> int:
        """The coefficient of ``symbol``, or 0."""
        return dict(self.terms).get(symbol, 0)

    def __str__(self) -> str:
        """The words of the sum; 0 where it has no term."""
        return " + ".join(f"{number} {symbol}".strip() for symbol, number in self.terms) or "0"

    @property
    def unknowns(self) -> frozenset[str]:
        """The unknowns in it, squared or not."""
        return frozenset(SQUARES.get(symbol, symbol) for symbol, _ in self.terms) - {CONSTANT}

    @property
    def squared(self) -> bool:
        """Whether an unknown is squared in it."""
        return any(symbol in SQUARES for symbol, _ in self.terms)

    def plus(self, other: Sum, factor: int) -> Sum:
        """This sum and ``factor`` times the other."""
        return make_sum({name: self[name] + factor * other[name] for name in SYMBOLS})

    def without(self, symbol: str) -> Sum:
        """The sum less its term with ``symbol``."""
        return Sum(tuple(term for term in self.terms if term[0] != symbol))


def make_sum(coefficients: Mapping[str, int]) -> Sum:
    """The sum with these coefficients."""
    return Sum(tuple((name, coefficients[name]) for name in SYMBOLS if coefficients.get(name)))


@dataclass(frozen=True, slots=True)
class Equation:
    """``left = right``, ``left = factor ( right )`` or ``( left ) / ( right ) = factor``."""

    left: Sum
    right: Sum
    form: str = PLAIN
    factor: int = 1

    def __str__(self) -> str:
        """The words of the equation."""
        if self.form == PRODUCT:
            return f"{self.left} = {self.factor} ( {self.right} )"
        if self.form == QUOTIENT:
            return f"( {self.left} ) / ( {self.right} ) = {self.factor}"
        return f"{self.left} = {self.right}"

    @property
    def unknowns(self) -> frozenset[str]:
        """The unknowns on either side."""
        return self.left.unknowns | self.right.unknowns

    @property
    def squared(self) -> bool:
        """Whether an unknown is squared on either side."""
        return self.left.squared or self.right.squared

    @property
    def difference(self) -> Sum:
        """The sum that is zero where the equation holds, denominators multiplied out."""
        return self.left.plus(self.right, -self.factor)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What is told of an unknown beside the equations; ``bound`` is 0 where the kind has none."""

    unknown: str
    kind: str
    bound: int = 0

    def __str__(self) -> str:
        """The words of the constraint."""
        bound = f" {self.bound}" if self.kind in BOUNDS else ""
        return f"{self.unknown} is {self.kind}{bound}"

    def allows(self, value: int) -> bool:
        """Whether the unknown may have this value."""
        return {
            "positive": value > 0,
            "negative": value < 0,
            "even": value % 2 == 0,
            "odd": value % 2 == 1,
            "above": value > self.bound,
            "below": value < self.bound,
            "not": value != self.bound,
        }[self.kind]


@dataclass(frozen=True, slots=True)
class Told:
    """A problem's text, read.

    Attributes:
        equations: e1, and e2 where there is one.
        constraints: the sentences, then that no denominator is zero.
        asked: an unknown, or two with +, - or * between them.
        goal: the sentences that are no equation.
    """

    equations: tuple[Equation, ...]
    constraints: tuple[Constraint, ...]
    asked: tuple[str, ...]
    goal: str

    def __str__(self) -> str:
        """The problem's text."""
        numbered = zip(LABELS, self.equations, strict=False)
        return " ".join([*(f"{label} : {one} ." for label, one in numbered), self.goal])


def tell(
    equations: Sequence[Equation], constraints: Sequence[Constraint], asked: tuple[str, ...]
) -> Told:
    """The problem that says this."""
    goal = " ".join([*(f"{one} ." for one in constraints), f"find {' '.join(asked)} ."])
    excluded = (
        Constraint(name, "not", -one.right[CONSTANT])
        for one in equations
        if one.form == QUOTIENT
        for name in one.right.unknowns
    )
    return Told(tuple(equations), (*constraints, *excluded), asked, goal)


def nameless(told: Told) -> str:
    """Equal for problems that differ in names of unknowns, or the order of sentences or sides."""
    held = sorted(frozenset[str]().union(*(one.unknowns for one in told.equations)))
    orders = permutations(UNKNOWNS[: len(held)])
    return min(_key(told, dict(zip(held, order, strict=True))) for order in orders)


def _key(told: Told, names: Mapping[str, str]) -> str:
    asked = [names.get(word, word) for word in told.asked]
    if asked[1:2] != ["-"]:
        asked.sort()
    equations = sorted(_sideless(one, names) for one in told.equations)
    limits = sorted(str(replace(one, unknown=names[one.unknown])) for one in told.constraints)
    return " . ".join([*equations, *limits, " ".join(asked)])


def _sideless(equation: Equation, names: Mapping[str, str]) -> str:
    left, right = (_renamed(side, names) for side in (equation.left, equation.right))
    named = replace(equation, left=left, right=right)
    turned = replace(equation, left=right, right=left)
    return min(str(named), str(turned)) if equation.form == PLAIN else str(named)


def _renamed(terms: Sum, names: Mapping[str, str]) -> Sum:
    symbols = {**names, **{2 * old: 2 * new for old, new in names.items()}}
    return make_sum({symbols.get(symbol, symbol): number for symbol, number in terms.terms})


def asked_unknowns(asked: tuple[str, ...]) -> tuple[str, ...]:
    """The unknowns that the question names."""
    return asked[::2]


def asked_value(asked: tuple[str, ...], values: Mapping[str, int]) -> int | None:
    """What is asked for, where ``values`` has all of it."""
    if any(name not in values for name in asked_unknowns(asked)):
        return None
    if len(asked) == 1:
        return values[asked[0]]
    first, sign, second = asked
    return compute(sign, values[first], values[second])


def compute(sign: str, first: int, second: int) -> int | None:
    """The result of one operation; None where a division is not exact."""
    if sign == "/":
        return first // second if second and first % second == 0 else None
    return {"+": first + second, "-": first - second, "*": first * second}[sign]


@lru_cache(maxsize=TOLD_CACHE)
def read_told(text: str) -> Told | None:
    """The problem that ``text`` states, or None where it is none of this domain."""
    if len(text) > MAX_PROBLEM or " ".join(text.split()) != text or not text.endswith(" ."):
        return None
    *said, question = (part.split() for part in text.removesuffix(" .").split(" . "))
    count = sum(len(words) > 1 and words[1] == ":" for words in said)
    labelled = zip(said[:count], LABELS, strict=False)
    equations = [_labelled(words, label) for words, label in labelled]
    constraints = [read_constraint(words) for words in said[count:]]
    match question:
        case ["find", *asked] if 0 < count <= MAX_EQUATIONS and _is_question(asked):
            known = [one for one in equations if one is not None]
            limits = [one for one in constraints if one is not None]
            told = tell(known, limits, tuple(asked))
            whole = len(known) + len(limits) == len(said)
            return told if whole and _is_consistent(told) else None
    return None


def _labelled(words: Sequence[str], label: str) -> Equation | None:
    return read_equation(words[2:]) if words[:2] == [label, ":"] else None


def _is_question(asked: Sequence[str]) -> bool:
    match asked:
        case [name]:
            return name in UNKNOWNS
        case [first, sign, second]:
            return {first, second} <= set(UNKNOWNS) and first != second and sign in COMBINATIONS
    return False


def _is_consistent(told: Told) -> bool:
    """Whether it speaks of the unknowns of its equations only, and of no more than two."""
    held = frozenset[str]().union(*(one.unknowns for one in told.equations))
    spoken = {*asked_unknowns(told.asked), *(one.unknown for one in told.constraints)}
    return spoken <= held and len(held) <= MAX_UNKNOWNS


def read_equation(words: Sequence[str]) -> Equation | None:
    """The equation that the words spell, or None."""
    if words.count("=") != 1:
        return None
    place = words.index("=")
    left, right = words[:place], words[place + 1 :]
    if "/" in left:
        cut = left.index("/")
        return _bracketed(_inside(left[:cut]), _inside(left[cut + 1 :]), right, QUOTIENT)
    if "(" in right:
        return _bracketed(left, _inside(right[1:]), right[:1], PRODUCT)
    left_sum, right_sum = read_sum(left), read_sum(right)
    if left_sum is None or right_sum is None:
        return None
    return valid(Equation(left_sum, right_sum))


def _inside(words: Sequence[str]) -> Sequence[str]:
    """The words between a pair of brackets; none where there is no pair."""
    return words[1:-1] if words[:1] == ["("] and words[-1:] == [")"] else ()


def _bracketed(
    left: Sequence[str], right: Sequence[str], factor: Sequence[str], form: str
) -> Equation | None:
    """The bracket on the right holds an unknown, once, and a number."""
    left_sum, right_sum = read_sum(left), read_sum(right)
    number = NUMBERS.get(" ".join(factor))
    if left_sum is None or right_sum is None or not number:
        return None
    if right_sum.squared or [right_sum[name] for name in right_sum.unknowns] != [1]:
        return None
    equation = valid(Equation(left_sum, right_sum, form, number))
    return equation if equation is not None and len(equation.unknowns) == 1 else None


def valid(equation: Equation) -> Equation | None:
    """The equation, if it holds an unknown, and no more than one beside a square."""
    most = 1 if equation.squared else MAX_UNKNOWNS
    return equation if 0 < len(equation.unknowns) <= most else None


def read_sum(words: Sequence[str]) -> Sum | None:
    """The sum that the words spell, its terms in any order, or None."""
    if list(words) == ["0"]:
        return Sum(())
    found: dict[str, int] = {}
    for term in " ".join(words).split(" + "):
        number, _, symbol = term.partition(" ")
        value = NUMBERS.get(number)
        if not value or symbol not in SYMBOLS or symbol in found:
            return None
        found[symbol] = value
    return make_sum(found)


def read_constraint(words: Sequence[str]) -> Constraint | None:
    """The constraint that the words spell, or None."""
    match words:
        case [name, "is", kind] if name in UNKNOWNS and kind in KINDS - BOUNDS:
            return Constraint(name, kind)
        case [name, "is", kind, bound] if name in UNKNOWNS and kind in BOUNDS:
            return Constraint(name, kind, NUMBERS[bound]) if bound in NUMBERS else None
    return None
