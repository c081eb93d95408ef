"""Grade-school word problems told in text, with an exact hidden truth.

Knows: what a move is, what applying it does, which facts the gates may use; ``relations`` tells
the sentences. Does not know: models, search, verdicts.

Arithmetic is modulo a small prime, so every number is one word. A move *defines* one quantity and
repeats the values it used, which lets a gate check it against the tracked context alone::

    apples 7 ;                                given
    pears = apples 7 + plums 5 = pears 12 ;   add       (subtract: -)
    figs = 3 * pears 12 = figs 36 ;           scale
    answer 36 ;                               answer

Wherever a value is said, its quantity stands right before it: copying a binding is then the
simplest thing that a small transformer learns.

What the gates cannot see is whether the relation is the one that the text states: that is the
verifier's work. The line of research is iGSM (Ye et al. 2024) and GSM-Symbolic.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from selverify.domains.base import (
    MAX_MOVE_TEXT,
    GeneratedDomain,
    NumberAnswer,
    arguments_of,
    context_of,
)
from selverify.domains.relations import (
    NAME_SET,
    NAMES,
    NUMBERS,
    PHRASES,
    PRIME,
    SUMS,
    Relation,
    draw_relation,
    draw_relations,
    misread_as,
    needed_by_each,
    pattern_of,
    read_statements,
    require_derivable,
    said_in,
    tell,
)
from selverify.errors import ParamsError, SchemaError
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State, Truth

_REMEMBERED = 2**14
"""Moves that are kept as they were read: samples of one problem say the same ones."""
DRILL_NAMES = (2, 8)
DRILL_MOVES = (4, 7)
QUESTIONS = ("how many {x} ?", "find {x} ?")
_MOVES: Mapping[str, str] = MappingProxyType(
    {
        "given": "{quantity} {value} ;",
        "add": "{quantity} = {left} {left_value} + {right} {right_value} = {quantity} {value} ;",
        "subtract": (
            "{quantity} = {left} {left_value} - {right} {right_value} = {quantity} {value} ;"
        ),
        "scale": "{quantity} = {factor} * {operand} {operand_value} = {quantity} {value} ;",
        "answer": "answer {value} ;",
    }
)
RANKS = MappingProxyType({str(rank): rank for rank in range(len(NAMES))})
_QUESTION_SET = frozenset(form.format(x=name) for form in QUESTIONS for name in NAMES)
_MOVE_PATTERNS = MappingProxyType({op: pattern_of(form) for op, form in _MOVES.items()})


class Definition(Arguments):
    """The quantity has a value: here, the one that the text gives."""

    quantity: str
    value: int


class Binary(Definition):
    """The quantity is the sum or the difference of two bound quantities."""

    left: str
    left_value: int
    right: str
    right_value: int


class Scale(Definition):
    """The quantity is a multiple of a bound quantity."""

    factor: int
    operand: str
    operand_value: int


_OPERATORS: Mapping[str, type[Arguments]] = MappingProxyType(
    {"given": Definition, "add": Binary, "subtract": Binary, "scale": Scale, "answer": NumberAnswer}
)


@dataclass(frozen=True, slots=True)
class Context:
    """The tracked constraints l: known symbols, what is asked, bindings in order of definition."""

    symbols: tuple[str, ...]
    asked: str
    bindings: tuple[tuple[str, int], ...]
    final: str | None

    def value(self, name: str) -> int | None:
        """The value that ``name`` is bound to, or None."""
        return dict(self.bindings).get(name)


def _compute(op: str, left: int, right: int) -> int:
    if op == "add":
        return (left + right) % PRIME
    if op == "subtract":
        return (left - right) % PRIME
    return left * right % PRIME


def _words() -> tuple[str, ...]:
    templates = [phrase for phrases in PHRASES.values() for phrase in phrases] + list(QUESTIONS)
    told = {word for template in templates for word in template.split() if "{" not in word}
    return tuple(sorted(told | {"=", "+", "-", "*", ";", "answer"})) + NAMES + tuple(NUMBERS)


class WordProblems(GeneratedDomain):
    """The default domain; see the module's text."""

    name = "word_problems"
    remark = f"Numbers are modulo {PRIME}."
    end_of_move = ";"
    vocabulary = _words()
    operators = _OPERATORS

    def generate(
        self,
        rng: random.Random,
        *,
        problem_id: str,
        minimum: int,
        maximum: int,
        hard: float = 0.0,
    ) -> tuple[Problem, Truth]:
        """A problem with ``minimum`` to ``maximum`` quantities; asks for a deepest one.

        ``hard`` is the share of relations that are told in the last phrasing of their kind.

        Raises:
            ParamsError: the sizes do not satisfy 1 <= minimum <= maximum <= 30.
        """
        if not 1 <= minimum <= maximum <= len(NAMES):
            raise ParamsError(
                f"benchmark.word_problems: given minimum {minimum} and maximum {maximum}, expected "
                f"1 <= minimum <= maximum <= {len(NAMES)} quantities"
            )
        relations = draw_relations(rng, rng.randint(minimum, maximum))
        needed = needed_by_each(relations)
        deepest = max(map(len, needed.values()))
        asked = rng.choice([name for name in relations if len(needed[name]) == deepest])
        question = rng.choice(QUESTIONS).format(x=asked)
        told_hard = [name for name in relations if rng.random() < hard]
        text = f"{tell(rng, relations, told_hard)} {question}"
        problem = Problem(problem_id, self.name, text, question)
        values: dict[str, int] = {}
        for name, relation in relations.items():
            _define(name, relation, values)
        facts = {
            "asked": asked,
            "needed": sorted(needed[asked]),
            "hard": told_hard,
            "relations": {n: [r.op, list(r.operands), r.number] for n, r in relations.items()},
        }
        return problem, Truth(problem_id, str(values[asked]), json.dumps(facts, sort_keys=True))

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The goal is the last sentence, one of ``QUESTIONS`` about a quantity that is told.

        Raises:
            SchemaError: the text does not end in such a question, a sentence before it is no
                statement in one of ``PHRASES``, or what the statements tell cannot be derived.
        """
        told, _, question = text.rpartition(" . ")
        if question not in _QUESTION_SET:
            raise SchemaError(
                f"{problem_id}: given a text that ends in {question[-MAX_MOVE_TEXT:]!r}, expected "
                f"a question like {QUESTIONS[0].format(x=NAMES[0])!r}"
            )
        relations = read_statements(told.split(" . ") if told else (), problem_id)
        asked = question.split()[-2]
        if asked not in relations:
            raise SchemaError(
                f"{problem_id}: given a question about {asked}, expected one about a quantity that "
                f"a statement tells: {', '.join(relations) or 'there is none'}"
            )
        require_derivable(relations, problem_id)
        return Problem(problem_id, self.name, text, question)

    def solution(
        self, problem: Problem, truth: Truth, rng: random.Random, *, misread: float = 0.0
    ) -> tuple[Move, ...]:
        """The needed quantities in a random order that respects their dependencies.

        A misread statement gets another sign, its operands the other way round or another operand;
        what follows is derived from the wrong value.
        """
        facts = json.loads(truth.facts)
        relations = _relations(facts)
        open_names = set(facts["needed"])
        values: dict[str, int] = {}
        moves: list[Move] = []
        while open_names:
            ready = sorted(n for n in open_names if values.keys() >= set(relations[n].operands))
            name = rng.choice(ready)
            relation = relations[name]
            if name in facts["hard"] and rng.random() < misread:
                relation = misread_as(rng, relation, values)
            move = _define(name, relation, values)
            open_names.remove(name)
            moves.append(move)
        return (*moves, _answer_move(values[facts["asked"]]))

    def drill(self, rng: random.Random, *, recall: bool) -> tuple[str, str] | None:
        """Givens told in sentences, then moves over them that no sentence asks for.

        The form and the arithmetic of a move are learned here, and with ``recall`` (the givens are
        said again in random order first) how to look a binding up; what is left for whole problems
        is to read relations and to plan. Whole problems alone teach looking up too slowly, because
        the latest value is so often the right one.
        """
        names = rng.sample(NAMES, len(NAMES))
        givens = [names.pop() for _ in range(rng.randint(*DRILL_NAMES))]
        relations = {name: Relation("given", (), rng.randrange(PRIME)) for name in givens}
        values = {name: relations[name].number for name in givens}
        said = rng.choices(givens, k=2 * len(givens)) if recall else []
        moves = [" + ".join(f"{name} {values[name]}" for name in said) + " ;"] if recall else []
        for _ in range(rng.randint(*DRILL_MOVES)):
            moves.append(_define(names.pop(), draw_relation(rng, list(values)), values).text)
        return tell(rng, relations, ()), " ".join(moves)

    def fingerprint(self, problem: Problem) -> str:
        """The problem's sentences without their order."""
        return " . ".join(sorted(sentence.strip() for sentence in problem.text.split(" .")))

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """No binding yet; the symbols are the names that the text mentions.

        Raises:
            SchemaError: the text is too short to ask for anything.
        """
        words = problem.text.split()
        if len(words) < 2:
            raise SchemaError(
                f"{problem.problem_id}: given the text {problem.text[:MAX_MOVE_TEXT]!r}, expected "
                f"one that ends in a question like {QUESTIONS[0].format(x=NAMES[0])!r}"
            )
        symbols = tuple(dict.fromkeys(word for word in words if word in NAME_SET))
        return State(problem, (), Context(symbols, words[-2], (), None), budget)

    def parse(self, text: str) -> Candidate:
        """Whitelist parse of one move; anything else is ``Malformed`` with a short reason."""
        if len(text) > MAX_MOVE_TEXT:
            return Malformed(text[:MAX_MOVE_TEXT], "too long")
        words = text.split()
        if not words or words[-1] != self.end_of_move:
            return Malformed(text, "no end of move")
        return _read_move(" ".join(words)) or Malformed(text, "not an operator with its arguments")

    def apply(self, state: State, move: Move) -> State:
        """Bind the quantity to the claimed value (total: a later binding replaces an earlier)."""
        context = context_of(state, Context)
        args = move.args
        if isinstance(args, NumberAnswer):
            after = replace(context, final=str(args.value))
        else:
            name, value = _defined(move)
            kept = tuple(pair for pair in context.bindings if pair[0] != name)
            after = replace(context, bindings=(*kept, (name, value)))
        return State(state.problem, (*state.derivation, move), after, state.budget)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """Scope: a move after the answer, an unknown, repeated or not yet derived quantity."""
        context = context_of(state, Context)
        if context.final is not None:
            return "after the answer"
        if isinstance(move.args, NumberAnswer):
            return None if context.value(context.asked) is not None else "answer before derivation"
        name, _ = _defined(move)
        if name not in context.symbols:
            return "unknown quantity"
        if context.value(name) is not None:
            return "already defined"
        if any(context.value(operand) is None for operand, _ in _operands(move)):
            return "operand not derived"
        return None

    def context_violation(self, state: State, move: Move) -> str | None:
        """Invariants: bindings, the arithmetic claim, the answer against the asked quantity."""
        context = context_of(state, Context)
        if any(context.value(operand) != value for operand, value in _operands(move)):
            return "value is not the binding"
        args = move.args
        if isinstance(args, NumberAnswer):
            return (
                None if args.value == context.value(context.asked) else "answer is not the binding"
            )
        if isinstance(args, Binary):
            right = _compute(move.op, args.left_value, args.right_value)
            return None if right == args.value else "arithmetic"
        if isinstance(args, Scale):
            right = _compute(move.op, args.factor, args.operand_value)
            return None if right == args.value else "arithmetic"
        return None

    def answer(self, state: State) -> str | None:
        """The number given as the answer."""
        context = context_of(state, Context)
        return context.final

    def alive(self, state: State, truth: Truth) -> bool:
        """Every needed quantity defined so far uses the relation and the value of the text."""
        facts = json.loads(truth.facts)
        relations, needed = _relations(facts), set(facts["needed"])
        bound: dict[str, int] = {}
        for move in state.derivation:
            if isinstance(move.args, NumberAnswer):
                return str(move.args.value) == truth.answer
            name, value = _defined(move)
            if name in needed and not _states(move, relations[name], bound):
                return False
            bound[name] = value
        return True

    def right(self, state: State, move: Move, truth: Truth) -> bool:
        """The move says of a quantity, needed or not, what the text says, for the first time."""
        facts = json.loads(truth.facts)
        bound = dict(context_of(state, Context).bindings)
        if isinstance(move.args, NumberAnswer):
            asked: str = facts["asked"]
            return bound.get(asked) == move.args.value and str(move.args.value) == truth.answer
        name, _ = _defined(move)
        relation = _relations(facts).get(name)
        return relation is not None and name not in bound and _states(move, relation, bound)

    def pattern(self, state: State, move: Move) -> str | None:
        """Operator, role of the defined quantity, recency rank of each operand; no names."""
        context = context_of(state, Context)
        if isinstance(move.args, NumberAnswer):
            return "answer"
        if move.op == "given":
            return None
        recent = [name for name, _ in reversed(context.bindings)]
        operands = [name for name, _ in _operands(move)]
        if any(name not in recent for name in operands):
            return None
        role = "asked" if _defined(move)[0] == context.asked else "next"
        factor = move.args.factor if isinstance(move.args, Scale) else 0
        return " ".join([move.op, role, str(factor), *(str(recent.index(n)) for n in operands)])

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """The pattern's move over the current bindings, if they reach that far back."""
        context = context_of(state, Context)
        if pattern == "answer":
            value = context.value(context.asked)
            return () if value is None else (_answer_move(value),)
        read = _read_pattern(pattern)
        if read is None:
            return ()
        op, role, factor, ranks = read
        recent = [name for name, _ in reversed(context.bindings)]
        values = dict(context.bindings)
        unbound = [name for name in context.symbols if name not in values]
        targets = [n for n in unbound if (n == context.asked) == (role == "asked")]
        if not targets or max(ranks) >= len(recent):
            return ()
        relation = Relation(op, tuple(recent[rank] for rank in ranks), factor)
        return (_define(targets[0], relation, values),)


