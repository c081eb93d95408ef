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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError

from selverify.domains.arithmetic import (
    FUNCTIONS,
    MAX_DIGITS,
    NUMBER,
    OPEN,
    Expression,
    NotNumeric,
    read_expression,
)
from selverify.domains.claims import (
    ELSEWHERE,
    LEFT_OVER,
    NUMERIC,
    OPERATIONS,
    REPLACED,
    ROUNDED,
    ROUNDING,
    SUPPOSING,
)
from selverify.domains.math_steps import UNREADABLE, MathSteps
from selverify.errors import ProtocolError
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State

END_OF_MOVE = "\n"
MAX_MOVE = 4_000
MAX_PROSE = 300
MAX_FORMULA = 300
MAX_KEYS = 8
MAX_DEPTH = 3
MAX_PREMISES = 20
MAX_LINE = 999
MAX_REASON = 200
MAX_DIVISORS = 8
REMEMBERED = 4_096
"""Expressions whose tokens are kept: a gate and ``apply`` look at one several times."""
HUNDREDTH = Fraction(1, 100)
FENCE = "```"

BRACKET_OR_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\]]', re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[A-Za-z]{2,}|.)", re.DOTALL)
VALID_ESCAPE = re.compile(r'u[0-9a-fA-F]{4}|["\\/nrt]')
TOKEN = re.compile(
    rf"(?P<number>{NUMBER.pattern})|(?P<name>[A-Za-z][A-Za-z0-9_]*)|(?P<command>\\[A-Za-z]+)"
    r"|(?P<space>\s+)|(?P<sign>.)",
    re.DOTALL | re.ASCII,
)
LETTERS = re.compile(r"[A-Za-z]+", re.ASCII)
INDEXED = re.compile(r"([A-Za-z])_?\{?([A-Za-z0-9]+)\}?", re.ASCII)
FORMULA_BEGINS_OR_ENDS = re.compile(r"\$\$?|\\[\[\]()]")
COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
HYPHENATED = re.compile(r"[A-Za-z]{2}-[A-Za-z]|[A-Za-z]-[A-Za-z]{2}", re.ASCII)
UNORDINARY = re.compile(r"\d_\{?\d|[A-Za-z]\s?\*\s?[A-Za-z]", re.ASCII)
"""In a problem: a number in another base, or an operation that it may define itself."""
AMBIGUOUS = re.compile(r"&|\\boxed|\(\s*[\d,]*\d,\d{3}\s*\)", re.ASCII)
"""In an expression: a table, a box beside a number, a pair that reads like one number."""
OTHER_RELATION = re.compile(r"[!<>:=~]=|=[>=~]|\\not?\b|\\neq?\b")
MAX_GLUED = 6
"""Letters of a formula, or capitals, that may be several names written together: ABC, xy."""
LETTERS_OF_A_WORD = 3
BEFORE_A_NAME = frozenset({*"+-*/^({", ""})
AFTER_A_NAME = frozenset({*"+-*/^!%)}", ""})
CONSTANTS = frozenset({"pi", "e", "i", "infinity", "inf"})
OTHER_NUMBERS = ELSEWHERE - {"digit", "digits", "parity"}
"""Words of a problem whose arithmetic may not be the ordinary one."""
UNSURE = SUPPOSING | ROUNDING
"""Words of a reason under which a value is supposed, denied or rounded."""
WHOLE = LEFT_OVER | {"ceiling", "floor", "up", "down", "least", "enough", "need", "needs", "needed"}
"""Words of a reason under which a whole number may stand for what lies next to it."""


def _one_line(value: object) -> object:
    if not isinstance(value, str):
        return value
    line = " ".join(value.split())
    if UNREADABLE.search(line):
        raise ValueError("control characters")
    return line


