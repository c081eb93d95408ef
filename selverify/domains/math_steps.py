r"""Mathematics in ordinary text: a move is one step of a chain of thought.

Knows: what can be read off a step without understanding it (arithmetic claims, a final answer) and
which of it can be refuted for free. Does not know: the exact truth, or models.

Steps are separated by an empty line, as the step tokens of published reward models expect. The
gates refuse a step whose arithmetic no reading makes true, and nothing else: what other rules
refused on recorded text stands in ``docs/real-text.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from selverify.domains.answers import stated_answer
from selverify.domains.claims import find_claims
from selverify.errors import ProtocolError, SchemaError
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State

END_OF_STEP = "\n\n"
MAX_STEP = 4_000
FIGURE = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
END_OF_FIGURE = "[/asy]"
UNREADABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
"""Control characters, and halves of pairs, which can be written to no file."""
PAGE_BREAKS = str.maketrans("\x0b\x0c", "  ")
"""Vertical tabs and form feeds are white space, and are written as a space."""


class Step(Arguments):
    """One step: the claims in it as (left, right, holds)."""

    claims: tuple[tuple[str, str, bool], ...]


class FinalStep(Step):
    """A step that ends in the answer."""

    value: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The tracked constraints l: the answer once given."""

    answer: str | None


class MathSteps:
    """Mathematics by steps; see the module's text."""

    name = "math"
    end_of_move = END_OF_STEP
    operators: Mapping[str, type[Arguments]] = MappingProxyType(
        {"reason": Step, "compute": Step, "answer": FinalStep}
    )

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The problem; its goal is the last sentence that asks, or else the last one.

        Raises:
            SchemaError: the text is empty or longer than a problem can be, or holds what no text
                file does.
        """
        text = text.strip()
        if not text or len(text) > MAX_STEP * 4:
            raise SchemaError(
                f"{problem_id}: given a problem of {len(text)} characters, expected 1 to "
                f"{MAX_STEP * 4}"
            )
        if found := UNREADABLE.search(text):
            raise SchemaError(
                f"{problem_id}: given a problem with {found[0]!r} at character "
                f"{found.start() + 1}, expected no control characters"
            )
        text = text.translate(PAGE_BREAKS)
        return Problem(problem_id, self.name, text, _goal(text))

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """w_0: no answer yet."""
        return State(problem, (), Progress(None), budget)

    def parse(self, text: str) -> Candidate:
        """The step with what can be read off it."""
        stripped = text.strip()
        if not stripped:
            return Malformed(text[:MAX_STEP], "empty")
        if len(stripped) > MAX_STEP:
            return Malformed(text[:MAX_STEP], f"longer than {MAX_STEP} characters")
        if UNREADABLE.search(stripped):
            return Malformed(text[:MAX_STEP], "control characters")
        stripped = stripped.translate(PAGE_BREAKS)
        found = find_claims(stripped)
        step = Step(claims=tuple((claim.left, claim.right, claim.holds) for claim in found))
        answer = stated_answer(stripped)
        if answer is None:
            return Move("compute" if found else "reason", step, stripped)
        return Move("answer", FinalStep(value=answer, **dict(step)), stripped)

    def apply(self, state: State, move: Move) -> State:
        """The step is written down."""
        step = _step(move)
        after = Progress(step.value) if isinstance(step, FinalStep) else _progress(state)
        return State(state.problem, (*state.derivation, move), after, state.budget)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """None: whatever can be read is a step."""
        return None

    def context_violation(self, state: State, move: Move) -> str | None:
        """Arithmetic that no reading makes true."""
        for left, right, holds in _step(move).claims:
            if not holds:
                return f"arithmetic: {left} is not {right}"
        return None

    def serialise(self, state: State) -> str:
        """The problem and the steps so far, an empty line between them."""
        return END_OF_STEP.join((state.problem.text, *(move.text for move in state.derivation)))

    def is_final(self, state: State) -> bool:
        """True once a step gave the answer."""
        return _progress(state).answer is not None

    def answer(self, state: State) -> str | None:
        """The answer that was given, or None."""
        return _progress(state).answer

    def checks_answers(self) -> bool:
        """No: whether an answer is right is what the verifier is for."""
        return False

    def pattern(self, state: State, move: Move) -> str | None:
        """None: a step of ordinary text is not retrieved for another problem."""
        return None

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """Nothing; see ``pattern``."""
        return ()


def _goal(text: str) -> str:
    """What is asked, without the program of a figure."""
    sentences = re.split(r"(?<=[.?!])\s+", _without_figures(text).strip() or text)
    asking = [sentence for sentence in sentences if sentence.endswith("?")]
    return asking[-1] if asking else sentences[-1]


def _without_figures(text: str) -> str:
    # After the last end no figure is looked for: each of many beginnings would search all the rest.
    drawn, end, rest = text.rpartition(END_OF_FIGURE)
    return FIGURE.sub(" ", drawn + end) + rest


def _progress(state: State) -> Progress:
    if not isinstance(state.context, Progress):
        raise ProtocolError(
            f"{state.problem.problem_id}: given a context {type(state.context).__name__}, "
            f"expected the Progress of a text problem"
        )
    return state.context


def _step(move: Move) -> Step:
    if not isinstance(move.args, Step):
        raise ProtocolError(f"given the move {move.text[:80]!r}, expected a step of text")
    return move.args
