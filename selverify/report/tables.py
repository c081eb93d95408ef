"""The tables of the report, as data frames.

Knows: the ``outcomes`` table and difficulty bins. Does not know: how they were made, text, files.
Shares and accuracies are in [0, 1] in every table.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from selverify.errors import SchemaError
from selverify.experiment.selection import CrossValidated
from selverify.experiment.statistics import (
    DIGITS,
    Bootstrap,
    Interval,
    area_under_frontier,
    calls_at_accuracy,
    mcnemar,
    mean_interval,
    paired_difference,
    pareto_frontier,
    ratio_interval,
    wilson_interval,
    with_free,
)
from selverify.report.names import BUDGET_FREE, FULL, GATED, LEAVE_ONE_OUT, in_order

_INTERVALS = (
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "verifier_calls",
    "verifier_calls_low",
    "verifier_calls_high",
)
COSTS = ("verifier_steps", "generated_moves", "generated_tokens")


class PaperRow(NamedTuple):
    """A row of the paper (Llama 3.2 1B on MATH, N = 64): accuracy in percent, verifier calls."""

    accuracy: float
    calls: float | None


PAPER_ABLATION = {
    "verify_all": PaperRow(45.0, 64.0),
    "gates_only": PaperRow(47.6, 58.0),
    "gates_distance": PaperRow(51.8, 54.0),
    "full": PaperRow(55.2, 44.8),
}


PAPER_METHODS = {
    "cot": PaperRow(30.6, None),
    "best_of_n": PaperRow(42.4, 64.0),
    "majority": PaperRow(44.6, None),
    "beam_keep_b": PaperRow(51.8, 64.0),
    "full": PaperRow(55.2, 44.8),
}
"""The paper's Table 1. Its 64 for majority vote is N: a vote asks no verifier."""


