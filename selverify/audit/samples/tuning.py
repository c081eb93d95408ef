"""Settings of selective verification, chosen on half of the problems and scored on the other half.

Knows: policies, thresholds, goals, halves. Does not know: files, how results are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from selverify.audit.samples.answer_groups import BoolArray, Pool
from selverify.audit.samples.padded import AnswerArrays, prior, stack
from selverify.audit.samples.selective import Policy, Stopped, stop, trace
from selverify.errors import ParamsError
from selverify.experiment.statistics import DIGITS, FloatArray


class Pick(NamedTuple):
    """The places of a policy and of a threshold, and the margin that they were picked with."""

    policy: int
    threshold: int
    margin: float


Goal = Callable[[FloatArray, FloatArray, BoolArray], Pick]
"""Which policy and threshold: from right and calls, [policy, threshold, problem], thresholds
rising, and which problems may be looked at."""


class Setting(NamedTuple):
    """A policy, when it stops, and the margin with which :func:`reach` chose it, else 0."""

    policy: Policy
    threshold: float
    margin: float


@dataclass(frozen=True, slots=True)
class Halving:
    """How often the problems are cut into two random halves, each choosing for the other."""

    repetitions: int
    seed: int


class Chosen(NamedTuple):
    """Means over repetitions, [problem], and how often each setting was chosen."""

    outcome: Stopped
    settings: Counter[Setting]


def reach(target: FloatArray, *, margins: Sequence[float], halving: Halving) -> Goal:
    """The fewest calls that make a policy as accurate as ``target``, [problem], on other problems.

    Of many settings the luckiest is no better on other problems than the rest: so it has to beat
    the target by a margin, and a threshold counts only if every larger one does too. Where none
    does: the nearest to it. Which of ``margins``, rising, is found among the problems that may be
    looked at: the smallest one whose pick on a part of them reaches the target on the rest, over
    ``halving``; where none does, the one whose picks come nearest.

    Raises:
        ParamsError: margins that do not rise, or none.
    """
    if not margins or list(margins) != sorted(set(margins)):
        raise ParamsError(f"margins: given {tuple(margins)}, expected some that rise")

    def goal(right: FloatArray, calls: FloatArray, known: BoolArray) -> Pick:
        margin = margins[0]
        if len(margins) > 1 and known.sum() > 1:
            # What is on the other problems must not reach the choice, not even by their number.
            seen = right[:, :, known], calls[:, :, known], target[known]
            margin = margins[_lasting(_gaps(*seen, margins, halving))]
        ((policy, threshold),) = _reaching(right, calls, target, known, (margin,))
        return Pick(policy, threshold, margin)

    return goal


def _lasting(gaps: FloatArray) -> int:
    """The first that is at least 0, else the first of the largest."""
    return int(np.argmax(gaps >= min(0.0, float(gaps.max()))))


def _gaps(
    right: FloatArray,
    calls: FloatArray,
    target: FloatArray,
    margins: Sequence[float],
    halving: Halving,
) -> FloatArray:
    """[margin], how much more accurate than the target its picks are where they were not made."""
    found = np.zeros(len(margins))
    for part in _halves(len(target), halving):
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
    return [_place(np.where(lasting >= one, cost, np.inf)) for one in wanted]


def spend(most: float) -> Goal:
    """The most accurate among the settings that make at most ``most`` calls a problem on average.

    Equally accurate: the fewest calls. Where none does: the fewest calls.
    """

    def goal(right: FloatArray, calls: FloatArray, known: BoolArray) -> Pick:
        cost, accuracy = _mean(calls[:, :, known]), _mean(right[:, :, known])
        affordable = cost <= max(most, float(cost.min()))
        accuracy = np.where(affordable, accuracy, -np.inf)
        return Pick(*_place(np.where(accuracy == accuracy.max(), cost, np.inf)), margin=0.0)

    return goal


def choose(
    pools: Sequence[Pool],
    policies: Sequence[Policy],
    thresholds: Sequence[float],
    goals: Sequence[Goal],
    *,
    halving: Halving,
) -> tuple[Chosen, ...]:
    """For each goal, every problem under the setting that the half without it chooses.

    What a policy expects of unknown scores is learned on the choosing half too.

    Raises:
        ParamsError: no policy, thresholds that do not rise, no repetition, or one problem.
        SchemaError: scores that selection cannot use.
    """
    if not policies or not thresholds or list(thresholds) != sorted(set(thresholds)):
        raise ParamsError(
            f"given {len(policies)} policies and the thresholds {tuple(thresholds)}, expected some "
            f"policies and rising thresholds"
        )
    if halving.repetitions < 1 or len(pools) < 2:
        raise ParamsError(
            f"given {halving.repetitions} repetitions and {len(pools)} problems, expected 1 or "
            f"more, and 2 or more to choose on some and score on others"
        )
    stacks = _stacks(pools, policies)
    totals = np.zeros((len(goals), 3, len(pools)))
    counted: tuple[Counter[Setting], ...] = tuple(Counter() for _ in goals)
    for known in _halves(len(pools), halving):
        outcomes = _outcomes(stacks, policies, thresholds, known)
        for place, goal in enumerate(goals):
            policy, threshold, margin = goal(outcomes[0], outcomes[1], known)
            counted[place][Setting(policies[policy], thresholds[threshold], margin)] += 1
            totals[place][:, ~known] += outcomes[:, policy, threshold, ~known]
    means = totals / halving.repetitions
    return tuple(Chosen(Stopped(*one), own) for one, own in zip(means, counted, strict=True))


def run(pools: Sequence[Pool], policy: Policy, *, threshold: float) -> Stopped:
    """One setting on every problem; what it expects of unknown scores is their mean over these.

    For settings whose outcome does not depend on that: those that stop when nothing is open.
    """
    (own,) = _stacks(pools, [policy]).values()
    everything = np.ones(len(pools), dtype=np.bool_)
    return stop(trace(own, policy, prior(own, policy.prior, train=everything)), threshold)


def _halves(problems: int, halving: Halving) -> Iterator[BoolArray]:
    """The half that may be looked at, then the other, for each repetition."""
    rng = np.random.default_rng(halving.seed)
    for _ in range(halving.repetitions):
        first = rng.permutation(problems) < problems // 2
        yield first
        yield ~first


def _stacks(
    pools: Sequence[Pool], policies: Sequence[Policy]
) -> dict[tuple[str, str], AnswerArrays]:
    keys = dict.fromkeys((one.aggregation, one.order) for one in policies)
    return {(how, order): stack(pools, aggregation=how, order=order) for how, order in keys}


def _outcomes(
    stacks: Mapping[tuple[str, str], AnswerArrays],
    policies: Sequence[Policy],
    thresholds: Sequence[float],
    known: BoolArray,
) -> FloatArray:
    """[right, calls and steps][policy][threshold][problem]."""
    found = np.empty((3, len(policies), len(thresholds), len(known)))
    for place, policy in enumerate(policies):
        own = stacks[policy.aggregation, policy.order]
        course = trace(own, policy, prior(own, policy.prior, train=known))
        found[:, place] = np.stack([np.stack(stop(course, one)) for one in thresholds], axis=1)
    return found


def _mean(values: FloatArray) -> FloatArray:
    return np.asarray(np.round(values.mean(axis=-1), DIGITS))


def _place(cost: FloatArray) -> tuple[int, int]:
    """Policy and threshold of the lowest cost, ties to the first."""
    policy, threshold = np.unravel_index(int(np.argmin(cost)), cost.shape)
    return int(policy), int(threshold)
