"""Intervals, tests and frontiers over problems.

Knows: arrays whose first axis is the problem (or the cluster). Does not know: methods, files.
Every resampling is over whole problems, so that rows of one problem stay together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats
from sklearn.metrics import roc_auc_score

from selverify.errors import ParamsError, SchemaError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DIGITS = 12
"""Means are rounded to so many: the order of a sum of shares must not break a tie."""
LEVEL = 0.95
"""Coverage of every interval (docs/protocol.md: 95 %)."""

_QUANTILE = float(stats.norm.ppf(0.5 + LEVEL / 2))  # a call of ppf takes longer than an interval
_CHUNK_ELEMENTS = 2_000_000  # at most 16 MB of drawn counts at a time
_KEPT_ELEMENTS = 8_000_000  # at most 64 MB of them are kept


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value with the ends of its 95 % interval, all in the value's unit."""

    value: float
    low: float
    high: float


def interval_columns(name: str, interval: Interval | None) -> dict[str, float | None]:
    """``name``, ``name_low`` and ``name_high``, each None without an interval."""
    value, low, high = (
        (None,) * 3 if interval is None else (interval.value, interval.low, interval.high)
    )
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def interval_table(name: str, intervals: Iterable[Interval | None]) -> pd.DataFrame:
    """:func:`interval_columns`, one row each; NaN without an interval."""
    rows = [interval_columns(name, one) for one in intervals]
    return pd.DataFrame(rows, columns=list(interval_columns(name, None)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How to resample. The same seed draws the same problems for every measure."""

    resamples: int
    seed: int

    def counts(self, problems: int) -> Iterable[FloatArray]:
        """Chunks [rows, problems]: how often each problem was drawn; ``resamples`` rows in all.

        With w a row, the resample's mean of one value a problem is w @ values / problems.
        """
        if self.resamples < 1:
            raise ParamsError(f"resamples: given {self.resamples}, expected at least 1")
        small = self.resamples * problems <= _KEPT_ELEMENTS
        return _kept(self, problems) if small else _drawn(self, problems)


def _drawn(bootstrap: Bootstrap, problems: int) -> Iterator[FloatArray]:
    rng = np.random.default_rng(bootstrap.seed)
    rows = max(1, _CHUNK_ELEMENTS // problems)
    for start in range(0, bootstrap.resamples, rows):
        size = (min(rows, bootstrap.resamples - start), problems)
        drawn = rng.integers(0, problems, size=size) + problems * np.arange(size[0])[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size[0] * problems)
        yield counts.reshape(size).astype(np.float64)


@lru_cache(maxsize=1)
def _kept(bootstrap: Bootstrap, problems: int) -> tuple[FloatArray, ...]:
    """The same resamples serve every value that is measured on the problems."""
    return tuple(_drawn(bootstrap, problems))


class Point(NamedTuple):
    """One point of a frontier: mean verifier calls a problem, and accuracy in [0, 1]."""

    calls: float
    accuracy: float


def mean_interval(values: npt.ArrayLike, bootstrap: Bootstrap) -> Interval:
    """Mean of one value a problem with its percentile bootstrap interval (Efron 1979).

    Args:
        values: [problem], any unit.

    Raises:
        SchemaError: ``values`` is empty or has more than one axis.
    """
    array = _vector(values)
    draws = [counts @ array / len(array) for counts in bootstrap.counts(len(array))]
    return _percentiles(float(array.mean()), np.concatenate(draws))


def paired_difference(a: npt.ArrayLike, b: npt.ArrayLike, *, bootstrap: Bootstrap) -> Interval:
    """Mean of ``a - b`` over the same problems, in the order given; positive when a is larger.

    Raises:
        SchemaError: the two do not have the same number of problems.
    """
    first, second = paired(a, b)
    return mean_interval(first - second, bootstrap)


def ratio_interval(
    numerator: npt.ArrayLike, denominator: npt.ArrayLike, *, bootstrap: Bootstrap
) -> Interval | None:
    """sum(numerator) / sum(denominator) over problems, both resampled together.

    With counts as denominator this is a mean over the rows of clusters (Davison & Hinkley 1997,
    section 3.8). None when the denominator sums to zero; resamples where it does are left out, and
    without any other there is no interval either.
    """
    over, under = paired(numerator, denominator)
    if under.sum() == 0.0:
        return None
    draws = []
    for counts in bootstrap.counts(len(over)):
        below, above = counts @ under, counts @ over
        draws.append(above[below != 0.0] / below[below != 0.0])
    return _percentiles_of_any(float(over.sum() / under.sum()), np.concatenate(draws))


def clustered_mean(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, bootstrap: Bootstrap
) -> Interval | None:
    """Mean over rows, with an interval that resamples whole clusters; None without rows.

    Args:
        values: [row]. Rows that are NaN do not apply and are left out.
        clusters: [row], the problem each row belongs to.
    """
    array, names = np.asarray(values, dtype=np.float64), np.asarray(clusters)
    kept = ~np.isnan(array)
    if not kept.any():
        return None
    _, index = np.unique(names[kept], return_inverse=True)
    sums = np.bincount(index, weights=array[kept])
    return ratio_interval(sums, np.bincount(index), bootstrap=bootstrap)


def clustered_ratios(
    columns: Sequence[FloatArray],
    weights: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    bootstrap: Bootstrap,
) -> list[Interval | None]:
    """For each column sum(column) / sum(weights) over rows, with one resampling for all of them.

    With weights of 1 each is :func:`clustered_mean`. None for a column without rows; resamples in
    which the weights sum to zero are left out, and without any other it is None, too.

    Args:
        columns: [column][row]. Rows that are NaN do not apply to their column and are left out.
        weights: [row], at least 0.
        clusters: [row], the problem each row belongs to.
    """
    under, names = np.asarray(weights, dtype=np.float64), np.asarray(clusters)
    alike: dict[bytes, list[int]] = {}  # places of the columns that apply to the same rows
    for place, column in enumerate(columns):
        alike.setdefault(np.isnan(column).tobytes(), []).append(place)
    found: list[Interval | None] = [None] * len(columns)
    for places in alike.values():
        kept = ~np.isnan(columns[places[0]])
        if under[kept].sum() == 0.0:
            continue
        _, index = np.unique(names[kept], return_inverse=True)
        rows = (under, *(columns[place] for place in places))
        sums = np.stack([np.bincount(index, weights=row[kept]) for row in rows], axis=1)
        drawn = np.concatenate([counts @ sums for counts in bootstrap.counts(len(sums))])
        drawn = drawn[drawn[:, 0] != 0.0]
        values = sums[:, 1:].sum(axis=0) / sums[:, 0].sum()
        for at, (place, value) in enumerate(zip(places, values.tolist(), strict=True), start=1):
            found[place] = _percentiles_of_any(value, drawn[:, at] / drawn[:, 0])
    return found


def wilson_interval(successes: float, trials: int) -> Interval:
    """Share of successes with Wilson's score interval (Wilson 1927).

    A trial may count in part: a problem that was right in two of three runs. The interval is then
    somewhat wide, since the mean of several runs varies less than one of them.

    Centre (p + z^2/2n) / (1 + z^2/n), half-width z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n).
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ParamsError(f"given {successes} of {trials}, expected 0 <= successes <= trials >= 1")
    share, z = successes / trials, _QUANTILE
    shrink = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / shrink
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / shrink
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def mcnemar(correct_a: npt.ArrayLike, correct_b: npt.ArrayLike, *, runs: int = 1) -> float:
    """Two-sided exact p of McNemar's test (1947) on the same problems, each run ``runs`` times.

    It is :func:`sign_flip` of the differences. With one run these are -1, 0 or 1, and the test is
    McNemar's binomial; with more they are shares of ``runs``, so repeated runs of one problem never
    count as several problems.

    Args:
        correct_a, correct_b: [problem], the share of its runs that were right.
    """
    a, b = paired(correct_a, correct_b)
    return sign_flip(a - b, parts=runs)


def sign_flip(differences: npt.ArrayLike, *, parts: int) -> float:
    """Two-sided exact p of Fisher's sign-flip test (1935) on differences in ``parts``-ths.

    When neither side is better, each difference has either sign with probability 1/2,
    independently; p is the chance that their sum is as far from 0 as the one given. Differences are
    rounded to whole parts. Rounding is odd, so the rounded ones keep that symmetry and the test is
    exact. 1.0 when all are 0.

    Args:
        differences: [problem], in the unit of the outcomes.
    """
    steps = np.rint(_vector(differences) * parts).astype(np.int64)
    sizes = np.sort(np.abs(steps[steps != 0]))
    chances = np.ones(1)  # of each sum that the sizes so far can have, in steps of 2
    for size in sizes.tolist():
        chances = np.append(chances, np.zeros(size)) + np.append(np.zeros(size), chances)
        chances /= 2
    reach = int(sizes.sum())
    far = np.abs(np.arange(-reach, reach + 1, 2)) >= abs(int(steps.sum()))
    return min(1.0, float(chances[far].sum()))


def pareto_frontier(calls: npt.ArrayLike, accuracy: npt.ArrayLike) -> tuple[Point, ...]:
    """The points that no other point beats (upper envelope), by rising calls and accuracy.

    A point stays when every point with as few or fewer calls is less accurate. Accuracies that
    differ in their last bits only, as sums of thirds do, count as equal.
    """
    costs, scores = paired(calls, accuracy)
    scores = np.round(scores, DIGITS)
    kept: list[Point] = []
    for index in np.lexsort((-scores, costs)):
        if not kept or scores[index] > kept[-1].accuracy:
            kept.append(Point(float(costs[index]), float(scores[index])))
    return tuple(kept)


def calls_at_accuracy(points: Sequence[Point], target: float) -> float | None:
    """Fewest calls that reach ``target``, linear between neighbours of a frontier.

    Interpolation is what one gets by choosing between two settings at random. A target below
    the first point costs the first point's calls. None when the frontier does not reach it.
    """
    if not points or target > points[-1].accuracy:
        return None
    costs, heights = zip(*points, strict=True)
    return float(np.interp(target, heights, costs))


def with_free(points: Sequence[Point], free: float) -> tuple[Point, ...]:
    """A frontier that begins with ``free``, the accuracy that costs no call.

    Between it and the first point the verifier serves only a share of the problems.
    """
    calls, accuracy = zip(Point(0.0, free), *points, strict=True)
    return pareto_frontier(calls, accuracy)


def accuracy_at_calls(points: Sequence[Point], calls: npt.ArrayLike) -> FloatArray:
    """The best accuracy for at most ``calls``, linear between neighbours, flat at both ends."""
    costs, heights = zip(*points, strict=True)
    return np.asarray(np.interp(np.asarray(calls), costs, heights))


def area_under_frontier(points: Sequence[Point], *, limit: float) -> float:
    """Mean accuracy over a call allowance uniform in [0, limit].

    (1/limit) times the integral of :func:`accuracy_at_calls` from 0 to limit.
    """
    if limit <= 0.0:
        raise ParamsError(f"limit: given {limit}, expected more than 0 calls")
    marks = np.array([0.0, *(one.calls for one in points if 0.0 < one.calls < limit), limit])
    return float(np.trapezoid(accuracy_at_calls(points, marks), marks) / limit)


def pass_at_k(correct: npt.ArrayLike, *, samples: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
    """Chance that k of ``samples`` drawn without replacement contain a correct one.

    1 - C(n-c, k) / C(n, k), the unbiased estimator of Chen et al. (2021, section 2.1), computed
    as 1 - prod_{i<k} (n-c-i)/(n-i), which neither overflows nor cancels.

    Args:
        correct, samples, k: c, n and k, broadcast against each other; 0 <= c, k <= n.

    Returns:
        Probabilities of the broadcast shape.
    """
    c, n, draws = np.broadcast_arrays(
        np.asarray(correct, np.int64), np.asarray(samples, np.int64), np.asarray(k, np.int64)
    )
    if np.any(c < 0) or np.any(c > n) or np.any(draws < 0) or np.any(draws > n):
        raise ParamsError("pass@k: expected 0 <= correct <= samples and 0 <= k <= samples")
    missed = np.ones(c.shape)
    for i in range(int(draws.max(initial=0))):
        left = np.clip((n - c - i) / np.maximum(n - i, 1), 0.0, 1.0)
        missed = np.where(i < draws, missed * left, missed)
    return 1.0 - missed


def area_under_roc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float | None:
    """P(score of a right item > score of a wrong one), ties count half; None with one class."""
    values, truth = paired(scores, labels)
    if truth.min() == truth.max():
        return None
    return float(roc_auc_score(truth > 0, values))


def area_under_roc_interval(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike,
    bootstrap: Bootstrap,
) -> Interval | None:
    """:func:`area_under_roc` with an interval that resamples whole clusters.

    With U[i, j] the wins of cluster i's right items over cluster j's wrong ones, and w the number
    of times each cluster is drawn, a resample's AUC is w'Uw / (w'p)(w'q): one matrix product
    instead of a new sort. Resamples with one class only are left out; None without any other.
    """
    value = area_under_roc(scores, labels)
    if value is None:
        return None
    values, truth = paired(scores, labels)
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    wins = _wins_between(values, truth > 0, index.astype(np.int64), len(names))
    right = np.bincount(index, weights=truth > 0, minlength=len(names))
    wrong = np.bincount(index, weights=truth <= 0, minlength=len(names))
    draws = []
    for weights in bootstrap.counts(len(names)):
        pairs = (weights @ right) * (weights @ wrong)
        won = np.einsum("ri,ri->r", weights @ wins, weights)
        draws.append(won[pairs > 0] / pairs[pairs > 0])
    return _percentiles_of_any(value, np.concatenate(draws))


def _wins_between(
    values: FloatArray, right: npt.NDArray[np.bool_], index: IntArray, clusters: int
) -> FloatArray:
    wins = np.zeros((clusters, clusters))
    positives, owners = values[right], index[right]
    for j in range(clusters):
        negatives = np.sort(values[~right & (index == j)])
        below = np.searchsorted(negatives, positives, side="left")
        below_or_equal = np.searchsorted(negatives, positives, side="right")
        wins[:, j] = np.bincount(owners, weights=(below + below_or_equal) / 2, minlength=clusters)
    return wins


def _percentiles_of_any(value: float, draws: npt.NDArray[Any]) -> Interval | None:
    return _percentiles(value, draws) if draws.size else None


def _percentiles(value: float, draws: npt.NDArray[Any]) -> Interval:
    tail = (1.0 - LEVEL) / 2
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return Interval(value, float(low), float(high))


def _vector(values: npt.ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise SchemaError(f"given an array of shape {array.shape}, expected one value a problem")
    return array


def paired(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Two arrays of the same length, one value of each a problem.

    Raises:
        SchemaError: an array is empty or not one-dimensional, or their lengths differ.
    """
    first, second = _vector(a), _vector(b)
    if len(first) != len(second):
        raise SchemaError(f"given {len(first)} and {len(second)} values, expected as many of each")
    return first, second
