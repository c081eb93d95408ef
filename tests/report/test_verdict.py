"""The sentences that the report opens with, from tables written by hand."""

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


def said(calls: pd.DataFrame, near: pd.DataFrame, *targets: Target) -> tuple[str, ...]:
    return verdict({"equal_calls": calls, "near_best": near}, targets, problems=50)


def test_it_says_where_the_method_is_better_worse_and_neither() -> None:
    calls = equal_calls({"full": [(0.1, 0.05, 0.15), (0.01, -0.02, 0.04), (-0.05, -0.08, -0.01)]})
    first, second = said(calls, near_best({"full": 2.0, HULL: 4.0}))
    assert first == (
        "Ours (full) against the best mixture of all baselines, verifier calls a problem, 50 "
        "problems: more accurate with at most 1 (70.0 % against 60.0 % at 1, +10.0 [+5.0, +15.0] "
        "points); less accurate with at most 4 (55.0 % against 60.0 % at 4, -5.0 [-8.0, -1.0] "
        "points); no difference beyond chance with at most 2."
    )
    assert second == (
        "It comes within 1 point of the mixture's best accuracy (60.0 %) with 2.0 [1.0, 3.0] "
        "calls, the mixture with 4.0 [3.0, 5.0]: 0.50 [0.40, 0.60] of them."
    )


def test_what_is_not_reached_or_missed_is_said() -> None:
    calls = equal_calls({"full": [None, None, None]})
    missed = Target("a", "Gain, points", 1.234, minimum=3.4)
    unknown = Target("b", "Ratio", None, maximum=0.5)
    met = Target("c", "pass@1", 0.3, minimum=0.25)
    first, second, third = said(calls, near_best({"full": NAN, HULL: 4.0}), missed, unknown, met)
    assert first.endswith("50 problems: nothing was cheap enough to compare.")
    assert second == "It does not come within 1 point of the mixture's best accuracy (60.0 %)."
    assert third == (
        "Missed, 2 of 3 targets: Gain, points (1.23, goal at least 3.4); "
        "Ratio (no value, goal at most 0.5)."
    )
    more = said(calls, near_best({"full": NAN, HULL: 4.0}), missed, unknown, missed, met)[-1]
    assert more.startswith("Missed, 3 of 4 targets: Gain")
    assert more.endswith("goal at most 0.5); the others stand under Targets.")
    assert (
        said(calls, near_best({"full": NAN, HULL: 4.0}), met)[-1] == "Every target is met, 1 of 1."
    )


def test_a_vote_that_gains_more_than_full_is_told_too() -> None:
    worse = [(-0.1, -0.2, -0.05)] * 3
    better = [(0.02, -0.01, 0.05)] * 3
    near = near_best({"full": NAN, "ranked_vote": 0.0, HULL: 0.0})
    found = said(equal_calls({"full": worse, "ranked_vote": better}), near)
    assert [one.partition(" against")[0] for one in found[::2]] == [
        "Ours (full)",
        "Ours, ranked vote",
    ]
    assert found[3].endswith("with 0.0 [-1.0, 1.0] calls, the mixture with 0.0 [-1.0, 1.0].")
    late = [None, (0.01, -0.1, 0.1), (0.01, -0.1, 0.1)]
    early = [(0.3, 0.2, 0.4), (0.0, -0.1, 0.1), (0.0, -0.1, 0.1)]
    assert len(said(equal_calls({"full": late, "ranked_vote": early}), near)) == 2
    alone = said(equal_calls({"full": better, "ranked_vote": worse}), near)
    assert len(alone) == 2
