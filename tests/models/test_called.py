"""Functions of the user's as verifiers, and what tells them apart in a cache."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from selverify.domains.math_steps import MathSteps
from selverify.errors import ProtocolError
from selverify.models.called import CalledVerifier, call, has_a_place, place_of
from selverify.search.requests import VerifyItem
from selverify.types import Move

STEPS = MathSteps()


@pytest.mark.parametrize(
    "reply", ["01", b"01", bytearray(2), {0.9: "a", 0.1: "b"}, {0.9, 0.1}, {0.9: 0, 0.1: 0}.keys()]
)
def test_what_holds_no_scores_in_order_is_no_reply(reply: Any) -> None:
    """A text would be read by its characters, a mapping by its keys."""
    state = STEPS.initial_state(STEPS.read("What is 6 times 7?", problem_id="p"), budget=4)
    moves = tuple(
        one for one in map(STEPS.parse, ("6 * 7 = 42.", "So 42.")) if isinstance(one, Move)
    )
    assert len(moves) == 2
    with pytest.raises(ProtocolError, match=r"expected 2 scores in \[0, 1\], one a step"):
        CalledVerifier(lambda question, steps: reply).verify([VerifyItem(state, moves)])


def test_an_async_function_is_refused_in_a_sentence() -> None:
    async def waits(question: str, steps: list[str]) -> list[float]:
        return []

    with pytest.raises(ProtocolError, match="waits: given an async function, expected a plain one"):
        call(waits, "What?", [])


def typed(source: str) -> dict[str, Any]:
    """What a script or a notebook defines."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(source, space)
    return space


SOURCE = """
def score(question, steps):
    return [1.0] * len(steps)

class Scorer:
    @classmethod
    def score(cls, question, steps):
        return [1.0] * len(steps)
"""


def test_functions_of_two_scripts_are_two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By their files; what a notebook defines has none, and needs an identity."""
    space = typed(SOURCE)
    for one in (space["score"], space["Scorer"].score):
        places = []
        for file in ("one.py", str(tmp_path / "two.py")):
            monkeypatch.setattr(sys.modules["__main__"], "__file__", file, raising=False)
            assert has_a_place(one)
            places.append(place_of(one))
        assert str(Path("one.py").absolute()) in places[0] and places[0] != places[1]
        monkeypatch.delattr(sys.modules["__main__"], "__file__")
        assert not has_a_place(one)
    space["score"].identity = "mine"
    assert has_a_place(space["score"]) and place_of(space["score"]) == "function called mine"
