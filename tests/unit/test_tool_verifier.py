"""The tool verifier: exact verdicts on steps, from the text of the problem alone."""

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.backends.base import Verifier
from selverify.domains.algebra import Algebra
from selverify.domains.base import Domain, GeneratedDomain
from selverify.domains.countdown import Countdown
from selverify.domains.math_steps import MathSteps
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.requests import VerifyItem
from selverify.types import Move, Problem, State, Truth
from selverify.verifiers.tool import Checkable, ToolVerifier, checkable

SIZES = {"algebra": (3, 8), "countdown": (3, 4)}
DOMAINS: tuple[GeneratedDomain, ...] = (Algebra(), Countdown())
ALGEBRA = "e1 : 2 x + 3 y = 9 . e2 : 4 x + -3 y = 9 . find x ."
SUM = "add e1 e2 as e3 : 6 x = 9 + 9 = 18 ;"
WRONG_SUM = "add e1 e2 as e3 : 9 x = 9 + 9 = 18 ;"
COUNTDOWN = "use 4 7 8 8 to make 24 ."

over_domains = pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)


def moves(domain: Domain, *texts: str) -> tuple[Move, ...]:
    parsed = tuple(map(domain.parse, texts))
    assert all(isinstance(one, Move) for one in parsed), parsed
    return tuple(one for one in parsed if isinstance(one, Move))


def start(domain: Domain, text: str) -> State:
    return domain.initial_state(domain.read(text, problem_id="p"), budget=4)


def scores(domain: Domain, text: str, *steps: str, after: tuple[str, ...] = ()) -> list[float]:
    state = start(domain, text)
    for move in moves(domain, *after):
        state = domain.apply(state, move)
    (verdict,) = ToolVerifier(domain).verify((VerifyItem(state, moves(domain, *steps)),))
    assert verdict.score == verdict.step_scores[-1]
    return list(verdict.step_scores)


def draw(domain: GeneratedDomain, seed: int) -> tuple[Problem, Truth, tuple[Move, ...]]:
    rng = random.Random(seed)
    minimum, maximum = SIZES[domain.name]
    problem, truth = domain.generate(rng, problem_id="p", minimum=minimum, maximum=maximum)
    return problem, truth, domain.solution(problem, truth, rng)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((SUM, "solve e3 : x = 18 / 6 = 3 ;", "answer 3 ;"), [1, 1, 1]),
        ((SUM, "solve e3 : x = 18 / 9 = 2 ;", "answer 2 ;"), [1, 0, 0]),
        ((WRONG_SUM, "solve e3 : x = 18 / 9 = 2 ;", "answer 2 ;"), [0, 0, 0]),
        (("scale e1 by 7 as e3 : 14 x + 21 y = 7 * 9 = 63 ;", SUM), [1, 0]),
        (("scale e1 by 7 as e3 : 14 x + 21 y = 7 * 9 = 63 ;", SUM.replace("e3", "e4")), [1, 1]),
        ((SUM, SUM.replace("e3", "e4")), [1, 0]),
        (("answer 3 ;",), [0]),
    ],
)
def test_algebra_by_sympy(steps: tuple[str, ...], expected: list[float]) -> None:
    """Consequences score 1, useless ones too; from the first step that is none on, all score 0."""
    assert scores(Algebra(), ALGEBRA, *steps) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (("8 / 8 = 1 left 1 4 7 ;", "7 - 1 = 6 left 4 6 ;", "4 * 6 = 24 left 24 ;"), [1, 1, 1]),
        (("8 / 8 = 1 left 1 4 7 ;", "1 + 4 = 5 left 5 7 ;", "5 + 7 = 12 left 12 ;"), [1, 0, 0]),
        (("8 / 8 = 2 left 2 4 7 ;", "4 + 7 = 11 left 2 11 ;"), [0, 0]),
        (("8 / 8 = 1 left 1 4 6 ;",), [0]),
        (("5 + 8 = 13 left 4 7 13 ;",), [0]),
        (("answer = 24 ;",), [0]),
    ],
)
def test_countdown_by_enumeration(steps: tuple[str, ...], expected: list[float]) -> None:
    """A legal step scores 1 while the target is in reach; false arithmetic scores 0."""
    assert scores(Countdown(), COUNTDOWN, *steps) == expected


