"""Records that others wrote, as JSON or Parquet, within caps that a hostile file meets first.

Knows: files, gzip, JSON, tables, how a fault becomes one sentence. Does not know: what a record
means.
"""

from __future__ import annotations

import gzip
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from selverify.errors import ArtifactError, SchemaError, SelverifyError

LONGEST_LINE = 16 << 20
"""Bytes of one line, decompressed."""
LONGEST_VALUE = 64 << 20
"""Bytes of a file that is one JSON value, decompressed."""
MOST_LINES = 2_000_000
MOST_BYTES = 4 << 30
"""Bytes of one file of lines, decompressed: what a gzip bomb meets."""
COMPRESSED, PARQUET = ".gz", ".parquet"
_BOM_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_GZIP = b"\x1f\x8b"

_SHOWN = Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 60
_SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxdict = 2
_SHOWN.maxlevel = 2
_EXPECTATIONS = {
    "extra_forbidden": "no such field",
    "model_type": "an object",
    "string_pattern_mismatch": "no control characters",
}
_PLAIN = re.compile(r"[A-Za-z0-9_]{1,40}")
_MOST_PARTS = 8
"""Of a field's place, in a message: a tree may be deep."""
_EXPECTED = re.compile(r"^(?:\w+ should (?:be|have) )")
_ROWS_AT_ONCE = 8
"""Of a table; its rows may be large."""
_PART = 1 << 20
"""Bytes of a file at once, while its lines are counted."""

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Record:
    """One value of a file: its place in words, its number from 1, and the value."""

    where: str
    number: int
    value: object


def suffix_of(path: Path) -> str:
    """The last suffix of a name, in lower case."""
    return path.suffix.lower()


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbers from 1 and bytes of the lines that are not blank; ``.gz`` is decompressed.

    A file that exceeds a cap as a whole is refused before its first line.

    Raises:
        ArtifactError: no such file.
        SchemaError: a cap is exceeded, or the gzip stream is broken.
    """
    lines = total = number = 0
    with _opened(path) as file:
        while part := file.read(_PART):
            lines, total = lines + part.count(b"\n"), total + len(part)
            _require(str(path), lines, MOST_LINES, "lines")
            _require(str(path), total, MOST_BYTES, "bytes")
    with _opened(path) as file:
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            _require(f"{path}, line {number}", len(line), LONGEST_LINE, "bytes of a line")
            if line.strip():
                yield number, line


def read_records(path: Path) -> Iterator[Record]:
    """The values of a file of JSON lines, the items of a JSON list, or the one value of a file.

    Raises:
        ArtifactError: no such file.
        SchemaError: it is no JSON, or exceeds a cap.
    """
    if not _is_one_value(path):
        for number, line in read_lines(path):
            where = f"{path}, line {number}"
            yield Record(where, number, _parsed(line, where))
        return
    with _opened(path) as file:
        data = file.read(LONGEST_VALUE + 1)
    _require(str(path), len(data), LONGEST_VALUE, "bytes of one JSON value")
    value = _parsed(data, str(path))
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        yield Record(f"{path}, record {number}", number, item)


def first_value(path: Path) -> object:
    """The first value of a file; None where there is none, or none that can be read."""
    try:
        return next((record.value for record in read_records(path)), None)
    except SelverifyError:
        return None


@contextmanager
def opened_table(path: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet table, closed afterwards.

    Raises:
        ArtifactError: no such file.
        SchemaError: it is no table, now or while it is read, or has more rows than the cap.
    """
    _require_file(path, "a Parquet table")
    try:
        with pq.ParquetFile(path) as table:
            if (rows := table.metadata.num_rows) > MOST_LINES:
                raise SchemaError(f"{path}: given {rows:,} rows, expected at most {MOST_LINES:,}")
            yield table
    except (pa.ArrowException, OSError) as error:
        raise SchemaError(f"{path}: expected a Parquet table: {error}") from error


def table_records(table: pq.ParquetFile, path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """The rows of the table at ``path``, of these columns only.

    Raises:
        SchemaError: rows that are too large, or that Python cannot hold.
    """
    number = 0
    for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(columns)):
        if batch.nbytes > _ROWS_AT_ONCE * LONGEST_LINE:
            raise SchemaError(
                f"{path}: given {batch.nbytes:,} bytes in {batch.num_rows} rows, "
                f"expected at most {LONGEST_LINE:,} bytes a row"
            )
        for value in _values(batch, path):
            number += 1
            yield Record(f"{path}, row {number}", number, value)


