"""The tables of the report, the targets, and their writers.

Knows: the ``outcomes`` table, difficulty bins and the audits' tables. Does not know: how they were
made, and where files go. Shares and accuracies are in [0, 1] in every table; text shows percent.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from selverify.errors import SchemaError
from selverify.selection import CrossValidated
from selverify.statistics import (
    Bootstrap,
    Interval,
    Point,
    area_under_frontier,
    calls_at_accuracy,
    frontier,
    mcnemar,
    mean_interval,
    paired_difference,
    ratio_interval,
    wilson_interval,
)
from selverify.storage import atomic_path

_BY_BUDGET_NOTE = (
    "The baseline is the most accurate one at that N on these very problems, which favours it. "
    "Gains are paired, with 95 % bootstrap intervals."
)
METHOD_NAMES = {
    "cot": "0-shot CoT",
    "majority": "Majority vote",
    "majority_gated": "Majority vote + gates",
    "best_of_n": "Best-of-N weighted",
    "best_of_n_gated": "Best-of-N weighted + gates",
    "beam_keep_b": "Beam (keep b)",
    "beam_keep_b_gated": "Beam (keep b) + gates",
    "beam_snell": "Beam (Snell)",
    "beam_snell_gated": "Beam (Snell) + gates",
    "dvts": "DVTS",
    "dvts_gated": "DVTS + gates",
    "lookahead": "Lookahead",
    "lookahead_gated": "Lookahead + gates",
    "verify_all": "Verify-all (no gates)",
    "gates_only": "Gates-only",
    "gates_distance": "Gates + D_type (fixed k)",
    "full": "Full (gates + hybrid + k(w))",
    "full_retrieval": "Full + retrieval",
    "full_always_asks": "Full, a call at every state",
    "ranker_only": "Full, every first move trusted",
    "oracle": "Oracle",
    "oracle_selective": "Oracle, only where needed",
}
"""Display names, in the order of every table. A method that is not here shows its own name."""

FULL = "full"
GATES_ONLY = "gates_only"
ORACLE = "oracle"
ORACLES = (ORACLE, "oracle_selective")
"""They know the truth, and no method is compared with them on equal terms."""
BUDGET_FREE = ("cot",)
"""Methods that have no budget and stand in every table."""

GATED = "_gated"
"""How the name of a baseline with the same free checks ends."""


class PaperRow(NamedTuple):
    """The paper's Table 2 (Llama 3.2 1B on MATH): accuracy in percent, verifier calls."""

    accuracy: float
    calls: float


