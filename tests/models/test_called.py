"""Functions of the user's as verifiers, and what tells them apart in a cache."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selverify
from selverify import SolveSettings
from selverify.domains.math_steps import MathSteps
from selverify.errors import ParamsError, ProtocolError
from selverify.models.called import (
    CalledVerifier,
    batched,
    call,
    has_a_place,
    is_batched,
    place_of,
)
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


def next_steps(question: str, steps: list[str], n: int) -> list[str]:
    """Different ones, some of them wrong, and answers after two or three steps."""
    place = len("".join((question, *steps)))
    if len(steps) > 1 + place % 2:
        return [rf"The answer is \boxed{{{place % 3}}}."] * n
    return [f"So {place} + {one} = {place + one + (one % 3 == 1)}." for one in range(n)]


def step_scores(question: str, steps: list[str]) -> list[float]:
    return [len(one) * 7 % 10 / 10 for one in steps]


class Batched:
    """The same functions for many requests at once; it counts the calls and the requests."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    @batched
    def generate(self, requests: list[tuple[str, list[str], int]]) -> list[list[str]]:
        self.sizes.append(len(requests))
        return [next_steps(*one) for one in requests]

    @batched
    def score(self, requests: list[tuple[str, list[str]]]) -> np.ndarray | list[Any]:
        self.sizes.append(len(requests))
        return (np.array(step_scores(*one)) for one in requests)


QUESTIONS = [f"{'What? ' * one}" for one in range(1, 7)]


@pytest.mark.parametrize("method", ["majority", "best_of_n", "beam_snell", "gates_only"])
@pytest.mark.parametrize("concurrency", [0, 4])
def test_batched_functions_find_what_plain_ones_find(method: str, concurrency: int) -> None:
    """In a call a round, whatever number of calls at once is given."""
    models = Batched()
    plain, together = (
        selverify.solve_many(
            QUESTIONS, generator=generator, verifier=verifier, method=method, calls=8,
            settings=SolveSettings(concurrency=concurrency, max_moves=5),
        )
        for generator, verifier in ((next_steps, step_scores), (models.generate, models.score))
    )  # fmt: skip
    assert together == plain
    assert any(one.answer is not None for one in plain)
    assert max(models.sizes) >= len(QUESTIONS)
    assert len(models.sizes) < sum(models.sizes) / 3


def test_a_batched_function_fills_a_cache_with_whole_batches(tmp_path: Path) -> None:
    settings = SolveSettings(cache=tmp_path / "replies.sqlite")
    models = Batched()
    models.identity = "mine"
    for _ in range(2):
        solved = selverify.solve_many(QUESTIONS, generator=models.generate, settings=settings)
        before = len(models.sizes)
    assert max(models.sizes) > len(QUESTIONS) and len(models.sizes) == before
    assert solved == selverify.solve_many(QUESTIONS, generator=next_steps)
    models.identity = None
    with pytest.raises(ParamsError, match="expected functions that are told apart"):
        selverify.solve("What?", generator=models.generate, settings=settings)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda requests: [], "given [], expected 8 replies, one a request"),
        (lambda requests: None, "given None, expected 8 replies"),
        (lambda requests: "12345678", "given '12345678', expected 8 replies"),
        (lambda requests: ["x"] * len(requests), "given 'x' for"),
        (lambda requests: [["x", "y"]] * len(requests), "given ['x', 'y'] for"),
        (lambda requests: [[1]] * len(requests), "expected 1 texts"),
        (lambda requests: 1 / 0, "raised ZeroDivisionError"),
        (lambda requests: (1 / 0 for _ in requests), "raised ZeroDivisionError"),
        (lambda question, steps, n: ["x"] * n, "missing 2 required positional arguments"),
    ],
)
def test_what_a_batched_function_must_not_reply(reply: Callable[..., Any], message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        selverify.solve("What?", generator=batched(reply), calls=8)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_can_be_batched() -> None:
    assert is_batched(batched(partial(next_steps)))

    class Model:
        """Its methods may be of the class."""

        @batched
        @staticmethod
        def one(requests: list[tuple[str, list[str], int]]) -> list[list[str]]:
            return [["The answer is 4."] * n for _, _, n in requests]

        @classmethod
        @batched
        def two(cls, requests: list[tuple[str, list[str], int]]) -> list[list[str]]:
            return cls.one(requests)

    for method in (Model.one, Model().one, Model.two):
        assert selverify.solve("What?", generator=method).answer == "4"
    for wrong in (Batched().generate, len, 5, None):
        with pytest.raises(ParamsError, match=r"batched: given .*, expected a function"):
            batched(wrong)  # type: ignore[type-var]


def test_no_function_is_called_after_a_batched_one_has_failed() -> None:
    """Those under way end; at four at once, eight candidates a question are eight calls."""
    failed = threading.Event()
    begun: list[bool] = []

    @batched
    def steps(requests: list[tuple[str, list[str], int]]) -> list[list[str]]:
        if any(said for _, said, _ in requests):
            failed.set()
            raise RuntimeError("out of memory")
        return [[f"Step {one}." for one in range(n)] for _, _, n in requests]

    def score(question: str, said: list[str]) -> list[float]:
        begun.append(failed.is_set())
        time.sleep(0.1 if "slow" in question else 0.001)
        return [0.9] * len(said)

    with pytest.raises(ProtocolError, match="raised RuntimeError: out of memory"):
        selverify.solve_many(
            ["fast?", "slow?"], generator=steps, verifier=score, method="gates_only",
            settings=SolveSettings(concurrency=4),
        )  # fmt: skip
    time.sleep(0.5)
    assert begun and not any(begun)


def test_a_solution_ends_where_a_function_says_nothing() -> None:
    """It is not asked again with steps that are none."""
    asked: list[list[str]] = []

    def generate(question: str, steps: list[str], n: int) -> list[str]:
        asked.append(steps)
        return ["" if steps else "So 2 + 2 = 4."] * n

    solved = selverify.solve("What?", generator=generate, calls=2)
    assert solved.answer is None and asked == [[], ["So 2 + 2 = 4."]] * 2
