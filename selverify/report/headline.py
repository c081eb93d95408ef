"""What the frontiers say in a few numbers: calls saved, accuracy gained, areas, with intervals.

Knows: outcomes at every budget, resampling of problems. Does not know: text, files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from selverify.report.names import BUDGET_FREE, FULL, GATES_ONLY, ORACLES, in_order
from selverify.report.tables import at_budget, best_gated_baseline, points_table

Frontiers = Mapping[str, tuple[Point, ...]]


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
    baseline = best_gated_baseline(points_table(at_budget(rows, budget), Bootstrap(1, 0)))
    others = dict.fromkeys(
        one for one in (baseline, GATES_ONLY, ORACLES[-1]) if one in set(rows["method"])
    )
    unasked = [one for one in BUDGET_FREE if one in set(rows["method"])]
    curves = {method: _outcomes(rows, method) for method in (FULL, *others, *unasked)}
    n_of_full = sorted(rows.loc[rows["method"] == FULL, "n"].unique()).index(budget)
    problems = next(iter(curves.values()))[0].shape[1]
    drawn = [np.ones((1, problems)), *bootstrap.counts(problems)]
    found: dict[tuple[str, str], list[float]] = {}
    for counts in drawn:
        means = {
            method: (
                counts @ calls.T / problems,
                np.round(counts @ correct.T / problems, DIGITS),
            )
            for method, (calls, correct) in curves.items()
        }
        for row in range(len(counts)):
            free = max((float(means[one][1][row].max()) for one in unasked), default=0.0)
            curve = {
                method: with_free(pareto_frontier(calls[row], correct[row]), free)
                for method, (calls, correct) in means.items()
            }
            allowance = float(means[FULL][0][row, n_of_full])
            for other in others:
                for name, measure in _MEASURES.items():
                    value = measure(curve, other, allowance, float(budget))
                    found.setdefault((other, name), []).append(value)
    return pd.DataFrame(
        [
            {"other": other, "measure": name, **_interval(values)}
            for (other, name), values in found.items()
        ]
    ).sort_values("other", key=lambda names: names.map(in_order(list(others)).index), kind="stable")


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


def _calls_saved(curves: Frontiers, other: str, allowance: float, limit: float) -> float:
    target = min(curves[FULL][-1].accuracy, curves[other][-1].accuracy)
    needed = calls_at_accuracy(curves[other], target)
    made = calls_at_accuracy(curves[FULL], target)
    return 1.0 - made / needed if needed and made is not None else float("nan")


def _accuracy_gained(curves: Frontiers, other: str, allowance: float, limit: float) -> float:
    own, theirs = (
        float(accuracy_at_calls(curves[one], np.array([allowance]))[0]) for one in (FULL, other)
    )
    return own - theirs


def _area_gained(curves: Frontiers, other: str, allowance: float, limit: float) -> float:
    full, theirs = (area_under_frontier(curves[one], limit=limit) for one in (FULL, other))
    return full - theirs


_MEASURES: Mapping[str, Callable[[Frontiers, str, float, float], float]] = {
    "calls_saved": _calls_saved,
    "accuracy_gained": _accuracy_gained,
    "area_gained": _area_gained,
}


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    """The first value, on the problems themselves, and percentiles of the others."""
    if np.isnan(values[0]):
        return {"value": None, "low": None, "high": None}
    tail = (1.0 - LEVEL) / 2
    low, high = np.nanquantile(values[1:], [tail, 1.0 - tail])
    return {"value": values[0], "low": float(low), "high": float(high)}