# A pattern carries its own length: some servers drop a maxLength that stands beside one.
Symbol = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,23}$")]
Prose = Annotated[str, BeforeValidator(_one_line), Field(min_length=1, max_length=MAX_PROSE)]
Formula = Annotated[str, BeforeValidator(_one_line), Field(min_length=1, max_length=MAX_FORMULA)]
Line = Annotated[int, Field(ge=1, le=MAX_LINE)]


class Define(Arguments):
    """A symbol and what it stands for."""

    symbol: Symbol
    meaning: Prose


class Require(Arguments):
    """A condition that the problem puts on a symbol, for the whole solution."""

    symbol: Symbol
    condition: Literal["integer", "even", "odd", "positive", "negative", "nonnegative", "nonzero"]


class Bound(Arguments):
    """A bound that the problem puts on a symbol, for the whole solution."""

    symbol: Symbol
    relation: Literal["<", "<=", ">", ">=", "!="]
    value: Formula


class Bind(Arguments):
    """The symbol has this value: a number, or an expression over numbers and symbols."""

    symbol: Symbol
    because: Prose
    value: Formula


class Compute(Arguments):
    """symbol = expression = value."""

    symbol: Symbol
    because: Prose
    expression: Formula
    value: Formula


class Derive(Arguments):
    """An equation or another relation that follows from the lines cited, counted from 1."""

    premises: Annotated[tuple[Line, ...], Field(max_length=MAX_PREMISES)]
    because: Prose
    equation: Formula


class Answer(Arguments):
    """The final answer: the value of the symbol that was asked for."""

    symbol: Symbol
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


