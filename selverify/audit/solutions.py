"""What N recorded solutions of a problem, one chosen or all voting, would have answered.

Knows: the recorded samples of a problem. Does not know: files, which samples are worth a verifier
call (``selective`` does), how results are shown.

N of a problem's n recorded samples are a random subset. pass@N and best-of-N have an exact
expectation over it, and so has everything at N = 1 and N = n. Votes between have not: they are
means over random orders of the samples, whose first N are the subset, so that subsets are nested.
A sample without step scores takes no part in what needs them; one without an answer is never
chosen and costs no call.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from selverify.audit.answer_groups import AnswerGroups, usable
from selverify.experiment.audits import BoolArray
from selverify.experiment.statistics import DIGITS, FloatArray, IntArray, pass_at_k
from selverify.search.aggregation import AGGREGATIONS

PASS, MAJORITY, BEST, WEIGHTED = "pass@N", "majority", "best-of-N", "weighted vote"


class AccuracyCurve(NamedTuple):
    """A method's expected accuracy, verifier calls and step scores, [problem, budget].

    ``aggregation`` is empty for a method that needs no scores. A problem with fewer usable samples
    than the budget has NaN there.
    """

    method: str
    aggregation: str
    budgets: tuple[int, ...]
    right: FloatArray
    calls: FloatArray
    steps: FloatArray


class Subsets(NamedTuple):
    """Which sizes of subsets, and how many random orders they come from."""

    budgets: tuple[int, ...]
    number: int
    seed: int


def accuracy_curves(found: Sequence[AnswerGroups], how: Subsets) -> tuple[AccuracyCurve, ...]:
    """Every method at every budget: pass@N and majority, and what needs scores where some are.

    No product of scores outside [0, 1], and no vote with negative weights. The random orders of a
    problem's samples derive from the seed and the problem's name.
    """
    rows = [_curve(PASS, "", found, how), _curve(MAJORITY, "", found, how)]
    if any(one.scored.any() for one in found):
        with_scores = [usable(one) for one in found]
        scores = {
            name: np.concatenate([one.scores[name][one.scored] for one in found])
            for name in AGGREGATIONS
        }
        known = [name for name in AGGREGATIONS if not np.isnan(scores[name]).any()]
        votes = [name for name in known if (scores[name] >= 0.0).all()]
        for method, names in ((BEST, known), (WEIGHTED, votes)):
            rows += [_curve(method, name, with_scores, how) for name in names]
    return tuple(rows)


def expected_right(method: str, aggregation: str, own: AnswerGroups, how: Subsets) -> FloatArray:
    """[budget], the chance that a method answers the problem rightly."""
    if method == PASS:
        return passing(own, how)
    if method == BEST:
        return best_of(own, aggregation, how)
    return voted(own, np.ones(len(own)) if method == MAJORITY else own.scores[aggregation], how)


def passing(own: AnswerGroups, how: Subsets) -> FloatArray:
    """[budget], the chance that one of N samples is right; unbiased (Chen et al. 2021)."""
    right = int((own.correct * own.answered).sum())
    return pass_at_k(right, samples=len(own), k=how.budgets)


def best_of(own: AnswerGroups, aggregation: str, how: Subsets) -> FloatArray:
    """[budget], the chance that the best-scored of N samples is right; equal scores share it.

    Exact: with F(s) the chance that no drawn sample scores above s, the best one scores s with
    chance F(s) less F of the next lower score. Of n samples m do not score above s, so that F(s) is
    C(m, N) / C(n, N), the product of (j - N) / j over m < j <= n.
    """
    scores = np.where(own.answered, own.scores[aggregation], -np.inf)
    _, place = np.unique(scores, return_inverse=True)
    right = np.bincount(place, weights=own.correct * own.answered) / np.bincount(place)
    above = len(scores) - np.cumsum(np.bincount(place))
    left = np.arange(len(scores), 0, -1)[:, None]
    factors = np.maximum(left - np.array(how.budgets), 0) / left
    reached = np.concatenate([np.ones((1, len(how.budgets))), np.cumprod(factors, axis=0)])[above]
    return right @ np.diff(reached, axis=0, prepend=0.0)


def voted(own: AnswerGroups, weights: FloatArray, how: Subsets) -> FloatArray:
    """[budget], the chance that the answer of the largest summed weight is right.

    Equal sums share it, as do the samples of an answer whose correctness differs.
    """
    heavy = np.where(own.answered, weights, 0.0)
    which = np.where(own.answered, own.answers, own.answers.max() + 1)  # none counts as the last
    counts = np.bincount(which, minlength=which.max() + 1)
    share = np.bincount(which, weights=own.correct * own.answered) / np.maximum(counts, 1)
    given = _Ballots(which, own.answered, heavy, share)
    rng = np.random.default_rng([how.seed, zlib.crc32(own.problem_id.encode())])
    orders = rng.permuted(np.tile(np.arange(len(own)), (how.number, 1)), axis=1)
    return np.array(
        [
            float(share[which].sum() / len(own))  # a single sample, whatever its weight
            if size == 1
            else _vote(orders[: 1 if size == len(own) else None, :size], given)
            for size in how.budgets
        ]
    )


def leading(totals: FloatArray, share: FloatArray) -> FloatArray:
    """[...], mean of ``share`` over the answers (last axis) whose total is the largest."""
    rounded = np.round(totals, DIGITS)
    ahead = rounded == rounded.max(axis=-1, keepdims=True)
    return np.asarray((ahead * share).sum(axis=-1) / ahead.sum(axis=-1))


class _Ballots(NamedTuple):
    """Which answer each sample gives, whether it gives one, what it weighs; and how right each
    answer is, [answer]."""

    which: IntArray
    answered: BoolArray
    weights: FloatArray
    share: FloatArray


def _vote(orders: IntArray, given: _Ballots) -> float:
    """Mean over ``orders``, [order, sample]; all of them at once, by numbering answers through."""
    drawn = orders[given.answered[orders].any(axis=1)]
    if not len(drawn):
        return 0.0
    answers = len(given.share)
    place = (given.which[drawn] + answers * np.arange(len(drawn))[:, None]).ravel()
    cells = len(drawn) * answers
    votes = np.bincount(place, weights=given.answered[drawn].ravel(), minlength=cells)
    totals = np.bincount(place, weights=given.weights[drawn].ravel(), minlength=cells)
    found = leading(np.where(votes > 0, totals, -np.inf).reshape(len(drawn), answers), given.share)
    return float(found.sum() / len(orders))


def _curve(
    method: str, aggregation: str, found: Sequence[AnswerGroups], how: Subsets
) -> AccuracyCurve:
    """The method on every problem; NaN at a budget above the number of its samples."""
    shape = (len(found), len(how.budgets))
    right, calls, steps = (np.full(shape, np.nan) for _ in range(3))
    for row, own in enumerate(found):
        within = [place for place, size in enumerate(how.budgets) if size <= len(own)]
        if not within:
            continue
        sizes = tuple(how.budgets[place] for place in within)
        right[row, within] = expected_right(method, aggregation, own, how._replace(budgets=sizes))
        made = np.array(sizes) * (method in (BEST, WEIGHTED))
        calls[row, within] = made * own.answered.mean()
        steps[row, within] = made * (own.answered * own.steps).mean()
    return AccuracyCurve(method, aggregation, how.budgets, right, calls, steps)
