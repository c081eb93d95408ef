"""How many calls selective verification needs for the accuracy of scoring every sample.

Knows: the targets, the grid of settings, the comparison. Does not know: logs, how they are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from selverify.audit.answer_groups import AnswerGroups
from selverify.audit.selective import CallPolicy
from selverify.audit.solutions import BEST, WEIGHTED, Subsets, expected_right
from selverify.audit.tuning import (
    ChosenSettings,
    Goal,
    Halving,
    StopSetting,
    choose_settings,
    reach,
)
from selverify.experiment.statistics import (
    Bootstrap,
    FloatArray,
    Interval,
    mean_interval,
    paired_difference,
)
from selverify.search.aggregation import AGGREGATIONS


@dataclass(frozen=True, slots=True)
class SolutionSettings:
    """How samples are audited.

    ``subsets``: random orders of a problem's samples, for votes on some of them. ``exponents``,
    ``weights``, ``orders``: of the policies to choose among; ``thresholds``: rising, where they may
    stop. ``lost``: the share of the problems on which a policy may be wrong where it is chosen,
    and scoring everything right.
    ``repetitions``: how often problems are halved. ``fewest``: problems, 2 or more, below which
    nothing is chosen, and no accuracy shown. ``resamples``: of the intervals.
    """

    subsets: int = 200
    exponents: tuple[float, ...] = (0.25, 0.5, 1.0)
    weights: tuple[float, ...] = (1.0, 4.0)
    orders: tuple[str, ...] = ("shortest", "not refused")
    thresholds: tuple[float, ...] = (
        *(0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85),
        *(1.0, 1.25, 1.5, 2.0, 3.0, np.inf),
    )
    lost: float = 0.0025
    repetitions: int = 5
    fewest: int = 20
    resamples: int = 10_000
    seed: int = 0

    @property
    def bootstrap(self) -> Bootstrap:
        """How intervals are made."""
        return Bootstrap(self.resamples, self.seed)

    @property
    def halving(self) -> Halving:
        """How problems are halved."""
        return Halving(self.repetitions, self.seed)

    def reaching(self, right: FloatArray) -> Goal:
        """To lose little of what ``right``, [problem], has."""
        return reach(right, lost=self.lost)

    def policies(self, aggregation: str) -> tuple[CallPolicy, ...]:
        """The policies to choose among."""
        grid = product(self.exponents, self.weights, self.orders)
        return tuple(CallPolicy(aggregation, *one) for one in grid)


@dataclass(frozen=True, slots=True)
class Savings:
    """Selective verification against scoring every sample with one method and aggregation.

    Each problem is under the setting that halves without it chose; means over the halvings.
    ``open_calls``: what scoring every sample takes without unanimous problems, where no score can
    change the answer. ``difference``: its accuracy less the target's, on the same problems.
    ``settings``: how often each was chosen.
    """

    method: str
    aggregation: str
    target: Interval
    target_calls: float
    open_calls: float
    accuracy: Interval
    difference: Interval
    calls: Interval
    steps: Interval
    settings: Counter[StopSetting]


def savings(found: Sequence[AnswerGroups], *, settings: SolutionSettings) -> Iterator[Savings]:
    """Selective verification to the accuracy of each way to score everything."""
    targets = full_scoring(found, subsets=settings.subsets, seed=settings.seed)
    for aggregation in AGGREGATIONS:
        own = {key: right for key, right in targets.items() if key[1] == aggregation}
        chosen = choose_settings(
            found,
            settings.policies(aggregation),
            settings.thresholds,
            [settings.reaching(right) for right in own.values()],
            halving=settings.halving,
        )
        for (name, right), one in zip(own.items(), chosen, strict=True):
            yield against_full(found, right, one, name=name, bootstrap=settings.bootstrap)


def full_scoring(
    found: Sequence[AnswerGroups], *, subsets: int, seed: int
) -> Mapping[tuple[str, str], FloatArray]:
    """By method and aggregation, [problem]: how right it is with all of a problem's samples."""
    return {
        (method, how): np.array(
            [
                expected_right(method, how, own, Subsets((len(own),), subsets, seed))[0]
                for own in found
            ]
        )
        for method in (BEST, WEIGHTED)
        for how in AGGREGATIONS
    }


def against_full(
    found: Sequence[AnswerGroups],
    right: FloatArray,
    chosen: ChosenSettings,
    *,
    name: tuple[str, str],
    bootstrap: Bootstrap,
) -> Savings:
    """The chosen settings against scoring everything, which is ``right``, [problem]."""
    outcome = chosen.outcome
    calls = np.array([float(own.answered.sum()) for own in found])
    undecided = np.array([not own.unanimous for own in found])
    return Savings(
        *name,
        target=mean_interval(right, bootstrap),
        target_calls=float(calls.mean()),
        open_calls=float((calls * undecided).mean()),
        accuracy=mean_interval(outcome.right, bootstrap),
        difference=paired_difference(outcome.right, right, bootstrap=bootstrap),
        calls=mean_interval(outcome.calls, bootstrap),
        steps=mean_interval(outcome.steps, bootstrap),
        settings=chosen.settings,
    )
