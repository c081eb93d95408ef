"""Word problems: hand-made cases for apply, the gates' facts, the truth and retrieval."""

import itertools
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains.relations import NAMES, PRIME, read_statements
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError, SchemaError
from selverify.search.gates import reject
from selverify.types import Move, Problem, State, Truth

DOMAIN = WordProblems()
TEXT = "of apples 7 are there . we count plums 5 . pears equal apples plus plums . find pears ?"
PROBLEM = Problem("p", "word_problems", TEXT, "find pears ?")
TRUTH = Truth(
    "p",
    "12",
    json.dumps(
        {
            "asked": "pears",
            "needed": ["apples", "pears", "plums"],
            "relations": {
                "apples": ["given", [], 7],
                "plums": ["given", [], 5],
                "pears": ["add", ["apples", "plums"], 0],
            },
        }
    ),
)


def after(*texts: str) -> State:
    state = DOMAIN.initial_state(PROBLEM, budget=9)
    for text in texts:
        move = DOMAIN.parse(text)
        assert isinstance(move, Move)
        state = DOMAIN.apply(state, move)
    return state


GIVENS = ("apples 7 ;", "plums 5 ;")
SUM = "pears = apples 7 + plums 5 = pears 12 ;"


@pytest.mark.parametrize(
    ("before", "move", "reason"),
    [
        ((), "apples 7 ;", None),
        ((), "apples 9 ;", None),
        ((), SUM, "operand not derived"),
        ((), "kites 7 ;", "unknown quantity"),
        ((), "answer 12 ;", "answer before derivation"),
        (GIVENS, "apples 7 ;", "already defined"),
        (GIVENS, SUM, None),
        (GIVENS, "pears = apples 8 + plums 5 = pears 13 ;", "value is not the binding"),
        (GIVENS, "pears = apples 7 + plums 5 = pears 13 ;", "arithmetic"),
        (GIVENS, "pears = plums 5 - apples 7 = pears 21 ;", None),
        (GIVENS, "pears = 3 * apples 7 = pears 21 ;", None),
        ((*GIVENS, SUM), "answer 12 ;", None),
        ((*GIVENS, SUM), "answer 7 ;", "answer is not the binding"),
        ((*GIVENS, SUM, "answer 12 ;"), "apples 7 ;", "after the answer"),
    ],
)
def test_gates(before, move, reason):
    """Each condition is refused for its own reason; a misread text passes, for the verifier."""
    refusal = reject(DOMAIN, after(*before), candidate=DOMAIN.parse(move))
    assert (refusal.reason if refusal else None) == reason


@pytest.mark.parametrize(
    ("moves", "alive"),
    [
        (GIVENS, True),
        ((*GIVENS, SUM), True),
        ((*GIVENS, "pears = plums 5 + apples 7 = pears 12 ;"), True),
        ((*GIVENS, SUM, "answer 12 ;"), True),
        (("apples 9 ;",), False),
        ((*GIVENS, "pears = apples 7 - plums 5 = pears 2 ;"), False),
        ((*GIVENS, "pears = plums 5 - apples 7 = pears 21 ;"), False),
        ((*GIVENS, SUM, "answer 11 ;"), False),
    ],
)
def test_truth_follows_the_text(moves, alive):
    """A derivation is right while every needed quantity uses the relation that the text states."""
    assert DOMAIN.alive(after(*moves), TRUTH) is alive


def test_wrong_distractor_does_no_harm():
    """A quantity that the question does not need may be misread."""
    text = TEXT.replace(" find", " we count nuts 3 . find")
    facts = json.loads(TRUTH.facts)
    facts["relations"]["nuts"] = ["given", [], 3]
    state = DOMAIN.initial_state(replace(PROBLEM, text=text), budget=1)
    move = DOMAIN.parse("nuts 4 ;")
    assert isinstance(move, Move)
    assert DOMAIN.alive(DOMAIN.apply(state, move), Truth("p", "12", json.dumps(facts)))


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("", "given a question about pears, expected one about a quantity .* tells: there is none"),
        ("we count apples 7 .", "given a question about pears, .* that a statement tells: apples"),
        (
            "pears . .",
            "given the sentence 'pears .', expected a statement like 'we count apples 7 .'",
        ),
        (". pears 7 .", r"given the sentence '\. pears 7', expected a statement"),
        ("we count pears 7 , .", "given the sentence 'we count pears 7 ,', expected a statement"),
        ("pears equal 7 .", "given the sentence 'pears equal 7', expected a statement"),
        ("we count pears 23 .", "given the sentence 'we count pears 23', expected a statement"),
        ("we count 7 pears .", "given the sentence 'we count 7 pears', expected a statement"),
        ("find pears ? .", "given the sentence 'find pears \\?', expected a statement"),
        ("we count pears 7 . we count pears 7 .", "given pears again, expected each .* told once"),
        ("we count pears 7 . pears equal 3 times pears .", "given pears again, expected each"),
        (
            "pears equal apples plus nuts . we count nuts 1 .",
            "given pears by apples, which no stat",
        ),
        ("we count pears 7 . figs are 2 taken 3 times .", "given the sentence 'figs are 2 taken"),
        ("we count pears 7 . nuts equal 2 times figs .", "given nuts by figs, which no statement"),
        ("pears equal 3 times pears .", "given pears by each other in a circle, expected"),
        (
            "pears equal 3 times nuts . nuts are pears less figs . we count figs 1 .",
            "given nuts, pears by each other in a circle, expected",
        ),
    ],
)
def test_a_text_that_cannot_be_derived_is_refused(told: str, reason: str) -> None:
    """In one sentence: which statement is none, is missing, stands twice or goes in a circle."""
    with pytest.raises(SchemaError, match=f"^p: {reason}") as caught:
        DOMAIN.read(f"{told} find pears ?".strip(), problem_id="p")
    assert "\n" not in str(caught.value)


