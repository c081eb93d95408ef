from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import comb
from sklearn.metrics import roc_auc_score

from selverify.errors import ParamsError, SchemaError
from selverify.experiment.statistics import (
    Bootstrap,
    Point,
    area_under_frontier,
    area_under_roc,
    area_under_roc_interval,
    calls_at_accuracy,
    clustered_mean,
    clustered_ratios,
    mcnemar,
    mean_interval,
    paired_difference,
    pareto_frontier,
    pass_at_k,
    ratio_interval,
    sign_flip,
    wilson_interval,
    with_free,
)

BOOTSTRAP = Bootstrap(resamples=2000, seed=3)


def test_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    """An interval depends on the seed alone, not on what was computed before it."""
    values = np.random.default_rng(4).normal(size=50)
    first = mean_interval(values, BOOTSTRAP)
    mean_interval(values[:30], BOOTSTRAP)
    assert mean_interval(values, BOOTSTRAP) == first
    assert mean_interval(values, Bootstrap(resamples=2000, seed=4)) != first


def test_counts_come_in_chunks_that_add_up() -> None:
    """The chunks hold every resample once, and a resample as many problems as there are."""
    chunks = list(Bootstrap(resamples=200, seed=0).counts(100_000))
    assert len(chunks) > 1
    assert sum(len(chunk) for chunk in chunks) == 200
    assert all((chunk.sum(axis=1) == 100_000).all() for chunk in chunks)


def test_means_of_resamples_equal_drawing_the_slow_way() -> None:
    """Counts times values is the mean of the problems that NumPy's generator draws."""
    values = np.random.default_rng(3).normal(size=40)
    drawn = np.random.default_rng(5).integers(0, 40, size=(300, 40))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    found = mean_interval(values, Bootstrap(resamples=300, seed=5))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)


def test_paired_difference_is_narrower_than_an_unpaired_one() -> None:
    """Two methods that differ on two of 100 problems have a narrow difference."""
    a = np.arange(100) % 2
    b = a.copy()
    b[[1, 3]] = 0
    found = paired_difference(a, b, bootstrap=BOOTSTRAP)
    assert found.value == pytest.approx(0.02)
    assert found.low >= 0.0
    assert found.high < 0.06


def test_clustered_mean_is_wider_when_rows_of_a_cluster_agree() -> None:
    """Ten copies of each value add no information, and rows that do not apply are left out."""
    values = (np.arange(40) % 2).astype(float)
    once = mean_interval(values, BOOTSTRAP)
    copies = np.append(np.repeat(values, 10), np.nan)
    names = np.append(np.repeat(np.arange(40), 10), 99)
    found = clustered_mean(copies, names, bootstrap=BOOTSTRAP)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((once.value, once.low, once.high))
    assert clustered_mean([np.nan], ["a"], bootstrap=BOOTSTRAP) is None


def test_mcnemar_by_hand() -> None:
    """Six problems right only in a and one only in b: p = 2 (C(7,0) + C(7,1)) / 2^7."""
    a = [1] * 6 + [0] + [1] * 5
    b = [0] * 6 + [1] + [1] * 5
    assert mcnemar(a, b) == pytest.approx(2 * (1 + 7) / 128)
    assert mcnemar(b, a) == mcnemar(a, b)
    assert mcnemar(a, a) == 1.0


def test_calls_at_accuracy_is_linear_between_points() -> None:
    """Half way up costs half way along; below the first point, its calls; above all, None."""
    points = (Point(4, 0.4), Point(8, 0.6))
    assert calls_at_accuracy(points, 0.5) == pytest.approx(6.0)
    assert calls_at_accuracy(points, 0.6) == pytest.approx(8.0)
    assert calls_at_accuracy(points, 0.1) == pytest.approx(4.0)
    assert calls_at_accuracy(points, 0.61) is None
    assert calls_at_accuracy((), 0.1) is None


def test_area_under_frontier_by_hand() -> None:
    """A ramp from the free accuracy to 4 calls, one to 8 calls, then flat to the limit of 16."""
    points = with_free((Point(4, 0.4), Point(8, 0.6)), 0.2)
    by_hand = (4 * 0.3 + 4 * 0.5 + 8 * 0.6) / 16
    assert area_under_frontier(points, limit=16) == pytest.approx(by_hand)
    assert area_under_frontier(points, limit=6) == pytest.approx((4 * 0.3 + 2 * 0.45) / 6)
    assert area_under_frontier(points, limit=2) == pytest.approx(0.25)
    assert area_under_frontier((Point(0, 0.5),), limit=3) == pytest.approx(0.5)


def test_area_under_roc_counts_ties_half() -> None:
    """One win, one tie and two losses of four pairs give 0.375; one class gives None."""
    scores, labels = [0.5, 0.1, 0.5, 0.4], [1, 1, 0, 0]
    assert area_under_roc(scores, labels) == pytest.approx((1 + 0.5) / 4)
    assert area_under_roc([0.1, 0.2], [1, 1]) is None


