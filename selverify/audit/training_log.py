"""Candidate lists to learn a ranker from, out of whatever file records a run.

Knows: our log, the formats of others, how scored samples become lists. Does not know: verdicts,
training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from selverify.audit.importers import read_any
from selverify.audit.log import (
    MOST_ENTRIES,
    Log,
    RecordedCandidate,
    RecordedList,
    RecordedSample,
)
from selverify.errors import SchemaError

MOST_STEPS = 1_000
"""Of a sample: each of its states is a list that holds all steps before it."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingLists(Collection[RecordedList]):
    """The lists of a log, and those of its samples, which are made when they are asked for.

    A list holds all steps before its state: together they would take memory that grows with the
    square of the steps.
    """

    recorded: tuple[RecordedList, ...]
    _states: Sequence[_State]

    @classmethod
    def of(cls, log: Log) -> TrainingLists:
        """Those of a log: one list a state that scored samples of a problem pass through.

        Raises:
            SchemaError: a state has more next steps than a list holds.
        """
        return cls(log.lists, _states(log.samples))

    def __iter__(self) -> Iterator[RecordedList]:
        return chain(self.recorded, map(_State.listed, self._states))

    def __len__(self) -> int:
        return len(self.recorded) + len(self._states)

    def __contains__(self, one: object) -> bool:
        return any(one == own for own in self)


def read_lists(path: Path) -> tuple[TrainingLists, list[str]]:
    """The candidate lists of a log, or of what ``selverify import`` reads, and what was left out.

    Samples with step scores are lists, too: of those that begin alike, the next steps are the
    candidates at one state.

    Raises:
        ArtifactError, SchemaError: as :func:`read_any`; or it holds no candidate list and no sample
            with step scores.
    """
    log, left_out = read_any(path)
    lists = TrainingLists.of(log)
    if not lists:
        scored = sum(one.step_scores is not None for one in log.samples)
        asked = sum(one.question is not None for one in log.samples)
        raise SchemaError(
            f"{path}: given no candidate list, and {len(log.samples)} samples of which {scored} "
            f"have step scores and {asked} a question; expected lists, or samples with a "
            f"question, a score for each step and at most {MOST_STEPS:,} steps"
        )
    return lists, [*left_out, *_unused(log.samples)]


class _State(NamedTuple):
    """Where samples are after ``place`` steps of ``first``; their next steps with scores."""

    name: str
    first: RecordedSample
    place: int
    scores: dict[str, float]

    def listed(self) -> RecordedList:
        return RecordedList(
            problem_id=self.first.problem_id,
            state_id=self.name,
            run=self.first.run,
            model=self.first.model,
            question=self.first.question or "",
            prefix=self.first.steps[: self.place],
            candidates=tuple(
                RecordedCandidate(text=text, score=score) for text, score in self.scores.items()
            ),
        )


def _states(samples: Iterable[RecordedSample]) -> list[_State]:
    """In the order in which the samples, sorted by their names, first come to them."""
    found: list[_State] = []
    numbers: dict[tuple[str | int, ...], int] = {}
    named = sorted(samples, key=lambda one: (one.run, one.model, one.problem_id, one.sample))
    for one in filter(_is_usable, named):
        key: tuple[str | int, ...] = (one.run, one.model, one.problem_id)
        digest = hashlib.blake2b(_encoded(one.problem_id), digest_size=8)
        steps = zip(one.steps, one.step_scores or (), strict=True)
        for place, (step, score) in enumerate(steps):
            number = numbers.setdefault(key, len(found))
            if number == len(found):
                found.append(_State(f"samples-{digest.hexdigest()}", one, place, {}))
            scores = found[number].scores
            scores.setdefault(step, score)
            if len(scores) > MOST_ENTRIES:
                raise SchemaError(
                    f"{one.problem_id}: given more than {MOST_ENTRIES:,} distinct steps at one "
                    "state, expected at most as many"
                )
            key = (number, step)
            digest.update(_encoded(f"\x1f{step}"))
    return found


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_usable(sample: RecordedSample) -> bool:
    scores = len(sample.step_scores or ())
    return sample.question is not None and 0 < scores == len(sample.steps) <= MOST_STEPS


def _unused(samples: Sequence[RecordedSample]) -> Iterator[str]:
    unused = sum(not _is_usable(one) for one in samples)
    if unused:
        yield (
            f"{unused:,} of {len(samples):,} samples left out: without a question, without one "
            f"score a step, or of more than {MOST_STEPS:,} steps"
        )