def _relations(facts: Mapping[str, object]) -> dict[str, Relation]:
    stored: Mapping[str, tuple[str, list[str], int]] = facts["relations"]  # type: ignore[assignment]
    return {
        name: Relation(op, tuple(names), number) for name, (op, names, number) in stored.items()
    }


def _define(name: str, relation: Relation, values: dict[str, int]) -> Move:
    """The move that defines ``name``; its value is added to ``values``."""
    op, number = relation.op, relation.number
    args: Definition
    match relation.operands:
        case (left, right):
            one, other = values[left], values[right]
            value = _compute(op, one, other)
            args = Binary(
                quantity=name,
                left=left,
                left_value=one,
                right=right,
                right_value=other,
                value=value,
            )
        case (operand,):
            one, value = values[operand], _compute(op, number, values[operand])
            args = Scale(
                quantity=name, factor=number, operand=operand, operand_value=one, value=value
            )
        case _:
            args = Definition(quantity=name, value=number)
    values[name] = args.value
    return _move(op, args)


def _states(move: Move, relation: Relation, bound: Mapping[str, int]) -> bool:
    """Whether the move uses the text's relation, with values that follow from ``bound``."""
    if any(bound.get(name) != value for name, value in _operands(move)):
        return False
    if set(relation.operands) - bound.keys() or move.op != relation.op:
        return False
    name, value = _defined(move)
    expected = _define(name, relation, dict(bound))
    if isinstance(move.args, Binary) and move.op == "add":
        same = {move.args.left, move.args.right} == set(relation.operands)
        return same and _defined(expected) == (name, value)
    return move.text == expected.text


