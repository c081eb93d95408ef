"""k(w) by hand and as laws."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selverify.search.allocation import calls_at, dispersion, margin, verification_budget

RULES = {"k_base": 2.0, "beta": 1.0, "k_min": 1, "k_max": 4}
scores_lists = st.lists(st.floats(-1e3, 1e3), max_size=9)


@pytest.mark.parametrize(
    ("scores", "expected"), [((), 0.0), ((5.0,), 0.0), ((1.0, 3.0), 1.0), ((2.0, 2.0, 2.0), 0.0)]
)
def test_dispersion_by_hand(scores: tuple[float, ...], expected: float) -> None:
    """The population standard deviation, 0 for fewer than two scores."""
    assert dispersion(scores) == expected


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_dispersion_is_the_library_pstdev(scores: list[float]) -> None:
    """It equals the slow exact implementation."""
    assert math.isclose(dispersion(scores), statistics.pstdev(scores), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("sigma", "reference", "expected"),
    [
        (1.0, 1.0, 2),
        (1.25, 1.0, 3),  # 2.5 rounds up
        (1.2, 1.0, 2),
        (0.0, 1.0, 1),  # 0, clipped
        (9.0, 1.0, 4),  # 18, clipped
        (9.0, 0.0, 2),  # no reference: factor 1
    ],
)
def test_verification_budget_by_hand(sigma: float, reference: float, expected: int) -> None:
    """Eq. kw, rounded half up, clipped."""
    assert verification_budget(sigma, reference=reference, **RULES) == expected


def test_negative_beta_gives_more_calls_to_close_scores() -> None:
    """The prose's reading is the equation with the sign turned."""
    rules = RULES | {"beta": -1.0}
    assert verification_budget(0.5, reference=1.0, **rules) == 3
    assert verification_budget(1.5, reference=1.0, **rules) == 1


@pytest.mark.parametrize(
    ("allocation", "expected"), [("all", 5), ("fixed", 2), ("adaptive", 3), ("margin", 3)]
)
def test_calls_at_a_state_by_allocation(allocation: str, expected: int) -> None:
    """Scores 0, 0.5 and three at 3.5: sigma 1.6, margin 0.5, both against a reference of 1."""
    scores = (0.5, 3.5, 0.0, 3.5, 3.5)
    assert margin(scores) == 0.5
    rules = RULES | {"beta": 1.0 if allocation != "adaptive" else 0.8}
    assert calls_at(scores, allocation=allocation, reference=1.0, **rules) == expected


rules_drawn = st.fixed_dictionaries(
    {
        "allocation": st.sampled_from(["fixed", "adaptive", "margin"]),
        "reference": st.floats(-1, 10),
        "k_base": st.floats(0.1, 100),
        "beta": st.floats(-5, 5),
        "k_min": st.integers(1, 5),
    }
)


@given(scores_lists, rules_drawn, st.integers(0, 5))
def test_calls_stay_between_k_min_and_k_max(
    scores: list[float], rules: dict[str, Any], spread: int
) -> None:
    """Whatever the scores, k_min <= k(w) <= k_max."""
    k_max = rules["k_min"] + spread
    assert rules["k_min"] <= calls_at(scores, k_max=k_max, **rules) <= k_max
