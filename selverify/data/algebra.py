r"""Whether two answers are equal where their form does not tell (protocol, section Grading).

Knows: Math-Verify and the parser behind it, and what settles a pair faster than they do. Does not
know: processes and time limits, without which sympy can hang or exhaust memory.
"""

from __future__ import annotations

import cmath
import importlib
import logging
import re
import zlib
from collections.abc import Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from selverify.data.equivalence import CORRECT, UNPARSED, WRONG, compare_by_form
from selverify.data.quantities import Unit, read_unit
from selverify.domains.stated_numbers import VULGAR_FRACTIONS

BACKEND = "math_verify"
_PARSER = "PSParser"
FAR = 1e-3
"""Of two values that are not equal: far more than what is rounded away."""
_DIGITS = 15
LONGEST_LETTERS = 3
"""Letters in a row that may be several variables."""

_FULL_STOP = re.compile(r"(?<!\.)(?<!\\right)\.\s*+(\$\$?|\\\)|\\\])?\Z")
_DELIMITER = re.compile(r"(?<!\\)\$|\\\(|\\\[|\\boxed")
_COMMAND = re.compile(r"\\(?:text|mathrm|mbox|operatorname|begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+")
_IN_DEGREES = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])(?:\^\{?\d\}?)?)\s*(?:\\left)?(\()?\s*"
    r"(\d+(?:\.\d+)?)\s*\^\s*(\{)?\s*\\circ(?(4)\s*\})(?(2)\s*(?:\\right)?\))"
)
_ROOT = re.compile("\N{SQUARE ROOT} ?(?:\\(([^()]*)\\)|(\\d+|[A-Za-z]))")
_IMAGINARY = re.compile(r"i(?![A-Za-z])")
_LETTER = re.compile(r"[A-Za-z]")
_NAMED_PI = re.compile(r"(?<![A-Za-z\\])pi(?![A-Za-z])")
_SIGNS = str.maketrans(
    {
        "\N{SUPERSCRIPT TWO}": "^2",
        "\N{SUPERSCRIPT THREE}": "^3",
        "\N{MIDDLE DOT}": r" \cdot ",
        "\N{EN DASH}": "-",
        "\N{MINUS SIGN}": "-",
        "\N{INFINITY}": r"\infty ",
        "\N{GREEK SMALL LETTER PI}": r"\pi ",
    }
    | {
        sign: r"\frac{{{}}}{{{}}}".format(*spelled.split("/"))
        for sign, spelled in VULGAR_FRACTIONS.items()
    }
)
"""How Math-Verify's parser knows them."""
_MEASURED = re.compile(
    r"(?P<value>(?=[^A-Za-z]*[\\^!])(?:[^A-Za-z\\]|\\[A-Za-z]+)*?) ?"
    r"(?<![\\A-Za-z])(?P<unit>[A-Za-z]{2}[A-Za-z /^23{}]*)"
)
_PROSE = re.compile(r"(?<![^\W\d_])[^\W\d_]{2,}+[\s,]++[^\W\d_]{2}")


def compare_with_math_verify(gold: str, answer: str) -> str:
    """The status by form, element by element, and where that does not tell by Math-Verify.

    Runs inside a worker only.
    """
    return compare_by_form(gold, answer, _by_algebra)


def _by_algebra(gold: str, answer: str) -> str:
    """The status by Math-Verify 0.8, its own alarms off.

    A side without delimiters of its own is put in dollars, unless it is prose. Math-Verify leaves
    out the sign of degrees, so sides that are not equal to it are also read with the angles of
    functions in radians.
    """
    read = False
    gold, answer = (_FULL_STOP.sub(r"\1", side.strip()) for side in (gold, answer))
    gold, answer = _without_units(gold, answer)
    for sides in dict.fromkeys(((gold, answer), (_in_radians(gold), _in_radians(answer)))):
        left, right = map(_parsed, sides)
        read = read or bool(right)
        if right and not _far_apart(left, right) and _verified(left, right):
            return CORRECT
    if _said(gold) == _said(answer) != "":
        return CORRECT
    return WRONG if read else UNPARSED


@cache
def load_backend() -> ModuleType:
    """Math-Verify, whose parser reads in two stages from now on, and whose warnings are off."""
    backend = importlib.import_module(BACKEND)
    logging.getLogger(BACKEND).setLevel(logging.ERROR)  # it warns that its own alarms are off
    reader: Any = importlib.import_module("latex2sympy2_extended.latex2sympy2")
    if hasattr(reader, _PARSER):
        setattr(reader, _PARSER, _in_two_stages(getattr(reader, _PARSER)))
    return backend


def _in_two_stages(parser: Any) -> Any:
    """The same LaTeX ``parser``, which looks at the context of a rule only where it has to.

    ANTLR's SLL prediction finds the tree of the full one (LL) or an error; then LL is asked. It
    keeps all its decisions, where LL makes many of them again in every text.
    """
    modes = importlib.import_module("antlr4.atn.PredictionMode").PredictionMode

    class TwoStages(parser):  # type: ignore[misc]
        def math(self) -> Any:
            self.getTokenStream().fill()  # what is no token is an error in either stage
            self._interp.predictionMode = modes.SLL
            try:
                return super().math()
            except Exception:  # the parser's listener raises nothing more exact
                self.reset()
                self._interp.predictionMode = modes.LL
                return super().math()

    return TwoStages


