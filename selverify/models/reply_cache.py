"""A store of replies under the ledger: a killed run replays what is in it.

Knows: which parts of an item decide its reply, and how to keep replies. Does not know: counting
(the scheduler counts what a search requests, served from here or not), budgets, or any model.

An entry is (key, index): the key hashes the backend's identity and the item without its state's
budget, the index is the sample's (0 for ranks and verdicts). So a request for eight samples is
served from sixty-four stored ones. SQLite does not notice a changed bit in a row, so each row has a
checksum; a damaged one is requested again. What was computed from replies can be kept beside them,
under a name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.search.backend import Backend
from selverify.search.compute import Sizes
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Note,
    Propose,
    ProposeItem,
    Rank,
    Reply,
    Request,
    Verify,
)
from selverify.types import Sample, Verdict

REQUEST_KINDS = frozenset({Propose.kind, Complete.kind, Rank.kind, Verify.kind})
ENTRIES_PER_COMMIT = 4096
"""A larger request is passed on in parts, and the reply to each part is committed."""
MOST_KNOWN = 200_000
"""Beyond so many keys the memory is emptied, if all of it is in the file."""

_SCHEMA = 3
_CHECKSUM_BYTES = 8
_KEYS_PER_QUERY = 500
_PRIMARY_CODE = 0xFF
_BROKEN = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BROKEN_READS = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
_SAMPLED = (ProposeItem, CompleteItem)
_Entry = Sample | tuple[float, ...] | Verdict
_Missing = tuple[bytes, Any]
"""A key and the item to request under it."""
_Known = dict[bytes, dict[int, _Entry]]
"""The entries of each key by their index."""
_encode = json.JSONEncoder(ensure_ascii=False).encode
_log = logging.getLogger(__name__)


class CachedBackend:
    """``backend`` behind a memory and an SQLite file (WAL).

    Several threads may request at once; what two of them miss at once is requested twice, so the
    driver makes one wait for the other.
    """

    def __init__(
        self,
        backend: Backend,
        path: Path,
        *,
        at_once: Collection[str] = REQUEST_KINDS,
        one_by_one: Collection[str] = (),
    ) -> None:
        """Open or create the store.

        Args:
            one_by_one: kinds of requests whose items are passed on, and their replies kept, one
                after the other, instead of many at once.
            at_once: kinds of requests whose replies are in the file before they are given. The
                others are written by ``write``: what a killed run had requested is then requested
                again as a whole, and a model whose numbers depend in their last bits on what else
                it computed gives the same.

        Raises:
            ArtifactError: the file cannot be read or written.
            SchemaError: it is corrupt, or is something else than a reply cache.
        """
        self._backend = backend
        self._path = path
        self._at_once = frozenset(at_once)
        self._unwritten: list[tuple[Any, ...]] = []
        self._lock = Lock()
        self._one_by_one = frozenset(one_by_one)
        self._known: _Known = {}
        self._connection = _open(path)

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

    def concurrency(self, kind: str) -> int:
        """That of the backend."""
        return self._backend.concurrency(kind)

    def tokens(self, text: str) -> int:
        """The backend's count; it takes no model, so it is not stored."""
        return self._backend.tokens(text)

    def sizes(self) -> Sizes:
        """Those of the backend."""
        return self._backend.sizes()

    def close(self) -> None:
        """Close the file, without what was not written."""
        self._connection.close()

    def answer(self, request: Request) -> Reply:
        """Reply from the store, passing on to the backend only what is not there.

        Raises:
            ProtocolError: the request is a ``Note``, or the backend's reply has a wrong length.
            ArtifactError: the file cannot be read or written, or its disk is full.
            SchemaError: it turns out to be corrupt.
        """
        if isinstance(request, Note):
            raise ProtocolError(f"a backend was given a {request.kind!r}, expected a request")
        keys = [self._key(request.kind, item) for item in request.items]
        with self._lock:
            found = self._load(keys)
        missing = _missing_of(request.items, keys, found)
        size = 1 if request.kind in self._one_by_one else ENTRIES_PER_COMMIT
        for part in _by_size(missing, size):
            self._request(type(request), part, found)
        return tuple(
            _reply(item, found[key]) for item, key in zip(request.items, keys, strict=True)
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
        else:
            parts.append(str(item.temperature))
        text = "".join([f"{len(part)}:{part}" for part in parts])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    def _load(self, keys: Sequence[bytes]) -> _Known:
        """What is known under ``keys``; the file is read for those that the memory lacks."""
        if len(self._known) > MOST_KNOWN and not self._unwritten:
            self._known.clear()
        fresh = [key for key in dict.fromkeys(keys) if key not in self._known]
        rows = list(self._rows(fresh))  # a key whose rows cannot be read is not known
        self._known.update((key, {}) for key in fresh)
        damaged = []
        for row in rows:
            key, position, *_ = row
            entry = _decode(*row)
            if entry is None:
                damaged.append((key, position))
            else:
                self._known[key][position] = entry
        if damaged:
            _log.warning(
                "%s: %d replies are damaged and are asked for again", self._path, len(damaged)
            )
            with _one_sentence(self._path), self._connection:
                self._connection.executemany(
                    "DELETE FROM replies WHERE key = ? AND position IS ?", damaged
                )
        return {key: self._known[key] for key in keys}

    def _rows(self, keys: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            part = keys[start : start + _KEYS_PER_QUERY]
            query = f"SELECT * FROM replies WHERE key IN ({','.join('?' * len(part))})"
            with _one_sentence(self._path):
                rows = self._connection.execute(query, part).fetchall()
            yield from rows

    def _request(self, kind: type[Any], missing: Sequence[_Missing], found: _Known) -> None:
        """Pass ``missing`` on to the backend and keep its reply, which completes ``found``."""
        items = tuple(item for _, item in missing)
        reply: Any = self._backend.answer(kind(items))
        if len(reply) != len(items):
            raise ProtocolError(f"{kind.kind}: reply of length {len(reply)}, expected {len(items)}")
        rows: list[tuple[Any, ...]] = []
        for (key, item), entry in zip(missing, reply, strict=True):
            indices, values = _indices(item), entry if isinstance(item, _SAMPLED) else (entry,)
            if len(values) != len(indices):
                raise ProtocolError(
                    f"an item's reply has {len(values)} entries, expected {len(indices)}"
                )
            found[key].update(zip(indices, values, strict=True))
            rows += [_row(key, *pair) for pair in zip(indices, values, strict=True)]
        with self._lock:
            in_file = kind.kind in self._at_once
            if in_file:
                self._insert(rows)
            else:
                self._unwritten += rows
            for key in {key for key, _ in missing}:
                if key in self._known:
                    self._known[key].update(found[key])
                elif not in_file:  # another request has emptied the memory
                    self._known[key] = found[key]

    def write(self) -> None:
        """Put into the file, all or none, what is not there yet.

        Raises:
            ArtifactError, SchemaError: as ``answer``.
        """
        with self._lock:
            self._insert(self._unwritten)
            self._unwritten = []

    def remember(self, name: str, value: Any) -> None:
        """Keep ``value``, plain JSON, under a name; ``write`` puts it into the file."""
        key = _named(name)
        packed = zlib.compress(_encode(value).encode("utf-8", "surrogatepass"))
        with self._lock:
            self._unwritten.append((key, 0, packed, _checksum(key, 0, packed)))

    def recall(self, name: str) -> Any:
        """What the file holds under the name; None where that is nothing, or damaged."""
        key = _named(name)
        with self._lock:
            rows = list(self._rows([key]))
        for _, position, packed, checksum in rows:
            if checksum == _checksum(key, position, packed):
                return json.loads(zlib.decompress(packed).decode("utf-8", "surrogatepass"))
            _log.warning("%s: what was kept under a name is damaged and is made again", self._path)
        return None

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        with _one_sentence(self._path), self._connection:
            # Also in place of a damaged row.
            self._connection.executemany("REPLACE INTO replies VALUES (?,?,?,?)", rows)


def _named(name: str) -> bytes:
    """The key of a name; that of an item is the hash of a text that begins with a length."""
    return hashlib.sha256(f"name:{name}".encode("utf-8", "surrogatepass")).digest()


def _missing_of(items: Sequence[Any], keys: Sequence[bytes], found: _Known) -> list[_Missing]:
    """The items to request, as contiguous ranges of absent samples, each of them once."""
    wanted: dict[bytes, tuple[Any, set[int]]] = {}
    for item, key in zip(items, keys, strict=True):
        absent = [index for index in _indices(item) if index not in found[key]]
        if absent:
            wanted.setdefault(key, (item, set()))[1].update(absent)
    return [
        (key, part)
        for key, (item, indices) in wanted.items()
        for part in _ranges(item, sorted(indices))
    ]


def _indices(item: Any) -> range:
    return range(item.start, item.start + item.count) if isinstance(item, _SAMPLED) else range(1)


def _ranges(item: Any, indices: Sequence[int]) -> Iterator[Any]:
    """``item`` cut to each run of consecutive ``indices``; a rank or verify item stays whole."""
    if not isinstance(item, _SAMPLED):
        yield item
        return
    for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0]):
        part = [index for _, index in run]
        yield replace(item, start=part[0], count=len(part))


