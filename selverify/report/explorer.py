"""Searches as data for the trace explorer of the report page.

Knows: rounds of gated competition and how they read. Does not know: HTML, models, files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from selverify.data.benchmark import Task
from selverify.domains.base import Domain, knows_truth
from selverify.report.trace_text import FALLBACKS, Round, outcome_text, read_rounds
from selverify.search.traces import Event
from selverify.types import Candidate, Move, State, Truth

NONE_WRONG = "A right answer was in reach after every move; the search ended before it."


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
    matches: Callable[[str, str | None], bool],
    outcomes: Mapping[str, Sequence[Outcome]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """One entry a problem, of plain values: the question, the answers, and every step.

    A step is a round (``derivation`` of [move, truth], ``left``, ``summary``, ``allotment`` or "",
    ``rows`` of [candidate, sampled, h, what became of it, kind, truth]) or an event that ends one
    (``event``, ``text``). Kinds are those of :meth:`CandidateRow.fate`. A truth is "right" or
    "wrong" by the move itself, "" where that is not known or the move was refused. ``astray``:
    after which move no right answer was in reach, and what let it pass, of a problem that was not
    solved; "" where that is not known. ``methods``:
    ``outcomes`` of the problem, by its name. ``matches``: whether to a truth an answer is right.
    """
    return [
        _entry(domain, one, tau, reference_dispersion, matches)
        | {"methods": [list(each) for each in outcomes.get(one.task.problem.problem_id, ())]}
        for one in searches
    ]


def _entry(
    domain: Domain,
    one: TracedSearch,
    tau: float,
    reference: float,
    matches: Callable[[str, str | None], bool],
) -> dict[str, Any]:
    problem, truth = one.task.problem, one.task.truth
    answer = dict(one.events[-1].data).get("answer") if one.events else None
    right = matches(truth.answer, None if answer is None else str(answer))
    return {
        "id": problem.problem_id,
        "text": problem.text,
        "truth": truth.answer,
        "answer": answer,
        "right": right,
        "bin": one.difficulty_bin,
        "calls": sum(event.ledger.verifier_calls for event in one.events),
        "steps": [
            _step(step, domain, truth, tau, reference) for step in read_rounds(domain, one.events)
        ],
        "astray": "" if right else _astray(one.events, domain, truth, tau),
    }


def _told(domain: Domain, truth: Truth, state: State, move: Candidate) -> str:
    """Of a move at a state "right" or "wrong"; "" of other text, and where it is not known."""
    if not isinstance(move, Move) or not knows_truth(domain):
        return ""
    return "right" if domain.right(state, move, truth) else "wrong"


def _walk(domain: Domain, state: State) -> Iterator[tuple[State, Move]]:
    """Each move of a state, with the state before it."""
    before = domain.initial_state(state.problem, budget=state.budget)
    for move in state.derivation:
        yield before, move
        before = domain.apply(before, move)


def _astray(events: Sequence[Event], domain: Domain, truth: Truth, tau: float) -> str:
    """Where the committed moves first went wrong, and what let that move pass."""
    if not events or not knows_truth(domain):
        return ""
    end = events[-1].state
    after = (domain.apply(before, move) for before, move in _walk(domain, end))
    place = next((at for at, state in enumerate(after) if not domain.alive(state, truth)), None)
    if place is None:
        return NONE_WRONG
    *before, move = (one.text for one in end.derivation[: place + 1])
    why = "it was committed without a call"
    for event in events:
        data: dict[str, Any] = dict(event.data)
        if event.event == "verify":
            said = [*event.state.said, *data["steps"]]
            if said == [*before, move]:
                verdict = "accepted" if data["score"] >= tau else "rejected"
                why = f"the verifier gave it {data['score']:.2f}, {verdict} at tau {tau:.2f}"
            elif said[: place + 1] == [*before, move] and len(event.state.said) <= place:
                why = "it was committed without a call, and a later call on it did not reject it"
        elif event.event == "fallback" and [*event.state.said] == before and data["move"] == move:
            why = FALLBACKS[str(data["rule"])][0].lower() + FALLBACKS[str(data["rule"])][1:]
    return f"No right answer was in reach from move {place + 1} on ({move}): {why}."


def _step(
    step: Round | Event, domain: Domain, truth: Truth, tau: float, reference: float
) -> dict[str, Any]:
    if isinstance(step, Event):
        return {"event": step.event, "text": outcome_text(step)}
    return {
        "derivation": [
            [move.text, _told(domain, truth, before, move)]
            for before, move in _walk(domain, step.state)
        ],
        "left": step.state.budget,
        "summary": step.summary,
        "allotment": step.allotment(reference),
        "rows": [
            [
                *row.cells(tau),
                "" if row.gate else _told(domain, truth, step.state, domain.parse(row.text)),
            ]
            for row in step.rows
        ],
    }
