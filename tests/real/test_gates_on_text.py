"""What the gates do on text that nobody here wrote."""

from __future__ import annotations

import recorded

from selverify.experiment.statistics import wilson_interval

MOST_FALSE = 0.005  # of steps


def test_gates_hardly_refuse_a_written_solution_of_gsm8k() -> None:
    """Six steps in ten hold a claim; the one refused says 32 - 20 = 300."""
    walked = recorded.gsm8k_golds("test")
    assert walked.steps > 6_000
    assert walked.with_claims / walked.steps > 0.6
    assert len(walked.refusals) / walked.steps <= MOST_FALSE
    assert {(one.record, one.step) for one in walked.refusals} <= {("gsm8k-test-1024", 4)}


def test_gates_hardly_refuse_a_written_solution_of_math500() -> None:
    """The one refused has a wrong sign."""
    walked = recorded.math500_golds()
    assert walked.steps >= 500
    assert len(walked.refusals) / walked.steps <= MOST_FALSE
    assert {(one.record, one.step) for one in walked.refusals} <= {("test/algebra/351.json", 0)}


def test_most_marked_arithmetic_mistakes_are_caught() -> None:
    """And few steps that people marked as right are refused."""
    found, _ = recorded.marked_mistakes()
    caught, missed = found["mistake", True], found["mistake", False]
    assert caught / (caught + missed) > 0.95
    refused, kept = found["right", True], found["right", False]
    assert refused / (refused + kept) < 0.05


def test_a_refused_step_is_hardly_ever_before_the_first_error() -> None:
    """ProcessBench: every refusal is at or after it; few of the errors are covered."""
    found, _ = recorded.first_refusals()
    late = sum(count for (_, place), count in found.items() if place in ("at", "after"))
    early = sum(count for (_, place), count in found.items() if place in ("before", "in right"))
    assert late >= 35
    assert late / (late + early) == 1.0


def test_nothing_is_refused_in_a_proof_with_numbered_premises() -> None:
    """Where people find a proof not valid, its arithmetic is right all the same."""
    found = recorded.numbered_proofs()
    assert sum(found.values()) >= 200
    assert {reason for _, reason in found} == {"nothing"}


def test_the_rule_of_the_gates_earns_its_place_and_the_others_do_not() -> None:
    """On rated candidates: the share of wrong steps among what each refuses, over the base."""
    steps, refused = recorded.tried_rules("PRM800K, rated candidates")
    assert (steps[False], steps[True]) == (697, 1_547)
    arithmetic, repeats, cites = refused.values()
    assert (arithmetic[False], arithmetic[True]) == (11, 1)
    lowest = wilson_interval(arithmetic[False], arithmetic.total()).low
    assert lowest > 2 * steps[False] / steps.total()
    assert (repeats[False], repeats[True]) == (0, 7)
    assert cites.total() == 0


def test_no_premise_is_cited_that_nobody_stated() -> None:
    """Seven steps in ten of these proofs cite premises, so a rule against it refuses nothing."""
    steps = [one for one in recorded.cited_steps() if recorded.CITED.search(one.text)]
    assert len(steps) == 742
    assert not any(map(recorded.cites_nothing, steps))