@given(
    seed=st.integers(0, 2**32),
    minimum=st.integers(2, len(NAMES)),
    more=st.integers(0, len(NAMES)),
    hard=st.floats(0, 1),
)
@settings(max_examples=300)
def test_every_generated_problem_is_read(seed: int, minimum: int, more: int, hard: float) -> None:
    """Of any size and share of hard statements; what is read is what is meant."""
    maximum = min(minimum + more, len(NAMES))
    problem, truth = DOMAIN.generate(
        random.Random(seed), problem_id="p", minimum=minimum, maximum=maximum, hard=hard
    )
    assert DOMAIN.read(problem.text, problem_id="p") == problem
    sentences = problem.text.split(" . ")[:-1]
    read = {
        name: [relation.op, list(relation.operands), relation.number]
        for name, relation in read_statements(sentences, "p").items()
    }
    assert read == json.loads(truth.facts)["relations"]


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 3), (4, 3), (2, len(NAMES) + 1)])
def test_sizes_outside_the_rules_are_refused(minimum: int, maximum: int) -> None:
    """There are so many names; the error says both sizes."""
    with pytest.raises(ParamsError, match=f"minimum {minimum} and maximum {maximum}"):
        DOMAIN.generate(random.Random(0), problem_id="p", minimum=minimum, maximum=maximum)


def test_pattern_is_name_free_and_comes_back():
    """A verified move's pattern holds no name and gives the move back at its own state."""
    state = after(*GIVENS)
    move = DOMAIN.parse(SUM)
    assert isinstance(move, Move)
    pattern = DOMAIN.pattern(state, move)
    assert pattern is not None
    assert not set(pattern.split()) & set(TEXT.split())
    assert DOMAIN.instantiate(state, pattern) == (move,)
    assert DOMAIN.instantiate(after("apples 7 ;"), pattern) == ()


def test_generated_problems_have_the_stated_size_and_distractors():
    """Sizes stay within bounds, answers are in range, and some quantities are not needed."""
    rng = random.Random(4)
    distractors = 0
    for index in range(200):
        _, truth = DOMAIN.generate(rng, problem_id=str(index), minimum=4, maximum=8, hard=0.5)
        facts = json.loads(truth.facts)
        assert 4 <= len(facts["relations"]) <= 8
        assert 0 <= int(truth.answer) < PRIME
        distractors += len(facts["relations"]) - len(facts["needed"])
    assert distractors > 50


def test_a_misread_derivation_passes_the_gates_and_is_wrong():
    """Gates see bindings and arithmetic, not what a sentence says; only hard ones are misread."""
    rng = random.Random(9)
    wrong = 0
    for index in range(100):
        hard = float(index % 2)
        problem, truth = DOMAIN.generate(rng, problem_id="p", minimum=6, maximum=8, hard=hard)
        state = DOMAIN.initial_state(problem, budget=1)
        for move in DOMAIN.solution(problem, truth, rng, misread=1.0):
            assert reject(DOMAIN, state, candidate=move) is None
            state = DOMAIN.apply(state, move)
        sums = sum(move.op in {"add", "subtract"} for move in state.derivation)
        assert DOMAIN.alive(state, truth) is (hard == 0 or sums == 0)
        wrong += not DOMAIN.alive(state, truth)
    assert wrong > 30


def test_hard_statements_use_the_last_phrasing():
    """All of a problem's statements or none, where the share is 1 or 0."""
    rng = random.Random(10)
    for hard in (0.0, 1.0):
        problem, _ = DOMAIN.generate(rng, problem_id="p", minimum=8, maximum=8, hard=hard)
        words = set(problem.text.split())
        assert bool(words & {"brings", "number", "remain", "come"}) is bool(hard)
        assert bool(words & {"equal", "minus", "together", "less", "taken"}) is not bool(hard)


def test_drills_are_well_formed_and_keep_their_bindings():
    """Moves of a drill parse, claim right arithmetic over bound values, and recall says givens."""
    rng = random.Random(6)
    for index in range(100):
        recall = index % 2 == 0
        told, said = DOMAIN.drill(rng, recall=recall)
        words = told.split()
        values = {a: int(b) for a, b in itertools.pairwise(words) if b.isdigit()}
        assert set(f"{told} {said}".split()) <= set(DOMAIN.vocabulary)
        pieces = [f"{piece.strip()} ;" for piece in said.split(";") if piece.strip()]
        if recall:
            pairs = pieces.pop(0).removesuffix(" ;").split(" + ")
            assert all(values[pair.split()[0]] == int(pair.split()[1]) for pair in pairs)
        state = DOMAIN.initial_state(replace(PROBLEM, text=f"{told} find apples ?"), budget=1)
        for name, value in values.items():
            state = DOMAIN.apply(state, DOMAIN.parse(f"{name} {value} ;"))
        for piece in pieces:
            move = DOMAIN.parse(piece)
            assert isinstance(move, Move)
            assert DOMAIN.context_violation(state, move) is None
            state = DOMAIN.apply(state, move)