def test_area_under_roc_interval_equals_resampling_the_slow_way() -> None:
    """The matrix of wins gives the percentiles of sorting each resample anew."""
    rng = np.random.default_rng(6)
    clusters = rng.integers(0, 12, size=120)
    labels = rng.random(120) < 0.5
    scores = np.round(rng.random(120) + 0.3 * labels, 1)
    bootstrap = Bootstrap(resamples=200, seed=1)
    found = area_under_roc_interval(scores, labels, clusters=clusters, bootstrap=bootstrap)
    slow = []
    for counts in np.concatenate(list(bootstrap.counts(12))):
        drawn = np.repeat(np.arange(12), counts.astype(int))
        rows = np.concatenate([np.flatnonzero(clusters == cluster) for cluster in drawn])
        slow.append(roc_auc_score(labels[rows], scores[rows]))
    assert found is not None
    assert found.value == pytest.approx(roc_auc_score(labels, scores))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])))


def runs_of(chances: np.ndarray, rng: np.random.Generator, *, runs: int) -> np.ndarray:
    """The share of ``runs`` runs in which each problem was solved."""
    return (rng.random((runs, len(chances))) < chances).mean(axis=0)


@pytest.mark.soak
def test_intervals_over_problems_cover_with_several_runs_of_each() -> None:
    """Runs nested in problems: the mean of a problem's runs is resampled as one value.

    The true difference is that over all problems of this kind, so problems are drawn anew.
    """
    rng = np.random.default_rng(13)
    many = rng.beta(2.0, 1.5, size=1_000_000)
    true = float((np.minimum(many + 0.05, 1.0) - many).mean())
    hits = flagged = 0
    for trial in range(600):
        ease = rng.beta(2.0, 1.5, size=200)
        a, b = (runs_of(np.minimum(ease + up, 1.0), rng, runs=3) for up in (0.05, 0.0))
        found = paired_difference(a, b, bootstrap=Bootstrap(resamples=500, seed=trial))
        hits += found.low <= true <= found.high
        flagged += mcnemar(runs_of(ease, rng, runs=3), b, runs=3) < 0.05
    assert 0.93 <= hits / 600 <= 0.97
    assert 0.03 <= flagged / 600 <= 0.07


@pytest.mark.soak
def test_the_interval_over_problems_is_as_wide_as_runs_vary() -> None:
    """With all the noise within problems; drawing runs again too would make it 29 % too wide.

    The variance of a mean of three runs is V / 3; drawn again they add V / 3 * (1 - 1 / 3).
    """
    rng = np.random.default_rng(14)
    means, widths, stages = [], [], []
    for trial in range(200):
        runs = (rng.random((200, 3)) < 0.5).astype(float)
        means.append(runs.mean())
        found = mean_interval(runs.mean(axis=1), Bootstrap(resamples=300, seed=trial))
        widths.append((found.high - found.low) / (2 * 1.96))
        drawn = runs[rng.integers(0, 200, 200)]
        stages.append(np.take_along_axis(drawn, rng.integers(0, 3, (200, 3)), 1).mean() - means[-1])
    assert np.mean(widths) == pytest.approx(np.std(means), rel=0.12)
    assert np.std(stages) == pytest.approx((1 + 2 / 3) ** 0.5 * np.mean(widths), rel=0.12)


def test_what_cannot_be_measured_is_refused() -> None:
    """Each error names what was given."""
    for values in ([], [[1.0, 2.0]]):
        with pytest.raises(SchemaError, match="shape"):
            mean_interval(values, BOOTSTRAP)
    with pytest.raises(SchemaError, match="3 and 2"):
        paired_difference([1, 0, 1], [1, 0], bootstrap=BOOTSTRAP)
    with pytest.raises(ParamsError, match="resamples: given 0"):
        mean_interval([1.0], Bootstrap(resamples=0, seed=1))
    with pytest.raises(ParamsError, match="11 of 10"):
        wilson_interval(11, 10)
    with pytest.raises(ParamsError, match="k <= samples"):
        pass_at_k(1, samples=4, k=5)
    with pytest.raises(ParamsError, match="more than 0 calls"):
        area_under_frontier((Point(1, 0.5),), limit=0)


def test_ratio_interval_is_the_ratio_of_sums() -> None:
    """Not the mean of ratios; a constant ratio has no width; without a cost there is none."""
    found = ratio_interval([1, 1], [1, 3], bootstrap=BOOTSTRAP)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 1 / 3, 1.0))
    cost = np.random.default_rng(0).integers(1, 50, size=40)
    found = ratio_interval(cost / 2, cost, bootstrap=BOOTSTRAP)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio_interval([1, 1], [0, 0], bootstrap=BOOTSTRAP) is None


@pytest.mark.parametrize("resamples", [1, 2])
def test_where_every_resample_is_left_out_there_is_no_interval(resamples: int) -> None:
    """Of two problems one may be drawn twice, which has no cost, or is of one class."""
    found = set()
    for seed in range(60):
        bootstrap = Bootstrap(resamples, seed)
        over, under = np.array([0.0, 1.0]), np.array([0.0, 2.0])
        ratio = ratio_interval(over, under, bootstrap=bootstrap)
        (column,) = clustered_ratios([over], under, [0, 1], bootstrap=bootstrap)
        assert (column is None) == (ratio is None)
        area = area_under_roc_interval([0.9, 0.1], [1, 0], clusters=[0, 1], bootstrap=bootstrap)
        found |= {("ratio", ratio is None), ("area", area is None)}
    assert found == {(name, absent) for name in ("ratio", "area") for absent in (True, False)}


