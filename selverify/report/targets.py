"""The targets of the experiment, and the comparisons that they rest on.

Knows: the ``outcomes`` table, what other stages measured. Does not know: text, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from selverify.experiment.statistics import Bootstrap
from selverify.report.names import FULL_METHOD, GATED, GATES_ONLY, ORACLES, method_name
from selverify.report.tables import (
    PAPER_ABLATION,
    at_budget,
    best_gated_baseline,
    compare,
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
        if self.minimum is None:
            return f"at most {self.maximum:g}"
        if self.maximum is None:
            return f"at least {self.minimum:g}"
        return f"{self.minimum:g} to {self.maximum:g}"


_OF_OTHER_STAGES = (
    ("pass_at_1", "pass@1 of the generator", 0.25, 0.45),
    ("pass_at_64", "pass@64 of the generator", 0.90, None),
    ("gated_share", "Share of sampled moves that the gates refuse", 0.05, 0.30),
    (
        "step_auc",
        "Verifier's AUC on steps, or on solutions where the truth of steps is unknown",
        0.90,
        0.97,
    ),
)
"""Name, text, minimum and maximum of the targets that other stages measure."""


def targets(
    rows: pd.DataFrame, measures: Mapping[str, float], *, budget: int, bootstrap: Bootstrap
) -> tuple[Target, ...]:
    """Every target of the experiment, met or missed.

    The baseline is the best on these very problems, which can only favour it. A ratio to a
    baseline that makes no verifier call has no value, and its target is missed.

    Args:
        rows: out-of-fold outcomes, one a (method, n, problem_id).
        measures: pass_at_1, pass_at_64, gated_share and step_auc, each in [0, 1]; one that is not
            there has no target.
    """
    chosen = at_budget(rows, budget)
    points = points_table(chosen, bootstrap)
    baseline = str(best_gated_baseline(points)["method"])
    ran = set(chosen["method"])
    over_gates = (
        _against(chosen, GATES_ONLY, GATES_ONLY, bootstrap, minimum=0.0)
        if GATES_ONLY in ran
        else ()
    )
    return (
        *_against(chosen, baseline, "baseline", bootstrap),
        *_against_as_much_generated(rows, budget, bootstrap),
        *over_gates,
        *_ablation_order(points),
        *(_against(chosen, one, one, bootstrap, maximum=1.5)[1] for one in ORACLES if one in ran),
        *(
            Target(name, text, measures[name], minimum=low, maximum=high)
            for name, text, low, high in _OF_OTHER_STAGES
            if name in measures
        ),
    )


def as_much_generated(points: pd.DataFrame, budget: int) -> tuple[str, int] | None:
    """The best baseline with gates that generates at most as many tokens as full at ``budget``.

    Methods leave different shares of a nominal budget unused. This is the fairer comparison: the
    (method, n), at any n, of the highest accuracy; ties go to fewer calls. None if there is none.
    """
    full = points[(points["method"] == FULL_METHOD) & (points["n"] == budget)].iloc[0]
    gated = points[
        points["method"].str.endswith(GATED)
        & (points["generated_tokens"] <= full["generated_tokens"])
    ]
    if gated.empty:
        return None
    order = gated.sort_values(["accuracy", "verifier_calls"], ascending=[False, True])
    return str(order["method"].iloc[0]), int(order["n"].iloc[0])


def _against(
    rows: pd.DataFrame,
    other: str,
    label: str,
    bootstrap: Bootstrap,
    *,
    minimum: float = 3.4,
    maximum: float = 0.5,
    at: str = "",
) -> tuple[Target, Target]:
    """Gain in accuracy, at least ``minimum`` points; ratio of calls, at most ``maximum``."""
    gain, ratio = compare(rows, FULL_METHOD, other, bootstrap)
    shown = f"{method_name(other)}{at}"
    accuracy = Target(
        f"accuracy_gain_over_{label}",
        f"Accuracy of full minus {shown}, points",
        measured=100 * gain.value,
        low=100 * gain.low,
        high=100 * gain.high,
        minimum=minimum,
    )
    calls = Target(
        f"calls_ratio_to_{label}",
        f"Verifier calls of full over {shown}",
        measured=None if ratio is None else ratio.value,
        low=None if ratio is None else ratio.low,
        high=None if ratio is None else ratio.high,
        maximum=maximum,
    )
    return accuracy, calls


def _against_as_much_generated(
    rows: pd.DataFrame, budget: int, bootstrap: Bootstrap
) -> tuple[Target, ...]:
    """The same two targets against a baseline that generates no more tokens, at its own n."""
    found = as_much_generated(points_table(rows, bootstrap), budget)
    if found is None:
        return ()
    method, n = found
    own = rows[(rows["method"] == method) & (rows["n"] == n)]
    both = pd.concat([own, at_budget(rows[rows["method"] == FULL_METHOD], budget)])
    at = f" at N = {n} (no more tokens)"
    return _against(both, method, "baseline_as_much_generated", bootstrap, at=at)


def _ablation_order(points: pd.DataFrame) -> tuple[Target, ...]:
    """How many rows of the ablation that were run are no worse than the row above, if two were."""
    ran = points.set_index("method")
    ordered = ran.loc[[method for method in PAPER_ABLATION if method in ran.index]]
    rising = int((ordered["accuracy"].diff()[1:] >= 0).sum())
    falling = int((ordered["verifier_calls"].diff()[1:] <= 0).sum())
    count = len(ordered) - 1
    if count < 1:
        return ()
    text = f"Ablation rows no {{}} than the row above, of {count}"
    return (
        Target("ablation_accuracy_order", text.format("less accurate"), rising, minimum=count),
        Target("ablation_calls_order", text.format("more costly"), falling, minimum=count),
    )
