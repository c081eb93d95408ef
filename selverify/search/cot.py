"""0-shot chain of thought: one greedy solution, no verifier."""

from __future__ import annotations

from selverify.domains.base import Domain
from selverify.search.protocol import Asking, complete
from selverify.search.requests import CompleteItem
from selverify.search.solutions import read_solution, vote
from selverify.types import Outcome, Problem


def chain_of_thought(domain: Domain, problem: Problem) -> Asking[Outcome]:
    """The answer of the greedy solution, or None if it does not parse or does not answer."""
    start = domain.initial_state(problem, budget=1)
    ((sample,),) = yield from complete(CompleteItem(start, 0, 1, temperature=0.0))
    solution = read_solution(domain, start, text=sample.text, count=1)
    return vote(domain, [] if solution is None else [(solution.state, 1.0)])
