"""The event log of searches: frozen events, written to Parquet and read back with DuckDB.

Knows: what an event is and where its columns go. Does not know: any search or backend.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from selverify.errors import ArtifactError, SchemaError
from selverify.ledger import Ledger
from selverify.types import State

COUNTERS = tuple(Ledger.__dataclass_fields__)
SCHEMA = pa.schema(
    [
        ("search", pa.string()),
        ("index", pa.int64()),
        ("event", pa.string()),
        ("problem_id", pa.string()),
        ("trace", pa.string()),
        ("budget", pa.int64()),
        *((counter, pa.int64()) for counter in COUNTERS),
        ("data", pa.string()),
    ]
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
    """Write the events of searches, each under its name, to one Parquet file, all or nothing."""
    rows = [_row(search, event) for search, listed in events.items() for event in listed]
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), temporary)
    os.replace(temporary, path)


def read_totals(path: Path) -> dict[tuple[str, str], Ledger]:
    """Recount the ledger of each (search, problem id) from an event log.

    Raises:
        ArtifactError: there is no such file.
        SchemaError: the file is no event log.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected an event log in Parquet")
    sums = ", ".join(f"CAST(sum({counter}) AS BIGINT)" for counter in COUNTERS)
    query = f"SELECT search, problem_id, {sums} FROM read_parquet(?) GROUP BY ALL ORDER BY ALL"
    try:
        with duckdb.connect() as connection:
            rows = connection.execute(query, [str(path)]).fetchall()
    except duckdb.Error as error:
        raise SchemaError(f"{path}: not an event log in Parquet: {error}") from error
    return {(search, problem_id): Ledger(*counts) for search, problem_id, *counts in rows}


def _row(search: str, event: Event) -> dict[str, object]:
    counters = {counter: getattr(event.ledger, counter) for counter in COUNTERS}
    return {
        "search": search,
        "index": event.index,
        "event": event.event,
        "problem_id": event.state.problem.problem_id,
        "trace": event.state.trace,
        "budget": event.state.budget,
        **counters,
        "data": json.dumps(dict(event.data)),
    }
