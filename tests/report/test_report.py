"""Tables, targets, figures and pages of the report, against numbers worked out by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import (
    BINS,
    BOOTSTRAP,
    METHODS,
    VISITS,
    cross_validated,
    outcomes,
    runs,
    steps,
    validated,
)

from selverify.errors import SchemaError
from selverify.experiment.audits import ScoredCandidates, gate_table, ranker_table
from selverify.experiment.equal_cost import HULL, OURS
from selverify.experiment.selection import pool_runs
from selverify.report import by_depth, headline, names, pages, plots, sections, tables, targets
from selverify.report.sections import ReportData
from selverify.storage import write_plain_json
from tasks.report import HORIZON, Variant, _along, draw_figures, outcome_tables, step_tables

HEADLINE_OF_NOTHING = pd.DataFrame(columns=["other", "measure", "value"])
GOLDEN = Path(__file__).parent / "report.md"


def test_markdown_is_exactly_the_golden_page(built: ReportData) -> None:
    """The page of a small synthetic run, checked by hand once, stays as it is."""
    assert pages.to_markdown(built) == GOLDEN.read_text(encoding="utf-8")


def test_tables_by_hand(built: ReportData) -> None:
    """Full solves 14 of 20, the gated beam 12 of them; every fifth problem costs two more."""
    cells = [
        ("main", "full", "accuracy", 0.7),
        ("main", "full", "verifier_calls", 3.4),
        ("main", "full", "timeout", 1),
        ("main", "full", "difference", None),
        ("main", "beam_keep_b_gated", "difference", -0.1),
        ("main", "beam_keep_b_gated", "mcnemar_p", 0.5),
        ("main", "cot", "n", 1),
    ]
    for table, method, column, expected in cells:
        found = built.tables[table].set_index("method").loc[method, column]
        assert pd.isna(found) if expected is None else found == pytest.approx(expected), column


def test_targets_by_hand(built: ReportData) -> None:
    """Each target's value and verdict, recomputed from the numbers in ``synthetic``."""
    found = {target.name: target for target in built.targets}
    measured = {name: target.measured for name, target in found.items()}
    assert measured == {
        "accuracy_gain_over_baseline": pytest.approx(10.0),
        "calls_ratio_to_baseline": pytest.approx(3.4 / 8.4),
        "accuracy_gain_over_baseline_as_much_generated": pytest.approx(10.0),
        "calls_ratio_to_baseline_as_much_generated": pytest.approx(3.4 / 8.4),
        "accuracy_gain_over_gates_only": pytest.approx(10.0),
        "calls_ratio_to_gates_only": pytest.approx(3.4 / 7.4),
        "ablation_accuracy_order": 3,
        "ablation_calls_order": 3,
        "calls_ratio_to_oracle": pytest.approx(3.4 / 2.4),
        "pass_at_1": 0.3,
        "pass_at_64": 0.85,
        "gated_share": 0.3,
        "step_auc": 0.93,
    }
    assert [name for name, target in found.items() if not target.met] == ["pass_at_64"]


def test_numbers_along_which_gains_are_shown() -> None:
    """Of the evaluated problems alone; the greedy solution's moves where 0-shot CoT ran."""
    difficulty = pd.DataFrame({"problem_id": ["a", "b", "c"], "pass_at_1": [0.5, 0.25, 1.0]})
    rows = [("cot", "b", 4), ("cot", "b", 6), ("cot", "a", 3), ("cot", "a", 3), ("full", "a", 90)]
    outcomes = pd.DataFrame(rows, columns=["method", "problem_id", "generated_moves"])
    found = _along(outcomes, difficulty)
    assert found["pass@1"].to_dict() == {"b": 0.25, "a": 0.5}
    assert found[HORIZON].to_dict() == {"a": 3.0, "b": 5.0}
    assert set(_along(outcomes[outcomes["method"] == "full"], difficulty)) == {"pass@1"}


def test_the_baseline_that_generates_no_more_is_found_at_its_own_budget() -> None:
    """A dearer one is passed over, another n may win, and without any there is none."""
    points = pd.DataFrame(
        [
            ("full", 8, 0.7, 300, 3.0),
            ("majority_gated", 8, 0.4, 290, 0.0),
            ("beam_keep_b_gated", 4, 0.6, 200, 9.0),
            ("beam_keep_b_gated", 8, 0.8, 301, 20.0),
            ("beam_keep_b", 4, 0.65, 200, 12.0),
        ],
        columns=["method", "n", "accuracy", "generated_tokens", "verifier_calls"],
    )
    assert targets.as_much_generated(points, 8) == ("beam_keep_b_gated", 4)
    dear = points.assign(generated_tokens=[100, 290, 200, 301, 200])
    assert targets.as_much_generated(dear, 8) is None


