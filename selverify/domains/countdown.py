"""Countdown: combine the given numbers with + - * / until one is left and equals the target.

Knows: the rules, exact solvability, the text of problems and moves. Does not know: models, search,
verdicts. Game of 24 is the preset with four cards of 1 to 13 and all of them used::

    use 4 7 8 8 to make 24 .            problem
    8 / 8 = 1 left 1 4 7 ;              divide (add: +, subtract: -, multiply: *)
    answer = 24 ;                       answer

A number is one word, so every result is a whole number from 0 to 200: divisions are exact and
differences are not negative. The classic rules allow fractions, as in 8 / (3 - 8 / 3); of the
1,820 hands of four cards they solve 1,362 and these rules 1,346.

A finished derivation can be checked for free. ``Countdown.answer`` therefore is None unless every
move of the derivation passed both gates: otherwise "answer = 24 ;" after any nonsense would count.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from types import MappingProxyType
from typing import Annotated, NamedTuple

from pydantic import Field

from selverify.domains.base import (
    MAX_MOVE_TEXT,
    GeneratedDomain,
    NumberAnswer,
    arguments_of,
    context_of,
)
from selverify.errors import ParamsError, SchemaError
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State, Truth

TARGET = 24
HIGHEST_CARD = 13
HIGHEST_NUMBER = 200
FEWEST_CARDS, MOST_CARDS = 2, 6
DRILL_CARDS = (3, 5)
"""So many cards in a drill, or so many: no hand of game of 24 stands in one."""
MAX_PATTERN_NUMBERS = 3
SOLVABLE_CACHE = 2**18
SIGNS = MappingProxyType({"add": "+", "subtract": "-", "multiply": "*", "divide": "/"})
_OPERATIONS = MappingProxyType({sign: op for op, sign in SIGNS.items()})
COMMUTATIVE = frozenset({"add", "multiply"})
_NUMBERS = MappingProxyType({str(value): value for value in range(HIGHEST_NUMBER + 1)})
WORDS = ("use", "to", "make", ".", "left", "reach", "answer", "=", "+", "-", "*", "/", ";")

Number = Annotated[int, Field(ge=0, le=HIGHEST_NUMBER)]
Numbers = tuple[int, ...]


class Combine(Arguments):
    """Two numbers of the table become ``result``; ``left`` is the table after it, ascending.

    By ``combine`` first + second, first - second (not negative), first * second or first / second
    (exact).
    """

    first: Number
    second: Number
    result: Number
    left: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The tracked constraints l. ``legal``: every move so far passed both gates."""

    numbers: Numbers
    target: int
    answer: int | None
    legal: bool


def combine(op: str, first: int, second: int) -> int | None:
    """The result of ``op``, or None where the rules do not allow it (see the module's text)."""
    if op == "divide":
        return first // second if second and first % second == 0 else None
    if op == "subtract":
        return first - second if first >= second else None
    result = first + second if op == "add" else first * second
    return result if result <= HIGHEST_NUMBER else None


class Combination(NamedTuple):
    """A legal combination as plain numbers: the arguments of a move, unvalidated and fast."""

    op: str
    first: int
    second: int
    result: int
    left: Numbers


def combinations_of(numbers: Numbers) -> tuple[Combination, ...]:
    """Every legal combination of two of the ascending ``numbers``, once each, in a fixed order."""
    found: dict[Combination, None] = {}
    for low, high in combinations(numbers, 2):
        for op in SIGNS:
            orders = ((low, high),) if op in COMMUTATIVE else ((low, high), (high, low))
            for first, second in orders:
                result = combine(op, first, second)
                if result is not None:
                    left = _after(numbers, (first, second), result)
                    found[Combination(op, first, second, result, left)] = None
    return tuple(found)


@lru_cache(maxsize=SOLVABLE_CACHE)
def solvable(numbers: Numbers, target: int) -> bool:
    """Whether ascending ``numbers`` can all be combined into ``target``; exact."""
    if len(numbers) == 1:
        return numbers[0] == target
    tables = {chosen.left for chosen in combinations_of(numbers)}
    return any(solvable(left, target) for left in sorted(tables))