def _by_size(missing: Sequence[_Missing], size: int) -> Iterator[list[_Missing]]:
    """Parts of at least one item and, beyond that, at most ``size`` entries."""
    part: list[_Missing] = []
    entries = 0
    for key, item in missing:
        width = len(_indices(item))
        if part and entries + width > size:
            yield part
            part, entries = [], 0
        part.append((key, item))
        entries += width
    if part:
        yield part


def _reply(item: Any, known: dict[int, _Entry]) -> Any:
    if isinstance(item, _SAMPLED):
        return tuple([known[index] for index in _indices(item)])
    return known[0]


def _row(key: bytes, position: int, entry: _Entry) -> tuple[bytes, int, bytes, bytes]:
    """A row of the table; JSON keeps every float and, unescaped, every text exactly."""
    if isinstance(entry, Sample):
        content = ["sample", entry.text, entry.tokens, entry.logprob]
    elif isinstance(entry, Verdict):
        content = ["verdict", entry.score, *entry.step_scores]
    else:
        content = ["scores", *entry]
    value = _encode(content).encode("utf-8", "surrogatepass")
    return key, position, value, _checksum(key, position, value)


def _decode(key: Any, position: Any, value: Any, checksum: Any) -> _Entry | None:
    """The entry of a row, or None where the row is not what was stored."""
    # The columns of a damaged file may hold values of other types than declared.
    if checksum != _checksum(key, position, value):
        return None
    kind, *content = json.loads(value.decode("utf-8", "surrogatepass"))
    if kind == "sample":
        return Sample(*content)
    if kind == "verdict":
        score, *step_scores = content
        return Verdict(score, tuple(step_scores))
    return tuple(content)


