"""The sentence that the report opens with, from tables written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from selverify.experiment.equal_cost import HULL
from selverify.report.targets import Target
from selverify.report.verdict import verdict

NAN = float("nan")
Cell = tuple[float, float, float]


def equal_calls(methods: dict[str, Sequence[Cell | None]]) -> pd.DataFrame:
    """Differences to the hull with their ends at B = 1, 2, 4; the hull is right in 60 %."""
    rows = [
        {
            "method": method,
            "level": level,
            "accuracy": 0.6 + (cell or (NAN,))[0],
            "difference": (cell or (NAN,))[0],
            "difference_low": NAN if cell is None else cell[1],
            "difference_high": NAN if cell is None else cell[2],
        }
        for method, cells in methods.items()
        for level, cell in zip((1, 2, 4), cells, strict=True)
    ]
    hull = [{"method": HULL, "level": level, "accuracy": 0.6} for level in (1, 2, 4)]
    return pd.DataFrame([*rows, *hull])


def near_best(calls: dict[str, float]) -> pd.DataFrame:
    """Calls with an interval of one to each side, and their ratio to the hull's."""
    return pd.DataFrame(
        [
            {
                "method": method,
                **_ends("verifier_calls", value, 1.0),
                **_ends("ratio", value / calls[HULL] if calls[HULL] else NAN, 0.1),
            }
            for method, value in calls.items()
        ]
    )


def _ends(name: str, value: float, arm: float) -> dict[str, float]:
    return {name: value, f"{name}_low": value - arm, f"{name}_high": value + arm}


def said(calls: pd.DataFrame, near: pd.DataFrame, *targets: Target) -> str:
    return verdict({"equal_calls": calls, "near_best": near}, targets, problems=50)


def test_it_says_where_the_method_is_better_and_worse() -> None:
    calls = equal_calls({"full": [(0.1, 0.05, 0.15), (0.01, -0.02, 0.04), (-0.05, -0.08, -0.01)]})
    assert said(calls, near_best({"full": 2.0, HULL: 4.0})) == (
        "Ours (full) is right in 70.0 % of 50 problems with at most 1 verifier call each, +10.0 "
        "[+5.0, +15.0] points against the best mixture of all baselines (below it with at most 4); "
        "it comes within 1 point of the mixture's best (60.0 %) with 2.0 [1.0, 3.0] calls, 0.50 "
        "[0.40, 0.60] of the mixture's 4.0."
    )
    everywhere = equal_calls({"full": [(0.05, 0.01, 0.09), (0.2, 0.1, 0.3), (0.1, 0.02, 0.12)]})
    assert "with at most 2 verifier calls each, +20.0 [+10.0, +30.0] points against " in said(
        everywhere, near_best({"full": 2.0, HULL: 4.0})
    )
    assert "baselines (above it with at most 1 or 4); it" in said(
        everywhere, near_best({"full": 2.0, HULL: 4.0})
    )


def test_what_is_not_better_is_not_said_to_be() -> None:
    worse = equal_calls({"full": [(-0.1, -0.2, -0.05), (-0.2, -0.3, -0.1), (0.0, -0.1, 0.1)]})
    near = near_best({"full": NAN, HULL: 4.0})
    assert said(worse, near) == (
        "Ours (full) is right in 40.0 % of 50 problems with at most 2 verifier calls each, -20.0 "
        "[-30.0, -10.0] points against the best mixture of all baselines (below it with at most "
        "1); it does not come within 1 point of the mixture's best (60.0 %)."
    )
    level = equal_calls({"full": [(0.1, -0.1, 0.3)] * 3})
    assert said(level, near).startswith(
        "Ours (full) is as right as the best mixture of all baselines, but for chance, on 50 "
        "problems; it does not"
    )
    assert said(equal_calls({"full": [None, None, None]}), near).startswith(
        "Ours (full) asks too often on 50 problems to be compared with the best mixture"
    )


def test_what_is_missed_is_counted_and_the_first_is_named() -> None:
    calls, near = equal_calls({"full": [None, None, None]}), near_best({"full": NAN, HULL: 4.0})
    missed = Target("a", "Gain, points", 1.234, minimum=3.4)
    unknown = Target("b", "Ratio", None, maximum=0.5)
    met = Target("c", "pass@1", 0.3, minimum=0.25)
    assert said(calls, near, met, missed, unknown).endswith(
        "; missed: 2 of 3 targets, first Gain, points (1.23, goal at least 3.4)."
    )
    assert said(calls, near, unknown).endswith("first Ratio (no value, goal at most 0.5).")
    assert said(calls, near, met).endswith("; missed: none of 1 targets.")


def test_a_vote_is_told_where_it_gains_more_than_full() -> None:
    worse, better = [(-0.1, -0.2, -0.05)] * 3, [(0.02, -0.01, 0.05)] * 3
    near = near_best({"full": NAN, "ranked_vote": 0.0, HULL: 0.0})

    def told(methods: dict[str, Sequence[Cell | None]]) -> str:
        return said(equal_calls(methods), near).partition(" is ")[0]

    vote = said(equal_calls({"full": worse, "ranked_vote": better}), near)
    assert vote.startswith("Ours, ranked vote is as right as")
    assert vote.endswith("with 0.0 [-1.0, 1.0] calls, the mixture with 0.0 [-1.0, 1.0].")
    assert told({"full": better, "ranked_vote": worse}) == "Ours (full)"
    late = [None, (0.01, -0.1, 0.1), (0.01, -0.1, 0.1)]
    early = [(0.3, 0.2, 0.4), (0.0, -0.1, 0.1), (0.0, -0.1, 0.1)]
    assert told({"full": late, "ranked_vote": early}) == "Ours (full)", "at the levels of both"
    none = [None, None, None]
    assert told({"full": none, "ranked_vote": better, "selective_vote": none}) == (
        "Ours, ranked vote"
    )
