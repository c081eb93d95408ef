"""A domain is one class, one row of ``selverify.domains`` and its sections of ``params.yaml``."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pandas as pd
import pytest
import yaml
from fake_backend import FakeBackend

from selverify import domains
from selverify.data.benchmark import Task, build
from selverify.domains.base import GeneratedDomain, NumberAnswer, arguments_of, context_of
from selverify.errors import ParamsError
from selverify.experiment.evaluation import evaluate
from selverify.experiment.methods import Conditions
from selverify.models.threshold import with_tau
from selverify.params import Params, check_params
from selverify.types import Arguments, Candidate, Malformed, Move, Problem, State, Truth

WORDS = MappingProxyType({str(value): value for value in range(100)})
PARAMS = Path(__file__).parents[2] / "params.yaml"


class Add(Arguments):
    """``total`` is the sum so far and ``digit``."""

    digit: int
    total: int


@dataclass(frozen=True, slots=True)
class Sums:
    """The tracked constraints l: digits not yet added, their sum so far, the answer."""

    left: tuple[int, ...]
    total: int
    answer: int | None


class Adding(GeneratedDomain):
    """Add the digits of a text from left to right."""

    name = "adding"
    end_of_move = ";"
    vocabulary = ("sum", "+", "=", "answer", ";", *WORDS)
    operators = MappingProxyType({"add": Add, "answer": NumberAnswer})

    def generate(self, rng, *, problem_id, minimum, maximum, hard=0.0):
        digits = [rng.randint(1, 9) for _ in range(rng.randint(minimum, maximum))]
        problem = self.read(f"sum {' '.join(map(str, digits))}", problem_id=problem_id)
        return problem, Truth(problem_id, str(sum(digits)), "")

    def read(self, text: str, *, problem_id: str) -> Problem:
        return Problem(problem_id, self.name, text, "sum")

    def fingerprint(self, problem: Problem) -> str:
        return problem.text

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        digits = tuple(WORDS[word] for word in problem.text.split()[1:])
        return State(problem, (), Sums(digits, 0, None), budget)

    def parse(self, text: str) -> Candidate:
        match text.split():
            case ["answer", value, ";"] if value in WORDS:
                return Move("answer", NumberAnswer(value=WORDS[value]), text)
            case ["+", digit, "=", total, ";"] if {digit, total} <= WORDS.keys():
                return Move("add", Add(digit=WORDS[digit], total=WORDS[total]), text)
        return Malformed(text[:99], "no move")

    def apply(self, state: State, move: Move) -> State:
        sums = context_of(state, Sums)
        if move.op == "answer":
            after = replace(sums, answer=arguments_of(move, NumberAnswer).value)
        else:
            after = Sums(sums.left[1:], arguments_of(move, Add).total, None)
        return State(state.problem, (*state.derivation, move), after, state.budget)

    def context_violation(self, state: State, move: Move) -> str | None:
        sums = context_of(state, Sums)
        if move.op == "answer":
            return "digits are left" if sums.left else None
        return None if arguments_of(move, Add).digit in sums.left[:1] else "another digit"

    def answer(self, state: State) -> str | None:
        given = context_of(state, Sums).answer
        return None if given is None else str(given)

    def solution(self, problem, truth, rng, *, misread=0.0):
        digits = context_of(self.initial_state(problem, budget=0), Sums).left
        totals = [sum(digits[: count + 1]) for count in range(len(digits))]
        texts = [f"+ {digit} = {total} ;" for digit, total in zip(digits, totals, strict=True)]
        return tuple(map(self.parse, (*texts, f"answer {totals[-1]} ;")))

    def drill(self, rng, *, recall):
        return None

    def alive(self, state: State, truth: Truth) -> bool:
        sums = context_of(state, Sums)
        return str(sums.total + sum(sums.left)) == truth.answer

    def right(self, state: State, move: Move, truth: Truth) -> bool:
        return self.alive(self.apply(state, move), truth)


DOMAIN = Adding()


@pytest.fixture
def params(monkeypatch: pytest.MonkeyPatch) -> Params:
    """The project's parameters with the sections of the new domain, which has its row."""
    for table in ("DOMAINS", "GENERATED"):
        monkeypatch.setattr(domains, table, {**getattr(domains, table), DOMAIN.name: DOMAIN})
    raw = yaml.safe_load(PARAMS.read_text(encoding="utf-8"))
    sizes = {"minimum": 2, "maximum": 4, "hard": 0.0}
    splits = {name: {"problems": 6, "seed": 1} for name in ("train", "validation", "test")}
    raw["domain"] = DOMAIN.name
    raw["benchmark"][DOMAIN.name] = {**sizes, **splits}
    raw["generator"][DOMAIN.name] = raw["generator"]["countdown"]
    raw["sampling"][DOMAIN.name] = raw["sampling"]["countdown"]
    raw["verifier"]["kind"][DOMAIN.name] = "value"
    raw["verifier"]["aggregation"][DOMAIN.name] = "last"
    raw["verifier"]["targets"][DOMAIN.name] = "soft"
    raw["evaluation"] |= {"problems": 6, "budgets": [4], "headline_budget": 4}
    return with_tau(check_params(raw, PARAMS), 0.4)