class _Unread(Exception):
    """No expression was read in a side, perhaps for want of memory: asked again, it may be."""


def _parsed(side: str) -> Sequence[Any]:
    """What Math-Verify reads in one side: expressions, then the text."""
    try:
        return _kept(side)
    except _Unread as error:
        found: Sequence[Any] = error.args[0]
        return found


@lru_cache(maxsize=1024)
def _kept(side: str) -> Sequence[Any]:
    """A gold is compared with many answers."""
    found = load_backend().parse(_delimited(side), parsing_timeout=None)
    if all(isinstance(one, str) for one in found):
        raise _Unread(found)
    lettered = _IMAGINARY.search(_COMMAND.sub(" ", side))
    return tuple(map(_with_imaginary, found) if lettered else found)


def _with_imaginary(one: Any) -> Any:
    """``i`` is the imaginary unit where it counts nothing: the parser makes two letters of it."""
    sympy = importlib.import_module("sympy")
    if isinstance(one, sympy.Eq) and isinstance(one.lhs, sympy.Symbol) and one.lhs.name != "i":
        value = _with_imaginary(one.rhs)
        return one if value == one.rhs else value  # z = 1 + 2i
    if not isinstance(one, sympy.Expr) or one.has(*_sums(sympy)):
        return one
    return one.subs({letter: sympy.I for letter in one.free_symbols if letter.name == "i"})


def _sums(sympy: Any) -> tuple[Any, ...]:
    return sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative


def _verified(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    return bool(load_backend().verify([*gold], [*answer], timeout_seconds=None))


def _far_apart(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    """Whether both sides are one number or expression each, of clearly different values.

    Algebra would say the same, after it has tried, at times for seconds, to simplify the
    difference. Equal texts are equal for Math-Verify, which leaves out a percent sign there.
    """
    texts = ({one.strip() for one in side if isinstance(one, str)} for side in (gold, answer))
    if set.intersection(*texts):
        return False
    one, other = _value(gold), _value(answer)
    if one is None or other is None:
        return False
    return abs(one - other) > FAR * max(1.0, abs(one), abs(other))


def _value(side: Sequence[Any]) -> complex | None:
    """The value of what Math-Verify read, where that is one expression; variables between 1 and 2.

    Expressions that are equal everywhere are equal there. None for a variable alone, which
    Math-Verify compares with products of letters, and for sums and integrals, which sympy does not
    compute well.
    """
    read = [one for one in side if not isinstance(one, str)]
    sympy = importlib.import_module("sympy")
    if len(read) != 1 or not isinstance(read[0], sympy.Expr):
        return None
    if read[0].is_Symbol or read[0].has(*_sums(sympy)):
        return None
    try:
        at = {one: 1 + sympy.Rational(_spread(one.name), 1000) for one in read[0].free_symbols}
        value = complex(read[0].evalf(_DIGITS, subs=at, strict=bool(at)))
    except Exception:  # whatever sympy raises, Math-Verify is asked
        return None
    return value if cmath.isfinite(value) else None


def _spread(name: str) -> int:
    """A number from 1 to 997 that is likely another for another name."""
    return 1 + zlib.crc32(name.encode()) % 997


def _said(side: str) -> str:
    """The words of prose, without case or punctuation; empty for anything else."""
    return " ".join(re.findall(r"\w+", side.casefold())) if _PROSE.search(side) else ""


def _in_radians(side: str) -> str:
    side = side.replace("\N{DEGREE SIGN}", r"^\circ")
    return _IN_DEGREES.sub(r"\1\\left(\\frac{\3 \\pi}{180}\\right)", side)


def _without_units(gold: str, answer: str) -> tuple[str, str]:
    r"""Both sides without units in words behind a formula, ``2\sqrt{3} square inches``, unless
    they have different ones, or letters that may be variables: Math-Verify would read the first
    number alone."""
    found = [_MEASURED.fullmatch(side.strip()) for side in (gold, answer)]
    units = [one and _unit(one["unit"]) for one in found]
    if None not in units and len(set(units)) > 1:
        return gold, answer
    left, right = (
        one["value"].strip() if one and unit else side
        for one, unit, side in zip(found, units, (gold, answer), strict=True)
    )
    lettered = any(map(_LETTER.search, (_COMMAND.sub(" ", side) for side in (left, right))))
    return (gold, answer) if lettered else (left, right)


def _unit(words: str) -> Unit | None:
    """A unit of the table, or one in words of more than three letters: ``abc`` are variables."""
    unit = read_unit(words)
    known = unit is not None and unit.dimension is not None
    return unit if known or re.match(rf"[A-Za-z]{{{LONGEST_LETTERS + 1}}}", words) else None


def _delimited(side: str) -> str:
    side = side.replace("\N{DEGREE SIGN}", r"^\circ")
    if _PROSE.search(_COMMAND.sub(" ", side)):
        return side
    side = _ROOT.sub(lambda found: rf"\sqrt{{{found[1] or found[2]}}}", side.translate(_SIGNS))
    side = _NAMED_PI.sub(r"\\pi ", side.replace("**", "^"))
    return side if _DELIMITER.search(side) else f"${side}$"
