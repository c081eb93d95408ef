"""The tables of the report, as data frames.

Knows: the ``outcomes`` table and difficulty bins. Does not know: how they were made, text, files.
Shares and accuracies are in [0, 1] in every table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import pandas as pd

from selverify.errors import SchemaError
from selverify.experiment.methods import PARTS
from selverify.experiment.selection import CrossValidated
from selverify.experiment.statistics import (
    DIGITS,
    Bootstrap,
    Interval,
    interval_columns,
    mcnemar,
    mean_interval,
    paired_difference,
    ratio_interval,
    wilson_interval,
)
from selverify.report.names import BUDGET_FREE, FULL_METHOD, GATED, ordered_methods

MEASURES = [
    f"{name}{end}" for name in ("accuracy", "verifier_calls") for end in ("", "_low", "_high")
]
"""Accuracy and calls of a method, each with the ends of its interval."""
PAPER_ABLATION = {
    "verify_all": (45.0, 64.0),
    "gates_only": (47.6, 58.0),
    "gates_distance": (51.8, 54.0),
    "paper": (55.2, 44.8),
}
"""The paper's Table 2 (Llama 3.2 1B on MATH, N = 64): accuracy in percent, verifier calls."""
PAPER_METHODS = {
    "cot": (30.6, None),
    "best_of_n": (42.4, 64.0),
    "majority": (44.6, None),
    "beam_keep_b": (51.8, 64.0),
    "paper": (55.2, 44.8),
}
"""The paper's Table 1, likewise. Its 64 for majority vote is N: a vote makes no verifier call."""


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
    for method, own in _by_method(rows):
        for n, point in own.groupby("n"):
            accuracy = mean_interval(point["correct"], bootstrap)
            accuracy = replace(accuracy, value=round(accuracy.value, DIGITS))
            calls = mean_interval(point["verifier_calls"], bootstrap)
            costs = ("verifier_steps", "generated_moves", "generated_tokens")
            records.append(
                {
                    "method": method,
                    "n": n,
                    "problems": len(point),
                    **interval_columns("accuracy", accuracy),
                    **interval_columns("verifier_calls", calls),
                    **{name: float(point[name].mean()) for name in costs},
                    **{name: int(point[name].sum()) for name in ("unparsed", "timeout")},
                }
            )
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
    full = outcomes_of(chosen, FULL_METHOD)["correct"]
    compared: list[dict[str, float | None]] = []
    for method in table["method"]:
        own = outcomes_of(chosen, method)["correct"]
        if not own.index.equals(full.index):
            raise SchemaError(
                f"outcomes: methods {method!r} and {FULL_METHOD!r} are on different problems"
            )
        difference, p = None, None
        if method != FULL_METHOD:
            difference = paired_difference(own, full, bootstrap=bootstrap)
            p = mcnemar(own, full, runs=runs)
        compared.append({**interval_columns("difference", difference), "mcnemar_p": p})
    return pd.concat([table, pd.DataFrame(compared, dtype=object)], axis=1)


def at_budget(rows: pd.DataFrame, budget: int) -> pd.DataFrame:
    """The rows at ``budget``; of a method without a budget its only rows."""
    kept = []
    for method, own in _by_method(rows):
        n = own["n"].min() if method in BUDGET_FREE else budget
        if not (own["n"] == n).any():
            raise SchemaError(f"outcomes: method {method!r} has no row at n = {budget}")
        kept.append(own[own["n"] == n])
    return pd.concat(kept, ignore_index=True)


def ablation_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """The paper's Table 2, row by row; the last adds the residual and k(w).

    Returns:
        method, accuracy and verifier_calls with their intervals, paper_accuracy (percent) and
        paper_calls, step and its interval (paired difference to the row above, in [-1, 1]),
        calls_ratio and its interval (to the row above).
    """
    table = _beside_paper(rows, PAPER_ABLATION, budget, bootstrap)
    steps = [
        step_columns(rows[rows["n"] == budget], method, above, bootstrap)
        for above, method in pairwise(table["method"])
    ]
    return table.join(pd.DataFrame(steps, index=range(1, len(table))))


def paper_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """The methods of the paper's Table 1 that were run, beside its own figures.

    Returns:
        method, accuracy and verifier_calls with their intervals, paper_accuracy (percent) and
        paper_calls (None where the method makes no verifier call).
    """
    return _beside_paper(rows, PAPER_METHODS, budget, bootstrap)


