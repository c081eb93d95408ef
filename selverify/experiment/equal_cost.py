"""What each method solves at equal cost, and what all baselines together would solve.

Knows: the ``outcomes`` table pooled by ``selection.pool_runs``, folds. Does not know: which method
is a baseline, text, files.

Whatever is chosen for a fold is chosen on the other folds, by means over their problems, and scored
on the held-out fold.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from selverify.errors import SchemaError
from selverify.experiment.selection import COSTS
from selverify.experiment.statistics import (
    DIGITS,
    LEVEL,
    Bootstrap,
    FloatArray,
    IntArray,
    Interval,
    clustered_ratios,
    interval_table,
    sign_flip,
)

HULL, OURS = "hull", "hull_of_ours"
"""The names of all baselines together, and of all of ours, among the methods."""
MARGIN = 0.01
"""How far below the hull's best accuracy is still near it."""
_POINT = ["method", "setting", "n"]
_PARTS = 120  # of an outcome in the sign-flip test: shares of up to 6 runs are whole parts


@dataclass(frozen=True, slots=True, eq=False)
class OperatingPoints:
    """Every (method, setting, n) on every problem.

    Attributes:
        names: method, setting and n of each point, sorted by them.
        correct: the share of its runs that were right [point, problem]; problems by name.
        costs: means over runs, by the name of the cost [point, problem].
    """

    names: pd.DataFrame
    correct: FloatArray
    costs: Mapping[str, FloatArray]

    @property
    def methods(self) -> list[str]:
        """Each method once, by name."""
        return sorted(set(self.names["method"]))


@dataclass(frozen=True, slots=True, eq=False)
class EqualCost:
    """The entry of each entrant at each level, scored on held-out problems.

    Attributes:
        cost: what the levels are of.
        entrants: the methods, then :data:`OURS` where there are any, and :data:`HULL` last.
        levels: every B, rising.
        correct: expected share of right runs [entrant, level, problem]; NaN without an entry.
        costs: every cost likewise, by its name.
        repeated: accuracy in each repetition [repetition, entrant, level].
        settings: the setting and n of each fold joined by " | ", level by level of each entrant.
    """

    cost: str
    entrants: tuple[str, ...]
    levels: tuple[int, ...]
    correct: FloatArray
    costs: Mapping[str, FloatArray]
    repeated: FloatArray
    settings: Sequence[str]


class _Seen(NamedTuple):
    """What a choice for a fold may look at: means over the problems of the other folds.

    Each [repetition, fold, point]. ``rank`` is the place of a point among all by accuracy, then
    fewer verifier calls, fewer generated tokens, and name.
    """

    correct: FloatArray
    cost: FloatArray
    rank: IntArray


class _Mixture(NamedTuple):
    """Two points of which the second is taken with probability ``share``.

    ``first`` and ``second`` are rows of the points, -1 where nothing can be chosen. The three have
    the same shape.
    """

    first: IntArray
    second: IntArray
    share: FloatArray


def operating_points(pooled: pd.DataFrame, *, runs: int) -> OperatingPoints:
    """The points of ``pooled``, as :func:`selection.pool_runs` gives it with ``runs``.

    Raises:
        SchemaError: a point lacks a problem.
    """
    groups = pooled.groupby(_POINT)
    names = groups.size().reset_index(name="problems")
    column, problems = pd.factorize(pooled["problem_id"], sort=True)
    if len(lacking := names[names["problems"] != len(problems)]):
        one = lacking.iloc[0]
        raise SchemaError(
            f"outcomes: method {one['method']!r}, setting {one['setting']!r}, n {one['n']}: given "
            f"{one['problems']} problems, expected {len(problems)}"
        )
    order = np.argsort(groups.ngroup().to_numpy() * len(problems) + column)

    def matrix(name: str) -> FloatArray:
        return pooled[name].to_numpy(np.float64)[order].reshape(len(names), len(problems))

    costs = {name: matrix(name) for name in COSTS}
    return OperatingPoints(names[_POINT], matrix("correct") / runs, costs)


def spanning_levels(points: OperatingPoints, cost: str) -> tuple[int, ...]:
    """Powers of two from the first that pays for some point to the first that pays for all."""
    means = points.costs[cost].mean(axis=1)
    low, high = np.ceil(np.log2([means[means > 0].min(), means.max()])).astype(int).tolist()
    return tuple(2**power for power in range(max(low, 0), max(high, 0) + 1))


