r"""Completions of Hugging Face's search-and-learn, as samples.

Knows: its JSON lines, and its public datasets: Parquet in ``data`` or in a folder a configuration.
Does not know: which answer is right (``correct`` is left to grading against ``gold``).

A completion is a sample; its steps are what stands between empty lines, kept as they are so that
they can be joined again, or the lines that are not empty where a reward model scored those. The
answer is what the text states. The file does not name its model: the folder that it stands in, or
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

import pyarrow as pa
import pyarrow.parquet as pq

from selverify.audit.importers.base import (
    STEP_END,
    Foreign,
    Imported,
    Source,
    folder_name,
    made,
    text_id,
)
from selverify.audit.lines import (
    LONGEST_LINE,
    MOST_LINES,
    Record,
    checked,
    read_records,
)
from selverify.audit.log import Entry
from selverify.audit.schema import Name, RecordedSample, Score, Text
from selverify.domains.answers import stated_answer
from selverify.errors import ArtifactError, SchemaError

PARQUET = ".parquet"
SPLITS = ("data", "train", "test")
"""Folders that name no configuration."""
COLUMNS = ("problem", "completions", "scores", "answer", "unique_id", "completion_tokens")
ROWS_AT_ONCE = 8
HEADER = re.compile(r"\s*<\|start_header_id\|>assistant<\|end_header_id\|>")


class _Row(Foreign):
    problem: Text
    completions: list[Text]
    scores: list[list[Score]] | None = None
    answer: Text | None = None
    unique_id: Name | None = None
    completion_tokens: list[int] | int | None = None


def read_search_and_learn(path: Path, source: Source, imported: Imported) -> Iterator[Entry]:
    """A sample a completion; tables without completions are left out."""
    if source.file.suffix == PARQUET:
        run, model = _of_dataset(path, source)
        records = _rows(source.file, imported)
    else:
        run, model = source.run, folder_name(source.file.parent)
        records = read_records(source.file)
    for record in records:
        yield from _samples(record, run, model, imported)


def _of_dataset(path: Path, source: Source) -> tuple[str, str]:
    """The configuration, and the name of the dataset: the model's, mostly."""
    if not path.is_dir():
        return folder_name(path.parent), folder_name(path.parent.parent)
    folders = [part for part in Path(source.run).parent.parts if part not in SPLITS]
    return "/".join(folders) or folder_name(path), folder_name(path)


def _samples(record: Record, run: str, model: str, imported: Imported) -> Iterator[Entry]:
    row = checked(_Row, record.value, record.where)
    count = len(row.completions)
    if count > 1 and any(map(HEADER.match, row.completions)):
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
        yield made(
            RecordedSample,
            record.where,
            problem_id=row.unique_id or text_id(row.problem),
            run=run,
            model=model,
            question=row.problem,
            gold=row.answer,
            sample=place,
            steps=steps,
            answer=stated_answer(text),
            step_scores=of_steps,
            tokens=_positive(counted[place]),
        )


def _one_each(values: Sequence[Any] | None, count: int, field: str, where: str) -> Sequence[Any]:
    """``values``, or as many times None."""
    if values is None:
        return [None] * count
    if len(values) != count:
        raise SchemaError(
            f"{where}: {field}: given {len(values)}, expected one for each of {count} completions"
        )
    return values


def _positive(tokens: int | None) -> int | None:
    """A count that was not made stands as 0 or -1 in the original."""
    return tokens if tokens is not None and tokens > 0 else None


def _steps(text: str, scores: Sequence[float] | None) -> list[str]:
    parts = text.split(STEP_END)
    lines = [line for line in text.split("\n") if line]
    scored = 0 if scores is None else len(scores)
    return lines if scored == len(lines) != len(parts) else parts


def _rows(path: Path, imported: Imported) -> Iterator[Record]:
    """The rows of a table, a few at a time."""
    number = 0
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected a Parquet table")
    try:
        with _table(path) as table:
            names = table.schema_arrow.names
            if not {"problem", "completions"} <= set(names):
                imported.remark("tables left out: no completions")
                return
            columns = [name for name in COLUMNS if name in names]
            for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns):
                if batch.nbytes > ROWS_AT_ONCE * LONGEST_LINE:
                    raise SchemaError(
                        f"{path}: given {batch.nbytes:,} bytes in {batch.num_rows} rows, "
                        f"expected at most {LONGEST_LINE:,} bytes a row"
                    )
                for value in _values(batch, path):
                    number += 1
                    yield Record(f"{path}, row {number}", number, value)
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{path}: expected a Parquet table: {error}") from error


def _table(path: Path) -> pq.ParquetFile:
    table = pq.ParquetFile(path)
    rows = table.metadata.num_rows
    if rows > MOST_LINES:
        table.close()
        raise SchemaError(f"{path}: given {rows:,} rows, expected at most {MOST_LINES:,}")
    return table


def _values(batch: pa.RecordBatch, path: Path) -> list[dict[str, Any]]:
    try:
        values: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError) as error:  # text that is no UTF-8, a date beyond Python's
        raise SchemaError(
            f"{path}: expected a Parquet table of text and numbers: {error}"
        ) from error
    return values
