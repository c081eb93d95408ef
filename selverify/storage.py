"""Artifacts on disk: Parquet tables and JSON with a schema name, written whole or not at all.

Knows: files, schema names, versions, digests. Does not know: what a table means, DVC, stages.
A schema name is ``<stage>.<table>``, so that a missing file can name the stage that writes it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from selverify.errors import ArtifactError, SchemaError, SelverifyError

SCHEMA_KEY = b"selverify.schema"
VERSION_KEY = b"selverify.version"
COLUMNS_KEY = b"selverify.columns"
_WRITTEN: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 9,
    "write_page_checksum": True,
}
DIGESTS = "digests.json"
DIGESTS_SCHEMA, DIGESTS_VERSION = "checkpoint.digests", 1
_DISK_FULL = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What the system says of a disk, or a share of it, without space."""
_new_md5 = partial(hashlib.md5, usedforsecurity=False)
_QUOTED = 120
"""Characters of another library's words in an error."""
_READS, _BETWEEN_READS = 4, 0.02
"""Times that a checkpoint is read before its fault counts, and seconds between them."""


def check_place(path: Path, *, folder: bool = False) -> None:
    """See whether a file can be written at ``path``, as far as that shows before it is.

    Args:
        folder: whether a folder may stand there.

    Raises:
        ArtifactError: it names no file, a folder or a device stands there, or what it is below is
            no folder or may not be written.
    """
    _require_place(path)
    if path.is_dir() and not folder:
        raise _no_file(path)
    above = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not above.is_dir():
        raise _not_written(path, os.strerror(errno.ENOTDIR))
    if not os.access(above, os.W_OK | os.X_OK):
        raise _not_written(path, os.strerror(errno.EACCES))


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path``; it takes the name ``path`` when the block succeeds.

    The block creates a file or a directory there. When it raises, what it wrote is removed and an
    older ``path`` stays as it was. The name carries the process id, so two writers never mix.

    Raises:
        ArtifactError: nothing can be written there, a file was to replace a directory, or the block
            ended without writing anything, or found the disk full.
    """
    _require_place(path)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
    except OSError as error:
        raise _not_written(path, error.strerror or str(error)) from error
    try:
        yield temporary
        if not temporary.exists():
            raise ArtifactError(f"{path}: nothing was written; expected a file or a directory")
        _replace(temporary, path)
    except Exception as error:
        reason = _why_not_written(error, path, temporary)
        if reason is None:
            raise
        raise _not_written(path, reason) from error
    finally:
        _remove(temporary)


def _require_place(path: Path) -> None:
    """Raise ArtifactError where neither a file nor a directory can have this name."""
    if not path.name:
        raise _no_file(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:  # too long a name, links in a circle, a byte of 0
        raise _not_written(path, getattr(error, "strerror", None) or str(error)) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ArtifactError(
            f"{path}: given a device, a pipe or a socket, expected a path for a file"
        )


def _no_file(path: Path) -> ArtifactError:
    return ArtifactError(f"{path}: given a folder, expected a path for a file")


def _not_written(path: Path, reason: str) -> ArtifactError:
    expected = "a path that can be written to"
    if reason in _DISK_FULL:
        expected = "space on its disk; make some and run the same command again"
    return ArtifactError(f"{path}: not written ({reason}), expected {expected}")


def _why_not_written(error: Exception, path: Path, temporary: Path) -> str | None:
    """What the system said where ``error`` is one of writing there; else None."""
    if isinstance(error, SelverifyError):
        return None
    # Libraries wrap the system's error in their own; its words stay in theirs.
    full = next((words for words in _DISK_FULL if words in str(error)), None)
    if full is not None or not isinstance(error, OSError):
        return full
    file = str(error.filename)
    ours = file == str(path) or file.startswith(str(temporary))
    return error.strerror if ours else None


def _replace(temporary: Path, path: Path) -> None:
    if not path.is_dir():
        os.replace(temporary, path)
        return
    if not temporary.is_dir():
        raise _no_file(path)
    # A directory that is not empty cannot be replaced in one call, so the old one steps aside.
    aside = path.with_name(f"{path.name}.old-{os.getpid()}")
    try:
        os.replace(path, aside)
        os.replace(temporary, path)
    finally:
        if aside.exists() and not path.exists():
            os.replace(aside, path)
        _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_table(
    path: Path,
    rows: pa.Table | Sequence[Mapping[str, Any]],
    *,
    schema: str,
    version: int,
    dense: bool = False,
) -> None:
    """Write ``rows`` as Parquet marked with ``schema`` and ``version``; equal rows, equal bytes.

    ``dense``: slowly and in a fifth less space, by an encoding of integers (byte stream split) that
    readers older than 2024 do not know.
    """
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
    kept = table.schema.metadata or {}
    marks = {
        SCHEMA_KEY: schema.encode(),
        VERSION_KEY: str(version).encode(),
        COLUMNS_KEY: _columns(table),
    }
    written = _WRITTEN
    if dense:
        split = {field.name: pa.types.is_integer(field.type) for field in table.schema}
        written = written | {
            "compression_level": 19,
            "use_dictionary": [name for name, whole in split.items() if not whole],
            "use_byte_stream_split": [name for name, whole in split.items() if whole],
        }
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata({**kept, **marks}), temporary, **written)


def _columns(table: pa.Table) -> bytes:
    """Names and types as they are read: Parquet's checksums are of pages, not of their heading."""
    told = "\n".join(f"{field.name}: {field.type}" for field in table.schema)
    return told.replace("<item: ", "<element: ").encode()


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """What writes tables to one file as ``write_table`` does, one after another, unmarked."""
    return pq.ParquetWriter(path, schema, **_WRITTEN)


