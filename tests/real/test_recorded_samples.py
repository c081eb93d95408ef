"""Recorded solutions with step scores: the reference values, and what selection needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import recorded_llama_runs
import recorded_pools
import recorded_samples
from recorded_llama_runs import Run

from selverify.audit.answer_groups import sample_coverage
from selverify.audit.savings import SolutionSettings
from selverify.audit.solutions import BEST, WEIGHTED
from selverify.audit.tuning import choose_settings
from selverify.data.equivalence import CORRECT
from selverify.search.aggregation import AGGREGATIONS

FEW = replace(SolutionSettings(), orders=("recorded",), weights=(4.0,), repetitions=2)
ANSWERS_GRADED = 80
EVERY = 10


@pytest.fixture(scope="module")
def runs() -> tuple[Run, ...]:
    """The recorded runs of Llama."""
    return recorded_llama_runs.runs(gated=False)


def test_everything_is_recorded() -> None:
    """500 problems, 32 samples each, a score for every step; four samples give no answer."""
    held = sample_coverage(recorded_samples.ungated())
    assert (held.problems, held.fewest, held.most, held.unscored) == (500, 32, 32, 0)
    assert held.unanswered == 4


def test_the_reference_values_are_reproduced_within_half_a_point() -> None:
    """Best-of-32 by the last score only with ties to the first recorded, as the reference has."""
    ours = {label: (reference, value) for label, reference, value in recorded_samples.reproduced()}
    at_random = ours.pop("best-of-N, last, N = 32")
    assert all(abs(reference - value) < 0.005 for reference, value in ours.values())
    assert len(ours) == 6
    assert at_random[1] > at_random[0]


def test_stopping_when_nothing_can_change_gives_the_weighted_vote_for_a_quarter_of_its_calls() -> (
    None
):
    """On every problem the same answer, though far fewer solutions are scored."""
    found = recorded_samples.ungated()
    stopped = recorded_samples.until_settled(found, "prod")
    everything = recorded_samples.all_scored(found)[WEIGHTED, "prod"]
    assert np.allclose(stopped.right, everything)
    assert stopped.calls.mean() < 32 / 4


def test_a_quarter_of_the_calls_comes_within_half_a_point_of_best_of_32() -> None:
    """By every aggregation, with settings chosen on the other half of the problems."""
    found = recorded_samples.ungated()
    for aggregation in AGGREGATIONS:
        target = recorded_samples.all_scored(found)[BEST, aggregation]
        (chosen,) = choose_settings(
            found,
            FEW.policies(aggregation),
            FEW.thresholds,
            [FEW.reaching(target)],
            halving=FEW.halving,
        )
        assert chosen.outcome.right.mean() > target.mean() - 0.005
        assert chosen.outcome.calls.mean() < 32 / 4


@pytest.mark.soak
def test_our_grader_agrees_with_the_recorded_grades() -> None:
    """On distinct answers, of which a part is graded here."""
    pairs = list(recorded_samples.distinct(recorded_samples.samples()).items())
    some = dict(pairs[:: len(pairs) // ANSWERS_GRADED])
    found, disputed = recorded_samples.agreement(some)
    assert found[CORRECT, True] > 0
    assert len(disputed) <= 1


def test_equal_answers_are_hardly_ever_graded_differently() -> None:
    """An answer that holds right and wrong solutions would make votes meaningless.

    There are two: the records take an answer with a full stop for wrong, and 12th grade once.
    """
    mixed, _ = recorded_samples.clusters(recorded_samples.ungated())
    assert mixed <= 2


def test_the_recorded_reward_model_separates_right_from_wrong(runs: tuple[Run, ...]) -> None:
    """The reference's 0.84 to 0.87: all runs together; one of the five large ones lies above."""
    many = [one for one in runs if len(one.pools) >= 300]
    areas = [area for area, _, _ in map(recorded_llama_runs.verifier_auc, [[one] for one in many])]
    assert [area and round(area.value, 3) for area in areas] == [0.877, 0.858, 0.848, 0.858, 0.856]
    assert all(area is not None and area.low <= 0.87 and area.high >= 0.84 for area in areas)
    together, samples, problems = recorded_llama_runs.verifier_auc(runs)
    assert (samples, problems) == (4984, 304)
    assert together is not None and 0.84 <= together.value <= 0.87


def test_no_sample_of_the_runs_is_lost(runs: tuple[Run, ...]) -> None:
    """Every record stands in one pool; those without scores are counted."""
    assert sum(len(pool) for one in runs for pool in one.pools) == 7952
    assert sum(one.repeats for one in runs) == 636
    assert sum(one.step_scores is None for own in runs for one in own.samples) == 2968


def test_gates_refuse_wrong_solutions_more_often(runs: tuple[Run, ...]) -> None:
    """At least four times as often as right ones, in a part of the solutions."""
    some = [one for own in runs for one in own.samples][::EVERY]
    refused = np.array([recorded_pools.refused(one) for one in some])
    right = np.array([bool(one.correct) for one in some])
    assert refused[~right].mean() > 4 * refused[right].mean()