class Countdown(GeneratedDomain):
    """The second domain; see the module's text."""

    name = "countdown"
    end_of_move = ";"
    vocabulary = WORDS + tuple(_NUMBERS)
    operators: Mapping[str, type[Arguments]] = MappingProxyType(
        {**dict.fromkeys(SIGNS, Combine), "answer": NumberAnswer}
    )

    def generate(
        self,
        rng: random.Random,
        *,
        problem_id: str,
        minimum: int,
        maximum: int,
        hard: float = 0.0,
    ) -> tuple[Problem, Truth]:
        """A solvable hand of ``minimum`` to ``maximum`` cards, drawn with repeats.

        Raises:
            ParamsError: the sizes do not satisfy 2 <= minimum <= maximum <= 6.
        """
        if not FEWEST_CARDS <= minimum <= maximum <= MOST_CARDS:
            raise ParamsError(
                f"benchmark.countdown: given minimum {minimum} and maximum {maximum}, expected "
                f"{FEWEST_CARDS} <= minimum <= maximum <= {MOST_CARDS} cards"
            )
        size = rng.randint(minimum, maximum)
        cards = _deal(rng, size)
        while not solvable(tuple(sorted(cards)), TARGET):
            cards = _deal(rng, size)
        text = f"use {_join(cards)} to make {TARGET} ."
        facts = json.dumps({"cards": sorted(cards), "target": TARGET})
        problem = Problem(problem_id, self.name, text, f"reach {TARGET}")
        return problem, Truth(problem_id, str(TARGET), facts)

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The goal is the number that the text names last.

        Raises:
            SchemaError: the text is none of this domain, or has more cards than can be searched.
        """
        problem = Problem(problem_id, self.name, text, "")
        table = context_of(self.initial_state(problem, budget=0), Table)
        if len(table.numbers) > MOST_CARDS:
            raise SchemaError(
                f"{problem_id}: given {len(table.numbers)} cards, expected at most {MOST_CARDS}"
            )
        return replace(problem, goal=f"reach {table.target}")

    def solution(
        self, problem: Problem, truth: Truth, rng: random.Random, *, misread: float = 0.0
    ) -> tuple[Move, ...]:
        """At each table one of the moves that keep the target within reach, uniformly drawn.

        Raises:
            ParamsError: the problem's hand has no solution under these rules.
        """
        target = int(truth.answer)
        numbers = context_of(self.initial_state(problem, budget=0), Table).numbers
        moves: list[Move] = []
        while len(numbers) > 1:
            alive = [chosen for chosen in combinations_of(numbers) if solvable(chosen.left, target)]
            if not alive:
                raise ParamsError(f"{problem.problem_id}: no solution of {problem.text!r}")
            chosen = rng.choice(alive)
            moves.append(_move(chosen))
            numbers = chosen.left
        return (*moves, _answer(target))

    def drill(self, rng: random.Random, *, recall: bool) -> tuple[str, str] | None:
        """Random play, told as if its result had been the target; both kinds are this one.

        It teaches the rules from more hands than have a solution. Never a problem of a benchmark:
        the target is not 24.
        """
        del recall
        while True:
            numbers = cards = _deal(rng, rng.choice(DRILL_CARDS))
            moves: list[Move] = []
            while len(numbers) > 1:
                chosen = rng.choice(combinations_of(tuple(sorted(numbers))))
                moves.append(_move(chosen))
                numbers = list(chosen.left)
            if numbers[0] != TARGET:
                told = f"use {_join(cards)} to make {numbers[0]} ."
                return told, " ".join(move.text for move in (*moves, _answer(numbers[0])))

    def fingerprint(self, problem: Problem) -> str:
        """The target and the hand without its order."""
        table = context_of(self.initial_state(problem, budget=0), Table)
        return _key(table)

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """All cards on the table.

        Raises:
            SchemaError: the problem's text is none of this domain.
        """
        match problem.text.split():
            case ["use", first, *rest, "to", "make", target, "."] if {
                first,
                *rest,
                target,
            } <= _NUMBERS.keys():
                numbers = tuple(sorted(_NUMBERS[word] for word in (first, *rest)))
                return State(problem, (), Table(numbers, _NUMBERS[target], None, True), budget)
        raise SchemaError(
            f"{problem.problem_id}: given the text {problem.text[:MAX_MOVE_TEXT]!r}, "
            f"expected one like 'use 4 7 8 8 to make 24 .'"
        )

    def parse(self, text: str) -> Candidate:
        """Whitelist parse of one move; operands of + and * and the table are put in order."""
        if len(text) > MAX_MOVE_TEXT:
            return Malformed(text[:MAX_MOVE_TEXT], "too long")
        match text.split():
            case ["answer", "=", value, ";"] if value in _NUMBERS:
                return _answer(_NUMBERS[value])
            case [first, sign, second, "=", result, "left", *left, ";"] if (
                sign in _OPERATIONS and {first, second, result, *left} <= _NUMBERS.keys()
            ):
                op = _OPERATIONS[sign]
                table = tuple(sorted(_NUMBERS[word] for word in left))
                return _move(
                    Combination(op, _NUMBERS[first], _NUMBERS[second], _NUMBERS[result], table)
                )
        return Malformed(text, "not an operator with its arguments")

    def apply(self, state: State, move: Move) -> State:
        """Take the operands that are there, put the claimed result; total on parsed moves."""
        table = context_of(state, Table)
        legal = table.legal and self._violation(state, move) is None
        if isinstance(move.args, NumberAnswer):
            after = replace(table, answer=move.args.value, legal=legal)
        else:
            numbers = _table_after(table, arguments_of(move, Combine))
            after = replace(table, numbers=numbers, legal=legal)
        return replace(state, derivation=(*state.derivation, move), context=after)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """Numbers that are not there, an operator that does not apply, an answer out of turn."""
        table, args = context_of(state, Table), move.args
        if table.answer is not None:
            return "after the answer"
        if isinstance(args, NumberAnswer):
            return None if len(table.numbers) == 1 else "answer before one number is left"
        args = arguments_of(move, Combine)
        if len(_table_after(table, args)) != len(table.numbers) - 1:
            return "operand not available"
        if combine(move.op, args.first, args.second) is None:
            return _inapplicable(move.op, args.second)
        return None

    def context_violation(self, state: State, move: Move) -> str | None:
        """The claimed arithmetic, the remaining table, the answer against number and target."""
        table, args = context_of(state, Table), move.args
        if isinstance(args, NumberAnswer):
            if table.numbers != (args.value,):
                return "answer is not the number left"
            return None if args.value == table.target else "answer is not the target"
        args = arguments_of(move, Combine)
        if combine(move.op, args.first, args.second) != args.result:
            return "arithmetic"
        return None if args.left == _table_after(table, args) else "remaining list"

    def is_final(self, state: State) -> bool:
        """True once an answer was given, legal or not."""
        return context_of(state, Table).answer is not None

    def answer(self, state: State) -> str | None:
        """The answer, if the whole derivation passes the gates: the domain's free check."""
        table = context_of(state, Table)
        return str(table.answer) if table.legal and table.answer is not None else None

    def checks_answers(self) -> bool:
        """Yes: the gates refuse every answer that is not the target."""
        return True

    def alive(self, state: State, truth: Truth) -> bool:
        """No rule was broken so far and the numbers left still reach the target."""
        table = context_of(state, Table)
        return table.legal and solvable(table.numbers, int(truth.answer))

    def right(self, state: State, move: Move, truth: Truth) -> bool:
        """One of the moves that the rules allow, after which the target is still in reach."""
        table = context_of(state, Table)
        if isinstance(move.args, NumberAnswer):
            return table.numbers == (move.args.value,) and str(move.args.value) == truth.answer
        allowed = {_move(chosen).text for chosen in combinations_of(table.numbers)}
        return move.text in allowed and self.alive(self.apply(state, move), truth)

    def pattern(self, state: State, move: Move) -> str | None:
        """An endgame: target, at most three numbers left, and the move."""
        table = context_of(state, Table)
        if len(table.numbers) > MAX_PATTERN_NUMBERS:
            return None
        return f"{_key(table)} | {move.text}"

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """The endgame's move where the same numbers are left for the same target."""
        table = context_of(state, Table)
        key, _, text = pattern.rpartition(" | ")
        if key != _key(table) or table.answer is not None:
            return ()
        move = self.parse(text)
        return (move,) if isinstance(move, Move) else ()

    def _violation(self, state: State, move: Move) -> str | None:
        return self.structural_violation(state, move) or self.context_violation(state, move)


