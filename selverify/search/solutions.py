"""Whole solutions: sampling them, reading their moves, voting.

Knows: how a solution's text falls into moves. Does not know: the verifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from selverify.domains.base import LONGEST_KEPT, Domain, split_moves
from selverify.domains.claims import canonical_answer
from selverify.search.gates import reject
from selverify.search.protocol import Asking, complete
from selverify.search.requests import CompleteItem
from selverify.types import Move, Outcome, Problem, State

READINGS_KEPT = 10_000
"""Texts of whole solutions whose moves are not read again: 64 samples of 150 problems."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A final state, whether every move of it passes both gates, and how often it was sampled."""

    state: State
    legal: bool
    count: int


def sample_solutions(
    domain: Domain, problem: Problem, *, n: int, temperature: float | None
) -> Asking[tuple[Solution, ...]]:
    """The distinct solutions among ``n`` samples that end in an answer, first seen first."""
    start = domain.initial_state(problem, budget=n)
    return (
        yield from draw_more(domain, start, earlier=(), first=0, count=n, temperature=temperature)
    )


def draw_more(
    domain: Domain,
    start: State,
    *,
    earlier: Iterable[Solution],
    first: int,
    count: int,
    temperature: float | None,
) -> Asking[tuple[Solution, ...]]:
    """``earlier`` joined by the solutions of samples ``first`` to ``first + count``."""
    (samples,) = yield from complete(CompleteItem(start, first, count, temperature))
    found = {solution.state.said: solution for solution in earlier}
    for text, times in Counter(sample.text for sample in samples).items():
        solution = read_solution(domain, start, text=text, count=times)
        if solution is not None:
            same = found.get(solution.state.said, replace(solution, count=0))
            found[solution.state.said] = replace(same, count=same.count + times)
    return tuple(found.values())


def read_solution(domain: Domain, start: State, *, text: str, count: int) -> Solution | None:
    """The moves of ``text`` up to its first answer; None if one is malformed or none answers."""
    if start.derivation or len(text) > LONGEST_KEPT:
        found = _read(domain, start, text)
    else:
        found = _read_whole(cast(Hashable, domain), start.problem, text)
    if found is None:
        return None
    return Solution(found.state.with_budget(start.budget), found.legal, count)


@lru_cache(maxsize=READINGS_KEPT)
def _read_whole(domain: Domain, problem: Problem, text: str) -> Solution | None:
    """A text from the problem's start: methods, budgets and settings share their samples."""
    return _read(domain, domain.initial_state(problem, budget=0), text)


def _read(domain: Domain, start: State, text: str) -> Solution | None:
    state, legal = start, True
    for piece in split_moves(text, domain.end_of_move):
        move = domain.parse(piece)
        if not isinstance(move, Move):
            return None
        legal = legal and reject(domain, state, candidate=move) is None
        state = domain.apply(state, move)
        if domain.is_final(state):
            return Solution(state, legal, count=1)
    return None


def eligible(
    domain: Domain, solutions: tuple[Solution, ...], *, gates: bool
) -> tuple[Solution, ...]:
    """Who may win: solutions that check for free, else (with gates) the legal ones, else all."""
    legal = tuple(solution for solution in solutions if solution.legal)
    return legal if legal and (gates or domain.checks_answers()) else solutions


def admitted(domain: Domain, solutions: Iterable[Solution], *, gates: bool) -> tuple[Solution, ...]:
    """Who may end the sampling: with gates, or where answers check for free, the legal ones alone.

    Unlike ``eligible``, none while there is no legal one: all of them vote only after N samples.
    """
    legal_only = gates or domain.checks_answers()
    return tuple(solution for solution in solutions if solution.legal or not legal_only)


def vote(domain: Domain, weighted: Iterable[tuple[State, float]]) -> Outcome:
    """The answer of the largest summed weight, ties to the first seen; its heaviest derivation.

    Answers that are plainly equal vote together, in the words of the first one.
    """
    totals: dict[str, float] = {}
    heaviest: dict[str, tuple[float, State]] = {}
    said: dict[str, str] = {}
    for state, weight in weighted:
        answer = domain.answer(state)
        if answer is None:
            continue
        same = canonical_answer(answer)
        said.setdefault(same, answer)
        totals[same] = totals.get(same, 0.0) + weight
        if same not in heaviest or weight > heaviest[same][0]:
            heaviest[same] = (weight, state)
    if not totals:
        return Outcome(None, None, "no answer")
    winner = max(totals, key=totals.__getitem__)
    return Outcome(said[winner], heaviest[winner][1].derivation, "answered")
