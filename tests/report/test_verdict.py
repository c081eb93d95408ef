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
    """Differences to the hull with their ends at B = 1, 2, 4; the hull solves 60 %."""
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


BEGIN = (
    "On 50 problems, against the best mixture of all baselines for as many verifier calls a "
    "problem on average: "
)


def test_it_says_where_the_method_is_better_and_worse() -> None:
    calls = equal_calls({"full": [(0.1, 0.05, 0.15), (0.01, -0.02, 0.04), (-0.05, -0.08, -0.01)]})
    near = near_best({"full": 2.0, HULL: 4.0})
    assert said(calls, near) == (
        f"{BEGIN}Ours (full) solves 70.0 % with at most 1 call, +10.0 [+5.0, +15.0] points "
        "(below it at 4); it comes within 1 point of the mixture's best (60.0 %) with 2.0 [1.0, "
        "3.0] calls, 0.50 [0.40, 0.60] of the mixture's 4.0."
    )
    everywhere = equal_calls({"full": [(0.05, 0.01, 0.09), (0.2, 0.1, 0.3), (0.1, 0.02, 0.12)]})
    assert "with at most 2 calls, +20.0 [+10.0, +30.0] points (above it at 1 and 4); it" in said(
        everywhere, near
    )


def test_what_is_not_better_is_not_said_to_be() -> None:
    worse = equal_calls({"full": [(-0.1, -0.2, -0.05), (-0.2, -0.3, -0.1), (0.0, -0.1, 0.1)]})
    near = near_best({"full": NAN, HULL: 4.0})
    assert said(worse, near) == (
        f"{BEGIN}Ours (full) solves 40.0 % with at most 2 calls, -20.0 [-30.0, -10.0] points "
        "(below it at 1); it does not come within 1 point of the mixture's best (60.0 %)."
    )
    level = equal_calls({"full": [None, (0.1, -0.1, 0.3), (0.1, -0.1, 0.3)]})
    assert said(level, near).startswith(
        f"{BEGIN}Ours (full) shows no difference beyond chance at 2 and 4; it does not"
    )
    assert said(equal_calls({"full": [None, None, None]}), near).startswith(
        f"{BEGIN}Ours (full) makes too many calls to be compared; it does not"
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


def test_a_vote_is_told_beside_full_where_it_gains_more() -> None:
    """And more than chance; full is told whatever it gains."""
    worse, better = [(-0.1, -0.2, -0.05)] * 3, [(0.02, 0.01, 0.05)] * 3
    near = near_best({"full": NAN, "ranked_vote": 0.0, HULL: 0.0})

    def told(methods: dict[str, Sequence[Cell | None]]) -> list[str]:
        parts = said(equal_calls(methods), near).removeprefix(BEGIN).split("; ")
        return [part.partition(" solves ")[0] for part in parts if part.startswith("Ours")]

    both = said(equal_calls({"full": worse, "ranked_vote": better}), near)
    assert "Ours (full) solves 50.0 % with at most 1 call, -10.0" in both
    assert "; Ours, ranked vote solves 62.0 % with at most 1 call, +2.0 [+1.0, +5.0]" in both
    assert both.endswith("with 0.0 [-1.0, 1.0] calls, the mixture with 0.0 [-1.0, 1.0].")
    assert told({"full": worse, "ranked_vote": better}) == ["Ours (full)", "Ours, ranked vote"]
    assert told({"full": better, "ranked_vote": worse}) == ["Ours (full)"]
    chance = [(0.02, -0.01, 0.05)] * 3
    assert told({"full": worse, "ranked_vote": chance}) == ["Ours (full)"]
    late = [None, (0.01, 0.005, 0.1), (0.01, 0.005, 0.1)]
    early = [(0.3, 0.2, 0.4), (0.0, -0.1, 0.1), (0.0, -0.1, 0.1)]
    assert told({"full": late, "ranked_vote": early}) == ["Ours (full)"], "at the levels of both"
    none = [None, None, None]
    both = told({"full": none, "ranked_vote": better, "selective_vote": none})
    assert both[1:] == ["Ours, ranked vote"]
