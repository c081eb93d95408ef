"""Samples of solutions, one a row: what benchmarks of reward models pass on, as samples.

Knows: a plain layout of JSON lines. Does not know: whose they are.

A row has ``unique_id`` or ``problem_id``; ``cand``, the sample's place from 0; ``steps``, or
``text`` with empty lines between steps. It may have ``prm`` (scores by step, or an object with
one such list, whose key names the reward model), ``gold``, ``answer``, ``correct``, ``n_tokens``,
``run``, ``repo``, ``model`` and ``question``. Other fields are not read. Without ``run`` the file
is the run; ``repo`` is put before it, where equal runs of several repositories are together.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from selverify.audit.importers.base import NOT_RECORDED, STEP_END, Foreign, Imported, SourceFile
from selverify.audit.log import Name, Placed, RecordedSample, Score, Text
from selverify.audit.records import Record, read_records, validated
from selverify.errors import SchemaError


class _Row(Foreign):
    unique_id: Name | None = None
    problem_id: Name | None = None
    cand: Annotated[int, Field(ge=0)]
    steps: list[Text] | None = None
    text: Text | None = None
    prm: list[Score] | dict[str, list[Score]] | None = None
    gold: Text | None = None
    answer: Text | None = None
    correct: bool | None = None
    n_tokens: Annotated[int, Field(ge=0)] | None = None
    repo: Name | None = None
    run: Name | None = None
    model: Name | None = None
    question: Text | None = None


def read_sample_rows(_: Path, source: SourceFile, imported: Imported) -> Iterator[Placed]:
    """A sample a row."""
    for record in read_records(source.file):
        yield record.where, _sample(record, source.run, imported)


def _sample(record: Record, run: str, imported: Imported) -> RecordedSample:
    row = validated(_Row, record.value, record.where)
    steps = row.text.split(STEP_END) if row.steps is None and row.text is not None else row.steps
    problem = row.unique_id or row.problem_id
    if problem is None or steps is None:
        raise SchemaError(
            f"{record.where}: given {'no id' if problem is None else 'neither steps nor text'}, "
            f"expected unique_id or problem_id, and steps or text"
        )
    scores = _scores(row, record.where)
    if scores is not None and len(scores) != len(steps):
        imported.remark("samples whose step scores are not as many as their steps")
    fields = row.model_dump(include={"question", "gold", "answer", "correct"}) | {
        "problem_id": problem,
        "run": f"{row.repo}: {row.run or run}" if row.repo else row.run or run,
        "model": row.model or NOT_RECORDED,
        "sample": row.cand,
        "steps": steps,
        "step_scores": scores,
        "tokens": row.n_tokens,
    }
    return validated(RecordedSample, fields, record.where)


def _scores(row: _Row, where: str) -> list[float] | None:
    """The scores of the one reward model."""
    if not isinstance(row.prm, dict):
        return row.prm or None
    if len(row.prm) != 1:
        raise SchemaError(
            f"{where}: prm: given {len(row.prm)} reward models, expected one; keep one and "
            f"import the others under runs of their own"
        )
    return next(iter(row.prm.values())) or None