def leave_one_out_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """Each part of the full method taken out; empty where none of these was run.

    Returns:
        method, accuracy and verifier_calls with their intervals, generated_tokens, step and its
        interval (paired difference to full, in [-1, 1]), calls_ratio and its interval (to full).
    """
    chosen = rows[rows["method"].isin([FULL_METHOD, *PARTS]) & (rows["n"] == budget)]
    points = points_table(chosen, bootstrap).set_index("method")
    return pd.DataFrame(
        [
            {
                "method": method,
                **points.loc[method, [*MEASURES, "generated_tokens"]],
                **step_columns(chosen, method, FULL_METHOD, bootstrap),
            }
            for method in PARTS
            if method in points.index
        ]
    )


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
    return pd.DataFrame(
        [
            {
                "method": method,
                "difficulty_bin": number,
                "problems": len(inside),
                **interval_columns(
                    "accuracy", wilson_interval(float(inside["correct"].sum()), len(inside))
                ),
                "verifier_calls": float(inside["verifier_calls"].mean()),
            }
            for method, own in _by_method(chosen)
            for number, inside in own.groupby("difficulty_bin")
        ]
    )


def settings_table(cross: CrossValidated, *, budget: int) -> pd.DataFrame:
    """Which settings cross-validation chose at ``budget``, and the spread over repetitions.

    Returns:
        method, settings (one for each fold of the first repetition, joined by " | "),
        accuracy_mean, accuracy_sd, verifier_calls_mean, verifier_calls_sd.
    """
    spread = cross.spread[cross.spread["n"] == budget]
    table = spread.set_index("method").drop(columns="n")
    table = table[table["settings"].str.replace(" | ", "") != ""]
    return table.loc[ordered_methods(table.index)].reset_index()


def best_gated_baseline(points: pd.DataFrame) -> pd.Series:
    """The row of the most accurate method with the same free checks.

    Ties go to fewer calls, then name.

    Raises:
        SchemaError: no method's name ends in ``_gated``.
    """
    gated = points[points["method"].str.endswith(GATED)]
    if gated.empty:
        raise SchemaError(f"outcomes: no baseline with gates (a method ending in {GATED!r})")
    order = ["accuracy", "verifier_calls", "method"]
    return gated.sort_values(order, ascending=[False, True, True]).iloc[0]


def outcomes_of(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """The outcomes of one method by problem; SchemaError without any."""
    own = rows[rows["method"] == method].set_index("problem_id").sort_index()
    if own.empty:
        raise SchemaError(f"outcomes: no row of method {method!r}")
    return own


def compare(
    rows: pd.DataFrame, method: str, other: str, bootstrap: Bootstrap
) -> tuple[Interval, Interval | None]:
    """A method against another on the same problems, each with one n.

    Returns:
        The paired difference of accuracy, method minus other, in [-1, 1]; and the ratio of
        verifier calls, method over other, None where the other makes none.
    """
    own, theirs = outcomes_of(rows, method), outcomes_of(rows, other)
    return (
        paired_difference(own["correct"], theirs["correct"], bootstrap=bootstrap),
        ratio_interval(own["verifier_calls"], theirs["verifier_calls"], bootstrap=bootstrap),
    )


def step_columns(
    rows: pd.DataFrame, method: str, other: str, bootstrap: Bootstrap
) -> dict[str, float | None]:
    """:func:`compare` as the columns step and calls_ratio, each with its interval."""
    step, ratio = compare(rows, method, other, bootstrap)
    return {**interval_columns("step", step), **interval_columns("calls_ratio", ratio)}


def _by_method(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for method in ordered_methods(rows["method"]):
        yield method, rows[rows["method"] == method]


def _beside_paper(
    rows: pd.DataFrame,
    paper: Mapping[str, tuple[float, float | None]],
    budget: int,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """What was measured of the paper's methods, and what the paper prints."""
    own = rows[rows["method"].isin(list(paper))]
    if own.empty:
        return pd.DataFrame(columns=["method", *MEASURES, "paper_accuracy", "paper_calls"])
    measured = points_table(at_budget(own, budget), bootstrap).set_index("method")[MEASURES]
    printed = pd.DataFrame.from_dict(
        dict(paper), orient="index", columns=["paper_accuracy", "paper_calls"]
    )
    return measured.join(printed).loc[[one for one in paper if one in measured.index]].reset_index()
