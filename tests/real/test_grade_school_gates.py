"""What the gates of ``grade_school`` refuse of right solutions that nobody here wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import pytest
import recorded

from selverify.data.gold_moves import annotated_moves, ends_in, gold_solutions
from selverify.data.near_duplicates import apart_from, shared_phrases
from selverify.data.text_benchmarks import load_known, load_questions
from selverify.domains import grade_school
from selverify.domains.base import context_of
from selverify.domains.grade_school import CONSTANTS, GradeSchool, Sheet
from selverify.domains.line_arithmetic import read_expression
from selverify.search.gates import reject
from selverify.types import Candidate, Move, State

PROBLEMS = recorded.DATA / "problems"
TRAIN = PROBLEMS / "gsm8k_train.jsonl.gz"
TEST = PROBLEMS / "gsm8k_test.jsonl.gz"
SVAMP = PROBLEMS / "svamp.jsonl.gz"
MOST_FALSE = 0.005
LEAST_SOLUTIONS = 10
"""That use a constant without a source."""
DOMAIN = GradeSchool()

pytestmark = pytest.mark.skipif(
    not TRAIN.is_file(), reason=f"{TRAIN}: no such file; the recorded data is no part of this"
)


@dataclass(frozen=True)
class Step:
    """A move of a written solution, the state before it, and whether the solution is right."""

    question_id: str
    state: State
    candidate: Candidate
    right: bool

    @cached_property
    def reason(self) -> str | None:
        """The first word of why a gate refuses it."""
        refusal = reject(DOMAIN, self.state, candidate=self.candidate)
        return None if refusal is None else refusal.reason.partition(":")[0]


@cache
def steps() -> tuple[Step, ...]:
    """The annotated moves and the answer of every training solution, refused or not."""
    return tuple(_walk())


def _walk() -> Iterator[Step]:
    for question in load_known("gsm8k_train", TRAIN).items:
        moves = list(annotated_moves(question.written, words=False))
        right = ends_in(moves, question.answer)
        state = DOMAIN.initial_state(DOMAIN.read(question.text, problem_id="p"), budget=0)
        for move in (*moves, DOMAIN.parse(f"Answer {question.answer}")):
            yield Step(question.question_id, state, move, right)
            state = DOMAIN.apply(state, move) if isinstance(move, Move) else state


@pytest.mark.soak
def test_each_gate_refuses_few_right_moves() -> None:
    """The structural gate 0.37 %, the context gate none."""
    moves = [one for one in steps() if isinstance(one.candidate, Move)]
    computed = [one for one in moves if one.candidate.op == "compute"]
    refused = Counter(filter(None, (one.reason for one in computed)))
    assert len(computed) == 24_019
    assert refused == {"scope": 89}
    assert refused.total() / len(computed) <= MOST_FALSE


def test_the_answer_gate_refuses_no_answer_that_was_computed() -> None:
    """Where the annotated moves give the gold; where not, no line says the answer."""
    answers = [one for one in steps() if getattr(one.candidate, "op", "") == "answer"]
    found = Counter((one.right, one.reason) for one in answers)
    assert found[True, None] == 7_059
    assert sum(count for (right, why), count in found.items() if right and why) == 0
    assert (found[False, "answer"], found[False, None]) == (358, 56)


@pytest.mark.soak
def test_nearly_all_solutions_can_be_used() -> None:
    """93 %; with labels the same ones."""
    questions = load_known("gsm8k_train", TRAIN)
    bare, left_out = gold_solutions(questions, words=False)
    told, _ = gold_solutions(questions, words=True)
    assert len(bare) == 6_972
    assert left_out == {"ends in another number": 250, "no annotations": 164, "scope": 87}
    assert [one.question_id for one in bare] == [one.question_id for one in told]
    assert max(len(one.moves) for one in bare) <= 10
    labels = [move.rpartition(":")[0] for one in told for move in one.moves[:-1]]
    assert sum(map(bool, labels)) / len(labels) > 0.9
    assert not any(sign.isdigit() for label in labels for sign in label)


def test_a_written_value_is_forced_as_it_stands() -> None:
    """Right lines up to = are completed as the solution writes them, but for percentages."""
    others = []
    for one in steps():
        if isinstance(one.candidate, Move) and one.candidate.op == "compute" and not one.reason:
            begun, _, value = one.candidate.text.rpartition(" ")
            forced = DOMAIN.forced(one.state, begun)
            others += [value] if forced != f" {value}\n" else []
    assert len(others) == 68
    assert [value for value in others if not value.endswith("%")] == []


def test_the_constants_are_what_right_solutions_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers without a source in at least ten of them."""
    monkeypatch.setattr(grade_school, "CONSTANTS", frozenset())
    used = {
        (one.question_id, operand.value)
        for one in steps()
        if one.right and isinstance(one.candidate, Move) and one.candidate.op == "compute"
        for operand in read_expression(one.candidate.text.rpartition("=")[0]).operands
        if not grade_school._is_known(context_of(one.state, Sheet), operand)
    }
    counts = Counter(value for _, value in used)
    assert {value for value, count in counts.items() if count >= LEAST_SOLUTIONS} == CONSTANTS


def test_few_training_questions_share_a_phrase_with_a_test_question() -> None:
    """91 of 7,473 share eight words in a row."""
    train, test = load_known("gsm8k_train", TRAIN), load_known("gsm8k", TEST)
    assert len(shared_phrases(train, test)) == 91
    assert len(apart_from(train, test).items) == 7_382


def test_svamp_is_read_from_a_file() -> None:
    """Its equations pass the gates but for three, whose question or answer does not fit."""
    questions = load_questions(SVAMP)
    assert len(questions.items) == 1_000
    equations = {
        record["id"]: record["equation"] for record in recorded.records("problems/svamp.jsonl.gz")
    }
    refused = 0
    for question in questions.items:
        problem = DOMAIN.read(question.text, problem_id=question.question_id)
        move = DOMAIN.parse(f"{equations[question.question_id]} = {question.answer}")
        state = DOMAIN.initial_state(problem, budget=0)
        refused += reject(DOMAIN, state, candidate=move) is not None
    assert refused == 3