def equal_cost(
    points: OperatingPoints,
    folds: IntArray,
    *,
    cost: str,
    levels: Sequence[int],
    baselines: Collection[str],
    ours: Collection[str] = (),
) -> EqualCost:
    """What each method, and the hulls of baselines and of ours, do for a mean cost of at most B.

    A method's entry is its most accurate point among those whose mean cost is at most B; ties go to
    fewer verifier calls, then fewer generated tokens, then by name. The hull is the upper concave
    hull of (mean cost, accuracy) over all points of ``baselines``: who may choose between two
    settings at random reaches it. That of ``ours`` is the same of other points. Its entry is the
    mixture of two neighbouring vertices whose mean cost is B, or its most accurate vertex where
    that costs less. A mixture (1 - share, share) of points x1 and x2 scores (1 - share) x1 + share
    x2 on each problem, its expected outcome.

    Args:
        folds: the fold of each problem [repetition, problem]; the first repetition gives the
            entries, all of them the spread.
        cost: a key of ``points.costs``.
        levels: every B, rising, in the unit of ``cost`` a problem.

    Raises:
        SchemaError: no point is a baseline's.
    """
    hulls = _hulls(points, baselines, ours)
    chosen = _chosen(points, 1.0 - _inside(folds), cost, levels, hulls)
    return _scored(points, chosen, folds, (*points.methods, *hulls), cost=cost, levels=levels)


def transferred_cost(
    points: OperatingPoints,
    others: OperatingPoints,
    *,
    cost: str,
    levels: Sequence[int],
    baselines: Collection[str],
    ours: Collection[str] = (),
) -> EqualCost:
    """The same chosen on all problems of ``points``, and scored on those of ``others``.

    Raises:
        SchemaError: they have not the same methods, settings and n; no point is a baseline's.
    """
    if not points.names.equals(others.names):
        raise SchemaError(
            "outcomes: given other methods, settings or budgets than those that are chosen from"
        )
    everywhere = np.ones((1, 1, points.correct.shape[1]))
    hulls = _hulls(points, baselines, ours)
    chosen = _chosen(points, everywhere, cost, levels, hulls)
    one_fold = np.zeros((1, others.correct.shape[1]), dtype=np.int64)
    return _scored(others, chosen, one_fold, (*points.methods, *hulls), cost=cost, levels=levels)


def _chosen(
    points: OperatingPoints,
    outside: FloatArray,
    cost: str,
    levels: Sequence[int],
    hulls: Mapping[str, IntArray],
) -> _Mixture:
    """The entries [repetition, fold, entrant, level] by what is ``outside`` of each fold."""
    seen = _seen(points, outside, cost)
    limits = np.asarray(levels, dtype=np.float64)
    found = [_best_within(points, seen, limits)]
    found += [_hulls_at(seen, limits, members) for members in hulls.values()]
    return _Mixture(*(np.concatenate(parts, -2) for parts in zip(*found, strict=True)))


def _hulls(
    points: OperatingPoints, baselines: Collection[str], ours: Collection[str]
) -> dict[str, IntArray]:
    """The points of each hull, that of the baselines last."""
    with_ours = bool({*ours} & {*points.names["method"]})
    return {
        **({OURS: _members(points, ours)} if with_ours else {}),
        HULL: _members(points, baselines),
    }


def _scored(
    points: OperatingPoints,
    chosen: _Mixture,
    folds: IntArray,
    entrants: tuple[str, ...],
    *,
    cost: str,
    levels: Sequence[int],
) -> EqualCost:
    first = _Mixture(*(part[0] for part in chosen))
    return EqualCost(
        cost=cost,
        entrants=entrants,
        levels=tuple(levels),
        correct=_held_out(first, points.correct, folds[0]),
        costs={name: _held_out(first, each, folds[0]) for name, each in points.costs.items()},
        repeated=_over_repetitions(chosen, points.correct, folds),
        settings=_settings(points, first, entrants),
    )


