"""Breadth-first search over moves (tree of thoughts, Yao et al. 2023, Algorithm 1).

Propose at each kept state, ask the verifier about every candidate, keep the best ``width``. It
differs from a beam in that the proposals of a state do not depend on how many states are kept, and
in its end: the finished state of the highest score answers, without a vote.
"""

from __future__ import annotations

from selverify.domains.base import Domain
from selverify.search.candidates import checked, sift
from selverify.search.gates import GATES
from selverify.search.protocol import Asking, note, propose, verify
from selverify.search.requests import ProposeItem, VerifyItem
from selverify.types import Outcome, Problem, State

Scored = tuple[State, float]


def breadth_first(
    domain: Domain,
    problem: Problem,
    *,
    proposals: int,
    width: int,
    gates: bool,
    max_moves: int,
) -> Asking[Outcome]:
    """The answer of the finished state with the highest score.

    In each of ``max_moves`` rounds every kept state is sampled ``proposals`` times, each distinct
    (state, move) pair is one verifier call, and the ``width`` states of highest score are kept,
    ties to the first proposed. A finished state leaves the search, its place is open again in the
    next round. Where answers check for free, a finished state that checks wins before the scores.
    Notes a ``keep`` with its score for each state that is kept.
    """
    most = proposals * width * max_moves
    kept: list[State] = [domain.initial_state(problem, budget=most)]
    finished: list[Scored] = []
    for _ in range(max_moves):
        scored = yield from _values(domain, kept, proposals, gates=gates)
        best = sorted(scored, key=lambda pair: -pair[1])[:width]
        for state, score in best:
            yield note("keep", state, score=score)
        finished += [pair for pair in best if domain.is_final(pair[0])]
        kept = [state for state, _ in best if not domain.is_final(state)]
        if not kept:
            break
    return _best(domain, finished)


def _values(
    domain: Domain, kept: list[State], proposals: int, *, gates: bool
) -> Asking[list[Scored]]:
    """Every distinct admissible move at every kept state, applied, with its verifier score."""
    replies = yield from propose(*(ProposeItem(state, 0, proposals) for state in kept))
    pairs = [
        (state, move)
        for state, samples in zip(kept, replies, strict=True)
        for move in sift(domain, state, samples=samples, gates=GATES if gates else ()).survivors
    ]
    verdicts = yield from verify(*(VerifyItem(state, (move,)) for state, move in pairs))
    return [
        (domain.apply(state, move), verdict.score)
        for (state, move), verdict in zip(pairs, verdicts, strict=True)
    ]


def _best(domain: Domain, finished: list[Scored]) -> Outcome:
    pool = [pair for pair in finished if checked(domain, pair[0])] or finished
    answered = [pair for pair in pool if domain.answer(pair[0]) is not None]
    if not answered:
        return Outcome(None, None, "no answer")
    state, _ = max(answered, key=lambda pair: pair[1])
    return Outcome(domain.answer(state), state.derivation, "answered")
