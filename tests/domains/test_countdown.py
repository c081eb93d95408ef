import json
import random
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains.countdown import (
    HIGHEST_NUMBER,
    SIGNS,
    TARGET,
    Combination,
    Countdown,
    Table,
    combinations_of,
    combine,
    solvable,
)
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.search.gates import reject
from selverify.types import Arguments, Malformed, Move, Problem, Rejection, State, Truth

DOMAIN = Countdown()
TRUTH = Truth("p", str(TARGET), "{}")
HANDS = tuple(combinations_with_replacement(range(1, 14), 4))


def problem(*cards: int, target: int = TARGET) -> Problem:
    text = f"use {' '.join(map(str, cards))} to make {target} ."
    return Problem("p", "countdown", text, f"reach {target}")


def start(*cards: int, target: int = TARGET) -> State:
    return DOMAIN.initial_state(problem(*cards, target=target), budget=8)


def move(text: str) -> Move:
    parsed = DOMAIN.parse(text)
    assert isinstance(parsed, Move), parsed
    return parsed


def table(state: State) -> Table:
    assert isinstance(state.context, Table)
    return state.context


def text_of(claim: Combination) -> str:
    op, first, second, result, left = claim
    words = (first, SIGNS[op], second, "=", result, "left", *left, ";")
    return " ".join(map(str, words))


def run(state: State, *texts: str) -> State:
    for text in texts:
        state = DOMAIN.apply(state, move(text))
    return state


@cache
def classic(numbers: tuple[Fraction, ...]) -> bool:
    """The slow obvious solver of the classic rules: fractions and negative numbers allowed."""
    if len(numbers) == 1:
        return numbers[0] == TARGET
    for i, j in permutations(range(len(numbers)), 2):
        a, b = numbers[i], numbers[j]
        rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
        results = [a - b, *([a / b] if b else []), *([a + b, a * b] if i < j else [])]
        if any(classic(tuple(sorted([*rest, result]))) for result in results):
            return True
    return False


