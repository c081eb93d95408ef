"""A ranker that `selverify train` learned on half of the recorded problems, asked about the others.

What is measured for the page on recorded runs; the records are not part of the project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from recorded import DATA, row

from selverify.audit.log import RecordedList
from selverify.audit.training_log import read_lists
from selverify.ranker import CandidateList, Ranker

LOGS = {
    "PRM800K": "prm800k_phase1test_candidates.jsonl.gz",
    "Game of 24": "game24_tot_states.jsonl.gz",
}
MEASURES = {"calls": 2, "calls_ratio": 3, "found": 3}
"""Decimals of what a ranker promises."""


@dataclass(frozen=True)
class Kept:
    """What a ranker promised, and what it kept, by the names of ``Described.promised``.

    ``familiar``: the share of the other half's states that it knew. ``all``: calls a state where
    every candidate is verified.
    """

    promised: dict[str, float]
    kept: dict[str, float]
    familiar: float
    all: float


def halves(file: str) -> tuple[list[RecordedList], list[RecordedList]]:
    """The lists of every other problem, and the rest."""
    lists, _ = read_lists(DATA / "candidates" / file)
    names = sorted({one.problem_id for one in lists})
    first = set(names[::2])
    return (
        [one for one in lists if one.problem_id in first],
        [one for one in lists if one.problem_id not in first],
    )


def asked(one: RecordedList) -> CandidateList:
    """As a search would ask of it."""
    return CandidateList(one.question, one.prefix, [each.text for each in one.candidates])


def trained_on(lists: Sequence[RecordedList]) -> Ranker:
    """As the command trains one, written and read again."""
    with TemporaryDirectory() as folder:
        Ranker.train(lists).save(f"{folder}/ranker")
        return Ranker.load(f"{folder}/ranker")


def kept_by(ranker: Ranker, lists: Sequence[RecordedList]) -> Kept:
    """Follow its plans on lists that it was not trained on."""
    plans = ranker.plan_many([asked(one) for one in lists])
    calls, found, reachable = 0, 0, 0
    for one, plan in zip(lists, plans, strict=True):
        right = {place for place, each in enumerate(one.candidates) if each.label}
        calls += plan.verify
        several = len({each.text for each in one.candidates}) > 1
        reachable += several and bool(right)
        found += several and bool(right & set(plan.order[: max(plan.verify, 1)]))
    # Of equal texts one is verified.
    distinct = sum(len({each.text for each in one.candidates}) for one in lists)
    kept = {
        "calls": calls / len(lists),
        "calls_ratio": calls / distinct,
        "found": found / reachable,
    }
    familiar = sum(plan.familiar for plan in plans) / len(plans)
    return Kept(ranker.described.promised, kept, familiar, distinct / len(lists))


def section() -> Iterator[str]:
    """What both halves of both logs promised of each other, and kept."""
    yield "## Rankers of half a log\n"
    yield (
        "`selverify train` with its usual settings on every other problem, and its card's promise "
        "(of rankers that did not see the problem, under a rule chosen on that half) beside what "
        "its plans do on the other half: calls a state, their share of verifying every candidate, "
        "and in which share of the states with a right one among several candidates one is found. "
        "An interval of the promise is of its mean, so a half that differs by chance can leave "
        "it.\n"
    )
    yield "| log, trained on | | promised [95 %] | kept | inside |"
    yield "| --- | --- | ---: | ---: | --- |"
    notes = []
    for log, file in LOGS.items():
        parts = halves(file)
        for name, own, others in (("first half", *parts), ("second half", *parts[::-1])):
            told = kept_by(trained_on(own), others)
            yield from _rows(f"{log}, {name}", told)
            notes.append(f"{told.familiar:.1%} of {len(others):,} ({log}, {name})")
    yield f"\nStates of the other half that a ranker took for familiar: {', '.join(notes)}."


def _rows(name: str, told: Kept) -> Iterator[str]:
    words = {
        "calls": f"calls of {told.all:.2f}",
        "calls_ratio": "share of all calls",
        "found": "found",
    }
    for measure, digits in MEASURES.items():
        low, high = (told.promised[f"{measure}_{end}"] for end in ("low", "high"))
        kept = told.kept[measure]
        promised = f"{told.promised[measure]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
        inside = "yes" if low <= kept <= high else "above" if kept > high else "below"
        yield row((name, words[measure], promised, f"{kept:.{digits}f}", inside))
        name = ""
