"""The recorded samples of each problem as arrays: right or wrong, which answer, which scores.

Knows: recorded samples, answers that are plainly equal, grading. Does not know: what is computed
from the arrays. What was not recorded is counted and never invented: a sample without step scores
has none, and one without an answer has no score either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from selverify.audit.lines import shown
from selverify.audit.schema import RecordedSample
from selverify.data.grading import Grader
from selverify.domains.answers import stated_answer
from selverify.domains.claims import canonical_answer
from selverify.domains.math_steps import END_OF_STEP
from selverify.errors import ParamsError, SchemaError
from selverify.experiment.statistics import FloatArray, IntArray
from selverify.search.best_of_n import AGGREGATIONS
from selverify.types import Verdict

BoolArray = npt.NDArray[np.bool_]

NO_ANSWER = -1
MOST_SAMPLES = 10_000
"""Samples of one problem: memory and time grow with their square where votes are drawn."""

Refused = Callable[[RecordedSample], bool]
"""Whether a deterministic check refuses a step of the solution; it costs no call."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The recorded samples of one problem in one run; arrays are [sample], in recorded order.

    Attributes:
        correct: 1 where the answer is right, else 0.
        answers: which answer it gives, numbered as first seen; -1 for none.
        scores: by name of aggregation; NaN where the verifier was not asked or nothing answered.
        steps: step scores that a verifier call computes.
        length: tokens, or characters where some sample's tokens were not recorded.
        refused: whether a deterministic check refuses a step; False where none was tried.
    """

    problem_id: str
    correct: FloatArray
    answers: IntArray
    scores: Mapping[str, FloatArray]
    steps: FloatArray
    length: FloatArray
    refused: BoolArray

    def __len__(self) -> int:
        return len(self.correct)

    @property
    def answered(self) -> BoolArray:
        """[sample], whether there is an answer."""
        return np.not_equal(self.answers, NO_ANSWER)

    @property
    def scored(self) -> BoolArray:
        """[sample], whether the verifier's scores of an answering sample are recorded."""
        return ~np.isnan(next(iter(self.scores.values())))

    @property
    def unanimous(self) -> bool:
        """Whether all that answer give one answer, so that no score could change it."""
        return len(np.unique(self.answers[self.answered])) <= 1

    def take(self, places: npt.ArrayLike) -> Pool:
        """The samples at ``places``, or those where a mask holds, in that order."""
        kept = np.asarray(places)
        return replace(
            self,
            correct=self.correct[kept],
            answers=self.answers[kept],
            scores={name: own[kept] for name, own in self.scores.items()},
            steps=self.steps[kept],
            length=self.length[kept],
            refused=self.refused[kept],
        )


class SampleCoverage(NamedTuple):
    """What a run's samples hold. ``unscored``: they answer, and have no step scores."""

    problems: int
    samples: int
    fewest: int
    most: int
    unanswered: int
    unscored: int


def by_run(samples: Iterable[RecordedSample]) -> dict[tuple[str, str], tuple[RecordedSample, ...]]:
    """The samples of each (run, model), in recorded order."""
    found: dict[tuple[str, str], list[RecordedSample]] = {}
    for one in samples:
        found.setdefault((one.run, one.model), []).append(one)
    return {key: tuple(own) for key, own in found.items()}


def answer_of(sample: RecordedSample) -> str | None:
    """The recorded answer, or what the solution's text states where none is recorded."""
    answer = sample.answer
    if answer is None or not answer.strip():
        answer = stated_answer(END_OF_STEP.join(sample.steps))
    return answer or None


def graded(samples: Sequence[RecordedSample], grader: Grader | None) -> tuple[RecordedSample, ...]:
    """The samples with ``correct`` filled in: as recorded, else graded against the gold.

    Raises:
        SchemaError: a sample that answers has neither ``correct`` nor a gold.
        ParamsError: a sample has to be graded and no grader is given.
    """
    answers = [answer_of(one) if one.correct is None else None for one in samples]
    pairs = [
        (_gold(one), answer)
        for one, answer in zip(samples, answers, strict=True)
        if one.correct is None and answer is not None
    ]
    if pairs and grader is None:
        raise ParamsError(f"{len(pairs)} samples have no correct, expected a grader for them")
    grades = {} if grader is None else dict(zip(pairs, grader.grade_many(pairs), strict=True))
    return tuple(
        one
        if one.correct is not None
        else one.model_copy(
            update={"correct": answer is not None and grades[_gold(one), answer].correct}
        )
        for one, answer in zip(samples, answers, strict=True)
    )


