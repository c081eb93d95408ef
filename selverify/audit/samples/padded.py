"""The answers of many problems as padded arrays, and what to expect of unknown scores.

Knows: pools, free features, a logistic model. Does not know: calls, policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

from selverify.audit.lines import shown
from selverify.audit.samples.answer_groups import Pool
from selverify.errors import SchemaError
from selverify.experiment.statistics import FloatArray, IntArray

ORDERS: Mapping[str, Callable[[Pool], FloatArray]] = MappingProxyType(
    {
        "recorded": lambda pool: np.arange(len(pool), dtype=np.float64),
        "shortest": lambda pool: pool.length,
        "not refused": lambda pool: pool.refused.astype(np.float64),
    }
)
"""Which sample of an answer is scored first: the lowest, ties in recorded order."""
MEAN, FREE_FEATURES = PRIORS = ("mean", "free features")
"""What unknown scores are expected to be: the training mean, or a logistic model of an answer's
log share of the samples, relative length and share of refused samples."""
EDGE = 1e-9
"""A mean score nearer to 0 or 1 leaves nothing for a model to learn."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerArrays:
    """The answers of many problems, padded to the most that a problem has.

    Attributes:
        size: [problem, answer], samples that give it; 0 where a problem has no such answer.
        right: [problem, answer], the share of them that is right.
        total: [problem, answer], the sum of their scores.
        features: [problem, answer, feature], what is known of the answer without a call.
        first: [problem, answer], where in the next two its samples begin.
        scores, steps: [sample], of all problems together; the samples of an answer stand one after
            another, in the order in which they would be scored.
    """

    size: FloatArray
    right: FloatArray
    total: FloatArray
    features: FloatArray
    first: IntArray
    scores: FloatArray
    steps: FloatArray


def stack(pools: Sequence[Pool], *, aggregation: str, order: str) -> AnswerArrays:
    """The pools' answers; samples without one are not there.

    Raises:
        SchemaError: a sample that answers has no score, or one outside [0, 1].
    """
    for pool in pools:
        known = pool.scores[aggregation][pool.answered]
        if not np.all((known >= 0.0) & (known <= 1.0)):
            raise SchemaError(
                f"problem {shown(pool.problem_id)}: expected a score in [0, 1] for every sample "
                f"that answers, found some missing or outside"
            )
    groups = [_groups(pool, ORDERS[order](pool)) for pool in pools]
    shape = (len(pools), max([1, *(len(own) for own in groups)]))
    size, right, total = np.zeros((3, *shape))
    first, features = np.zeros(shape, dtype=np.int64), np.zeros((*shape, 3))
    scores, steps = [np.zeros(0)], [np.zeros(0)]
    begin = 0
    for row, (pool, own) in enumerate(zip(pools, groups, strict=True)):
        for column, members in enumerate(own):
            place = (row, column)
            size[place], first[place] = len(members), begin
            right[place] = pool.correct[members].mean()
            features[place] = _features(pool, members)
            scores.append(pool.scores[aggregation][members])
            total[place] = scores[-1].sum()
            steps.append(pool.steps[members])
            begin += len(members)
    return AnswerArrays(
        size, right, total, features, first, np.concatenate(scores), np.concatenate(steps)
    )


def prior(own: AnswerArrays, kind: str, *, train: npt.ArrayLike) -> FloatArray:
    """[problem, answer], the expected score of a sample, learned on the problems of ``train``."""
    known = (own.size > 0) & np.asarray(train)[:, None]
    if not known.any():
        raise SchemaError("prior: no training problem has an answer, expected one")
    size, total = own.size[known], own.total[known]
    mean = float(total.sum() / size.sum())
    if kind == MEAN or min(mean, 1.0 - mean) < EDGE:
        return np.full(own.size.shape, mean)
    rows = own.features[known]
    targets = np.repeat([1.0, 0.0], len(rows))
    # A share of size is a success as often as its mean score says: logistic regression on shares.
    model = LogisticRegression().fit(
        np.concatenate([rows, rows]), targets, sample_weight=np.concatenate([total, size - total])
    )
    flat = own.features.reshape(-1, own.features.shape[-1])
    return np.asarray(model.predict_proba(flat)[:, 1]).reshape(own.size.shape)


def _groups(pool: Pool, keys: FloatArray) -> list[IntArray]:
    order = np.lexsort((keys, pool.answers))  # stable: ties of both stay in recorded order
    order = order[pool.answered[order]]
    ends = np.flatnonzero(np.diff(pool.answers[order])) + 1
    return np.split(order, ends) if len(order) else []


def _features(pool: Pool, members: IntArray) -> tuple[float, float, float]:
    """Log share of the answering samples, log of relative length, share of refused samples."""
    typical = max(float(np.median(pool.length[pool.answered])), 1.0)
    share = len(members) / int(pool.answered.sum())
    relative = np.log(np.maximum(pool.length[members], 1.0) / typical)
    return float(np.log(share)), float(relative.mean()), float(pool.refused[members].mean())
