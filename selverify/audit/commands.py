"""What ``selverify audit`` does, as parts to print.

Knows: logs, audits, and which files are written. Does not know: the terminal, options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from selverify.audit.figures import accuracy_against_cost, found_against_calls, sample_points
from selverify.audit.importers import IMPORTERS, format_of
from selverify.audit.list_audit import (
    LARGEST_SEED,
    AuditSettings,
    LearnedOrders,
    audit_lists,
    flat,
)
from selverify.audit.log import Log, RecordedList, RecordedSample, read_log
from selverify.audit.records import COMPRESSED, PARQUET, first_value
from selverify.audit.sample_audit import audit_samples
from selverify.audit.savings import SolutionSettings
from selverify.audit.text import render_lists, render_samples
from selverify.data.grading import Grader
from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.report.pages import write_csv
from selverify.storage import check_place

GRADING_SECONDS, GRADING_WORKERS = 5.0, 2


def audit_log(
    path: Path,
    *,
    settings: AuditSettings,
    learned: LearnedOrders | None,
    figures: Path,
    csv: Path | None,
) -> Iterator[RenderableType]:
    """The audit of a log; writes figures and their points to ``figures``, the tables to ``csv``.

    A log of candidate lists and of samples is audited twice; the samples' table is then written
    beside ``csv``.

    Raises:
        ArtifactError: no such file, or no place for what is to be written.
        SchemaError: it is no log, it is empty, or it holds too little to say anything.
        ParamsError: a setting that the log cannot serve.
    """
    if not 0 <= settings.seed <= LARGEST_SEED:
        raise ParamsError(f"seed: given {settings.seed}, expected from 0 to {LARGEST_SEED}")
    name = path.name.encode(errors="replace").decode()  # figures hold text alone
    stem = figures / (name.removesuffix(COMPRESSED).removesuffix(".jsonl") or "log")
    places = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png", "csv")]
    for place in (*places, *([csv] if csv else ())):
        check_place(place)  # now, because the audit takes its time
    if csv is not None:
        _check_apart(csv, path, stem)
    log = _read(path)
    if not log.lists and not log.samples:
        raise SchemaError(f"{path}: given an empty log, expected candidate lists or samples")
    if log.lists:
        yield from _audit_lists(log.lists, name, settings, learned, stem=stem, csv=csv)
    elif learned or settings != AuditSettings(resamples=settings.resamples, seed=settings.seed):
        raise ParamsError(
            f"{path}: given samples only, expected no --by, --tau, --wanted, --complete or "
            "--encoder, which are of candidate lists"
        )
    if log.samples:
        if log.lists:
            yield ""
            stem = stem.with_name(f"{stem.name}-samples")
            csv = csv and _of_samples(csv)
        yield from _audit_samples(log.samples, name, settings, stem=stem, csv=csv)


def _check_apart(csv: Path, log: Path, stem: Path) -> None:
    """The tables are not written over the log, nor over the figures and their points."""
    written = rf"{re.escape(stem.name)}((-samples)?-run-\d+)?\.(svg|png|csv)"
    for table in map(Path.resolve, (csv, _of_samples(csv))):
        beside = table.parent == stem.parent.resolve() and re.fullmatch(written, table.name)
        if beside or table == log.resolve():
            what = "a file of the figures" if beside else "the log"
            raise ParamsError(f"csv: given {csv}, which would overwrite {what}, expected another")


def _of_samples(path: Path) -> Path:
    """Beside a file that is of the lists of a log, that of its samples."""
    return path.with_name(f"{path.stem}-samples{path.suffix}")


def _read(path: Path) -> Log:
    """The log at ``path``; of a file of others the error says how to make a log of it."""
    if path.is_dir():
        raise ArtifactError(f"{path}: given a folder, expected a log; {_rewrites(path, None)}")
    try:
        return read_log(path)
    except SchemaError as error:
        record = first_value(path)
        form = "search_and_learn" if path.suffix == PARQUET else format_of(record)
        ours = isinstance(record, dict) and "kind" in record
        if ours or (form is None and not isinstance(record, dict)):
            raise
        raise SchemaError(f"{error}; {_rewrites(path, form)}") from error


def _rewrites(path: Path, form: str | None) -> str:
    """Which command makes a log of runs of others."""
    if form is not None:
        return f"it looks like {form}: selverify import {form} {path} LOG"
    known = ", ".join(IMPORTERS)
    return f"runs of others: selverify import FORMAT {path} LOG, where FORMAT is one of {known}"


def _audit_lists(
    lists: tuple[RecordedList, ...],
    name: str,
    settings: AuditSettings,
    learned: LearnedOrders | None,
    *,
    stem: Path,
    csv: Path | None,
) -> Iterator[RenderableType]:
    found = audit_lists(lists, settings=settings, learned=learned)
    yield from render_lists(found)
    states = "state" if found.coverage.used == 1 else "states"
    title = f"{name}: {found.coverage.used:,} {states}, {found.coverage.reachable:,} of them "
    written = found_against_calls(found, stem, title=f"{title}with an accepted move")
    yield Text()
    yield from map(str, written)
    yield _table(found.curves, stem.with_name(f"{stem.name}.csv"))
    if csv is not None:
        yield _table(flat(found), csv)


def _audit_samples(
    samples: tuple[RecordedSample, ...],
    name: str,
    settings: AuditSettings,
    *,
    stem: Path,
    csv: Path | None,
) -> Iterator[RenderableType]:
    """One figure a run; runs are numbered, because their names are not made for files."""
    rules = SolutionSettings(  # nothing checks steps here
        orders=("shortest",), resamples=settings.resamples, seed=settings.seed
    )
    tables = []
    with Grader(GRADING_SECONDS, GRADING_WORKERS) as grader:
        audits = audit_samples(samples, settings=rules, grader=grader)
        for number, found in enumerate(audits, start=1):
            if number > 1:
                yield ""
            yield from render_samples(found)
            table = sample_points(found)
            tables.append(table.assign(run=found.run, model=found.model))
            title = f"{name}: run {found.run}, model {found.model}"
            own = stem.with_name(f"{stem.name}-run-{number}")
            written = accuracy_against_cost(table, own, title=title)
            yield Text()
            yield from map(str, written)
            yield _table(table, own.with_name(f"{own.name}.csv"))
    if csv is not None:
        yield _table(pd.concat(tables, ignore_index=True), csv)


def _table(table: pd.DataFrame, path: Path) -> str:
    write_csv(table, path)
    return str(path)
