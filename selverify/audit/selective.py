"""Which recorded solutions are worth a verifier call, and when the answer is settled.

Knows: arrays of answers, scores in [0, 1]. Does not know: files, how results are shown, how a
setting is chosen (``tuning`` does).

The samples of a problem give answers k of c_k samples each. With m_k of them scored, an answer is
worth v_k = c_k^exponent * (expected mean score of its samples), where the scores that are unknown
are expected to be (sum of the known ones + weight * prior) / (m_k + weight). With everything
scored and an exponent of 1 that is best-of-N weighted; with nothing scored and a prior above 0 it
is the majority. The prior is the mean score of other problems; a logistic model of an answer's
frequency, length and refused steps in its place made more calls without a clear gain. The next
call goes to the less certain of the leader and its closest rival (LUCB, Kalyanakrishnan et al.
2012), with the standard error s_k = c_k^exponent * (1 - m_k / c_k) / sqrt(m_k + weight) up to a
factor. A policy stops when the leader's distance to every rival, over the sum of their standard
errors, reaches a threshold; the distance is infinite once no score that is still unknown could
change the leader, since a score lies in [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selverify.audit.answer_groups import PaddedAnswers
from selverify.audit.solutions import leading
from selverify.experiment.audits import BoolArray
from selverify.experiment.statistics import FloatArray, IntArray

SLACK = 1e-9
"""Sums of scores that differ by less are equal, whatever their order."""


class CallPolicy(NamedTuple):
    """How calls are spent; see the module's text. ``order``: of an answer's samples."""

    aggregation: str
    exponent: float
    weight: float
    order: str


class Course(NamedTuple):
    """After t calls, [problem, t]: how sure the leader is, whether it is right, step scores."""

    sure: FloatArray
    right: FloatArray
    steps: FloatArray


class Spent(NamedTuple):
    """What a policy that stops comes to, [problem]: right, verifier calls, step scores."""

    right: FloatArray
    calls: FloatArray
    steps: FloatArray


def follow(own: PaddedAnswers, policy: CallPolicy, prior: float) -> Course:
    """The whole course of a policy on every problem, to the last sample."""
    calls = int(own.size.sum(axis=1).max())
    found = Course(*np.zeros((3, len(own.size), calls + 1)))
    state = _State(np.zeros_like(own.size), np.zeros(own.size.shape, dtype=np.int64))
    spent, going = np.zeros(len(own.size)), np.arange(len(own.size))
    for call in range(calls + 1):
        now = _judge(own, policy, prior, state, going)
        # A course keeps its last values to the end; later calls of those that go on overwrite them.
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


def stop(course: Course, threshold: float) -> Spent:
    """Each problem ends at the first call after which the leader is sure enough."""
    calls = np.argmax(course.sure >= threshold, axis=1)
    rows = np.arange(len(calls))
    return Spent(course.right[rows, calls], calls.astype(np.float64), course.steps[rows, calls])


class _State(NamedTuple):
    """Of each answer the sum of the known scores, and how many they are."""

    total: FloatArray
    scored: IntArray


class _Judged(NamedTuple):
    sure: FloatArray
    right: FloatArray
    next: IntArray


def _judge(
    own: PaddedAnswers, policy: CallPolicy, prior: float, state: _State, rows: IntArray
) -> _Judged:
    """Who leads, how surely, and which answer's next sample would be scored, for ``rows``."""
    sizes, total, scored = own.size[rows], state.total[rows], state.scored[rows]
    there, size, left = sizes > 0, np.maximum(sizes, 1.0), sizes - scored
    scale = size**policy.exponent / size
    mean = (total + policy.weight * prior) / (scored + policy.weight)
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
