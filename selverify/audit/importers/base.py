"""What importers share: files, records of others, and a count of what was left out and why.

Knows: how a record is checked and an entry made. Does not know: any format.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from selverify.audit.lines import COMPRESSED, fault
from selverify.audit.log import Entry
from selverify.audit.schema import LONGEST_NAME, PRINTABLE, RecordedList, RecordedSample
from selverify.errors import ArtifactError, SchemaError, SelverifyError

JSON_FILES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
NOT_RECORDED = "not recorded"
"""The model of a run whose file does not name it."""
STEP_END = "\n\n"
MOST_FAULTS = 10
"""Files that could not be read which are named to people."""


def _as_number(label: object) -> object:
    return int(label) if isinstance(label, bool) else label


Label = Annotated[int, Field(ge=0, le=1), BeforeValidator(_as_number)]
"""0, 1, false or true."""
Made = TypeVar("Made", RecordedList, RecordedSample)


class Foreign(BaseModel):
    """A record of another project: the fields that are read are checked, others may be there."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


@dataclass(slots=True)
class Imported:
    """How many entries an importer gave, and what it did not translate, by reason.

    It is filled while the importer is read, so it is complete only when that ended. ``faults`` are
    the reasons why files of a folder were left out, each with its file.
    """

    entries: int = 0
    remarks: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def remark(self, reason: str, times: int = 1) -> None:
        """``reason`` is a plural: what was left out or is not as it was recorded."""
        if times:
            self.remarks[reason] += times

    def sentences(self) -> tuple[str, ...]:
        """For people: the number of entries, each remark with its number, the files left out."""
        head = f"{self.entries:,} {'entry' if self.entries == 1 else 'entries'}"
        told = [f"file left out: {fault}" for fault in self.faults[:MOST_FAULTS]]
        if len(self.faults) > MOST_FAULTS:
            told.append(f"{len(self.faults) - MOST_FAULTS:,} more files left out")
        return (head, *(f"{times:,} {what}" for what, times in self.remarks.most_common()), *told)


@dataclass(frozen=True, slots=True)
class Importer:
    """Reads files of another project as entries.

    Attributes:
        title: what it reads, in a line.
        read: entries of a source in what was given; what is not translated goes into the count.
        marks: fields that a record has in one of the format's layouts and in no other format.
        suffixes: of the files that are read in a folder.
    """

    title: str
    read: Callable[[Path, Source, Imported], Iterator[Entry]]
    marks: tuple[frozenset[str], ...]
    suffixes: tuple[str, ...] = JSON_FILES

    def __call__(self, path: Path, imported: Imported | None = None) -> Iterator[Entry]:
        """The entries of a file or a folder, one after the other; ``imported`` counts.

        Of a folder, a file that cannot be read is left out as a whole.

        Raises:
            ArtifactError: there is no such file, or the folder holds none of the format.
            SchemaError: a record is not of the format, and no file of the folder gives an entry;
                the message says where and why.
        """
        counted = Imported() if imported is None else imported
        found = sources(path, self.suffixes)
        for source in found:
            whole = self._whole if path.is_dir() else self.read
            for entry in whole(path, source, counted):
                counted.entries += 1
                yield entry
        if counted.faults and not counted.entries:
            raise SchemaError(
                f"{path}: no entry, {len(counted.faults)} of {len(found)} files cannot be read, "
                f"expected some: {counted.faults[0]}"
            )

    def describes(self, record: object) -> bool:
        """Whether ``record`` has the fields of this format."""
        return isinstance(record, dict) and any(mark <= record.keys() for mark in self.marks)

    def _whole(self, path: Path, source: Source, imported: Imported) -> Iterator[Entry]:
        """The entries of a file once all were read; none where it has a fault, which is kept."""
        own = Imported()
        try:
            entries = list(self.read(path, source, own))
        except SelverifyError as error:
            imported.faults.append(str(error))
            return
        imported.remarks.update(own.remarks)
        yield from entries


def marks(*layouts: Collection[str]) -> tuple[frozenset[str], ...]:
    """The fields of each layout, for :class:`Importer`."""
    return tuple(map(frozenset, layouts))


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read, and the name of its run: its path below what was given, no suffix."""

    file: Path
    run: str


def sources(path: Path, suffixes: Sequence[str] = JSON_FILES) -> tuple[Source, ...]:
    """``path`` itself, or the files below it that end in one of ``suffixes``, by name.

    Raises:
        ArtifactError: there is no such file, or none in the folder.
    """
    if not path.is_dir():
        return (Source(path, stem(path)),)
    found = sorted(
        file for file in path.rglob("*") if file.name.endswith(tuple(suffixes)) and file.is_file()
    )
    if not found:
        raise ArtifactError(f"{path}: no file that ends in {', '.join(suffixes)}; expected one")
    return tuple(
        Source(file, file.relative_to(path).with_name(stem(file)).as_posix()) for file in found
    )


def stem(path: Path) -> str:
    """A file's name without the suffixes of its format; a folder's name."""
    return folder_name(path) if path.is_dir() else Path(path.name.removesuffix(COMPRESSED)).stem


def folder_name(path: Path) -> str:
    """The name of a folder, for a model or a run that stands nowhere else."""
    return path.resolve().name or NOT_RECORDED


def text_id(text: str) -> str:
    """An id for a problem that has none: equal for equal texts, white space aside."""
    digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
    return f"text-{digest[:16]}"


def as_name(text: str) -> str:
    """``text`` itself where it can be a name, else its id."""
    short = 0 < len(text) <= LONGEST_NAME
    return text if short and re.fullmatch(PRINTABLE, text) else text_id(text)


def as_label(label: int | None) -> bool | None:
    """1 is right, 0 is wrong."""
    return None if label is None else label == 1


def made(kind: type[Made], where: str, **fields: Any) -> Made:
    """An entry of ``kind``.

    Raises:
        SchemaError: a record gave more than an entry may hold.
    """
    try:
        return kind(**fields)
    except ValidationError as error:
        raise SchemaError(f"{where}: {fault(error)}") from error
