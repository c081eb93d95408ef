"""Settings of selective verification, chosen on half of the problems and scored on the other half.

Knows: policies, thresholds, goals, halves. Does not know: files, how results are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from selverify.audit.answer_groups import AnswerGroups, PaddedAnswers, mean_score, pad_answers
from selverify.audit.selective import CallPolicy, Spent, follow, stop
from selverify.experiment.audits import BoolArray
from selverify.experiment.statistics import DIGITS, FloatArray


class Pick(NamedTuple):
    """The places of a policy and of a threshold, and the margin that they were picked with."""

    policy: int
    threshold: int
    margin: float


Goal = Callable[[FloatArray, FloatArray, BoolArray], Pick]
"""Which policy and threshold: from right and calls, [policy, threshold, problem], thresholds
rising, and which problems may be looked at."""


class StopSetting(NamedTuple):
    """A policy, when it stops, and the margin with which :func:`reach` chose it, else 0."""

    policy: CallPolicy
    threshold: float
    margin: float


@dataclass(frozen=True, slots=True)
class Halving:
    """How often the problems are cut into two random halves, each choosing for the other."""

    repetitions: int
    seed: int

    def halves(self, problems: int) -> Iterator[BoolArray]:
        """[problem], the half that may be looked at, then the other, for each repetition."""
        rng = np.random.default_rng(self.seed)
        for _ in range(self.repetitions):
            first = rng.permutation(problems) < problems // 2
            yield first
            yield ~first


class ChosenSettings(NamedTuple):
    """Means over repetitions, [problem], and how often each setting was chosen."""

    outcome: Spent
    settings: Counter[StopSetting]


def reach(target: FloatArray, *, margins: Sequence[float], halving: Halving) -> Goal:
    """The fewest calls that make a policy as accurate as ``target``, [problem], on other problems.

    Of many settings the luckiest is no better on other problems than the rest: so it has to beat
    the target by a margin, and a threshold counts only if every larger one does too. Where none
    does: the nearest to it. Which of ``margins``, rising, is found among the problems that may be
    looked at: the smallest one whose pick on a part of them reaches the target on the rest, over
    ``halving``; where none does, the one whose picks come nearest.
    """

    def goal(right: FloatArray, calls: FloatArray, known: BoolArray) -> Pick:
        margin = margins[0]
        if len(margins) > 1 and known.sum() > 1:
            # What is on the other problems must not reach the choice, not even by their number.
            seen = right[:, :, known], calls[:, :, known], target[known]
            gaps = _gaps(*seen, margins, halving)
            # The first that is at least 0, else the first of the largest.
            margin = margins[int(np.argmax(gaps >= min(0.0, float(gaps.max()))))]
        ((policy, threshold),) = _reaching(right, calls, target, known, (margin,))
        return Pick(policy, threshold, margin)

    return goal


def choose_settings(
    found: Sequence[AnswerGroups],
    policies: Sequence[CallPolicy],
    thresholds: Sequence[float],
    goals: Sequence[Goal],
    *,
    halving: Halving,
) -> tuple[ChosenSettings, ...]:
    """For each goal, every problem under the setting that the half without it chooses.

    What a policy expects of unknown scores is learned on the choosing half too. ``thresholds``
    rise. Every sample that answers has a score in [0, 1].
    """
    padded = {
        (how, order): pad_answers(found, aggregation=how, order=order)
        for how, order in dict.fromkeys((one.aggregation, one.order) for one in policies)
    }
    totals = np.zeros((len(goals), 3, len(found)))
    counted: tuple[Counter[StopSetting], ...] = tuple(Counter() for _ in goals)
    for known in halving.halves(len(found)):
        outcomes = _outcomes(padded, policies, thresholds, known)
        for place, goal in enumerate(goals):
            policy, threshold, margin = goal(outcomes[0], outcomes[1], known)
            counted[place][StopSetting(policies[policy], thresholds[threshold], margin)] += 1
            totals[place][:, ~known] += outcomes[:, policy, threshold, ~known]
    means = totals / halving.repetitions
    return tuple(ChosenSettings(Spent(*one), own) for one, own in zip(means, counted, strict=True))


def _gaps(
    right: FloatArray,
    calls: FloatArray,
    target: FloatArray,
    margins: Sequence[float],
    halving: Halving,
) -> FloatArray:
    """[margin], how much more accurate than the target its picks are where they were not made."""
    found = np.zeros(len(margins))
    for part in halving.halves(len(target)):
        picks = _reaching(right, calls, target, part, margins)
        found += [(right[pick][~part] - target[~part]).mean() for pick in picks]
    return np.asarray(np.round(found / (2 * halving.repetitions), DIGITS))


def _reaching(
    right: FloatArray,
    calls: FloatArray,
    target: FloatArray,
    known: BoolArray,
    margins: Sequence[float],
) -> list[tuple[int, int]]:
    """For each margin the cheapest place that lasts above the target by it, else the nearest."""
    cost, accuracy = _mean(calls[:, :, known]), _mean(right[:, :, known])
    lasting = np.minimum.accumulate(accuracy[:, ::-1], axis=1)[:, ::-1]
    most, aim = float(lasting.max()), float(target[known].mean())
    wanted = [min(float(np.round(aim + margin, DIGITS)), most) for margin in margins]
    return [_cheapest(np.where(lasting >= one, cost, np.inf)) for one in wanted]


def _outcomes(
    padded: Mapping[tuple[str, str], PaddedAnswers],
    policies: Sequence[CallPolicy],
    thresholds: Sequence[float],
    known: BoolArray,
) -> FloatArray:
    """[right, calls and steps][policy][threshold][problem]."""
    found = np.empty((3, len(policies), len(thresholds), len(known)))
    for place, policy in enumerate(policies):
        own = padded[policy.aggregation, policy.order]
        course = follow(own, policy, mean_score(own, train=known))
        found[:, place] = np.stack([np.stack(stop(course, one)) for one in thresholds], axis=1)
    return found


def _mean(values: FloatArray) -> FloatArray:
    return np.asarray(np.round(values.mean(axis=-1), DIGITS))


def _cheapest(cost: FloatArray) -> tuple[int, int]:
    """Policy and threshold of the lowest cost, ties to the first."""
    policy, threshold = np.unravel_index(int(np.argmin(cost)), cost.shape)
    return int(policy), int(threshold)