WHOLE_KINDS = frozenset({"integer", "even", "odd"})
MAY_MEET: Mapping[str, Callable[[Fraction, Fraction, Fraction], bool]] = MappingProxyType(
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
SIGNS = MappingProxyType({"positive": ">", "negative": "<", "nonnegative": ">=", "nonzero": "!="})


@dataclass(frozen=True, slots=True)
class Known:
    """A value as it was written: the true one lies at most ``slack`` away."""

    value: Fraction
    slack: Fraction


Values = Mapping[str, Known]


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


class MathStructured:
    """Mathematics by structured moves; see the module's text."""

    name = "math_structured"
    end_of_move = END_OF_MOVE
    operators = OPERATORS

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The problem, read as for ordinary steps.

        Raises:
            SchemaError: the text is empty or longer than a problem can be.
        """
        return replace(MathSteps().read(text, problem_id=problem_id), domain=self.name)

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """w_0: the names that the problem's text uses are in scope."""
        named, ordinary = _names_in(problem.text), _is_ordinary(problem.text)
        facts = Facts(named, ordinary, frozenset(), (), frozenset(), frozenset(), None)
        return State(problem, (), facts, budget)

    def parse(self, text: str) -> Candidate:
        """The move that exactly one JSON object states, alone or in a code fence.

        A backslash before two letters begins a LaTeX command, doubled as JSON asks for or not.
        """
        stripped = text.strip()
        if len(stripped) > MAX_MOVE:
            return Malformed(text[:MAX_MOVE], f"longer than {MAX_MOVE} characters")
        try:
            return _move(_loaded(_unfenced(stripped)))
        except ValidationError as error:
            return Malformed(text[:MAX_MOVE], _reason(error))
        except ValueError as error:  # NotAMove, or the JSON reader's own
            return Malformed(text[:MAX_MOVE], str(error)[:MAX_REASON])

    def apply(self, state: State, move: Move) -> State:
        """What the move states is a fact from here on."""
        before, args = _facts(state), move.args
        after = replace(before, seen=before.seen | {move.text})
        match args:
            case Define():
                after = replace(after, defined=after.defined | {args.symbol})
            case Require() | Bound():
                after = replace(after, conditions=after.conditions | _conditions(before, args))
            case Bind() | Compute():
                after = replace(after, values=_with_value(state, args))
            case Derive():
                after = replace(after, named=after.named | _names_of_formula(args.equation))
            case Answer():
                after = replace(after, answer=args.value)
        if not isinstance(args, Derive):
            after = replace(after, named=after.named | {_symbol(args)})
        return State(state.problem, (*state.derivation, move), after, state.budget)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """A repeated line, a second definition, a line or a name that is not there yet."""
        facts, args = _facts(state), move.args
        if move.text in facts.seen:
            return "repeats an earlier move"
        match args:
            case Define() if args.symbol in facts.defined:
                return f"{args.symbol} is defined already"
            case Derive() if args.premises and max(args.premises) > len(state.derivation):
                return f"scope: line {max(args.premises)} is not written yet"
            case Bind():
                return _out_of_scope(args.value, facts.named, shortest=LETTERS_OF_A_WORD)
            case Compute() if _read(args.value, {}) is not None:
                return _out_of_scope(args.expression, facts.named, shortest=1)
        return None

    def context_violation(self, state: State, move: Move) -> str | None:
        """False arithmetic, or a contradiction of a value or a condition stated before."""
        facts, args = _facts(state), move.args
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

    def serialise(self, state: State) -> str:
        """The problem and one line a move."""
        return END_OF_MOVE.join((state.problem.text, *(move.text for move in state.derivation)))

    def is_final(self, state: State) -> bool:
        """True once an answer was given."""
        return _facts(state).answer is not None

    def answer(self, state: State) -> str | None:
        """The answer that was given, or None."""
        return _facts(state).answer

    def checks_answers(self) -> bool:
        """No: whether an answer is right is what the verifier is for."""
        return False

    def pattern(self, state: State, move: Move) -> str | None:
        """None: a line depends on the text of its problem."""
        return None

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """Nothing; see ``pattern``."""
        return ()


def _unfenced(text: str) -> str:
    if text.startswith(FENCE) and text.endswith(FENCE) and len(text) > 2 * len(FENCE):
        return text[len(FENCE) : -len(FENCE)].removeprefix("json").strip()
    return text


def _loaded(text: str) -> object:
    """The JSON value of ``text``; its depth is looked at before a recursive reader does."""
    depth = 0
    for found in BRACKET_OR_STRING.finditer(text):
        depth += (found[0] in ("{", "[")) - (found[0] in ("}", "]"))
        if depth > MAX_DEPTH:
            raise NotAMove(f"nested deeper than {MAX_DEPTH}")
    return json.loads(
        ESCAPE.sub(_escaped, text),
        object_pairs_hook=_unique,
        parse_int=_integer,
        parse_float=_refused_number,
        parse_constant=_refused_number,
    )


def _escaped(found: re.Match[str]) -> str:
    return found[0] if VALID_ESCAPE.fullmatch(found[1]) else "\\" + found[0]


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotAMove("a key stands twice")
    if len(found) > MAX_KEYS:
        raise NotAMove(f"{len(found)} keys, expected at most {MAX_KEYS}")
    return found


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= MAX_DIGITS else _refused_number(digits)


def _refused_number(number: str) -> int:
    raise NotAMove(f"the number {number[:MAX_DIGITS]}, expected values as text")


def _move(found: object) -> Move:
    if not isinstance(found, dict) or found.keys() != {"op", "args"}:
        raise NotAMove("expected one object with the keys op and args")
    op = found["op"]
    if not isinstance(op, str) or op not in OPERATORS:
        raise NotAMove(f"op {str(op)[:MAX_DIGITS]!r}, expected one of {', '.join(OPERATORS)}")
    args = OPERATORS[op].model_validate_json(json.dumps(found["args"]))
    line = {"op": op, "args": args.model_dump(mode="json")}
    return Move(op, args, json.dumps(line, ensure_ascii=False))


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:MAX_REASON]


def _facts(state: State) -> Facts:
    if not isinstance(state.context, Facts):
        raise ProtocolError(
            f"{state.problem.problem_id}: given a context {type(state.context).__name__}, "
            f"expected the Facts of structured mathematics"
        )
    return state.context


