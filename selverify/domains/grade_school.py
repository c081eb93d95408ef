"""Grade-school word problems in ordinary text: a move is one line of arithmetic.

Knows: expressions over numbers, which numbers the text states, and what earlier lines computed.
Does not know: whether the computation is the one that the text asks for (the verifier judges that),
the exact truth, or models::

    clips sold in May: 48 / 2 = 24
    48 + 24 = 72
    Answer 72

The label before the colon is for the reader. Apply computes exactly, whatever is claimed. What the
gates refuse was measured on the solutions of GSM8K's training split; see ``CONSTANTS``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

from selverify.domains.base import MAX_MOVE_TEXT, Domain, arguments_of, context_of
from selverify.domains.line_arithmetic import (
    MAX_WRITTEN,
    Expression,
    NotAnExpression,
    Numeral,
    counts_as,
    read_expression,
    read_numeral,
    terminates,
    written,
)
from selverify.domains.math_steps import UNWRITABLE, MathSteps
from selverify.domains.stated_numbers import joined, stated_numbers
from selverify.errors import ProtocolError
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State

MAX_LABEL = 60
MAX_GOAL = 300
MAX_MOVES = 64
"""Moves of a derivation; a longer one goes nowhere."""
MAX_ENDLESS = 20
MOST_STATED, MOST_COMPUTED = 40, 20
"""So many stated numbers, and of the last computed ones, are looked at for a step in the head."""
CONSTANTS: frozenset[Fraction] = frozenset(
    map(
        Fraction,
        """
        0 1 2 3 4 5 6 7 8 9 10 12 14 15 16 20 24 25 30 31 40 52 60 100 120 365 1000
        1/100 1/20 1/10 1/2 3/2
        """.split(),  # noqa: SIM905
    )
)
"""Numbers that a line may use without a source: hours of a day, cents of a dollar, small counts.

