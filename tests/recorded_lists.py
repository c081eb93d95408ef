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


def stopped(item: RecordedList) -> RecordedList:
    """As a verifier leaves it that stops at the first accepted candidate."""
    labels = [one.label for one in item.candidates]
    end = labels.index(True) + 1 if True in labels else len(labels)
    kept = [
        one if place < end else one.model_copy(update={"label": None})
        for place, one in enumerate(item.candidates)
    ]
    return item.model_copy(update={"candidates": tuple(kept)})
