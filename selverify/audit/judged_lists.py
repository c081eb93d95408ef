"""Recorded lists as a verifier judged them: repeats merged, and whatever is missing counted.

Knows: lists, verdicts by label or by score. Does not know: rankers, calls, files. A verdict that
was not recorded is never invented: the candidate costs a call when it is verified and cannot be
accepted, for every order and for verify-all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from selverify.audit.log import RecordedCandidate, RecordedList
from selverify.errors import ParamsError
from selverify.experiment.audits import BoolArray

Accepts = Callable[[RecordedCandidate], bool | None]
"""The verifier's verdict: accepted, rejected, or None where nothing is recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class JudgedList:
    """A recorded list without repeats, and what the verifier said of each candidate.

    Attributes:
        recorded: the list, every text once.
        accepted: [candidate], false where there is no verdict.
        known: [candidate], whether there is one.
    """

    recorded: RecordedList
    accepted: BoolArray
    known: BoolArray

    @property
    def problem_id(self) -> str:
        """The cluster that intervals resample."""
        return self.recorded.problem_id


@dataclass(frozen=True, slots=True)
class ListCoverage:
    """What a log holds and what of it could be used.

    Attributes:
        lists: candidate lists in the log.
        used: lists that were judged; the figures below are of these.
        problems, runs, models: distinct ones.
        candidates: distinct texts, summed over states.
        repeats: further mentions of a text in its list. They cost no call.
        disagreeing: repeats with another verdict than the first one recorded, which counts.
        misses: candidates without a verdict.
        lists_with_misses: lists that hold one.
        reachable: lists that hold an accepted candidate.
        problems_reachable: distinct problems of these.
        decided_by_order: lists that hold an accepted candidate and another one.
        without_logprob: candidates without a log probability.
    """

    lists: int
    used: int
    problems: int
    runs: int
    models: int
    candidates: int
    repeats: int
    disagreeing: int
    misses: int
    lists_with_misses: int
    reachable: int
    problems_reachable: int
    decided_by_order: int
    without_logprob: int

    @property
    def left_out(self) -> int:
        """Lists without any verdict, or with too few of them where all are required."""
        return self.lists - self.used


def by_label(candidate: RecordedCandidate) -> bool | None:
    """The verdict of a person or of exact truth."""
    return candidate.label


def by_score(tau: float) -> Accepts:
    """The recorded verifier's: accepted where its score is at least ``tau``.

    Raises:
        ParamsError: ``tau`` is infinite or no number.
    """
    if not isfinite(tau):
        raise ParamsError(f"tau: given {tau}, expected a finite number")

    def accepts(candidate: RecordedCandidate) -> bool | None:
        return None if candidate.score is None else candidate.score >= tau

    return accepts


def merge_repeats(item: RecordedList) -> RecordedList:
    """The list with every text once, at its first place.

    ``times`` adds up; of score, label and log probability the first that is recorded counts, as a
    verifier that remembers its replies would repeat it.
    """
    merged: dict[str, RecordedCandidate] = {}
    for one in item.candidates:
        first = merged.get(one.text)
        merged[one.text] = one if first is None else _together(first, one)
    committed = item.committed
    if committed is not None:
        committed = list(merged).index(item.candidates[committed].text)
    return item.model_copy(
        update={"candidates": tuple(merged.values()), "committed": committed},
    )


def judge(
    lists: Sequence[RecordedList], accepts: Accepts, *, complete: bool
) -> tuple[tuple[JudgedList, ...], ListCoverage]:
    """The lists that hold a verdict, repeats merged, and a count of what is there and missing.

    Args:
        complete: leave out every list in which a candidate has no verdict, instead of taking
            such a candidate for one that costs a call and is not accepted.
    """
    judged, repeats, disagreeing = [], 0, 0
    for item in lists:
        one = _judged(merge_repeats(item), accepts)
        if one.known.all() or (one.known.any() and not complete):
            judged.append(one)
            repeats += sum(c.times for c in one.recorded.candidates) - len(one.known)
            disagreeing += _disagreeing(item, one, accepts)
    coverage = ListCoverage(
        lists=len(lists),
        used=len(judged),
        problems=len({one.problem_id for one in judged}),
        runs=len({one.recorded.run for one in judged}),
        models=len({one.recorded.model for one in judged}),
        candidates=sum(len(one.known) for one in judged),
        repeats=repeats,
        disagreeing=disagreeing,
        misses=int(sum(np.sum(~one.known) for one in judged)),
        lists_with_misses=sum(not one.known.all() for one in judged),
        reachable=sum(bool(one.accepted.any()) for one in judged),
        problems_reachable=len({one.problem_id for one in judged if one.accepted.any()}),
        decided_by_order=sum(bool(one.accepted.any() and not one.accepted.all()) for one in judged),
        without_logprob=sum(c.logprob is None for one in judged for c in one.recorded.candidates),
    )
    return tuple(judged), coverage


def _together(first: RecordedCandidate, again: RecordedCandidate) -> RecordedCandidate:
    known = {
        name: getattr(again if getattr(first, name) is None else first, name)
        for name in ("score", "label", "logprob")
    }
    return first.model_copy(update={"times": first.times + again.times, **known})


def _judged(item: RecordedList, accepts: Accepts) -> JudgedList:
    verdicts = [accepts(candidate) for candidate in item.candidates]
    return JudgedList(
        item,
        np.array([one is True for one in verdicts], dtype=np.bool_),
        np.array([one is not None for one in verdicts], dtype=np.bool_),
    )


def _disagreeing(item: RecordedList, judged: JudgedList, accepts: Accepts) -> int:
    kept = {c.text: accepts(c) for c in judged.recorded.candidates}
    return sum(accepts(one) not in (None, kept[one.text]) for one in item.candidates)
