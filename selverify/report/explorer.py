"""Searches as data for the trace explorer of the report page.

Knows: rounds of gated competition and how they read. Does not know: HTML, models, files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from selverify.data.benchmark import Task
from selverify.domains.base import Domain
from selverify.domains.claims import canonical_answer
from selverify.report.trace_text import Round, outcome_text, read_rounds
from selverify.search.traces import Event


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
) -> list[dict[str, Any]]:
    """One entry a problem, of plain values: the question, the answers, and every step.

    A step is a round (``derivation``, ``left``, ``summary``, ``allotment`` or "", ``rows`` of
    [candidate, sampled, h, what became of it, kind]) or an event that ends one (``event``,
    ``text``). Kinds are those of :meth:`CandidateRow.fate`.
    """
    return [_entry(domain, one, tau, reference_dispersion) for one in searches]


def _entry(domain: Domain, one: TracedSearch, tau: float, reference: float) -> dict[str, Any]:
    problem, truth = one.task.problem, one.task.truth
    answer = dict(one.events[-1].data).get("answer") if one.events else None
    return {
        "id": problem.problem_id,
        "text": problem.text,
        "truth": truth.answer,
        "answer": answer,
        "right": canonical_answer(str(answer or "")) == canonical_answer(truth.answer),
        "bin": one.difficulty_bin,
        "calls": sum(event.ledger.verifier_calls for event in one.events),
        "steps": [_step(step, tau, reference) for step in read_rounds(domain, one.events)],
    }


def _step(step: Round | Event, tau: float, reference: float) -> dict[str, Any]:
    if isinstance(step, Event):
        return {"event": step.event, "text": outcome_text(step)}
    return {
        "derivation": [move.text for move in step.state.derivation],
        "left": step.state.budget,
        "summary": step.summary,
        "allotment": step.allotment(reference),
        "rows": [list(row.cells(tau)) for row in step.rows],
    }
