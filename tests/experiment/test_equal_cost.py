"""Equal cost against a slow obvious reference and against cases worked out by hand."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from selverify.errors import SchemaError
from selverify.experiment.equal_cost import (
    HULL,
    MARGIN,
    OURS,
    EqualCost,
    OperatingPoints,
    equal_cost,
    equal_cost_table,
    gain_table,
    near_best_table,
    operating_points,
    spanning_levels,
    transferred_cost,
)
from selverify.experiment.selection import COSTS, cross_validate
from selverify.experiment.statistics import Bootstrap

BOOTSTRAP = Bootstrap(resamples=300, seed=0)
ALTERNATING = np.array([[0, 1, 0, 1]])
"""Four problems, two of them in each fold."""


def pooled_rows(
    method: str, right: list[int], calls: float | list[float], **columns: Any
) -> pd.DataFrame:
    """One point on every problem, run once."""
    spent = np.broadcast_to(np.asarray(calls, dtype=float), len(right))
    given = {"setting": "", "n": 8, "generated_tokens": 10.0} | columns
    costs = {name: spent for name in COSTS if name != "generated_tokens"}
    names = [f"p{i:03d}" for i in range(len(right))]
    return pd.DataFrame({"method": method, "problem_id": names, "correct": right, **costs} | given)


def entries_of(
    *tables: pd.DataFrame,
    levels: tuple[int, ...] = (1,),
    baselines: tuple[str, ...] = ("a", "b"),
    folds: np.ndarray = ALTERNATING,
) -> EqualCost:
    """Everything at equal calls."""
    points = operating_points(pd.concat(tables, ignore_index=True), runs=1)
    return equal_cost(points, folds, cost="verifier_calls", levels=levels, baselines=baselines)


def rows_of(entries: EqualCost, method: str) -> pd.DataFrame:
    """The table of one method by level."""
    table = equal_cost_table(entries, BOOTSTRAP)
    return table[table["method"] == method].set_index("level")


FREE, DEAR = pooled_rows("a", [1, 1, 0, 0], 0), pooled_rows("b", [1, 1, 1, 1], 4)
FULL = pooled_rows("full", [1, 1, 1, 0], 1)


def test_the_difference_over_two_divisions_by_hand() -> None:
    """Full is right on three of four. In the second division a is right on all of one fold, so
    nothing is spent on the other, where it is always wrong: the hull is right on half."""
    folds = np.array([[0, 1, 0, 1], [0, 0, 1, 1]])
    entries = entries_of(FREE, DEAR, FULL, levels=(1, 4), folds=folds)
    found = rows_of(entries, "full")
    assert found["difference"].tolist() == pytest.approx([0.75 - 0.625, 0.75 - 1.0])
    assert found["difference_mean"].tolist() == pytest.approx([0.1875, 0.0])
    assert found["difference_min"].tolist() == pytest.approx([0.125, -0.25])
    assert found["difference_max"].tolist() == pytest.approx([0.25, 0.25])
    hull = rows_of(entries, HULL)
    assert hull["accuracy_mean"].tolist() == pytest.approx([(0.625 + 0.5) / 2, 0.75])
    assert hull[["difference_mean", "difference_min", "difference_max"]].isna().all(axis=None)


def test_a_division_without_an_entry_is_left_out_of_the_mean() -> None:
    """Each fold of the first division has a problem on which full is cheap; in the second, one fold
    has none, and for that one nothing is chosen."""
    full = pooled_rows("full", [1, 1, 1, 0], [1, 1, 3, 3])
    folds = np.array([[0, 1, 0, 1], [0, 0, 1, 1]])
    entries = entries_of(FREE, DEAR, full, levels=(2,), folds=folds)
    found = rows_of(entries, "full").loc[2]
    assert np.isnan(entries.repeated[1, entries.entrants.index("full")]).all()
    assert found["difference_mean"] == found["difference_min"] == found["difference"]


def test_a_mixture_between_two_baselines_by_hand() -> None:
    """On each fold a solves half for nothing and b all for 4: at B = 1 a quarter goes to b.

    Full differs by 0, 0, 3/4 and -1/4 on the four problems. Every choice of signs of 3/4 and 1/4
    gives a sum at least as far from 0 as 1/2, so p is 1.
    """
    entries = entries_of(FREE, DEAR, FULL, levels=(1, 2, 8))
    hull = entries.correct[entries.entrants.index(HULL)]
    assert hull.tolist() == [[1, 1, 0.25, 0.25], [1, 1, 0.5, 0.5], [1, 1, 1, 1]]
    table = rows_of(entries, HULL)
    assert table["accuracy"].tolist() == pytest.approx([0.625, 0.75, 1.0])
    assert table["verifier_calls"].tolist() == pytest.approx([1, 2, 4])
    assert table["settings"].tolist() == [
        "0.75 a n=8 + 0.25 b n=8 | 0.75 a n=8 + 0.25 b n=8",
        "0.50 a n=8 + 0.50 b n=8 | 0.50 a n=8 + 0.50 b n=8",
        "b n=8 | b n=8",
    ]
    assert table[["difference", "p"]].isna().all(axis=None)
    full = rows_of(entries, "full")
    assert full["difference"].tolist() == pytest.approx([0.125, 0.0, -0.25])
    assert full.loc[1, "p"] == 1.0
    assert full.loc[1, "settings"] == "n=8 | n=8"
    assert (full["difference_low"] <= full["difference"]).all()


def test_what_is_chosen_here_is_scored_there() -> None:
    """Here half for nothing and all for 4: at B = 2 half goes to b, whatever that is worth there.

    At B = 1 full has nothing cheap enough here, though there it would cost nothing.
    """
    here = pd.concat([FREE, DEAR, pooled_rows("full", [1, 1, 1, 0], 2)], ignore_index=True)
    there = pd.concat(
        [
            pooled_rows("a", [1, 0], 3),
            pooled_rows("b", [0, 0], 8),
            pooled_rows("full", [1, 1], 0),
        ],
        ignore_index=True,
    )
    points, others = (operating_points(each, runs=1) for each in (here, there))
    entries = transferred_cost(
        points, others, cost="verifier_calls", levels=(1, 2), baselines=("a", "b")
    )
    hull, full = rows_of(entries, HULL), rows_of(entries, "full")
    assert hull["accuracy"].tolist() == pytest.approx([0.375, 0.25])
    assert hull["verifier_calls"].tolist() == pytest.approx([4.25, 5.5])
    assert hull.loc[2, "settings"] == "0.50 a n=8 + 0.50 b n=8"
    assert np.isnan(full.loc[1, "accuracy"])
    assert full.loc[2, ["accuracy", "difference"]].tolist() == pytest.approx([1.0, 0.75])
    lacking = operating_points(there[there["method"] != "b"], runs=1)
    with pytest.raises(SchemaError, match="other methods, settings or budgets"):
        transferred_cost(points, lacking, cost="verifier_calls", levels=(1,), baselines=("a",))


def test_the_gain_within_groups_by_hand() -> None:
    """Full differs by 0, 0, 3/4 and -1/4; of four problems the second and the third are alike."""
    entries = entries_of(FREE, DEAR, FULL)
    along = np.array([1.0, 3.0, 3.0, 4.0])
    table = gain_table(entries, "full", along, groups=4, bootstrap=BOOTSTRAP)
    assert table["problems"].tolist() == [1, 2, 1]
    assert table["mean"].tolist() == [1.0, 3.0, 4.0]
    assert table["difference"].tolist() == pytest.approx([0.0, 0.375, -0.25])
    assert table["cost"].tolist() == [1.0, 1.0, 1.0]
    assert table["hull_cost"].tolist() == pytest.approx([1.0, 1.0, 1.0])
    whole = rows_of(entries, "full").loc[1, "difference"]
    assert np.average(table["difference"], weights=table["problems"]) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("along", "problems"),
    [
        ([4, 4, 4, 4], [4]),
        ([2, 2, 2, 3], [3, 1]),
        ([0, 0, 5, 6], [2, 1, 1]),
        ([4, 3, 2, 1], [1] * 4),
    ],
)
def test_problems_of_one_number_are_one_group(along: list[int], problems: list[int]) -> None:
    """Quantiles part them, however many are equal."""
    entries = entries_of(FREE, DEAR, FULL)
    numbers = np.array(along, dtype=float)
    table = gain_table(entries, "full", numbers, groups=4, bootstrap=BOOTSTRAP)
    assert table["problems"].tolist() == problems
    assert table["mean"].is_monotonic_increasing


def test_nothing_is_chosen_where_nothing_is_cheap_enough() -> None:
    """b costs 4 on one fold and 2 on the other: with B = 2 one fold has no choice, so no entry."""
    dear = pooled_rows("b", [1, 1, 1, 1], [4, 2, 4, 2])
    entries = entries_of(dear, FULL, levels=(2, 4), baselines=("b",))
    for method in ("b", HULL):
        table = rows_of(entries, method)
        assert table["accuracy"].isna().tolist() == [True, False]
        assert table["verifier_calls"].tolist() == pytest.approx([np.nan, 3], nan_ok=True)
    assert rows_of(entries, HULL).loc[2, "settings"] == "b n=8 | none"
    assert pd.isna(rows_of(entries, "full").loc[2, "difference"])


def test_a_choice_is_scored_on_problems_that_it_did_not_see() -> None:
    """The point that is best on one fold fails on the other: both folds score 0."""
    one = pooled_rows("full", [1, 0, 1, 0], 1, n=1)
    other = pooled_rows("full", [0, 1, 0, 1], 1, n=2)
    table = rows_of(entries_of(FREE, one, other), "full")
    assert table.loc[1, "settings"] == "n=2 | n=1"
    assert table.loc[1, "accuracy"] == 0.0


def test_ties_go_to_fewer_calls_then_fewer_tokens_then_by_name() -> None:
    """Four settings that solve the same; of the two cheapest in calls the one of fewer tokens."""
    right = [1, 1, 1, 1]
    tables = [
        pooled_rows("full", right, 2, setting="a", generated_tokens=5.0),
        pooled_rows("full", right, 1, setting="b", generated_tokens=9.0),
        pooled_rows("full", right, 1, setting="d", generated_tokens=7.0),
        pooled_rows("full", right, 1, setting="c", generated_tokens=7.0),
    ]
    found = rows_of(entries_of(FREE, *tables, levels=(1, 2)), "full")
    assert found["settings"].tolist() == ["c n=8 | c n=8"] * 2


def test_of_equal_vertices_the_hull_takes_the_one_of_fewer_tokens() -> None:
    """Two baselines solve half of each fold for the same calls, and one is shorter."""
    long = pooled_rows("a", [1, 1, 0, 0], 1, generated_tokens=9.0)
    short = pooled_rows("b", [0, 0, 1, 1], 1, generated_tokens=7.0)
    assert rows_of(entries_of(long, short, FULL), HULL)["settings"].tolist() == ["b n=8 | b n=8"]


def test_points_below_or_on_the_hull_change_nothing() -> None:
    """A point under the line from a to b, one on it, and one beside b that costs more."""
    fewer = [1, 1, 0, 0, 0, 0, 0, 0]
    free, dear = pooled_rows("a", fewer, 0), pooled_rows("b", [1] * 8, 6)
    more = (
        pooled_rows("b", [1, 1, 1, 1, 0, 0, 0, 0], 3, n=2),
        pooled_rows("b", [1, 1, 1, 1, 0, 0, 0, 0], 2, n=4),
        pooled_rows("a", [1] * 8, 7, n=16),
    )
    folds = np.array([[0, 1] * 4])
    alone, joined = (
        rows_of(entries_of(free, dear, *others, levels=(1, 3, 9), folds=folds), HULL)
        for others in ((), more)
    )
    pd.testing.assert_frame_equal(alone, joined)


def random_rows(rng: np.random.Generator, problems: int) -> pd.DataFrame:
    """Three baselines and two methods of two settings at two n, run twice; no two costs agree."""
    tables = []
    for method, setting, n in itertools.product("abcxy", ("s", "t"), (2, 4)):
        right = rng.binomial(2, rng.uniform(0.2, 0.9), size=problems)
        calls = rng.uniform(0.0, 8.0) * rng.uniform(0.5, 1.5, size=problems)
        tokens = rng.uniform(10, 90, size=problems)
        tables.append(
            pooled_rows(method, right.tolist(), calls.tolist(), setting=setting, n=n).assign(
                generated_tokens=tokens
            )
        )
    return pd.concat(tables, ignore_index=True).sample(frac=1, random_state=rng.integers(99))


def slow_entry(
    groups: dict[tuple[Any, ...], pd.DataFrame], other: list[str], cost: str, level: float
) -> list[tuple[float, pd.DataFrame]]:
    """The best point within ``level`` on the problems ``other``, with its weight of 1."""
    found = []
    for name, own in groups.items():
        mean = own.loc[other].mean(numeric_only=True)
        if mean[cost] <= level:
            key = (-mean["correct"], mean["verifier_calls"], mean["generated_tokens"], name)
            found.append((key, own))
    return [(1.0, min(found, key=lambda one: one[0])[1])] if found else []


def slow_hull(
    groups: dict[tuple[Any, ...], pd.DataFrame], other: list[str], cost: str, level: float
) -> list[tuple[float, pd.DataFrame]]:
    """Of every point within ``level`` and every mixture of two that costs it, the most accurate."""
    means = [(own.loc[other].mean(numeric_only=True), own) for own in groups.values()]
    found = [
        (round(m["correct"], 9), -m[cost], [(1.0, own)]) for m, own in means if m[cost] <= level
    ]
    for (low, one), (high, two) in itertools.permutations(means, 2):
        if low[cost] <= level < high[cost]:
            share = (level - low[cost]) / (high[cost] - low[cost])
            accuracy = (1 - share) * low["correct"] + share * high["correct"]
            found.append((round(accuracy, 9), -level, [(1 - share, one), (share, two)]))
    return max(found, key=lambda one: one[:2])[2] if found else []


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))]
)
@pytest.mark.parametrize("cost", ["verifier_calls", "generated_tokens"])
def test_entries_equal_the_slow_reference(seed: int, cost: str) -> None:
    """Each method's and the hull's outcomes, costs and repetitions on random tables."""
    rng = np.random.default_rng(seed)
    rows, levels = random_rows(rng, 14), (1, 2, 4, 20, 40, 80)
    folds = np.stack([rng.permutation(np.arange(14) % 2) for _ in range(3)])
    points = operating_points(rows, runs=2)
    hulls = {HULL: ("a", "b", "c"), OURS: ("b", "x", "y")}
    found = equal_cost(
        points, folds, cost=cost, levels=levels, baselines=hulls[HULL], ours=hulls[OURS]
    )
    assert found.entrants[-2:] == (OURS, HULL)
    names = sorted(set(rows["problem_id"]))
    by_point = {
        key: own.set_index("problem_id") for key, own in rows.groupby(["method", "setting", "n"])
    }
    for (place, entrant), (column, level) in itertools.product(
        enumerate(found.entrants), enumerate(levels)
    ):
        kept = hulls.get(entrant, (entrant,))
        groups = {key: own for key, own in by_point.items() if key[0] in kept}
        choose = slow_hull if entrant in hulls else slow_entry
        for repetition, fold_of in enumerate(folds):
            outcome: dict[str, tuple[float, float]] = {}
            for fold in (0, 1):
                other = [name for name, one in zip(names, fold_of, strict=True) if one != fold]
                chosen = choose(groups, other, cost, level)
                for name in set(names) - set(other) if chosen else ():
                    scored = [
                        (w * own.loc[name, ["correct", cost]].astype(float)) for w, own in chosen
                    ]
                    outcome[name] = tuple(sum(scored))
            complete = len(outcome) == len(names)
            correct = [outcome[name][0] / 2 if complete else np.nan for name in names]
            spent = [outcome[name][1] if complete else np.nan for name in names]
            mean = pytest.approx(np.mean(correct), nan_ok=True)
            assert found.repeated[repetition, place, column] == mean
            if repetition == 0:
                np.testing.assert_allclose(found.correct[place, column], correct, atol=1e-9)
                np.testing.assert_allclose(found.costs[cost][place, column], spent, atol=1e-9)


def test_folds_are_those_of_the_other_tables() -> None:
    """With one point a method, its entry is the row of cross-validation, problem by problem."""
    rows = pd.concat([FREE, DEAR, FULL]).assign(sampling_seed=0, status="correct")
    cross = cross_validate(
        rows.assign(correct=rows["correct"] == 1),
        {f"p{i:03d}": 1 for i in range(4)},
        folds=2,
        repetitions=2,
        seed=0,
        methods=["full"],
        rule="accuracy",
    )
    own = cross.rows.set_index("problem_id")["fold"]
    assert own.sort_index().tolist() == cross.folds[0].tolist()
    points = operating_points(cross.pooled, runs=cross.runs)
    assert points.methods == ["a", "b", "full"]


def test_p_agrees_with_permutations() -> None:
    """On fractional differences, SciPy's sampled sign flips give the same p."""
    rng = np.random.default_rng(8)
    folds = np.array([[0, 1] * 30])
    tables = [
        pooled_rows(name, rng.binomial(1, share, 60).tolist(), calls)
        for name, share, calls in (("a", 0.3, 0), ("b", 0.7, 4), ("full", 0.5, 1))
    ]
    entries = entries_of(*tables, levels=(1, 2), folds=folds)
    table = rows_of(entries, "full")
    for place, level in enumerate(entries.levels):
        sampled = stats.permutation_test(
            (entries.correct[2, place], entries.correct[3, place]),
            lambda a, b, axis: np.mean(a - b, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=20_000,
            rng=np.random.default_rng(0),
        )
        # SciPy's own p doubles the smaller of two sampled tails, which is noisier than both.
        far = np.abs(sampled.null_distribution) >= abs(sampled.statistic) - 1e-12
        assert 0.01 < far.mean() < 0.99
        assert table.loc[level, "p"] == pytest.approx(far.mean(), abs=0.015)


def test_calls_near_the_best_of_the_hull_by_hand() -> None:
    """Near is 0.99. The hull gets there at 0.98 of the way from 0 calls to 4, full's own at once.

    Between its entries at B = 2 (accuracy 3/4 for 2 calls) and B = 4 (1 for 4 calls) the hull needs
    2 + 2 (0.99 - 0.75) / 0.25 calls. a never gets there.
    """
    full = pooled_rows("full", [1, 1, 1, 1], 2)
    entries = entries_of(FREE, DEAR, full, levels=(1, 2, 4))
    found = near_best_table(entries, BOOTSTRAP).set_index("method")
    hull = 2 + 2 * (1 - MARGIN - 0.75) / 0.25
    assert found.loc[HULL, "verifier_calls"] == pytest.approx(hull)
    assert found.loc["full", "verifier_calls"] == 2.0
    assert found.loc["full", "ratio"] == pytest.approx(2 / hull)
    assert found.loc[HULL, "ratio_low"] == found.loc[HULL, "ratio_high"] == 1.0
    assert pd.isna(found.loc["a", "verifier_calls"]) and pd.isna(found.loc["a", "ratio"])


def slow_near_best(accuracy: list[float], cost: list[float], target: float) -> float:
    """Level by level; a missing entry is NaN."""
    best: tuple[float, float] | None = None
    for height, spent in zip(accuracy, cost, strict=True):
        if height >= target:
            if best is None:
                return spent
            share = (target - best[0]) / (height - best[0])
            return best[1] + share * (spent - best[1])
        if not np.isnan(height) and (best is None or height > best[0]):
            best = (height, spent)
    return np.inf


def test_intervals_of_calls_near_the_best_equal_drawing_the_slow_way() -> None:
    """Means, the best and the costs anew in each resample; an end is inf where too few reach."""
    rng = np.random.default_rng(4)
    folds = np.array([[0, 1] * 10])
    entries = equal_cost(
        operating_points(random_rows(rng, 20), runs=2),
        folds,
        cost="verifier_calls",
        levels=(2, 4, 8),
        baselines=("a", "b", "c"),
    )
    small = Bootstrap(resamples=210, seed=3)
    found = near_best_table(entries, small).set_index("method")
    drawn: dict[str, list[float]] = {entrant: [] for entrant in entries.entrants}
    for weights in [np.ones(20), *np.concatenate(list(small.counts(20)))]:
        heights = (entries.correct * weights).mean(axis=-1)
        spent = (entries.costs["verifier_calls"] * weights).mean(axis=-1)
        target = np.nanmax(heights[-1]) - MARGIN
        for name, height, cost in zip(entries.entrants, heights, spent, strict=True):
            drawn[name].append(slow_near_best(height.tolist(), cost.tolist(), target))
    for name, values in drawn.items():
        own = found.loc[name]
        if np.isinf(values[0]):
            assert pd.isna(own["verifier_calls"])
            continue
        assert own["verifier_calls"] == pytest.approx(values[0])
        ordered = sorted(values[1:])
        ends = ordered[5], ordered[204]  # the first with at least 5.25 and 204.75 of 210 up to it
        assert (own["verifier_calls_low"], own["verifier_calls_high"]) == pytest.approx(ends)
    assert np.isfinite(drawn[HULL]).all()


def test_a_hull_that_costs_nothing_leaves_the_ratio_out() -> None:
    """Where the best baseline makes no call there is nothing to compare with."""
    entries = entries_of(pooled_rows("a", [1, 1, 1, 1], 0), FULL, baselines=("a",))
    found = near_best_table(entries, BOOTSTRAP).set_index("method")
    assert found.loc[HULL, "verifier_calls"] == 0.0
    assert found["ratio"].isna().all()


def test_without_a_hull_nothing_comes_near_it() -> None:
    """Where no level pays for a baseline, there is no accuracy to come near to."""
    found = near_best_table(entries_of(DEAR, FULL, baselines=("b",)), BOOTSTRAP)
    assert found.drop(columns="method").isna().all(axis=None)


def test_levels_span_the_data() -> None:
    """From the first power of two that pays for the cheapest point to one that pays for all."""
    tokens = (3.0, 8.0, 17.0)
    tables = [pooled_rows("a", [1], 1, n=n, generated_tokens=t) for n, t in enumerate(tokens)]
    points = operating_points(pd.concat(tables), runs=1)
    assert spanning_levels(points, "generated_tokens") == (4, 8, 16, 32)


def test_a_point_that_lacks_a_problem_and_a_table_without_baselines_are_refused() -> None:
    """Both are named."""
    lacking = pd.concat([FREE, FULL.iloc[1:]])
    with pytest.raises(SchemaError, match="'full', setting '', n 8: given 3 problems, expected 4"):
        operating_points(lacking, runs=1)
    with pytest.raises(SchemaError, match="no row of a baseline"):
        entries_of(FULL)


@pytest.mark.soak
def test_forty_methods_of_many_settings_take_seconds() -> None:
    """500 problems, 40 methods of 24 settings at 7 budgets, 20 repetitions, 1,000 resamples."""
    rng = np.random.default_rng(0)
    names = pd.DataFrame(
        itertools.product(
            [f"m{i:02d}" for i in range(40)], [f"s{i:02d}" for i in range(24)], 2 ** np.arange(7)
        ),
        columns=["method", "setting", "n"],
    )
    correct = rng.integers(0, 2, (len(names), 500)).astype(float)
    calls = names["n"].to_numpy()[:, None] * rng.random((len(names), 500))
    points = OperatingPoints(names, correct, {"verifier_calls": calls, "generated_tokens": calls})
    folds = np.stack([rng.permutation(np.arange(500) % 2) for _ in range(20)])
    start = time.perf_counter()
    entries = equal_cost(
        points, folds, cost="verifier_calls", levels=(1, 2, 4, 8, 16, 32, 64), baselines=["m00"]
    )
    equal_cost_table(entries, Bootstrap(1000, 0))
    assert time.perf_counter() - start < 20