@cache
def whole(numbers: tuple[int, ...], target: int) -> bool:
    """The slow obvious solver of this domain's rules."""
    if len(numbers) == 1:
        return numbers[0] == target
    for i, j in permutations(range(len(numbers)), 2):
        a, b = numbers[i], numbers[j]
        rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
        results = [a + b, a * b, a - b] + ([a // b] if b and not a % b else [])
        allowed = [result for result in results if 0 <= result <= HIGHEST_NUMBER]
        if any(whole(tuple(sorted([*rest, result])), target) for result in allowed):
            return True
    return False


def test_counts_of_solvable_hands() -> None:
    """Of 1,820 hands the classic rules solve 1,362 and these rules 1,346, all among the former."""
    ours = {hand for hand in HANDS if solvable(hand, TARGET)}
    theirs = {hand for hand in HANDS if classic(tuple(map(Fraction, hand)))}
    assert (len(HANDS), len(theirs), len(ours)) == (1820, 1362, 1346)
    assert ours < theirs


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_solvable_equals_the_slow_solver(numbers: list[int], target: int) -> None:
    """Exact solvability agrees with a solver that tries every ordered pair."""
    hand = tuple(sorted(numbers))
    assert solvable(hand, target) == whole(hand, target)


def test_a_hand_that_needs_a_fraction_is_not_solvable() -> None:
    """8 / (3 - 8 / 3) is outside these rules."""
    assert classic((Fraction(3), Fraction(3), Fraction(8), Fraction(8)))
    assert not solvable((3, 3, 8, 8), TARGET)


@pytest.mark.parametrize(
    ("op", "first", "second", "result"),
    [
        ("add", 4, 8, 12),
        ("add", 150, 51, None),
        ("multiply", 20, 10, 200),
        ("multiply", 21, 10, None),
        ("subtract", 5, 5, 0),
        ("subtract", 5, 6, None),
        ("divide", 12, 4, 3),
        ("divide", 0, 4, 0),
        ("divide", 12, 5, None),
        ("divide", 12, 0, None),
    ],
)
def test_combine(op: str, first: int, second: int, result: int | None) -> None:
    """Results are whole numbers from 0 to 200, anything else is not allowed."""
    assert combine(op, first, second) == result


def test_claims_of_two_numbers() -> None:
    """Each legal combination stands once, the smaller operand of + and * first."""
    found = {(c.op, c.first, c.second, c.result) for c in combinations_of((3, 6))}
    assert found == {
        ("add", 3, 6, 9),
        ("multiply", 3, 6, 18),
        ("subtract", 6, 3, 3),
        ("divide", 6, 3, 2),
    }
    assert len(combinations_of((5, 5, 5))) == len(set(combinations_of((5, 5, 5)))) == 4


@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(0, 1))
@settings(max_examples=30, deadline=None)
def test_generated_hands_have_the_asked_size(seed: int, minimum: int, more: int) -> None:
    """A hand has between minimum and maximum cards of 1 to 13 and is solvable."""
    made, fact = DOMAIN.generate(
        random.Random(seed), problem_id="p", minimum=minimum, maximum=minimum + more
    )
    cards = json.loads(fact.facts)["cards"]
    assert minimum <= len(cards) <= minimum + more
    assert all(1 <= card <= 13 for card in cards)
    assert sorted(made.text.split()[1:-4]) == sorted(map(str, cards))
    assert solvable(tuple(cards), TARGET)


@pytest.mark.parametrize(("minimum", "maximum"), [(1, 4), (4, 3), (4, 7)])
def test_sizes_outside_the_rules_are_refused(minimum: int, maximum: int) -> None:
    """One card can never make 24 and seven are too many to solve: the error names both sizes."""
    with pytest.raises(ParamsError, match=f"minimum {minimum} and maximum {maximum}"):
        DOMAIN.generate(random.Random(0), problem_id="p", minimum=minimum, maximum=maximum)


def test_solutions_reach_every_alive_first_move() -> None:
    """The first move of a solution is drawn from all moves that keep the target within reach."""
    alive = {c.left for c in combinations_of((2, 3, 4, 4)) if solvable(c.left, TARGET)}
    rng = random.Random(0)
    drawn = {
        DOMAIN.solution(problem(2, 3, 4, 4), TRUTH, rng)[0].args.model_dump()["left"]
        for _ in range(300)
    }
    assert drawn == alive
    assert len(alive) > 1


def test_solution_of_a_hopeless_hand_is_an_error() -> None:
    """A hand without a solution names its problem."""
    with pytest.raises(ParamsError, match=r"p: no solution of 'use 1 1 1 1"):
        DOMAIN.solution(problem(1, 1, 1, 1), TRUTH, random.Random(0))


@pytest.mark.parametrize("recall", [True, False])
def test_a_drill_is_random_play_to_another_target(recall: bool) -> None:
    """Every move passes both gates on the told text, and the target is the last result."""
    rng = random.Random(3)
    sizes = set()
    for _ in range(200):
        text, solved = DOMAIN.drill(rng, recall=recall)
        drilled = DOMAIN.read(text, problem_id="d")
        state = DOMAIN.initial_state(drilled, budget=1)
        sizes.add(len(state.context.numbers))
        assert state.context.target != 24
        for part in solved.split(" ;")[:-1]:
            step = move(f"{part.strip()} ;")
            assert reject(DOMAIN, state, candidate=step) is None
            state = DOMAIN.apply(state, step)
        assert DOMAIN.answer(state) == str(state.context.target)
    assert sizes == {3, 5}


def test_parse_writes_the_canonical_text() -> None:
    """Operands of + and * and the table are put in ascending order, those of - and / are not."""
    assert move("8 + 4 = 12 left 13 12 7 ;").text == "4 + 8 = 12 left 7 12 13 ;"
    assert move("8 + 4 = 12 left 13 12 7 ;") == move("4 + 8 = 12 left 7 12 13 ;")
    assert move("8 - 4 = 4 left 4 ;").text == "8 - 4 = 4 left 4 ;"
    assert move("4 / 8 = 2 left 2 ;").text == "4 / 8 = 2 left 2 ;"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "4 + 8 = 12 left 7 12 13",
        "4 + 8 = 12 7 12 13 ;",
        "4 ^ 8 = 12 left 7 ;",
        "4 + 8 = 201 left 7 ;",
        "04 + 8 = 12 left 12 ;",
        "-4 + 8 = 4 left 4 ;",
        "4 + 8 = 12 left 1_2 ;",
        "answer = 2.4e1 ;",
        "answer = 24 ; answer = 24 ;",
        "4 + 8 = 12 left 12 ; answer = 24 ;",
        "\uff12 + 8 = 10 left 10 ;",
    ],
)
def test_other_text_is_malformed(text: str) -> None:
    """Only the two shapes with whole numbers from 0 to 200 are moves."""
    assert DOMAIN.parse(text) == Malformed(text, "not an operator with its arguments")


