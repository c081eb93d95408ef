import pytest
from hypothesis import given
from hypothesis import strategies as st

from selverify.domains.countdown import Countdown
from selverify.search.retrieval import PatternCount, PatternStore, wilson_lower_bound
from selverify.types import Move, Problem, State

DOMAIN = Countdown()
RIGHT = "4 * 6 = 24 left 24 ;"
WRONG = "4 + 6 = 10 left 10 ;"


def labelled(cards: str, text: str, accepted: bool) -> tuple[State, Move, bool]:
    problem = Problem("p", "countdown", f"use {cards} to make 24 .", "reach 24")
    move = DOMAIN.parse(text)
    assert isinstance(move, Move)
    return DOMAIN.initial_state(problem, budget=1), move, accepted


def test_build_counts_tries_and_acceptances() -> None:
    """Each pattern has its counts; a move without a pattern leaves no trace."""
    store = PatternStore.build(
        DOMAIN,
        [
            labelled("6 4", RIGHT, True),
            labelled("4 6", WRONG, False),
            labelled("4 6", RIGHT, False),
            labelled("1 1 4 6", "1 * 1 = 1 left 1 4 6 ;", True),
        ],
    )
    assert store.counts == (
        PatternCount(f"24 | 4 6 | {RIGHT}", 2, 1),
        PatternCount(f"24 | 4 6 | {WRONG}", 1, 0),
    )


def test_patterns_rank_by_lower_bound_then_name() -> None:
    """Nine of ten beat one of one; equal bounds go by name; never accepted is never offered."""
    store = PatternStore(
        (
            PatternCount("a", 1, 1),
            PatternCount("b", 10, 9),
            PatternCount("c", 1, 1),
            PatternCount("d", 50, 0),
        )
    )
    assert store.patterns(4) == ("b", "a", "c")
    assert store.patterns(2) == ("b", "a")
    assert store.patterns(0) == ()


def test_wilson_bound_by_hand() -> None:
    """Values of the closed form worked out by hand; no try gives 0."""
    assert wilson_lower_bound(0, 0) == 0.0
    assert wilson_lower_bound(1, 1) == pytest.approx(1 / (1 + 1.959964**2), abs=1e-6)
    assert wilson_lower_bound(5, 10) == pytest.approx(0.236593, abs=1e-6)


@given(st.integers(1, 500), st.data())
def test_wilson_bound_is_below_the_rate_and_grows(tries: int, data: st.DataObject) -> None:
    """0 <= bound <= rate, and one more acceptance never lowers it."""
    accepted = data.draw(st.integers(0, tries - 1))
    bound = wilson_lower_bound(accepted, tries)
    assert 0.0 <= bound <= accepted / tries + 1e-12
    assert bound < wilson_lower_bound(accepted + 1, tries)


def test_a_stored_pattern_gives_its_move_again() -> None:
    """From a verified move to the same move at a matching table."""
    store = PatternStore.build(DOMAIN, [labelled("6 4", RIGHT, True)])
    state, move, _ = labelled("4 6", RIGHT, True)
    (pattern,) = store.patterns(8)
    assert DOMAIN.instantiate(state, pattern) == (move,)
