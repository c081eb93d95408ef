"""The cells of the report's tables: each table as a header and rows of text.

Knows: what is shown, and in which digits. Does not know: sections, notes, Markdown, HTML, files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from selverify.report.names import METHOD_NAMES, in_order, method_name
from selverify.report.targets import Target

_HEADLINES = {
    "calls_saved": "Calls saved at equal accuracy, %",
    "accuracy_gained": "Accuracy gained at equal calls, points",
    "area_gained": "Area under the frontier gained, points",
}
Cells = tuple[list[str], list[list[str]]]


def main_cells(main: pd.DataFrame) -> Cells:
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
            ranged(r, "accuracy", scale=100),
            ranged(r, "verifier_calls"),
            f"{r['verifier_steps']:.1f}",
            f"{r['generated_tokens']:.0f}",
            ranged(r, "difference", scale=100, signed=True),
            _p_value(r["mcnemar_p"]),
        ]
        for _, r in main.iterrows()
    ]
    return header, body


def target_cells(found: Sequence[Target]) -> Cells:
    """What was aimed at, measured and met."""
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


def ablation_cells(table: pd.DataFrame) -> Cells:
    """``tables.ablation_table`` as text."""
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
            ranged(r, "accuracy", scale=100),
            ranged(r, "verifier_calls"),
            ranged(r, "step", scale=100, signed=True),
            ranged(r, "calls_ratio", digits=2),
            f"{r['paper_accuracy']:.1f}",
            f"{r['paper_calls']:.1f}",
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def headline_cells(table: pd.DataFrame) -> Cells:
    """``headline.headline_table`` as text, one row a method that full is held against."""
    names = dict.fromkeys(table["measure"].tolist())
    body = []
    for other in dict.fromkeys(table["other"].tolist()):
        own = table[table["other"] == other].set_index("measure")
        cells = [ranged(own.loc[name], "value", scale=100, signed=True) for name in names]
        body.append([method_name(other), *cells])
    return ["Full against", *(_HEADLINES[name] for name in names)], body


def part_cells(table: pd.DataFrame) -> Cells:
    """``tables.leave_one_out_table`` as text."""
    header = [
        *("Configuration", "Accuracy, %", "Verifier calls", "Generated tokens"),
        *("Difference to full, points", "Calls over full's"),
    ]
    body = [
        [
            method_name(str(r["method"])),
            ranged(r, "accuracy", scale=100),
            ranged(r, "verifier_calls"),
            f"{r['generated_tokens']:.0f}",
            ranged(r, "step", scale=100, signed=True),
            ranged(r, "calls_ratio", digits=2),
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def by_budget_cells(table: pd.DataFrame) -> Cells:
    """``targets.by_budget_table`` as text."""
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


def frontier_cells(table: pd.DataFrame) -> Cells:
    """``tables.frontier_table`` as text."""
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


def bin_cells(table: pd.DataFrame) -> Cells:
    """Accuracies of ``tables.by_bin_table`` as text, one column a bin."""
    return _by_bin(table, lambda row: ranged(row, "accuracy", scale=100, digits=0))


def bin_calls_cells(table: pd.DataFrame) -> Cells:
    """Calls of the same, of the methods that make any."""
    asking = table.groupby("method")["verifier_calls"].transform("max") > 0
    return _by_bin(table[asking], lambda row: _number(row["verifier_calls"], 1))


def _by_bin(table: pd.DataFrame, cell: Callable[[pd.Series], str]) -> Cells:
    numbers = sorted(table["difficulty_bin"].unique().tolist())
    ends = {numbers[0]: " (easiest)", numbers[-1]: " (hardest)"} if numbers else {}
    header = ["Method", *(f"{number}{ends.get(number, '')}" for number in numbers)]
    body = []
    for method in in_order(table["method"].tolist()):
        own = table[table["method"] == method].sort_values("difficulty_bin")
        body.append([method_name(method), *(cell(row) for _, row in own.iterrows())])
    return header, body


def paper_cells(table: pd.DataFrame) -> Cells:
    """``tables.paper_table`` as text."""
    header = ["Method", "Accuracy, %", "Verifier calls", "Paper: accuracy, %", "Paper: calls"]
    body = [
        [
            method_name(str(r["method"])),
            ranged(r, "accuracy", scale=100),
            ranged(r, "verifier_calls"),
            f"{r['paper_accuracy']:.1f}",
            _number(r["paper_calls"], 1),
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def seed_cells(table: pd.DataFrame) -> Cells:
    """``variants.seeds_table`` as text."""
    header = ["Method", "Seeds", "Accuracy, %", "Lowest to highest, %", "Verifier calls"]
    body = [
        [
            method_name(str(r["method"])),
            str(r["seeds"]),
            f"{100 * r['accuracy_mean']:.1f} (sd {100 * r['accuracy_sd']:.1f})",
            f"{100 * r['accuracy_min']:.1f} to {100 * r['accuracy_max']:.1f}",
            f"{r['calls_mean']:.1f} (sd {r['calls_sd']:.1f})",
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def against_cells(what: str, table: pd.DataFrame) -> Cells:
    """``variants.against_best_table`` as text; ``what`` heads the column of variants."""
    header = [
        *(what, "0-shot, %", "Best baseline with gates", "Its accuracy, %", "Its calls"),
        *("Full, %", "Calls of full", "Gain, points", "Calls over the baseline's"),
    ]
    body = [
        [
            str(r["variant"]),
            _number(r["one_shot"], 1, scale=100),
            method_name(str(r["baseline"])),
            _number(r["baseline_accuracy"], 1, scale=100),
            _number(r["baseline_calls"], 1),
            ranged(r, "accuracy", scale=100),
            ranged(r, "verifier_calls"),
            ranged(r, "step", scale=100, signed=True),
            ranged(r, "calls_ratio", digits=2),
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def ranking_cells(table: pd.DataFrame, names: Sequence[str]) -> Cells:
    """``variants.ranking_table`` as text, three columns for each of ``names``."""
    header = ["Method"]
    for name in names:
        header += [f"{name}: accuracy, %", f"{name}: calls", f"{name}: rank"]
    body = []
    for _, r in table.iterrows():
        line = [method_name(str(r["method"]))]
        for name in names:
            line += [
                ranged(r, f"{name}.accuracy", scale=100),
                _number(r[f"{name}.calls"], 1),
                _number(r[f"{name}.rank"], 0),
            ]
        body.append(line)
    return header, body


def settings_cells(table: pd.DataFrame) -> Cells:
    """``tables.settings_table`` as text."""
    header = ["Method", "Settings, one a fold", "Accuracy over repetitions, %", "Calls"]
    body = [
        [
            method_name(str(r["method"])),
            _settings(str(r["settings"])),
            f"{100 * r['accuracy_mean']:.1f} (sd {100 * r['accuracy_sd']:.1f})",
            f"{r['verifier_calls_mean']:.1f} (sd {r['verifier_calls_sd']:.1f})",
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def _settings(joined: str) -> str:
    """Settings as text; that of a strategy is the method it chose."""
    return "; ".join(METHOD_NAMES.get(one, one) for one in joined.split(" | "))


def gate_cells(table: pd.DataFrame) -> Cells:
    """``audits.gate_table`` as text."""
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


def ranker_cells(table: pd.DataFrame) -> Cells:
    """``audits.ranker_table`` as text, one column a metric."""
    names = list(dict.fromkeys(table["metric"].tolist()))
    found = {(r["ranker"], r["metric"]): r for _, r in table.iterrows()}
    body = [
        [ranker, *(ranged(found.get((ranker, name)), "value", digits=2) for name in names)]
        for ranker in dict.fromkeys(table["ranker"].tolist())
    ]
    return ["Ranker", *(name.replace("_", " ") for name in names)], body


def verifier_cells(table: pd.DataFrame) -> Cells:
    """``audits.verifier_table`` as text."""
    body = [
        [str(r["metric"]).replace("_", " "), ranged(r, "value", digits=3)]
        for _, r in table.iterrows()
    ]
    return ["Measure", "Value"], body


def within_cells(table: pd.DataFrame) -> Cells:
    """``within.within_table`` as text."""
    header = [
        *("Moves so far", "Rounds", "Without a call, %", "Survivors", "sigma(w)", "k(w)"),
        "Accepted of verified, %",
    ]
    body = [
        [
            str(int(r["depth"])),
            str(int(r["rounds"])),
            _number(r["trusted"], 0, scale=100),
            _number(r["survivors"], 1),
            _spread(r, "sigma"),
            _spread(r, "k"),
            _number(r["accepted"], 0, scale=100),
        ]
        for _, r in table.iterrows()
    ]
    return header, body


def _spread(row: pd.Series, name: str) -> str:
    mean = _number(row[name], 2)
    return mean if mean == "-" else f"{mean} (sd {_number(row[f'{name}_sd'], 2)})"


def ranged(
    row: pd.Series | None, name: str, *, scale: float = 1, digits: int = 1, signed: bool = False
) -> str:
    """A value of a row with its interval in brackets; "-" where there is no value."""
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
