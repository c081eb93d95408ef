"""A toy domain and a scripted backend whose every reply a test writes down.

The problem "reach 3 ." asks for 3. Moves "add 1 ;" to "add 9 ;" add to a running total; the gates
refuse amounts above 3 and an answer that is not the total; "say 3 ;" answers. Overshooting is
wrong, but only the truth knows it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple

from selverify.search.backend import Backend
from selverify.search.driver import Result, Search, run_searches
from selverify.search.gates import GATES
from selverify.search.protocol import Asking
from selverify.search.requests import Complete, Propose, Rank, Reply, Request
from selverify.search.rules import GatedSettings
from selverify.types import (
    Arguments,
    Candidate,
    Malformed,
    Move,
    Problem,
    Sample,
    State,
    Truth,
    Verdict,
)

DIGITS = frozenset("0123456789")


class Add(Arguments):
    """Add ``amount`` to the total."""

    amount: int


class Say(Arguments):
    """Answer ``value``."""

    value: int


class Total(NamedTuple):
    """The running total, and the answer once given."""

    value: int
    said: int | None


@dataclass(frozen=True)
class ToyDomain:
    """``checks``: whether the gates refuse a wrong answer, as countdown's do."""

    checks: bool = False
    name: str = "toy"
    operators: Mapping[str, type[Arguments]] = field(
        default_factory=lambda: MappingProxyType({"add": Add, "say": Say}), hash=False
    )
    vocabulary: tuple[str, ...] = ("reach", ".", "add", "say", ";", *"0123456789")
    end_of_move: str = ";"

    def generate(
        self, rng: random.Random, *, problem_id: str, minimum: int, maximum: int
    ) -> tuple[Problem, Truth]:
        """A target from ``minimum`` to ``maximum``."""
        target = rng.randint(minimum, maximum)
        return toy_problem(target, problem_id), Truth(problem_id, str(target), "")

    def solution(self, problem: Problem, truth: Truth, rng: random.Random) -> tuple[Move, ...]:
        """Ones up to the target, then the answer."""
        return (*(move("add 1 ;") for _ in range(int(truth.answer))), move(f"say {truth.answer} ;"))

    def fingerprint(self, problem: Problem) -> str:
        """The text."""
        return problem.text

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """Total 0."""
        return State(problem, (), Total(0, None), budget)

    def parse(self, text: str) -> Candidate:
        """``add`` or ``say``, a number, ``;``."""
        words = text.split()
        if len(words) != 3 or words[2] != ";" or not set(words[1]) <= DIGITS:
            return Malformed(text, "not a move")
        if words[0] == "add":
            return Move("add", Add(amount=int(words[1])), " ".join(words))
        if words[0] == "say":
            return Move("say", Say(value=int(words[1])), " ".join(words))
        return Malformed(text, "unknown operator")

    def apply(self, state: State, move: Move) -> State:
        """Add to the total, or keep the answer."""
        total = _total(state)
        if isinstance(move.args, Say):
            after = Total(total.value, move.args.value)
        else:
            after = Total(total.value + move.args.amount, total.said)
        return State(state.problem, (*state.derivation, move), after, state.budget)

    def structural_violation(self, state: State, move: Move) -> str | None:
        """Nothing after the answer, no amount above 3."""
        if _total(state).said is not None:
            return "after the answer"
        if isinstance(move.args, Add) and move.args.amount > 3:
            return "amount above 3"
        return None

    def context_violation(self, state: State, move: Move) -> str | None:
        """An answer is the total, and the target where answers check."""
        if not isinstance(move.args, Say):
            return None
        if move.args.value != _total(state).value:
            return "answer is not the total"
        return "wrong answer" if self.checks and move.args.value != _target(state) else None

    def serialise(self, state: State) -> str:
        """Problem and derivation."""
        return f"{state.problem.text} {state.trace}".strip()

    def is_final(self, state: State) -> bool:
        """Answered."""
        return _total(state).said is not None

    def answer(self, state: State) -> str | None:
        """The answer as text."""
        said = _total(state).said
        return None if said is None else str(said)

    def checks_answers(self) -> bool:
        """As told."""
        return self.checks

    def alive(self, state: State, truth: Truth) -> bool:
        """Not beyond the target, and no wrong answer."""
        total = _total(state)
        return total.value <= int(truth.answer) and (
            total.said is None or str(total.said) == truth.answer
        )

    def pattern(self, state: State, move: Move) -> str | None:
        """The move's text; an answer has none."""
        return None if isinstance(move.args, Say) else move.text

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """The pattern's own move."""
        return (move(pattern),)


