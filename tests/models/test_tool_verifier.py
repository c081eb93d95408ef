"""The tool verifier: exact verdicts on steps, from the text of the problem alone."""

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.domains.base import Domain
from selverify.domains.countdown import Countdown
from selverify.domains.math_steps import MathSteps
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.models.verifiers.tool import ToolVerifier
from selverify.search.requests import VerifyItem
from selverify.types import Move, Problem, State, Truth

DOMAIN = Countdown()
COUNTDOWN = "use 4 7 8 8 to make 24 ."
LEGAL = ("8 / 8 = 1 left 1 4 7 ;", "7 - 1 = 6 left 4 6 ;", "4 * 6 = 24 left 24 ;")


def moves(*texts: str) -> tuple[Move, ...]:
    parsed = tuple(map(DOMAIN.parse, texts))
    assert all(isinstance(one, Move) for one in parsed), parsed
    return tuple(one for one in parsed if isinstance(one, Move))


def start() -> State:
    return DOMAIN.initial_state(DOMAIN.read(COUNTDOWN, problem_id="p"), budget=4)


def scores(*steps: str, after: tuple[str, ...] = ()) -> list[float]:
    state = start()
    for move in moves(*after):
        state = DOMAIN.apply(state, move)
    (verdict,) = ToolVerifier(DOMAIN).verify((VerifyItem(state, moves(*steps)),))
    assert verdict.score == verdict.step_scores[-1]
    return list(verdict.step_scores)


def draw(seed: int) -> tuple[Problem, Truth, tuple[Move, ...]]:
    rng = random.Random(seed)
    problem, truth = DOMAIN.generate(rng, problem_id="p", minimum=3, maximum=4)
    return problem, truth, DOMAIN.solution(problem, truth, rng)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (LEGAL, [1, 1, 1]),
        (("8 / 8 = 1 left 1 4 7 ;", "1 + 4 = 5 left 5 7 ;", "5 + 7 = 12 left 12 ;"), [1, 0, 0]),
        (("8 / 8 = 2 left 2 4 7 ;", "4 + 7 = 11 left 2 11 ;"), [0, 0]),
        (("8 / 8 = 1 left 1 4 6 ;",), [0]),
        (("5 + 8 = 13 left 4 7 13 ;",), [0]),
        (("answer = 24 ;",), [0]),
    ],
)
def test_countdown_by_enumeration(steps: tuple[str, ...], expected: list[float]) -> None:
    """A legal step scores 1 while the target is in reach; false arithmetic scores 0."""
    assert scores(*steps) == expected


def test_an_answer_of_countdown_is_the_target() -> None:
    """Any other answer scores 0, and so does whatever follows an answer."""
    assert scores("answer = 24 ;", after=LEGAL) == [1]
    assert scores("answer = 25 ;", after=LEGAL) == [0]
    assert scores(*["answer = 24 ;"] * 2, after=LEGAL) == [1, 0]


def test_steps_of_the_state_count() -> None:
    """After a wrong step in the state nothing scores 1, though it is right by itself."""
    unreachable = ("8 / 8 = 1 left 1 4 7 ;", "1 + 4 = 5 left 5 7 ;")
    assert scores("5 + 7 = 12 left 12 ;", after=unreachable) == [0]
    false = ("8 / 8 = 2 left 1 4 7 ;",)
    assert scores(LEGAL[1], after=false) == [0]
    assert scores(LEGAL[1], after=LEGAL[:1]) == [1]


@given(seed=st.integers(0, 2**32), swaps=st.lists(st.integers(0, 20), max_size=2))
@settings(max_examples=25, deadline=None)
def test_verdicts_are_the_truth(seed: int, swaps: list[int]) -> None:
    """On derivations, some with foreign steps, a score is 1 as long as every step is right."""
    problem, truth, own = draw(seed)
    _, _, foreign = draw(seed + 1)
    steps = list(own)
    for place in swaps:
        steps[place % len(steps)] = foreign[place % len(foreign)]
    state = DOMAIN.initial_state(problem, budget=4)
    (verdict,) = ToolVerifier(DOMAIN).verify((VerifyItem(state, tuple(steps)),))
    right = []
    for move in steps:
        right.append(DOMAIN.right(state, move, truth))
        state = DOMAIN.apply(state, move)
    assert verdict.step_scores == tuple(accumulate(map(float, right), lambda a, b: a * b))


def test_a_verdict_depends_on_the_item_alone() -> None:
    """Many items get what each gets alone, whatever id or budget their problem has."""
    verifier = ToolVerifier(DOMAIN)
    items = []
    for seed in range(5):
        problem, _, steps = draw(seed)
        items.append(VerifyItem(DOMAIN.initial_state(problem, budget=seed + 1), steps))
    together = verifier.verify(items)
    assert together == tuple(verifier.verify((item,))[0] for item in items)
    assert verifier.verify(()) == ()


@pytest.mark.parametrize("domain", [WordProblems(), MathSteps()], ids=lambda domain: domain.name)
def test_a_domain_without_a_tool_is_refused(domain: Domain) -> None:
    """What sentences say no tool can tell; the message names the domain."""
    with pytest.raises(ParamsError, match=f"tool for the domain '{domain.name}', expected"):
        ToolVerifier(domain)


def test_what_cannot_be_scored_is_refused() -> None:
    """Moves or a problem of another domain, which mean nothing here, and an item without a step."""
    verifier = ToolVerifier(DOMAIN)
    foreign = MathSteps().parse("So it is 24.")
    assert isinstance(foreign, Move)
    with pytest.raises(ProtocolError, match=r"given the move 'So it is 24\.', expected a move"):
        verifier.verify((VerifyItem(start(), (foreign,)),))
    problem = Problem("p", "word_problems", "ann has 3 apples .", "ann apples")
    with pytest.raises(SchemaError, match="p: given the text 'ann has"):
        verifier.verify((VerifyItem(State(problem, (), None, 4), moves("answer = 24 ;")),))
    with pytest.raises(ProtocolError, match="p: given no step to verify"):
        verifier.verify((VerifyItem(start(), ()),))