def _deal(rng: random.Random, size: int) -> list[int]:
    return [rng.randint(1, HIGHEST_CARD) for _ in range(size)]


def _join(numbers: list[int] | Numbers) -> str:
    return " ".join(map(str, numbers))


def _key(table: Table) -> str:
    return f"{table.target} | {_join(table.numbers)}"


def _answer(value: int) -> Move:
    return Move("answer", NumberAnswer(value=value), f"answer = {value} ;")


def _move(chosen: Combination) -> Move:
    """The move of a combination; the smaller operand of + and * comes first."""
    op, first, second, result, left = chosen
    if op in COMMUTATIVE and first > second:
        first, second = second, first
    args = Combine(first=first, second=second, result=result, left=left)
    words = (first, SIGNS[op], second, "=", result, "left", *left, ";")
    return Move(op, args, " ".join(map(str, words)))


def _after(numbers: Numbers, operands: tuple[int, int], result: int) -> Numbers:
    """The ascending table without the operands that are there, with the result."""
    table = list(numbers)
    for operand in operands:
        if operand in table:
            table.remove(operand)
    return tuple(sorted([*table, result]))


def _table_after(table: Table, args: Combine) -> Numbers:
    return _after(table.numbers, (args.first, args.second), args.result)


def _inapplicable(op: str, second: int) -> str:
    if op == "divide":
        return "division is not exact" if second else "division by zero"
    return "difference is negative" if op == "subtract" else "result above 200"
