"""A verifier that executes a tool on each step: enumeration in countdown.

Knows: how verdicts on steps make a verdict on a solution. Does not know: gold answers, models. It
reads what a search may read of a problem, its text, and what the moves claim.

A step scores 1 while the target stays within reach; a legal step after which it does not scores 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from selverify.domains.base import Domain, NumberAnswer
from selverify.domains.countdown import (
    Combination,
    Combine,
    Countdown,
    Table,
    combinations_of,
    solvable,
)
from selverify.errors import ParamsError, ProtocolError
from selverify.models.verifiers.opening import Surroundings
from selverify.models.verifiers.steps import verdict_of
from selverify.params import Tool
from selverify.search.requests import VerifyItem
from selverify.types import Move, State, Verdict

TOOL = "countdown 1, enumeration"
"""The tool with its version: what the verdicts depend on beside the step."""


class ToolVerifier:
    """Scores 1.0 for each step up to the first that the tool does not find right, then 0.0."""

    def __init__(self, domain: Domain) -> None:
        """A verifier of moves of ``domain``.

        Raises:
            ParamsError: there is no tool for this domain.
        """
        if not isinstance(domain, Countdown):
            raise ParamsError(
                f"verifier: given a tool for the domain {domain.name!r}, expected a domain whose "
                f"steps a tool can check: {Countdown.name}"
            )
        self._domain = domain

    @classmethod
    def open(cls, source: Tool, surroundings: Surroundings) -> ToolVerifier:
        """The tool of the domain; errors as in the constructor."""
        return cls(surroundings.domain)

    def identity(self) -> str:
        """The tool, its version and the rules it is applied by."""
        return f"tool: {TOOL}"

    def parameters(self) -> int:
        """None at all: no model reads the steps."""
        return 0

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """For each item one verdict.

        The steps of the item's state count too: nothing is right after a wrong one.

        Raises:
            ProtocolError: an item has no step.
            SchemaError: a problem's text is none of this domain.
        """
        return tuple(self._verdict(item) for item in items)

    def _verdict(self, item: VerifyItem) -> Verdict:
        if not item.steps:
            raise ProtocolError(
                f"{item.state.problem.problem_id}: given no step to verify, expected one or more"
            )
        state = self._domain.initial_state(item.state.problem, budget=item.state.budget)
        holds, scores = True, []
        for move in (*item.state.derivation, *item.steps):
            holds = holds and _follows(state, move)
            scores.append(float(holds))
            state = self._domain.apply(state, move)
        return verdict_of(scores[-len(item.steps) :])


def _follows(state: State, move: Move) -> bool:
    """A legal move after which the target is within reach; both follow from the problem's text."""
    table, args = state.context, move.args
    if not isinstance(table, Table) or not table.legal or table.answer is not None:
        return False
    if isinstance(args, NumberAnswer):
        return table.numbers == (args.value,) and args.value == table.target
    if not isinstance(args, Combine):
        return False
    made = Combination(move.op, args.first, args.second, args.result, args.left)
    return made in combinations_of(table.numbers) and solvable(made.left, table.target)