def test_an_answer_of_countdown_is_the_target() -> None:
    """Any other answer scores 0, and so does whatever follows an answer."""
    legal = ("8 / 8 = 1 left 1 4 7 ;", "7 - 1 = 6 left 4 6 ;", "4 * 6 = 24 left 24 ;")
    assert scores(Countdown(), COUNTDOWN, "answer = 24 ;", after=legal) == [1]
    assert scores(Countdown(), COUNTDOWN, "answer = 25 ;", after=legal) == [0]
    assert scores(Countdown(), COUNTDOWN, *["answer = 24 ;"] * 2, after=legal) == [1, 0]


def test_steps_of_the_state_count() -> None:
    """After a wrong step in the state nothing scores 1, though it follows from that step."""
    step = "solve e3 : x = 18 / 9 = 2 ;"
    assert scores(Algebra(), ALGEBRA, step, after=(WRONG_SUM,)) == [0]
    assert scores(Algebra(), ALGEBRA, "solve e3 : x = 18 / 6 = 3 ;", after=(SUM,)) == [1]


@over_domains
@given(seed=st.integers(0, 2**32), swaps=st.lists(st.integers(0, 20), max_size=2))
@settings(max_examples=25, deadline=None)
def test_verdicts_are_the_truth(domain: GeneratedDomain, seed: int, swaps: list[int]) -> None:
    """On derivations, some with foreign steps, a score is 1 as long as every step is right."""
    problem, truth, own = draw(domain, seed)
    _, _, foreign = draw(domain, seed + 1)
    steps = list(own)
    for place in swaps:
        steps[place % len(steps)] = foreign[place % len(foreign)]
    state = domain.initial_state(problem, budget=4)
    (verdict,) = ToolVerifier(domain).verify((VerifyItem(state, tuple(steps)),))
    right = []
    for move in steps:
        right.append(domain.right(state, move, truth))
        state = domain.apply(state, move)
    assert verdict.step_scores == tuple(accumulate(map(float, right), lambda a, b: a * b))


@over_domains
def test_a_verdict_depends_on_the_item_alone(domain: GeneratedDomain) -> None:
    """Many items get what each gets alone, whatever id or budget their problem has."""
    verifier = ToolVerifier(domain)
    items = []
    for seed in range(5):
        problem, _, steps = draw(domain, seed)
        items.append(VerifyItem(domain.initial_state(problem, budget=seed + 1), steps))
    together = verifier.verify(items)
    assert together == tuple(verifier.verify((item,))[0] for item in items)
    assert verifier.verify(()) == ()


def test_the_identity_names_tool_and_version() -> None:
    """Verdicts of another tool, or of another version of sympy, are not taken for these."""
    algebra, countdown = (ToolVerifier(domain).identity() for domain in DOMAINS)
    assert "sympy 1" in algebra
    assert algebra != countdown
    verifier: Verifier = ToolVerifier(Algebra())
    assert verifier.identity() == algebra


def test_domains_with_a_tool() -> None:
    """Algebra has its own, countdown is given one, and it plays by the same rules."""
    algebra = Algebra()
    assert checkable(algebra) is algebra
    checked = checkable(Countdown())
    assert isinstance(checked, Checkable) and isinstance(checked, Countdown)
    assert checkable(checked).name == "countdown"


@pytest.mark.parametrize("domain", [WordProblems(), MathSteps()], ids=lambda domain: domain.name)
def test_a_domain_without_a_tool_is_refused(domain: Domain) -> None:
    """What sentences say no tool can tell; the message names the domain."""
    with pytest.raises(ParamsError, match=f"tool for the domain '{domain.name}', expected"):
        ToolVerifier(domain)


def test_moves_of_another_domain_do_not_follow() -> None:
    """They have no meaning here, which is no error."""
    (foreign,) = moves(Countdown(), "answer = 24 ;")
    state = start(Algebra(), ALGEBRA)
    (verdict,) = ToolVerifier(Algebra()).verify((VerifyItem(state, (foreign,)),))
    assert verdict.step_scores == (0.0,)


def test_a_problem_of_another_domain_is_refused() -> None:
    """The error says what a text of this domain looks like."""
    item = VerifyItem(start(Countdown(), COUNTDOWN), moves(Algebra(), "answer 3 ;"))
    with pytest.raises(SchemaError, match="p: given the text 'use 4"):
        ToolVerifier(Algebra()).verify((item,))


def test_an_item_without_steps_breaks_the_protocol() -> None:
    """There is nothing to score."""
    with pytest.raises(ProtocolError, match="p: given no step to verify"):
        ToolVerifier(Algebra()).verify((VerifyItem(start(Algebra(), ALGEBRA), ()),))
