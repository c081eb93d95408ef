"""Recorded runs of Llama 3.2 1B and 3B by search-and-learn on MATH-500: how good their verifier is.

What is measured for the page on recorded runs; the records are not part of the project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import recorded
from recorded import DATA, Record, row
from recorded_pools import BOOTSTRAP, ONE, filtering, refused, refused_share

from selverify.audit.answer_groups import AnswerGroups, group_answers
from selverify.audit.importers import IMPORTERS
from selverify.audit.log import RecordedSample
from selverify.audit.solutions import MAJORITY
from selverify.audit.text import interval_text
from selverify.experiment.statistics import (
    Interval,
    area_under_roc_interval,
    mean_interval,
)

RUNS = "samples/sal_llama_math500.jsonl.gz"
PROBLEMS_IN_ALL = 500
REFERENCE = (0.84, 0.87)
MANY_PROBLEMS = 50
ENOUGH_TO_VOTE = 4
"""Samples a problem from which on a majority is looked at."""


@dataclass(frozen=True)
class Run:
    """One run: its samples in recorded order, and their pools.

    ``repeats``: samples whose text repeats. ``sorted_back``: samples of a run that asked for
    several completions and mixed them up between problems, which the records have put right.
    """

    label: str
    model: str
    method: str
    samples: tuple[RecordedSample, ...]
    repeats: int
    sorted_back: int
    pools: tuple[AnswerGroups, ...]


@cache
def runs(*, gated: bool) -> tuple[Run, ...]:
    """Every run, ``gated``: with what the gates refuse.

    Runs of other repositories under the same name are runs of their own.
    """
    entries = IMPORTERS["sample_rows"](DATA / RUNS)
    samples = [one for one in entries if isinstance(one, RecordedSample)]
    found: dict[tuple[str, str, str], list[tuple[Record, RecordedSample]]] = {}
    for record, sample in zip(recorded.records(RUNS), samples, strict=True):
        key = sample.run, sample.model, record["method"]
        found.setdefault(key, []).append((record, sample))
    made = [_run(*key, own, gated) for key, own in found.items()]
    return tuple(sorted(made, key=lambda one: (_size(one.model), one.method, -len(one.samples))))


def _run(
    label: str,
    model: str,
    method: str,
    own: Sequence[tuple[Record, RecordedSample]],
    gated: bool,
) -> Run:
    samples = tuple(sample for _, sample in own)
    repeats = sum(bool(record.get("dup")) for record, _ in own)
    sorted_back = sum(bool(record.get("unscrambled")) for record, _ in own)
    made = group_answers(samples, refused=refused if gated else None)
    return Run(label, model, method, samples, repeats, sorted_back, made)


def _size(model: str) -> str:
    return "1B" if "1B" in model else "3B"


def pass_at_1(run: Run) -> Interval:
    """Mean over problems of the share of right samples."""
    return mean_interval([pool.correct.mean() for pool in run.pools], BOOTSTRAP)


def verifier_auc(found: Iterable[Run]) -> tuple[Interval | None, int, int]:
    """AUC of the recorded last score against correctness, by problem; samples, and problems."""
    scored = [one for run in found for one in run.samples if one.step_scores]
    if not scored:
        return None, 0, 0
    names = [one.problem_id for one in scored]
    area = area_under_roc_interval(
        [one.step_scores[-1] for one in scored if one.step_scores],
        [bool(one.correct) for one in scored],
        clusters=names,
        bootstrap=BOOTSTRAP,
    )
    return area, len(scored), len(set(names))


def section() -> Iterator[str]:
    """The measurements as Markdown."""
    found = runs(gated=True)
    yield "## Runs of Llama 3.2 1B and 3B with a reward model: search-and-learn on MATH-500\n"
    yield from _records(found)
    yield from _table(found)
    yield from _verifier(found)
    yield from _gates(found)


def _records(found: Sequence[Run]) -> Iterator[str]:
    samples = [one for run in found for one in run.samples]
    scored = sum(one.step_scores is not None for one in samples)
    repeats = sum(run.repeats for run in found)
    mixed = [run for run in found if run.sorted_back]
    unscored = sum(one.step_scores is None for run in mixed for one in run.samples)
    problems = len({one.problem_id for one in samples})
    yield (
        f"Records: `{RUNS}`, {len(samples):,} solutions in {len(found)} runs, "
        f"{problems} of {PROBLEMS_IN_ALL} problems. Step scores: {scored:,}; missing: "
        f"{len(samples) - scored:,}, of which {unscored:,} in {len(mixed)} runs of best-of-n with "
        f"more than one completion a problem. Upstream mixed those up between the problems of a "
        f"batch and scored each with another problem's question: the {len(mixed)} runs' "
        f"{sum(run.sorted_back for run in mixed):,} completions were sorted back, and their "
        f"scores, which say nothing, dropped. `correct` was graded again. Texts that the same "
        f"model had already given to the same problem (`dup`): {repeats:,}; they stay in. "
        f"Intervals are 95 %, over problems.\n"
    )


def _table(found: Sequence[Run]) -> Iterator[str]:
    head = ("run", "method", "problems", "samples", "dup", "pass@1, %")
    yield row((*head, "AUC of the last score", "scored"))
    yield "| --- | --- | ---: | ---: | ---: | --- | --- | ---: |"
    for run in found:
        area, scored, _ = verifier_auc((run,))
        cells = (f"`{run.label}`", run.method, str(len(run.pools)), f"{len(run.samples):,}")
        accuracy = interval_text(pass_at_1(run), scale=100)
        yield row((*cells, str(run.repeats), accuracy, _area(area), f"{scored:,}"))
    yield ""


def _verifier(found: Sequence[Run]) -> Iterator[str]:
    yield "The reward model's last score against correctness, by model (reference "
    yield f"{REFERENCE[0]} to {REFERENCE[1]}):\n"
    yield row(("model", "runs", "problems", "samples", "AUC"))
    yield "| --- | ---: | ---: | ---: | --- |"
    for label, own in groups(found).items():
        area, scored, problems = verifier_auc(own)
        with_scores = sum(verifier_auc((run,))[1] > 0 for run in own)
        yield row((label, str(with_scores), str(problems), f"{scored:,}", _area(area)))
    yield ""
    for run in found:
        area, scored, problems = verifier_auc((run,))
        if area is not None and area.value < 0.5:
            yield (
                f"In `{run.label}` the scores rank wrong solutions above right ones "
                f"({_area(area)}, {scored} samples of {problems} problems). Why is not recorded; "
                f"scores that were computed with another problem's question, as upstream did "
                f"elsewhere, would look so.\n"
            )


def groups(found: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by size of the generator, all, and those on many problems."""
    sizes = {
        f"Llama 3.2 {size}": [run for run in found if _size(run.model) == size]
        for size in ("1B", "3B")
    }
    many = [run for run in found if len(run.pools) >= MANY_PROBLEMS]
    return sizes | {"both": list(found), f"both, runs on at least {MANY_PROBLEMS} problems": many}


def _gates(found: Sequence[Run]) -> Iterator[str]:
    yield "Solutions with a step that the gates refuse:\n"
    yield row(("model", "of the wrong ones, %", "wrong", "of the right ones, %", "right"))
    yield "| --- | --- | ---: | --- | ---: |"
    for label, own in groups(found).items():
        together = [pool for run in own for pool in run.pools]
        wrong, right = (refused_share(together, wrong=one) for one in (True, False))
        yield row((label, wrong[0], f"{wrong[1]:,}", right[0], f"{right[1]:,}"))
    yield "\nWhat leaving the refused solutions out does (all stay where every one is refused):\n"
    yield row(("run", "pass@1, %", "filtered: points", "majority, %", "filtered: points"))
    yield "| --- | --- | --- | --- | --- |"
    for run in found:
        if len(run.samples) >= ENOUGH_TO_VOTE * len(run.pools):
            cells = (*filtering(run.pools, ONE), *filtering(run.pools, MAJORITY))
            yield row((f"`{run.label}`", *cells))
    yield ""


def _area(found: Interval | None) -> str:
    return "-" if found is None else interval_text(found, digits=3)
