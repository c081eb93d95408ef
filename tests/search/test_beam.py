"""Beams that are verified every g moves: a limit, and hand-computed cases on the toy domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from fake_backend import PassingBackend
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fake, problems
from toy import ScriptedBackend, ToyDomain, alone, toy_search

from selverify.search.beam import beam_search
from selverify.search.dvts import dvts
from selverify.search.gates import reject
from selverify.search.protocol import Asking
from selverify.search.requests import Propose, ProposeItem, Verify
from selverify.types import Malformed, Outcome, Problem, State

quick = settings(max_examples=100, deadline=None)
shapes = st.fixed_dictionaries(
    {
        "n": st.integers(1, 12),
        "width": st.integers(1, 5),
        "gates": st.booleans(),
        "max_moves": st.integers(1, 6),
        "aggregation": st.just("prod"),
    }
)


@pytest.mark.parametrize(
    ("method", "own"),
    [
        (beam_search, {"width": 1, "every": 1}),
        (beam_search, {"width": 1, "every": 2}),
        (dvts, {"expansion": 2}),
    ],
)
def test_an_answer_that_checks_ends_the_search_without_a_call(
    method: Callable[..., Asking[Outcome]], own: dict[str, int]
) -> None:
    """Though its score would be below that of an open sibling."""
    script = {"": ["add 3 ;"] * 2, "add 3 ;": ["say 3 ;", "add 1 ;"]}
    backend = ScriptedBackend(moves=script, scores={"add 3 ;": 0.9, "add 3 ; add 1 ;": 0.9})
    search = toy_search(method, ToyDomain(checks=True), n=2, gates=True, max_moves=3, **own)
    result = alone(search, backend)
    assert result.outcome.answer == "3"
    assert backend.verified() == ["add 3 ;"] * (own.get("every") != 2)


def groups(backend: PassingBackend) -> list[list[tuple[State, tuple[str, ...]]]]:
    """The (state, steps) of each Verify, in order."""
    return [
        [(item.state, tuple(step.text for step in item.steps)) for item in request.items]
        for request in backend.requests
        if isinstance(request, Verify)
    ]


def single_chains(
    domain: ToyDomain, problem: Problem, *, n: int, moves: int, gates: bool
) -> set[tuple[str, ...]]:
    """The slow reference: n chains one at a time, each move the next unused sample of its state."""
    backend = fake(domain)
    used: Counter[tuple[str, ...]] = Counter()
    front = [domain.initial_state(problem, budget=n)] * n
    for _ in range(moves):
        after = []
        for state in front:
            if domain.is_final(state):
                after.append(state)
                continue
            item = ProposeItem(state, used[state.said], 1)
            used[state.said] += 1
            candidate = domain.parse(backend.answer(Propose((item,)))[0][0].text)
            if isinstance(candidate, Malformed):
                continue
            if gates and reject(domain, state, candidate=candidate) is not None:
                continue
            after.append(domain.apply(state, candidate))
        front = after
    return {state.said for state in front}


@quick
@given(problems, shapes, st.integers(0, 2))
def test_groups_as_long_as_the_search_verify_whole_chains_once(
    problem: Problem, shared: dict[str, int], beyond: int
) -> None:
    """With g at least max_moves: a call from the start for each distinct one of N single chains."""
    domain, moves = ToyDomain(), shared["max_moves"]
    backend = PassingBackend(fake(domain))
    search = toy_search(beam_search, domain, problem, every=moves + beyond, **shared)
    alone(search, backend)
    calls = [call for calls in groups(backend) for call in calls]
    chains = single_chains(domain, problem, n=shared["n"], moves=moves, gates=shared["gates"])
    assert all(state.derivation == () for state, _ in calls)
    assert len(calls) == len(chains)
    assert {steps for _, steps in calls} == chains


@quick
@given(problems, shapes, st.integers(2, 4))
def test_a_call_covers_the_moves_since_the_last_one(
    problem: Problem, shared: dict[str, int], g: int
) -> None:
    """Round r starts at depth g r from at most ``width`` states, and each of its ends is one call.

    A call has g moves unless they end in an answer or at the last depth.
    """
    backend = PassingBackend(fake(ToyDomain()))
    keep = min(shared["n"], shared["width"])
    search = toy_search(beam_search, ToyDomain(), problem, every=g, **shared)
    alone(search, backend)
    for index, calls in enumerate(groups(backend)):
        assert len(set(calls)) == len(calls)
        assert len({state.said for state, _ in calls}) <= (keep if index else 1)
        for state, steps in calls:
            whole = min(g, shared["max_moves"] - g * index)
            assert len(state.derivation) == g * index
            assert len(steps) == whole or (len(steps) < whole and steps[-1].startswith("say"))


FIRST = {
    "": ["add 1 ;", "add 2 ;", "add 1 ;", "say 0 ;"],
    "add 1 ;": ["add 2 ;", "add 1 ;"],
    "add 2 ;": ["add 1 ;"],
}


def search_by_twos(aggregation: str, *, n: int = 4, width: int = 2) -> Asking[Outcome]:
    shape = {"n": n, "width": width, "gates": True, "max_moves": 4}
    return toy_search(beam_search, every=2, aggregation=aggregation, **shape)


@pytest.mark.parametrize(
    ("aggregation", "answer"),
    # Kept beside 1 + 2 (steps 0.9, 0.5): say 0 (0.3) by the product, 2 + 1 (0.4, 0.6) by the last.
    [("prod", "0"), ("last", "3")],
)
def test_a_beams_score_is_of_all_its_steps(aggregation: str, answer: str) -> None:
    """The product keeps 0.45 and 0.3, and say 3 ends with 0.45 x 0.5 = 0.225, below 0.3.

    The last score keeps 0.6 and 0.5. The two continuations of add 1 draw its samples 0 and 1, and
    each end is a call of its own.
    """
    backend = ScriptedBackend(
        moves=FIRST
        | {
            "add 1 ; add 2 ;": ["say 3 ;"] * 4,
            "add 2 ; add 1 ;": ["say 3 ;", "noise"],
        },
        scores={
            "add 1 ;": 0.9,
            "add 1 ; add 2 ;": 0.5,
            "add 1 ; add 1 ;": 0.1,
            "add 2 ;": 0.4,
            "add 2 ; add 1 ;": 0.6,
            "say 0 ;": 0.3,
            "add 1 ; add 2 ; say 3 ;": 0.5,
            "add 2 ; add 1 ; say 3 ;": 0.5,
        },
    )
    result = alone(search_by_twos(aggregation), backend)
    assert result.outcome.answer == answer
    assert backend.verified()[:4] == [
        "add 1 ; add 2 ;",
        "add 1 ; add 1 ;",
        "add 2 ; add 1 ;",
        "say 0 ;",
    ]
    # Four calls of 2, 2, 2 and 1 steps; then one step for each kept state that goes on.
    later = 1 if answer == "0" else 2
    assert (result.ledger.verifier_calls, result.ledger.verifier_steps) == (4 + later, 7 + later)
    assert result.ledger.generated_moves == 4 + 3 + 4


def test_a_refused_move_drops_its_continuation() -> None:
    """Noise drops one of three, an answer that is not the total another: one call is left."""
    backend = ScriptedBackend(
        moves={"": ["add 3 ;", "noise", "add 3 ;"], "add 3 ;": ["say 2 ;", "say 3 ;"]}
    )
    result = alone(search_by_twos("prod", n=3, width=1), backend)
    assert result.outcome.answer == "3"
    assert backend.verified() == ["add 3 ; say 3 ;"]
    assert result.ledger.generated_moves == 3 + 2


def test_a_search_whose_every_continuation_is_dropped_has_no_answer() -> None:
    """It verifies nothing and ends."""
    backend = ScriptedBackend(moves={"": ["add 3 ;"] * 4, "add 3 ;": ["noise"] * 4})
    result = alone(search_by_twos("prod"), backend)
    assert result.outcome == Outcome(None, None, "no answer")
    assert result.ledger.verifier_calls == 0
