"""Tables of several seeds, backbones and verifiers, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from synthetic import BOOTSTRAP, runs

from flows.readme import section
from selverify.experiment.selection import pool_runs
from selverify.report.pages import to_markdown
from selverify.report.sections import ReportData
from selverify.report.tables import leave_one_out_table, paper_table
from selverify.report.variants import (
    against_best_table,
    rank_agreement,
    ranking_table,
    seeds_table,
)

# Right answers out of four problems and calls a problem, by seed.
SOLVED = {
    "cot": {0: (1, 0), 1: (1, 0)},
    "beam_gated": {0: (2, 6), 1: (3, 8)},
    "majority_gated": {0: (1, 0), 1: (3, 0)},
    "full": {0: (3, 2), 1: (4, 4)},
    "oracle": {0: (4, 1), 1: (4, 1)},
}


def outcomes(solved: dict[str, dict[int, tuple[int, int]]]) -> pd.DataFrame:
    """Four problems; every method has one setting and, but for cot, N = 8."""
    return pd.DataFrame(
        [
            run
            for method, seeds in solved.items()
            for seed, (right, calls) in seeds.items()
            for run in runs(
                method, 1 if method == "cot" else 8, right, calls, problems=4, seed=seed
            )
        ]
    )


def rows(solved: dict[str, dict[int, tuple[int, int]]]) -> pd.DataFrame:
    """Pooled runs as shares, as cross-validation hands them on."""
    pooled, count = pool_runs(outcomes(solved))
    return pooled.assign(correct=pooled["correct"] / count)


def test_seeds_one_by_one() -> None:
    """Means of the seeds, and the deviation between them with n - 1."""
    table = seeds_table(outcomes(SOLVED), rows(SOLVED), budget=8).set_index("method")
    full = table.loc["full"]
    assert (full["seeds"], full["accuracy_mean"]) == (2, pytest.approx(0.875))
    assert full["accuracy_sd"] == pytest.approx(0.125 * 2**0.5)
    assert (full["accuracy_min"], full["accuracy_max"]) == (0.75, 1.0)
    assert (full["calls_mean"], full["calls_sd"]) == (3.0, pytest.approx(2**0.5))
    assert table.loc["cot", "accuracy_sd"] == 0.0
    single = {method: {0: seeds[0]} for method, seeds in SOLVED.items()}
    assert seeds_table(outcomes(single), rows(single), budget=8).empty


def test_full_against_the_best_baseline_of_each_pipeline() -> None:
    """The baseline is named anew in each; the ratio needs calls."""
    other = {**SOLVED, "majority_gated": {0: (4, 0), 1: (4, 0)}}
    table = against_best_table(
        {"small": rows(SOLVED), "base": rows(other)}, budget=8, bootstrap=BOOTSTRAP
    ).set_index("variant")
    small, base = table.loc["small"], table.loc["base"]
    assert (small["baseline"], base["baseline"]) == ("beam_gated", "majority_gated")
    assert small["one_shot"] == 0.25
    assert small["step"] == pytest.approx(0.875 - 0.625)
    assert small["calls_ratio"] == pytest.approx(3 / 7)
    assert base["step"] == pytest.approx(0.875 - 1.0)
    assert pd.isna(base["calls_ratio"])


def test_ranks_and_their_agreement() -> None:
    """The oracle has no rank, ties share the better one, and tau is that of the definition."""
    weak = {**SOLVED, "full": {0: (1, 2), 1: (1, 4)}}
    table = ranking_table(
        {"strong": rows(SOLVED), "weak": rows(weak)}, budget=8, bootstrap=BOOTSTRAP
    )
    ranks = table.set_index("method")
    assert ranks["strong.rank"].dropna().to_dict() == {
        "full": 1.0,
        "beam_gated": 2.0,
        "majority_gated": 3.0,
        "cot": 4.0,
    }
    assert ranks.loc["full", "weak.rank"] == ranks.loc["cot", "weak.rank"] == 3.0
    assert pd.isna(ranks.loc["oracle", "weak.rank"])
    # Of those that make calls, beam is before full under weak only; votes make none.
    assert rank_agreement(table, "strong", "weak") == pytest.approx(-1.0)
    assert rank_agreement(table, "strong", "strong") == pytest.approx(1.0)


def test_the_papers_figures_stand_beside_the_methods_that_ran() -> None:
    """Percent as printed there; a vote makes no verifier call, whatever the table prints."""
    printed = rows(SOLVED).replace({"method": {"full": "paper"}})
    table = paper_table(printed, budget=8, bootstrap=BOOTSTRAP).set_index("method")
    assert table["paper_accuracy"].to_dict() == {"cot": 30.6, "paper": 55.2}
    assert table.loc["paper", "paper_calls"] == 44.8
    assert pd.isna(table.loc["cot", "paper_calls"])


def test_seeds_and_parts_left_out_have_their_sections(built: ReportData) -> None:
    """Means with their deviation between seeds; parts beside full."""
    part = rows(SOLVED).query("method == 'full'").assign(method="without_gates")
    both = pd.concat([rows(SOLVED), part])
    found = {
        "seeds": seeds_table(outcomes(SOLVED), rows(SOLVED), budget=8),
        "leave_one_out": leave_one_out_table(both, budget=8, bootstrap=BOOTSTRAP),
    }
    page = to_markdown(replace(built, tables={**built.tables, **found}))
    full = "| Ours (full) | 2 | 87.5 (sd 17.7) | 75.0 to 100.0 | 3.0 (sd 1.4) |"
    assert full in page
    assert "240 | 0.0 [0.0, 0.0] | 1.00 [1.00, 1.00] |" in section(page, "One part left out")
