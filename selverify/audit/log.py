"""Our own log of a run: JSON lines, one entry each, read strictly and written whole or not at all.

Knows: the fields of an entry and their values, the file and its rules. Does not know: formats of
other projects, what is computed from a log.
A line is a ``RecordedList`` (candidates at a state) or a ``RecordedSample`` (a sampled solution),
distinguished by ``kind``. A file whose name ends in ``.gz`` is compressed. The caps of
``selverify.audit.records`` hold, and one of all entries together.
``python -m selverify.audit.log`` prints the JSON schema of a line.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from selverify.audit.records import (
    COMPRESSED,
    LONGEST_LINE,
    MOST_BYTES,
    MOST_LINES,
    fault,
    read_lines,
    shown,
    suffix_of,
)
from selverify.errors import SchemaError
from selverify.storage import atomic_path

LONGEST_TEXT = 200_000
"""Characters of one text; a longer one is refused."""
MOST_ENTRIES = 10_000
"""Candidates of a list, steps of a prefix or a solution."""
MOST_PARTS = 8_000_000
"""Candidates, steps and step scores of all entries: packed, a few bytes hold thousands of them."""
LONGEST_NAME = 500
LARGEST, LARGEST_COUNT = 1e15, 1 << 53
"""Of a score or log probability, either way, and of a count: their sums are finite."""
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""Names are printed: none holds what ends a line, moves a cursor or turns the text round."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=PRINTABLE)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Score = Annotated[float, Field(allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Steps = Annotated[tuple[Text, ...], Field(max_length=MOST_ENTRIES, strict=False)]


class _Strict(BaseModel):
    """A row of a log: frozen, and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RecordedCandidate(_Strict):
    """One move that was proposed at a state.

    Attributes:
        text: as the model wrote it.
        score: what the recorded verifier said, higher is better; None: it was not called.
        label: whether the move is right by a person or by exact truth; None: unknown.
        times: how often it was proposed, where repetitions were merged.
        logprob: log probability of the whole move, in nats; None: not recorded.
    """

    text: Text
    score: Score | None = None
    label: bool | None = None
    times: Annotated[Count, Field(ge=1)] = 1
    logprob: Score | None = None


class RecordedList(_Strict):
    """The candidates of one visited state, in the order in which they were recorded.

    ``prefix`` holds the moves before it. ``run`` names one run of one model: states of a problem
    that two runs visited are two. ``committed`` is the place of the move that the run went on
    with, where it is known.
    """

    kind: Literal["list"] = "list"
    problem_id: Name
    state_id: Name
    run: Name
    model: Name
    question: Text
    prefix: Steps = ()
    candidates: Annotated[
        tuple[RecordedCandidate, ...], Field(min_length=1, max_length=MOST_ENTRIES, strict=False)
    ]
    committed: Count | None = None

    @model_validator(mode="after")
    def _committed_is_a_candidate(self) -> RecordedList:
        if self.committed is not None and self.committed >= len(self.candidates):
            raise ValueError(
                f"committed: given {self.committed}, expected below {len(self.candidates)}"
            )
        return self


class RecordedSample(_Strict):
    """One sampled solution of a problem.

    ``sample`` is its place among the samples of the run. ``step_scores``: what a process reward
    model said of each step, in order; None: it was not called. ``correct``: whether the answer is
    right; None: to be graded against ``gold``. ``tokens``: how many were generated.
    """

    kind: Literal["sample"] = "sample"
    problem_id: Name
    run: Name
    model: Name
    question: Text | None = None
    gold: Text | None = None
    sample: Count
    steps: Steps
    answer: Text | None = None
    step_scores: (
        Annotated[tuple[Score, ...], Field(min_length=1, max_length=MOST_ENTRIES, strict=False)]
        | None
    ) = None
    correct: bool | None = None
    tokens: Count | None = None


LogEntry = RecordedList | RecordedSample
Placed = tuple[str, LogEntry]
"""An entry, after the place of its record in words."""

_ENTRY: TypeAdapter[LogEntry] = TypeAdapter(Annotated[LogEntry, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class Log:
    """What a file holds, in its order."""

    lists: tuple[RecordedList, ...]
    samples: tuple[RecordedSample, ...]

    @classmethod
    def of(cls, entries: Iterable[LogEntry]) -> Log:
        """The entries by their kind."""
        all_ = tuple(entries)
        return cls(
            tuple(one for one in all_ if isinstance(one, RecordedList)),
            tuple(one for one in all_ if isinstance(one, RecordedSample)),
        )


def is_entry(record: object) -> bool:
    """Whether a record names itself an entry of a log; what else it holds does not matter."""
    return isinstance(record, dict) and record.get("kind") in ("list", "sample")


def in_order(lists: Iterable[RecordedList]) -> list[RecordedList]:
    """The lists sorted by their names: what is drawn or trained is then the same in any order."""
    return sorted(lists, key=lambda one: (one.problem_id, one.run, one.state_id, one.model))


def read_log(path: Path) -> Log:
    """The entries of a log.

    Raises:
        ArtifactError: no such file.
        SchemaError: a line is no entry, an entry is repeated, or a cap is exceeded.
    """
    return accepted_log(_entries(path))


def accepted_log(entries: Iterable[Placed]) -> Log:
    """The entries as a log, by the rules of one.

    Raises:
        SchemaError: an entry is repeated, or exceeds a cap together with those before it.
    """
    return Log.of(entry for _, entry in _accepted(entries))


def write_log(entries: Iterable[LogEntry], path: Path) -> None:
    """Write a log that ``read_log`` reads back; equal entries, equal bytes.

    Raises:
        SchemaError: an entry is repeated, or exceeds a cap by itself or together with those
            before it; nothing is written.
    """
    named = ((f"{path}, entry {number}", one) for number, one in enumerate(entries, start=1))
    write_placed(named, path)


def write_placed(entries: Iterable[Placed], path: Path) -> None:
    """As ``write_log`` does; an error names the place of the entry's record.

    A link is followed: the file that it names is written.
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    with atomic_path(target) as temporary, _writing(temporary, suffix_of(path)) as file:
        total = 0
        for number, (where, entry) in enumerate(_accepted(entries), start=1):
            line = entry.model_dump_json(exclude_none=True).encode() + b"\n"
            total += len(line)
            if len(line) > LONGEST_LINE or number > MOST_LINES or total > MOST_BYTES:
                raise SchemaError(
                    f"{where}: given {len(line):,} bytes, {total:,} with those "
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


def _entries(path: Path) -> Iterator[Placed]:
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


def _accepted(entries: Iterable[Placed]) -> Iterator[Placed]:
    """The entries while they are small enough together; each has names of its own."""
    parts = 0
    seen: set[tuple[str | int, ...]] = set()
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
        key = _key(entry)
        if key in seen:
            names = ", ".join(shown(part) for part in key[1:])
            raise SchemaError(f"{where}: given the {entry.kind} {names} again, expected each once")
        seen.add(key)
        yield where, entry


def _key(entry: LogEntry) -> tuple[str | int, ...]:
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
