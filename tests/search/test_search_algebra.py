"""Algebra end to end: gates on a real constraint context, sympy as the verifier of each step.

The proposer is a double that knows a right derivation and spoils most of its moves: some in a way
that the gates see, some so that every number on the page agrees and only the equation is wrong.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from selverify.backends.base import ComposedBackend
from selverify.backends.fake import FakeBackend
from selverify.domains.algebra import Algebra
from selverify.gates import CONTEXT, GATES, STRUCTURAL, reject
from selverify.requests import CompleteItem, ProposeItem
from selverify.scheduler import Search, run_lockstep
from selverify.search.gated import gated_competition
from selverify.search.rules import GatedSettings
from selverify.types import Move, Problem, Sample, State, Truth
from selverify.verifiers.tool import ToolVerifier

DOMAIN = Algebra()
PROBLEMS, BUDGET, PROPOSALS = 24, 64, 8
RIGHT = 0.3


def drawn() -> list[tuple[Problem, Truth, tuple[Move, ...]]]:
    rng = random.Random(17)
    found = []
    for index in range(PROBLEMS):
        problem, truth = DOMAIN.generate(rng, problem_id=f"a{index}", minimum=3, maximum=7)
        found.append((problem, truth, DOMAIN.solution(problem, truth, rng)))
    return found


class Careless:
    """Samples the next move of a right derivation, or one that is spoilt."""

    def __init__(self, solutions: dict[str, tuple[Move, ...]]) -> None:
        self.solutions = solutions
        self.refused: Counter[str] = Counter()

    def identity(self) -> str:
        return "careless"

    def complete(self, items: list[CompleteItem]) -> tuple[tuple[Sample, ...], ...]:
        pytest.fail("only moves are proposed here")

    def propose(self, items: list[ProposeItem]) -> tuple[tuple[Sample, ...], ...]:
        return tuple(
            tuple(self.sample(item.state, i) for i in range(item.start, item.start + item.count))
            for item in items
        )

    def sample(self, state: State, index: int) -> Sample:
        rng = random.Random(f"{state.problem.problem_id} {state.trace} {index}")
        solution = self.solutions[state.problem.problem_id]
        right = solution[min(len(state.derivation), len(solution) - 1)].text
        text = right if rng.random() < RIGHT else spoilt(right, rng)
        refusal = reject(DOMAIN, state, DOMAIN.parse(text))
        self.refused[refusal.gate if refusal else "none"] += 1
        return Sample(text, len(text.split()), -1.0)


def spoilt(text: str, rng: random.Random) -> str:
    """A factor of the unknown changed, which agrees with all that is said, or a result."""
    words = text.split()
    numbers = [place for place, word in enumerate(words) if word.lstrip("-").isdigit()]
    told = words.index(":") + 1 if ":" in words else 0
    unseen = told in numbers and rng.random() < 0.6
    place = told if unseen else numbers[-1]
    words[place] = str(int(words[place]) + 1)
    return " ".join(words)


def settings(*, max_doubt: float) -> GatedSettings:
    return GatedSettings(
        proposals=PROPOSALS, k_base=2.0, beta=0.5, k_min=1, k_max=8, tau=0.5, max_retries=3,
        max_moves=14, scorer="none", max_doubt=max_doubt, allocation="all",
        reference_dispersion=0.0, gates=GATES, patterns=(), commit="verifier", rank_weight=0.0,
        fallback=False,
    )  # fmt: skip


def solved(*, max_doubt: float) -> tuple[float, float, Counter[str]]:
    """Share of problems answered by right steps alone, calls a problem, what the gates said."""
    problems = drawn()
    proposer = Careless({problem.problem_id: moves for problem, _, moves in problems})
    doubts = FakeBackend(DOMAIN, lambda state, rng: "", name="none", seed=1, max_moves=1)
    backend = ComposedBackend(proposer, ranker=Doubting(doubts), verifier=ToolVerifier(DOMAIN))
    searches = {
        problem.problem_id: Search(
            gated_competition(
                DOMAIN,
                problem,
                settings=settings(max_doubt=max_doubt),
                budget=BUDGET,
                generation_cap=BUDGET * 14,
            ),
            budget=BUDGET,
        )
        for problem, _, _ in problems
    }
    results = run_lockstep(searches, backend, end_of_move=DOMAIN.end_of_move)
    right = sum(
        results[problem.problem_id].outcome.answer == truth.answer
        and all_right(problem, truth, results[problem.problem_id].outcome.derivation or ())
        for problem, truth, _ in problems
    )
    calls = sum(result.ledger.verifier_calls for result in results.values())
    return right / PROBLEMS, calls / PROBLEMS, proposer.refused


def all_right(problem: Problem, truth: Truth, moves: tuple[Move, ...]) -> bool:
    state = DOMAIN.initial_state(problem, budget=1)
    for move in moves:
        if not DOMAIN.right(state, move, truth):
            return False
        state = DOMAIN.apply(state, move)
    return True


class Doubting:
    """A ranker that is asked for doubts only."""

    def __init__(self, fake: FakeBackend) -> None:
        self.fake = fake

    def identity(self) -> str:
        return "doubting"

    def rank(self, items: list[object]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(0.5 for _ in item.moves) for item in items)  # type: ignore[attr-defined]


def test_a_tool_that_checks_each_step_keeps_out_what_gates_alone_let_in() -> None:
    checked, calls, refused = solved(max_doubt=0.0)
    trusted, none, _ = solved(max_doubt=math.inf)
    assert checked >= 0.9
    assert 0 < calls < BUDGET
    assert trusted < 0.5 and none < calls
    assert refused[STRUCTURAL] > 0 and refused[CONTEXT] > 0 and refused["none"] > 0