def _defined(move: Move) -> tuple[str, int]:
    """The quantity that the move defines, and the value that it claims."""
    args = arguments_of(move, Definition)
    return args.quantity, args.value


def _operands(move: Move) -> tuple[tuple[str, int], ...]:
    args = move.args
    if isinstance(args, Binary):
        return ((args.left, args.left_value), (args.right, args.right_value))
    if isinstance(args, Scale):
        return ((args.operand, args.operand_value),)
    return ()


def _read_pattern(pattern: str) -> tuple[str, str, int, tuple[int, ...]] | None:
    """Operator, role, factor and ranks; None where the text, which a file may hold, is none."""
    if len(pattern) > MAX_MOVE_TEXT:
        return None
    match pattern.split():
        case [op, ("asked" | "next") as role, "0", left, right] if (
            op in SUMS and {left, right} <= RANKS.keys()
        ):
            return op, role, 0, (RANKS[left], RANKS[right])
        case ["scale", ("asked" | "next") as role, factor, rank] if (
            factor in NUMBERS and rank in RANKS
        ):
            return "scale", role, NUMBERS[factor], (RANKS[rank],)
    return None


def _move(op: str, args: Arguments) -> Move:
    return Move(op, args, _MOVES[op].format_map(vars(args)))


def _answer_move(value: int) -> Move:
    return _move("answer", NumberAnswer(value=value))


@lru_cache(maxsize=_REMEMBERED)
def _read_move(text: str) -> Move | None:
    """The move that ``text`` spells, as in ``_MOVES``."""
    for op, pattern in _MOVE_PATTERNS.items():
        if said := said_in(pattern, text):
            args = {slot: NUMBERS.get(word, word) for slot, word in said.items()}
            return Move(op, _OPERATORS[op].model_validate(args), text)
    return None