def equal_cost_table(entries: EqualCost, bootstrap: Bootstrap) -> pd.DataFrame:
    """One row an entry, with its paired difference to the hull.

    Returns:
        method (:data:`HULL` last), level; accuracy and difference (to the hull on the same
        problems, positive where the method is better), each with the ends of its 95 % interval,
        which holds the choices fixed; p (:func:`statistics.sign_flip`); mean costs, which may pass
        B on the held-out problems; accuracy_mean and accuracy_sd over the repetitions with an entry
        (the deviation divides by their number); difference_mean, difference_min and difference_max
        over the same; settings, those of each fold joined by " | ". NaN where for some fold no
        point is cheap enough.
    """
    difference = entries.correct - entries.correct[-1]
    apart = entries.repeated - entries.repeated[:, -1:]
    difference[-1] = apart[:, -1] = np.nan
    named = itertools.product(entries.entrants, entries.levels)
    repeated, over = (
        pd.DataFrame(each.reshape(len(each), -1)) for each in (entries.repeated, apart)
    )
    return pd.concat(
        [
            pd.DataFrame(named, columns=["method", "level"]),
            _intervals("accuracy", entries.correct, bootstrap),
            _intervals("difference", difference, bootstrap),
        ],
        axis=1,
    ).assign(
        p=[_p_value(one) for one in _flat(difference)],
        **{name: _flat(each).mean(axis=-1) for name, each in entries.costs.items()},
        accuracy_mean=repeated.mean(),
        accuracy_sd=repeated.std(ddof=0),
        difference_mean=over.mean(),
        difference_min=over.min(),
        difference_max=over.max(),
        settings=entries.settings,
    )


def near_best_table(entries: EqualCost, bootstrap: Bootstrap) -> pd.DataFrame:
    """The cost at which each method comes within :data:`MARGIN` of the hull's best accuracy.

    Read off the entries: linear between the first that is so accurate and the best of those for
    smaller B, which a random choice between the two reaches; the cost of the first entry where
    that is so accurate already.

    Returns:
        method (:data:`HULL` last); the cost under its name and ratio (of it to the hull's), each
        with the ends of its 95 % interval: problems resampled, entries fixed, the best and both
        costs anew. An end is inf where the accuracy is not reached. NaN where it is not reached on
        the problems themselves; no ratio to a hull that costs nothing.
    """
    problems = entries.correct.shape[-1]
    weights = [np.ones((1, problems)), *bootstrap.counts(problems)]
    spent = np.concatenate([_cost_near_best(entries, counts / problems) for counts in weights])
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(spent[:, -1:] > 0, spent / spent[:, -1:], np.nan)
    return pd.concat(
        [
            pd.DataFrame({"method": entries.entrants}),
            interval_table(entries.cost, [_first_of(draws) for draws in spent.T]),
            interval_table("ratio", [_first_of(draws) for draws in ratio.T]),
        ],
        axis=1,
    )


