"""Audits of sampled solutions: what the gates refuse, what the verifier says, what is right.

Knows: how to walk a sampled solution with the exact truth beside it. Does not know: statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from selverify.backends.base import Backend
from selverify.benchmark import Task
from selverify.domains.base import GeneratedDomain, split_moves
from selverify.gates import reject
from selverify.requests import Complete, CompleteItem, Verify, VerifyItem
from selverify.types import Move, Sample, State, Verdict


def inspect_samples(
    domain: GeneratedDomain, backend: Backend, tasks: Sequence[Task], *, samples: int
) -> tuple[list[dict[str, Any]], list[VerifyItem]]:
    """One row for each sampled move up to the first that a gate refuses, and its verifier item.

    A row has problem_id, sample, step, gate and reason ("" where both gates pass), alive (the right
    answer can still be derived after the move), before (it could be before the move) and right (the
    move itself is a right step, by a truth that does not go through the gates). Refused
    moves have no verifier item; the others' items stand in the order of their rows.
    """
    starts = [domain.initial_state(task.problem, budget=1) for task in tasks]
    request = Complete(tuple(CompleteItem(start, 0, samples) for start in starts))
    replies = cast(tuple[tuple[Sample, ...], ...], backend.answer(request))
    rows: list[dict[str, Any]] = []
    items: list[VerifyItem] = []
    for task, start, reply in zip(tasks, starts, replies, strict=True):
        for index, sample in enumerate(reply):
            walked, asked = _walk(domain, task, start, sample)
            rows += [{"sample": index, **row} for row in walked]
            items += asked
    return rows, items


def add_scores(
    backend: Backend, rows: Sequence[dict[str, Any]], items: Sequence[VerifyItem]
) -> list[dict[str, Any]]:
    """``rows`` with the verifier's ``score`` of every move that passed the gates, else None."""
    verdicts = cast(tuple[Verdict, ...], backend.answer(Verify(tuple(items))))
    scores = iter(verdict.score for verdict in verdicts)
    return [{**row, "score": next(scores) if row["gate"] == "" else None} for row in rows]


def _walk(
    domain: GeneratedDomain, task: Task, start: State, sample: Sample
) -> tuple[list[dict[str, Any]], list[VerifyItem]]:
    rows: list[dict[str, Any]] = []
    items: list[VerifyItem] = []
    state, before = start, True
    for step, text in enumerate(split_moves(sample.text, domain.end_of_move)):
        if domain.is_final(state):
            break
        move = domain.parse(text)
        refusal = reject(domain, state, move)
        after = domain.apply(state, move) if isinstance(move, Move) else None
        alive = before and after is not None and domain.alive(after, task.truth)
        rows.append(
            {
                "problem_id": task.problem.problem_id,
                "step": step,
                "gate": refusal.gate if refusal else "",
                "reason": refusal.reason if refusal else "",
                "before": before,
                "alive": alive,
                "right": isinstance(move, Move) and domain.right(state, move, task.truth),
            }
        )
        if refusal is not None or after is None or not isinstance(move, Move):
            break
        items.append(VerifyItem(state, (move,)))
        state, before = after, alive
    return rows, items
