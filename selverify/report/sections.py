"""The report in sections: its tables in the order of the page, with the notes that explain them.

Knows: what is shown, and in which order. Does not know: Markdown, HTML, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import pandas as pd

from selverify.experiment.equal_cost import HULL, MARGIN
from selverify.report import columns
from selverify.report.formatting import (
    Column,
    ReportTable,
    TableRow,
    number,
    ranged,
    verbatim,
    wide,
)
from selverify.report.names import (
    AT_A_GLANCE,
    FULL_METHOD,
    PART_SETS,
    SHORT_LIST,
    our_methods,
)
from selverify.report.tables import best_gated_baseline
from selverify.report.targets import Target
from selverify.report.variants import rank_agreement
from selverify.report.verdict import verdict

_EQUAL_NOTE = (
    "The most accurate (setting, N) of each method whose mean cost is at most B, chosen on one "
    "fold and scored on the other. The hull is the best that a random choice between two settings "
    "of any baselines reaches for B, likewise; because it is chosen from many, it can lose to a "
    "single baseline on the held-out problems. In brackets: the difference to it on the same "
    "problems, in points. A call may be on several steps: in ours on those committed without one "
    "since the last one, in granularity search on g, in best-of-N on a whole solution. "
    "`equal_calls.csv`, `equal_tokens.csv` and `equal_compute.csv` have intervals, p, costs, "
    "settings and the spread over repetitions. A dash: nothing is that cheap."
)
_DIFFERENCE_NOTE = (
    "Our methods minus the hull on the same problems, in points, with 95 % bootstrap intervals, "
    "which hold the choices fixed. p in `equal_calls.csv` is by Fisher's sign-flip test, because "
    "the outcomes of a random choice are expectations."
)
_REPEATED_NOTE = (
    "Settings are chosen anew for each of the `evaluation.repetitions` random divisions of the "
    "problems into folds; the other tables at equal cost show the first. The mean over those "
    "divisions in which each fold has an entry, in brackets the least and the greatest. This is "
    "what the choice of folds does, not what other problems would do."
)
_GAINS_NOTE = (
    "Ours minus the hull on each quarter of the problems, those of the same number together; the "
    "first column ends with how many they are. B holds on average over all problems: on hard ones "
    "both make more calls, on easy ones fewer, and not in the same measure (`gains.csv`)."
)
_NEAR_NOTE = (
    f"Measured calls at which a method comes within {100 * MARGIN:g} point of the hull's best "
    "accuracy, linear between the entries above. Brackets: 95 %, problems resampled, choices "
    "fixed; inf where a resample does not come so near."
)
_TRANSFER_NOTE = (
    "Generator, verifier, ranker, tau and every setting as they came from the benchmark above; "
    "nothing was learned from or chosen on these questions (`transfer.csv`)."
)
_COMPUTE_NOTE = (
    "Operations of generator, verifier and ranker: two a parameter and token read or written. What "
    "a cache of keys and values or the hidden states of decoding hold is not counted again."
)
_CLAIMS_NOTE = (
    "Of the paper's method as printed, at the headline N. Above 0 the claim holds; brackets are "
    "95 % bootstrap intervals over problems, paired. A claim holds where the whole interval is "
    "above 0, that of a larger gain only where hard problems show one. *Paper* is its own figure "
    "(Llama 3.2 1B on MATH-500, N = 64), not measured here. No move of it is committed without a "
    "call: where its calls run out, it has no answer."
)
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
    "The full method with a part taken out, turned round or added, its settings chosen from the "
    "same grid (retrieval: k_base and tau only). Differences are to the full method, paired. The "
    "rule that trusts a move without a call stays in all but the two rows whose names say so."
)
_SETS_NOTE = (
    "Methods of the tables above by what they have of ours: gates, ranking and joint commit by h, "
    "k(w) as `search.allocation` says (else a fixed k; without h every survivor is verified), and "
    "the rule that commits without a call. Some rows need `evaluation.leave_one_out`."
)
_VERIFIER_NOTE = (
    "On steps of sampled solutions that pass the gates, where the right answer was still in reach; "
    "without exact truth, on answers. V(w, m) is by the step alone. By the product of all scores "
    "so far, tau would refuse more right steps the longer a solution is: it ranks whole solutions, "
    "where scores are chances of steps and not values (`verifier.aggregation`)."
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


@dataclass(frozen=True, slots=True, eq=False)
class ReportData:
    """Everything that the pages show.

    ``runs``: how often each problem of ``split`` was run. ``tables`` are named as in
    :func:`sections`; seeds is empty where each problem was run once, and backbones, strengths and
    ranking have one variant where no other was run. Further tables are not shown.
    """

    domain: str
    split: str
    budget: int
    runs: int
    tables: Mapping[str, pd.DataFrame]
    within_shares: Mapping[str, float | None]
    targets: tuple[Target, ...]

    @property
    def problems(self) -> int:
        """How many problems were evaluated."""
        return int(self.tables["main"]["problems"].max())

    @property
    def title(self) -> str:
        """What was measured: domain, problems, N."""
        seeds = f", {self.runs} sampling seeds" if self.runs > 1 else ""
        problems = "problems" if self.split == "test" else f"{self.split} problems"
        return f"{self.domain}, {self.problems} {problems}{seeds}, N = {self.budget}"

    @property
    def verdict(self) -> str:
        """What the run says, in one sentence."""
        return verdict(self.tables, self.targets, problems=self.problems)


def metrics(report: ReportData) -> dict[str, float]:
    """What two runs are compared by at a glance; what could not be measured is left out.

    Accuracy, calls and tokens at the headline N of full and of the baseline with gates that is most
    accurate there, the share of that one's calls that full saves at equal accuracy, and what the
    targets take from other stages.
    """
    rows = {str(one["method"]): one for one in report.tables["main"].to_dict("records")}
    baseline = str(best_gated_baseline(report.tables["main"])["method"])
    flat = {
        f"{name}.{column}": float(rows[method][column])
        for name, method in (("full", FULL_METHOD), ("baseline", baseline))
        for column in _METRICS
    }
    saved = report.tables["headline"].set_index(["other", "measure"])["value"]
    measured = {one.name: one.measured for one in report.targets}
    found = {
        "calls_saved": saved.get((baseline, "calls_saved")),
        **{name: measured.get(name) for name in ("step_auc", "pass_at_1", "pass_at_64")},
    }
    return flat | {name: float(value) for name, value in found.items() if pd.notna(value)}


def details(report: ReportData) -> dict[str, float | int | bool]:
    """A flat mapping of more of the tables for programs, likewise."""
    main, rankers, verifier = (report.tables[name] for name in ("main", "rankers", "verifier"))
    flat: dict[str, float | int | bool] = {"budget": report.budget}
    for record in main.to_dict("records"):
        for column in _METRICS:
            flat[f"{record['method']}.{column}"] = float(record[column])
    for name, value in _equal_calls(report.tables["equal_calls"]):
        flat[f"equal_calls.{name}"] = value
    for record in rankers[rankers["metric"].isin(_RANKER_METRICS)].to_dict("records"):
        flat[f"ranker.{record['ranker']}.{record['metric']}"] = float(record["value"])
    for record in judged(verifier).to_dict("records"):
        flat[f"verifier.{record['metric']}"] = float(record["value"])
    for target in report.targets:
        if target.measured is not None:
            flat[f"target.{target.name}.measured"] = float(target.measured)
        flat[f"target.{target.name}.met"] = target.met
    return {name: value for name, value in flat.items() if pd.notna(value)}


def judged(verifier: pd.DataFrame) -> pd.DataFrame:
    """The rows of the verifier's table by which it is judged: those of the score that is first."""
    rows: pd.DataFrame = verifier[verifier["of"] == verifier["of"].iloc[0]]
    return rows


