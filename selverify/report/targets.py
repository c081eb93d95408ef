"""The targets of the experiment, and the comparisons that they rest on.

Knows: the ``outcomes`` table, what other stages measured. Does not know: text, files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from selverify.experiment.statistics import Bootstrap, paired_difference, ratio_interval
from selverify.report.names import FULL, GATED, GATES_ONLY, ORACLES, method_name
from selverify.report.tables import (
    PAPER_ABLATION,
    at_budget,
    best_gated_baseline,
    outcomes_of,
    point_of,
    points_table,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A target of the experiment with what was measured; ``measured`` is None without a value."""

    name: str
    text: str
    measured: float | None
    low: float | None = None
    high: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    @property
    def met(self) -> bool:
        """Whether the measured value, not its interval, lies in [minimum, maximum]."""
        if self.measured is None:
            return False
        value = round(self.measured, 9)  # 100 * (0.534 - 0.5) must count as 3.4
        above = self.minimum is None or value >= self.minimum
        return above and (self.maximum is None or value <= self.maximum)

    @property
    def goal(self) -> str:
        """The range as text."""
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"at least {self.minimum:g}"
        return f"at most {self.maximum:g}"


@dataclass(frozen=True, slots=True)
class Measures:
    """What the targets need from other stages, each a share in [0, 1]."""

    pass_at_1: float
    pass_at_64: float
    gated_share: float
    step_auc: float


def targets(
    rows: pd.DataFrame, measures: Measures, *, budget: int, bootstrap: Bootstrap
) -> tuple[Target, ...]:
    """Every target of the experiment, met or missed.

    The baseline is the best on these very problems, which can only favour it. A ratio to a
    baseline that makes no verifier call has no value, and its target is missed.
    """
    chosen = at_budget(rows, budget)
    points = points_table(chosen, bootstrap)
    baseline = best_gated_baseline(points)
    return (
        *_against(chosen, baseline, "baseline", minimum=3.4, bootstrap=bootstrap),
        *_against_as_much_generated(rows, budget, bootstrap),
        *_against(chosen, GATES_ONLY, GATES_ONLY, minimum=0.0, bootstrap=bootstrap),
        *_ablation_order(points),
        *(
            _ratio_target(chosen, oracle, oracle, maximum=1.5, bootstrap=bootstrap)
            for oracle in ORACLES
            if oracle in set(chosen["method"])
        ),
        Target(
            "pass_at_1", "pass@1 of the generator", measures.pass_at_1, minimum=0.25, maximum=0.45
        ),
        Target("pass_at_64", "pass@64 of the generator", measures.pass_at_64, minimum=0.90),
        Target(
            "gated_share",
            "Share of sampled moves that the gates refuse",
            measures.gated_share,
            minimum=0.05,
            maximum=0.30,
        ),
        Target(
            "step_auc",
            "Verifier's step AUC against exact truth",
            measures.step_auc,
            minimum=0.90,
            maximum=0.97,
        ),
    )


def by_budget_table(rows: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Full against the best baseline with gates at each budget of full.

    Returns:
        n, baseline (the most accurate one at that n), accuracy of both, gain with its interval
        (full minus baseline, paired), calls of both and their ratio (None where the baseline makes
        none), one row a budget.
    """
    records = []
    for n in sorted(rows.loc[rows["method"] == FULL, "n"].unique().tolist()):
        chosen = at_budget(rows, n)
        points = points_table(chosen, bootstrap)
        baseline = best_gated_baseline(points)
        full, other = point_of(points, FULL), point_of(points, baseline)
        gain, ratio = _against(chosen, baseline, "baseline", minimum=3.4, bootstrap=bootstrap)
        records.append(
            {
                "n": n,
                "baseline": baseline,
                "accuracy": full["accuracy"],
                "baseline_accuracy": other["accuracy"],
                "gain": gain.measured,
                "gain_low": gain.low,
                "gain_high": gain.high,
                "verifier_calls": full["verifier_calls"],
                "baseline_calls": other["verifier_calls"],
                "ratio": ratio.measured,
            }
        )
    return pd.DataFrame(records)


def as_much_generated(points: pd.DataFrame, budget: int) -> tuple[str, int] | None:
    """The best baseline with gates that generates at most as many tokens as full at ``budget``.

    Methods leave different shares of a nominal budget unused. This is the fairer comparison: the
    (method, n), at any n, of the highest accuracy; ties go to fewer calls. None if there is none.
    """
    full = points[(points["method"] == FULL) & (points["n"] == budget)].iloc[0]
    gated = points[
        points["method"].str.endswith(GATED)
        & (points["generated_tokens"] <= full["generated_tokens"])
    ]
    if gated.empty:
        return None
    order = gated.sort_values(["accuracy", "verifier_calls"], ascending=[False, True])
    return str(order["method"].iloc[0]), int(order["n"].iloc[0])


def _against(
    rows: pd.DataFrame, other: str, label: str, *, minimum: float, bootstrap: Bootstrap
) -> tuple[Target, Target]:
    full, baseline = outcomes_of(rows, FULL), outcomes_of(rows, other)
    gain = paired_difference(full["correct"], baseline["correct"], bootstrap=bootstrap)
    accuracy = Target(
        f"accuracy_gain_over_{label}",
        f"Accuracy of full minus {method_name(other)}, points",
        100 * gain.value,
        100 * gain.low,
        100 * gain.high,
        minimum=minimum,
    )
    return accuracy, _ratio_target(rows, other, label, maximum=0.5, bootstrap=bootstrap)


def _against_as_much_generated(
    rows: pd.DataFrame, budget: int, bootstrap: Bootstrap
) -> tuple[Target, ...]:
    """The same two targets against a baseline that generates no more tokens, at its own n."""
    found = as_much_generated(points_table(rows, bootstrap), budget)
    if found is None:
        return ()
    method, n = found
    own = rows[(rows["method"] == method) & (rows["n"] == n)]
    both = pd.concat([own, at_budget(rows[rows["method"] == FULL], budget)])
    label = "baseline_as_much_generated"
    return tuple(
        replace(
            one,
            text=one.text.replace(
                method_name(method), f"{method_name(method)} at N = {n} (no more tokens)"
            ),
        )
        for one in _against(both, method, label, minimum=3.4, bootstrap=bootstrap)
    )


def _ratio_target(
    rows: pd.DataFrame, other: str, label: str, *, maximum: float, bootstrap: Bootstrap
) -> Target:
    full, baseline = outcomes_of(rows, FULL), outcomes_of(rows, other)
    ratio = ratio_interval(full["verifier_calls"], baseline["verifier_calls"], bootstrap=bootstrap)
    return Target(
        f"calls_ratio_to_{label}",
        f"Verifier calls of full over {method_name(other)}",
        None if ratio is None else ratio.value,
        None if ratio is None else ratio.low,
        None if ratio is None else ratio.high,
        maximum=maximum,
    )


def _ablation_order(points: pd.DataFrame) -> tuple[Target, Target]:
    ordered = [point_of(points, method) for method in PAPER_ABLATION]
    neighbours = list(zip(ordered[1:], ordered[:-1], strict=True))
    rising = sum(float(row["accuracy"]) >= float(above["accuracy"]) for row, above in neighbours)
    falling = sum(
        float(row["verifier_calls"]) <= float(above["verifier_calls"]) for row, above in neighbours
    )
    text = "Ablation rows no {} than the row above, of 3"
    return (
        Target("ablation_accuracy_order", text.format("less accurate"), rising, minimum=3),
        Target("ablation_calls_order", text.format("more costly"), falling, minimum=3),
    )
