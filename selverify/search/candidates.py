"""From proposed texts to distinct admissible moves at one state.

Knows: the gates, and the free check of a finished answer. Does not know: scores or budgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from selverify.domains.base import Domain
from selverify.search.gates import CONTEXT, STRUCTURAL, passes_every_gate, reject
from selverify.types import Candidate, Malformed, Move, Rejection, Sample, State

Gates = tuple[str, ...]
"""Which gates are at work: ``GATES``, the structural one alone, or none."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """Distinct survivors in proposal order, how often each was proposed, refusals by reason."""

    survivors: tuple[Move, ...]
    counts: tuple[int, ...]
    refused: Mapping[str, int]


def sift(domain: Domain, state: State, *, samples: Iterable[Sample], gates: Gates) -> Sifted:
    """Parse and gate the texts of ``samples``, each distinct one once (Eq. gated_moves)."""
    moves: dict[str, Move] = {}
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for text, times in Counter(sample.text for sample in samples).items():
        candidate = domain.parse(text)
        refusal = inadmissible(domain, state, candidate=candidate, gates=gates)
        if refusal is None and isinstance(candidate, Move):
            moves[candidate.text] = candidate
            counts[candidate.text] += times
        elif refusal is not None:
            refused[f"{refusal.gate}: {refusal.reason}"] += times
    return Sifted(tuple(moves.values()), tuple(counts.values()), refused)


def inadmissible(
    domain: Domain, state: State, *, candidate: Candidate, gates: Gates
) -> Rejection | None:
    """Why ``candidate`` may not be tried at ``state``, or None.

    ``gates``: both, the structural one alone, or none. Without the gates a candidate needs only to
    parse and, where a finished answer can be checked for free, to check: a free check is free for
    every method (protocol).
    """
    refusal = reject(domain, state, candidate=candidate)
    if refusal is not None and refusal.gate in gates:
        return refusal
    if isinstance(candidate, Malformed):
        return Rejection(STRUCTURAL, f"malformed: {candidate.reason}")
    if domain.checks_answers():
        after = domain.apply(state, candidate)
        if domain.is_final(after) and not checked(domain, after):
            return Rejection(CONTEXT, "answer does not check")
    return None


def checked(domain: Domain, state: State) -> bool:
    """True if ``state`` is final and a free check shows that its answer is right.

    In a domain that checks answers the gates refuse a wrong one, so a final state whose every
    move passes both gates is right.
    """
    if not domain.checks_answers() or not domain.is_final(state):
        return False
    start = domain.initial_state(state.problem, budget=state.budget)
    return passes_every_gate(domain, start, moves=state.derivation) is not None
