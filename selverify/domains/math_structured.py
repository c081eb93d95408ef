r"""Mathematics in structured moves: a move is one JSON object on one line, operator and arguments.

Knows: the operators, and which symbols, values and conditions the moves so far have stated. Does
not know: whether a relation is what the problem's text says, the exact truth, or models::

    {"op": "define", "args": {"symbol": "may", "meaning": "clips sold in May"}}
    {"op": "compute", "args": {"symbol": "may", "because": "half of April's", ... "value": "24"}}

A symbol has one value. The gates refuse an object that cites a line not yet written, uses a name
that nothing introduced, repeats a line, or contradicts the arithmetic, the values or the conditions
stated before. What they cannot read or decide passes. A key of ``args`` stands in the order of its
operator's fields, reasons before results, so equal moves have equal texts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError

from selverify.domains.arithmetic import MAX_DIGITS, NUMERAL
from selverify.domains.base import Domain, arguments_of, context_of
from selverify.domains.claims import ELSEWHERE, LEFT_OVER, ROUNDING_WORDS, SUPPOSING, slack_of
from selverify.domains.formulas import (
    Known,
    agree,
    calculates,
    divides_by_zero,
    is_ordinary,
    may_be_same,
    names_in,
    names_of_formula,
    out_of_scope,
    read_value,
    reconciled,
    scaled,
    words_of,
)
from selverify.domains.math_steps import UNWRITABLE, MathSteps
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State

_MAX_MOVE = 4_000
_MAX_PROSE = 300
_MAX_FORMULA = 300
_MAX_KEYS = 8
_MAX_DEPTH = 3
_MAX_PREMISES = 20
_MAX_LINE = 999
_MAX_REASON = 200
_HUNDREDTH = Fraction(1, 100)
_FENCE = "```"

_BRACKET_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]]', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[A-Za-z]{2,}|.)", re.DOTALL)
_VALID_ESCAPE = re.compile(r'u[0-9a-fA-F]{4}|["\\/nrt]')
_OTHER_RELATION = re.compile(r"[!<>:=~]=|=[>=~]|\\not?\b|\\neq?\b")
_LETTERS_OF_A_WORD = 3
_UNSURE = SUPPOSING | ROUNDING_WORDS
"""Words of a reason under which a value is supposed, denied or rounded."""
_WHOLE = LEFT_OVER | {
    "ceiling",
    "floor",
    "up",
    "down",
    "least",
    "enough",
    "need",
    "needs",
    "needed",
}
"""Words of a reason under which a whole number may stand for what lies next to it."""


def _one_line(value: object) -> object:
    if not isinstance(value, str):
        return value
    line = " ".join(value.split())
    if UNWRITABLE.search(line):
        raise ValueError("control characters")
    return line


# A pattern carries its own length: some servers drop a maxLength that stands beside one.
Symbol = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,23}$")]
Prose = Annotated[str, BeforeValidator(_one_line), Field(min_length=1, max_length=_MAX_PROSE)]
Formula = Annotated[str, BeforeValidator(_one_line), Field(min_length=1, max_length=_MAX_FORMULA)]
LineNumber = Annotated[int, Field(ge=1, le=_MAX_LINE)]


class OfSymbol(Arguments):
    """The arguments of a move about one symbol."""

    symbol: Symbol


class Define(OfSymbol):
    """A symbol and what it stands for."""

    meaning: Prose


class Require(OfSymbol):
    """A condition that the problem puts on a symbol, for the whole solution."""

    condition: Literal["integer", "even", "odd", "positive", "negative", "nonnegative", "nonzero"]


class Bound(OfSymbol):
    """A bound that the problem puts on a symbol, for the whole solution."""

    relation: Literal["<", "<=", ">", ">=", "!="]
    value: Formula


class Bind(OfSymbol):
    """The symbol has this value: a number, or an expression over numbers and symbols."""

    because: Prose
    value: Formula


class Compute(OfSymbol):
    """symbol = expression = value."""

    because: Prose
    expression: Formula
    value: Formula


class Derive(Arguments):
    """An equation or another relation that follows from the lines cited, counted from 1."""

    premises: Annotated[tuple[LineNumber, ...], Field(max_length=_MAX_PREMISES)]
    because: Prose
    equation: Formula


class Answer(OfSymbol):
    """The final answer: the value of the symbol that was asked for."""

    value: Formula


OPERATORS: Mapping[str, type[Arguments]] = MappingProxyType(
    {
        "define": Define,
        "require": Require,
        "bound": Bound,
        "bind": Bind,
        "compute": Compute,
        "derive": Derive,
        "answer": Answer,
    }
)


@dataclass(frozen=True, slots=True)
class Condition:
    """``relation`` to ``bound``; ``integer``, ``even`` and ``odd`` have none (0)."""

    symbol: str
    relation: str
    bound: Fraction


_WHOLE_KINDS = frozenset({"integer", "even", "odd"})
_MAY_MEET: Mapping[str, Callable[[Fraction, Fraction, Fraction], bool]] = MappingProxyType(
    {
        "integer": lambda low, high, _: math.floor(high) >= low,
        "even": lambda low, high, _: 2 * math.floor(high / 2) >= low,
        "odd": lambda low, high, _: 2 * math.floor((high - 1) / 2) + 1 >= low,
        ">": lambda _, high, bound: high > bound,
        ">=": lambda _, high, bound: high >= bound,
        "<": lambda low, _, bound: low < bound,
        "<=": lambda low, _, bound: low <= bound,
        "!=": lambda low, high, bound: not low == high == bound,
    }
)
"""Whether a value between ``low`` and ``high`` can meet a condition."""
_SIGNS = MappingProxyType({"positive": ">", "negative": "<", "nonnegative": ">=", "nonzero": "!="})


@dataclass(frozen=True, slots=True)
class Facts:
    """The tracked constraints l.

    Where the problem is not ``ordinary``, as it speaks of another base or a modulus, nothing is
    judged by its value.
    """

    named: frozenset[str]
    ordinary: bool
    defined: frozenset[str]
    values: tuple[tuple[str, Known], ...]
    conditions: frozenset[Condition]
    seen: frozenset[str]
    answer: str | None


class NotAMove(ValueError):
    """The text is no JSON object of an operator and its arguments."""


class MathStructured(Domain):
    """Mathematics by structured moves; see the module's text."""

    name = "math_structured"
    end_of_move = "\n"
    operators = OPERATORS

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The problem, read as for ordinary steps.

        Raises:
            SchemaError: the text is empty or longer than a problem can be.
        """
        return replace(MathSteps().read(text, problem_id=problem_id), domain=self.name)

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """w_0: the names that the problem's text uses are in scope."""
        named, ordinary = names_in(problem.text), is_ordinary(problem.text)
        facts = Facts(named, ordinary, frozenset(), (), frozenset(), frozenset(), None)
        return State(problem, (), facts, budget)

    def parse(self, text: str) -> Candidate:
        """The move that exactly one JSON object states, alone or in a code fence.

        A backslash before two letters begins a LaTeX command, doubled as JSON asks for or not.
        """
        stripped = text.strip()
        if len(stripped) > _MAX_MOVE:
            return Malformed(text[:_MAX_MOVE], f"longer than {_MAX_MOVE} characters")
        try:
            return _move(_loaded(_unfenced(stripped)))
        except ValidationError as error:
            return Malformed(text[:_MAX_MOVE], _reason(error))
        except json.JSONDecodeError as error:
            return Malformed(text[:_MAX_MOVE], f"not JSON: {error}"[:_MAX_REASON])
        except ValueError as error:  # NotAMove, or what the reader of a value says
            return Malformed(text[:_MAX_MOVE], str(error)[:_MAX_REASON])

    def apply(self, state: State, move: Move) -> State:
        """What the move states is a fact from here on."""
        before, args = context_of(state, Facts), move.args
        after = replace(before, seen=before.seen | {move.text})
        match args:
            case Define():
                after = replace(after, defined=after.defined | {args.symbol})
            case Require() | Bound():
                after = replace(after, conditions=after.conditions | _conditions(before, args))
            case Bind() | Compute():
                after = replace(after, values=_with_value(state, args))
            case Derive():
                after = replace(after, named=after.named | names_of_formula(args.equation))
            case Answer():
                after = replace(after, answer=args.value)
        if not isinstance(args, Derive):
            symbol = arguments_of(move, OfSymbol).symbol
            after = replace(after, named=after.named | {symbol})
        return State(state.problem, (*state.derivation, move), after, state.budget)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """A repeated line, a second definition, a line or a name that is not there yet."""
        facts, args = context_of(state, Facts), move.args
        if move.text in facts.seen:
            return "repeats an earlier move"
        match args:
            case Define() if args.symbol in facts.defined:
                return f"defined already: {args.symbol}"
            case Derive() if args.premises and max(args.premises) > len(state.derivation):
                return f"scope: line {max(args.premises)} is not written yet"
            case Bind():
                return out_of_scope(args.value, facts.named, shortest=_LETTERS_OF_A_WORD)
            case Compute() if read_value(args.value, {}) is not None:
                return out_of_scope(args.expression, facts.named, shortest=1)
        return None

    def context_violation(self, state: State, move: Move) -> str | None:
        """False arithmetic, or a contradiction of a value or a condition stated before."""
        facts, args = context_of(state, Facts), move.args
        if not facts.ordinary:
            return None
        match args:
            case Require() | Bound():
                known = dict(facts.values).get(args.symbol)
                return _first_unmet(known, _conditions(facts, args))
            case Derive():
                return _false_equation(facts, args)
            case Bind() | Compute():
                return _contradiction(state, args)
            case Answer():
                return _other_answer(facts, args)
        return None

    def answer(self, state: State) -> str | None:
        """The answer that was given, or None."""
        return context_of(state, Facts).answer


