"""The report in sections: each table as text cells, with the note that explains it.

Knows: what is shown, and in which digits. Does not know: Markdown, HTML, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from selverify.reporting.names import in_order, method_name
from selverify.reporting.tables import COSTS
from selverify.reporting.targets import Target

_BY_BUDGET_NOTE = (
    "The baseline is the most accurate one at that N on these very problems, which favours it. "
    "Gains are paired, with 95 % bootstrap intervals."
)
_HEADLINES = {
    "calls_saved": "Calls saved at equal accuracy, %",
    "accuracy_gained": "Accuracy gained at equal calls, points",
    "area_gained": "Area under the frontier gained, points",
}
_HEADLINE_NOTE = (
    "Read off the frontiers of accuracy against measured calls. Equal accuracy is the highest that "
    "both reach, equal calls what full makes at the headline budget, and the area is the mean "
    "accuracy over a call allowance uniform from 0 to N. Every frontier begins at the 0-shot "
    "accuracy for no call. Brackets: 95 %, problems resampled and frontiers drawn anew; the "
    "baseline and the settings stay as chosen, so they are somewhat narrow. Against the oracle the "
    "area is the distance to what is possible."
)
_PARTS_NOTE = (
    "The full method with one part taken out, turned round or added, its settings chosen from the "
    "same grid (retrieval: k_base and tau only). Differences are to the full method, paired. The "
    "rule that trusts a move without a call stays in all of them."
)
_PAPER_NOTE = (
    "The columns marked *paper* are the paper's own figures (Table 2: Llama 3.2 1B on MATH-500), "
    "quoted for the order of the rows; they were not measured here. The paper's abstract says "
    "44 % fewer verifier calls, its tables 30 % (44.8 of 64)."
)
_METRICS = ("accuracy", "accuracy_low", "accuracy_high", "verifier_calls", *COSTS)
_Cells = tuple[list[str], list[list[str]]]


@dataclass(frozen=True, slots=True)
class Section:
    """One table under its title: header, rows of text, a note, and the stem of its figure.

    ``note`` and ``figure`` are "" where there is none.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    figure: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything that the pages show."""

    domain: str
    budget: int
    main: pd.DataFrame
    headline: pd.DataFrame
    by_budget: pd.DataFrame
    ablation: pd.DataFrame
    leave_one_out: pd.DataFrame
    frontier: pd.DataFrame
    by_bin: pd.DataFrame
    settings: pd.DataFrame
    gates: pd.DataFrame
    rankers: pd.DataFrame
    verifier: pd.DataFrame
    within: pd.DataFrame
    within_shares: Mapping[str, float | None]
    targets: tuple[Target, ...]


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


def title(report: Report) -> str:
    """What was measured: domain, problems, N."""
    problems = int(report.main["problems"].max())
    return f"{report.domain}, {problems} problems, N = {report.budget}"


def sections(report: Report) -> tuple[Section, ...]:
    """Every table of the report in the order of the page."""
    reading = _reading(int(report.main["problems"].max()))
    parts = Section("One part left out", *_part_cells(report.leave_one_out), _PARTS_NOTE)
    return (
        Section("Main table", *_main_cells(report.main), reading, "accuracy_calls"),
        Section("Targets", *_target_cells(report.targets)),
        Section("Headline", *_headline_cells(report.headline), _HEADLINE_NOTE),
        Section(
            "Full against the best baseline with gates, at each N",
            *_by_budget_cells(report.by_budget),
            _BY_BUDGET_NOTE,
            "accuracy_n",
        ),
        Section("Ablation", *_ablation_cells(report.ablation), _PAPER_NOTE),
        *((parts,) if len(report.leave_one_out) else ()),
        Section("Frontier", *_frontier_cells(report.frontier), figure="accuracy_tokens"),
        Section("Accuracy by difficulty bin, %", *_bin_cells(report.by_bin), figure="by_bin"),
        Section("Settings chosen by cross-validation", *_settings_cells(report.settings)),
        Section("Gates", *_gate_cells(report.gates), figure="gates"),
        Section("Rankers", *_ranker_cells(report.rankers), figure="rankers"),
        Section("Verifier", *_verifier_cells(report.verifier), figure="reliability"),
        Section(
            "Along a solution",
            *_within_cells(report.within),
            _within_note(report.within_shares),
            "within",
        ),
    )


def _reading(problems: int) -> str:
    half = 100 * 1.96 * (0.25 / problems) ** 0.5
    return (
        "Brackets are 95 % bootstrap intervals over problems. Differences are paired: method minus "
        "full on the same problems, p by McNemar's exact test. The interval of one accuracy on "
        f"{problems} problems reaches up to {half:.1f} points to each side, so an unpaired "
        "difference under that says nothing. Calls, step scores and tokens are means a problem."
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


def _headline_cells(table: pd.DataFrame) -> _Cells:
    names = dict.fromkeys(table["measure"].tolist())
    body = []
    for other in dict.fromkeys(table["other"].tolist()):
        own = table[table["other"] == other].set_index("measure")
        cells = [ranged(own.loc[name], "value", scale=100, signed=True) for name in names]
        body.append([method_name(other), *cells])
    return ["Full against", *(_HEADLINES[name] for name in names)], body


def _part_cells(table: pd.DataFrame) -> _Cells:
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
        cells = [ranged(r, "accuracy", scale=100, digits=0) for _, r in own.iterrows()]
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
        [ranker, *(ranged(found.get((ranker, name)), "value", digits=2) for name in names)]
        for ranker in dict.fromkeys(table["ranker"].tolist())
    ]
    return ["Ranker", *(name.replace("_", " ") for name in names)], body


def _verifier_cells(table: pd.DataFrame) -> _Cells:
    body = [
        [str(r["metric"]).replace("_", " "), ranged(r, "value", digits=3)]
        for _, r in table.iterrows()
    ]
    return ["Measure", "Value"], body


def _within_cells(table: pd.DataFrame) -> _Cells:
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


def _within_note(shares: Mapping[str, float | None]) -> str:
    told = " and ".join(
        f"{100 * share:.0f} % of that of {name}"
        for name, share in shares.items()
        if share is not None
    )
    return (
        "The full method under the settings of `search`, each round of proposals, retries too, by "
        "the moves made before it. Survivors, sigma and k are over rounds with calls. Variance "
        f"within problems, not between them: {told or 'none'}."
    )


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