def _equal_calls(table: pd.DataFrame) -> Iterator[tuple[str, float]]:
    """Accuracy of full and of the hull at each B, and their difference."""
    measures = (
        ("full", FULL_METHOD, "accuracy"),
        ("hull", HULL, "accuracy"),
        ("difference", FULL_METHOD, "difference"),
    )
    for name, method, column in measures:
        own = table[table["method"] == method].dropna(subset=column)
        for level, value in zip(own["level"], own[column], strict=True):
            yield f"{level}.{name}", float(value)


def sections(report: ReportData) -> tuple[ReportTable, ...]:
    """Every table of the report in the order of the page."""
    return (
        *_equal_costs(report),
        *_comparisons(report),
        *_variants(report),
        *_breakdowns(report),
        *_audits(report),
    )


def terminal_table(report: ReportData) -> ReportTable:
    """Accuracy at equal calls, as narrow as a terminal needs it."""
    heading = f"Accuracy, %, for a mean of at most B verifier calls, {report.problems} problems"
    return _at_equal_calls(report, SHORT_LIST, heading)


def glance_table(report: ReportData) -> ReportTable:
    """The rows of it that the page opens with."""
    heading = "Accuracy, %, for a mean of at most B verifier calls"
    return _at_equal_calls(report, AT_A_GLANCE, heading)


