"""A store of replies under the ledger: a killed run replays what is in it.

Knows: which parts of an item decide its reply, and how to keep replies. Does not know: counting
(the scheduler counts what a search asks, served from here or not), budgets, or any model.

An entry is (key, index): the key hashes the backend's identity and the item without its state's
budget, the index is the sample's (0 for ranks and verdicts). So a request for eight samples is
served from sixty-four stored ones. Each carries a checksum; a damaged one is asked for again.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.search.backend import Backend
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Rank,
    Reply,
    Request,
    Verify,
)
from selverify.types import Sample, Verdict

log = logging.getLogger(__name__)

SCHEMA = 2
CHECKED = b"\x8c"
CHECKSUM_BYTES = 8
KEYS_PER_QUERY = 500
PRIMARY_CODE = 0xFF
BROKEN = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
BROKEN_READS = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
FULL = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    }
)
"""What SQLite calls a disk without space, and one that cannot be written."""
ENTRIES_PER_COMMIT = 4096
"""A merged request larger than this is asked, and what is kept at once committed, in parts."""

KINDS = frozenset({Propose.kind, Complete.kind, Rank.kind, Verify.kind})

SAMPLED = (ProposeItem, CompleteItem)
Entry = Sample | tuple[float, ...] | Verdict
Row = tuple[bytes, int, bytes]


class CachedBackend:
    """``backend`` behind a memory and, where ``path`` is given, an sqlite3 file (WAL)."""

    def __init__(
        self, backend: Backend, path: Path | None, *, at_once: Collection[str] = KINDS
    ) -> None:
        """Open or create the store; ``path`` None keeps replies in memory only.

        Args:
            at_once: kinds of requests whose replies are in the file before they are given. The
                others are written by ``write``: what a killed run had asked is then asked again as
                a whole, and a model whose numbers depend in their last bits on what else it
                computed gives the same.

        Raises:
            ArtifactError: the file cannot be read or written.
            SchemaError: it is corrupt, or is something else than a reply cache.
        """
        self._backend = backend
        self._path = path
        self._at_once = frozenset(at_once)
        self._unwritten: list[Row] = []
        self._known: dict[bytes, dict[int, Entry]] = {}
        self._connection = None if path is None else _open(path)

    @staticmethod
    def create(path: Path) -> None:
        """Make the file, where there is none, before several processes open it at once.

        Raises:
            ArtifactError, SchemaError: as on opening it.
        """
        _open(path).close()

    def identity(self, kind: str) -> str:
        """That of the backend: a cached reply is its reply."""
        return self._backend.identity(kind)

    def close(self) -> None:
        """Close the file, without what was not written."""
        if self._connection is not None:
            self._connection.close()

    def answer(self, request: Request) -> Reply:
        """Reply from the store, asking the backend only for what is not there.

        Raises:
            ProtocolError: the request is a ``Note``, or the backend's reply has a wrong length.
            ArtifactError: the file cannot be read or written, or its disk is full.
            SchemaError: it turns out to be corrupt.
        """
        if not isinstance(request, Propose | Complete | Rank | Verify):
            raise ProtocolError(f"a backend was given a {request.kind!r}, expected a request")
        keys = [self._key(request.kind, item) for item in request.items]
        self._load(keys)
        self._ask(type(request), self._missing(request.items, keys))
        read = _read_one if isinstance(request, Rank | Verify) else _read_samples
        return tuple(
            read(item, self._known[key]) for item, key in zip(request.items, keys, strict=True)
        )

    def _key(self, kind: str, item: Any) -> bytes:
        """A hash of parts with their lengths, so that no two items share one."""
        state = item.state
        problem = state.problem
        parts = [
            self._backend.identity(kind),
            kind,
            problem.problem_id,
            problem.text,
            problem.goal,
            str(len(state.derivation)),
            *state.said,
        ]
        if kind == Verify.kind:
            parts += [move.text for move in item.steps]
        elif kind == Rank.kind:
            parts += [item.scorer, *(move.text for move in item.moves)]
        elif kind == Complete.kind:
            parts.append("greedy" if item.greedy else "sampled")
        text = "".join([f"{len(part)}:{part}" for part in parts])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    def _load(self, keys: Iterable[bytes]) -> None:
        """Bring what the file holds under ``keys`` into memory, each key once in its life."""
        fresh = [key for key in dict.fromkeys(keys) if key not in self._known]
        self._known.update((key, {}) for key in fresh)
        if self._connection is None:
            return
        with _sound(self._path):
            for part in _parts(fresh, KEYS_PER_QUERY):
                marks = ",".join("?" * len(part))
                query = f"SELECT key, position, value FROM replies WHERE key IN ({marks})"
                self._take(self._connection.execute(query, part).fetchall())

    def _take(self, rows: Sequence[Row]) -> None:
        """Keep what ``rows`` hold in memory, and remove damaged ones from the file."""
        damaged = []
        for key, position, value in rows:
            entry = _checked(key, position, value)
            if entry is None:
                damaged.append((key, position))
            else:
                self._known.setdefault(key, {})[position] = entry
        if damaged and self._connection is not None:
            log.warning(
                "%s: %d replies are damaged and are asked for again", self._path, len(damaged)
            )
            with self._connection:
                self._connection.executemany(
                    "DELETE FROM replies WHERE key = ? "
                    "AND (position IS ? OR typeof(position) != 'integer')",
                    damaged,
                )

    def _missing(self, items: Sequence[Any], keys: Sequence[bytes]) -> list[tuple[bytes, Any]]:
        """The items to ask, as contiguous ranges of absent samples, each of them once."""
        wanted: dict[bytes, tuple[Any, set[int]]] = {}
        for item, key in zip(items, keys, strict=True):
            known = self._known[key]
            absent = [index for index in _indices(item) if index not in known]
            if absent:
                wanted.setdefault(key, (item, set()))[1].update(absent)
        return [
            (key, part)
            for key, (item, indices) in wanted.items()
            for part in _ranges(item, sorted(indices))
        ]

    def _ask(self, kind: type[Any], missing: Sequence[tuple[bytes, Any]]) -> None:
        for part in _by_size(missing, ENTRIES_PER_COMMIT):
            items = tuple(item for _, item in part)
            entries = cast(Sequence[Any], self._backend.answer(kind(items)))
            if len(entries) != len(items):
                raise ProtocolError(
                    f"{kind.kind}: reply of length {len(entries)}, expected {len(items)}"
                )
            self._keep(kind, part, entries)

    def _keep(
        self, kind: type[Any], asked: Sequence[tuple[bytes, Any]], entries: Sequence[Any]
    ) -> None:
        rows: list[Row] = []
        for (key, item), entry in zip(asked, entries, strict=True):
            indices = _indices(item)
            values = entry if isinstance(item, SAMPLED) else (entry,)
            if len(values) != len(indices):
                raise ProtocolError(
                    f"an item's reply has {len(values)} entries, expected {len(indices)}"
                )
            self._known[key].update(zip(indices, values, strict=True))
            if self._connection is not None:
                rows += [
                    (key, i, _sealed(key, i, _encode(v)))
                    for i, v in zip(indices, values, strict=True)
                ]
        if kind.kind in self._at_once:
            self._insert(rows)
        else:
            self._unwritten += rows

    def write(self) -> None:
        """Put into the file, all or none, what is not there yet.

        Raises:
            ArtifactError, SchemaError: as ``answer``.
        """
        self._insert(self._unwritten)
        self._unwritten = []

    def _insert(self, rows: Sequence[Row]) -> None:
        if self._connection is not None:
            with _sound(self._path), self._connection:
                self._connection.executemany("INSERT OR IGNORE INTO replies VALUES (?,?,?)", rows)


def _indices(item: Any) -> range:
    return range(item.start, item.start + item.count) if isinstance(item, SAMPLED) else range(1)


def _ranges(item: Any, indices: Sequence[int]) -> Iterator[Any]:
    """``item`` cut to each run of consecutive ``indices``; a rank or verify item stays whole."""
    if not isinstance(item, SAMPLED):
        yield item
        return
    first = indices[0]
    for position, index in enumerate(indices, start=1):
        if position == len(indices) or indices[position] != index + 1:
            yield replace(item, start=first, count=index + 1 - first)
            first = indices[position] if position < len(indices) else first


def _by_size(
    asked: Sequence[tuple[bytes, Any]], size: int
) -> Iterator[Sequence[tuple[bytes, Any]]]:
    """Parts of at least one item and, beyond that, at most ``size`` entries."""
    part: list[tuple[bytes, Any]] = []
    entries = 0
    for key, item in asked:
        width = len(_indices(item))
        if part and entries + width > size:
            yield part
            part, entries = [], 0
        part.append((key, item))
        entries += width
    if part:
        yield part


def _parts(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    remaining = iter(keys)
    while part := list(islice(remaining, size)):
        yield part


def _read_samples(item: Any, known: dict[int, Entry]) -> Any:
    return tuple([known[index] for index in _indices(item)])


def _read_one(item: Any, known: dict[int, Entry]) -> Any:
    return known[0]


def _sealed(key: bytes, position: int, value: bytes) -> bytes:
    return CHECKED + _checksum(key, position, value) + value


def _checked(key: bytes, position: int, stored: bytes) -> Entry | None:
    """The entry, or None where it is not what was stored."""
    # A damaged file may give something else than its columns are declared to hold.
    if not (isinstance(key, bytes) and isinstance(position, int) and isinstance(stored, bytes)):
        return None
    value = stored[1 + CHECKSUM_BYTES :]
    return _decode(value) if stored == _sealed(key, position, value) else None


def _checksum(key: bytes, position: int, value: bytes) -> bytes:
    told_apart = key + struct.pack("<q", position)
    return hashlib.blake2b(value, digest_size=CHECKSUM_BYTES, key=told_apart).digest()


def _encode(entry: Entry) -> bytes:
    """One letter for the kind, then doubles and text bit for bit."""
    if isinstance(entry, Sample):
        text = entry.text.encode("utf-8", "surrogatepass")
        return b"s" + struct.pack("<qd", entry.tokens, entry.logprob) + text
    if isinstance(entry, Verdict):
        return b"v" + struct.pack(
            f"<{len(entry.step_scores) + 1}d", entry.score, *entry.step_scores
        )
    return b"r" + struct.pack(f"<{len(entry)}d", *entry)


def _decode(value: bytes) -> Entry | None:
    """What ``_encode`` was given, or None where it could not have written ``value``."""
    kind, content = value[:1], value[1:]
    try:
        if kind == b"s":
            tokens, logprob = struct.unpack_from("<qd", content)
            return Sample(content[16:].decode("utf-8", "surrogatepass"), tokens, logprob)
        if kind == b"v":
            score, *step_scores = struct.unpack(f"<{len(content) // 8}d", content)
            return Verdict(score, tuple(step_scores))
        if kind == b"r":
            return struct.unpack(f"<{len(content) // 8}d", content)
    except (struct.error, ValueError):
        pass
    return None


def _open(path: Path) -> sqlite3.Connection:
    with _sound(path):
        # The driver is single-threaded, but a flow may run it in another thread than the opener's.
        connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
        connection.text_factory = bytes  # no column holds text, but a damaged file may say so
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version != SCHEMA and (version or tables):
        raise SchemaError(
            f"{path}: a database of schema {version}, expected {SCHEMA}; move the file away to "
            "start afresh"
        )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    if version == SCHEMA:
        return
    with connection:  # all of it or nothing
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have done it while we waited.
        if connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,):
            return
        connection.execute(
            "CREATE TABLE IF NOT EXISTS replies (key BLOB NOT NULL, position INTEGER NOT NULL, "
            "value BLOB NOT NULL, PRIMARY KEY (key, position)) WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA user_version={SCHEMA}")


@contextmanager
def _sound(path: Path | None) -> Iterator[None]:
    """Turn a full disk, a sign of corruption and whatever else there is into one sentence."""
    try:
        yield
    except UnicodeDecodeError as error:  # of SQLite's own words about a damaged file
        raise SchemaError(
            f"{path}: not a readable reply cache; move the file away to start afresh"
        ) from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0)  # the module's own errors have none
        if code in FULL:
            raise ArtifactError(
                f"{path}: cannot be written ({error}), expected space on its disk; what was "
                "written before is kept"
            ) from error
        if code & PRIMARY_CODE in BROKEN or code in BROKEN_READS or not code:
            raise SchemaError(
                f"{path}: not a readable reply cache ({error}); move the file away to start afresh"
            ) from error
        raise ArtifactError(
            f"{path}: cannot be used now ({error}), expected a reply cache that this process may "
            "read and write; what was written before is kept"
        ) from error
