"""The recorded samples of each problem as arrays: right or wrong, which answer, which scores.

Knows: recorded samples, answers that are plainly equal, grading, padding. Does not know: what is
computed from the arrays. What was not recorded is counted and never invented: a sample without step
scores has none, and one without an answer has no score either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from selverify.audit.log import RecordedSample
from selverify.audit.records import shown
from selverify.data.equivalence import UNPARSED
from selverify.data.grading import TIMEOUT, Grader
from selverify.domains.answers import stated_answer
from selverify.domains.claims import canonical_answer
from selverify.domains.math_steps import END_OF_STEP
from selverify.errors import SchemaError
from selverify.experiment.audits import BoolArray
from selverify.experiment.statistics import FloatArray, IntArray
from selverify.search.aggregation import AGGREGATIONS

NO_ANSWER = -1
MOST_SAMPLES = 10_000
"""Samples of one problem: memory and time grow with their square where votes are drawn."""

Refused = Callable[[RecordedSample], bool]
"""Whether a deterministic check refuses a step of the solution; it costs no call."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerGroups:
    """The recorded samples of one problem in one run, grouped by answer.

    Arrays are [sample], in recorded order.

    Attributes:
        correct: 1 where the answer is right, else 0.
        answers: which answer it gives, numbered as first seen; -1 for none.
        scores: by name of aggregation; NaN where the verifier was not called or nothing answered,
            and the product where a step score lies outside [0, 1].
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

    def take(self, places: npt.ArrayLike) -> AnswerGroups:
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


ORDERS: Mapping[str, Callable[[AnswerGroups], FloatArray]] = MappingProxyType(
    {
        "recorded": lambda own: np.arange(len(own), dtype=np.float64),
        "shortest": lambda own: own.length,
        "not refused": lambda own: own.refused.astype(np.float64),
    }
)
"""Which sample of an answer is scored first: the lowest, ties in recorded order."""


class SampleCoverage(NamedTuple):
    """What a run's samples hold. ``unscored``: they answer, and have no step scores."""

    problems: int
    samples: int
    fewest: int
    most: int
    unanswered: int
    unscored: int


def by_run(samples: Iterable[RecordedSample]) -> dict[tuple[str, str], tuple[RecordedSample, ...]]:
    """The samples of each (run, model), by problem and number: the order of lines says nothing."""
    found: dict[tuple[str, str], list[RecordedSample]] = {}
    for one in sorted(samples, key=lambda one: (one.run, one.model, one.problem_id, one.sample)):
        found.setdefault((one.run, one.model), []).append(one)
    return {key: tuple(own) for key, own in found.items()}


def answer_of(sample: RecordedSample) -> str | None:
    """The recorded answer, or what the solution's text states where none is recorded."""
    answer = sample.answer
    if answer is None or not answer.strip():
        answer = stated_answer(END_OF_STEP.join(sample.steps))
    return answer or None


class Graded(NamedTuple):
    """Samples that all say whether they are right; ``graded``: how many of them we graded;
    ``unsettled``: how many of these count as wrong because they could not be compared."""

    samples: list[RecordedSample]
    graded: int
    unsettled: int


def graded(samples: Sequence[RecordedSample], grader: Grader) -> Graded:
    """The samples with ``correct`` filled in: as recorded, else graded against the gold.

    One without an answer is wrong, as is one whose answer cannot be compared.

    Raises:
        SchemaError: a sample that answers has neither ``correct`` nor a gold.
    """
    pairs = {
        place: (_gold(one), answer)
        for place, one in enumerate(samples)
        if one.correct is None and (answer := answer_of(one)) is not None
    }
    grades = grader.grade_many(list(pairs.values())) if pairs else ()
    right = {place: grade.correct for place, grade in zip(pairs, grades, strict=True)}
    known = [
        one
        if one.correct is not None
        else one.model_copy(update={"correct": right.get(place, False)})
        for place, one in enumerate(samples)
    ]
    return Graded(known, len(pairs), sum(grade.status in (UNPARSED, TIMEOUT) for grade in grades))


def group_answers(
    samples: Sequence[RecordedSample], *, refused: Refused | None = None
) -> tuple[AnswerGroups, ...]:
    """One group a problem, in the order in which problems come, from the samples of one run.

    Raises:
        SchemaError: more than ``MOST_SAMPLES`` of a problem, or a right sample without an answer.
    """
    found: dict[str, list[RecordedSample]] = {}
    for one in samples:
        found.setdefault(one.problem_id, []).append(one)
    return tuple(_group(name, own, refused) for name, own in found.items())


def sample_coverage(found: Sequence[AnswerGroups]) -> SampleCoverage:
    """What the groups hold and what was not recorded."""
    return SampleCoverage(
        problems=len(found),
        samples=sum(map(len, found)),
        fewest=min(map(len, found)),
        most=max(map(len, found)),
        unanswered=sum(int((~one.answered).sum()) for one in found),
        unscored=sum(int((one.answered & ~one.scored).sum()) for one in found),
    )