def gain_table(
    entries: EqualCost,
    method: str,
    along: FloatArray,
    *,
    groups: int,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """The paired difference of ``method`` to the hull within groups of problems.

    B limits the mean cost over all problems: within a group both may spend more or less.

    Args:
        along: the number by which problems are put into groups [problem], by name.
        groups: at most so many. Quantiles part them, and problems of the same number stay together.

    Returns:
        problems, mean (of ``along``, rising), level; the difference with the ends of its 95 %
        interval, the cost and hull_cost, NaN where one of both has no entry.
    """
    marks = np.quantile(along, np.arange(1, groups) / groups, method="inverted_cdf")
    group_of = np.searchsorted(np.unique(marks), along)
    place = entries.entrants.index(method)
    difference = entries.correct[place] - entries.correct[-1]
    cost = entries.costs[entries.cost]
    parts = []
    for group in np.unique(group_of):
        inside = group_of == group
        named = {"problems": int(inside.sum()), "mean": float(along[inside].mean())}
        found = _intervals("difference", difference[None, :, inside], bootstrap)
        spent = {"cost": cost[place][:, inside].mean(-1), "hull_cost": cost[-1][:, inside].mean(-1)}
        parts.append(found.assign(**named, level=entries.levels, **spent))
    return pd.concat(parts, ignore_index=True)


def _cost_near_best(entries: EqualCost, weights: FloatArray) -> FloatArray:
    """Costs [row, entrant] under weights of the problems [row, problem]; inf where not reached."""
    missing = np.isnan(entries.correct).any(axis=-1)
    accuracy, cost = (
        np.einsum("rp,elp->rel", weights, np.nan_to_num(each), optimize=True)
        for each in (entries.correct, entries.costs[entries.cost])
    )
    accuracy = np.where(missing, -1.0, accuracy)
    best = accuracy[:, -1:].max(axis=-1)
    target = np.where(best < 0, np.inf, best - MARGIN)
    reached = accuracy >= target[..., None] - 10.0**-DIGITS
    after = reached.argmax(axis=-1)[..., None]
    earlier = np.where(np.arange(accuracy.shape[-1]) < after, accuracy, -1.0)
    before = earlier.argmax(axis=-1)[..., None]
    low, high = (np.take_along_axis(accuracy, place, -1)[..., 0] for place in (before, after))
    start, end = (np.take_along_axis(cost, place, -1)[..., 0] for place in (before, after))
    alone = earlier.max(axis=-1) < 0
    share = np.where(alone, 1.0, (target - low) / np.where(alone, 1.0, high - low))
    found = start + share * (end - start)
    return np.where(reached.any(axis=-1), found, np.inf)


def _first_of(draws: FloatArray) -> Interval | None:
    """The first value with percentiles of the others; None where it is not finite."""
    known = draws[1:][~np.isnan(draws[1:])]
    if not np.isfinite(draws[0]) or not known.size:
        return None
    tail = (1.0 - LEVEL) / 2
    low, high = np.quantile(known, [tail, 1.0 - tail], method="inverted_cdf")
    return Interval(float(draws[0]), float(low), float(high))


def _seen(points: OperatingPoints, outside: FloatArray, cost: str) -> _Seen:
    counts = outside.sum(axis=-1, keepdims=True)
    correct, own, calls, tokens = (
        np.round(outside @ each.T / counts, DIGITS)
        for each in (
            points.correct,
            points.costs[cost],
            points.costs["verifier_calls"],
            points.costs["generated_tokens"],
        )
    )
    return _Seen(correct, own, rank=np.argsort(np.lexsort((tokens, calls, -correct)), axis=-1))


def _inside(folds: IntArray) -> FloatArray:
    """1 where a problem is in a fold [repetition, fold, problem]."""
    return np.asarray(folds[:, None] == np.arange(folds.max() + 1)[:, None], dtype=np.float64)


def _members(points: OperatingPoints, methods: Collection[str]) -> IntArray:
    members = np.flatnonzero(points.names["method"].isin(list(methods)))
    if not len(members):
        raise SchemaError("outcomes: no row of a baseline, expected one for the hull")
    return members


def _best_within(points: OperatingPoints, seen: _Seen, limits: FloatArray) -> _Mixture:
    """The entry of each method [repetition, fold, method, level]: single points."""
    cheap = seen.cost[..., None, :] <= limits[:, None]
    nothing = seen.rank.shape[-1]
    ranks = np.where(cheap, seen.rank[..., None, :], nothing)
    starts = np.searchsorted(points.names["method"], points.methods)
    best = np.minimum.reduceat(ranks, starts, axis=-1)
    ranked = np.argsort(seen.rank, axis=-1)
    ranked = np.concatenate([ranked, np.full((*ranked.shape[:-1], 1), -1)], axis=-1)
    found = np.take_along_axis(ranked[..., None, :], best, axis=-1).swapaxes(-1, -2)
    return _Mixture(found, found, np.zeros(found.shape))


def _hulls_at(seen: _Seen, limits: FloatArray, members: IntArray) -> _Mixture:
    """The entry of the hull of ``members`` [repetition, fold, 1, level]."""
    flat = (part.reshape(-1, part.shape[-1]) for part in seen)
    cells = [_at_cost(_Seen(*each), members, limits) for each in zip(*flat, strict=True)]
    shape = (*seen.rank.shape[:2], 1, len(limits))
    return _Mixture(*(np.stack(part).reshape(shape) for part in zip(*cells, strict=True)))


def _at_cost(seen: _Seen, members: IntArray, limits: FloatArray) -> _Mixture:
    """The mixtures [level] on the hull of ``members`` that cost ``limits``; ``seen`` by point."""
    vertices = _hull(seen, members)
    found = _mixed(vertices, seen.cost[vertices], limits)
    return found._replace(first=np.where(limits < seen.cost[vertices[0]], -1, found.first))


def _hull(seen: _Seen, members: IntArray) -> IntArray:
    """Vertices of the upper concave hull up to its most accurate one, both means rising.

    Andrew's monotone chain (1979); of equal points the one of the better rank.
    """
    order = members[np.lexsort((seen.rank[members], seen.cost[members]))]
    heights = seen.correct[order]
    higher = heights > np.maximum.accumulate(np.append(-1.0, heights))[:-1]
    at = np.stack([seen.cost, seen.correct], axis=-1)
    kept: list[int] = []
    for point in order[higher].tolist():
        while len(kept) > 1 and _left_of(*at[[*kept[-2:], point]]):
            kept.pop()
        kept.append(point)
    return np.asarray(kept)


def _left_of(first: FloatArray, middle: FloatArray, last: FloatArray) -> bool:
    """Whether the way turns left at ``middle`` or goes straight on."""
    (across, up), (width, height) = middle - first, last - first
    return bool(across * height >= up * width)


def _mixed(vertices: IntArray, marks: FloatArray, wanted: Any) -> _Mixture:
    """Mixtures of neighbours whose mark is ``wanted``; beyond the ends of ``marks`` the end."""
    place = np.interp(wanted, marks, np.arange(len(vertices)))
    below, above = (np.asarray(to(place), dtype=np.int64) for to in (np.floor, np.ceil))
    return _Mixture(vertices[below], vertices[above], place - below)


def _held_out(chosen: _Mixture, values: FloatArray, fold_of: IntArray) -> FloatArray:
    """Expected ``values`` [point, problem] of the mixtures chosen for each problem's fold.

    Mixtures are [fold, entrant, level], the result [entrant, level, problem]; NaN on all problems
    where some fold has none.
    """
    first, second, share = (part[fold_of] for part in chosen)
    problems = np.arange(len(fold_of))[:, None, None]
    expected = (1.0 - share) * values[first, problems] + share * values[second, problems]
    none = (chosen.first < 0).any(axis=0)
    return np.moveaxis(np.where(none, np.nan, expected), 0, -1)


def _over_repetitions(chosen: _Mixture, correct: FloatArray, folds: IntArray) -> FloatArray:
    """Accuracy of the mixtures [repetition, entrant, level]; NaN where some fold has none."""
    sums = _inside(folds) @ correct.T
    first, second = (
        np.take_along_axis(sums, part.reshape(*sums.shape[:2], -1), axis=-1).reshape(part.shape)
        for part in (chosen.first, chosen.second)
    )
    expected = (1.0 - chosen.share) * first + chosen.share * second
    none = (chosen.first < 0).any(axis=1)
    return np.where(none, np.nan, expected.sum(axis=1) / folds.shape[1])


def _flat(values: FloatArray) -> FloatArray:
    """[entrant, level, problem] as [row of the table, problem]."""
    return values.reshape(-1, values.shape[-1])


def _intervals(name: str, values: FloatArray, bootstrap: Bootstrap) -> pd.DataFrame:
    """Means over problems of [entrant, level, problem] as columns."""
    rows = _flat(values)
    problems = np.arange(rows.shape[1])
    found = clustered_ratios(list(rows), np.ones(len(problems)), problems, bootstrap=bootstrap)
    return interval_table(name, found)


def _p_value(difference: FloatArray) -> float:
    return np.nan if np.isnan(difference).any() else sign_flip(difference, parts=_PARTS)


def _settings(points: OperatingPoints, chosen: _Mixture, entrants: Sequence[str]) -> list[str]:
    """What is chosen on each fold [row of the table]; a method's own name is left out."""
    own = [f"{one.setting} n={one.n}".strip() for one in points.names.itertuples()]
    whole = [f"{method} {name}" for method, name in zip(points.names["method"], own, strict=True)]
    found = []
    for place, level in np.ndindex(chosen.first.shape[1:]):
        names = whole if entrants[place] in (OURS, HULL) else own
        folds = zip(*(part[:, place, level].tolist() for part in chosen), strict=True)
        found.append(" | ".join(_mixture_name(names, *one) for one in folds))
    return found


def _mixture_name(names: Sequence[str], first: int, second: int, share: float) -> str:
    if first < 0:
        return "none"
    if share == 0.0:
        return names[first]
    return f"{1 - share:.2f} {names[first]} + {share:.2f} {names[second]}"