def test_long_text_is_cut() -> None:
    """A malformed text keeps its first 200 characters only."""
    assert DOMAIN.parse("4 " * 500) == Malformed("4 " * 100, "too long")


@pytest.mark.parametrize(
    ("text", "gate", "reason"),
    [
        ("5 + 8 = 13 left 7 13 13 ;", "structural", "operand not available"),
        ("4 + 4 = 8 left 7 8 13 ;", "structural", "operand not available"),
        ("4 - 8 = 4 left 4 7 13 ;", "structural", "difference is negative"),
        ("13 / 4 = 3 left 3 7 8 ;", "structural", "division is not exact"),
        ("answer = 24 ;", "structural", "answer before one number is left"),
        ("4 + 8 = 13 left 7 13 13 ;", "context", "arithmetic"),
        ("4 + 8 = 12 left 7 8 12 13 ;", "context", "remaining list"),
        ("4 + 8 = 12 left 12 13 ;", "context", "remaining list"),
        ("4 + 8 = 12 left ;", "context", "remaining list"),
    ],
)
def test_gate_reasons(text: str, gate: str, reason: str) -> None:
    """Each broken rule at the hand 4 7 8 13 is refused by its gate with its reason."""
    assert reject(DOMAIN, start(4, 7, 8, 13), candidate=move(text)) == Rejection(gate, reason)


@pytest.mark.parametrize(
    ("cards", "text", "reason"),
    [
        ((0, 5), "5 / 0 = 0 left 0 ;", "division by zero"),
        ((100, 101), "100 + 101 = 200 left 200 ;", "result above 200"),
        ((20, 13), "13 * 20 = 200 left 200 ;", "result above 200"),
        ((24,), "answer = 23 ;", "answer is not the number left"),
        ((23,), "answer = 24 ;", "answer is not the number left"),
        ((23,), "answer = 23 ;", "answer is not the target"),
    ],
)
def test_gate_reasons_at_other_hands(cards: tuple[int, ...], text: str, reason: str) -> None:
    """Zero divisors, large results and wrong answers are refused with their reason."""
    rejection = reject(DOMAIN, start(*cards), candidate=move(text))
    assert rejection is not None
    assert rejection.reason == reason


def test_a_move_after_the_answer_is_refused() -> None:
    """Nothing passes once an answer was given."""
    state = run(start(24), "answer = 24 ;")
    assert reject(DOMAIN, state, candidate=move("answer = 24 ;")) == Rejection(
        "structural", "after the answer"
    )


def test_a_whole_derivation_by_hand() -> None:
    """The worked example of the module's text: tables, answer, text and liveness at each step."""
    state = start(4, 7, 8, 8)
    assert DOMAIN.serialise(state) == "use 4 7 8 8 to make 24 ."
    state = run(state, "7 - 4 = 3 left 3 8 8 ;", "8 - 8 = 0 left 0 3 ;")
    assert state.context == Table((0, 3), TARGET, None, True)
    assert not DOMAIN.alive(state, TRUTH)
    state = run(start(4, 7, 8, 8), "8 / 8 = 1 left 1 4 7 ;")
    assert DOMAIN.alive(state, TRUTH)
    state = run(state, "7 - 1 = 6 left 4 6 ;", "4 * 6 = 24 left 24 ;")
    assert not DOMAIN.is_final(state)
    assert DOMAIN.answer(state) is None
    state = run(state, "answer = 24 ;")
    assert DOMAIN.is_final(state)
    assert DOMAIN.answer(state) == "24"
    assert state.budget == 8
    assert DOMAIN.serialise(state).endswith("left 24 ; answer = 24 ;")


