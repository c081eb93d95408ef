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
    """The places of a policy and of a threshold."""

    policy: int
    threshold: int


Goal = Callable[[FloatArray, FloatArray, BoolArray], Pick]
"""Which policy and threshold: from right and calls, [policy, threshold, problem], thresholds
rising, and which problems may be looked at."""


class StopSetting(NamedTuple):
    """A policy, and when it stops."""

    policy: CallPolicy
    threshold: float


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


def reach(target: FloatArray, *, lost: float) -> Goal:
    """The fewest calls that lose at most the share ``lost`` of what ``target``, [problem], has.

    What a setting wins where the target is wrong counts for nothing. A comparison of accuracies
    lets such luck pay for losses, and the cheapest of many settings owes its place to it: on other
    problems it is worse than the target. Where every setting loses more: the least, for the fewest
    calls.
    """

    def goal(right: FloatArray, calls: FloatArray, known: BoolArray) -> Pick:
        losses = _mean(np.maximum(target[known] - right[:, :, known], 0.0))
        cost = np.where(losses <= max(lost, float(losses.min())), _mean(calls[:, :, known]), np.inf)
        policy, threshold = np.unravel_index(int(np.argmin(cost)), cost.shape)
        return Pick(int(policy), int(threshold))

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
            policy, threshold = goal(outcomes[0], outcomes[1], known)
            counted[place][StopSetting(policies[policy], thresholds[threshold])] += 1
            totals[place][:, ~known] += outcomes[:, policy, threshold, ~known]
    means = totals / halving.repetitions
    return tuple(ChosenSettings(Spent(*one), own) for one, own in zip(means, counted, strict=True))


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
