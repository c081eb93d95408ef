"""Countdown end to end: gates on the table, enumeration as the verifier of each step.

The proposer is a double that knows a right derivation and spoils most of its moves: some in a way
that the gates see, some so that the move is legal and only the target is out of reach.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from selverify.domains.countdown import SIGNS, TARGET, Countdown, Table, claims, solvable
from selverify.models.verifiers.tool import ToolVerifier
from selverify.search.backend import ComposedBackend
from selverify.search.driver import Search, run_lockstep
from selverify.search.gated import gated_competition
from selverify.search.gates import CONTEXT, GATES, STRUCTURAL, reject
from selverify.search.requests import CompleteItem, ProposeItem, RankItem
from selverify.search.rules import GatedSettings
from selverify.types import Sample, State

DOMAIN = Countdown()
PROBLEMS, BUDGET, PROPOSALS = 24, 64, 8
RIGHT = 0.1


class Careless:
    """Samples the next move of a right derivation, or one that is spoilt."""

    def __init__(self) -> None:
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
        text = proposed(state, rng)
        refusal = reject(DOMAIN, state, DOMAIN.parse(text))
        self.refused[refusal.gate if refusal else "none"] += 1
        return Sample(text, len(text.split()), -1.0)


class Undecided:
    """A ranker that gives every move one reject probability."""

    def identity(self) -> str:
        return "undecided"

    def rank(self, items: list[RankItem]) -> tuple[tuple[float, ...], ...]:
        return tuple((0.5,) * len(item.moves) for item in items)


def proposed(state: State, rng: random.Random) -> str:
    """A move that keeps the target within reach, any legal one, or one with a false result."""
    table = state.context
    assert isinstance(table, Table)
    if len(table.numbers) == 1:
        return f"answer = {table.target} ;"
    legal = claims(table.numbers)
    right = [claim for claim in legal if solvable(claim.left, table.target)]
    claim = rng.choice(right if right and rng.random() < RIGHT else legal)
    if rng.random() < 0.2:
        claim = rng.choice((claim._replace(result=200), claim._replace(first=13, second=13)))
    words = (claim.first, SIGNS[claim.op], claim.second, "=", claim.result, "left", *claim.left)
    return " ".join(map(str, (*words, ";")))


def settings(*, skip_below: float) -> GatedSettings:
    return GatedSettings(
        proposals=PROPOSALS, k_base=2.0, beta=0.5, k_min=1, k_max=8, tau=0.5, max_retries=1,
        max_moves=5, scorer="none", skip_below=skip_below, allocation="all",
        reference_dispersion=0.0, gates=GATES, patterns=(), commit="verifier", rank_weight=0.0,
        fallback=False,
    )  # fmt: skip


def solved(*, skip_below: float) -> tuple[float, float, Counter[str]]:
    """Share of problems solved, calls a problem, what the gates said."""
    rng = random.Random(17)
    proposer = Careless()
    backend = ComposedBackend(proposer, ranker=Undecided(), verifier=ToolVerifier(DOMAIN))
    searches = {}
    for index in range(PROBLEMS):
        problem, _ = DOMAIN.generate(rng, problem_id=f"c{index}", minimum=4, maximum=4)
        search = gated_competition(
            DOMAIN,
            problem,
            rules=settings(skip_below=skip_below).rules(DOMAIN),
            budget=BUDGET,
            generation_cap=BUDGET * 5,
        )
        searches[problem.problem_id] = Search(search, budget=BUDGET)
    results = run_lockstep(searches, backend, end_of_move=DOMAIN.end_of_move).values()
    right = sum(result.outcome.answer == str(TARGET) for result in results)
    calls = sum(result.ledger.verifier_calls for result in results)
    return right / PROBLEMS, calls / PROBLEMS, proposer.refused


def test_a_tool_that_checks_each_step_keeps_out_what_gates_alone_let_in() -> None:
    checked, calls, refused = solved(skip_below=0.0)
    trusted, none, _ = solved(skip_below=math.inf)
    assert checked >= 0.9
    assert 0 < calls < BUDGET
    assert trusted < checked - 0.1 and none < calls
    assert refused[STRUCTURAL] > 0 and refused[CONTEXT] > 0 and refused["none"] > 0
