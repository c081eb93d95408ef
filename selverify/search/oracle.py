"""The bound: a search that knows which moves are right and asks the verifier only about those."""

from __future__ import annotations

from selverify.domains.base import GeneratedDomain
from selverify.search.candidates import checked, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.types import Move, Outcome, Problem, State, Truth


def oracle(
    domain: GeneratedDomain,
    problem: Problem,
    *,
    truth: Truth,
    proposals: int,
    max_moves: int,
    generation_cap: int,
    selective: bool = False,
) -> Asking[Outcome]:
    """One call for the first right survivor of each state, committed whatever its score.

    None for an answer that checks for free.

    ``selective``: no call at a state whose survivors are all right, where any choice would do:
    what a search would pay that knew where a call is worth anything. Without it, what a search
    pays at least that verifies each move it commits.

    Proposes like gated competition, resampling for no call while no survivor is right, at most
    ``generation_cap`` samples in all.
    """
    state = domain.initial_state(problem, budget=max_moves)
    left = generation_cap
    while not domain.is_final(state) and len(state.derivation) < max_moves:
        found = yield from _first_right(domain, state, truth=truth, proposals=proposals, cap=left)
        move, drawn, contested = found
        left -= drawn
        if move is None:
            return Outcome(None, state.derivation, "generation")
        after = domain.apply(state, move)
        if (contested or not selective) and not checked(domain, after):
            yield from verify(VerifyItem(state, (move,)))
            after = after.spend(1)
        state = after
    answer = domain.answer(state)
    return Outcome(answer, state.derivation, "exhausted" if answer is None else "answered")


def _first_right(
    domain: GeneratedDomain, state: State, *, truth: Truth, proposals: int, cap: int
) -> Asking[tuple[Move | None, int, bool]]:
    """The first survivor that keeps the right answer in reach, and the samples drawn for it.

    Also whether a survivor among these samples does not keep it in reach.
    """
    drawn, contested = 0, False
    while drawn < cap:
        count = min(proposals, cap - drawn)
        (samples,) = yield from propose(ProposeItem(state, drawn, count))
        drawn += count
        moves = sift(domain, state, samples=samples, gates=GATES).survivors
        right = [move for move in moves if domain.alive(domain.apply(state, move), truth)]
        contested = contested or len(right) < len(moves)
        if right:
            return right[0], drawn, contested
    return None, drawn, contested