def _unfenced(text: str) -> str:
    if text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) > 2 * len(_FENCE):
        return text[len(_FENCE) : -len(_FENCE)].removeprefix("json").strip()
    return text


def _loaded(text: str) -> object:
    """The JSON value of ``text``; its depth is looked at before a recursive reader does."""
    depth = 0
    for found in _BRACKET_OR_STRING.finditer(text):
        depth += (found[0] in ("{", "[")) - (found[0] in ("}", "]"))
        if depth > _MAX_DEPTH:
            raise NotAMove(f"nested deeper than {_MAX_DEPTH}")
    return json.loads(
        _ESCAPE.sub(_escaped, text),
        object_pairs_hook=_unique,
        parse_int=_integer,
        parse_float=_refused_number,
        parse_constant=_refused_number,
    )


def _escaped(found: re.Match[str]) -> str:
    return found[0] if _VALID_ESCAPE.fullmatch(found[1]) else "\\" + found[0]


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotAMove("a key stands twice")
    if len(found) > _MAX_KEYS:
        raise NotAMove(f"too many keys: {len(found)}, expected at most {_MAX_KEYS}")
    return found


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= MAX_DIGITS else _refused_number(digits)


def _refused_number(number: str) -> int:
    raise NotAMove(f"a number: {number[:MAX_DIGITS]}, expected values as text")