def read_table(path: Path, *, schema: str, version: int) -> pa.Table:
    """Read a table that ``write_table`` wrote.

    Raises:
        ArtifactError: no such file; the message names the stage that writes it.
        SchemaError: the file is no Parquet or is damaged, or carries another schema or version.
    """
    _require(path, schema)
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        columns = _columns(table)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SchemaError(
            f"{path}: not a Parquet file, or damaged ({_first_line(error)}); expected schema "
            f"{schema}, version {version}; run the stage that writes it again"
        ) from error
    marks = table.schema.metadata or {}
    if marks.get(COLUMNS_KEY, columns) != columns:
        raise SchemaError(
            f"{path}: damaged: its columns are not those that were written; run the stage that "
            "writes it again"
        )
    given = marks.get(SCHEMA_KEY, b"no schema"), marks.get(VERSION_KEY, b"")
    # A damaged mark need not be text.
    _check(path, tuple(mark.decode(errors="replace") for mark in given), (schema, str(version)))
    return table


def write_json(path: Path, data: object, *, schema: str, version: int) -> None:
    """Write ``data`` as JSON inside an envelope; equal data, equal bytes.

    Raises:
        SchemaError: ``data`` holds something JSON has no word for, such as NaN.
    """
    write_plain_json(path, {"schema": schema, "version": version, "data": data})


def write_plain_json(path: Path, value: object) -> None:
    """Write ``value`` as JSON without an envelope, for files that other tools read (metrics)."""
    try:
        text = json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{path}: cannot be written as JSON: {error}") from error
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path, *, schema: str, version: int) -> Any:
    """Read the data that ``write_json`` wrote.

    Raises:
        ArtifactError: no such file; the message names the stage that writes it.
        SchemaError: the file is no JSON, or carries another schema or version.
    """
    _require(path, schema)
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path}: not JSON; expected {schema} {version}: {error}") from error
    marked = isinstance(envelope, dict) and {"schema", "version", "data"} <= envelope.keys()
    found = (envelope["schema"], str(envelope["version"])) if marked else ("no schema", "")
    _check(path, found, (schema, str(version)))
    return envelope["data"]


def _require(path: Path, schema: str) -> None:
    if not path.is_file():
        stage = schema.partition(".")[0]
        raise ArtifactError(
            f"{path}: no such file; stage {stage!r} writes it (python -m flows {stage})"
        )


def _first_line(error: Exception) -> str:
    return " ".join(str(error).partition("\n")[0].split())[:_QUOTED]


