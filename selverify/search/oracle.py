"""The bound: a search that knows which moves are right and asks the verifier only about those."""

from __future__ import annotations

from selverify.domains.base import Domain
from selverify.requests import ProposeItem, VerifyItem
from selverify.search.asking import Asking, propose, verify
from selverify.search.candidates import sift
from selverify.types import Move, Outcome, Problem, State, Truth


def oracle(
    domain: Domain,
    problem: Problem,
    truth: Truth,
    *,
    proposals: int,
    max_retries: int,
    max_moves: int,
    generation_cap: int,
) -> Asking[Outcome]:
    """One call for the first right survivor of each state, committed whatever its score.

    Proposes like gated competition, resampling up to ``max_retries`` times for no call while no
    survivor is right, at most ``generation_cap`` samples in all.
    """
    state = domain.initial_state(problem, budget=max_moves)
    left = generation_cap
    while not domain.is_final(state) and len(state.derivation) < max_moves:
        cap = min(left, proposals * (max_retries + 1))
        move, drawn = yield from _first_right(domain, state, truth, proposals=proposals, cap=cap)
        left -= drawn
        if move is None:
            return Outcome(None, state.derivation, "exhausted")
        yield from verify(VerifyItem(state, (move,)))
        state = domain.apply(state.spend(1), move)
    answer = domain.answer(state)
    return Outcome(answer, state.derivation, "exhausted" if answer is None else "answered")


def _first_right(
    domain: Domain, state: State, truth: Truth, *, proposals: int, cap: int
) -> Asking[tuple[Move | None, int]]:
    """The first survivor that keeps the right answer in reach, and the samples drawn for it."""
    drawn = 0
    while drawn < cap:
        count = min(proposals, cap - drawn)
        (samples,) = yield from propose(ProposeItem(state, drawn, count))
        drawn += count
        for move in sift(domain, state, samples, gates=True).survivors:
            if domain.alive(domain.apply(state, move), truth):
                return move, drawn
    return None, drawn
