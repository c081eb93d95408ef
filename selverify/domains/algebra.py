"""Algebra: linear equations, systems of two, and quadratic equations with constraints on the root.

Knows: the protocol of a domain, over equations, moves, context, logic and problems in the modules
``algebra_*``. Does not know: models, search, verdicts. A problem and a derivation of it::

    e1 : ( 1 xx + 2 x + -15 ) / ( 1 x + -3 ) = 4 . find x .
    expand e1 as e2 : 1 xx + 2 x + -15 = 4 x + 4 * -3 = -12 ;
    collect e2 as e3 : 1 xx + -2 x = -12 - -15 = 3 ;
    roots e3 : sum 2 product -3 so -1 or 3 ;
    drop 3 : x is not 3 ;   x = -1 ;   answer -1 ;

A claimed equation is added to those there are and replaces none, so a consequence never loses a
solution that the problem has; what a step may bring in (a root that makes a denominator zero), a
constraint takes away.

What the gates see: which equations, unknowns and roots there are, the shape of an equation (its
unknowns, squares, brackets), values bound so far, and the told constraints: sign, parity, bounds,
denominators. So they refuse symbols that are not there, an operator that does not apply, a second
value of an unknown, false arithmetic (3 + 4 = 8), a value or roots that break a constraint, a root
dropped for a constraint that it satisfies, and an answer that is not the value asked for.

What only a verifier can see: whether numbers and coefficients are those of the cited equations, so
whether the claim follows: the tracked context holds no coefficient. In place of the moves above
``roots e3 : sum -2 product -3 so -3 or 1 ;`` passes both gates and is wrong, and so does any other
coefficient of x in e3. Which of several right steps leads to the goal, neither gates nor tool see.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from functools import lru_cache

from selverify.domains.algebra_context import Context, advance, contradicts, misplaced, start
from selverify.domains.algebra_equations import (
    COMBINATIONS,
    KINDS,
    LABELS,
    MAX_PROBLEM,
    NUMBERS,
    SQUARES,
    UNKNOWNS,
    Told,
    asked_value,
    nameless,
    read_told,
)
from selverify.domains.algebra_logic import BY_ARITHMETIC, BY_SYMPY, TOOL, Logic
from selverify.domains.algebra_moves import (
    END,
    OPERATORS,
    Answer,
    Choose,
    Drop,
    Roots,
    Solve,
    content,
    make_move,
    parse_move,
)
from selverify.domains.algebra_problems import BUILDERS, draw, write_solution
from selverify.domains.algebra_truth import stated_equations, step_follows
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.types import Arguments, Candidate, Move, Problem, State, Truth

SMALLEST, LARGEST = min(BUILDERS), max(BUILDERS)
FACTS_CACHE = 2**14
EXAMPLE = "e1 : 5 x + 4 = 2 x + 19 . x is odd . find x ."
DROP, CHOOSE, ANSWER = "drop", "choose", "answer"
WORDS = tuple(
    sorted(
        ({*OPERATORS, *KINDS, *COMBINATIONS} - {CHOOSE})
        | {"as", "by", "in", "so", "or", "sum", "product", "find", "is", ":", "=", "/", "(", ")"}
        | {".", END}
    )
)


class Algebra:
    """The third domain; see the module's text."""

    name = "algebra"
    end_of_move = END
    vocabulary = (*WORDS, *LABELS, *SQUARES, *UNKNOWNS, *NUMBERS)
    operators: Mapping[str, type[Arguments]] = OPERATORS
    tool = TOOL

    def generate(
        self,
        rng: random.Random,
        *,
        problem_id: str,
        minimum: int,
        maximum: int,
        hard: float = 0.0,
    ) -> tuple[Problem, Truth]:
        """A problem whose shortest written derivation has ``minimum`` to ``maximum`` moves.

        The size is drawn first, uniformly; ``selverify.domains.algebra_problems`` says which
        problems have which size. ``hard`` is ignored: there is one phrasing.

        Raises:
            ParamsError: the sizes do not satisfy 2 <= minimum <= maximum <= 8.
        """
        if not SMALLEST <= minimum <= maximum <= LARGEST:
            raise ParamsError(
                f"benchmark.algebra: given minimum {minimum} and maximum {maximum}, expected "
                f"{SMALLEST} <= minimum <= maximum <= {LARGEST} moves"
            )
        size = rng.randint(minimum, maximum)
        draft = draw(rng, size)
        answer = asked_value(draft.told.asked, draft.values)
        facts = {"size": size, "values": dict(draft.values)}
        problem = Problem(problem_id, self.name, str(draft.told), draft.told.goal)
        return problem, Truth(problem_id, str(answer), json.dumps(facts, sort_keys=True))

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The goal is what is asked and what is told beside the equations.

        Raises:
            SchemaError: the text is none of this domain.
        """
        return Problem(problem_id, self.name, text, _told(text, problem_id).goal)

    def solution(
        self, problem: Problem, truth: Truth, rng: random.Random, *, misread: float = 0.0
    ) -> tuple[Move, ...]:
        """A right derivation; orders and the unknown eliminated first are drawn at random."""
        told = _told(problem.text, problem.problem_id)
        return write_solution(told, _values(truth.facts), rng)

    def drill(self, rng: random.Random, *, recall: bool) -> tuple[str, str] | None:
        """None: problems of small sizes teach the form of the moves."""
        return None

    def fingerprint(self, problem: Problem) -> str:
        """The problem without the names of its unknowns and the order of sentences and sides."""
        return nameless(_told(problem.text, problem.problem_id))

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """The problem's equations and constraints; no unknown has a value.

        Raises:
            SchemaError: the problem's text is none of this domain.
        """
        return State(problem, (), start(_told(problem.text, problem.problem_id)), budget)

    def parse(self, text: str) -> Candidate:
        """Whitelist parse of one move; see ``selverify.domains.algebra_moves``."""
        return parse_move(text)

    def apply(self, state: State, move: Move) -> State:
        """Take the claimed equation, value or roots as given; total on parsed moves."""
        after = advance(_context(state), move)
        return State(state.problem, (*state.derivation, move), after, state.budget)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """Scope: equations, unknowns, roots and labels, and what the operator applies to."""
        misfit = misplaced(_context(state), move)
        return "repeats an earlier step" if misfit is None and _repeats(state, move) else misfit

    def context_violation(self, state: State, move: Move) -> str | None:
        """Invariants: arithmetic, told constraints, bindings, the answer against the bindings."""
        return contradicts(_context(state), move)

    def serialise(self, state: State) -> str:
        """The problem's text, then the moves so far."""
        return f"{state.problem.text} {state.trace}" if state.derivation else state.problem.text

    def is_final(self, state: State) -> bool:
        """True once an answer was given."""
        return _context(state).answer is not None

    def answer(self, state: State) -> str | None:
        """The number given as the answer."""
        value = _context(state).answer
        return None if value is None else str(value)

    def checks_answers(self) -> bool:
        """No: whether the values solve the equations is what the verifier is asked for."""
        return False

    def alive(self, state: State, truth: Truth) -> bool:
        """Every step so far is right.

        A right step takes nothing away, so the answer can then still be derived. Labels are enough
        for derivations twice as long as any that is written here.
        """
        before = self.initial_state(state.problem, budget=state.budget)
        for move in state.derivation:
            if not self.right(before, move, truth):
                return False
            before = self.apply(before, move)
        return True

    def right(self, state: State, move: Move, truth: Truth) -> bool:
        """The step follows from what it cites, and a value, a root or an answer is the true one."""
        context, args, values = _context(state), move.args, _values(truth.facts)
        if not _step_follows(state, move, BY_ARITHMETIC):
            return False
        match args:
            case Solve():
                return values.get(args.unknown) == args.result
            case Choose():
                return values.get(args.unknown) == args.value
            case Roots():
                held = context.unknowns(args.source)
                return all(values.get(name) in (args.low, args.high) for name in held)
            case Answer():
                return str(args.value) == truth.answer
        return True

    def follows(self, state: State, move: Move) -> bool:
        """Whether sympy finds the step a consequence of what was stated; knows no true value.

        A consequence may be useless: an equation multiplied by 7 follows. A step that says what an
        earlier one says does not count as one.
        """
        return _step_follows(state, move, BY_SYMPY)

    def pattern(self, state: State, move: Move) -> str | None:
        """Which kind of constraint drops a root, the choice of the last root, the answer.

        None for a claim about coefficients: the tracked context, from which a pattern is made a
        move again, holds none.
        """
        if isinstance(move.args, Drop):
            return f"{DROP} {move.args.kind}"
        return move.op if move.op in (CHOOSE, ANSWER) else None

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """The moves that the roots and values at ``state`` allow; all pass both gates."""
        context = _context(state)
        found = {CHOOSE: _choices, ANSWER: _answers}.get(pattern, _drops)(context)
        return tuple(
            move
            for move in found
            if self.pattern(state, move) == pattern
            and self.structural_violation(state, move) is None
            and self.context_violation(state, move) is None
        )


