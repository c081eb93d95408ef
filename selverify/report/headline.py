"""What the frontiers say in a few numbers: calls saved, accuracy gained, areas, with intervals.

Knows: outcomes at every budget, resampling of problems. Does not know: text, files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from selverify.experiment.statistics import (
    DIGITS,
    LEVEL,
    Bootstrap,
    FloatArray,
    Point,
    accuracy_at_calls,
    area_under_frontier,
    calls_at_accuracy,
    pareto_frontier,
    with_free,
)
from selverify.report.names import BUDGET_FREE, FULL_METHOD, GATES_ONLY, ordered_methods
from selverify.report.tables import at_budget, best_gated_baseline, points_table

Curve = Sequence[Point]


def headline_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """Full against the best baseline with gates at ``budget``, gates-only and the stricter oracle.

    Args:
        rows: out-of-fold outcomes, one a (method, n, problem_id).

    Returns:
        other; measure; value, low and high (95 %, problems resampled, frontiers drawn anew).
        ``calls_saved``: the share of the other's calls that full does without at the highest
        accuracy that both reach. ``accuracy_gained``: full minus other, in [-1, 1], for as many
        calls as full makes at ``budget``. ``area_gained``: the difference of the mean accuracies
        over a call allowance uniform in [0, budget]. Without a value where the other makes no call.
    """
    points = points_table(at_budget(rows, budget), Bootstrap(1, 0))
    baseline = best_gated_baseline(points)["method"]
    ran = set(rows["method"])
    others = ordered_methods(ran & {baseline, GATES_ONLY, "oracle_selective"})
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for curves, allowance in _resampled(rows, [FULL_METHOD, *others], budget, bootstrap):
        for other in others:
            gains = _gains(curves[FULL_METHOD], curves[other], allowance, float(budget))
            for name, value in gains.items():
                found[other, name].append(value)
    return pd.DataFrame(
        [
            {"other": other, "measure": name, **_interval(values)}
            for (other, name), values in found.items()
        ]
    )


def _resampled(
    rows: pd.DataFrame, methods: Sequence[str], budget: int, bootstrap: Bootstrap
) -> Iterator[tuple[Mapping[str, Curve], float]]:
    """Each method's frontier, and full's calls at ``budget``: as measured, then resampled."""
    free = [one for one in BUDGET_FREE if one in set(rows["method"])]
    measured = {method: _outcomes(rows, method) for method in (*methods, *free)}
    n_of_full = sorted(rows.loc[rows["method"] == FULL_METHOD, "n"].unique()).index(budget)
    problems = measured[FULL_METHOD][0].shape[1]
    for counts in [np.ones((1, problems)), *bootstrap.counts(problems)]:
        means = {
            method: (counts @ calls.T / problems, np.round(counts @ correct.T / problems, DIGITS))
            for method, (calls, correct) in measured.items()
        }
        for draw in range(len(counts)):
            start = max((float(means[one][1][draw].max()) for one in free), default=0.0)
            curves = {
                method: with_free(pareto_frontier(calls[draw], correct[draw]), start)
                for method, (calls, correct) in means.items()
            }
            yield curves, float(means[FULL_METHOD][0][draw, n_of_full])


def _outcomes(rows: pd.DataFrame, method: str) -> tuple[FloatArray, FloatArray]:
    """Calls and correctness of a method, each [budgets, problems]."""
    own = rows[rows["method"] == method]
    calls, correct = (
        own.pivot_table(index="n", columns="problem_id", values=name, aggfunc="first")
        .sort_index()
        .to_numpy(dtype=np.float64)
        for name in ("verifier_calls", "correct")
    )
    return calls, correct


def _gains(full: Curve, other: Curve, allowance: float, limit: float) -> dict[str, float]:
    """The three measures; ``allowance`` and ``limit`` are calls a problem."""
    target = min(full[-1].accuracy, other[-1].accuracy)
    made, needed = calls_at_accuracy(full, target), calls_at_accuracy(other, target)
    own, theirs = (float(accuracy_at_calls(one, [allowance])[0]) for one in (full, other))
    area, area_of_other = (area_under_frontier(one, limit=limit) for one in (full, other))
    return {
        "calls_saved": 1.0 - made / needed if needed and made is not None else float("nan"),
        "accuracy_gained": own - theirs,
        "area_gained": area - area_of_other,
    }


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    """The first value, on the problems themselves, and percentiles of the others."""
    if np.isnan(values[0]):
        return {"value": None, "low": None, "high": None}
    tail = (1.0 - LEVEL) / 2
    low, high = np.nanquantile(values[1:], [tail, 1.0 - tail])
    return {"value": values[0], "low": float(low), "high": float(high)}