def test_a_target_is_met_at_its_edge_despite_rounding() -> None:
    """100 times a difference of 0.034 counts as 3.4; a missing value counts as missed."""
    edge = targets.Target("gain", "gain", 100 * (0.534 - 0.5), minimum=3.4)
    assert edge.met
    assert not targets.Target("gain", "gain", 3.39, minimum=3.4).met
    assert not targets.Target("ratio", "ratio", 0.51, maximum=0.5).met
    assert not targets.Target("ratio", "ratio", None, maximum=0.5).met


def test_a_baseline_without_calls_leaves_the_ratio_unmeasured() -> None:
    """When majority with gates is best, no ratio exists: the target is missed, not an error."""
    rows = outcomes()
    rows = rows[(rows["setting"] != "k=2") & ~rows["method"].str.startswith("beam")]
    rows, _ = pool_runs(rows)
    measures = {"pass_at_1": 0.3, "pass_at_64": 0.9, "gated_share": 0.1, "step_auc": 0.93}
    found = targets.targets(rows, measures, budget=4, bootstrap=BOOTSTRAP)
    ratio = next(target for target in found if target.name == "calls_ratio_to_baseline")
    assert ratio.measured is None
    assert not ratio.met
    assert "Majority vote + gates" in ratio.text


def test_the_metrics_fit_a_screen(built: ReportData) -> None:
    """Full and the gated beam, the best baseline with gates, at N = 4."""
    found = sections.metrics(built)
    assert found == {
        "full.accuracy": pytest.approx(0.7),
        "full.verifier_calls": pytest.approx(3.4),
        "full.generated_tokens": found["full.generated_tokens"],
        "baseline.accuracy": pytest.approx(0.6),
        "baseline.verifier_calls": pytest.approx(8.4),
        "baseline.generated_tokens": found["baseline.generated_tokens"],
        "calls_saved": pytest.approx(1 - 2.9 / 8.4),
        "step_auc": pytest.approx(found["step_auc"]),
        "pass_at_1": pytest.approx(found["pass_at_1"]),
        "pass_at_64": pytest.approx(0.85),
    }
    unknown = replace(built, targets=(), tables={**built.tables, "headline": HEADLINE_OF_NOTHING})
    assert len(sections.metrics(unknown)) == 6


def test_details_are_flat_and_finite(built: ReportData, tmp_path: Path) -> None:
    """Every value is a JSON number or boolean under a plain name."""
    flat = sections.details(built)
    path = tmp_path / "metrics.json"
    write_plain_json(path, flat)
    assert json.loads(path.read_text(encoding="utf-8")) == flat
    assert flat["full.accuracy"] == pytest.approx(0.7)
    assert flat["target.pass_at_64.met"] is False
    assert flat["ranker.residual.recall_at_1"] == pytest.approx(2 / 3)
    assert all(type(value) in (float, int, bool) for value in flat.values())
    assert not any("@" in name for name in flat), "MLflow refuses names with an @"


