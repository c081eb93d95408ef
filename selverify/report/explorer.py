"""Searches as data for the trace explorer of the report page.

Knows: rounds of gated competition and how they read. Does not know: HTML, models, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from selverify.data.benchmark import Task
from selverify.domains.base import Domain, GeneratedDomain, knows_truth
from selverify.domains.claims import canonical_answer
from selverify.report.trace_text import FALLBACKS, Round, outcome_text, read_rounds
from selverify.search.traces import Event
from selverify.types import Move, State, Truth


class Outcome(NamedTuple):
    """What a method made of a problem: means over its runs."""

    method: str
    right: float
    calls: float
    tokens: float


@dataclass(frozen=True, slots=True)
class TracedSearch:
    """A task, its difficulty bin, and the events of the search that was traced."""

    task: Task
    difficulty_bin: int
    events: Sequence[Event]


def explorer_data(
    domain: Domain,
    searches: Sequence[TracedSearch],
    *,
    tau: float,
    reference_dispersion: float,
    outcomes: Mapping[str, Sequence[Outcome]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """One entry a problem, of plain values: the question, the answers, and every step.

    A step is a round (``derivation`` of [move, truth], ``left``, ``summary``, ``allotment`` or "",
    ``rows`` of [candidate, sampled, h, what became of it, kind, truth]) or an event that ends one
    (``event``, ``text``). Kinds are those of :meth:`CandidateRow.fate`. A truth is "right" where
    the right answer is still in reach after the move, "wrong" where it no longer is, "" where that
    is not known or the move was refused. ``astray``: where a wrong solution first went wrong, and
    what let it pass; else "". ``methods``: ``outcomes`` of the problem, by its name.
    """
    return [
        _entry(domain, one, tau, reference_dispersion)
        | {"methods": [list(each) for each in outcomes.get(one.task.problem.problem_id, ())]}
        for one in searches
    ]


def _entry(domain: Domain, one: TracedSearch, tau: float, reference: float) -> dict[str, Any]:
    problem, truth = one.task.problem, one.task.truth
    known = _Truth(domain, truth)
    answer = dict(one.events[-1].data).get("answer") if one.events else None
    return {
        "id": problem.problem_id,
        "text": problem.text,
        "truth": truth.answer,
        "answer": answer,
        "right": canonical_answer(str(answer or "")) == canonical_answer(truth.answer),
        "bin": one.difficulty_bin,
        "calls": sum(event.ledger.verifier_calls for event in one.events),
        "steps": [_step(step, known, tau, reference) for step in read_rounds(domain, one.events)],
        "astray": _astray(one.events, known, tau),
    }


class _Truth:
    """What is known of the moves to a state: nothing where the domain does not know."""

    def __init__(self, domain: Domain, truth: Truth) -> None:
        self._domain, self._truth = domain, truth
        self._known = knows_truth(domain)

    def of(self, state: State, move: Move) -> str:
        """Of ``move`` at ``state``: "right", "wrong" or ""."""
        if not self._known or self._of(state) == "wrong":
            return "wrong" if self._known else ""
        return self._of(self._domain.apply(state, move))

    def along(self, state: State) -> list[list[str]]:
        """[move, truth] of each move of a state."""
        before, found = self._domain.initial_state(state.problem, budget=state.budget), []
        for move in state.derivation:
            found.append([move.text, self.of(before, move)])
            before = self._domain.apply(before, move)
        return found

    def text(self, state: State, text: str) -> str:
        """Of a candidate as it was written."""
        move = self._domain.parse(text)
        return self.of(state, move) if isinstance(move, Move) else ""

    def _of(self, state: State) -> str:
        alive = cast(GeneratedDomain, self._domain).alive(state, self._truth)
        return "right" if alive else "wrong"


def _astray(events: Sequence[Event], known: _Truth, tau: float) -> str:
    """Where the committed moves first went wrong, and what let that move pass."""
    if not events:
        return ""
    moves = known.along(events[-1].state)
    place = next((at for at, (_, truth) in enumerate(moves) if truth == "wrong"), None)
    if place is None:
        return ""
    before, move = [text for text, _ in moves[:place]], moves[place][0]
    why = "it was committed without a call"
    for event in events:
        data: dict[str, Any] = dict(event.data)
        if event.event == "verify":
            said = [*event.state.said, *data["steps"]]
            if said == [*before, move]:
                verdict = "accepted" if data["score"] >= tau else "rejected"
                why = f"the verifier gave it {data['score']:.2f}, {verdict} at tau {tau:g}"
            elif said[: place + 1] == [*before, move] and len(event.state.said) <= place:
                why = "it was committed without a call, and a later call on it did not reject it"
        elif event.event == "fallback" and [*event.state.said] == before and data["move"] == move:
            why = FALLBACKS[str(data["rule"])][0].lower() + FALLBACKS[str(data["rule"])][1:]
    return f"Wrong from move {place + 1} on ({move}): {why}."


def _step(step: Round | Event, known: _Truth, tau: float, reference: float) -> dict[str, Any]:
    if isinstance(step, Event):
        return {"event": step.event, "text": outcome_text(step)}
    return {
        "derivation": known.along(step.state),
        "left": step.state.budget,
        "summary": step.summary,
        "allotment": step.allotment(reference),
        "rows": [
            [*row.cells(tau), "" if row.gate else known.text(step.state, row.text)]
            for row in step.rows
        ],
    }
