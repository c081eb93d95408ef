"""What changes with the sampling seed, the backbone and the strength of the verifier.

Knows: out-of-fold outcomes of several runs of the pipeline. Does not know: text, files, models.
Accuracies are in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from scipy import stats

from selverify.experiment.selection import KEY
from selverify.experiment.statistics import Bootstrap, paired_difference, ratio_interval
from selverify.report.names import (
    BUDGET_FREE,
    FULL,
    ORACLES,
    STRATEGY,
    STRATEGY_BY_BIN,
    in_order,
)
from selverify.report.tables import (
    at_budget,
    best_gated_baseline,
    interval_columns,
    outcomes_of,
    points_table,
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
    chosen = at_budget(rows[rows["method"].isin(outcomes["method"])], budget)
    single = outcomes.merge(chosen[list(KEY)], on=list(KEY))
    means = single.groupby(["method", "sampling_seed"])[["correct", "verifier_calls"]].mean()
    grouped = means.groupby(level="method")
    table = pd.DataFrame(
        {
            "seeds": grouped.size(),
            "accuracy_mean": grouped["correct"].mean(),
            "accuracy_sd": grouped["correct"].std(),
            "accuracy_min": grouped["correct"].min(),
            "accuracy_max": grouped["correct"].max(),
            "calls_mean": grouped["verifier_calls"].mean(),
            "calls_sd": grouped["verifier_calls"].std(),
        }
    ).loc[in_order(chosen["method"].tolist())]
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
    records = []
    for variant, found in rows.items():
        chosen = at_budget(found, budget)
        points = points_table(chosen, bootstrap).set_index("method")
        baseline = best_gated_baseline(points.reset_index())
        full, other = outcomes_of(chosen, FULL), outcomes_of(chosen, baseline)
        gain = paired_difference(full["correct"], other["correct"], bootstrap=bootstrap)
        ratio = ratio_interval(full["verifier_calls"], other["verifier_calls"], bootstrap=bootstrap)
        free = points.loc[points.index.isin(BUDGET_FREE), "accuracy"]
        records.append(
            {
                "variant": variant,
                "one_shot": None if free.empty else float(free.max()),
                "baseline": baseline,
                "baseline_accuracy": points.loc[baseline, "accuracy"],
                "baseline_calls": points.loc[baseline, "verifier_calls"],
                **{
                    f"{name}{end}": points.loc[FULL, f"{name}{end}"]
                    for name in ("accuracy", "verifier_calls")
                    for end in ("", "_low", "_high")
                },
                **interval_columns("step", gain),
                **interval_columns("calls_ratio", ratio),
            }
        )
    return pd.DataFrame(records)


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
    return joined.loc[in_order(joined.index.tolist())].reset_index(names="method")


def rank_agreement(table: pd.DataFrame, first: str, second: str) -> float:
    """Kendall's tau-b between the accuracies of two pipelines, over methods that ask a verifier.

    Others cannot change with it, and a strategy repeats another row.
    """
    asking = (table[f"{first}.calls"] > 0) & (table[f"{second}.calls"] > 0)
    ranked = table[asking & ~table["method"].isin([STRATEGY, STRATEGY_BY_BIN])]
    ranked = ranked.dropna(subset=[f"{first}.rank", f"{second}.rank"])
    pair = (ranked[f"{name}.accuracy"].astype(float) for name in (first, second))
    return float(stats.kendalltau(*pair).statistic)