def _move(found: object) -> Move:
    if not isinstance(found, dict) or found.keys() != {"op", "args"}:
        raise NotAMove("expected one object with the keys op and args")
    op = found["op"]
    if not isinstance(op, str) or op not in OPERATORS:
        raise NotAMove(
            f"unknown op: {str(op)[:MAX_DIGITS]!r}, expected one of {', '.join(OPERATORS)}"
        )
    args = OPERATORS[op].model_validate_json(json.dumps(found["args"]))
    line = {"op": op, "args": args.model_dump(mode="json")}
    return Move(op, args, json.dumps(line, ensure_ascii=False))


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    kind, place = first["type"].replace("_", " "), ".".join(map(str, first["loc"]))
    return f"{kind}: {place}: {first['msg']}"[:_MAX_REASON]


def _conditions(facts: Facts, args: Require | Bound) -> frozenset[Condition]:
    """What the move demands; nothing where a bound has no exact value."""
    if isinstance(args, Require):
        relation = _SIGNS.get(args.condition, args.condition)
        return frozenset({Condition(args.symbol, relation, Fraction(0))})
    read = read_value(args.value, dict(facts.values))
    if read is None or len(read.values) > 1:
        return frozenset()
    return frozenset(Condition(args.symbol, args.relation, bound) for bound in read.values)


def _first_unmet(known: Known | None, conditions: Iterable[Condition]) -> str | None:
    """The first condition on a symbol that its value cannot meet."""
    if known is None:
        return None
    for one in sorted(conditions, key=lambda one: (one.relation, one.bound)):
        low, high = known.value - known.slack, known.value + known.slack
        if not _MAY_MEET[one.relation](low, high, one.bound):
            demand = one.relation if one.relation in _WHOLE_KINDS else f"{one.relation} {one.bound}"
            return f"condition: {one.symbol} is {known.value}, expected {demand}"
    return None