def _symbol(args: Arguments) -> str:
    if not isinstance(args, Define | Require | Bound | Bind | Compute | Answer):
        raise ProtocolError(
            f"given the arguments {type(args).__name__}, expected those of one of "
            f"{', '.join(OPERATORS)}"
        )
    return args.symbol


def _names_in(text: str) -> frozenset[str]:
    """Names that a text uses: its words, and what formulas and capitals may be made of."""
    words = frozenset(LETTERS.findall(text))
    capitals = (_parts(word) for word in words if word.isupper())
    formulas = FORMULA_BEGINS_OR_ENDS.split(text.replace("\\$", " "))[1::2]
    return words.union(*capitals, *map(_names_of_formula, formulas))


def _names_of_formula(formula: str) -> frozenset[str]:
    plain = COMMAND.sub(" ", formula)
    indexed = INDEXED.findall(plain)
    spelled = {f"{letter}{sign}{index}" for letter, index in indexed for sign in ("", "_")}
    runs = LETTERS.findall(plain)
    return frozenset(spelled).union(COMMAND.findall(formula), *map(_parts, runs))


def _parts(run: str) -> frozenset[str]:
    """Every piece of a short run of letters, the run itself alone of a long one."""
    if len(run) > MAX_GLUED:
        return frozenset({run})
    ends = range(len(run) + 1)
    return frozenset(run[start:stop] for stop in ends for start in range(stop))


def _is_ordinary(text: str) -> bool:
    return not _words(text) & OTHER_NUMBERS and not UNORDINARY.search(text)


def _words(text: str) -> frozenset[str]:
    return frozenset(LETTERS.findall(text.lower()))


@lru_cache(maxsize=REMEMBERED)
def _tokens(text: str) -> tuple[str, ...] | None:
    """The tokens of arithmetic over numbers and names; None for anything else.

    A name counts where operations or brackets stand around it: neither ``5 m`` nor ``f(2)``, which
    may be a unit and a function.
    """
    if AMBIGUOUS.search(text):
        return None
    text = text.replace("**", "^")
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    found = [match[0] for match in TOKEN.finditer(text) if not match["space"]]
    tokens = [
        "\\sqrt" if token == "sqrt" and after in OPEN else token
        for token, after in zip(found, (*found[1:], ""), strict=False)
    ]
    around = zip(("", *tokens), tokens, (*tokens[1:], ""), strict=False)
    if all(_is_arithmetic(before, token, after) for before, token, after in around):
        return tuple(tokens)
    return None


def _is_arithmetic(before: str, token: str, after: str) -> bool:
    if _is_name(token):
        return before in BEFORE_A_NAME and after in AFTER_A_NAME
    return token in NUMERIC or token in FUNCTIONS or NUMBER.fullmatch(token) is not None


def _is_name(token: str) -> bool:
    return token.isascii() and token[0].isalpha()


def _out_of_scope(text: str, named: frozenset[str], *, shortest: int) -> str | None:
    """A name of at least ``shortest`` letters that nothing introduced, in a calculation.

    A word alone may be a value of its own, and a letter or two the variable of a polynomial.
    """
    tokens = _tokens(text)
    if tokens is None or HYPHENATED.search(text) or not OPERATIONS.intersection(tokens):
        return None
    for token in tokens:
        in_scope = token in named | CONSTANTS or named.issuperset(token)
        letters = LETTERS.match(token)
        if letters is not None and len(letters[0]) >= shortest and not in_scope:
            return f"scope: {token} is not introduced"
    return None


def _read(text: str, values: Values) -> Expression | None:
    """What ``text`` is worth where every name in it has an exact value, else None."""
    tokens = _tokens(text)
    return None if tokens is None else _read_tokens(tokens, values)


def _read_tokens(tokens: Sequence[str], values: Values) -> Expression | None:
    spelled: list[str] = []
    for token in tokens:
        known = values.get(token)
        if known is not None and not known.slack:
            spelled += _spelled(known.value)
        else:
            spelled.append(token)
    try:
        return read_expression(spelled)
    except NotNumeric:
        return None