def _check(path: Path, found: tuple[str, str], expected: tuple[str, str]) -> None:
    if found != expected:
        given, wanted = " ".join(found).strip(), " ".join(expected)
        raise SchemaError(
            f"{path}: written as {given}, expected {wanted}; run the stage that writes it again"
        )


def write_digests(folder: Path) -> None:
    """Write the digest of every file of a checkpoint beside them.

    All get the permissions of that file: safetensors makes weights that nobody else may read.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != DIGESTS)
    found = {path.name: _md5(path) for path in files}
    write_json(folder / DIGESTS, found, schema=DIGESTS_SCHEMA, version=DIGESTS_VERSION)
    mode = stat.S_IMODE((folder / DIGESTS).stat().st_mode)
    for path in files:
        path.chmod(mode)


def check_digests(folder: Path) -> None:
    """Compare the files of a checkpoint with what ``write_digests`` wrote.

    Raises:
        ArtifactError: a file is missing, or the digests are.
        SchemaError: a file is not the one that was written.
    """
    data = _digests(folder)
    files = {path.name: path for path in folder.iterdir() if path.is_file()}
    for name, written in data.items():
        if name not in files:
            raise ArtifactError(f"{folder}: no file {name!r}, expected what {DIGESTS} lists")
        _require_digest(files[name], _md5(files[name]), written)


def read_checked(folder: Path, names: Sequence[str], *, expected: str) -> dict[str, bytes]:
    """The contents of files of a checkpoint by name, each read once and compared with its digest.

    A folder that is replaced meanwhile is read again, so that all are of one checkpoint.

    Args:
        expected: what the folder should be, for the message where a file is missing.

    Raises:
        ArtifactError: a file is missing or cannot be read, or the digests are.
        SchemaError: a file is not the one that was written.
    """
    for _ in range(_READS - 1):
        with suppress(SelverifyError):
            return _read_checked(folder, names, expected)
        time.sleep(_BETWEEN_READS)
    return _read_checked(folder, names, expected)


def _read_checked(folder: Path, names: Sequence[str], expected: str) -> dict[str, bytes]:
    try:
        for path in (folder / name for name in (*names, DIGESTS)):
            if not path.is_file():
                raise ArtifactError(f"{path}: no such file; expected {expected}")
        written = _digests(folder)
        found = {name: (folder / name).read_bytes() for name in names}
    except SelverifyError:
        raise
    except OSError as error:
        raise ArtifactError(
            f"{error.filename or folder}: not read ({error.strerror or error}), expected a file "
            "that can be read"
        ) from error
    for name, content in found.items():
        _require_digest(folder / name, _new_md5(content).hexdigest(), written.get(name))
    return found


def _digests(folder: Path) -> dict[str, Any]:
    """What ``write_digests`` wrote, by the names of the files."""
    if not (folder / DIGESTS).is_file():
        raise ArtifactError(
            f"{folder / DIGESTS}: no such file, expected the digests of a checkpoint; run the "
            "stage that writes it again, or fetch it again"
        )
    data = read_json(folder / DIGESTS, schema=DIGESTS_SCHEMA, version=DIGESTS_VERSION)
    if not isinstance(data, dict):
        raise SchemaError(f"{folder / DIGESTS}: given no mapping, expected a digest for each file")
    return data


def _require_digest(path: Path, found: str, written: object) -> None:
    if found != written:
        raise SchemaError(
            f"{path}: damaged: digest {found}, expected {written}; run the stage that writes it "
            "again, or fetch it again"
        )


def digest(path: Path) -> str:
    """The MD5 of a file or a directory, as DVC records it; a directory's ends in ``.dir``.

    Raises:
        ArtifactError: there is nothing at ``path``.
    """
    if path.is_dir():
        files = {
            file.relative_to(path).as_posix(): file
            for file in path.rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        }
        entries = [{"md5": _md5(files[name]), "relpath": name} for name in sorted(files)]
        return _new_md5(json.dumps(entries).encode()).hexdigest() + ".dir"
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file or directory; nothing to take a digest of")
    return _md5(path)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, _new_md5).hexdigest()
