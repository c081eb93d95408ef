"""What every domain promises of any text, as one check.

Knows: the protocol of a domain. Does not know: which texts are tried, how long they may take.
"""

from __future__ import annotations

import random
from functools import cache

from selverify.domains import DOMAINS, GENERATED
from selverify.domains.base import knows_truth
from selverify.search.gates import reject
from selverify.types import Malformed, Move, State, Truth

LONGEST_REASON = 700
LONGEST_KEPT = 4_000
QUESTION = (
    "Ann has $n$ apples and $AB = 5$, x = 4. Bob has 3 more. #1. Let k be even. How many are there?"
)


@cache
def begin(name: str, *, seed: int = 1, size: int = 4) -> State:
    """A first state of the domain, with a budget of 9."""
    domain = DOMAINS[name]
    if name in GENERATED:
        rng = random.Random(seed)
        problem, _ = GENERATED[name].generate(rng, problem_id="p", minimum=size, maximum=size)
    else:
        problem = domain.read(QUESTION, problem_id="p")
    return domain.initial_state(problem, budget=9)


def feed(name: str, state: State, text: str) -> State:
    """Parse, gate and apply ``text`` at ``state``; the state after it, the same where it is none.

    Raises:
        AssertionError: a promise is broken; whatever else is raised breaks one too.
    """
    domain = DOMAINS[name]
    candidate = domain.parse(text)
    refusal = reject(domain, state, candidate=candidate)
    if isinstance(candidate, Malformed):
        assert refusal is not None
        assert 0 < len(candidate.reason) <= LONGEST_REASON
        assert len(candidate.text) <= LONGEST_KEPT
        return state
    _check_move(name, state, candidate, admissible=refusal is None)
    after = domain.apply(state, candidate)
    assert after.derivation == (*state.derivation, candidate)
    assert isinstance(hash(after.context), int)
    assert domain.serialise(after).encode()
    assert (domain.answer(after) is None) or domain.is_final(after)
    return after


def _check_move(name: str, state: State, move: Move, *, admissible: bool) -> None:
    domain = DOMAINS[name]
    assert domain.parse(move.text) == move
    assert type(move.args) is domain.operators[move.op]
    assert move.text.encode()
    pattern = domain.pattern(state, move)
    if pattern is not None and admissible:
        for found in domain.instantiate(state, pattern):
            assert domain.parse(found.text) == found
    if knows_truth(domain):
        nothing = Truth("p", "0", _facts(name))
        assert domain.right(state, move, nothing) in (True, False)


@cache
def _facts(name: str) -> str:
    """The facts of another problem: an audit asks about any move."""
    problem = GENERATED[name].generate(random.Random(7), problem_id="p", minimum=4, maximum=4)
    return problem[1].facts


@cache
def moves(name: str) -> tuple[str, ...]:
    """The moves of right derivations of a few problems of a generated domain."""
    domain, found = GENERATED[name], []
    for seed in range(8):
        rng = random.Random(seed)
        problem, truth = domain.generate(rng, problem_id="p", minimum=4, maximum=4)
        found += [move.text for move in domain.solution(problem, truth, rng)]
    return tuple(dict.fromkeys(found))
