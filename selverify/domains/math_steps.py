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
from selverify.domains.base import Domain, arguments_of, context_of
from selverify.domains.claims import find_claims
from selverify.errors import SchemaError
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State

END_OF_STEP = "\n\n"
MAX_STEP = 4_000
_FIGURE = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_END_OF_FIGURE = "[/asy]"
UNWRITABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
"""Control characters, and halves of pairs, which can be written to no file."""
_PAGE_BREAKS = str.maketrans("\x0b\x0c", "  ")
"""Vertical tabs and form feeds are white space, and are written as a space."""


class TextStep(Arguments):
    """One step: the claims in it as (left, right, holds)."""

    claims: tuple[tuple[str, str, bool], ...]


class FinalStep(TextStep):
    """A step that ends in the answer."""

    value: str


@dataclass(frozen=True, slots=True)
class TextProgress:
    """The tracked constraints l: the answer once given."""

    answer: str | None


class MathSteps(Domain):
    """Mathematics by steps; see the module's text."""

    name = "math"
    end_of_move = END_OF_STEP
    operators: Mapping[str, type[Arguments]] = MappingProxyType(
        {"reason": TextStep, "compute": TextStep, "answer": FinalStep}
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
        if found := UNWRITABLE.search(text):
            raise SchemaError(
                f"{problem_id}: given a problem with {found[0]!r} at character "
                f"{found.start() + 1}, expected no control characters"
            )
        text = text.translate(_PAGE_BREAKS)
        return Problem(problem_id, self.name, text, _goal(text))

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """w_0: no answer yet."""
        return State(problem, (), TextProgress(None), budget)

    def parse(self, text: str) -> Candidate:
        """The step with what can be read off it."""
        stripped = text.strip()
        if not stripped:
            return Malformed(text[:MAX_STEP], "empty")
        if len(stripped) > MAX_STEP:
            return Malformed(text[:MAX_STEP], f"longer than {MAX_STEP} characters")
        if UNWRITABLE.search(stripped):
            return Malformed(text[:MAX_STEP], "control characters")
        stripped = stripped.translate(_PAGE_BREAKS)
        found = find_claims(stripped)
        step = TextStep(claims=tuple((claim.left, claim.right, claim.holds) for claim in found))
        answer = stated_answer(stripped)
        if answer is None:
            return Move("compute" if found else "reason", step, stripped)
        return Move("answer", FinalStep(value=answer, **dict(step)), stripped)

    def apply(self, state: State, move: Move) -> State:
        """The step is written down."""
        step = arguments_of(move, TextStep)
        answer = step.value if isinstance(step, FinalStep) else self.answer(state)
        return State(state.problem, (*state.derivation, move), TextProgress(answer), state.budget)

    def context_violation(self, state: State, move: Move) -> str | None:
        """Arithmetic that no reading makes true."""
        for left, right, holds in arguments_of(move, TextStep).claims:
            if not holds:
                return f"arithmetic: {left} is not {right}"
        return None

    def answer(self, state: State) -> str | None:
        """The answer that was given, or None."""
        return context_of(state, TextProgress).answer


def _goal(text: str) -> str:
    """What is asked, without the program of a figure."""
    sentences = re.split(r"(?<=[.?!])\s+", _without_figures(text).strip() or text)
    asking = [sentence for sentence in sentences if sentence.endswith("?")]
    return asking[-1] if asking else sentences[-1]


def _without_figures(text: str) -> str:
    # After the last end no figure is looked for: each of many beginnings would search all the rest.
    drawn, end, rest = text.rpartition(_END_OF_FIGURE)
    return _FIGURE.sub(" ", drawn + end) + rest
