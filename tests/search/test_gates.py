import random

from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains.countdown import Countdown
from selverify.search.gates import CONTEXT, STRUCTURAL, passes_every_gate, reject
from selverify.types import Move, Problem, Rejection

DOMAIN = Countdown()
START = DOMAIN.initial_state(
    Problem("p", "countdown", "use 4 7 8 8 to make 24 .", "reach 24"), budget=3
)
GOOD = "7 - 4 = 3 left 3 8 8 ;"
OTHER = "8 / 8 = 1 left 1 4 7 ;"
FIRST_BROKEN = "4 - 7 = 3 left 8 ;"
SECOND_BROKEN = "7 - 4 = 2 left 2 8 8 ;"


def move(text: str) -> Move:
    parsed = DOMAIN.parse(text)
    assert isinstance(parsed, Move)
    return parsed


def test_malformed_text_fails_the_structural_gate() -> None:
    """Parseability is the first condition of G_struct; the reason of the parse is kept."""
    rejection = reject(DOMAIN, START, candidate=DOMAIN.parse("let us think"))
    assert rejection == Rejection(STRUCTURAL, "malformed: not an operator with its arguments")


def test_the_structural_gate_speaks_first() -> None:
    """A move that breaks both gates is refused by the structural one."""
    step = move(FIRST_BROKEN)
    assert DOMAIN.context_violation(START, step) is not None
    rejection = reject(DOMAIN, START, candidate=step)
    assert rejection is not None
    assert rejection.gate == STRUCTURAL


def test_the_context_gate_speaks_second() -> None:
    """A move whose symbols fit but whose claim is wrong is refused by the context gate."""
    assert reject(DOMAIN, START, candidate=move(SECOND_BROKEN)) == Rejection(CONTEXT, "arithmetic")


def test_a_right_move_passes() -> None:
    """None means that both gates pass."""
    assert reject(DOMAIN, START, candidate=move(GOOD)) is None


def test_a_passing_derivation_gives_its_last_state() -> None:
    """All moves pass: the state after them comes back, with the budget untouched."""
    texts = (OTHER, "7 - 1 = 6 left 4 6 ;", "4 * 6 = 24 left 24 ;", "answer = 24 ;")
    state = passes_every_gate(DOMAIN, START, moves=map(DOMAIN.parse, texts))
    assert state is not None
    assert DOMAIN.answer(state) == "24"
    assert (len(state.derivation), state.budget) == (4, 3)


def test_one_refused_move_refuses_the_derivation() -> None:
    """A broken, malformed or repeated move anywhere gives None."""
    for last in (SECOND_BROKEN, "nonsense", OTHER):
        assert passes_every_gate(DOMAIN, START, moves=map(DOMAIN.parse, (OTHER, last))) is None


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_gates_never_refuse_a_right_move(seed: int) -> None:
    """The gates are necessary conditions: every move of a right derivation passes at its state."""
    rng = random.Random(seed)
    problem, truth = DOMAIN.generate(rng, problem_id="p", minimum=4, maximum=4)
    start = DOMAIN.initial_state(problem, budget=1)
    state = passes_every_gate(DOMAIN, start, moves=DOMAIN.solution(problem, truth, rng))
    assert state is not None
    assert DOMAIN.answer(state) == truth.answer
