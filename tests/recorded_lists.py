"""Recorded lists of candidates, of which a test says what it is about."""

from __future__ import annotations

from collections.abc import Iterable

from selverify.audit.log import RecordedCandidate, RecordedList


def recorded_list(
    candidates: Iterable[RecordedCandidate],
    *,
    problem: str = "p",
    state: str = "s",
    question: str = "what is it?",
    prefix: Iterable[str] = (),
    committed: int | None = None,
) -> RecordedList:
    return RecordedList(
        problem_id=problem,
        state_id=state,
        run="run",
        model="model",
        question=question,
        prefix=tuple(prefix),
        candidates=tuple(candidates),
        committed=committed,
    )
