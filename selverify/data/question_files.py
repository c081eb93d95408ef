"""Records of a file of questions, within caps that a hostile file meets first.

Knows: JSON lines, gzip, JSON lists, Parquet, how a fault is told in one sentence. Does not know:
which fields a question needs, benchmarks, splits.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from selverify.errors import ParamsError, SchemaError

MAX_FILE = 1 << 30
"""Bytes of a file, compressed or not."""
MAX_LIST = 1 << 25
"""Bytes of a .json file, which cannot be read record by record."""
MAX_LINE = 1 << 20
"""Bytes of a line."""
MAX_RECORDS = 1_000_000
_MAX_NAME = 200
"""Characters of an id, a level or a subject."""
SHOWN = 60  # characters of what was given, in a message
_ROWS = 64  # of a Parquet file at a time: its cells may be large

QUESTION_FIELDS = ("question", "problem")
ANSWER_FIELDS = ("answer", "final_answer", "expected_answer", "gold")
SOLUTION_FIELD = "solution"
ID_FIELDS = ("unique_id", "id")
SUBJECT_FIELDS = ("subject", "type")
FIELDS = frozenset(
    {*QUESTION_FIELDS, *ANSWER_FIELDS, SOLUTION_FIELD, *ID_FIELDS, *SUBJECT_FIELDS, "level"}
)

_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """The fields of a record, its number from 0, and its place for messages."""

    place: str
    number: int
    fields: Mapping[str, object]

    def text(self, *names: str) -> str | None:
        """The first of these fields that is not empty, without outer spaces.

        CR LF is read as a newline.

        Raises:
            SchemaError: it is neither text nor a number.
        """
        for name in names:
            value = self.fields.get(name)
            missing = value is None or (isinstance(value, float) and math.isnan(value))
            if isinstance(value, bool) or not (missing or isinstance(value, str | int | float)):
                given = type(value).__name__
                raise SchemaError(
                    f"{self.place}: field {name!r}: given a {given}, expected text or a number"
                )
            if not missing and (text := str(value).strip()):
                return text.replace("\r\n", "\n")
        return None

    def readable(self, text: str, *, what: str, most: int) -> str:
        """The same text.

        Raises:
            SchemaError: it is longer than ``most`` characters or holds a control character other
                than a newline or a tab.
        """
        if len(text) > most:
            raise SchemaError(
                f"{self.place}: given {what} of {len(text)} characters, expected at most {most}"
            )
        if found := _UNREADABLE.search(text):
            raise SchemaError(
                f"{self.place}: given {what} with {found[0]!r} at character {found.start() + 1}, "
                f"expected no control characters but newlines and tabs"
            )
        return text

    def name(self, what: str, *names: str) -> str | None:
        """A short text such as an id, or None."""
        text = self.text(*names)
        return None if text is None else self.readable(text, what=what, most=_MAX_NAME)


def question_records(path: Path) -> Iterator[QuestionRecord]:
    """The records of a file, whatever its kind.

    Raises:
        SchemaError: it is too large, of another kind than its name says, or holds no objects.
    """
    suffix = suffix_of(path)
    try:
        if (size := path.stat().st_size) > MAX_FILE:
            raise SchemaError(f"{path}: given {size} bytes, expected at most {MAX_FILE}")
        for number, (place, value) in enumerate(READERS[suffix](path)):
            if not isinstance(value, dict):
                given = type(value).__name__
                raise SchemaError(f"{place}: given a {given}, expected an object")
            yield QuestionRecord(place, number, value)
    except (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise SchemaError(
            f"{path}: expected a {suffix} file, and reading says: {reason}"
        ) from error


def suffix_of(path: Path) -> str:
    """Which of ``READERS`` reads a file of this name.

    Raises:
        ParamsError: none does.
    """
    for suffix in READERS:
        if path.name.endswith(suffix):
            return suffix
    raise ParamsError(f"{path}: given a file of another kind, expected {', '.join(READERS)}")


def _json_lines(path: Path) -> Iterator[tuple[str, object]]:
    """A line over the cap is cut one byte above it; a gzip file is unpacked as it is read."""
    number = total = 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while line := file.readline(MAX_LINE + 1):
            number, total, place = number + 1, total + len(line), f"{path}, line {number + 1}"
            if len(line) > MAX_LINE or total > MAX_FILE or number > MAX_RECORDS:
                raise SchemaError(
                    f"{place}: given a line of {len(line)} bytes, {total} bytes up to here; "
                    f"expected at most {MAX_LINE} a line, {MAX_FILE} in all, and {MAX_RECORDS} "
                    f"lines"
                )
            if line.strip():
                yield place, _parsed(line, place)


def _json_list(path: Path) -> Iterator[tuple[str, object]]:
    size = path.stat().st_size
    if size > MAX_LIST:
        raise SchemaError(
            f"{path}: given {size} bytes, expected at most {MAX_LIST} in a .json; use .jsonl"
        )
    values = _parsed(path.read_bytes(), str(path))
    if not isinstance(values, list):
        raise SchemaError(f"{path}: given a {type(values).__name__}, expected a list of records")
    for number, value in enumerate(values, 1):
        yield f"{path}, record {number}", value


def _parsed(content: bytes, place: str) -> object:
    """JSON, with or without a byte order mark; numbers stay as they are written, NaN is None."""
    try:
        text = content.removeprefix(BOM_UTF8).decode()
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=lambda _: None)
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"{place}: given {error.object[error.start]:#x} at byte {error.start + 1}, "
            f"expected UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{place}: given {content[:SHOWN]!r}, expected JSON: {error}") from error


def _parquet_rows(path: Path) -> Iterator[tuple[str, object]]:
    with pq.ParquetFile(path) as file:
        _check_size(path, file.metadata)
        columns = [name for name in file.schema_arrow.names if name in FIELDS]
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
            for row in range(batch.num_rows):
                number += 1
                place = f"{path}, row {number}"
                yield place, {name: _cell(batch, name, row, place) for name in columns}


def _check_size(path: Path, metadata: pq.FileMetaData) -> None:
    rows = metadata.num_rows
    unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if rows > MAX_RECORDS:
        raise SchemaError(f"{path}: given {rows} rows, expected at most {MAX_RECORDS}")
    if unpacked > MAX_FILE:
        raise SchemaError(f"{path}: given {unpacked} unpacked bytes, expected at most {MAX_FILE}")


def _cell(batch: pa.RecordBatch, name: str, row: int, place: str) -> object:
    try:
        column = batch.column(name)
        value = column[row].as_py()
        if value is not None and pa.types.is_float32(column.type):
            return float(str(np.float32(value)))  # 0.1, not 0.10000000149011612
        return value
    except (ValueError, LookupError, OverflowError) as error:  # whatever type the column has
        raise SchemaError(
            f"{place}: field {name!r}: expected text or a number, and reading says: {error}"
        ) from error


READERS: Mapping[str, Callable[[Path], Iterator[tuple[str, object]]]] = MappingProxyType(
    {
        ".jsonl": _json_lines,
        ".jsonl.gz": _json_lines,
        ".json": _json_list,
        ".parquet": _parquet_rows,
    }
)
"""How a file whose name ends so is read: the place of each record, and the record."""