PAPER_ABLATION = {
    "verify_all": PaperRow(45.0, 64.0),
    "gates_only": PaperRow(47.6, 58.0),
    "gates_distance": PaperRow(51.8, 54.0),
    "full": PaperRow(55.2, 44.8),
}


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


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that the Markdown page shows."""

    domain: str
    budget: int
    main: pd.DataFrame
    by_budget: pd.DataFrame
    ablation: pd.DataFrame
    frontier: pd.DataFrame
    by_bin: pd.DataFrame
    settings: pd.DataFrame
    gates: pd.DataFrame
    rankers: pd.DataFrame
    verifier: pd.DataFrame
    targets: tuple[Target, ...]


def method_name(method: str) -> str:
    """The display name of a method."""
    return METHOD_NAMES.get(method, method)


def in_order(methods: Sequence[str]) -> list[str]:
    """Distinct methods in the order of :data:`METHOD_NAMES`, others after them by name."""
    rank = {name: place for place, name in enumerate(METHOD_NAMES)}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(rank)), method))


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


def main_table(rows: pd.DataFrame, *, budget: int, bootstrap: Bootstrap) -> pd.DataFrame:
    """:func:`points_table` at one budget, with the paired difference of each method to full.

    Adds difference, difference_low, difference_high (method minus full, so negative where full is
    more accurate) and mcnemar_p; None in full's own row.

    Raises:
        SchemaError: a method without rows at ``budget``, or methods on different problems.
    """
    chosen = at_budget(rows, budget)
    table = points_table(chosen, bootstrap)
    full = _problems(chosen, FULL)["correct"]
    compared = []
    for method in table["method"]:
        own = _problems(chosen, method)["correct"]
        _check_same_problems(own, full, method)
        compared.append(_comparison(method, own, full, bootstrap))
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
        own = _problems(chosen, method)
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


def by_bin_table(rows: pd.DataFrame, bins: Mapping[str, int], *, budget: int) -> pd.DataFrame:
    """Accuracy of each method in each difficulty bin, with Wilson intervals.

    A bin holds few problems, and the bootstrap of a share of 0 or 1 has no width.

    Returns:
        method, difficulty_bin, problems, accuracy, accuracy_low, accuracy_high.
    """
    chosen = at_budget(rows, budget)
    chosen = chosen.assign(difficulty_bin=chosen["problem_id"].map(bins))
    if chosen["difficulty_bin"].isna().any():
        raise SchemaError("difficulty: a problem of the outcomes has no bin")
    records = []
    for method in in_order(chosen["method"].tolist()):
        own = chosen[chosen["method"] == method]
        for number in sorted(own["difficulty_bin"].unique().tolist()):
            correct = own.loc[own["difficulty_bin"] == number, "correct"]
            share = wilson_interval(int(correct.sum()), len(correct))
            records.append(
                {
                    "method": method,
                    "difficulty_bin": int(number),
                    "problems": len(correct),
                    **_columns("accuracy", share),
                }
            )
    return pd.DataFrame(records)


def frontier_table(points: pd.DataFrame, *, budget: int) -> pd.DataFrame:
    """What each method's frontier of accuracy against measured calls gives.

    Returns:
        method; best_accuracy; area (mean accuracy over a call allowance uniform in [0, budget];
        where the method cannot run yet, the 0-shot accuracy, or 0 without that row); target
        (accuracy of the best baseline with gates at ``budget``); calls_at_target (None where it
        is not reached).
    """
    free = max(points.loc[points["method"].isin(BUDGET_FREE), "accuracy"].tolist(), default=0.0)
    baseline = best_gated_baseline(points[points["n"] == budget])
    target = float(_row(points[points["n"] == budget], baseline)["accuracy"])
    records = []
    for method in in_order(points["method"].tolist()):
        own = points[points["method"] == method]
        curve = frontier(own["verifier_calls"], own["accuracy"])
        records.append(
            {
                "method": method,
                "best_accuracy": curve[-1].accuracy,
                "area": _area(curve, budget, free),
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
    first = cross.chosen[(cross.chosen["repetition"] == 0) & (cross.chosen["n"] == budget)]
    joined = first.sort_values("fold").groupby("method")["setting"].agg(" | ".join)
    spread = cross.spread[cross.spread["n"] == budget].set_index("method").drop(columns="n")
    table = spread.join(joined.rename("settings"), how="inner")
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
        full, other = _row(points, FULL), _row(points, baseline)
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


def metrics(report: Report) -> dict[str, float | int | bool]:
    """A flat mapping for ``storage.write_plain_json``; what could not be measured is left out."""
    flat: dict[str, float | int | bool] = {"budget": report.budget}
    for record in report.main.to_dict("records"):
        for column in _METRICS:
            flat[f"{record['method']}.{column}"] = float(record[column])
    for record in report.rankers.to_dict("records"):
        flat[f"ranker.{record['ranker']}.{record['metric']}"] = float(record["value"])
    for record in report.verifier.to_dict("records"):
        flat[f"verifier.{record['metric']}"] = float(record["value"])
    for target in report.targets:
        if target.measured is not None:
            flat[f"target.{target.name}.measured"] = float(target.measured)
        flat[f"target.{target.name}.met"] = target.met
    return flat


def render(report: Report) -> str:
    """The whole report as Markdown."""
    problems = int(report.main["problems"].max())
    parts = [
        f"# Report: {report.domain}, {problems} problems, N = {report.budget}",
        "## Main table",
        _markdown(*_main_cells(report.main)),
        _reading(problems),
        "## Targets",
        _markdown(*_target_cells(report.targets)),
        "## Full against the best baseline with gates, at each N",
        _markdown(*_by_budget_cells(report.by_budget)),
        _BY_BUDGET_NOTE,
        "## Ablation",
        _markdown(*_ablation_cells(report.ablation)),
        _PAPER_NOTE,
        "## Frontier",
        _markdown(*_frontier_cells(report.frontier)),
        "## Accuracy by difficulty bin, %",
        _markdown(*_bin_cells(report.by_bin)),
        "## Settings chosen by cross-validation",
        _markdown(*_settings_cells(report.settings)),
        "## Gates",
        _markdown(*_gate_cells(report.gates)),
        "## Rankers",
        _markdown(*_ranker_cells(report.rankers)),
        "## Verifier",
        _markdown(*_verifier_cells(report.verifier)),
    ]
    return "\n\n".join(parts) + "\n"


def main_table_text(main: pd.DataFrame, *, budget: int, width: int) -> str:
    """The main table for a terminal of ``width`` columns: accuracy, calls, tokens, difference."""
    title = f"N = {budget}, {int(main['problems'].max())} problems, [95 % intervals]"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD)
    header = ("Method", "Accuracy, %", "Verifier calls", "Tokens", "Difference to full, points")
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    for _, r in main.iterrows():
        cells = (
            method_name(str(r["method"])),
            _ranged(r, "accuracy", scale=100),
            f"{r['verifier_calls']:.1f}",
            f"{r['generated_tokens']:.0f}",
            _ranged(r, "difference", scale=100, signed=True),
        )
        table.add_row(*(escape(cell) for cell in cells))
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue()


def write_text(text: str, path: Path) -> None:
    """Write ``text`` to ``path``, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, whole or not at all; missing values are empty cells."""
    with atomic_path(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


_INTERVALS = (
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "verifier_calls",
    "verifier_calls_low",
    "verifier_calls_high",
)
_COSTS = ("verifier_steps", "generated_moves", "generated_tokens")
_METRICS = ("accuracy", "accuracy_low", "accuracy_high", "verifier_calls", *_COSTS)
_PAPER_NOTE = (
    "The columns marked *paper* are the paper's own figures (Table 2: Llama 3.2 1B on MATH-500), "
    "quoted for the order of the rows; they were not measured here. The paper's abstract says "
    "44 % fewer verifier calls, its tables 30 % (44.8 of 64)."
)
_Cells = tuple[list[str], list[list[str]]]


def _reading(problems: int) -> str:
    half = 100 * 1.96 * (0.25 / problems) ** 0.5
    return (
        "Brackets are 95 % bootstrap intervals over problems. Differences are paired: method minus "
        "full on the same problems, p by McNemar's exact test. The interval of one accuracy on "
        f"{problems} problems reaches up to {half:.1f} points to each side, so an unpaired "
        "difference under that says nothing. Calls, step scores and tokens are means a problem."
    )


def _point(method: str, n: int, own: pd.DataFrame, bootstrap: Bootstrap) -> dict[str, object]:
    return {
        "method": method,
        "n": n,
        "problems": len(own),
        **_columns("accuracy", mean_interval(own["correct"], bootstrap)),
        **_columns("verifier_calls", mean_interval(own["verifier_calls"], bootstrap)),
        **{column: float(own[column].mean()) for column in _COSTS},
        "unparsed": int((own["status"] == "unparsed").sum()),
        "timeout": int((own["status"] == "timeout").sum()),
    }


def _columns(name: str, interval: Interval | None) -> dict[str, float | None]:
    return {
        name: None if interval is None else interval.value,
        f"{name}_low": None if interval is None else interval.low,
        f"{name}_high": None if interval is None else interval.high,
    }


def _comparison(
    method: str, own: pd.Series, full: pd.Series, bootstrap: Bootstrap
) -> dict[str, float | None]:
    if method == FULL:
        return {**_columns("difference", None), "mcnemar_p": None}
    difference = paired_difference(own, full, bootstrap=bootstrap)
    return {**_columns("difference", difference), "mcnemar_p": mcnemar(own, full)}


def _step(own: pd.DataFrame, above: pd.DataFrame, bootstrap: Bootstrap) -> dict[str, float | None]:
    step = paired_difference(own["correct"], above["correct"], bootstrap=bootstrap)
    ratio = ratio_interval(own["verifier_calls"], above["verifier_calls"], bootstrap=bootstrap)
    return {**_columns("step", step), **_columns("calls_ratio", ratio)}


def _problems(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    own = rows[rows["method"] == method].set_index("problem_id").sort_index()
    if own.empty:
        raise SchemaError(f"outcomes: no row of method {method!r}")
    return own


def _check_same_problems(own: pd.Series, full: pd.Series, method: str) -> None:
    if not own.index.equals(full.index):
        raise SchemaError(f"outcomes: methods {method!r} and {FULL!r} are on different problems")


def _row(points: pd.DataFrame, method: str) -> pd.Series:
    return points.loc[points["method"] == method].iloc[0]


def _area(curve: tuple[Point, ...], budget: int, free: float) -> float:
    return area_under_frontier(curve, limit=float(budget), free=free)


def _against(
    rows: pd.DataFrame, other: str, label: str, *, minimum: float, bootstrap: Bootstrap
) -> tuple[Target, Target]:
    full, baseline = _problems(rows, FULL), _problems(rows, other)
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
    full, baseline = _problems(rows, FULL), _problems(rows, other)
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
    ordered = [_row(points, method) for method in PAPER_ABLATION]
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


def _main_cells(main: pd.DataFrame) -> _Cells:
    """Header and rows of the main table as text."""
    header = [
        "Method",
        "Accuracy, %",
        "Verifier calls",
        "Step scores",
        "Generated tokens",
        "Difference to full, points",
        "McNemar p",
    ]
    body = [
        [
            method_name(str(r["method"])),
            _ranged(r, "accuracy", scale=100),
            _ranged(r, "verifier_calls"),
            f"{r['verifier_steps']:.1f}",
            f"{r['generated_tokens']:.0f}",
            _ranged(r, "difference", scale=100, signed=True),
            _p_value(r["mcnemar_p"]),
        ]
        for _, r in main.iterrows()
    ]
    return header, body


def _target_cells(found: Sequence[Target]) -> _Cells:
    header = ["Target", "Measured", "95 % interval", "Goal", "Met"]
    body = [
        [
            target.text,
            _number(target.measured, 0 if isinstance(target.measured, int) else 3),
            "-" if target.low is None else f"{_number(target.low, 3)} to {_number(target.high, 3)}",
            target.goal,
            "yes" if target.met else "no",
        ]
        for target in found
    ]
    return header, body


def _ablation_cells(table: pd.DataFrame) -> _Cells:
    header = [
        "Configuration",
        "Accuracy, %",
        "Verifier calls",
        "Gain over the row above, points",
        "Calls over the row above",
        "Paper: accuracy, %",
        "Paper: calls",
    ]
    body = [
        [
            method_name(str(r["method"])),
            _ranged(r, "accuracy", scale=100),
            _ranged(r, "verifier_calls"),
            _ranged(r, "step", scale=100, signed=True),
            _ranged(r, "calls_ratio", digits=2),
            f"{r['paper_accuracy']:.1f}",
            f"{r['paper_calls']:.1f}",
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def _by_budget_cells(table: pd.DataFrame) -> _Cells:
    header = [
        *("N", "Best baseline", "Its accuracy, %", "Full, %", "Gain, points"),
        *("Its calls", "Calls of full", "Ratio"),
    ]
    body = []
    for _, r in table.iterrows():
        gain, low, high = (
            _number(r[name], 1, signed=True) for name in ("gain", "gain_low", "gain_high")
        )
        body.append(
            [
                str(r["n"]),
                method_name(str(r["baseline"])),
                _number(r["baseline_accuracy"], 1, scale=100),
                _number(r["accuracy"], 1, scale=100),
                f"{gain} [{low}, {high}]",
                _number(r["baseline_calls"], 1),
                _number(r["verifier_calls"], 1),
                _number(r["ratio"], 2),
            ]
        )
    return header, body


def _frontier_cells(table: pd.DataFrame) -> _Cells:
    target = 100 * float(table["target"].iloc[0])
    header = [
        "Method",
        "Best accuracy, %",
        "Mean accuracy up to N calls, %",
        f"Calls to reach {target:.1f} %",
    ]
    body = [
        [
            method_name(str(r["method"])),
            _number(r["best_accuracy"], 1, scale=100),
            _number(r["area"], 1, scale=100),
            _number(r["calls_at_target"], 1, missing="not reached"),
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def _bin_cells(table: pd.DataFrame) -> _Cells:
    numbers = sorted(table["difficulty_bin"].unique().tolist())
    ends = {numbers[0]: " (easiest)", numbers[-1]: " (hardest)"}
    header = ["Method", *(f"{number}{ends.get(number, '')}" for number in numbers)]
    body = []
    for method in in_order(table["method"].tolist()):
        own = table[table["method"] == method].sort_values("difficulty_bin")
        cells = [_ranged(r, "accuracy", scale=100, digits=0) for _, r in own.iterrows()]
        body.append([method_name(method), *cells])
    return header, body


def _settings_cells(table: pd.DataFrame) -> _Cells:
    header = ["Method", "Settings, one a fold", "Accuracy over repetitions, %", "Calls"]
    body = [
        [
            method_name(str(r["method"])),
            str(r["settings"]).replace(" | ", "; "),
            f"{100 * r['accuracy_mean']:.1f} (sd {100 * r['accuracy_sd']:.1f})",
            f"{r['verifier_calls_mean']:.1f} (sd {r['verifier_calls_sd']:.1f})",
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def _gate_cells(table: pd.DataFrame) -> _Cells:
    header = ["Gate", "Reason", "Refused", "Share of candidates, %", "False rejects"]
    body = [
        [
            str(r["gate"]),
            str(r["reason"]),
            str(r["refused"]),
            f"{100 * r['share']:.2f}",
            str(r["false_rejects"]),
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def _ranker_cells(table: pd.DataFrame) -> _Cells:
    names = list(dict.fromkeys(table["metric"].tolist()))
    found = {(r["ranker"], r["metric"]): r for _, r in table.iterrows()}
    body = [
        [ranker, *(_ranged(found.get((ranker, name)), "value", digits=2) for name in names)]
        for ranker in dict.fromkeys(table["ranker"].tolist())
    ]
    return ["Ranker", *(name.replace("_", " ") for name in names)], body


def _verifier_cells(table: pd.DataFrame) -> _Cells:
    body = [
        [str(r["metric"]).replace("_", " "), _ranged(r, "value", digits=3)]
        for _, r in table.iterrows()
    ]
    return ["Measure", "Value"], body


def _ranged(
    row: pd.Series | None, name: str, *, scale: float = 1, digits: int = 1, signed: bool = False
) -> str:
    if row is None or pd.isna(row[name]):
        return "-"
    ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    value = _number(row[name], digits, scale=scale, signed=signed)
    if pd.isna(row[ends[0]]):
        return value
    low, high = (_number(row[end], digits, scale=scale, signed=signed) for end in ends)
    return f"{value} [{low}, {high}]"


def _number(
    value: float | None,
    digits: int,
    *,
    scale: float = 1,
    signed: bool = False,
    missing: str = "-",
) -> str:
    if value is None or pd.isna(value):
        return missing
    text = f"{scale * value:{'+' if signed else ''}.{digits}f}"
    return text if float(text) != 0 else text.lstrip("+-")


def _p_value(p: float | None) -> str:
    if p is None or pd.isna(p):
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *body]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