Those that at least ten right solutions of GSM8K's training split use though neither the question
states nor a line before computes them.
"""
IN_THE_HEAD = frozenset(map(Fraction, (1, 100)))
_PERCENT_ASKED = re.compile(
    r"(?<!\d)(?<!\d[ -])(?:\bper ?cent(?:age)?s?\b|%)", re.ASCII | re.IGNORECASE
)
_ANSWER = re.compile(r"answer(?:\s*:\s*|\s+)(\S.*)", re.IGNORECASE)
_BEGUN = re.compile(r"[^=]*[^=\s]\s*=")


class Computation(Arguments):
    """``expression`` = ``claim``; the label may be empty."""

    label: str
    expression: str
    claim: str


class FinalNumber(Arguments):
    """The answer, as plain digits."""

    value: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """The tracked constraints l: what may be used, what was computed and how, the answer.

    ``endless``: some stated numbers whose decimals have no end, which a line writes rounded.
    ``done``: how it was computed; ``twice``: what was so more than once.
    """

    stated: frozenset[Fraction]
    endless: tuple[Fraction, ...]
    computed: tuple[Fraction, ...]
    done: frozenset[str]
    twice: frozenset[str]
    answer: str | None


class GradeSchool(Domain):
    """Word problems by lines of arithmetic; see the module's text."""

    name = "grade_school"
    end_of_move = "\n"
    computed_after = "="
    operators: Mapping[str, type[Arguments]] = MappingProxyType(
        {"compute": Computation, "answer": FinalNumber}
    )

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The problem; its goal is the last sentence that asks, or else the last one.

        Raises:
            SchemaError: the text is empty, longer than a problem can be, or holds control
                characters.
        """
        # Line breaks are white space here, and the control characters that Python counts as it not.
        said = joined(text) if UNWRITABLE.search(text) else " ".join(joined(text).split())
        read = MathSteps().read(said, problem_id=problem_id)
        return replace(read, domain=self.name, goal=read.goal[-MAX_GOAL:])

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """w_0: the numbers that the text states are known."""
        stated = stated_numbers(problem.text)
        endless = tuple(sorted(one for one in stated if not terminates(one)))[:MAX_ENDLESS]
        return State(
            problem, (), Sheet(stated, endless, (), frozenset(), frozenset(), None), budget
        )

    def parse(self, text: str) -> Candidate:
        """Whitelist parse of one line; anything else is ``Malformed`` with a short reason."""
        if len(text) > MAX_MOVE_TEXT:
            return Malformed(text[:MAX_MOVE_TEXT], f"longer than {MAX_MOVE_TEXT} characters")
        if UNWRITABLE.search(text):
            return Malformed(text, "control characters")
        line = " ".join(joined(text).split())
        try:
            return _computation(line) if "=" in line else _answer(line)
        except NotAnExpression as error:
            return Malformed(text, str(error))

    def apply(self, state: State, move: Move) -> State:
        """The exact value is known from here on, also as it was claimed; or the answer is given.

        An operand that nothing stated is a number all the same: only the gates ask where it is
        from, and methods without gates go on.

        Raises:
            ProtocolError: the move divides by zero, or is none of this domain.
        """
        sheet, args = context_of(state, Sheet), move.args
        if isinstance(args, FinalNumber):
            after = replace(sheet, answer=args.value)
        else:
            args = arguments_of(move, Computation)
            value = _value(state, args)
            if len(state.derivation) >= MAX_MOVES:  # where the gates refuse all
                return replace(state, derivation=(*state.derivation, move))
            claim = read_numeral(args.claim)
            as_claimed = tuple(one for one in claim.values if counts_as(claim, value))
            computed = dict.fromkeys((*sheet.computed, value, *as_claimed))
            key = frozenset((read_expression(args.expression).key,))
            after = replace(
                sheet,
                computed=tuple(computed),
                done=sheet.done | key,
                twice=sheet.twice | (sheet.done & key),
            )
        return replace(state, derivation=(*state.derivation, move), context=after)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """A line after the answer, an operand from nowhere, no value, the same line once more.

        Right solutions compute the same twice, for two people; none does so three times.
        """
        sheet, args = context_of(state, Sheet), move.args
        if sheet.answer is not None:
            return "after the answer"
        if len(state.derivation) >= MAX_MOVES:
            return f"more than {MAX_MOVES} moves"
        if isinstance(args, FinalNumber):
            return None
        expression = read_expression(arguments_of(move, Computation).expression)
        if (unknown := _unknown(sheet, expression)) is not None:
            return f"scope: {unknown} is neither stated nor computed"
        if expression.value is None:
            return "division by zero"
        return "repeat: computed twice before" if expression.key in sheet.twice else None

    def context_violation(self, state: State, move: Move) -> str | None:
        """A claim that is not the value of its expression; an answer that is no known number."""
        sheet, args = context_of(state, Sheet), move.args
        if isinstance(args, FinalNumber):
            answer = read_numeral(args.value)
            known = _is_known(sheet, answer) or (
                _PERCENT_ASKED.search(state.problem.goal) is not None
                and _is_known(sheet, _share_of(answer))
            )
            return None if known else "answer: neither stated nor computed"
        args = arguments_of(move, Computation)
        value = read_expression(args.expression).value
        if value is None or counts_as(read_numeral(args.claim), value):
            return None
        return f"arithmetic: {args.expression} is not {args.claim}"

    def answer(self, state: State) -> str | None:
        """The answer that was given, as plain digits."""
        return context_of(state, Sheet).answer

    def results(self, state: State) -> frozenset[Hashable]:
        """The exact value of each line, and the how manieth line it is that has it."""
        seen = Counter[Fraction]()
        for move in state.derivation:
            if isinstance(move.args, Computation):
                seen[_value(state, move.args)] += 1
        return frozenset((value, nth) for value, count in seen.items() for nth in range(count))

    def forced(self, state: State, begun: str) -> str | None:
        """After ``=`` the value of the expression before it, where its operands are known."""
        sheet = context_of(state, Sheet)
        room = MAX_MOVE_TEXT - MAX_WRITTEN - 1
        if sheet.answer is not None or len(begun) > room or not _BEGUN.fullmatch(begun):
            return None
        try:
            expression = _split(" ".join(joined(begun).split())[:-1])[1]
        except NotAnExpression:
            return None
        if expression.value is None or _unknown(sheet, expression) is not None:
            return None
        value = written(expression.value)
        return None if value is None else f" {value}{self.end_of_move}"


def _split(line: str) -> tuple[str, Expression]:
    """The label before the last colon, and the expression after it."""
    label, _, expression = line.rpartition(":")
    return " ".join(label.strip(" :")[:MAX_LABEL].split()).strip(" :"), read_expression(expression)


def _computation(line: str) -> Candidate:
    begun, _, claimed = line.partition("=")
    if "=" in claimed:
        raise NotAnExpression("more than one =")
    label, expression = _split(begun)
    if expression.value is None:
        raise NotAnExpression("division by zero")
    claim = _as_short(read_numeral(claimed), expression.value)
    args = Computation(label=label, expression=expression.text, claim=claim)
    text = f"{expression.text} = {claim}"
    return Move("compute", args, f"{label}: {text}" if label else text)


def _as_short(claim: Numeral, value: Fraction) -> str:
    """The claim without zeros at its end, unless they tell how it was rounded."""
    short = claim.trimmed
    return short.text if counts_as(short, value) == counts_as(claim, value) else claim.text


def _answer(line: str) -> Candidate:
    found = _ANSWER.fullmatch(line)
    if found is None:
        raise NotAnExpression("neither a computation nor an answer")
    numeral = read_numeral(found[1])
    if numeral.percent:
        numeral = read_numeral(numeral.text.removesuffix("%"))
    if "/" in numeral.text:
        raise NotAnExpression("the answer is no whole or decimal number")
    value = numeral.trimmed.text
    return Move("answer", FinalNumber(value=value), f"Answer {value}")


def _value(state: State, args: Computation) -> Fraction:
    value = read_expression(args.expression).value
    if value is None:
        raise ProtocolError(
            f"{state.problem.problem_id}: given {args.expression!r}, which divides by zero; "
            f"expected an expression with a value"
        )
    return value


def _unknown(sheet: Sheet, expression: Expression) -> str | None:
    """The first operand that may not be used."""
    for operand in expression.operands:
        known = set(operand.values) & CONSTANTS or _is_known(sheet, operand)
        if not known and not _one_step_away(sheet, operand.value):
            return operand.text
    return None


def _is_known(sheet: Sheet, numeral: Numeral) -> bool:
    """Whether the text states the number or a line computed it, whatever its sign."""
    if any(abs(value) in sheet.stated for value in numeral.values):
        return True
    size = replace(numeral, value=abs(numeral.value))
    return any(counts_as(size, abs(value)) for value in (*sheet.computed, *sheet.endless))


def _share_of(percentage: Numeral) -> Numeral:
    """35 as 0.35: what is asked for in percent may be computed as a share."""
    return replace(percentage, value=percentage.value / 100, decimals=percentage.decimals + 2)


def _one_step_away(sheet: Sheet, value: Fraction) -> bool:
    """Whether one operation on known numbers gives the value, as 0.4 = 1 - 0.6, in the head."""
    stated = sheet.stated if len(sheet.stated) <= MOST_STATED else frozenset()
    known = stated | set(map(abs, sheet.computed[-MOST_COMPUTED:]))
    others = known | IN_THE_HEAD
    return any(
        value - one in others
        or one - value in others
        or value + one in others
        or (one and (value / one in others or value * one in others))
        or (value and one / value in others)
        for one in known
    )