def _told(text: str, problem_id: str) -> Told:
    told = read_told(text)
    if told is None:
        raise SchemaError(
            f"{problem_id}: given the text {text[:MAX_PROBLEM]!r}, expected one like {EXAMPLE!r}"
        )
    return told


@lru_cache(maxsize=FACTS_CACHE)
def _values(facts: str) -> Mapping[str, int]:
    values: Mapping[str, int] = json.loads(facts)["values"]
    return values


def _context(state: State) -> Context:
    if not isinstance(state.context, Context):
        raise ProtocolError(
            f"{state.problem.problem_id}: given a context {type(state.context).__name__}, "
            f"expected a Context of algebra"
        )
    return state.context


def _step_follows(state: State, move: Move, logic: Logic) -> bool:
    told = _told(state.problem.text, state.problem.problem_id)
    equations = stated_equations(told, state.derivation)
    consequence = step_follows(_context(state), equations, move, logic)
    return consequence and not _repeats(state, move)


def _repeats(state: State, move: Move) -> bool:
    return content(move) in map(content, state.derivation)


def _drops(context: Context) -> Iterator[Move]:
    """A root that violates a told constraint, for each of the two."""
    for unknown, roots in context.roots:
        for value in roots:
            for one in context.violated(unknown, value):
                told = {"unknown": unknown, "kind": one.kind, "bound": one.bound}
                yield make_move(DROP, value=value, **told)


def _choices(context: Context) -> Iterator[Move]:
    """The root that is left, of each unknown."""
    for unknown, roots in context.roots:
        if len(roots) == 1:
            yield make_move(CHOOSE, unknown=unknown, value=roots[0])


def _answers(context: Context) -> Iterator[Move]:
    """The value that is asked for, once it is known and a number of the vocabulary."""
    if str(context.asked_value) in NUMBERS:
        yield make_move(ANSWER, value=context.asked_value)