def pools(samples: Sequence[RecordedSample], *, refused: Refused | None = None) -> tuple[Pool, ...]:
    """One pool a problem, in the order in which problems come, from the samples of one run.

    Raises:
        SchemaError: no sample, several runs, a sample twice, one that was not graded, or more than
            ``MOST_SAMPLES`` of a problem.
    """
    if len({(one.run, one.model) for one in samples}) != 1:
        raise SchemaError(f"given {len(by_run(samples))} runs, expected the samples of one")
    found: dict[str, list[RecordedSample]] = {}
    for one in samples:
        found.setdefault(one.problem_id, []).append(one)
    return tuple(_pool(name, own, refused) for name, own in found.items())


def coverage(found: Sequence[Pool]) -> SampleCoverage:
    """What the pools hold and what was not recorded."""
    return SampleCoverage(
        problems=len(found),
        samples=sum(map(len, found)),
        fewest=min(map(len, found)),
        most=max(map(len, found)),
        unanswered=sum(int((~one.answered).sum()) for one in found),
        unscored=sum(int((one.answered & ~one.scored).sum()) for one in found),
    )


def usable(pool: Pool) -> Pool:
    """The samples that a method with scores can use: scored ones, and those without an answer."""
    return pool.take(pool.scored | ~pool.answered)


def _gold(sample: RecordedSample) -> str:
    if sample.gold is None:
        raise SchemaError(f"{_where(sample)}: given neither correct nor gold, expected one of them")
    return sample.gold


def _pool(name: str, own: Sequence[RecordedSample], refused: Refused | None) -> Pool:
    where = f"run {shown(own[0].run)}, problem {shown(name)}"
    if len({one.sample for one in own}) < len(own):
        raise SchemaError(f"{where}: a sample stands twice, expected once")
    if len(own) > MOST_SAMPLES:
        raise SchemaError(f"{where}: given {len(own):,} samples, expected at most {MOST_SAMPLES:,}")
    answers = [answer_of(one) for one in own]
    for one, answer in zip(own, answers, strict=True):
        _check(one, answer)
    numbers: dict[str, int] = {}
    which = [
        NO_ANSWER if one is None else numbers.setdefault(canonical_answer(one), len(numbers))
        for one in answers
    ]
    timed = all(one.tokens is not None for one in own)
    return Pool(
        name,
        np.array([float(bool(one.correct)) for one in own]),
        np.array(which, dtype=np.int64),
        {how: _scores(own, which, how) for how in AGGREGATIONS},
        np.array([float(len(one.step_scores or one.steps)) for one in own]),
        np.array([float(one.tokens or 0) if timed else _characters(one) for one in own]),
        np.array([refused is not None and refused(one) for one in own]),
    )


def _where(sample: RecordedSample) -> str:
    return f"run {shown(sample.run)}, problem {shown(sample.problem_id)}, sample {sample.sample}"


def _check(sample: RecordedSample, answer: str | None) -> None:
    where = _where(sample)
    if sample.correct is None:
        raise SchemaError(f"{where}: given no correct, expected a graded sample")
    if sample.correct and answer is None:
        raise SchemaError(
            f"{where}: given correct without an answer, expected the answer too: votes are on "
            f"answers"
        )


def _scores(own: Sequence[RecordedSample], which: Sequence[int], how: str) -> FloatArray:
    aggregate = AGGREGATIONS[how]
    return np.array(
        [
            np.nan
            if one.step_scores is None or answer == NO_ANSWER
            else aggregate(Verdict(one.step_scores[-1], one.step_scores))
            for one, answer in zip(own, which, strict=True)
        ]
    )


def _characters(sample: RecordedSample) -> float:
    return float(sum(map(len, sample.steps)))
