"""The event log of searches: frozen events, written to Parquet and read back.

Knows: what an event is and where its columns go. Does not know: any search or backend. Reading
needs the domain, which gives the states back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from selverify.domains.base import Domain
from selverify.errors import ArtifactError, SchemaError
from selverify.search.ledger import Ledger
from selverify.storage import atomic_path, parquet_writer
from selverify.types import Move, Problem, State

AT_ONCE = 200_000
"""Rows of a log that are made together."""
COUNTERS = tuple(Ledger.__dataclass_fields__)
_SCHEMA = pa.schema(
    [
        ("search", pa.string()),
        ("index", pa.int64()),
        ("event", pa.string()),
        ("problem_id", pa.string()),
        ("derivation", pa.list_(pa.string())),
        ("budget", pa.int64()),
        *((counter, pa.int64()) for counter in COUNTERS),
        ("data", pa.string()),
    ],
    metadata={"version": "3"},
)


@dataclass(frozen=True, slots=True)
class Event:
    """One item of a request, or one Note: where it happened, what it cost, what came of it.

    ``event`` is the request's kind or the Note's own word; ``ledger`` is what it adds to the
    search's ledger (nothing for a Note), so the events of a search sum to its ledger.
    """

    index: int
    event: str
    state: State
    ledger: Ledger
    data: tuple[tuple[str, object], ...]


def write_events(path: Path, events: Mapping[str, Sequence[Event]]) -> None:
    """Write the events of searches, each under its name, to one Parquet file, all or nothing.

    Of rows no more than ``AT_ONCE`` are in memory.
    """
    rows = (_row(search, event) for search, listed in events.items() for event in listed)
    with atomic_path(path) as temporary, parquet_writer(temporary, _SCHEMA) as out:
        while some := list(islice(rows, AT_ONCE)):
            out.write_table(pa.Table.from_pylist(some, schema=_SCHEMA))


def read_events(
    path: Path, domain: Domain, *, problems: Mapping[str, Problem]
) -> dict[str, tuple[Event, ...]]:
    """The events of each search in order, by its name; states are those of ``problems``.

    Raises:
        ArtifactError: there is no such file.
        SchemaError: the file is no event log, or tells of other problems or another domain.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected an event log in Parquet")
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        columns = ", ".join(table.column_names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        told = " ".join(str(error).split())
        raise SchemaError(f"{path}: not an event log in Parquet: {told}") from error
    version = (table.schema.metadata or {}).get(b"version")
    if version not in (None, _SCHEMA.metadata[b"version"]):
        raise SchemaError(f"{path}: written by another version; run the stage 'evaluation' again")
    if version is None or not table.schema.equals(_SCHEMA):
        raise SchemaError(f"{path}: not an event log: columns {columns}")
    rows = table.to_pylist()
    found: dict[str, list[Event]] = {}
    states: dict[tuple[str, tuple[str, ...]], State] = {}
    for row in sorted(rows, key=lambda row: row["index"]):
        name = row["problem_id"]
        if name not in problems:
            raise SchemaError(f"{path}: problem {name!r}, expected one of the benchmark's")
        key = name, tuple(row["derivation"])
        if key not in states:
            states[key] = _state(domain, problems[name], derivation=row["derivation"], path=path)
        found.setdefault(row["search"], []).append(
            Event(
                row["index"],
                row["event"],
                replace(states[key], budget=row["budget"]),
                Ledger(*(row[counter] for counter in COUNTERS)),
                tuple(json.loads(row["data"]).items()),
            )
        )
    return {search: tuple(events) for search, events in found.items()}


def _state(domain: Domain, problem: Problem, *, derivation: Sequence[str], path: Path) -> State:
    state = domain.initial_state(problem, budget=0)
    for text in derivation:
        move = domain.parse(text)
        if not isinstance(move, Move):
            raise SchemaError(f"{path}: {text[:80]!r}, expected a move of {domain.name}")
        state = domain.apply(state, move)
    return state


def _row(search: str, event: Event) -> dict[str, object]:
    counters = {counter: getattr(event.ledger, counter) for counter in COUNTERS}
    return {
        "search": search,
        "index": event.index,
        "event": event.event,
        "problem_id": event.state.problem.problem_id,
        "derivation": [move.text for move in event.state.derivation],
        "budget": event.state.budget,
        **counters,
        "data": json.dumps(dict(event.data)),
    }