def _with_value(state: State, args: Bind | Compute) -> tuple[tuple[str, Known], ...]:
    """The values after the move; an unsure one leaves its symbol without a value."""
    values = dict(context_of(state, Facts).values)
    known = _stated_value(state, args)
    if words_of(args.because) & _UNSURE:
        values.pop(args.symbol, None)
    elif known is not None:
        values[args.symbol] = reconciled(values.get(args.symbol, known), known)
    return tuple(values.items())


def _stated_value(state: State, args: Bind | Compute) -> Known | None:
    """The value that the move gives its symbol, where it has exactly one reading.

    A computed value is exact where it is that of the expression, a bound one unless it has decimals
    that do not stand in the problem: those may be rounded.
    """
    values = dict(context_of(state, Facts).values)
    read = read_value(args.value, values if isinstance(args, Bind) else {})
    if read is None or len(read.values) > 1:
        return None
    (value,) = read.values
    if isinstance(args, Compute):
        expression = read_value(args.expression, values)
        exact = expression is not None and value in expression.values
    else:
        decimals = [found for found in NUMERAL.findall(args.value) if "." in found]
        exact = set(decimals).issubset(NUMERAL.findall(state.problem.text))
    return Known(value, Fraction(0) if exact else slack_of(value, read.decimals))


def _contradiction(state: State, args: Bind | Compute) -> str | None:
    facts = context_of(state, Facts)
    values = dict(facts.values)
    if words_of(args.because) & _UNSURE:
        return None
    if isinstance(args, Compute) and (fault := _false_claim(facts, args)):
        return fault
    if isinstance(args, Bind) and divides_by_zero(args.value, values):
        return f"arithmetic: {args.value} divides by zero"
    known, before = _stated_value(state, args), values.get(args.symbol)
    if known and before and not may_be_same(known, before):
        return f"binding: {args.symbol} is {before.value}, not {known.value}"
    return _first_unmet(known, _conditions_on(facts, args.symbol))


def _conditions_on(facts: Facts, symbol: str) -> list[Condition]:
    return [one for one in facts.conditions if one.symbol == symbol]


def _false_claim(facts: Facts, args: Compute) -> str | None:
    values, words = dict(facts.values), words_of(args.because)
    value = read_value(args.value, {})
    if value is None or words & ELSEWHERE:
        return None
    expression = read_value(args.expression, values)
    if expression is None:
        by_zero = divides_by_zero(args.expression, values)
        return f"arithmetic: {args.expression} divides by zero" if by_zero else None
    if agree(expression, value, whole=bool(words & _WHOLE)):
        return None
    return f"arithmetic: {args.expression} is not {args.value}"


def _false_equation(facts: Facts, args: Derive) -> str | None:
    """Two neighbouring sides with a calculation in them that no reading makes equal."""
    if words_of(args.because) & (_UNSURE | ELSEWHERE):
        return None
    if _OTHER_RELATION.search(args.equation):
        return None
    values = dict(facts.values)
    sides = [(side.strip(), read_value(side, values)) for side in args.equation.split("=")]
    for (left, one), (right, other) in pairwise(sides):
        if one is None or other is None or not (calculates(left) or calculates(right)):
            continue
        if not agree(one, other, whole=False):
            return f"arithmetic: {left} is not {right}"
    return None


def _other_answer(facts: Facts, args: Answer) -> str | None:
    """An answer that is not its symbol's value, be it as a share or as a percentage."""
    read = read_value(args.value, {})
    if read is None:
        return None
    given = [
        Known(value, slack_of(value, read.decimals) if read.decimals else Fraction(0))
        for value in sorted(read.values)
    ]
    before = dict(facts.values).get(args.symbol)
    shares = [scaled(before, factor) for factor in (1, 100, _HUNDREDTH)] if before else given
    if not any(may_be_same(one, share) for one in given for share in shares):
        return f"binding: {args.symbol} is {shares[0].value}, not {args.value}"
    conditions = _conditions_on(facts, args.symbol)
    percents = [scaled(one, _HUNDREDTH) for one in given]
    unmet = [_first_unmet(one, conditions) for one in (*given, *percents)]
    return None if None in unmet else unmet[0]