def _at_equal_calls(report: ReportData, methods: Sequence[str], heading: str) -> ReportTable:
    table = report.tables["equal_calls"]
    by_level = columns.accuracy_by_level(table["level"])
    shown = table[table["method"].isin(methods)]
    return ReportTable(heading, by_level, wide(shown, "method", "level"), figure="equal_calls")


def _equal_costs(report: ReportData) -> Iterator[ReportTable]:
    """What a number of verifier calls, or of tokens, buys: each method, and the hull."""
    calls, tokens = report.tables["equal_calls"], report.tables["equal_tokens"]
    title = "Accuracy for a mean of at most B verifier calls a problem, %"
    yield _against_hull(title, calls, _EQUAL_NOTE)
    ours = wide(calls[calls["method"].isin(our_methods())], "method", "level")
    title = "Difference to the hull for a mean of at most B verifier calls"
    yield ReportTable(title, columns.difference_to_hull(calls["level"]), ours, _DIFFERENCE_NOTE)
    shown = columns.difference_over_repetitions(calls["level"])
    yield ReportTable(f"{title}, over all divisions into folds", shown, ours, _REPEATED_NOTE)
    by_parts = calls[calls["method"].isin(PART_SETS)]
    yield ReportTable(
        "What each part gains: accuracy for a mean of at most B verifier calls, %",
        columns.parts_by_level(calls["level"]),
        sorted(wide(by_parts, "method", "level"), key=_number_of_parts),
        _SETS_NOTE,
    )
    gains = report.tables["gains"]
    yield ReportTable(
        "Where the difference lies",
        columns.gain_columns(calls["level"]),
        wide(gains.assign(group=_groups(gains)), "group", "level"),
        _GAINS_NOTE,
        "gains",
    )
    yield ReportTable(
        "Calls to come near the best of the hull",
        columns.NEAR_BEST,
        report.tables["near_best"],
        _NEAR_NOTE,
    )
    title = "Accuracy for a mean of at most B generated tokens a problem, %"
    yield _against_hull(title, tokens, figure="accuracy_tokens")
    other = report.tables["transfer"]
    if len(other):
        title = (
            f"On {other['problems'].iloc[0]} questions of another benchmark: accuracy for a mean "
            "of at most B verifier calls, %"
        )
        yield _against_hull(title, other, _TRANSFER_NOTE)
    compute = report.tables["equal_compute"]
    if len(compute):
        title = "Accuracy for a mean of at most B million operations a problem, %"
        yield _against_hull(title, compute, _COMPUTE_NOTE)


def _against_hull(title: str, table: pd.DataFrame, note: str = "", figure: str = "") -> ReportTable:
    """A table of accuracy at equal cost; of our methods with the difference to the hull."""
    by_level = columns.accuracy_against_hull(table["level"])
    return ReportTable(title, by_level, wide(table, "method", "level"), note, figure)


def _comparisons(report: ReportData) -> Iterator[ReportTable]:
    """The paper's claims; full against other methods, and beside the paper."""
    found = report.tables
    if len(found["claims"]):
        yield ReportTable("Claims of the paper", columns.CLAIMS, found["claims"], _CLAIMS_NOTE)
    reading = _reading(report.problems, report.runs)
    yield ReportTable("Main table", columns.MAIN, found["main"], reading, "accuracy_calls")
    aims = [{**asdict(one), "goal": one.goal, "met": one.met} for one in report.targets]
    yield ReportTable("Targets", columns.TARGETS, aims)
    headline = wide(found["headline"], "other", "measure")
    yield ReportTable("Headline", columns.HEADLINE, headline, _HEADLINE_NOTE)
    yield ReportTable(
        "Full against the best baseline with gates, at each N",
        columns.BY_BUDGET,
        found["by_budget"],
        _BY_BUDGET_NOTE,
        "accuracy_n",
    )
    yield ReportTable("Beside Table 1 of the paper", columns.PAPER, found["paper"], _TABLE_1_NOTE)
    yield ReportTable("Ablation", columns.ABLATION, found["ablation"], _PAPER_NOTE)
    if len(found["leave_one_out"]):
        parts = found["leave_one_out"]
        yield ReportTable("One part left out", columns.LEFT_OUT, parts, _PARTS_NOTE)


