"""The report in sections: each table as text, with the note that explains it.

Knows: what is shown, and in which order. Does not know: Markdown, HTML, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from selverify.report import formatting
from selverify.report.targets import Target
from selverify.report.variants import rank_agreement

_BY_BUDGET_NOTE = (
    "The baseline is the most accurate one at that N on these very problems, which favours it. "
    "Gains are paired, with 95 % bootstrap intervals."
)
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
_TABLE_1_NOTE = (
    "The columns marked *paper* are the paper's own figures (Table 1: Llama 3.2 1B on MATH-500, "
    "N = 64), quoted for the order of the rows; they were not measured here. Its table prints 64 "
    "verifier calls for majority vote, which asks none: that is N."
)
_SEEDS_NOTE = (
    "Every method run once under each sampling seed, its settings chosen on all of them together. "
    "The standard deviation is between the means of the seeds. Other tables of accuracy and calls "
    "average a problem's runs first and resample problems with all their runs: seeds are nested in "
    "problems, so their intervals hold the noise of sampling too."
)
_AGAINST_NOTE = (
    "The baseline is the most accurate one with gates on these very problems, which favours it. "
    "Differences are paired."
)
_METRICS = ("accuracy", "verifier_calls", "generated_tokens")
_RANKER_METRICS = ("recall_at_1", "calls_to_first_accept")


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
    """Everything that the pages show.

    ``runs``: how often each problem was run; ``seeds`` is empty where that is once. ``backbones``,
    ``strengths`` and ``ranking`` have one variant where no other was run.
    """

    domain: str
    budget: int
    runs: int
    main: pd.DataFrame
    paper: pd.DataFrame
    headline: pd.DataFrame
    by_budget: pd.DataFrame
    ablation: pd.DataFrame
    leave_one_out: pd.DataFrame
    frontier: pd.DataFrame
    by_bin: pd.DataFrame
    settings: pd.DataFrame
    seeds: pd.DataFrame
    backbones: pd.DataFrame
    strengths: pd.DataFrame
    ranking: pd.DataFrame
    gates: pd.DataFrame
    rankers: pd.DataFrame
    verifier: pd.DataFrame
    within: pd.DataFrame
    within_shares: Mapping[str, float | None]
    targets: tuple[Target, ...]


def metrics(report: Report) -> dict[str, float | int | bool]:
    """A flat mapping for ``storage.write_plain_json``; what could not be measured is left out.

    Few enough for a person to read two of them side by side; the tables have the rest.
    """
    flat: dict[str, float | int | bool] = {"budget": report.budget}
    for record in report.main.to_dict("records"):
        for column in _METRICS:
            flat[f"{record['method']}.{column}"] = float(record[column])
    kept = report.rankers["metric"].isin(_RANKER_METRICS)
    for record in report.rankers[kept].to_dict("records"):
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
    seeds = f", {report.runs} sampling seeds" if report.runs > 1 else ""
    return f"{report.domain}, {problems} problems{seeds}, N = {report.budget}"


def sections(report: Report) -> tuple[Section, ...]:
    """Every table of the report in the order of the page."""
    reading = _reading(int(report.main["problems"].max()), report.runs)
    parts = Section("One part left out", *formatting.part_cells(report.leave_one_out), _PARTS_NOTE)
    return (
        Section("Main table", *formatting.main_cells(report.main), reading, "accuracy_calls"),
        Section("Targets", *formatting.target_cells(report.targets)),
        Section("Headline", *formatting.headline_cells(report.headline), _HEADLINE_NOTE),
        Section(
            "Full against the best baseline with gates, at each N",
            *formatting.by_budget_cells(report.by_budget),
            _BY_BUDGET_NOTE,
            "accuracy_n",
        ),
        Section(
            "Beside Table 1 of the paper", *formatting.paper_cells(report.paper), _TABLE_1_NOTE
        ),
        Section("Ablation", *formatting.ablation_cells(report.ablation), _PAPER_NOTE),
        *((parts,) if len(report.leave_one_out) else ()),
        *_variant_sections(report),
        Section("Frontier", *formatting.frontier_cells(report.frontier), figure="accuracy_tokens"),
        Section(
            "Accuracy by difficulty bin, %", *formatting.bin_cells(report.by_bin), figure="by_bin"
        ),
        Section("Verifier calls by difficulty bin", *formatting.bin_calls_cells(report.by_bin)),
        Section("Settings chosen by cross-validation", *formatting.settings_cells(report.settings)),
        Section("Gates", *formatting.gate_cells(report.gates), figure="gates"),
        Section("Rankers", *formatting.ranker_cells(report.rankers), figure="rankers"),
        Section("Verifier", *formatting.verifier_cells(report.verifier), figure="reliability"),
        Section(
            "Along a solution",
            *formatting.within_cells(report.within),
            _within_note(report.within_shares),
            "within",
        ),
    )


def _variant_sections(report: Report) -> Iterator[Section]:
    """What was run more than once: seeds, backbones, strengths of the verifier."""
    if len(report.seeds):
        yield Section("Sampling seeds", *formatting.seed_cells(report.seeds), _SEEDS_NOTE)
    if len(report.backbones) > 1:
        shown = formatting.against_cells("Backbone", report.backbones)
        yield Section("Backbones", *shown, _AGAINST_NOTE, "backbones")
    if len(report.strengths) > 1:
        shown = formatting.against_cells("Verifier", report.strengths)
        yield Section("Strength of the verifier", *shown, _AGAINST_NOTE)
        first, *others = report.strengths["variant"].tolist()
        told = ", ".join(
            f"{rank_agreement(report.ranking, first, other):.2f} ({other})" for other in others
        )
        note = (
            f"Kendall's tau-b with the accuracies under {first}, over the methods that ask a "
            f"verifier and are no choice between others: {told}."
        )
        names = [first, *others]
        yield Section("Methods by verifier", *formatting.ranking_cells(report.ranking, names), note)


def _reading(problems: int, runs: int) -> str:
    test = "McNemar's exact test"
    if runs > 1:
        test = f"the exact sign-flip test of a problem's {runs} runs (McNemar's where it is one)"
    half = 100 * 1.96 * (0.25 / problems) ** 0.5
    return (
        "Brackets are 95 % bootstrap intervals over problems. Differences are paired: method minus "
        f"full on the same problems, p by {test}. The interval of one accuracy on "
        f"{problems} problems reaches up to {half:.1f} points to each side, so an unpaired "
        "difference under that says nothing. Calls, step scores and tokens are means a problem."
    )


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
