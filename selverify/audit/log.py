"""Our own log of a run: JSON lines, one entry each, read strictly and written whole or not at all.

Knows: the file and its rules. Does not know: formats of others, what is computed from a log.
A line is a ``RecordedList`` or a ``RecordedSample``, told apart by ``kind``. A file whose name ends
in ``.gz`` is compressed. The caps of ``selverify.audit.lines`` hold, and one of all entries
together. ``python -m selverify.audit.log`` prints the JSON schema of a line.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from selverify.audit.lines import (
    COMPRESSED,
    LONGEST_LINE,
    MOST_BYTES,
    MOST_LINES,
    fault,
    read_lines,
    shown,
)
from selverify.audit.schema import RecordedList, RecordedSample
from selverify.errors import SchemaError
from selverify.storage import atomic_path

MOST_PARTS = 4_000_000
"""Candidates, steps and step scores of all entries: packed, a few bytes hold thousands of them."""

Entry = RecordedList | RecordedSample
Key = tuple[str | int, ...]

_ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class Log:
    """What a file holds, in its order."""

    lists: tuple[RecordedList, ...]
    samples: tuple[RecordedSample, ...]


def read_log(path: Path) -> Log:
    """The entries of a log.

    Raises:
        ArtifactError: no such file.
        SchemaError: a line is no entry, an entry stands twice, or a cap is exceeded.
    """
    lists: list[RecordedList] = []
    samples: list[RecordedSample] = []
    for entry in _once(_within_cap(_entries(path))):
        if isinstance(entry, RecordedList):
            lists.append(entry)
        else:
            samples.append(entry)
    return Log(tuple(lists), tuple(samples))


def write_log(entries: Iterable[Entry], path: Path) -> None:
    """Write a log that ``read_log`` reads back; equal entries, equal bytes.

    Raises:
        SchemaError: an entry stands twice, or exceeds a cap by itself or together with those
            before it; nothing is written.
    """
    numbered = ((f"{path}, entry {number}", one) for number, one in enumerate(entries, start=1))
    with atomic_path(path) as temporary, _writing(temporary, path.suffix) as file:
        total = 0
        for number, entry in enumerate(_once(_within_cap(numbered)), start=1):
            line = entry.model_dump_json(exclude_none=True).encode() + b"\n"
            total += len(line)
            if len(line) > LONGEST_LINE or number > MOST_LINES or total > MOST_BYTES:
                raise SchemaError(
                    f"{path}, entry {number}: given {len(line):,} bytes, {total:,} with those "
                    f"before it, expected at most {LONGEST_LINE:,} of a line, {MOST_BYTES:,} in "
                    f"all and {MOST_LINES:,} lines"
                )
            file.write(line)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a line. That ``committed`` is a candidate's place it cannot say."""
    schema = _ENTRY.json_schema()
    for model in (RecordedList, RecordedSample):
        # An entry built in Python need not name its kind; a line must.
        schema["$defs"][model.__name__]["required"].insert(0, "kind")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """The schema as the text of the file that the project keeps."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _entries(path: Path) -> Iterator[tuple[str, Entry]]:
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        try:
            yield where, _ENTRY.validate_json(line)
        except ValidationError as error:
            raise SchemaError(f"{where}: {_fault(error)}") from error


def _fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if first["type"] == "union_tag_not_found":
        return "kind: not given, expected list or sample"
    if first["type"] == "union_tag_invalid":
        return f"kind: given {shown(first['ctx']['tag'])}, expected list or sample"
    if first["type"] == "json_invalid":
        return f"given {shown(first['input'])}, expected JSON: {first['ctx']['error']}"
    return fault(error, inside=1)  # the first part of a location is the kind


def _within_cap(entries: Iterable[tuple[str, Entry]]) -> Iterator[tuple[str, Entry]]:
    """The entries while they are small enough together."""
    parts = 0
    for where, entry in entries:
        if isinstance(entry, RecordedList):
            parts += len(entry.prefix) + len(entry.candidates)
        else:
            parts += len(entry.steps) + len(entry.step_scores or ())
        if parts > MOST_PARTS:
            raise SchemaError(
                f"{where}: given more than {MOST_PARTS:,} candidates, steps and step scores up to "
                "here, expected at most as many in a log; split it"
            )
        yield where, entry


def _once(entries: Iterable[tuple[str, Entry]]) -> Iterator[Entry]:
    """The entries, none of which may have the names of an earlier one."""
    seen: set[Key] = set()
    for where, entry in entries:
        key = _key(entry)
        if key in seen:
            names = ", ".join(shown(part) for part in key[1:])
            raise SchemaError(f"{where}: given the {entry.kind} {names} again, expected each once")
        seen.add(key)
        yield entry


def _key(entry: Entry) -> Key:
    if isinstance(entry, RecordedList):
        return (entry.kind, entry.run, entry.state_id)
    return (entry.kind, entry.run, entry.problem_id, entry.sample)


@contextmanager
def _writing(path: Path, suffix: str) -> Iterator[BufferedIOBase]:
    with path.open("wb") as file:
        if suffix != COMPRESSED:
            yield file
            return
        # Neither a name nor a time in the header: equal entries give equal bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed


if __name__ == "__main__":
    sys.stdout.write(schema_text())
