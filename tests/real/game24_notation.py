"""Game of 24 as the recorded models wrote it: rational numbers, rounded decimals, lists left.

``Countdown`` has one word a number, whole and from 0 to 200, so it cannot say half of what such a
model proposes: ``8 / 3 = 2.67 (left: 2.67 10)``. Here the same gates work on rational numbers.
Knows: the notation, the rules. Does not know: logs, labels, verdicts. The text is hostile: one
regular expression takes it or not, numbers have at most ``MOST_DIGITS`` digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from operator import add, mul, sub, truediv
from types import MappingProxyType
from typing import NamedTuple

from selverify.domains.countdown import SIGNS
from selverify.errors import ProtocolError, SchemaError
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State

TARGET = Fraction(24)
MAX_TEXT = 200
MOST_DIGITS = 20
TOLERANCE = Fraction(6, 1000)
"""A decimal stands for a value that it differs from by less than this, or this share of it."""
DIGITS = rf"\d{{1,{MOST_DIGITS}}}"
NUMBER = rf"-?{DIGITS}(?:/(?!0+(?!\d)){DIGITS}|\.{DIGITS}(?:\.\.\.)?)?"
MOVE = re.compile(
    rf"({NUMBER}) ([-+*/]) ({NUMBER}) = ({NUMBER}) \(left:((?: ?,? ?{NUMBER})*) ?\)", re.ASCII
)
NUMBERS = re.compile(NUMBER, re.ASCII)
OPERATIONS = MappingProxyType({sign: op for op, sign in SIGNS.items()})
COMBINE: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = MappingProxyType(
    {"add": add, "subtract": sub, "multiply": mul, "divide": truediv}
)
KEPT = 2**15
UNREAD = "unread"
REFUSED_BEFORE, NOT_READ, NOT_THERE = "after a refused move", "not read", "operand not available"
WRONG, LEFT, OFF_TARGET = "arithmetic", "remaining list", "result is not the target"
Numbers = tuple[Fraction, ...]


class Written(Arguments):
    """Numbers as they were written; ``left`` is the claimed table after the move."""

    first: str
    second: str
    result: str
    left: tuple[str, ...]


class Unread(Arguments):
    """A proposal that is none of the notation."""


@dataclass(frozen=True, slots=True)
class Table:
    """Exact numbers on the table, ascending; ``legal``: every move so far passed both gates."""

    numbers: Numbers
    cards: int
    legal: bool


class Game24:
    """Four numbers, three moves, 24; states are told apart by the moves as written.

    ``checks``: whether the gates refuse a last move that does not leave 24, as a free check of the
    end would. A proposal outside the notation is a move that the structural gate refuses, because
    the recorded search, which has no gates, went on with some.
    """

    name = "game24"
    end_of_move = "\n"
    operators: Mapping[str, type[Arguments]] = MappingProxyType(
        {**dict.fromkeys(OPERATIONS.values(), Written), UNREAD: Unread}
    )

    def __init__(self, *, checks: bool) -> None:
        self.checks = checks

    def read(self, text: str, *, problem_id: str) -> Problem:
        """Numbers, space between them."""
        problem = Problem(problem_id, self.name, text, "24")
        self.initial_state(problem, budget=0)
        return problem

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """All cards on the table."""
        words = problem.text[:MAX_TEXT].split()
        if not words or any(NUMBERS.fullmatch(word) is None for word in words):
            raise SchemaError(
                f"{problem.problem_id}: given {problem.text[:MAX_TEXT]!r}, expected numbers"
            )
        numbers = tuple(sorted(Fraction(word) for word in words))
        return State(problem, (), Table(numbers, len(numbers), True), budget)

    def parse(self, text: str) -> Candidate:
        """A move of the notation, or an unread one; nothing, and too much, is malformed."""
        return _parsed(text[: MAX_TEXT + 1])

    def apply(self, state: State, move: Move) -> State:
        """The exact table after a legal move; after another one what it says is left."""
        table = _table(state)
        legal = table.legal and self._violation(state, move) is None
        numbers = table.numbers
        if legal:
            numbers = tuple(sorted(made(table.numbers, move).after))
        elif isinstance(move.args, Written):
            numbers = tuple(sorted(map(value_of, move.args.left)))
        after = replace(table, numbers=numbers, legal=legal)
        return replace(state, derivation=(*state.derivation, move), context=after)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """After a refused move, not of the notation, numbers that are not there."""
        if not _table(state).legal:
            return REFUSED_BEFORE
        if move.op == UNREAD:
            return NOT_READ
        return made(_table(state).numbers, move).structural

    def context_violation(self, state: State, move: Move) -> str | None:
        """The claimed result, the claimed table, with ``checks`` the target."""
        found = made(_table(state).numbers, move)
        if found.context is None and self.checks and len(found.after) == 1:
            return None if found.after[0] == TARGET else OFF_TARGET
        return found.context

    def serialise(self, state: State) -> str:
        """The numbers, then the moves so far."""
        return f"{state.problem.text} {state.trace}".strip()

    def is_final(self, state: State) -> bool:
        """Three moves were made of four cards."""
        return len(state.derivation) >= _table(state).cards - 1

    def answer(self, state: State) -> str | None:
        """The number left, if the whole derivation passes the gates."""
        table = _table(state)
        legal = table.legal and self.is_final(state) and len(table.numbers) == 1
        return str(table.numbers[0]) if legal else None

    def checks_answers(self) -> bool:
        """As told."""
        return self.checks

    def pattern(self, state: State, move: Move) -> str | None:
        """Nothing is retrieved here."""
        return None

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """Nothing is retrieved here."""
        return ()

    def _violation(self, state: State, move: Move) -> str | None:
        return self.structural_violation(state, move) or self.context_violation(state, move)


@lru_cache(maxsize=KEPT)
def _parsed(text: str) -> Candidate:
    said = " ".join(text.split())
    if not said or len(text) > MAX_TEXT:
        return Malformed(text[:MAX_TEXT], "too long" if said else "empty")
    match = MOVE.fullmatch(said)
    if match is None:
        return Move(UNREAD, Unread(), said)
    first, sign, second, result, left = match.groups()
    args = Written(first=first, second=second, result=result, left=tuple(NUMBERS.findall(left)))
    return Move(OPERATIONS[sign], args, said)


class Made(NamedTuple):
    """What a move comes to at a table.

    ``structural`` and ``context``: why a gate refuses it, if one does. ``operands``: the numbers
    meant. ``after``: the exact table, the result first, empty where it cannot be made.
    ``rounded``: the claimed result is a decimal for another value.
    """

    structural: str | None
    context: str | None
    operands: Numbers
    after: Numbers
    rounded: bool


def made(numbers: Numbers, move: Move) -> Made:
    """The facts about a move of the notation; an unread one names nothing that is there."""
    args = move.args
    if not isinstance(args, Written):
        return Made(NOT_READ, NOT_READ, (), (), False)
    return _made(numbers, move.op, (args.first, args.second, args.result), args.left)


@lru_cache(maxsize=KEPT)
def _made(numbers: Numbers, op: str, claim: tuple[str, str, str], left: tuple[str, ...]) -> Made:
    *names, result = claim
    meant = _meant(numbers, names)
    if meant is None:
        return Made(NOT_THERE, NOT_THERE, (), (), False)
    first, second = meant
    if op == "divide" and not second:
        return Made(None, WRONG, meant, (), False)
    value = COMBINE[op](first, second)
    rest = list(numbers)
    rest.remove(first)
    rest.remove(second)
    after = (value, *rest)
    rounded = value_of(result) != value
    if not close(result, value):
        return Made(None, WRONG, meant, after, rounded)
    same = len(left) == len(after) and _meant(after, left) is not None
    return Made(None, None if same else LEFT, meant, after, rounded)


def _meant(numbers: Numbers, texts: Sequence[str]) -> Numbers | None:
    """The numbers that the texts name, each another one; None where one is not there.

    What is there exactly is meant; then a decimal stands for the number nearest to it.
    """
    free = list(numbers)
    found: dict[int, Fraction] = {}
    for place in sorted(range(len(texts)), key=lambda one: value_of(texts[one]) not in numbers):
        value = value_of(texts[place])
        meant = [one for one in free if one == value]
        meant = meant or [one for one in free if close(texts[place], one)]
        if not meant:
            return None
        found[place] = min(meant, key=lambda one: abs(one - value))
        free.remove(found[place])
    return tuple(found[place] for place in range(len(texts)))


def close(text: str, value: Fraction) -> bool:
    """Whether a written number is this value, or a decimal that stands for it.

    No decimal stands for a whole number but its own: 19.98 is not 20.
    """
    written = value_of(text)
    if written == value:
        return True
    rounded = "." in text and value.denominator != 1
    return rounded and abs(written - value) <= TOLERANCE * max(Fraction(1), abs(value))


@lru_cache(maxsize=KEPT)
def value_of(text: str) -> Fraction:
    """The value of a written number of the notation."""
    return Fraction(text.removesuffix("..."))


def in_countdown(move: Move) -> str | None:
    """A move in the form of ``Countdown``, whose vocabulary may lack its numbers."""
    args = move.args
    if not isinstance(args, Written):
        return None
    left = " ".join(args.left)
    return f"{args.first} {SIGNS[move.op]} {args.second} = {args.result} left {left} ;"


def countdown_text(numbers: Sequence[Fraction]) -> str:
    """A table as a problem of ``Countdown``, whose vocabulary may lack its numbers."""
    return f"use {' '.join(map(str, numbers))} to make {TARGET} ."


def _table(state: State) -> Table:
    if not isinstance(state.context, Table):
        raise ProtocolError(
            f"{state.problem.problem_id}: given a context {type(state.context).__name__}, "
            "expected a Table"
        )
    return state.context
