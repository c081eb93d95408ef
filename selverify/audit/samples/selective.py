"""Which recorded solutions are worth a verifier call, and when the answer is settled.

Knows: arrays of answers, scores in [0, 1]. Does not know: files, how results are shown, how a
setting is chosen (``choice`` does).

The samples of a problem give answers k of c_k samples each. With m_k of them scored, an answer is
worth v_k = c_k^exponent * (expected mean score of its samples), where the scores that are not known
are expected to be (sum of the known ones + weight * prior_k) / (m_k + weight). With everything
scored and an exponent of 1 that is best-of-N weighted; with nothing scored and equal priors above
0 it is the majority. The next call goes to the less certain of the leader and its closest rival
(LUCB, Kalyanakrishnan et al. 2012), with the standard error s_k = c_k^exponent * (1 - m_k / c_k) /
sqrt(m_k + weight) up to a factor. A policy stops when the leader's distance to every rival, over
the sum of their standard errors, reaches a threshold; the distance is infinite once no score that
is still unknown could change the leader, since a score lies in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from selverify.audit.samples.answer_groups import BoolArray
from selverify.audit.samples.padded import ORDERS, PRIORS, AnswerArrays
from selverify.audit.samples.solutions import leading
from selverify.errors import ParamsError
from selverify.experiment.statistics import FloatArray, IntArray
from selverify.search.best_of_n import AGGREGATIONS

SLACK = 1e-9
"""Sums of scores that differ by less are equal, whatever their order."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How calls are spent; see the module's text.

    Raises:
        ParamsError: a name that is not known, or numbers out of range.
    """

    aggregation: str
    exponent: float
    weight: float
    order: str
    prior: str

    def __post_init__(self) -> None:
        names = (self.aggregation, AGGREGATIONS), (self.order, ORDERS), (self.prior, PRIORS)
        for given, known in names:
            if given not in known:
                raise ParamsError(f"policy: given {given!r}, expected one of {', '.join(known)}")
        if self.exponent < 0.0 or self.weight <= 0.0:
            raise ParamsError(
                f"policy: given exponent {self.exponent} and weight {self.weight}, expected at "
                f"least 0 and more than 0"
            )


class Trace(NamedTuple):
    """After t calls, [problem, t]: how sure the leader is, whether it is right, step scores."""

    sure: FloatArray
    right: FloatArray
    steps: FloatArray


class Stopped(NamedTuple):
    """What a policy that stops comes to, [problem]: right, verifier calls, step scores."""

    right: FloatArray
    calls: FloatArray
    steps: FloatArray


def trace(own: AnswerArrays, policy: Policy, expected: FloatArray) -> Trace:
    """The whole course of a policy on every problem, to the last sample.

    Args:
        expected: [problem, answer], as :func:`prior` gives.
    """
    calls = int(own.size.sum(axis=1).max())
    found = Trace(*np.zeros((3, len(own.size), calls + 1)))
    state = _State(np.zeros_like(own.size), np.zeros(own.size.shape, dtype=np.int64))
    spent, going = np.zeros(len(own.size)), np.arange(len(own.size))
    for call in range(calls + 1):
        now = _judge(own, policy, expected, state, going)
        # What a course ends with stands to its end; later calls of those that go on overwrite it.
        for values, new in zip(found, (now.sure, now.right, spent[going]), strict=True):
            values[going, call:] = new[:, None]
        still = np.isfinite(now.sure)
        if not still.any():
            break
        going = going[still]
        place = (going, now.next[still])
        drawn = own.first[place] + state.scored[place]
        state.total[place] += own.scores[drawn]
        spent[going] += own.steps[drawn]
        state.scored[place] += 1
    return found


def stop(course: Trace, threshold: float) -> Stopped:
    """Each problem ends at the first call after which the leader is sure enough."""
    calls = np.argmax(course.sure >= threshold, axis=1)
    rows = np.arange(len(calls))
    return Stopped(course.right[rows, calls], calls.astype(np.float64), course.steps[rows, calls])


class _State(NamedTuple):
    """Of each answer the sum of the known scores, and how many they are."""

    total: FloatArray
    scored: IntArray


class _Judged(NamedTuple):
    sure: FloatArray
    right: FloatArray
    next: IntArray


def _judge(
    own: AnswerArrays, policy: Policy, expected: FloatArray, state: _State, rows: IntArray
) -> _Judged:
    """Who leads, how surely, and which answer's next sample would be scored, for ``rows``."""
    sizes, total, scored = own.size[rows], state.total[rows], state.scored[rows]
    there, size, left = sizes > 0, np.maximum(sizes, 1.0), sizes - scored
    scale = size**policy.exponent / size
    mean = (total + policy.weight * expected[rows]) / (scored + policy.weight)
    worth = np.where(there, scale * (total + left * mean), -np.inf)
    error = scale * left / np.sqrt(scored + policy.weight)
    leader = np.argmax(worth, axis=1)[:, None]
    rival = there & (np.arange(there.shape[1]) != leader)
    distance = _distance(worth, error, leader, rival)
    closest = np.argmin(distance, axis=1)[:, None]
    highest = np.where(rival, scale * (total + left), -np.inf).max(axis=1)
    settled = ~there.any(axis=1) | (_at(scale * total, leader) > highest + SLACK)
    return _Judged(
        np.where(settled, np.inf, _at(distance, closest)),
        np.where(there.any(axis=1), leading(worth, own.right[rows]), 0.0),
        np.where(_at(error, leader) >= _at(error, closest), leader[:, 0], closest[:, 0]),
    )


def _distance(
    worth: FloatArray, error: FloatArray, leader: IntArray, rival: BoolArray
) -> FloatArray:
    """From the leader to each rival in their standard errors; infinite where both are known."""
    both = error + _at(error, leader)[:, None]
    gap = _at(worth, leader)[:, None] - np.where(rival, worth, 0.0)
    open_still = rival & (both > 0.0)
    return np.divide(gap, both, out=np.full_like(gap, np.inf), where=open_still)


def _at(values: FloatArray, place: IntArray) -> FloatArray:
    """[problem], the value at each problem's ``place`` [problem, 1]."""
    return np.asarray(values[np.arange(len(values)), place[:, 0]])
