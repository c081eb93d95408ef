"""Claims of the paper beside what was measured, on outcomes that can be worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from synthetic import BINS, BOOTSTRAP, IDS

from selverify.report.claims import claims_table


def outcomes_at(n: int, **right: list[int]) -> pd.DataFrame:
    """Which of the first problems each method solves at ``n``; the paper's makes 3 calls of 4."""
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "method": method,
                    "n": n,
                    "problem_id": IDS[: len(solved)],
                    "correct": [float(one) for one in solved],
                    "verifier_calls": 0.75 * n if method == "paper" else float(n),
                }
            )
            for method, solved in right.items()
        ],
        ignore_index=True,
    )


def claims(*tables: pd.DataFrame, **backbones: pd.DataFrame) -> pd.DataFrame:
    rows = pd.concat(tables, ignore_index=True)
    given = backbones or {"small": rows}
    table = claims_table(rows, given, BINS, budget=8, bootstrap=BOOTSTRAP)
    return table.set_index("claim") if len(table) else table


ALL, NONE, HALF = [1] * 20, [0] * 20, [1, 0] * 10


def test_a_claim_holds_where_its_interval_is_above_0() -> None:
    """By 100 points it holds; where both are right alike it is not decided; below 0 it fails."""
    verdicts = {}
    for name, paper in (("all", ALL), ("same", HALF), ("none", NONE)):
        table = claims(outcomes_at(8, majority=HALF if name != "all" else NONE, paper=paper))
        verdicts[name] = tuple(
            table.loc["More accurate than Majority vote, points", ["value", "verdict"]]
        )
    assert verdicts == {
        "all": (100.0, "holds"),
        "same": (0.0, "not decided"),
        "none": (-50.0, "does not hold"),
    }


def test_a_claim_that_holds_elsewhere_says_where() -> None:
    """Better at N = 4, equal at 8: it holds at N = 4, not at the headline N."""
    table = claims(
        outcomes_at(4, majority=NONE, paper=ALL), outcomes_at(8, majority=ALL, paper=ALL)
    )
    assert table.loc["More accurate than Majority vote, points", "verdict"] == "holds at N = 4"


def test_the_calls_saved_are_of_what_the_baselines_make() -> None:
    """Six calls where best-of-N makes eight are a quarter saved; the paper prints 44.8 of 64."""
    table = claims(outcomes_at(8, best_of_n=ALL, majority=ALL, paper=ALL))
    row = table.loc["Fewer verifier calls than Best-of-N weighted, percent"]
    assert (row["value"], row["verdict"]) == (25.0, "holds")
    assert row["paper"] == pytest.approx(30.0)
    assert "Fewer verifier calls than Majority vote, percent" not in table.index


def test_the_gain_by_difficulty_compares_the_ends() -> None:
    """Four problems a bin: wins on the hard two bins only are 100 points more than on the easy."""
    hard = [int(BINS[problem] >= 4) for problem in IDS]
    name = "Larger gain over Beam (keep b) on the hardest two bins than on the easiest, points"
    table = claims(outcomes_at(8, beam_keep_b=NONE, paper=hard))
    assert table.loc[name, "value"] == pytest.approx(100.0)
    assert table.loc[name, ["low", "high"]].tolist() == [pytest.approx(100.0)] * 2
    assert table.loc[name, "verdict"] == "holds"
    easy = [1 - one for one in hard]
    assert claims(outcomes_at(8, beam_keep_b=NONE, paper=easy)).loc[name, "value"] < 0


def test_losing_less_on_hard_problems_is_no_gain() -> None:
    """The difference is the same; the claim of a larger gain does not hold."""
    hard = [int(BINS[problem] >= 4) for problem in IDS]
    table = claims(outcomes_at(8, beam_keep_b=ALL, paper=hard))
    (row,) = table[table.index.str.startswith("Larger gain")].itertuples()
    assert (row.value, row.verdict) == (pytest.approx(100.0), "does not hold")


@pytest.mark.parametrize(("bins", "value"), [(1, None), (2, 100.0), (3, 100.0)])
def test_with_few_bins_no_problem_is_on_both_sides(bins: int, value: float | None) -> None:
    numbers = {problem: 1 + place * bins // len(IDS) for place, problem in enumerate(IDS)}
    hard = [int(numbers[problem] == bins) for problem in IDS]
    rows = outcomes_at(8, beam_keep_b=NONE, paper=hard)
    table = claims_table(rows, {"small": rows}, numbers, budget=8, bootstrap=BOOTSTRAP)
    shown = table[table["claim"].str.startswith("Larger gain")]["value"].tolist()
    assert shown == ([] if value is None else [pytest.approx(value)])


def test_a_small_backbone_with_the_method_against_a_large_one_without() -> None:
    """All against half is 50 points; with one backbone there is no such claim."""
    small, large = outcomes_at(8, paper=ALL, cot=NONE), outcomes_at(8, paper=NONE, cot=HALF)
    table = claims(small, small=small, base=large)
    assert table.loc["small with the method beats base 0-shot, points", "value"] == 50.0
    assert not any("0-shot" in claim for claim in claims(small).index if "beats" in claim)


def test_without_the_papers_method_there_is_no_claim() -> None:
    """An evaluation of other methods has an empty table."""
    assert claims(outcomes_at(8, majority=ALL)).empty
