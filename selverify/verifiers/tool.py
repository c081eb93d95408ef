"""A verifier that executes a tool on each step: sympy for algebra, enumeration for countdown.

Knows: how verdicts on steps make a verdict on a solution. Does not know: gold answers, models. It
reads what a search may read of a problem, its text, and what the moves claim.

A step that follows but leads nowhere scores 1: in algebra whatever is a consequence of the stated
equations, say one of them multiplied by 7. In countdown the same exactness makes it stricter: a
legal step after which the target is out of reach scores 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from selverify.domains.base import Domain
from selverify.domains.countdown import (
    Answer,
    Claim,
    Combine,
    Countdown,
    Table,
    claims,
    solvable,
)
from selverify.errors import ParamsError, ProtocolError
from selverify.requests import VerifyItem
from selverify.types import Move, State, Verdict


@runtime_checkable
class Checkable(Domain, Protocol):
    """A domain whose steps a tool can check without the gold answer."""

    tool: str
    """The tool with its version: what the verdicts depend on beside the step."""

    def follows(self, state: State, move: Move) -> bool:
        """Whether the move is right as a next step, all steps before it taken as right."""
        ...


class CheckableCountdown(Countdown):
    """Countdown, its target's reach computed over all legal combinations."""

    tool = "countdown 1, enumeration"

    def follows(self, state: State, move: Move) -> bool:
        """A legal move after which the target is within reach; both stand in the problem's text."""
        table, args = state.context, move.args
        if not isinstance(table, Table) or not table.legal or table.answer is not None:
            return False
        if isinstance(args, Answer):
            return table.numbers == (args.value,) and args.value == table.target
        if not isinstance(args, Combine):
            return False
        claim = Claim(move.op, args.first, args.second, args.result, args.left)
        return claim in claims(table.numbers) and solvable(claim.left, table.target)


def checkable(domain: Domain) -> Checkable:
    """The domain with its tool.

    Raises:
        ParamsError: there is no tool for this domain.
    """
    if isinstance(domain, Countdown):
        return CheckableCountdown()
    if isinstance(domain, Checkable):
        return domain
    raise ParamsError(
        f"verifier: given a tool for the domain {domain.name!r}, expected a domain whose steps a "
        f"tool can check, such as algebra or countdown"
    )


class ToolVerifier:
    """Scores 1.0 for each step up to the first that the tool does not find right, then 0.0."""

    def __init__(self, domain: Domain) -> None:
        """A verifier of moves of ``domain``.

        Raises:
            ParamsError: there is no tool for this domain.
        """
        self._domain = checkable(domain)

    def identity(self) -> str:
        """The tool, its version and the rules it is applied by."""
        return f"tool: {self._domain.tool}"

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
            holds = holds and self._domain.follows(state, move)
            scores.append(float(holds))
            state = self._domain.apply(state, move)
        return Verdict(scores[-1], tuple(scores[-len(item.steps) :]))
