"""The two deterministic gates (paper, section 4.1): necessary conditions, free of verifier calls.

Knows: in which order the checks run and how a refusal is reported. The facts are the domain's.
"""

from __future__ import annotations

from collections.abc import Iterable

from selverify.domains.base import Domain
from selverify.types import Candidate, Malformed, Move, Rejection, State

STRUCTURAL = "structural"
CONTEXT = "context"
GATES = (STRUCTURAL, CONTEXT)


def reject(domain: Domain, state: State, *, candidate: Candidate) -> Rejection | None:
    """The first violated condition of ``candidate`` at ``state``, or None when both gates pass.

    Implements G_struct and then G_ctx (Eq. gated_moves, Eq. ctx_gate).
    """
    if isinstance(candidate, Malformed):
        return Rejection(STRUCTURAL, f"malformed: {candidate.reason}")
    if reason := domain.structural_violation(state, candidate):
        return Rejection(STRUCTURAL, reason)
    if reason := domain.context_violation(state, candidate):
        return Rejection(CONTEXT, reason)
    return None


def passes_every_gate(domain: Domain, state: State, *, moves: Iterable[Candidate]) -> State | None:
    """The state after all ``moves``, or None as soon as one of them is refused."""
    for move in moves:
        if reject(domain, state, candidate=move) is not None or not isinstance(move, Move):
            return None
        state = domain.apply(state, move)
    return state