def _checksum(key: object, position: object, value: object) -> bytes:
    row = repr((key, position, value)).encode()
    return hashlib.blake2b(row, digest_size=_CHECKSUM_BYTES).digest()


def _open(path: Path) -> sqlite3.Connection:
    with _one_sentence(path):
        # Under a lock; and a flow may run the driver in another thread than the opener's.
        connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
        connection.text_factory = bytes  # no column holds text, but a damaged file may say so
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    version, tables = connection.execute(
        "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    ).fetchone()
    if version != _SCHEMA and (version or tables):
        raise SchemaError(
            f"{path}: a database of schema {version}, expected {_SCHEMA}; move the file away to "
            "start afresh"
        )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    if version == _SCHEMA:
        return
    with connection:  # all of it or nothing
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS replies (key BLOB NOT NULL, position INTEGER NOT NULL, "
            "value BLOB NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (key, position)) "
            "WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA user_version={_SCHEMA}")


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    """Say in one sentence that the file is corrupt, or that its disk or folder does not let us."""
    try:
        yield
    # Of a damaged file SQLite's own words may be no UTF-8; the module's own errors have no code.
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code & _PRIMARY_CODE in _BROKEN or code in _BROKEN_READS:
            raise SchemaError(
                f"{path}: not a readable reply cache ({error}); move the file away to start afresh"
            ) from error
        raise ArtifactError(
            f"{path}: cannot be written or read ({error}), expected a reply cache that this "
            "process may use, with space on its disk; what was written before is kept"
        ) from error