def propose(state: State, rng: random.Random) -> str:
    """The next sum, one too high at times, or nonsense."""
    sums = context_of(state, Sums)
    if rng.random() < 0.2:
        return "+ + ;"
    if not sums.left:
        return f"answer {sums.total} ;"
    return f"+ {sums.left[0]} = {sums.total + sums.left[0] + (rng.random() < 0.2)} ;"


def tasks_of(params: Params) -> list[Task]:
    tasks = build(domains.generated_by_name(DOMAIN.name), params.benchmark[DOMAIN.name])
    return [task for task in tasks if task.split == "test"]


def test_it_is_generated_and_its_solutions_pass_the_gates(params: Params) -> None:
    """Every derivation ends in the true answer."""
    for task in (tasks := tasks_of(params)):
        state = DOMAIN.initial_state(task.problem, budget=4)
        for move in DOMAIN.solution(task.problem, task.truth, random.Random(1)):
            assert DOMAIN.context_violation(state, move) is None
            state = DOMAIN.apply(state, move)
        assert DOMAIN.answer(state) == task.truth.answer and DOMAIN.is_final(state)
        assert DOMAIN.serialise(state).startswith(task.problem.text)
    assert len(tasks) == 6


def test_it_is_searched_by_every_kind_of_method(params: Params) -> None:
    """With the gates, with the oracle and without either; some answers are right."""
    domain = domains.domain_by_name(DOMAIN.name)
    backend = FakeBackend(domain, propose, name="adding", seed=3, max_moves=6)
    rules = Conditions(params=params, dispersion={"hybrid": 0.3, "distance": 0.3}, patterns=())
    methods = ("cot", "best_of_n_gated", "full", "oracle")
    rows = evaluate(domain, backend, tasks_of(params), rules, methods=methods, report=print)
    correct = pd.DataFrame(rows).groupby("method")["correct"].mean()
    assert set(correct.index) == set(methods)
    assert correct["oracle"] > 0.5 and correct["full"] > 0.0


def test_params_name_a_domain_that_has_no_benchmark(params: Params) -> None:
    """A misspelt name is refused with those there are, wherever it stands."""
    raw = params.model_dump(mode="json")
    with pytest.raises(
        ParamsError, match=r"domain: given 'addin', expected one of word_problems, .*"
    ):
        check_params({**raw, "domain": "addin"}, PARAMS)
    sampling = {**raw["sampling"], "addin": raw["sampling"]["adding"]}
    with pytest.raises(ParamsError, match=r"sampling: given 'addin', expected one of .*adding"):
        check_params({**raw, "sampling": sampling}, PARAMS)
