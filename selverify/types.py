"""Frozen values that everything else is a function of.

Knows: problems, moves, states, verdicts. Does not know: any domain, any model, any search.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


class Arguments(BaseModel):
    """Arguments of an operator; a domain subclasses it once for each operator."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """What a search may see of a problem: never the gold answer."""

    problem_id: str
    domain: str
    text: str
    goal: str


@dataclass(frozen=True, slots=True)
class Truth:
    """What only grading and audits may see. ``facts`` is the domain's own JSON text."""

    problem_id: str
    answer: str
    facts: str


@dataclass(frozen=True, slots=True)
class Move:
    """A structured hypothesis m = (op, args) and its canonical text."""

    op: str
    args: Arguments
    text: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """Model text that is no move. A candidate's failure is data, not an exception."""

    text: str
    reason: str


Candidate = Move | Malformed


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a gate refused a candidate: ``gate`` is ``structural`` or ``context``."""

    gate: str
    reason: str


@dataclass(frozen=True, slots=True)
class State:
    """A reasoning state w = (r, s, l): budget, derivation, context (paper, section 3)."""

    problem: Problem
    derivation: tuple[Move, ...]
    context: Hashable
    budget: int

    def spend(self, calls: int) -> State:
        """The same state with ``calls`` fewer verifier calls left."""
        return self.with_budget(self.budget - calls)

    def with_budget(self, budget: int) -> State:
        """The same state with ``budget`` verifier calls left."""
        return State(self.problem, self.derivation, self.context, budget)

    @property
    def said(self) -> tuple[str, ...]:
        """The moves' texts, which tell states of one problem apart."""
        return tuple([move.text for move in self.derivation])

    @property
    def trace(self) -> str:
        """The derivation as text, moves joined by one space; empty at the start."""
        return " ".join(move.text for move in self.derivation)


@dataclass(frozen=True, slots=True)
class Sample:
    """Generated text (one move, or one whole solution) with its cost in tokens.

    ``logprob`` is the sum over the sampled tokens of log p, in nats, at temperature 1; tokens that
    the domain computed count in ``tokens`` alone.
    """

    text: str
    tokens: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's reply: ``score`` in [0, 1] for the last step, and one score a new step."""

    score: float
    step_scores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Grade:
    """Whether an answer equals the gold: correct, wrong, unparsed or timeout."""

    status: str

    @property
    def correct(self) -> bool:
        """Whether the status is ``correct``."""
        return self.status == "correct"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search ends with. ``answer`` is None when it found none."""

    answer: str | None
    derivation: tuple[Move, ...] | None
    reason: str
