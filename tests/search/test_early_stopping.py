"""Best-of-N with early stopping: best-of-N where nothing stops it, and hand-computed stops."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import domains, fake, problems
from toy import ScriptedBackend, ToyDomain, alone, toy_search

from selverify.search.best_of_n import best_of_n
from selverify.search.early_stopping import early_stopping
from selverify.types import Problem

quick = settings(max_examples=200, deadline=None)
levels = st.floats(0, 1.1)
RIGHT = "add 1 ; add 2 ; say 3 ;"
WRONG = "add 2 ; say 2 ;"
ILLEGAL = "add 1 ; say 4 ;"
NOISE = "what ;"


@quick
@given(
    domains, problems, st.integers(1, 16), st.booleans(), st.sampled_from(["last", "min", "prod"])
)
def test_a_threshold_above_one_is_best_of_n(
    domain: ToyDomain, problem: Problem, n: int, gates: bool, aggregation: str
) -> None:
    """The same outcome, calls, step scores, moves and tokens, free checks included."""
    shared = {"n": n, "gates": gates, "aggregation": aggregation, "temperature": None}
    stopped = alone(early_stopping(domain, problem, threshold=1.001, **shared), fake(domain))
    assert stopped == alone(best_of_n(domain, problem, **shared), fake(domain))


@quick
@given(domains, problems, st.integers(1, 16), st.booleans(), st.tuples(levels, levels))
def test_a_lower_threshold_never_costs_more(
    domain: ToyDomain, problem: Problem, n: int, gates: bool, thresholds: tuple[float, float]
) -> None:
    """Neither verifier calls nor tokens; at 0 the first admitted solution ends the sampling."""
    shared = {"n": n, "gates": gates, "aggregation": "prod", "temperature": None}
    ledgers = [
        alone(early_stopping(domain, problem, threshold=one, **shared), fake(domain)).ledger
        for one in (0.0, *sorted(thresholds))
    ]
    assert sorted(ledgers, key=lambda ledger: ledger.generated_tokens) == ledgers
    if not domain.checks or gates:
        assert sorted(ledgers, key=lambda ledger: ledger.verifier_calls) == ledgers
        assert ledgers[0].verifier_calls <= 1


@pytest.mark.parametrize(
    ("threshold", "answer", "calls", "samples"),
    # 0.3 for "2", twice; 0.8 for "3"; 0.7 for "1". The vote of all is 2 x 0.3, 0.8 and 0.7.
    [(0.3, "2", 1, 1), (0.31, "3", 2, 4), (0.8, "3", 2, 4), (0.81, "3", 3, 5)],
)
def test_the_first_solution_at_the_threshold_answers(
    threshold: float, answer: str, calls: int, samples: int
) -> None:
    """A repeat is not verified again, noise not at all; a score equal to the threshold stops."""
    solutions = [WRONG, NOISE, WRONG, RIGHT, "add 1 ; say 1 ;"]
    backend = ScriptedBackend(
        solutions=solutions, scores={WRONG: 0.3, RIGHT: 0.8, "add 1 ; say 1 ;": 0.7}
    )
    result = alone(toy_search(early_stopping, n=5, threshold=threshold), backend)
    assert result.outcome.answer == answer
    assert result.ledger.verifier_calls == calls
    drawn = solutions[:samples]
    assert result.ledger.generated_tokens == sum(len(text.split()) for text in drawn)


def test_the_answer_of_a_stop_is_the_stopping_solutions() -> None:
    """Not that of the heavier vote: three samples say 2 with 0.4 each, one says 3 with 0.9."""
    backend = ScriptedBackend(
        solutions=[WRONG, WRONG, WRONG, RIGHT], scores={WRONG: 0.4, RIGHT: 0.9}
    )
    outcome = alone(toy_search(early_stopping, threshold=0.9), backend).outcome
    assert outcome.answer == "3"
    assert [step.text for step in outcome.derivation] == ["add 1 ;", "add 2 ;", "say 3 ;"]


def test_a_solution_that_the_gates_refuse_stops_nothing() -> None:
    """With gates it is not verified, however good its score would be."""
    backend = ScriptedBackend(solutions=[ILLEGAL, WRONG], scores={ILLEGAL: 0.9, WRONG: 0.6})
    search = toy_search(early_stopping, n=2, threshold=0.5, gates=True)
    assert alone(search, backend).outcome.answer == "2"
    assert backend.verified() == [WRONG]


@pytest.mark.parametrize("gates", [False, True])
def test_a_solution_that_checks_for_free_stops_the_sampling_without_a_call(gates: bool) -> None:
    """Wrong ones before it are refused by the check, so no call is made for them either."""
    backend = ScriptedBackend(solutions=[WRONG, RIGHT, RIGHT], scores={WRONG: 1.0})
    search = toy_search(early_stopping, ToyDomain(checks=True), n=3, threshold=1.0, gates=gates)
    result = alone(search, backend)
    assert (result.outcome.answer, result.ledger.verifier_calls) == ("3", 0)
    assert result.ledger.generated_moves == 2 + 3