def _spelled(value: Fraction) -> Iterable[str]:
    sign = ("-",) if value < 0 else ()
    below = ("/", str(value.denominator)) if value.denominator != 1 else ()
    return ("(", *sign, str(abs(value.numerator)), *below, ")")


def _divides_by_zero(text: str, values: Values) -> bool:
    """Whether a divisor of ``text`` is 0; the first few are looked at."""
    tokens = _tokens(text) or ()
    slashes = [place for place, token in enumerate(tokens) if token == "/"]
    for place in slashes[:MAX_DIVISORS]:
        divisor = _divisor(tokens[place + 1 :])
        after = tokens[place + 1 + len(divisor) :][:1]
        read = _read_tokens(divisor, values)
        if read is not None and read.values == {0} and after not in (("^",), ("!",)):
            return True
    return False


def _divisor(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """The number, the name or the bracket that ``tokens`` begin with."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token in OPEN) - (token in OPEN.values())
        if depth <= 0:
            return tokens[: place + 1]
    return tokens


def _conditions(facts: Facts, args: Require | Bound) -> frozenset[Condition]:
    """What the move demands; nothing where a bound has no exact value."""
    if isinstance(args, Require):
        relation = SIGNS.get(args.condition, args.condition)
        return frozenset({Condition(args.symbol, relation, Fraction(0))})
    read = _read(args.value, dict(facts.values))
    if read is None or len(read.values) > 1:
        return frozenset()
    return frozenset(Condition(args.symbol, args.relation, bound) for bound in read.values)


def _first_unmet(known: Known | None, conditions: Iterable[Condition]) -> str | None:
    """The first condition on a symbol that its value cannot meet."""
    if known is None:
        return None
    for one in sorted(conditions, key=lambda one: (one.relation, one.bound)):
        low, high = known.value - known.slack, known.value + known.slack
        if not MAY_MEET[one.relation](low, high, one.bound):
            demand = one.relation if one.relation in WHOLE_KINDS else f"{one.relation} {one.bound}"
            return f"condition: {one.symbol} is {known.value}, expected {demand}"
    return None


def _with_value(state: State, args: Bind | Compute) -> tuple[tuple[str, Known], ...]:
    """The values after the move; an unsure one leaves its symbol without a value."""
    values = dict(_facts(state).values)
    known = _stated_value(state, args)
    if _words(args.because) & UNSURE:
        values.pop(args.symbol, None)
    elif known is not None:
        values[args.symbol] = _reconciled(values.get(args.symbol, known), known)
    return tuple(values.items())


def _reconciled(before: Known, after: Known) -> Known:
    """The more exact of two equal values; of two that rounding explains, what lies between."""
    apart = abs(before.value - after.value)
    if apart:
        return Known(after.value, apart + before.slack + after.slack)
    return min(before, after, key=lambda one: one.slack)


def _stated_value(state: State, args: Bind | Compute) -> Known | None:
    """The value that the move gives its symbol, where it has exactly one reading.

    A computed value is exact where it is that of the expression, a bound one unless it has decimals
    that do not stand in the problem: those may be rounded.
    """
    values = dict(_facts(state).values)
    read = _read(args.value, values if isinstance(args, Bind) else {})
    if read is None or len(read.values) > 1:
        return None
    (value,) = read.values
    if isinstance(args, Compute):
        expression = _read(args.expression, values)
        exact = expression is not None and value in expression.values
    else:
        decimals = [found for found in NUMBER.findall(args.value) if "." in found]
        exact = all(found in state.problem.text for found in decimals)
    return Known(value, Fraction(0) if exact else _slack(value, read.decimals))


def _slack(value: Fraction, places: int) -> Fraction:
    """How far a rounded value may lie from the true one."""
    return max(Fraction(1, 10**places), ROUNDED * abs(value))


def _contradiction(state: State, args: Bind | Compute) -> str | None:
    facts = _facts(state)
    values = dict(facts.values)
    if _words(args.because) & UNSURE:
        return None
    if isinstance(args, Compute) and (fault := _false_claim(facts, args)):
        return fault
    if isinstance(args, Bind) and _divides_by_zero(args.value, values):
        return f"arithmetic: {args.value} divides by zero"
    known, before = _stated_value(state, args), values.get(args.symbol)
    if known and before and not _may_be_same(known, before):
        return f"binding: {args.symbol} is {before.value}, not {known.value}"
    return _first_unmet(known, _conditions_on(facts, args.symbol))


def _conditions_on(facts: Facts, symbol: str) -> list[Condition]:
    return [one for one in facts.conditions if one.symbol == symbol]


def _may_be_same(one: Known, other: Known) -> bool:
    """Within what rounding explains, also to a whole number."""
    apart = abs(one.value - other.value)
    whole = (one.value.denominator == 1) != (other.value.denominator == 1)
    return apart <= one.slack + other.slack or (whole and apart < 1)


def _false_claim(facts: Facts, args: Compute) -> str | None:
    values, words = dict(facts.values), _words(args.because)
    value = _read(args.value, {})
    if value is None or words & ELSEWHERE:
        return None
    expression = _read(args.expression, values)
    if expression is None:
        by_zero = _divides_by_zero(args.expression, values)
        return f"arithmetic: {args.expression} divides by zero" if by_zero else None
    if _agree(expression, value, whole=bool(words & WHOLE)):
        return None
    return f"arithmetic: {args.expression} is not {args.value}"


def _agree(left: Expression, right: Expression, *, whole: bool) -> bool:
    """Under some reading; decimals may be rounded, and with ``whole`` whole numbers too."""
    if left.values & right.values:
        return True
    places = max(left.decimals, right.decimals)
    for one in left.values:
        for other in right.values:
            apart = abs(one - other)
            if places and apart <= _slack(max(one, other, key=abs), places):
                return True
            if whole and other.denominator == 1 and apart < 1:
                return True
    return False


def _false_equation(facts: Facts, args: Derive) -> str | None:
    """Two neighbouring sides with a calculation in them that no reading makes equal."""
    if _words(args.because) & (UNSURE | ELSEWHERE):
        return None
    if OTHER_RELATION.search(args.equation):
        return None
    values = dict(facts.values)
    sides = [(side.strip(), _read(side, values)) for side in args.equation.split("=")]
    for (left, one), (right, other) in pairwise(sides):
        if one is None or other is None or not (_calculates(left) or _calculates(right)):
            continue
        if not _agree(one, other, whole=False):
            return f"arithmetic: {left} is not {right}"
    return None


def _calculates(text: str) -> bool:
    """Whether it has an operation between two terms: ``x = -3`` may be another root."""
    tokens = _tokens(text) or ()
    between = (
        token in OPERATIONS and before not in BEFORE_A_NAME for before, token in pairwise(tokens)
    )
    return any(between)


def _other_answer(facts: Facts, args: Answer) -> str | None:
    """An answer that is not its symbol's value, be it as a share or as a percentage."""
    read = _read(args.value, {})
    if read is None:
        return None
    given = [
        Known(value, _slack(value, read.decimals) if read.decimals else Fraction(0))
        for value in sorted(read.values)
    ]
    before = dict(facts.values).get(args.symbol)
    shares = [_times(before, factor) for factor in (1, 100, HUNDREDTH)] if before else given
    if not any(_may_be_same(one, share) for one in given for share in shares):
        return f"binding: {args.symbol} is {shares[0].value}, not {args.value}"
    conditions = _conditions_on(facts, args.symbol)
    percents = [_times(one, HUNDREDTH) for one in given]
    unmet = [_first_unmet(one, conditions) for one in (*given, *percents)]
    return None if None in unmet else unmet[0]


def _times(known: Known, factor: int | Fraction) -> Known:
    return Known(known.value * factor, known.slack * factor)
