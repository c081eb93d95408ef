import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from selverify.errors import ParamsError, SchemaError
from selverify.experiment.selection import (
    CrossValidated,
    Strategy,
    choose_setting,
    cross_validate,
    pool_runs,
    stratified_folds,
)


def outcomes_of(
    correct: dict[str, list[int]],
    calls: dict[str, int],
    *,
    method: str = "full",
    n: int = 8,
    sampling_seed: int = 0,
) -> pd.DataFrame:
    """One method at one budget: settings with their 0/1 results a problem, and constant calls."""
    table = pd.DataFrame(
        [
            (method, setting, n, f"p{i:03d}", bool(hit), calls[setting])
            for setting, hits in correct.items()
            for i, hit in enumerate(hits)
        ],
        columns=["method", "setting", "n", "problem_id", "correct", "verifier_calls"],
    )
    names = ("verifier_steps", "generated_moves", "generated_tokens")
    costs = dict.fromkeys((*names, "read_tokens", "verified_tokens", "compute"), 1)
    status = table["correct"].map({True: "correct", False: "wrong"})
    return table.assign(sampling_seed=sampling_seed, status=status, **costs)


def bins_of(problems: int) -> dict[str, int]:
    """Five bins in turn."""
    return {f"p{i:03d}": i % 5 + 1 for i in range(problems)}


def slow_choice(correct: np.ndarray, calls: np.ndarray) -> int:
    """The one-standard-error rule as a statistics book writes it."""
    problems = correct.shape[1]
    order = sorted(range(len(correct)), key=lambda s: (-correct[s].mean(), calls[s].mean(), s))
    best = order[0]
    kept = []
    for setting in range(len(correct)):
        gap = correct[best].astype(float) - correct[setting]
        error = gap.std(ddof=1) / np.sqrt(problems)
        if gap.mean() <= error + 1e-12:
            kept.append((calls[setting].mean(), setting))
    return min(kept)[1]


