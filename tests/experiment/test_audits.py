from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.errors import ParamsError, SchemaError
from selverify.experiment.audits import (
    ScoredCandidates,
    calls_to_first_accept,
    first_target,
    gate_table,
    pairwise_accuracy,
    ranker_table,
    recall_at_k,
    reliability_table,
    verifier_table,
)
from selverify.experiment.statistics import Bootstrap
from selverify.report.plots import gate_bars, reliability_diagram
from tasks.artifacts import read_frame, write_rows
from tasks.report import _measures, step_tables

BOOTSTRAP = Bootstrap(resamples=500, seed=0)


def orders(scores: list[int]) -> list[tuple[int, ...]]:
    """Every order of the moves that rising scores allow."""
    return [p for p in permutations(range(len(scores))) if [scores[i] for i in p] == sorted(scores)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_expectations_equal_the_mean_over_every_tie_break(moves: list[tuple[int, bool]]) -> None:
    """Recall@k and calls to the first accept are exact means over all allowed orders."""
    scores, labels = [score for score, _ in moves], [label for _, label in moves]
    place = first_target(scores, labels)
    if place is None:
        assert not any(labels)
        return
    first = [min(i for i, move in enumerate(o) if labels[move]) + 1 for o in orders(scores)]
    assert calls_to_first_accept([place])[0] == pytest.approx(np.mean(first))
    for k in range(len(scores) + 2):
        expected = np.mean([position <= k for position in first])
        assert recall_at_k([place], k=k)[0] == pytest.approx(expected)


def test_scores_that_do_not_fit_are_refused() -> None:
    """A score too few, or one that is no number, is an error."""
    with pytest.raises(SchemaError, match="given 1 scores, expected 2"):
        first_target([0.1], [1, 0])
    with pytest.raises(SchemaError, match="NaN"):
        first_target([0.1, np.nan], [1, 0])


def test_pairwise_accuracy_by_hand() -> None:
    """Of two accepted against two rejected moves: two wins, one tie and one loss."""
    assert pairwise_accuracy([0.1, 0.5, 0.5, 0.3], [1, 1, 0, 0]) == pytest.approx(2.5 / 4)
    assert pairwise_accuracy([0.1, 0.5], [1, 1]) is None
    assert pairwise_accuracy([0.1, 0.5], [0, 0]) is None


def lists_of(states: int) -> list[ScoredCandidates]:
    """Random states of four moves, with a ranker that sees the quality and one that is blind."""
    rng = np.random.default_rng(0)
    lists = []
    for i in range(states):
        quality = rng.random(4)
        lists.append(
            ScoredCandidates(
                f"p{i // 3}",
                accepted=quality > 0.6,
                quality=quality,
                scores={"seer": -quality, "blind": np.zeros(4)},
            )
        )
    return lists


def test_ranker_table_puts_seer_at_the_oracle_and_blind_at_random() -> None:
    """A ranker that knows the quality equals the oracle, one that ties equals random order."""
    table = ranker_table(lists_of(60), ks=[1, 2], bootstrap=BOOTSTRAP)
    assert list(dict.fromkeys(table["ranker"])) == ["random", "blind", "seer", "oracle"]
    values = table.pivot(index="ranker", columns="metric", values="value")
    pd.testing.assert_series_equal(values.loc["seer"], values.loc["oracle"], check_names=False)
    pd.testing.assert_series_equal(values.loc["blind"], values.loc["random"], check_names=False)
    assert values.loc["oracle", "recall_at_1"] == 1.0
    assert values.loc["oracle", "calls_to_first_accept"] == 1.0
    assert values.loc["random", "recall_at_1"] == pytest.approx(0.25)
    assert values.loc["random", "pairwise_accuracy"] == pytest.approx(0.5)
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()


def test_states_without_an_accepted_move_are_left_out() -> None:
    """The table says how many states it used."""
    nothing = ScoredCandidates("p9", np.zeros(2, bool), np.zeros(2), {"seer": np.zeros(2)})
    one = ScoredCandidates(
        "p1", np.array([True, False]), np.array([0.9, 0.1]), {"seer": np.zeros(2)}
    )
    table = ranker_table([nothing, one], ks=[1], bootstrap=BOOTSTRAP)
    assert set(table["states"]) == {1}
    with pytest.raises(SchemaError, match="given none"):
        ranker_table([], ks=[1], bootstrap=BOOTSTRAP)


def verified(scores: list[float], truth: list[int], problems: list[str], bins: int) -> pd.Series:
    """The values of the verifier table at tau = 0.5."""
    table = verifier_table(scores, truth, problems, tau=0.5, bins=bins, bootstrap=BOOTSTRAP)
    return table.set_index("metric")["value"]


def test_verifier_table_by_hand() -> None:
    """Four steps, threshold 0.5: one of two right and one of two wrong steps accepted.

    Without a wrong step there is no AUC and no rate of wrong steps accepted.
    """
    rates = dict.fromkeys(("accept_rate_right", "accept_rate_wrong", "precision", "base_rate"), 0.5)
    found = verified([0.9, 0.2, 0.8, 0.1], [1, 1, 0, 0], ["a", "b", "a", "b"], 1)
    assert found.to_dict() == pytest.approx({"step_auc": 0.75, **rates, "calibration_error": 0.0})
    found = verified([0.9, 0.2], [1, 1], ["a", "b"], 2)
    assert not {"step_auc", "accept_rate_wrong"} & set(found.index)


def test_reliability_by_hand() -> None:
    """Two bins of four scores, with the error weighted by how many fall in each."""
    scores, right = [0.1, 0.3, 0.3, 1.0], [0, 0, 1, 1]
    table = reliability_table(scores, right, bins=2)
    assert table[["low", "high", "count"]].to_numpy().tolist() == [[0, 0.5, 3], [0.5, 1, 1]]
    assert table["mean_score"].tolist() == pytest.approx([0.7 / 3, 1.0])
    assert table["rate"].tolist() == pytest.approx([1 / 3, 1.0])
    assert verified(scores, right, ["a"] * 4, 2)["calibration_error"] == pytest.approx(0.075)
    assert len(reliability_table([0.05, 0.95], [0, 1], bins=10)) == 2
    with pytest.raises(ParamsError, match=r"\[0, 1\]"):
        reliability_table([0.5, 1.5], [0, 1], bins=4)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("gate", ["", "structural", None])
def test_steps_of_which_none_can_be_judged_have_a_report(
    tmp_path: Path, known: bool, gate: str | None
) -> None:
    """No answer among them, or all are refused, or there is no step: tables, figures, measures."""
    step = {"problem_id": "p", "sample": 0, "gate": gate, "reason": "scope", "score": None}
    rows = [] if gate is None else [step | {"before": bool(gate), "alive": False, "right": False}]
    write_rows(tmp_path, "evaluation", "steps", rows)
    steps = read_frame(tmp_path, "evaluation", "steps")
    tables = step_tables(steps, 0.5, BOOTSTRAP, known=known)
    columns = ["of", "low", "high", "count", "mean_score", "rate"]
    assert tables["reliability"].columns.tolist() == columns
    assert tables["reliability"].empty
    assert tables["verifier"]["metric"].tolist() == ["calibration_error"] * 2
    assert tables["verifier"][["value", "low", "high"]].isna().all(axis=None)
    assert tables["gates"]["refused"].tolist() == ([1] if gate else [])
    reliability_diagram(tables["reliability"], tmp_path / "reliability", title="verifier")
    gate_bars(tables["gates"], tmp_path / "gates", title="gates")
    rates = pd.DataFrame({"pass_at_1": [0.0], "right_derivation_rate": [0.5]})
    measures = _measures(rates, steps, tables["verifier"], samples=64)
    shares = [measures["step_auc"], measures["gated_share"]]
    refused = np.nan if gate is None else float(gate != "")
    assert shares == pytest.approx([np.nan, refused], nan_ok=True)
    assert measures["pass_at_64"] == 1.0
    assert "pass_at_64" not in _measures(rates, steps, tables["verifier"], samples=16)


def test_gate_table_counts_reasons_and_false_rejects() -> None:
    """Shares are of all candidates, survivors included; the most frequent reason comes first.

    What stands behind a colon is not counted apart, but for moves that could not be read.
    """
    candidates = pd.DataFrame(
        [
            ("", "", True),
            ("context", "arithmetic", False),
            ("structural", "scope: 7 is nowhere", False),
            ("structural", "scope: $8\n$ is nowhere", True),
            ("structural", "malformed: unknown op: a\x00", False),
        ],
        columns=["gate", "reason", "right"],
    )
    table = gate_table(candidates)
    assert list(table) == ["gate", "reason", "refused", "share", "false_rejects"]
    assert list(table.itertuples(index=False, name=None)) == [
        ("structural", "scope", 2, 0.4, 1),
        ("context", "arithmetic", 1, 0.2, 0),
        ("structural", "malformed: unknown op", 1, 0.2, 0),
    ]