def test_an_answer_after_a_broken_rule_does_not_count() -> None:
    """The free check: a derivation with one illegal step is final without an answer and dead."""
    state = run(start(4, 7, 8, 8), "4 * 7 = 24 left 24 ;", "answer = 24 ;")
    assert DOMAIN.is_final(state)
    assert DOMAIN.answer(state) is None
    assert not DOMAIN.alive(state, TRUTH)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_alive_equals_the_slow_solver_on_random_walks(seed: int) -> None:
    """Legal moves pass the gates, and alive is what the slow solver says of the table."""
    rng = random.Random(seed)
    state = start(*(rng.randint(1, 13) for _ in range(4)))
    while combinations_of(table(state).numbers):
        assert DOMAIN.alive(state, TRUTH) == whole(table(state).numbers, TARGET)
        step = move(text_of(rng.choice(combinations_of(table(state).numbers))))
        assert reject(DOMAIN, state, candidate=step) is None
        state = DOMAIN.apply(state, step)
    assert DOMAIN.alive(state, TRUTH) == (table(state).numbers == (TARGET,))


def test_fingerprint_ignores_the_order_of_the_cards() -> None:
    """One hand in another order is the same problem; another hand or target is not."""
    assert DOMAIN.fingerprint(problem(4, 7, 8, 8)) == DOMAIN.fingerprint(problem(8, 4, 8, 7))
    assert DOMAIN.fingerprint(problem(4, 7, 8, 8)) != DOMAIN.fingerprint(problem(4, 7, 7, 8))
    assert DOMAIN.fingerprint(problem(4, 8)) != DOMAIN.fingerprint(problem(4, 8, target=12))


def test_patterns_are_endgames() -> None:
    """At most three numbers make a pattern; it comes back only at the same table."""
    step = move("4 * 6 = 24 left 24 ;")
    pattern = DOMAIN.pattern(start(6, 4), step)
    assert pattern is not None
    assert DOMAIN.instantiate(start(4, 6), pattern) == (step,)
    assert DOMAIN.instantiate(start(4, 6, target=10), pattern) == ()
    assert DOMAIN.instantiate(start(4, 6, 6), pattern) == ()
    assert DOMAIN.instantiate(start(4, 6), "24 | 4 6 | nonsense") == ()
    assert DOMAIN.pattern(start(1, 1, 4, 6), move("1 * 1 = 1 left 1 4 6 ;")) is None
    ended = run(start(24), "answer = 24 ;")
    assert DOMAIN.instantiate(ended, "24 | 24 | answer = 24 ;") == ()


@pytest.mark.parametrize(
    "text", ["", "use to make 24 .", "use 4 x to make 24 .", "use 4 7 to make 999 .", "how many ?"]
)
def test_a_problem_of_another_domain_is_refused(text: str) -> None:
    """A text that is no hand raises SchemaError and shows what was expected."""
    with pytest.raises(SchemaError, match="use 4 7 8 8 to make 24"):
        DOMAIN.initial_state(Problem("p", "countdown", text, ""), budget=1)


def test_a_hand_that_is_too_large_is_refused() -> None:
    """Whether it can be solved takes exponentially long to find out."""
    with pytest.raises(SchemaError, match="p: given 7 cards, expected at most 6"):
        DOMAIN.read("use 1 2 3 4 5 6 7 to make 24 .", problem_id="p")


def test_a_state_or_move_of_another_domain_is_refused() -> None:
    """A context that is no table, or a move that combines nothing, is a programmer's error."""
    with pytest.raises(ProtocolError, match="expected Table"):
        DOMAIN.answer(State(problem(4, 6), (), None, 1))
    with pytest.raises(ProtocolError, match="expected a move with the arguments Combine"):
        DOMAIN.structural_violation(start(4, 6), Move("given", Arguments(), "pears = 3 ;"))
