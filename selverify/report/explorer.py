"""Searches as data for the trace explorer of the report page.

Knows: rounds of gated competition and how they read. Does not know: HTML, models, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selverify.domains.base import Domain
from selverify.domains.claims import canonical_answer
from selverify.report.trace_text import OUTCOMES, Round, Row, allotment, fate, read_rounds, summary
from selverify.search.traces import Event
from selverify.types import Problem, Truth


@dataclass(frozen=True, slots=True)
class Searched:
    """One problem, its truth, its difficulty bin, and the events of the search that was traced."""

    problem: Problem
    truth: Truth
    difficulty_bin: int
    events: Sequence[Event]


def explorer_data(
    domain: Domain,
    searched: Sequence[Searched],
    *,
    tau: float,
    reference_dispersion: float,
) -> list[dict[str, Any]]:
    """One entry a problem, of plain values: what was asked and answered, and every step.

    A step is a round (``derivation``, ``left``, ``summary``, ``allotment`` or "", ``rows`` of
    [candidate, sampled, h, what became of it, kind]) or an event that ends one (``event``,
    ``text``). Kinds are accepted, rejected, refused, judged and passed.
    """
    return [_entry(domain, one, tau, reference_dispersion) for one in searched]


def _entry(domain: Domain, one: Searched, tau: float, reference: float) -> dict[str, Any]:
    steps = [
        {"event": step.event, "text": OUTCOMES[step.event](step).plain}
        if isinstance(step, Event)
        else _round(step, tau, reference)
        for step in read_rounds(domain, one.events)
    ]
    ended: Mapping[str, object] = dict(one.events[-1].data) if one.events else {}
    answer = ended.get("answer")
    return {
        "id": one.problem.problem_id,
        "text": one.problem.text,
        "truth": one.truth.answer,
        "answer": answer,
        "right": canonical_answer(str(answer or "")) == canonical_answer(one.truth.answer),
        "bin": one.difficulty_bin,
        "calls": sum(event.ledger.verifier_calls for event in one.events),
        "steps": steps,
    }


def _round(step: Round, tau: float, reference: float) -> dict[str, Any]:
    allotted = ""
    if step.k is not None and step.sigma is not None:
        allotted = allotment(step, step.k, step.sigma, reference).plain
    return {
        "derivation": [move.text for move in step.state.derivation],
        "left": step.state.budget,
        "summary": summary(step).plain,
        "allotment": allotted,
        "rows": [
            [
                row.text,
                row.source or f"{row.times} x",
                "" if row.h is None else f"{row.h:.3f}",
                fate(row, tau).plain,
                _kind(row, tau),
            ]
            for row in step.rows
        ],
    }


def _kind(row: Row, tau: float) -> str:
    if row.gate:
        return "refused"
    if row.judged:
        return "judged"
    if row.score is None:
        return "passed"
    return "accepted" if row.score >= tau else "rejected"
