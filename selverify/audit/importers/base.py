"""What importers share: files, records of others, and a count of what was left out and why.

Knows: the files of a source, ids and labels. Does not know: any format.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, MutableSequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from selverify.audit.log import LONGEST_NAME, PRINTABLE, LogEntry, Placed
from selverify.audit.records import COMPRESSED, suffix_of
from selverify.errors import ArtifactError, SchemaError, SelverifyError

JSON_FILES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
NOT_RECORDED = "not recorded"
"""The model of a run whose file does not name it."""
STEP_END = "\n\n"
MOST_FAULTS = 10
"""Unreadable files that are named to people."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Of a name: what ``PRINTABLE`` does not take, and bytes that are no UTF-8."""


def _as_number(label: object) -> object:
    return int(label) if isinstance(label, bool) else label


Label = Annotated[int, Field(ge=0, le=1), BeforeValidator(_as_number)]
"""0, 1, false or true."""


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
        left_out = [f"file left out: {fault}" for fault in self.faults[:MOST_FAULTS]]
        if len(self.faults) > MOST_FAULTS:
            left_out.append(f"{len(self.faults) - MOST_FAULTS:,} more files left out")
        remarks = (f"{times:,} {reason}" for reason, times in self.remarks.most_common())
        return (head, *remarks, *left_out)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read, and the name of its run: its path below what was given, no suffix.

    Where that is no name it is made one: see ``printable``.
    """

    file: Path
    run: str


@dataclass(frozen=True, slots=True)
class Importer:
    """Reads files of another project as entries.

    Attributes:
        title: what it reads, in a line.
        read: entries of a file of what was given; what is not translated goes into the count.
        marks: for each of the format's layouts, fields that no other format has together.
        suffixes: of the files that are read in a folder.
    """

    title: str
    read: Callable[[Path, SourceFile, Imported], Iterator[Placed]]
    marks: tuple[Set[str], ...]
    suffixes: tuple[str, ...] = JSON_FILES

    def __call__(self, path: Path, imported: Imported | None = None) -> Iterator[LogEntry]:
        """The entries of a file or a folder, one after the other; ``imported`` counts.

        Of a folder, a file that cannot be read is left out as a whole. Errors as in ``placed``.
        """
        return (
            entry for _, entry in self.placed(path, Imported() if imported is None else imported)
        )

    def placed(self, path: Path, imported: Imported) -> Iterator[Placed]:
        """The same entries, each with the place of its record.

        Raises:
            ArtifactError: there is no such file, or the folder holds none of the format.
            SchemaError: a record is not of the format, and no file of the folder gives an entry;
                the message says where and why.
        """
        files = self._files(path, imported.faults)
        for source in files:
            read = self._whole if path.is_dir() else self.read
            for one in read(path, source, imported):
                imported.entries += 1
                yield one
        if imported.faults and not imported.entries:
            raise SchemaError(
                f"{path}: no entry, {len(imported.faults)} of {len(files)} files cannot be read, "
                f"expected some: {imported.faults[0]}"
            )

    def describes(self, record: object) -> bool:
        """Whether ``record`` has the fields of this format."""
        return isinstance(record, dict) and any(mark <= record.keys() for mark in self.marks)

    def _files(self, path: Path, faults: MutableSequence[str]) -> list[SourceFile]:
        """``path`` itself, or the files below it that end in one of ``suffixes``, by name."""
        if not path.is_dir():
            return [SourceFile(path, stem(path))]
        below = sorted(files_below(path, faults))
        found = [file for file in below if file.name.lower().endswith(self.suffixes)]
        if not found:
            unread = f" ({faults[0]})" if faults else ""
            raise ArtifactError(
                f"{path}: no file that ends in {', '.join(self.suffixes)}{unread}; expected one"
            )
        return [
            SourceFile(file, printable(file.relative_to(path).with_name(stem(file)).as_posix()))
            for file in found
        ]

    def _whole(self, path: Path, source: SourceFile, imported: Imported) -> Iterator[Placed]:
        """The entries of a file once all were read; none where it has a fault, which is kept."""
        own = Imported()
        try:
            entries = list(self.read(path, source, own))
        except SelverifyError as error:
            imported.faults.append(str(error))
            return
        imported.remarks.update(own.remarks)
        yield from entries


def files_below(folder: Path, faults: MutableSequence[str]) -> Iterator[Path]:
    """What is below a folder and is no folder; ``faults`` learns which folders cannot be read.

    Links to folders are followed after all other folders, and each folder is read once.
    """

    def left_out(error: OSError) -> None:
        faults.append(
            f"{error.filename}: not read ({error.strerror}), expected a folder that can be read"
        )

    seen: set[str] = set()
    waiting = [str(folder)]
    while waiting:
        links: list[str] = []
        for top in waiting:
            for here, folders, names in os.walk(top, onerror=left_out):
                place = os.path.realpath(here)
                if place in seen:
                    folders.clear()
                    continue
                seen.add(place)
                folders.sort()
                below = (os.path.join(here, name) for name in folders)
                links += (one for one in below if os.path.islink(one) and not _is_loop(one, place))
                yield from (Path(here, name) for name in names)
        waiting = links


def _is_loop(link: str, place: str) -> bool:
    """Whether a link in the folder ``place`` leads to it or above it."""
    return Path(place).is_relative_to(os.path.realpath(link))


def stem(path: Path) -> str:
    """A file's name without the suffixes of its format; a folder's name."""
    if path.is_dir():
        return folder_name(path)
    return printable(Path(path.stem if suffix_of(path) == COMPRESSED else path.name).stem)


def folder_name(path: Path) -> str:
    """The name of a folder, for a model or a run that is named nowhere else."""
    return printable(path.resolve().name) or NOT_RECORDED


def printable(name: str) -> str:
    """The name of a file or a folder as one of a run: escaped where it cannot be printed, cut."""
    escaped = _UNPRINTABLE.sub(lambda one: one[0].encode("unicode_escape").decode(), name)
    return escaped[-LONGEST_NAME:]


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
