"""What changes with the budget, the sampling seed, the backbone and the verifier's strength.

Knows: out-of-fold outcomes of several runs of the pipeline. Does not know: text, files, models.
Accuracies are in [0, 1].
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from scipy import stats

from selverify.experiment.selection import KEY
from selverify.experiment.statistics import Bootstrap
from selverify.report.names import (
    BUDGET_FREE,
    FULL_METHOD,
    ORACLES,
    STRATEGY,
    STRATEGY_BY_BIN,
    ordered_methods,
)
from selverify.report.tables import (
    MEASURES,
    at_budget,
    best_gated_baseline,
    points_table,
    step_columns,
)


def seeds_table(outcomes: pd.DataFrame, rows: pd.DataFrame, *, budget: int) -> pd.DataFrame:
    """Each method under each sampling seed alone, at ``budget``, settings as chosen on all seeds.

    Args:
        outcomes: one row a (method, setting, n, problem_id, sampling_seed).
        rows: out-of-fold rows of the same, with the setting of each problem.

    Returns:
        method, seeds, accuracy_mean, accuracy_sd (between seeds, n - 1), accuracy_min,
        accuracy_max, calls_mean, calls_sd; empty with one seed.
    """
    chosen = at_budget(rows[rows["method"].isin(outcomes["method"].unique())], budget)
    single = outcomes.merge(chosen[list(KEY)], on=list(KEY))
    means = single.groupby(["method", "sampling_seed"])[["correct", "verifier_calls"]].mean()
    table = (
        means.groupby(level="method")
        .agg(
            seeds=("correct", "size"),
            accuracy_mean=("correct", "mean"),
            accuracy_sd=("correct", "std"),
            accuracy_min=("correct", "min"),
            accuracy_max=("correct", "max"),
            calls_mean=("verifier_calls", "mean"),
            calls_sd=("verifier_calls", "std"),
        )
        .loc[ordered_methods(chosen["method"])]
    )
    return table[table["seeds"] > 1].reset_index(names="method")


def against_best_table(
    rows: Mapping[str, pd.DataFrame], *, budget: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Full against the best baseline with gates at ``budget``, in each of several pipelines.

    Args:
        rows: out-of-fold outcomes by the name of the pipeline.

    Returns:
        variant, one_shot (accuracy of the method without a budget, None where it was not run),
        baseline, baseline_accuracy, baseline_calls, accuracy and verifier_calls of full with their
        intervals, step and its interval (full minus baseline, paired), calls_ratio and its
        interval.
    """
    return pd.DataFrame(
        [
            {"variant": variant, **_against_best(found, budget, bootstrap)}
            for variant, found in rows.items()
        ]
    )


def by_budget_table(rows: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Full against the best baseline with gates at each budget of full.

    Returns:
        n, baseline (the most accurate one at that n), accuracy of both, gain with its interval
        (full minus baseline, paired, in points), calls of both and their ratio (None where the
        baseline makes none), one row a budget.
    """
    records = []
    for n in sorted(rows.loc[rows["method"] == FULL_METHOD, "n"].unique().tolist()):
        found = _against_best(rows, n, bootstrap)
        records.append(
            {
                "n": n,
                **{name: found[name] for name in ("baseline", "accuracy", "baseline_accuracy")},
                **{f"gain{end}": 100 * found[f"step{end}"] for end in ("", "_low", "_high")},
                **{name: found[name] for name in ("verifier_calls", "baseline_calls")},
                "ratio": found["calls_ratio"],
            }
        )
    return pd.DataFrame(records)


def _against_best(rows: pd.DataFrame, budget: int, bootstrap: Bootstrap) -> dict[Hashable, Any]:
    chosen = at_budget(rows, budget)
    points = points_table(chosen, bootstrap)
    full = points[points["method"] == FULL_METHOD].iloc[0]
    other = best_gated_baseline(points)
    baseline = str(other["method"])
    free = points.loc[points["method"].isin(BUDGET_FREE), "accuracy"]
    return {
        "one_shot": None if free.empty else float(free.max()),
        "baseline": baseline,
        "baseline_accuracy": other["accuracy"],
        "baseline_calls": other["verifier_calls"],
        **full[MEASURES],
        **step_columns(chosen, FULL_METHOD, baseline, bootstrap),
    }


def ranking_table(
    rows: Mapping[str, pd.DataFrame], *, budget: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """Every method at ``budget`` in each of several pipelines, and its rank by accuracy there.

    Returns:
        method, and for each pipeline ``<name>.accuracy`` with its interval, ``<name>.calls`` and
        ``<name>.rank`` (1 is the most accurate; ties share the better rank; oracles, which know
        the truth, have none).
    """
    tables = []
    for variant, found in rows.items():
        points = points_table(at_budget(found, budget), bootstrap).set_index("method")
        honest = points.loc[~points.index.isin(ORACLES), "accuracy"]
        table = points[["accuracy", "accuracy_low", "accuracy_high"]].assign(
            calls=points["verifier_calls"], rank=honest.rank(ascending=False, method="min")
        )
        tables.append(table.add_prefix(f"{variant}."))
    joined = pd.concat(tables, axis=1)
    return joined.loc[ordered_methods(joined.index)].reset_index(names="method")


def rank_agreement(table: pd.DataFrame, first: str, second: str) -> float:
    """Kendall's tau-b between the accuracies of two pipelines.

    Over methods that make verifier calls, as others cannot change with the verifier; a strategy
    repeats another row.
    """
    calling = (table[f"{first}.calls"] > 0) & (table[f"{second}.calls"] > 0)
    ranked = table[calling & ~table["method"].isin([STRATEGY, STRATEGY_BY_BIN])]
    ranked = ranked.dropna(subset=[f"{first}.rank", f"{second}.rank"])
    pair = (ranked[f"{name}.accuracy"].astype(float) for name in (first, second))
    return float(stats.kendalltau(*pair).statistic)
