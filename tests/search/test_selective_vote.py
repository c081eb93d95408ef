"""Selective vote: majority and best-of-N at its ends, and hand-computed calls between them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import domains, fake, problems
from toy import ScriptedBackend, ToyDomain, alone, toy_search

from selverify.search.adaptive_consistency import STOPPING_RULES
from selverify.search.best_of_n import best_of_n
from selverify.search.majority import majority_vote
from selverify.search.selective_vote import selective_vote
from selverify.types import Problem

quick = settings(max_examples=200, deadline=None)
aggregations = st.sampled_from(["last", "min", "prod"])
rules = st.sampled_from(sorted(STOPPING_RULES))
ONE = "add 1 ; say 1 ;"
TWO = "add 1 ; add 1 ; say 2 ;"
THREE = "add 2 ; add 1 ; say 3 ;"
FOUR = "add 2 ; add 2 ; say 4 ;"


@quick
@given(domains, problems, st.tuples(st.integers(1, 16), st.booleans()), aggregations, rules)
def test_at_confidence_0_it_is_majority_and_above_1_best_of_n(
    domain: ToyDomain, problem: Problem, limits: tuple[int, bool], aggregation: str, rule: str
) -> None:
    """The same outcome, calls, step scores and tokens, free checks included."""
    n, gates = limits
    shared = {"n": n, "gates": gates, "temperature": None}

    def at(confidence: float) -> object:
        settings = {"aggregation": aggregation, "rule": rule, "confidence": confidence}
        search = toy_search(selective_vote, domain, problem, **settings, **shared)
        found = alone(search, fake(domain))
        return found.outcome, found.ledger

    majority = alone(majority_vote(domain, problem, **shared), fake(domain))
    assert at(0.0) == (majority.outcome, majority.ledger)
    best = alone(best_of_n(domain, problem, aggregation=aggregation, **shared), fake(domain))
    assert at(1.001) == (best.outcome, best.ledger)


@quick
@given(
    domains, problems, st.integers(1, 16), rules, st.tuples(st.floats(0, 1.1), st.floats(0, 1.1))
)
def test_less_confidence_never_costs_more(
    domain: ToyDomain, problem: Problem, n: int, rule: str, confidences: tuple[float, float]
) -> None:
    calls = []
    shared = {"n": n, "gates": True, "aggregation": "prod", "rule": rule}
    for confidence in sorted(confidences):
        search = toy_search(selective_vote, domain, problem, confidence=confidence, **shared)
        calls.append(alone(search, fake(domain)).ledger.verifier_calls)
    assert calls == sorted(calls) and calls[-1] <= n


def run(
    backend: ScriptedBackend, confidence: float, n: int, *, ranked: bool = False
) -> tuple[str | None, list[str]]:
    rules = {"aggregation": "prod", "rule": "supermajority", "confidence": confidence}
    search = toy_search(selective_vote, n=n, ranked=ranked, **rules)
    return alone(search, backend).outcome.answer, backend.verified()


@pytest.mark.parametrize(
    ("confidence", "verified"),
    # Of three votes of six for 2, with 0.2 for it: 0.6 beside 2 * 0.63^3 and 0.63^3, a share of
    # 0.44. With 1.0 for 3: 0.6 and 2 beside 0.82^2, a share of 0.61; without 4 one of 0.77.
    [(0.5, []), (0.51, [TWO, THREE]), (0.61, [TWO, THREE]), (0.62, [TWO, THREE, FOUR])],
)
def test_the_heaviest_solution_is_verified_until_the_vote_is_settled(
    confidence: float, verified: list[str]
) -> None:
    """Steps that no call was on have the mean of the others, those of a known beginning its own."""
    backend = ScriptedBackend(
        solutions=[TWO, TWO, THREE, TWO, THREE, FOUR],
        scores={
            "add 1 ;": 1.0, "add 1 ; add 1 ;": 0.5, TWO: 0.4,
            "add 2 ;": 1.0, "add 2 ; add 1 ;": 1.0, THREE: 1.0,
        },
    )  # fmt: skip
    assert run(backend, confidence, 6) == ("3" if verified else "2", verified)


@pytest.mark.parametrize(("confidence", "verified"), [(0.66, [FOUR]), (0.7, [FOUR, ONE])])
def test_a_known_beginning_tells_of_what_was_not_verified(
    confidence: float, verified: list[str]
) -> None:
    """3 begins with the step that made 4 bad: 1 has a share of 0.67 before a call, and 0.75 after
    one."""
    backend = ScriptedBackend(
        solutions=[FOUR, FOUR, THREE, ONE],
        scores={"add 2 ;": 0.1, "add 2 ; add 2 ;": 0.9, FOUR: 0.9, "add 1 ;": 0.8, ONE: 0.8},
    )
    assert run(backend, confidence, 4) == ("1", verified)


def test_no_call_is_made_where_all_answers_agree() -> None:
    """However little two votes say of others that were not drawn."""
    backend = ScriptedBackend(solutions=[THREE, "add 1 ; add 2 ; say 3 ;"])
    assert run(backend, 0.999, 2) == ("3", [])


@pytest.mark.parametrize(
    ("unlike", "confidence", "said", "verified"),
    # 0.8 * 0.5 * 1 of two votes for 2 beside 0.9 for 3, a share of 0.529. A call finds 2.4 where
    # 2.9 was expected: 3 comes to (0.5 * 0.81)^0.5, 2 to 0.83^1.5 as much as before: 3 has 0.514 of
    # all. A call on 2 leaves 0.25 for it. If the ranker does not know the first step of 2, its mean
    # of 0.88 is expected there, and 2 has 0.494 of all and then 0.51.
    [
        (False, 0.52, "3", []),
        (False, 0.53, "3", [THREE, TWO]),
        (True, 0.505, "3", []),
        (True, 0.509, "2", [THREE]),
        (True, 0.52, "3", [THREE, TWO]),
    ],
)
def test_the_ranker_tells_what_to_expect_of_steps(
    unlike: bool, confidence: float, said: str, verified: list[str]
) -> None:
    backend = ScriptedBackend(
        solutions=[TWO, TWO, THREE],
        ranks={"add 1 ;": 1.0 if unlike else 0.2, "add 1 ; add 1 ;": 0.5, THREE: 0.1},
        scores={
            "add 2 ;": 1.0, "add 2 ; add 1 ;": 0.5, THREE: 0.9,
            "add 1 ;": 1.0, "add 1 ; add 1 ;": 0.1, TWO: 0.4,
        },
    )  # fmt: skip
    assert run(backend, confidence, 3, ranked=True) == (said, verified)


@pytest.mark.parametrize("confidence", [0.0, 0.6, 0.62, 0.7, 1.001])
def test_calls_that_find_all_steps_equal_change_no_vote(confidence: float) -> None:
    """However far their scores are from what the ranker expects."""
    steps = ["add 1 ;", "add 1 ; add 1 ;", TWO, "add 2 ;", "add 2 ; add 1 ;", THREE]
    backend = ScriptedBackend(
        solutions=[TWO, THREE, TWO, THREE, TWO],
        ranks=dict.fromkeys(steps, 0.05),
        scores=dict.fromkeys(steps, 0.4),
    )
    answer, verified = run(backend, confidence, 5, ranked=True)
    assert (answer, len(verified)) == ("2", 0 if confidence <= 0.6 else 2)