def validated(model: type[_Model], value: object, where: str) -> _Model:
    """``value`` as a ``model``.

    Raises:
        SchemaError: it is none; the message names the field, what was given and expected.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise SchemaError(f"{where}: {fault(error)}") from error


def fault(error: ValidationError, *, inside: int = 0) -> str:
    """The first fault as a sentence; ``inside`` parts of its location name no field."""
    first = error.errors(include_url=False)[0]
    kind, message = first["type"], first["msg"]
    field = _place(first["loc"][inside:]) or "the entry"
    if kind == "missing":
        return f"{field}: not given, expected in every record"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    given = f"{field}: given {shown(first['input'])}"
    return f"{given}, expected {_EXPECTATIONS.get(kind) or _EXPECTED.sub('', message)}"


def shown(value: object) -> str:
    """A value cut short, for a message."""
    if isinstance(value, bytes):
        value = value[: _SHOWN.maxstring * 2].decode("utf-8", errors="replace")
    try:
        return _SHOWN.repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of too many digits"


def _place(parts: Sequence[str | int]) -> str:
    """The end of a field's place; a key that is no plain word is shown as a string cut short."""
    named = [
        part if isinstance(part, str) and _PLAIN.fullmatch(part) else shown(part)
        for part in parts[-_MOST_PARTS:]
    ]
    return ".".join(["...", *named] if len(parts) > _MOST_PARTS else named)


def _parsed(data: bytes, where: str) -> object:
    """The JSON value that ``data`` holds; without infinities and NaN."""
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise SchemaError(f"{where}: given {shown(data)}, expected JSON: {error}") from error


def _values(batch: pa.RecordBatch, path: Path) -> list[dict[str, Any]]:
    try:
        values: list[dict[str, Any]] = batch.to_pylist()
    # Text that is no UTF-8, a date beyond Python's, a time zone that is not known.
    except (ValueError, OverflowError, LookupError) as error:
        raise SchemaError(
            f"{path}: expected a Parquet table of text and numbers: {error}"
        ) from error
    return values


@contextmanager
def _opened(path: Path) -> Iterator[BufferedIOBase]:
    try:
        _require_file(path, "one of JSON lines")
        with gzip.open(path) if suffix_of(path) == COMPRESSED else path.open("rb") as file:
            _skip_mark(file, path)
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SchemaError(f"{path}: expected a whole gzip file: {error}") from error
    except ArtifactError:
        raise
    except OSError as error:
        raise ArtifactError(
            f"{path}: not read ({error.strerror or error}), expected a file that can be read"
        ) from error


def _require_file(path: Path, expected: str) -> None:
    if path.is_file():
        return
    if path.is_fifo():
        raise ArtifactError(f"{path}: given a pipe, expected a file, because it is read twice")
    raise ArtifactError(f"{path}: no such file; expected {expected}")


def _skip_mark(file: gzip.GzipFile | BufferedReader, path: Path) -> None:
    """Read past a byte order mark.

    Raises:
        SchemaError: the first bytes are those of UTF-16, or of gzip without its suffix.
    """
    start = file.peek(len(BOM_UTF8))
    if start.startswith(_BOM_UTF16):
        raise SchemaError(f"{path}: given UTF-16, expected UTF-8")
    if start.startswith(_GZIP):
        raise SchemaError(f"{path}: given gzip, expected a name that ends in {COMPRESSED}")
    if start.startswith(BOM_UTF8):
        file.read(len(BOM_UTF8))


def _require(where: str, found: int, most: int, unit: str) -> None:
    if found > most:
        raise SchemaError(f"{where}: given more than {most:,} {unit}, expected at most as many")


def _is_one_value(path: Path) -> bool:
    """A list, or in a file called ``.json`` a value of which the first line is only a part."""
    with _opened(path) as file:
        # No more than a line may hold: a longer one is part of a value, if anything.
        first = file.read(LONGEST_LINE + 1).lstrip().partition(b"\n")[0]
    if first.startswith(b"["):
        return True
    if suffix_of(path.with_suffix("") if suffix_of(path) == COMPRESSED else path) != ".json":
        return False
    try:
        from_json(first)
    except ValueError:
        return bool(first)
    return False