def test_choice_equals_the_textbook_rule() -> None:
    """The integer condition D^2 <= Q picks what the floating-point rule picks."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        correct = rng.random((6, 15)) < rng.random((6, 1))
        calls = rng.integers(1, 9, size=(6, 15)).astype(float)
        assert choose_setting(correct, calls, rule="one_standard_error") == slow_choice(
            correct, calls
        )


def test_cheaper_setting_wins_within_one_standard_error_only() -> None:
    """One problem lost is within an error; three lost and none gained is not."""
    best = np.ones(20, dtype=bool)
    close, far = best.copy(), best.copy()
    close[0] = False
    far[:3] = False
    calls = np.array([[9.0] * 20, [5.0] * 20, [1.0] * 20])
    correct = np.stack([best, close, far])
    assert choose_setting(correct, calls, rule="one_standard_error") == 1
    assert choose_setting(correct, calls, rule="accuracy") == 0


def test_ties_go_to_fewer_calls_then_to_the_first_name() -> None:
    """Equal accuracy takes the cheaper setting, equal calls the one that comes first."""
    correct = np.ones((3, 4), dtype=bool)
    calls = np.array([[3.0] * 4, [2.0] * 4, [2.0] * 4])
    assert choose_setting(correct, calls, rule="accuracy") == 1
    assert choose_setting(correct, calls, rule="one_standard_error") == 1
    thirds = np.array([[0.0, 1 / 3, 2 / 3, 1.0], [0.0, 2 / 3, 1.0, 1 / 3]])  # means of seeds
    assert thirds[0].mean() > thirds[1].mean()
    assert choose_setting(correct[:2], thirds, rule="accuracy") == 0


def test_folds_are_balanced_in_total_and_in_every_bin() -> None:
    """Bins of odd size do not all give their extra problem to the same fold."""
    strata = np.repeat([1, 2, 3, 4, 5], 7)
    folds = stratified_folds(strata.tolist(), folds=2, seed=4)
    assert abs(np.sum(folds == 0) - np.sum(folds == 1)) <= 1
    for stratum in range(1, 6):
        inside = folds[strata == stratum]
        assert abs(np.sum(inside == 0) - np.sum(inside == 1)) <= 1
    assert not np.array_equal(folds, stratified_folds(strata.tolist(), folds=2, seed=5))


def validated(table: pd.DataFrame, **options: Any) -> CrossValidated:
    """Cross-validation of ``full`` in two folds, once."""
    defaults = {"folds": 2, "repetitions": 1, "seed": 0, "methods": ["full"], "rule": "accuracy"}
    bins = options.pop("bins", bins_of(table["problem_id"].nunique()))
    return cross_validate(table, bins, **{**defaults, **options})


def several_runs(
    rng: np.random.Generator, *, settings: int, problems: int, seeds: int = 1, ease: float = 0.5
) -> pd.DataFrame:
    """Each setting on each problem under every seed; setting k costs k + 1 calls."""
    calls = {f"s{k:03d}": k + 1 for k in range(settings)}
    tables = [
        outcomes_of(
            {name: (rng.random(problems) < ease).astype(int).tolist() for name in calls},
            calls,
            sampling_seed=seed,
        )
        for seed in range(seeds)
    ]
    return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_problem_is_scored_under_the_setting_chosen_without_it(seeds: int) -> None:
    """Each row's setting is the best one on the other fold, recomputed here from the table.

    All runs of a problem are in one fold; accuracy is the share of its runs.
    """
    table = several_runs(np.random.default_rng(5), settings=6, problems=41, seeds=seeds)
    found = validated(table)
    assert found.runs == seeds
    assert sorted(found.rows["problem_id"]) == sorted(set(table["problem_id"]))
    fold_of = dict(zip(found.rows["problem_id"], found.rows["fold"], strict=True))
    for fold in (0, 1):
        inside = table["problem_id"].map(fold_of) == fold
        best = table[~inside].groupby("setting")["correct"].mean().idxmax()
        scored = table[inside & (table["setting"] == best)]
        own = found.rows[found.rows["fold"] == fold]
        assert set(own["setting"]) == {best}
        assert own["correct"].mean() == pytest.approx(scored["correct"].mean())
    assert found.spread["accuracy_mean"].iloc[0] == pytest.approx(found.rows["correct"].mean())


def test_choosing_on_the_scored_problems_would_look_better() -> None:
    """Among coin flips the out-of-fold accuracy stays at one half, where the best looks higher.

    One table's accuracy has a standard error of 0.05, so the mean of 30 has one of 0.01.
    """
    rng = np.random.default_rng(2)
    tables = [several_runs(rng, settings=20, problems=100) for _ in range(30)]
    honest = [validated(table).rows["correct"].mean() for table in tables]
    inflated = [table.groupby("setting")["correct"].mean().max() for table in tables]
    assert np.mean(honest) == pytest.approx(0.5, abs=0.03)
    assert np.mean(inflated) > 0.57


def test_a_single_setting_has_no_spread_and_keeps_its_rows() -> None:
    """With nothing to choose, every repetition gives the same figures."""
    table = outcomes_of({"": [1, 0] * 10}, {"": 4})
    found = validated(table, repetitions=5, rule="one_standard_error")
    spread = found.spread.iloc[0]
    assert (spread["accuracy_mean"], spread["accuracy_sd"]) == (0.5, 0.0)
    assert (spread["verifier_calls_mean"], spread["verifier_calls_sd"]) == (4.0, 0.0)
    assert spread["settings"] == " | "
    kept = found.rows.sort_values("problem_id").reset_index(drop=True)
    for column in ("problem_id", "setting", "correct", "verifier_calls"):
        assert kept[column].tolist() == table[column].tolist()


def test_pooling_counts_runs_and_averages_costs() -> None:
    """Right runs, unparsed and timed-out ones are counted; calls are means."""
    tables = [outcomes_of({"": [1, 0]}, {"": calls}, sampling_seed=calls) for calls in (2, 4)]
    table = pd.concat(tables, ignore_index=True)
    table.loc[1, ["status", "correct"]] = ["timeout", False]
    pooled, runs = pool_runs(table)
    assert runs == 2
    assert pooled["correct"].tolist() == [2, 0]
    assert pooled["timeout"].tolist() == [0, 1] and pooled["unparsed"].tolist() == [0, 0]
    assert pooled["verifier_calls"].tolist() == [3.0, 3.0]


BOTH = ("beam_gated", "majority_gated")


def two_methods(beam: list[int], majority: list[int]) -> pd.DataFrame:
    """One setting of a method of 8 calls, and one of a method of none."""
    tables = [
        outcomes_of({"": hits}, {"": calls}, method=method)
        for method, hits, calls in zip(BOTH, (beam, majority), (8, 0), strict=True)
    ]
    return pd.concat(tables, ignore_index=True)


def test_a_strategy_chooses_between_methods() -> None:
    """Once for all, the better method; by bin, each where it is better."""
    ease = [1 if i % 5 < 3 else 0 for i in range(40)]
    strategies = {"once": Strategy(BOTH, by_bin=False), "each": Strategy(BOTH, by_bin=True)}
    table = two_methods(ease, [1 - hit for hit in ease])
    found = validated(table, repetitions=2, methods=BOTH, strategies=strategies)
    rows = dict(iter(found.rows.groupby("method")))
    assert rows["once"]["correct"].mean() == pytest.approx(0.6)
    assert set(rows["once"]["setting"]) == {"beam_gated"}
    assert rows["each"]["correct"].mean() == 1.0
    assert rows["each"]["verifier_calls"].mean() == pytest.approx(0.6 * 8)
    bins = rows["each"]["problem_id"].map(bins_of(40))
    assert rows["each"].groupby(bins)["setting"].agg(set).to_dict() == {
        number: {"beam_gated" if number <= 3 else "majority_gated"} for number in range(1, 6)
    }
    settings = found.spread.set_index("method")["settings"]
    assert settings["once"] == "beam_gated | beam_gated"
    assert "each" not in settings


def test_a_bin_that_only_one_fold_holds_is_chosen_for_on_all_of_the_other() -> None:
    """Two problems in two bins: nothing of a bin is left to choose on, so the others decide."""
    found = validated(
        two_methods([1] * 6, [0] * 6),
        bins={f"p{place:03d}": place for place in range(6)},
        methods=BOTH,
        strategies={"each": Strategy(BOTH, by_bin=True)},
    )
    assert set(found.rows.loc[found.rows["method"] == "each", "setting"]) == {"beam_gated"}


def test_order_of_the_rows_does_not_matter() -> None:
    """A shuffled table gives the same choice and the same out-of-fold rows."""
    table = several_runs(np.random.default_rng(3), settings=5, problems=30, ease=0.6)
    one = validated(table, repetitions=3)
    two = validated(table.sample(frac=1, random_state=0), repetitions=3)
    pd.testing.assert_frame_equal(one.rows, two.rows.reset_index(drop=True))
    pd.testing.assert_frame_equal(one.spread, two.spread)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.iloc[1:], "expected 2 settings x 10 problems"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "twice"),
        (lambda t: pd.concat([t, t.iloc[1:].assign(sampling_seed=1)]), "1 runs, expected one for"),
        (lambda t: t.assign(method="majority"), "no row of method 'full'"),
        (lambda t: t.replace({"problem_id": {"p000": "q"}}), "no bin for problem 'q'"),
    ],
)
def test_a_broken_table_is_refused(
    change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    """A missing row, a double row, a missing method and a problem without a bin are named."""
    table = outcomes_of({"a": [1] * 10, "b": [0] * 10}, {"a": 1, "b": 1})
    with pytest.raises(SchemaError, match=message):
        validated(change(table))


@pytest.mark.parametrize("option", ["folds", "repetitions"])
def test_one_fold_and_no_repetition_are_refused(option: str) -> None:
    """Cross-validation needs at least two folds, and a repetition."""
    given = {"folds": 1, "repetitions": 0}[option]
    with pytest.raises(ParamsError, match=f"{option}: given {given}"):
        validated(outcomes_of({"a": [1] * 10}, {"a": 1}), **{option: given})


@pytest.mark.soak
def test_two_hundred_settings_on_five_hundred_problems_take_seconds() -> None:
    """The full size of the protocol, 20 repetitions, stays well under ten seconds."""
    table = several_runs(np.random.default_rng(0), settings=200, problems=500)
    start = time.perf_counter()
    validated(table, repetitions=20, rule="one_standard_error")
    assert time.perf_counter() - start < 10
