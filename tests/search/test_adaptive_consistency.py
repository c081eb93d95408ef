"""Adaptive consistency: the majority vote where nothing settles it, and hand-computed stops."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import domains, fake, problems
from toy import ScriptedBackend, ToyDomain, alone, toy_search

from selverify.search.adaptive_consistency import STOPPING_RULES, adaptive_consistency
from selverify.search.majority import majority_vote
from selverify.types import Problem

quick = settings(max_examples=200, deadline=None)
levels = st.floats(0, 1.1)
rules = st.sampled_from(sorted(STOPPING_RULES))
THREE = "add 1 ; add 2 ; say 3 ;"
ALSO_THREE = "add 3 ; say 3 ;"
TWO = "add 2 ; say 2 ;"
ILLEGAL = "say 7 ;"
NOISE = "what ;"


def samples_drawn(
    solutions: list[str], *, rule: str, confidence: float, gates: bool, checks: bool = False
) -> tuple[int, str | None]:
    """How many of ``solutions`` a search draws, and its answer."""
    backend = ScriptedBackend(solutions=solutions)
    search = toy_search(
        adaptive_consistency,
        ToyDomain(checks),
        n=len(solutions),
        rule=rule,
        confidence=confidence,
        gates=gates,
    )
    result = alone(search, backend)
    assert result.ledger.verifier_calls == 0
    counts = [item.count for request in backend.asked for item in request.items]
    return sum(counts), result.outcome.answer


@quick
@given(domains, problems, st.integers(1, 20), rules, st.booleans())
def test_a_confidence_above_one_is_the_majority_vote(
    domain: ToyDomain, problem: Problem, n: int, rule: str, gates: bool
) -> None:
    """The same outcome, moves and tokens, free checks included."""
    shared = {"n": n, "gates": gates, "temperature": None}
    search = adaptive_consistency(domain, problem, rule=rule, confidence=1.001, **shared)
    majority = majority_vote(domain, problem, **shared)
    assert alone(search, fake(domain)) == alone(majority, fake(domain))


@quick
@given(domains, problems, rules, st.booleans(), st.tuples(levels, levels))
def test_a_lower_confidence_never_draws_more(
    domain: ToyDomain, problem: Problem, rule: str, gates: bool, confidences: tuple[float, float]
) -> None:
    """Nor does any search ask the verifier."""
    shared = {"n": 20, "rule": rule, "gates": gates, "temperature": None}
    low, high = (
        alone(adaptive_consistency(domain, problem, confidence=one, **shared), fake(domain)).ledger
        for one in sorted(confidences)
    )
    assert low.generated_tokens <= high.generated_tokens
    assert (low.verifier_calls, high.verifier_calls) == (0, 0)


@given(st.integers(1, 40), st.integers(0, 40), st.lists(st.integers(1, 5)))
def test_the_beta_posterior_is_a_sum_of_binomials(first: int, second: int, rest: list[int]) -> None:
    """P(p1 > 1/2 | v1, v2): at most v1 heads in v1 + v2 + 1 tosses of a fair coin.

    Answers behind the second say nothing: the posterior of the first two ignores them.
    """
    tosses = first + second + 1
    heads = sum(comb(tosses, k) for k in range(first + 1)) / 2**tosses
    votes = (first, second, *rest) if second else (first,)
    assert STOPPING_RULES["beta"].support(votes) == pytest.approx(heads, rel=1e-12)


@pytest.mark.parametrize(
    ("solutions", "drawn", "answer"),
    [
        # 4 of one answer: 1 - 1/32 = 0.969, the first number of at least 0.95; 3: 1 - 1/16 = 0.938.
        ([THREE, ALSO_THREE, THREE, THREE, TWO, TWO], 4, "3"),
        # 5 to 1: P(at most 5 heads of 7) = 120/128 = 0.938; 6 to 1: 247/256 = 0.965.
        ([TWO, THREE, THREE, THREE, THREE, THREE, THREE, TWO], 7, "3"),
        ([THREE, TWO, THREE, TWO], 4, "3"),
        ([NOISE, NOISE, TWO, TWO, TWO, TWO, THREE], 6, "2"),
    ],
)
def test_beta_stops_when_the_lead_is_likely_to_last(
    solutions: list[str], drawn: int, answer: str
) -> None:
    """Votes are of answers, not of derivations; noise has no vote; without a stop all are drawn."""
    found = samples_drawn(solutions, rule="beta", confidence=0.95, gates=False)
    assert found == (drawn, answer)


@pytest.mark.parametrize(
    ("solutions", "confidence", "drawn", "answer"),
    [
        ([TWO, TWO, THREE, THREE, THREE], 0.8, 2, "2"),
        ([TWO, THREE, THREE, THREE, TWO], 0.75, 4, "3"),
        ([TWO, THREE, THREE, THREE, THREE], 0.8, 5, "3"),
        ([TWO, THREE, THREE, THREE, THREE, THREE, TWO, TWO, TWO], 0.8, 9, "3"),
        ([TWO], 0.8, 1, "2"),
    ],
)
def test_a_supermajority_is_looked_for_after_2_4_8_samples_and_at_the_end(
    solutions: list[str], confidence: float, drawn: int, answer: str
) -> None:
    """A share equal to the confidence stops; between the looks none is seen, as 5 to 1 of 6."""
    found = samples_drawn(solutions, rule="supermajority", confidence=confidence, gates=False)
    assert found == (drawn, answer)


@pytest.mark.parametrize(("gates", "found"), [(False, (4, "7")), (True, (8, "2"))])
def test_with_gates_only_legal_solutions_settle_the_vote(
    gates: bool, found: tuple[int, str]
) -> None:
    """Four illegal ones settle it without gates; with them, four legal ones."""
    solutions = [ILLEGAL] * 4 + [TWO] * 4 + [THREE]
    assert samples_drawn(solutions, rule="beta", confidence=0.95, gates=gates) == found


def test_with_gates_all_vote_if_none_of_all_samples_is_legal() -> None:
    """They settle nothing before, so every sample is drawn."""
    solutions = [ILLEGAL] * 5 + ["say 8 ;"]
    assert samples_drawn(solutions, rule="beta", confidence=0.95, gates=True) == (6, "7")


@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize(("rule", "drawn"), [("beta", 6), ("supermajority", 8)])
def test_a_solution_that_checks_for_free_settles_the_vote(
    rule: str, drawn: int, gates: bool
) -> None:
    """At the first count after it: the sixth sample, after wrong ones that settle nothing."""
    solutions = [TWO] * 5 + [THREE] + [TWO] * 4
    found = samples_drawn(solutions, rule=rule, confidence=0.95, gates=gates, checks=True)
    assert found == (drawn, "3")