def test_one_resampling_of_many_columns_is_that_of_each() -> None:
    """Means and ratios with their ends, also where columns apply to different rows."""
    rng = np.random.default_rng(1)
    names = rng.integers(0, 9, size=60)
    columns = [rng.random(60) for _ in range(3)]
    columns[1][rng.random(60) < 0.3] = np.nan
    columns[2][names < 4] = np.nan
    columns.append(np.full(60, np.nan))
    found = clustered_ratios(columns, np.ones(60), names, bootstrap=BOOTSTRAP)
    assert found[3] is None
    for one, column in zip(found, columns[:3], strict=False):
        alone = clustered_mean(column, names, bootstrap=BOOTSTRAP)
        assert one is not None
        assert alone is not None
        assert (one.value, one.low, one.high) == pytest.approx((alone.value, alone.low, alone.high))
    weights = rng.integers(0, 3, size=60).astype(np.float64)
    (ratio,) = clustered_ratios(columns[:1], weights, names, bootstrap=BOOTSTRAP)
    over, under = (np.bincount(names, weights=one) for one in (columns[0], weights))
    alone = ratio_interval(over, under, bootstrap=BOOTSTRAP)
    assert ratio is not None
    assert alone is not None
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(
        (alone.value, alone.low, alone.high)
    )


@pytest.mark.parametrize(("right", "ends"), [(8, (0.8, 0.4902, 0.9433)), (0, (0.0, 0.0, 0.2775))])
def test_wilson_interval_of_a_textbook_case(right: int, ends: tuple[float, ...]) -> None:
    """8 of 10 gives 0.490 to 0.943, and 0 of 10 still has a width."""
    found = wilson_interval(right, 10)
    assert (found.value, found.low, found.high) == pytest.approx(ends, abs=1e-4)


def test_mcnemar_against_slow_references() -> None:
    """With one run scipy's binomial test; with three, the share of all sign changes."""
    rng = np.random.default_rng(8)
    signs = np.array(list(product((-1, 1), repeat=9)))
    for _ in range(20):
        a, b = rng.random(60) < 0.6, rng.random(60) < 0.5
        only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
        expected = stats.binomtest(only_a, only_a + only_b, 0.5).pvalue
        assert mcnemar(a, b) == pytest.approx(expected, rel=1e-9)
        c, d = rng.integers(0, 4, 9), rng.integers(0, 4, 9)
        far = np.abs((signs * (c - d)).sum(1)) >= abs((c - d).sum())
        assert mcnemar(c / 3, d / 3, runs=3) == pytest.approx(far.mean(), rel=1e-9)


def test_sign_flips_of_fractions_by_hand_and_against_all_signs() -> None:
    """Of the eight sums of 1, 1/2 and 1/4, two are as far from 0 as 7/4 and six as 3/4.

    What rounds to no part at all is no difference.
    """
    assert sign_flip([1.0, 0.5, 0.25], parts=4) == 2 / 8
    assert sign_flip([1.0, -0.5, 0.25, 0.0], parts=4) == 6 / 8
    assert sign_flip([0.1, -0.1], parts=4) == 1.0
    rng = np.random.default_rng(2)
    signs = np.array(list(product((-1, 1), repeat=10)))
    for _ in range(20):
        parts = rng.integers(-120, 121, 10)
        far = np.abs((signs * parts).sum(1)) >= abs(parts.sum())
        assert sign_flip(parts / 120, parts=120) == pytest.approx(far.mean(), rel=1e-9)


def test_pass_at_k_equals_the_binomial_formula() -> None:
    """1 - C(n-c, k)/C(n, k) for every c and k of n = 64; thousands of samples do not overflow."""
    c, k = np.meshgrid(np.arange(65), np.arange(65))
    by_formula = 1 - comb(64 - c, k) / comb(64, k)
    assert pass_at_k(c, samples=64, k=k) == pytest.approx(by_formula, abs=1e-12)
    assert pass_at_k(1, samples=5000, k=2500) == pytest.approx(0.5)


def test_frontier_drops_what_another_point_beats() -> None:
    """A point with more calls and no more accuracy goes, equal calls keep the better one.

    Thirds add up to different last bits; a dearer point of equal accuracy stays out.
    """
    points = pareto_frontier([10, 5, 5, 20, 0], [0.6, 0.5, 0.4, 0.6, 0.3])
    assert points == (Point(0, 0.3), Point(5, 0.5), Point(10, 0.6))
    rng = np.random.default_rng(15)
    shares = rng.integers(0, 4, 250) / 3
    other = rng.permutation(shares)
    sums = [float(np.ones(250) @ shares / 250), float(np.cumsum(other)[-1] / 250)]
    for accuracies in (sums, sums[::-1]):
        assert len(pareto_frontier([10, 30], accuracies)) == 1