def usable(own: AnswerGroups) -> AnswerGroups:
    """The samples that a method with scores can use: scored ones, and those without an answer."""
    return own.take(own.scored | ~own.answered)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedAnswers:
    """The answers of many problems, padded to the most that a problem has.

    Attributes:
        size: [problem, answer], samples that give it; 0 where a problem has no such answer.
        right: [problem, answer], the share of them that is right.
        total: [problem, answer], the sum of their scores.
        first: [problem, answer], where in the next two its samples begin.
        scores, steps: [sample], of all problems together; the samples of an answer come one after
            another, in the order in which they would be scored.
    """

    size: FloatArray
    right: FloatArray
    total: FloatArray
    first: IntArray
    scores: FloatArray
    steps: FloatArray


def pad_answers(found: Sequence[AnswerGroups], *, aggregation: str, order: str) -> PaddedAnswers:
    """The answers of all problems; samples without one are left out. Every other has a score."""
    groups = [_by_answer(own, ORDERS[order](own)) for own in found]
    shape = (len(found), max([1, *(len(own) for own in groups)]))
    size, right, total = np.zeros((3, *shape))
    first = np.zeros(shape, dtype=np.int64)
    scores, steps = [np.zeros(0)], [np.zeros(0)]
    begin = 0
    for row, (own, answers) in enumerate(zip(found, groups, strict=True)):
        for column, members in enumerate(answers):
            place = (row, column)
            size[place], first[place] = len(members), begin
            right[place] = own.correct[members].mean()
            scores.append(own.scores[aggregation][members])
            total[place] = scores[-1].sum()
            steps.append(own.steps[members])
            begin += len(members)
    return PaddedAnswers(size, right, total, first, np.concatenate(scores), np.concatenate(steps))


def mean_score(own: PaddedAnswers, *, train: BoolArray) -> float:
    """The mean score of a sample on the problems of ``train``: what an unknown one should be."""
    known = (own.size > 0) & train[:, None]
    if not known.any():
        raise SchemaError("prior: no training problem has an answer, expected one")
    return float(own.total[known].sum() / own.size[known].sum())


def _gold(sample: RecordedSample) -> str:
    if sample.gold is None:
        raise SchemaError(f"{_where(sample)}: given neither correct nor gold, expected one of them")
    return sample.gold


def _group(name: str, own: Sequence[RecordedSample], refused: Refused | None) -> AnswerGroups:
    if len(own) > MOST_SAMPLES:
        raise SchemaError(
            f"run {shown(own[0].run)}, problem {shown(name)}: given {len(own):,} samples, expected "
            f"at most {MOST_SAMPLES:,}"
        )
    numbers: dict[str, int] = {}
    which = [_number(one, numbers) for one in own]
    timed = all(one.tokens is not None for one in own)
    return AnswerGroups(
        name,
        np.array([float(bool(one.correct)) for one in own]),
        np.array(which, dtype=np.int64),
        {how: _scores(own, which, how) for how in AGGREGATIONS},
        np.array([float(len(one.step_scores or one.steps)) for one in own]),
        np.array([float(one.tokens or 0) if timed else _characters(one) for one in own]),
        np.array([refused is not None and refused(one) for one in own]),
    )


def _number(sample: RecordedSample, numbers: dict[str, int]) -> int:
    """Which answer the sample gives; ``numbers`` learns new ones."""
    answer = answer_of(sample)
    if answer is not None:
        return numbers.setdefault(canonical_answer(answer), len(numbers))
    if sample.correct:
        raise SchemaError(
            f"{_where(sample)}: given correct without an answer, expected the answer too: votes "
            "are on answers"
        )
    return NO_ANSWER


def _where(sample: RecordedSample) -> str:
    return f"run {shown(sample.run)}, problem {shown(sample.problem_id)}, sample {sample.sample}"


def _scores(own: Sequence[RecordedSample], which: Sequence[int], how: str) -> FloatArray:
    return np.array(
        [
            np.nan if answer == NO_ANSWER else _score(one.step_scores, how)
            for one, answer in zip(own, which, strict=True)
        ]
    )


def _score(scores: Sequence[float] | None, how: str) -> float:
    """NaN for a product of scores outside [0, 1]: two bad steps could make it high."""
    if scores is None or (how == "prod" and not all(0.0 <= one <= 1.0 for one in scores)):
        return np.nan
    return AGGREGATIONS[how](scores)


def _characters(sample: RecordedSample) -> float:
    return float(sum(map(len, sample.steps)))


def _by_answer(own: AnswerGroups, keys: FloatArray) -> list[IntArray]:
    """The places of each answer's samples, in the order of ``keys``."""
    order = np.lexsort((keys, own.answers))  # stable: ties of both stay in recorded order
    order = order[own.answered[order]]
    ends = np.flatnonzero(np.diff(own.answers[order])) + 1
    return np.split(order, ends) if len(order) else []
