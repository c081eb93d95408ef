"""What was committed without a call and rejected later is left for good, states behind it too."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from toy import SETTINGS, ScriptedBackend, ToyDomain, after, alone, samples, toy_problem

from selverify.search.driver import Result
from selverify.search.gated import gated_competition
from selverify.search.requests import Propose, Rank, Reply, Request
from selverify.types import Move, Outcome, State, Verdict

MOVES = ("add 1 ;", "add 2 ;", "add 3 ;", "noise")


def drawn(*key: object) -> float:
    return int(hashlib.md5(repr(key).encode()).hexdigest()[:8], 16) / 2**32


class Drawn(ScriptedBackend):
    """Moves, ranks and scores that follow from the seed; two states in five propose noise alone."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def answer(self, request: Request) -> Reply:
        if isinstance(request, Propose):
            return tuple(
                samples(
                    [
                        self.move(item.state, index)
                        for index in range(item.start, item.start + item.count)
                    ]
                )
                for item in request.items
            )
        if isinstance(request, Rank):
            return tuple(
                tuple(drawn(self.seed, item.scorer, after(item.state, move)) for move in item.moves)
                for item in request.items
            )
        return tuple(self.verdict(item.state, item.steps) for item in request.items)

    def move(self, state: State, index: int) -> str:
        if state.trace and drawn(self.seed, "dead", state.trace) < 0.4:
            return "noise"
        moves = (*MOVES, f"say {state.context.value} ;")
        return moves[int(drawn(self.seed, "move", state.trace, index) * len(moves))]

    def verdict(self, state: State, steps: tuple[Move, ...]) -> Verdict:
        least = (1.0, 0.7, 0.55)[self.seed % 3]
        scores = tuple(
            least * drawn(self.seed, "score", after(state, *steps[: place + 1]))
            for place in range(len(steps))
        )
        return Verdict(scores[-1], scores)


def searched(seed: int, allocation: str) -> Result[Outcome]:
    budget = (2, 4, 8, 16)[seed % 4]
    settings = replace(
        SETTINGS,
        allocation=allocation,
        scorer="reject_probability" if allocation == "stopping" else "hybrid",
        skip_below=(0.3, 0.8)[seed % 2],
        fallback=True,
        k_base=1.0,
        proposals=2,
        max_retries=seed % 3,
    )
    search = gated_competition(
        ToyDomain(),
        toy_problem(3),
        rules=settings.rules(ToyDomain()),
        budget=budget,
        generation_cap=5 * budget,
    )
    return alone(search, Drawn(seed), budget=budget, traced=True)


@pytest.mark.parametrize("allocation", ["margin", "stopping"])
def test_nothing_is_done_behind_a_rejected_move(allocation: str) -> None:
    """No sample, no call, no commit, no answer; and no such move is rejected twice."""
    retracts = 0
    for seed in (*range(600), 1525, 2503, 331):
        result, rejected = searched(seed, allocation), set[tuple[str, ...]]()
        for event in result.events:
            said, data = event.state.said, dict(event.data)
            if event.event in ("propose", "verify", "commit", "fallback", "trust"):
                assert not any(said[: len(one)] == one for one in rejected), (seed, event)
            if event.event == "retract":
                move = (*said[: data["to"]], data["move"])
                assert move not in rejected, (seed, event)
                rejected.add(move)
        said = tuple(move.text for move in result.outcome.derivation or ())
        assert not any(said[: len(one)] == one for one in rejected), seed
        retracts += len(rejected)
    assert retracts > 50
