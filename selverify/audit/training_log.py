"""Candidate lists to learn a ranker from, out of whatever file records a run.

Knows: our log, the formats of others, how scored samples become lists. Does not know: verdicts,
training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from selverify.audit.importers import IMPORTERS, Imported, format_of
from selverify.audit.log import (
    MOST_ENTRIES,
    Log,
    RecordedCandidate,
    RecordedList,
    RecordedSample,
    read_log,
)
from selverify.audit.records import PARQUET, first_value
from selverify.errors import ArtifactError, SchemaError

SEARCH_AND_LEARN = "search_and_learn"


def read_lists(path: Path) -> tuple[list[RecordedList], list[str]]:
    """The candidate lists of a log, or of what ``selverify import`` reads, and what was left out.

    Samples with step scores are lists, too: of those that begin alike, the next steps are the
    candidates at one state.

    Raises:
        ArtifactError: no such file or folder.
        SchemaError: it is neither, or holds no candidate list and no sample with step scores.
    """
    if not path.exists():
        raise ArtifactError(f"{path}: no such file; expected a log, or runs of others")
    imported = Imported()
    form = _form(path)
    log = read_log(path) if form is None else Log.of(IMPORTERS[form](path, imported))
    lists = [*log.lists, *lists_of(log.samples)]
    if not lists:
        scored = sum(one.step_scores is not None for one in log.samples)
        asked = sum(one.question is not None for one in log.samples)
        raise SchemaError(
            f"{path}: given no candidate list, and {len(log.samples)} samples of which {scored} "
            f"have step scores and {asked} a question; expected lists, or samples with a question "
            "and a score for each step"
        )
    return lists, [*(imported.sentences() if form else ()), *_unused(log.samples)]


def lists_of(samples: Iterable[RecordedSample]) -> Iterator[RecordedList]:
    """One list a state that scored samples of a problem pass through, with their next steps.

    Raises:
        SchemaError: a state has more of them than a list holds.
    """
    states: dict[tuple[str, str, tuple[str, ...]], list[RecordedSample]] = {}
    named = sorted(samples, key=lambda one: (one.run, one.model, one.problem_id, one.sample))
    for one in filter(_is_usable, named):
        for place in range(len(one.steps)):
            states.setdefault((one.run, one.problem_id, one.steps[:place]), []).append(one)
    for (run, problem, prefix), own in states.items():
        place = len(prefix)
        scores = {one.steps[place]: (one.step_scores or ())[place] for one in reversed(own)}
        if len(scores) > MOST_ENTRIES:
            raise SchemaError(
                f"{problem}: given {len(scores):,} distinct steps at one state, expected at most "
                f"{MOST_ENTRIES:,}"
            )
        yield RecordedList(
            problem_id=problem,
            state_id=_name(problem, prefix),
            run=run,
            model=own[0].model,
            question=own[0].question or "",
            prefix=prefix,
            candidates=tuple(
                RecordedCandidate(text=text, score=scores[text])
                for text in dict.fromkeys(one.steps[place] for one in own)
            ),
        )


def _is_usable(sample: RecordedSample) -> bool:
    scores = len(sample.step_scores or ())
    return sample.question is not None and 0 < scores == len(sample.steps)


def _unused(samples: Sequence[RecordedSample]) -> Iterator[str]:
    unused = sum(not _is_usable(one) for one in samples)
    if unused:
        yield (
            f"{unused:,} of {len(samples):,} samples left out: without a question, or without one "
            "score a step"
        )


def _name(problem: str, prefix: tuple[str, ...]) -> str:
    text = "\x1f".join((problem, *prefix)).encode("utf-8", "surrogatepass")
    return f"samples-{hashlib.blake2b(text, digest_size=8).hexdigest()}"


def _form(path: Path) -> str | None:
    """Whose format it is; None for our own."""
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    for file in files:
        form = SEARCH_AND_LEARN if file.suffix == PARQUET else format_of(first_value(file))
        if form is not None:
            return form
    if path.is_file():
        return None
    raise SchemaError(
        f"{path}: given a folder of no known format, expected a log, or files of one of "
        f"{', '.join(IMPORTERS)}"
    )