def test_terminal_table_shows_the_short_list_within_its_width(built: ReportData) -> None:
    """A terminal of 80 columns shows names whole, and an accuracy or a dash for each B."""
    text = pages.to_terminal(built, width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    lines = (re.split(r"  +(?=[-\d])", line.strip(), maxsplit=1) for line in text.splitlines())
    rows = {name: cells.split() for name, *rest in lines for cells in rest}
    assert rows["Ours (full)"] == ["-", "-", "70.0", "70.0"]
    shown = {names.method_name(name) for name in names.SHORT_LIST if name in {*METHODS, HULL}}
    assert shown <= set(rows) and len(names.SHORT_LIST) <= 10
    assert "Verify-all (no gates)" not in rows
    everything = replace(built, tables={**built.tables, "equal_calls": many_levels(9)})
    wide = pages.to_terminal(everything, width=80)
    assert "\u2026" not in wide and wide.count("100.0") == 9
    seven = pages.to_terminal(
        replace(built, tables={**built.tables, "equal_calls": many_levels(7)}), width=80
    )
    assert all(len(line) <= 80 for line in seven.splitlines())


def many_levels(count: int) -> pd.DataFrame:
    """One method that is always right, at B = 1, 2, 4, ..."""
    levels = [2**place for place in range(count)]
    unknown = dict.fromkeys(("difference", "difference_low", "difference_high"), np.nan)
    return pd.DataFrame({"method": "best_of_n_gated", "level": levels, "accuracy": 1.0, **unknown})


def test_equal_cost_by_hand(built: ReportData) -> None:
    """Full costs 2.4 calls at N = 2 and 3.4 at N = 4, so nothing up to B = 2 and both at B = 4.

    Cheaper than any search of a baseline are CoT and the vote; the vote solves 9 of 20 at N = 4.
    Strategies and parts are not in the table.
    """
    table = built.tables["equal_calls"].set_index(["method", "level"])
    methods = table.index.get_level_values("method").unique().tolist()
    assert methods == names.ordered_methods([*METHODS, HULL, OURS])
    assert table.loc["full", "accuracy"].dropna().to_dict() == pytest.approx({4: 0.7, 8: 0.7})
    assert table.loc[("full", 4), "verifier_calls"] == pytest.approx(3.4)
    assert table.loc[("full", 4), "accuracy_sd"] == pytest.approx(0.0, abs=1e-9)
    assert table.loc["majority_gated", "accuracy"].tolist() == pytest.approx([0.45] * 4)
    hull = table.loc[(HULL, 4), "accuracy"]
    assert table.loc[("full", 4), "difference"] == pytest.approx(0.7 - hull)
    assert table.loc[(HULL, 1), "settings"].count("majority_gated n=4") == 2
    assert built.tables["equal_tokens"]["level"].unique().tolist() == [32, 64, 128]


def test_a_report_without_the_full_method_at_a_level_has_no_metric_for_it(
    built: ReportData,
) -> None:
    """The hull's is there at every level."""
    flat = sections.details(built)
    assert [flat.get(f"equal_calls.{level}.full") for level in (1, 2)] == [None, None]
    assert flat["equal_calls.8.full"] == pytest.approx(0.7)
    difference = flat["equal_calls.8.full"] - flat["equal_calls.8.hull"]
    assert flat["equal_calls.8.difference"] == pytest.approx(difference)
    assert "equal_calls.1.hull" in flat and "equal_calls.1.difference" not in flat


def test_what_has_no_value_is_left_out_of_the_numbers_for_programs(
    built: ReportData, tmp_path: Path
) -> None:
    """An area under a curve where nothing is right: the file is still JSON."""
    verifier = built.tables["verifier"].assign(value=np.nan)
    flat = sections.details(replace(built, tables={**built.tables, "verifier": verifier}))
    assert not any(name.startswith("verifier.") for name in flat)
    assert flat["full.accuracy"] == pytest.approx(0.7)
    write_plain_json(tmp_path / "details.json", flat)


def test_methods_on_different_problems_are_refused() -> None:
    """A paired difference needs the same problems."""
    rows = validated().rows
    lacking = rows[(rows["method"] != "oracle") | (rows["problem_id"] != "p00")]
    with pytest.raises(SchemaError, match="different problems"):
        tables.main_table(lacking, budget=4, runs=1, bootstrap=BOOTSTRAP)


def test_a_method_without_the_budget_is_refused() -> None:
    """A table at a budget that a method did not run names the method."""
    with pytest.raises(SchemaError, match="'majority_gated' has no row at n = 8"):
        tables.at_budget(outcomes(), 8)


def test_unknown_methods_keep_their_own_name_and_come_last() -> None:
    """A method that the dictionary does not know is shown, not dropped."""
    found = names.ordered_methods(["zeta", "oracle", "alpha", "cot"])
    assert found == ["cot", "oracle", "alpha", "zeta"]
    assert names.method_name("zeta") == "zeta"


def test_a_run_in_which_nothing_is_refused_accepted_or_tuned_still_has_a_page(
    built: ReportData, tmp_path: Path
) -> None:
    """Empty tables give headings without rows, and a figure without bars."""
    nothing = ScoredCandidates("p00", np.zeros(2, bool), np.zeros(2), {"residual": np.zeros(2)})
    gates = gate_table(steps().query("gate == ''"))
    cross = cross_validated(outcomes().query("setting != 'k=2'").assign(setting=""))
    empty = {
        "gates": gates,
        "rankers": ranker_table([nothing], ks=[1], bootstrap=BOOTSTRAP),
        "settings": tables.settings_table(cross, budget=4),
    }
    bare = replace(built, tables={**built.tables, **empty})
    page = pages.to_markdown(bare)
    assert not any(word in page for word in ("scope", "recall", "k=1"))
    plots.gate_bars(gates, tmp_path / "gates", title="gates")
    plots.ranker_recall(empty["rankers"], tmp_path / "rankers", title="rankers")
    assert (tmp_path / "gates.svg").exists() and (tmp_path / "rankers.svg").exists()


def test_a_run_without_the_papers_methods_still_has_a_page(built: ReportData) -> None:
    """Their tables are empty, and no claim of the paper is judged."""
    rows = outcomes().query("method in ('full', 'beam_keep_b_gated')")
    cross = cross_validated(rows, methods=["beam_keep_b_gated", "full"])
    found = outcome_tables(
        Variant(rows, cross, BINS),
        {"small": cross.rows},
        {"strong": cross.rows},
        budget=4,
        bootstrap=BOOTSTRAP,
    )
    assert found["ablation"].empty and found["paper"].empty
    measures = {"pass_at_1": 0.3, "pass_at_64": 0.85, "gated_share": 0.3, "step_auc": 0.93}
    goals = targets.targets(cross.rows, measures, budget=4, bootstrap=BOOTSTRAP)
    named = {goal.name: goal for goal in goals}
    assert "accuracy_gain_over_gates_only" not in named
    assert not [name for name in named if name.startswith("ablation")]
    page = pages.to_markdown(replace(built, tables={**built.tables, **found}, targets=goals))
    assert "| Ours (full) |" in page


def test_steps_that_are_all_refused_have_tables() -> None:
    """Their column of scores holds nothing but None."""
    refused = steps().query("gate != ''").astype({"score": object})
    found = step_tables(refused.assign(score=None), 0.5, BOOTSTRAP, known=True)
    assert found["reliability"].empty and len(found["gates"]) == 2


@pytest.mark.parametrize(("known", "auc"), [(True, 0.5), (False, 1.0)])
def test_answers_are_judged_with_the_steps_before_them(known: bool, auc: float) -> None:
    """Scores of answers that say nothing, after steps whose scores do."""
    names = ["problem_id", "sample", "before", "alive", "score"]
    rows = [
        (f"p{problem}", right, answers, answers and bool(right), score)
        for problem in range(3)
        for right in (0, 1)
        for answers, score in ((False, 0.9 if right else 0.1), (True, 0.7))
    ]
    walked = pd.DataFrame(rows, columns=names).assign(gate="", reason="", right=False)
    tables = step_tables(walked, 0.5, BOOTSTRAP, known=known)
    judged = sections.judged(tables["verifier"]).set_index("metric")["value"]
    assert judged["step_auc"] == pytest.approx(auc)


def draw_everything(built: ReportData, folder: Path) -> dict[str, bytes]:
    """Every figure of the module."""
    draw_figures(built, folder)
    points, methods = built.tables["points"], names.figure_methods()
    both = {"small": points, "base": points}
    plots.accuracy_of_backbones(both, folder / "backbones", methods=methods, title="two")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def drawn(built: ReportData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return draw_everything(built, tmp_path_factory.mktemp("figures"))


def test_every_figure_is_drawn_without_date_or_random_identifier(
    built: ReportData, drawn: dict[str, bytes], tmp_path: Path
) -> None:
    """As SVG and PNG, so that DVC sees no change, and every one of the page; one of them is drawn
    again here."""
    assert len(drawn) == 22 and {Path(name).suffix for name in drawn} == {".svg", ".png"}
    shown = {one.figure for one in (sections.glance_table(built), *sections.sections(built))}
    assert shown - {""} <= {Path(name).stem for name in drawn}
    assert all(len(content) > 1000 for content in drawn.values())
    plots.gate_bars(built.tables["gates"], tmp_path / "gates", title="What the gates refuse")
    assert (tmp_path / "gates.svg").read_bytes() == drawn["gates.svg"]
    assert (tmp_path / "gates.png").read_bytes() == drawn["gates.png"]


@pytest.mark.soak
def test_figures_are_the_same_bytes_in_two_runs(
    built: ReportData, drawn: dict[str, bytes], tmp_path: Path
) -> None:
    """All of them."""
    assert draw_everything(built, tmp_path) == drawn


def test_labels_at_the_ends_of_lines_do_not_overlap() -> None:
    """Names of close lines are a gap apart in the lines' order, others stay where they are."""
    placed = plots._spread_out([0.1, 0.5, 0.5, 0.51, 0.9], gap=0.05)
    assert np.diff(placed).min() >= 0.05 - 1e-12
    assert (placed[0], placed[4]) == pytest.approx((0.1, 0.9))
    assert placed[2] == pytest.approx(np.mean([0.5, 0.5, 0.51]))


def test_variation_along_a_solution_by_hand(built: ReportData) -> None:
    """Two rounds at each depth. Within: (1 + 1) / 1 = 2; between: (6 - 2) / (4 / 3) = 3."""
    first, second = (row for _, row in built.tables["within"].iterrows())
    assert (first["rounds"], first["trusted"], first["accepted"]) == (2, 0.0, 2 / 6)
    assert (first["sigma"], first["sigma_sd"], first["k"]) == (2.0, 1.0, 3.0)
    assert (first["margin"], first["margin_sd"]) == pytest.approx((0.3, 0.2))
    assert (second["rounds"], second["trusted"], second["accepted"]) == (2, 0.5, 1.0)
    assert built.within_shares["sigma"] == pytest.approx(2 / 5)
    assert built.within_shares["k"] == 0.0
    assert by_depth.share_within(VISITS.iloc[:1], "sigma") is None


def test_latex_has_every_table(built: ReportData) -> None:
    """One table a section, with what LaTeX reads as commands escaped."""
    text = pages.to_latex(built)
    assert text.count(r"\begin{tabular}") == len(sections.sections(built))
    assert r"\caption{Accuracy by difficulty bin, \%}" in text
    assert "Gates + D\\_type (fixed k)" in text


def frontier_rows() -> pd.DataFrame:
    """Full needs 2 calls for 0.5 and 4 for 1.0, the gated beam 4 and 8; 0-shot solves a quarter."""
    points = [
        ("cot", 1, 1, 0),
        ("full", 2, 2, 2),
        ("full", 4, 4, 4),
        ("beam_keep_b_gated", 2, 2, 4),
        ("beam_keep_b_gated", 4, 4, 8),
        ("majority_gated", 2, 1, 0),
        ("majority_gated", 4, 1, 0),
    ]
    rows = pd.DataFrame([run for point in points for run in runs(*point, problems=4)])
    return rows.assign(unparsed=0, timeout=0)


def test_headline_by_hand() -> None:
    """Half of the calls are saved at accuracy 1; for 4 calls the beam solves half as many.

    Both frontiers begin at (0, 1/4). Areas up to 4 calls: full 0.375 * 2 + 0.75 * 2, beam
    0.375 * 4, both over 4.
    """
    table = headline.headline_table(frontier_rows(), budget=4, bootstrap=BOOTSTRAP)
    assert set(table["other"]) == {"beam_keep_b_gated"}
    found = table.set_index("measure")
    assert found.loc["calls_saved", "value"] == pytest.approx(0.5)
    assert found.loc["accuracy_gained", "value"] == pytest.approx(0.5)
    assert found.loc["area_gained", "value"] == pytest.approx(2.25 / 4 - 1.5 / 4)
    assert (found["low"] <= found["value"]).all() and (found["value"] <= found["high"]).all()
    assert found.loc["accuracy_gained", "low"] < found.loc["accuracy_gained", "high"]


def test_calls_saved_on_a_method_without_calls_have_no_value() -> None:
    """Where the best baseline makes no call, there is nothing to save."""
    rows = frontier_rows()
    free = rows[rows["method"] == "majority_gated"].assign(correct=True)
    rows = pd.concat([rows[rows["method"] != "majority_gated"], free])
    found = headline.headline_table(rows, budget=4, bootstrap=BOOTSTRAP).set_index("measure")
    assert set(found["other"]) == {"majority_gated"}
    assert pd.isna(found.loc["calls_saved", "value"])
    assert found.loc["accuracy_gained", "value"] == 0.0


def test_leave_one_out_by_hand() -> None:
    """Against full at one budget: half as accurate for half of the calls."""
    rows = frontier_rows()
    part = rows[(rows["method"] == "full") & (rows["n"] == 2)]
    both = pd.concat([rows, part.assign(method="without_residual", n=4)])
    table = tables.leave_one_out_table(both, budget=4, bootstrap=BOOTSTRAP)
    assert table["method"].tolist() == ["without_residual"]
    assert table["step"].tolist() == [pytest.approx(-0.5)]
    assert table["calls_ratio"].tolist() == [pytest.approx(0.5)]
    assert tables.leave_one_out_table(rows, budget=4, bootstrap=BOOTSTRAP).empty