def points_table(rows: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """One row a (method, n): mean accuracy and costs over problems, with 95 % intervals.

    Args:
        rows: out-of-fold outcomes, one a (method, n, problem_id).

    Returns:
        method, n, problems, accuracy, accuracy_low, accuracy_high, verifier_calls,
        verifier_calls_low, verifier_calls_high, verifier_steps, generated_moves,
        generated_tokens, unparsed, timeout (the last two are counts).
    """
    records = []
    for method in in_order(rows["method"].tolist()):
        own = rows[rows["method"] == method]
        for n in sorted(own["n"].unique().tolist()):
            records.append(_point(method, n, own[own["n"] == n], bootstrap))
    return pd.DataFrame(records)


def main_table(rows: pd.DataFrame, *, budget: int, runs: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """:func:`points_table` at one budget, with the paired difference of each method to full.

    ``runs``: how often each problem was run; ``correct`` is a share of them.

    Adds difference, difference_low, difference_high (method minus full, so negative where full is
    more accurate) and mcnemar_p; None in full's own row.

    Raises:
        SchemaError: a method without rows at ``budget``, or methods on different problems.
    """
    chosen = at_budget(rows, budget)
    table = points_table(chosen, bootstrap)
    full = outcomes_of(chosen, FULL)["correct"]
    compared = []
    for method in table["method"]:
        own = outcomes_of(chosen, method)["correct"]
        _check_same_problems(own, full, method)
        compared.append(_comparison(method, own, full, runs, bootstrap))
    return pd.concat([table, pd.DataFrame(compared, dtype=object)], axis=1)


def at_budget(rows: pd.DataFrame, budget: int) -> pd.DataFrame:
    """The rows at ``budget``; of a method without a budget its only rows."""
    kept = []
    for method in in_order(rows["method"].tolist()):
        own = rows[rows["method"] == method]
        n = own["n"].min() if method in BUDGET_FREE else budget
        if not (own["n"] == n).any():
            raise SchemaError(f"outcomes: method {method!r} has no row at n = {budget}")
        kept.append(own[own["n"] == n])
    return pd.concat(kept, ignore_index=True)


def ablation_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """The paper's Table 2, row by row; the last adds the residual, k(w), trust and joint commit.

    Returns:
        method, accuracy and verifier_calls with their intervals, step and its interval (paired
        difference to the row above, in [-1, 1]), calls_ratio and its interval (to the row above),
        paper_accuracy (percent) and paper_calls.
    """
    chosen = at_budget(rows[rows["method"].isin(list(PAPER_ABLATION))], budget)
    points = points_table(chosen, bootstrap).set_index("method")
    records, above = [], None
    for method, paper in PAPER_ABLATION.items():
        own = outcomes_of(chosen, method)
        record: dict[Hashable, object] = {
            "method": method,
            **points.loc[method, list(_INTERVALS)].to_dict(),
        }
        if above is not None:
            record.update(_step(own, above, bootstrap))
        record.update(paper_accuracy=paper.accuracy, paper_calls=paper.calls)
        records.append(record)
        above = own
    return pd.DataFrame(records)


def paper_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """The methods of the paper's Table 1 that were run, beside its own figures.

    Returns:
        method, accuracy and verifier_calls with their intervals, paper_accuracy (percent) and
        paper_calls (None where no verifier is asked).
    """
    points = points_table(
        at_budget(rows[rows["method"].isin(list(PAPER_METHODS))], budget), bootstrap
    ).set_index("method")
    return pd.DataFrame(
        [
            {
                "method": method,
                **points.loc[method, list(_INTERVALS)].to_dict(),
                "paper_accuracy": paper.accuracy,
                "paper_calls": paper.calls,
            }
            for method, paper in PAPER_METHODS.items()
            if method in points.index
        ]
    )


def leave_one_out_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """The full method, and below it each part taken out; empty where none of these was run.

    Returns:
        method, accuracy and verifier_calls with their intervals, generated_tokens, step and its
        interval (paired difference to full, in [-1, 1]), calls_ratio and its interval (to full).
    """
    chosen = rows[rows["method"].isin([FULL, *LEAVE_ONE_OUT]) & (rows["n"] == budget)]
    points = points_table(chosen, bootstrap).set_index("method")
    full = outcomes_of(chosen, FULL)
    records = []
    for method in (one for one in LEAVE_ONE_OUT if one in points.index):
        columns = [*_INTERVALS, "generated_tokens"]
        record: dict[Hashable, object] = {
            "method": method,
            **points.loc[method, columns].to_dict(),
        }
        record.update(_step(outcomes_of(chosen, method), full, bootstrap))
        records.append(record)
    return pd.DataFrame(records)


def by_bin_table(rows: pd.DataFrame, bins: Mapping[str, int], *, budget: int) -> pd.DataFrame:
    """Accuracy and calls of each method in each difficulty bin.

    Accuracy has Wilson intervals: a bin holds few problems, and the bootstrap of a share of 0 or 1
    has no width.

    Returns:
        method, difficulty_bin, problems, accuracy, accuracy_low, accuracy_high, verifier_calls.
    """
    chosen = at_budget(rows, budget)
    chosen = chosen.assign(difficulty_bin=chosen["problem_id"].map(bins))
    if chosen["difficulty_bin"].isna().any():
        raise SchemaError("difficulty: a problem of the outcomes has no bin")
    records = []
    for method in in_order(chosen["method"].tolist()):
        own = chosen[chosen["method"] == method]
        for number in sorted(own["difficulty_bin"].unique().tolist()):
            inside = own[own["difficulty_bin"] == number]
            share = wilson_interval(float(inside["correct"].sum()), len(inside))
            records.append(
                {
                    "method": method,
                    "difficulty_bin": int(number),
                    "problems": len(inside),
                    **interval_columns("accuracy", share),
                    "verifier_calls": float(inside["verifier_calls"].mean()),
                }
            )
    return pd.DataFrame(records)


def frontier_table(points: pd.DataFrame, *, budget: int) -> pd.DataFrame:
    """What each method's frontier of accuracy against measured calls gives.

    Returns:
        method; best_accuracy; area (mean accuracy over a call allowance uniform in [0, budget];
        every frontier begins at the 0-shot accuracy for no call, or at 0 without that row); target
        (accuracy of the best baseline with gates at ``budget``); calls_at_target (None where it
        is not reached).
    """
    free = max(points.loc[points["method"].isin(BUDGET_FREE), "accuracy"].tolist(), default=0.0)
    baseline = best_gated_baseline(points[points["n"] == budget])
    target = float(point_of(points[points["n"] == budget], baseline)["accuracy"])
    records = []
    for method in in_order(points["method"].tolist()):
        own = points[points["method"] == method]
        curve = pareto_frontier(own["verifier_calls"], own["accuracy"])
        records.append(
            {
                "method": method,
                "best_accuracy": curve[-1].accuracy,
                "area": area_under_frontier(with_free(curve, free), limit=float(budget)),
                "target": target,
                "calls_at_target": calls_at_accuracy(curve, target),
            }
        )
    return pd.DataFrame(records)


def settings_table(cross: CrossValidated, *, budget: int) -> pd.DataFrame:
    """Which settings cross-validation chose at ``budget``, and the spread over repetitions.

    Returns:
        method, settings (one for each fold of the first repetition, joined by " | "),
        accuracy_mean, accuracy_sd, verifier_calls_mean, verifier_calls_sd.
    """
    spread = cross.spread[cross.spread["n"] == budget]
    table = spread.set_index("method").drop(columns="n")
    table = table[table["settings"].str.replace(" | ", "") != ""]
    return table.loc[in_order(table.index.tolist())].reset_index()


def best_gated_baseline(points: pd.DataFrame) -> str:
    """The most accurate method with the same free checks; ties go to fewer calls, then name.

    Raises:
        SchemaError: no method's name ends in ``_gated``.
    """
    gated = points[points["method"].str.endswith(GATED)]
    if gated.empty:
        raise SchemaError(f"outcomes: no baseline with gates (a method ending in {GATED!r})")
    order = gated.sort_values(
        ["accuracy", "verifier_calls", "method"], ascending=[False, True, True]
    )
    return str(order["method"].iloc[0])


def outcomes_of(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """The outcomes of one method by problem; SchemaError without any."""
    own = rows[rows["method"] == method].set_index("problem_id").sort_index()
    if own.empty:
        raise SchemaError(f"outcomes: no row of method {method!r}")
    return own


def point_of(points: pd.DataFrame, method: str) -> pd.Series:
    """The first row of one method in a table of points."""
    return points.loc[points["method"] == method].iloc[0]


def interval_columns(name: str, interval: Interval | None) -> dict[str, float | None]:
    """``name``, ``name_low`` and ``name_high``, each None without an interval."""
    return {
        name: None if interval is None else interval.value,
        f"{name}_low": None if interval is None else interval.low,
        f"{name}_high": None if interval is None else interval.high,
    }


def _point(method: str, n: int, own: pd.DataFrame, bootstrap: Bootstrap) -> dict[str, object]:
    accuracy = mean_interval(own["correct"], bootstrap)
    return {
        "method": method,
        "n": n,
        "problems": len(own),
        **interval_columns("accuracy", replace(accuracy, value=round(accuracy.value, DIGITS))),
        **interval_columns("verifier_calls", mean_interval(own["verifier_calls"], bootstrap)),
        **{column: float(own[column].mean()) for column in COSTS},
        "unparsed": int(own["unparsed"].sum()),
        "timeout": int(own["timeout"].sum()),
    }


def _comparison(
    method: str, own: pd.Series, full: pd.Series, runs: int, bootstrap: Bootstrap
) -> dict[str, float | None]:
    if method == FULL:
        return {**interval_columns("difference", None), "mcnemar_p": None}
    difference = paired_difference(own, full, bootstrap=bootstrap)
    return {
        **interval_columns("difference", difference),
        "mcnemar_p": mcnemar(own, full, runs=runs),
    }


def _step(own: pd.DataFrame, above: pd.DataFrame, bootstrap: Bootstrap) -> dict[str, float | None]:
    step = paired_difference(own["correct"], above["correct"], bootstrap=bootstrap)
    ratio = ratio_interval(own["verifier_calls"], above["verifier_calls"], bootstrap=bootstrap)
    return {**interval_columns("step", step), **interval_columns("calls_ratio", ratio)}


def _check_same_problems(own: pd.Series, full: pd.Series, method: str) -> None:
    if not own.index.equals(full.index):
        raise SchemaError(f"outcomes: methods {method!r} and {FULL!r} are on different problems")
