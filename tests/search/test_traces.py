"""The event log on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import BACKEND, DOMAIN, gated, gated_runs
from toy import toy_problem

from selverify.errors import ArtifactError, SchemaError
from selverify.search import traces
from selverify.search.driver import Search, run_searches
from selverify.search.ledger import Ledger
from selverify.search.traces import COUNTERS, Event, read_events, write_events


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(gated_runs)
def test_totals_of_the_log_equal_the_ledgers(tmp_path: Path, runs: list[dict[str, object]]) -> None:
    """Every counter recomputed from the Parquet file is the driver's."""
    searches = {f"{index}": Search(gated(run), run["budget"]) for index, run in enumerate(runs)}
    results = run_searches(searches, BACKEND, end_of_move=";", traced=True)
    write_events(tmp_path / "log.parquet", {key: r.events for key, r in results.items()})
    ledgers = {
        (key, run["problem"].problem_id): results[key].ledger
        for key, run in zip(searches, runs, strict=True)
    }
    log = pd.read_parquet(tmp_path / "log.parquet")
    totals = log.groupby(["search", "problem_id"])[list(COUNTERS)].sum()
    assert {key: Ledger(*counts) for key, *counts in totals.itertuples()} == ledgers
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_a_log_is_written_some_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is the same log, but for the groups of its rows."""
    event = Event(
        0, "note", DOMAIN.initial_state(toy_problem(3), budget=4), Ledger(), (("said", "so"),)
    )
    events = {f"{search}": (event, replace(event, index=1)) for search in range(5)}
    write_events(tmp_path / "whole.parquet", events)
    monkeypatch.setattr(traces, "AT_ONCE", 3)
    write_events(tmp_path / "parts.parquet", events)
    assert pq.read_metadata(tmp_path / "parts.parquet").num_row_groups == 4
    whole, parts = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("whole", "parts"))
    assert whole.num_rows == 10 and whole.equals(parts)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """The log is deterministic, also when it is empty."""
    for name in ("a.parquet", "b.parquet"):
        write_events(tmp_path / name, {})
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert read_events(tmp_path / "a.parquet", DOMAIN, problems={}) == {}


def test_a_missing_log_is_an_artifact_error(tmp_path: Path) -> None:
    """The message names the file and what was expected."""
    with pytest.raises(ArtifactError, match="expected an event log"):
        read_events(tmp_path / "none.parquet", DOMAIN, problems={})


def test_a_log_of_other_counters_is_of_another_version(tmp_path: Path) -> None:
    """The version is looked at before the columns, so the message says what to do."""
    path = tmp_path / "log.parquet"
    table = pa.table({"search": ["p"], "verifier_calls": [1]})
    pq.write_table(table.replace_schema_metadata({"version": "2"}), path)
    with pytest.raises(SchemaError, match=r"log\.parquet: written by another version; run the"):
        read_events(path, DOMAIN, problems={})


@pytest.mark.parametrize("foreign", [True, False])
def test_a_file_that_is_no_log_is_a_schema_error(tmp_path: Path, foreign: bool) -> None:
    """Neither garbage nor another table is taken for a log."""
    path = tmp_path / "log.parquet"
    if foreign:
        pd.DataFrame({"other": [1]}).to_parquet(path)
    else:
        path.write_bytes(b"garbage")
    with pytest.raises(SchemaError, match=r"log\.parquet: not an event log"):
        read_events(path, DOMAIN, problems={})
