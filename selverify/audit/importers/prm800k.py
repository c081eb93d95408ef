"""PRM800K (OpenAI), both phases: steps that people rated, as candidate lists.

Knows: its JSON lines, and the rows in which its candidates were passed on without their records.
Does not know: what the ratings are used for.

A step of a record is a state; its completions are the candidates. A rating of 1 is the label true,
-1 is false, none is none. A rating of 0 (ambiguous, subtly misleading, or valid without helping) is
the label true as well: a choice, under which more is accepted; rows with labels made the same one
and do not tell which of theirs were 0. What was chosen goes into the prefix of later states. Where
people went on with a step of their own, it goes into the prefix but is no candidate: the model did
not propose it, whether or not one of its own completions was right. After a step without a choice
the prefix is unknown. Control and screening questions, which many people were given, are runs of
their own. A problem has the id of its text.

Rows name the chosen step by its text, some without the answer that ends the completion: a candidate
that is the same before its answer is taken for it, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from selverify.audit.importers.base import (
    Foreign,
    Imported,
    Label,
    SourceFile,
    as_label,
    text_id,
)
from selverify.audit.log import Name, Placed, RecordedList, Text
from selverify.audit.records import Record, read_records, validated
from selverify.errors import SchemaError

_MODEL = "PRM800K generator"
_BROKEN = "bad_problem"
_BY_PEOPLE = "steps by people kept in prefixes, not as candidates"
_ANSWER = "\n\n# Answer"
"""What precedes the answer in a completion that ends a solution."""


class _Completion(Foreign):
    text: Text
    rating: Annotated[int, Field(ge=-1, le=1)] | None = None


class _Human(Foreign):
    text: Text


class _Step(Foreign):
    completions: list[_Completion] | None
    human_completion: _Human | None = None
    chosen_completion: Annotated[int, Field(ge=0)] | None = None


class _Question(Foreign):
    problem: Text


class _Labelled(Foreign):
    steps: list[_Step]
    finish_reason: Text | None = None


class _Record(Foreign):
    question: _Question
    label: _Labelled
    is_quality_control_question: bool = False
    is_initial_screening_question: bool = False


class _RowCandidate(Foreign):
    text: Text
    label: Label | None = None


class _Row(Foreign):
    """A state by itself; ``prefix`` is null where it is unknown."""

    state_id: Name
    problem: Text
    prefix: list[Text] | None
    candidates: list[_RowCandidate]
    committed: Text | None = None
    math500_id: Name | None = None


def read_prm800k(_: Path, source: SourceFile, imported: Imported) -> Iterator[Placed]:
    """A list a step that has completions and a known prefix."""
    for record in read_records(source.file):
        if isinstance(record.value, dict) and "candidates" in record.value:
            yield from _of_row(record, source.run, imported)
        else:
            yield from _of_record(record, source.run, imported)


def _of_record(record: Record, run: str, imported: Imported) -> Iterator[Placed]:
    found = validated(_Record, record.value, record.where)
    if found.label.finish_reason == _BROKEN:
        imported.remark("records left out: the problem was called broken")
        return
    prefix: tuple[str, ...] | None = ()
    for number, step in enumerate(found.label.steps, start=1):
        if prefix is None:
            imported.remark("states left out: no choice was recorded before them")
            continue
        where = f"{record.where}, step {number}"
        if step.completions:
            fields = {
                "problem_id": text_id(found.question.problem),
                "state_id": f"{record.number}-{number}",
                "run": run + _purpose(found),
                "model": _MODEL,
                "question": found.question.problem,
                "prefix": prefix,
                "candidates": [
                    {"text": one.text, "label": None if one.rating is None else one.rating >= 0}
                    for one in step.completions
                ],
                "committed": step.chosen_completion,
            }
            yield where, validated(RecordedList, fields, where)
        else:
            imported.remark("states left out: no completion")
        chosen = _chosen(step, where)
        if chosen is not None and step.chosen_completion is None:
            imported.remark(_BY_PEOPLE)
        prefix = None if chosen is None else (*prefix, chosen)


def _purpose(record: _Record) -> str:
    if record.is_initial_screening_question:
        return ", screening"
    return ", quality control" if record.is_quality_control_question else ""


def _chosen(step: _Step, where: str) -> str | None:
    """The text that the solution went on with, if any."""
    if step.chosen_completion is None:
        return None if step.human_completion is None else step.human_completion.text
    completions = step.completions or []
    if step.chosen_completion >= len(completions):
        raise SchemaError(
            f"{where}: chosen_completion: given {step.chosen_completion}, "
            f"expected below {len(completions)}"
        )
    return completions[step.chosen_completion].text


def _of_row(record: Record, run: str, imported: Imported) -> Iterator[Placed]:
    row = validated(_Row, record.value, record.where)
    texts = [one.text for one in row.candidates]
    if row.prefix is None:
        imported.remark("states left out: their prefix is unknown")
        return
    if not texts:
        imported.remark("states left out: no completion")
        return
    fields = {
        "problem_id": row.math500_id or text_id(row.problem),
        "state_id": row.state_id,
        "run": run,
        "model": _MODEL,
        "question": row.problem,
        "prefix": row.prefix,
        "candidates": [{"text": one.text, "label": as_label(one.label)} for one in row.candidates],
        "committed": None if row.committed is None else _place(row.committed, texts, imported),
    }
    yield record.where, validated(RecordedList, fields, record.where)


def _place(committed: str, texts: Sequence[str], imported: Imported) -> int | None:
    """Of the candidate that ``committed`` is, if it is one."""
    if committed in texts:
        return texts.index(committed)
    same = [place for place, text in enumerate(texts) if text.partition(_ANSWER)[0] == committed]
    if not same:
        imported.remark(_BY_PEOPLE)
    elif len(same) > 1:
        imported.remark("states without a choice: candidates differ in their answers only")
    else:
        imported.remark("choices matched by what stands before their answer")
    return same[0] if len(same) == 1 else None