def _variants(report: ReportData) -> Iterator[ReportTable]:
    """What was run more than once: seeds, backbones, strengths of the verifier."""
    found = report.tables
    strengths = found["strengths"]
    if len(found["seeds"]):
        yield ReportTable("Sampling seeds", columns.SEEDS, found["seeds"], _SEEDS_NOTE)
    if len(found["backbones"]) > 1:
        shown = (Column("Backbone", "variant", verbatim), *columns.AGAINST_BEST)
        yield ReportTable("Backbones", shown, found["backbones"], _AGAINST_NOTE, "backbones")
    if len(strengths) > 1:
        shown = (Column("Verifier", "variant", verbatim), *columns.AGAINST_BEST)
        yield ReportTable("Strength of the verifier", shown, strengths, _AGAINST_NOTE)
        names = strengths["variant"].tolist()
        yield ReportTable(
            "Methods by verifier",
            columns.ranking_columns(names),
            found["ranking"],
            _agreement_note(found["ranking"], *names),
        )
    for name, table in found["equal_calls_by_strength"].groupby("variant", sort=False):
        title = f"Accuracy for a mean of at most B verifier calls a problem, verifier {name}, %"
        yield _against_hull(title, table)


def _breakdowns(report: ReportData) -> Iterator[ReportTable]:
    """Accuracy and calls by difficulty and by setting."""
    by_bin = report.tables["by_bin"]
    bins = by_bin["difficulty_bin"].tolist()
    yield ReportTable(
        "Accuracy by difficulty bin, %",
        columns.bin_columns(bins, "accuracy", partial(ranged, scale=100, digits=0)),
        wide(by_bin, "method", "difficulty_bin"),
        figure="by_bin",
    )
    verifying = by_bin.groupby("method")["verifier_calls"].transform("max") > 0
    yield ReportTable(
        "Verifier calls by difficulty bin",
        columns.bin_columns(bins, "verifier_calls", number),
        wide(by_bin[verifying], "method", "difficulty_bin"),
    )
    settings = report.tables["settings"]
    yield ReportTable("Settings chosen by cross-validation", columns.SETTINGS, settings)


def _audits(report: ReportData) -> Iterator[ReportTable]:
    """The parts of the method by themselves: gates, rankers, verifier, allocation."""
    found = report.tables
    yield ReportTable("Gates", columns.GATE_SHARES, found["gates"], figure="gates")
    shown = columns.ranker_columns(found["rankers"]["metric"])
    by_ranker = wide(found["rankers"], "ranker", "metric")
    yield ReportTable("Rankers", shown, by_ranker, figure="rankers")
    by_metric = wide(found["verifier"], "metric", "of")
    yield ReportTable("Verifier", columns.VERIFIER, by_metric, _VERIFIER_NOTE, figure="reliability")
    note = _within_note(report.within_shares)
    yield ReportTable("Along a solution", columns.BY_DEPTH, found["within"], note, "within")


def _number_of_parts(record: TableRow) -> int:
    return len(PART_SETS[str(record["method"])].split(", "))


def _groups(gains: pd.DataFrame) -> list[str]:
    """What the problems of each row's group have in common, and how many they are."""
    columns_of = zip(gains["along"], gains["mean"], gains["problems"], strict=True)
    return [f"{name} {mean:.3g} on average, {count} problems" for name, mean, count in columns_of]


def _agreement_note(ranking: pd.DataFrame, first: str, *others: str) -> str:
    taus = ", ".join(f"{rank_agreement(ranking, first, one):.2f} ({one})" for one in others)
    return (
        f"Kendall's tau-b with the accuracies under {first}, over the methods that ask a "
        f"verifier and are no choice between others: {taus}."
    )


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
    listed = ", ".join(
        f"{100 * share:.0f} % of that of {name}"
        for name, share in shares.items()
        if share is not None
    )
    return (
        "The full method under the settings of `search`, each round of proposals, retries too, by "
        "the moves made before it. Survivors, sigma, margin and k are over rounds with calls. "
        f"Variance within problems, not between them: {listed or 'none'}."
    )
