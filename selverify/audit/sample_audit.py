"""What a log of sampled solutions says that selective verification would have saved.

Knows: runs, what was not recorded, the tables. Does not know: files, how results are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from selverify.audit.answer_groups import (
    AnswerGroups,
    SampleCoverage,
    by_run,
    graded,
    group_answers,
    sample_coverage,
    usable,
)
from selverify.audit.log import RecordedSample
from selverify.audit.savings import Savings, SolutionSettings, savings
from selverify.audit.solutions import AccuracyCurve, Subsets, accuracy_curves
from selverify.data.grading import Grader
from selverify.experiment.statistics import Bootstrap, interval_columns, mean_interval

MOST_CELLS = 2_000_000
"""Problems times samples of the largest: selection follows so many, for every setting."""


@dataclass(frozen=True, slots=True, eq=False)
class SampleAudit:
    """The tables of one run.

    Attributes:
        graded: samples whose correctness was not recorded and was graded against the gold.
        unsettled: those of them whose answer could not be read or compared, and counts as wrong.
        accuracy: method, aggregation, n (as :func:`budgets` gives, where enough problems have so
            many), problems (that have n usable samples), and with interval ends (``_low``,
            ``_high``): accuracy; calls and steps (step scores) are means a problem.
        savings: empty where ``unsaved`` says why.
        left_out: problems that selection cannot use, for want of some sample's scores.
        unsaved: why nothing is said of selective verification; empty where something is.
    """

    run: str
    model: str
    coverage: SampleCoverage
    graded: int
    unsettled: int
    accuracy: pd.DataFrame
    savings: tuple[Savings, ...]
    left_out: int
    unsaved: str


def audit_samples(
    samples: Sequence[RecordedSample], *, settings: SolutionSettings, grader: Grader
) -> Iterator[SampleAudit]:
    """Each run of a log: accuracy by number of samples, and the calls that selection needs.

    Works without step scores (then only pass@N and majority) and without ``correct`` (then graded
    against ``gold``).

    Raises:
        SchemaError: a sample has neither ``correct`` nor ``gold``, or a problem too many of them.
    """
    for (run, model), own in by_run(samples).items():
        known = graded(own, grader)
        found = group_answers(known.samples)
        held = sample_coverage(found)
        curves = accuracy_curves(found, Subsets(budgets(found), settings.subsets, settings.seed))
        whole = [one for one in found if len(usable(one)) == len(one)]
        why = _why_not(held, whole, settings)
        yield SampleAudit(
            run,
            model,
            held,
            known.graded,
            known.unsettled,
            accuracy_table(
                curves, fewest=min(settings.fewest, len(found)), bootstrap=settings.bootstrap
            ),
            () if why else tuple(savings(whole, settings=settings)),
            len(found) - len(whole),
            why,
        )


def budgets(found: Sequence[AnswerGroups]) -> tuple[int, ...]:
    """1, 2, 4, ... up to the most samples that more than half of the problems have, and that."""
    most = sorted(map(len, found), reverse=True)[len(found) // 2]
    fewest = min(map(len, found))
    powers = {2**power for power in range(most.bit_length())}
    return tuple(sorted({*powers, fewest, most}))


def widest(rows: pd.DataFrame) -> pd.Series:
    """Of one method's rows that of the largest n which as many problems have as any n."""
    known = rows[rows["problems"] == rows["problems"].max()]
    found: pd.Series = known.sort_values("n").iloc[-1]
    return found


def accuracy_table(
    curves: Sequence[AccuracyCurve], *, fewest: int, bootstrap: Bootstrap
) -> pd.DataFrame:
    """One row a method and budget; see :class:`SampleAudit`. Intervals resample problems.

    Budgets that fewer than ``fewest`` problems have samples for are left out.
    """
    found = []
    for curve in curves:
        for place, size in enumerate(curve.budgets):
            known = ~np.isnan(curve.right[:, place])
            if known.sum() >= max(fewest, 1):
                found.append(
                    {
                        "method": curve.method,
                        "aggregation": curve.aggregation,
                        "n": size,
                        "problems": int(known.sum()),
                        **interval_columns(
                            "accuracy", mean_interval(curve.right[known, place], bootstrap)
                        ),
                        "calls": float(curve.calls[known, place].mean()),
                        "steps": float(curve.steps[known, place].mean()),
                    }
                )
    return pd.DataFrame(found)


def _why_not(
    held: SampleCoverage, whole: Sequence[AnswerGroups], settings: SolutionSettings
) -> str:
    known = [one for one in whole if one.scored.any()]
    if not known:
        return (
            f"of {held.samples - held.unanswered:,} samples that answer, {held.unscored:,} have no "
            f"step scores, and no problem has them all"
        )
    if len(known) < settings.fewest:
        return (
            f"{len(known)} problems with all scores are too few to choose settings on some and "
            f"score on others (fewer than {settings.fewest})"
        )
    if len(whole) * held.most > MOST_CELLS:
        return (
            f"{len(whole):,} problems of up to {held.most:,} samples are too many to lay out "
            f"(more than {MOST_CELLS:,} together)"
        )
    scores = np.concatenate([own[one.scored] for one in known for own in one.scores.values()])
    inside = np.all((scores >= 0.0) & (scores <= 1.0))
    return "" if inside else "the recorded scores do not lie in [0, 1]"
