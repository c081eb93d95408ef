"""What the measurements on recorded solutions share: gates on pools, majorities, rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import recorded

from selverify.audit.answer_groups import AnswerGroups
from selverify.audit.log import RecordedSample
from selverify.audit.savings import SolutionSettings
from selverify.audit.solutions import MAJORITY, Subsets, voted
from selverify.audit.text import interval_text
from selverify.experiment.statistics import (
    FloatArray,
    clustered_mean,
    mean_interval,
    paired_difference,
)

ONE = "pass@1"
USUAL = SolutionSettings()
BOOTSTRAP = USUAL.bootstrap


@cache
def questions() -> dict[str, str]:
    """The texts of MATH-500's problems."""
    return {row["unique_id"]: row["problem"] for row in recorded.records("problems/math500.jsonl")}


def refused(sample: RecordedSample) -> bool:
    """Whether a gate of the domain of text refuses a step."""
    steps = [step for step in sample.steps if step.strip()]
    walked = recorded.walk(sample.problem_id, questions()[sample.problem_id], steps)
    return bool(walked.refusals)


@cache
def majority(found: tuple[AnswerGroups, ...]) -> FloatArray:
    """How right the majority of all samples is, [problem]."""
    how = [Subsets((len(pool),), USUAL.subsets, USUAL.seed) for pool in found]
    return np.array(
        [voted(pool, np.ones(len(pool)), own)[0] for pool, own in zip(found, how, strict=True)]
    )


def refused_share(found: Sequence[AnswerGroups], *, wrong: bool) -> tuple[str, int]:
    """Share in % of the wrong (or right) solutions with a refused step, and how many they are."""
    kept = [(pool.correct == 0) == wrong for pool in found]
    values = np.concatenate([pool.refused[own] for pool, own in zip(found, kept, strict=True)])
    names = np.repeat([pool.problem_id for pool in found], [int(own.sum()) for own in kept])
    share = clustered_mean(values, names, bootstrap=BOOTSTRAP)
    return "-" if share is None else interval_text(share, scale=100), len(values)


def filtering(found: Sequence[AnswerGroups], how: str) -> tuple[str, str]:
    """pass@1 or majority in %, and by how many points leaving refused solutions out changes it.

    Where every solution of a problem is refused, all stay.
    """
    passing = [pool if pool.refused.all() else pool.take(~pool.refused) for pool in found]
    before, after = (
        majority(tuple(own)) if how == MAJORITY else np.array([one.correct.mean() for one in own])
        for own in (found, passing)
    )
    gain = paired_difference(after, before, bootstrap=BOOTSTRAP)
    return (
        interval_text(mean_interval(before, BOOTSTRAP), scale=100),
        interval_text(gain, scale=100, signed=True),
    )
