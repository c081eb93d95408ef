r"""Completions of Hugging Face's search-and-learn, as samples.

Knows: its JSON lines, and its public datasets: Parquet in ``data`` or in a folder a configuration.
Does not know: which answer is right (``correct`` is left to grading against ``gold``).

A completion is a sample; its steps are the parts between empty lines, kept as they are so that
they can be joined again, or the lines that are not empty where a reward model scored those. The
answer is what the text states. The file does not name its model: the folder that holds it, or
that of the dataset, does. Beam search fills its list up with copies, which nothing marks.

Until its fix (pull request 32) best-of-N gave the problems of a batch each other's completions. The
same fix ended the chat header at the beginning of completions, so a row of several completions with
that header is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from selverify.audit.importers.base import (
    STEP_END,
    Foreign,
    Imported,
    SourceFile,
    folder_name,
    text_id,
)
from selverify.audit.log import Name, Placed, RecordedSample, Score, Text
from selverify.audit.records import (
    PARQUET,
    Record,
    opened_table,
    read_records,
    suffix_of,
    table_records,
    validated,
)
from selverify.domains.answers import stated_answer
from selverify.errors import SchemaError

_NO_CONFIGURATION = ("data", "train", "test")
"""Folders that name no configuration."""
_HEADER = re.compile(r"\s*<\|start_header_id\|>assistant<\|end_header_id\|>")


class _Row(Foreign):
    problem: Text
    completions: list[Text]
    scores: list[list[Score]] | None = None
    answer: Text | None = None
    unique_id: Name | None = None
    completion_tokens: list[int] | int | None = None


def read_search_and_learn(path: Path, source: SourceFile, imported: Imported) -> Iterator[Placed]:
    """A sample a completion; tables without completions are left out."""
    if suffix_of(source.file) == PARQUET:
        run, model = _of_dataset(path, source)
        records = _rows(source.file, imported)
    else:
        run, model = source.run, folder_name(source.file.parent)
        records = read_records(source.file)
    for record in records:
        yield from _samples(record, run, model, imported)


def _rows(path: Path, imported: Imported) -> Iterator[Record]:
    with opened_table(path) as table:
        columns = [name for name in _Row.model_fields if name in table.schema_arrow.names]
        if {"problem", "completions"} <= set(columns):
            yield from table_records(table, path, columns)
        else:
            imported.remark("tables left out: no completions")


def _of_dataset(path: Path, source: SourceFile) -> tuple[str, str]:
    """The configuration, and the name of the dataset: the model's, mostly."""
    if not path.is_dir():
        return folder_name(path.parent), folder_name(path.parent.parent)
    folders = [part for part in Path(source.run).parent.parts if part not in _NO_CONFIGURATION]
    return "/".join(folders) or folder_name(path), folder_name(path)


def _samples(record: Record, run: str, model: str, imported: Imported) -> Iterator[Placed]:
    row = validated(_Row, record.value, record.where)
    count = len(row.completions)
    if count > 1 and any(map(_HEADER.match, row.completions)):
        imported.remark("samples left out: of a version that mixed problems up", count)
        return
    scores = _one_each(row.scores, count, "scores", record.where)
    tokens = row.completion_tokens
    if isinstance(tokens, int):  # the original's -1 for a row: not counted
        tokens = None
    counted = _one_each(tokens, count, "completion_tokens", record.where)
    for place, text in enumerate(row.completions):
        of_steps = scores[place] or None
        steps = _steps(text, of_steps)
        if of_steps is not None and len(of_steps) != len(steps):
            imported.remark("samples whose step scores are not as many as their steps")
        fields = {
            "problem_id": row.unique_id or text_id(row.problem),
            "run": run,
            "model": model,
            "question": row.problem,
            "gold": row.answer,
            "sample": place,
            "steps": steps,
            "answer": stated_answer(text),
            "step_scores": of_steps,
            # A count that was not made is 0 or -1 in the original.
            "tokens": counted[place] if (counted[place] or 0) > 0 else None,
        }
        yield record.where, validated(RecordedSample, fields, record.where)


def _one_each(values: Sequence[Any] | None, count: int, field: str, where: str) -> Sequence[Any]:
    """``values``, or as many times None."""
    if values is None:
        return [None] * count
    if len(values) != count:
        raise SchemaError(
            f"{where}: {field}: given {len(values)}, expected one for each of {count} completions"
        )
    return values


def _steps(text: str, scores: Sequence[float] | None) -> list[str]:
    parts = text.split(STEP_END)
    lines = [line for line in text.split("\n") if line]
    scored = 0 if scores is None else len(scores)
    return lines if scored == len(lines) != len(parts) else parts
