"""Audits of sampled solutions: each move's refusal, verifier score and correctness.

Knows: how to walk a sampled solution with the exact truth beside it. Does not know: statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.domains.base import Domain, knows_truth, split_moves
from selverify.search.backend import Backend, sample_completions
from selverify.search.gates import reject
from selverify.search.requests import Verify, VerifyItem
from selverify.types import Candidate, Move, Sample, State, Verdict


def inspect_samples(
    domain: Domain, backend: Backend, tasks: Sequence[Task], *, samples: int, grader: Grader
) -> list[dict[str, Any]]:
    """One row for each sampled move up to the first that a gate refuses.

    A row has problem_id, sample, step, gate and reason ("" where both gates pass), alive (the right
    answer can still be derived after the move), before (it could be before the move), right (the
    move itself is a right step, by a truth that does not go through the gates) and the verifier's
    score, which is None for a refused move.

    In a domain without exact truth of a step, only an answer can be judged: ``before`` is then
    true of moves that answer, and ``alive`` and ``right`` say whether the answer is right.
    """
    starts = [domain.initial_state(task.problem, budget=1) for task in tasks]
    replies = sample_completions(backend, starts, count=samples)
    rows: list[dict[str, Any]] = []
    items: list[VerifyItem] = []
    for task, start, reply in zip(tasks, starts, replies, strict=True):
        for index, sample in enumerate(reply):
            walked, verified = _walk(domain, task, start, sample, grader)
            rows += [{"sample": index, **row} for row in walked]
            items += verified
    verdicts = cast(tuple[Verdict, ...], backend.answer(Verify(tuple(items))))
    scores = iter(verdict.score for verdict in verdicts)
    return [{**row, "score": next(scores) if row["gate"] == "" else None} for row in rows]


def _walk(
    domain: Domain, task: Task, start: State, sample: Sample, grader: Grader
) -> tuple[list[dict[str, Any]], list[VerifyItem]]:
    rows: list[dict[str, Any]] = []
    items: list[VerifyItem] = []
    state, reachable = start, True
    for step, text in enumerate(split_moves(sample.text, domain.end_of_move)):
        if domain.is_final(state):
            break
        move = domain.parse(text)
        refusal = reject(domain, state, candidate=move)
        before, alive, right = _truth(domain, task, state, move, grader=grader)
        before, alive = before and reachable, alive and reachable
        rows.append(
            {
                "problem_id": task.problem.problem_id,
                "step": step,
                "gate": refusal.gate if refusal else "",
                "reason": refusal.reason if refusal else "",
                "before": before,
                "alive": alive,
                "right": right,
            }
        )
        if refusal is not None or not isinstance(move, Move):
            break
        items.append(VerifyItem(state, (move,)))
        state = domain.apply(state, move)
        reachable = alive or not knows_truth(domain)
    return rows, items


def _truth(
    domain: Domain, task: Task, state: State, move: Candidate, *, grader: Grader
) -> tuple[bool, bool, bool]:
    """Of a move: whether it is judged, whether the answer stays in reach, whether it is right."""
    if not isinstance(move, Move):
        return knows_truth(domain), False, False
    after = domain.apply(state, move)
    if knows_truth(domain):
        return True, domain.alive(after, task.truth), domain.right(state, move, task.truth)
    answers = domain.is_final(after)
    matches = answers and grader.matches(task.truth.answer, domain.answer(after))
    return answers, matches, matches