def _total(state: State) -> Total:
    assert isinstance(state.context, Total)
    return state.context


def _target(state: State) -> int:
    return int(state.problem.goal)


def toy_problem(target: int = 3, problem_id: str = "p") -> Problem:
    return Problem(problem_id, "toy", f"reach {target} .", str(target))


SETTINGS = GatedSettings(
    proposals=2,
    k_base=2.0,
    beta=0.0,
    k_min=1,
    k_max=4,
    tau=0.5,
    max_retries=1,
    max_moves=5,
    scorer="distance",
    skip_below=0.0,
    allocation="fixed",
    reference_dispersion=1.0,
    gates=GATES,
    patterns=(),
    commit="verifier",
    rank_weight=0.5,
    fallback=False,
)
"""Of gated competition: all that a test does not change."""
USUAL: Mapping[str, object] = {
    "n": 4,
    "every": 1,
    "gates": False,
    "ranked": False,
    "max_moves": 5,
    "aggregation": "last",
    "temperature": None,
}
"""Settings that a test does not name."""


def toy_search(
    method: Callable[..., Asking[Any]],
    domain: ToyDomain | None = None,
    problem: Problem | None = None,
    **settings: object,
) -> Asking[Any]:
    """A search by ``method``, on the toy problem unless another is given."""
    usual = taken(method, USUAL)
    return method(domain or ToyDomain(), problem or toy_problem(), **{**usual, **settings})


def taken(method: Callable[..., object], settings: Mapping[str, object]) -> dict[str, object]:
    """Those of the settings that ``method`` has."""
    known = signature(method).parameters
    return {name: value for name, value in settings.items() if name in known}


def alone(
    search: Asking[Any], backend: Backend, *, budget: int | None = None, traced: bool = False
) -> Result[Any]:
    """The result of one search."""
    return run_searches({0: Search(search, budget)}, backend, end_of_move=";", traced=traced)[0]


def told(result: Result[Any], event: str, name: str) -> list[object]:
    """What the events of one kind say of ``name``."""
    return [dict(one.data)[name] for one in result.events if one.event == event]


def toy_truth(target: int = 3, problem_id: str = "p") -> Truth:
    return Truth(problem_id, str(target), "")


def move(text: str) -> Move:
    parsed = ToyDomain().parse(text)
    assert isinstance(parsed, Move)
    return parsed


@dataclass
class ScriptedBackend:
    """Replies by derivation text. ``asked`` logs every request in order.

    ``moves``: derivation -> sampled texts. ``solutions``: sampled texts. ``scores``: derivation
    with the step -> verifier score (0 where absent). ``ranks``: the same key -> h (0 where absent).
    """

    moves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    solutions: Sequence[str] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, float] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)

    def concurrency(self, kind: str) -> int:
        """It computes its replies."""
        return 0

    def identity(self, kind: str) -> str:
        """One script."""
        return "scripted"

    def tokens(self, text: str) -> int:
        """A token a word."""
        return len(text.split())

    def answer(self, request: Request) -> Reply:
        """The written replies."""
        self.asked.append(request)
        if isinstance(request, Propose):
            return tuple(
                samples(self.moves[item.state.trace][item.start : item.start + item.count])
                for item in request.items
            )
        if isinstance(request, Complete):
            return tuple(
                samples(self.solutions[item.start : item.start + item.count])
                for item in request.items
            )
        if isinstance(request, Rank):
            return tuple(
                tuple(self.ranks.get(after(item.state, one), 0.0) for one in item.moves)
                for item in request.items
            )
        return tuple(self._verdict(item.state, item.steps) for item in request.items)

    def _verdict(self, state: State, steps: Sequence[Move]) -> Verdict:
        prefixes = (after(state, *steps[: index + 1]) for index in range(len(steps)))
        scores = tuple(self.scores.get(prefix, 0.0) for prefix in prefixes)
        return Verdict(scores[-1], scores)

    def verified(self) -> list[str]:
        """Every verified derivation with its step, in the order asked."""
        return [
            after(item.state, *item.steps)
            for request in self.asked
            if request.kind == "verify"
            for item in request.items
        ]


@dataclass
class Fixed(ScriptedBackend):
    """One written reply, whatever is asked."""

    reply: object = None

    def answer(self, request: Request) -> Reply:
        """The written reply."""
        return self.reply  # type: ignore[return-value]


def after(state: State, *steps: Move) -> str:
    return " ".join(one.text for one in (*state.derivation, *steps))


def samples(texts: Sequence[str]) -> tuple[Sample, ...]:
    return tuple(Sample(text, len(text.split()), -1.0) for text in texts)
