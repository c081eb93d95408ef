"""What ``selverify audit`` does, as parts to print.

Knows: logs, audits, and which files are written. Does not know: the terminal, options.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from selverify.audit.answer_groups import by_run
from selverify.audit.figures import accuracy_against_cost, found_against_calls, sample_points
from selverify.audit.importers import read_any
from selverify.audit.importers.base import files_below
from selverify.audit.list_audit import (
    LARGEST_SEED,
    AuditSettings,
    LearnedOrders,
    audit_lists,
    flat,
)
from selverify.audit.log import RecordedList, RecordedSample
from selverify.audit.records import COMPRESSED
from selverify.audit.sample_audit import audit_samples
from selverify.audit.savings import SolutionSettings
from selverify.audit.text import render_lists, render_samples
from selverify.data.grading import GRADING_SECONDS, Grader
from selverify.errors import ParamsError, SchemaError
from selverify.report.pages import write_csv
from selverify.storage import check_place

GRADING_WORKERS = 2
MOST_RESAMPLES = 1_000_000


def audit_log(
    path: Path,
    *,
    settings: AuditSettings,
    learned: LearnedOrders | None,
    figures: Path,
    csv: Path | None,
) -> Iterator[RenderableType]:
    """The audit of a log, or of runs of others.

    Figures and their points are written to ``figures``, the tables to ``csv``. A log of candidate
    lists and of samples is audited twice; the samples' table is then written beside ``csv``. Of the
    files in ``figures`` those of the same log are replaced, and no others.

    Raises:
        ArtifactError: no such file, or no place for what is to be written.
        SchemaError: it is neither, it is empty, or it holds too little to say anything.
        ParamsError: a setting that the log cannot serve, or a file in the way that is not ours.
    """
    if not 0 <= settings.seed <= LARGEST_SEED:
        raise ParamsError(f"seed: given {settings.seed}, expected from 0 to {LARGEST_SEED}")
    if settings.resamples > MOST_RESAMPLES:
        raise ParamsError(
            f"resamples: given {settings.resamples:,}, expected at most {MOST_RESAMPLES:,}"
        )
    stem = figures / (_name(path).removesuffix(COMPRESSED).removesuffix(".jsonl") or "log")
    for place in _files(stem):
        check_place(place)  # now, because the audit takes its time
    if csv is not None:
        if not csv.name:
            raise ParamsError("csv: given a folder or no name, expected a file")
        check_place(csv)
        _check_apart(csv, path, stem)
    log, left_out = read_any(path)
    if not log.lists and not log.samples:
        raise SchemaError(f"{path}: given an empty log, expected candidate lists or samples")
    of_samples = stem.with_name(f"{stem.name}-samples") if log.lists else stem
    runs = [_of_run(of_samples, place) for place, _ in enumerate(by_run(log.samples), start=1)]
    _check_figures([*([stem] if log.lists else ()), *runs], path)
    if left_out:
        yield from (*left_out, "")
    if log.lists:
        yield from _audit_lists(log.lists, path, settings, learned, stem=stem, csv=csv)
    elif learned or settings != AuditSettings(resamples=settings.resamples, seed=settings.seed):
        raise ParamsError(
            f"{path}: given samples only, expected no --by, --tau, --wanted, --complete or "
            "--encoder, which are of candidate lists"
        )
    if log.samples:
        if log.lists:
            yield ""
            csv = csv and _of_samples(csv)
        yield from _audit_samples(log.samples, path, settings, stem=of_samples, csv=csv)


def _name(log: Path) -> str:
    """Of the log, as figures and their paths hold it: text alone."""
    return log.name.encode(errors="replace").decode()


def _files(stem: Path) -> list[Path]:
    """A figure's SVG and PNG, and its points."""
    return [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png", "csv")]


def _of_run(stem: Path, number: int) -> Path:
    return stem.with_name(f"{stem.name}-run-{number}")


def _check_figures(stems: Iterable[Path], log: Path) -> None:
    """Nothing is written over the log, nor over what no audit of it wrote.

    Raises:
        ParamsError: it would be.
    """
    for stem in stems:
        places = _files(stem)
        there = [place for place in places if os.path.lexists(place)]
        if any(os.path.realpath(place) == os.path.realpath(log) for place in there):
            raise ParamsError(
                f"figure: given {stem.parent}, where a figure would overwrite the log, expected "
                "another folder"
            )
        svg = places[0]
        if there and not (svg.is_file() and svg.read_bytes().endswith(_mark(log))):
            raise ParamsError(
                f"{there[0]}: given a file that is not marked as one of an audit of {log}, "
                "expected none; move it away, or name another folder (--figure)"
            )


def _mark(log: Path) -> bytes:
    """What ends the SVGs of a log: its path as a digest, because others may see them."""
    place = hashlib.blake2b(os.fsencode(os.path.realpath(log)), digest_size=8)
    return f"<!-- selverify audit {place.hexdigest()} -->\n".encode()


def _check_apart(csv: Path, log: Path, stem: Path) -> None:
    """The tables are not written over the log, nor over the figures and their points."""
    written = rf"{re.escape(stem.name)}((-samples)?-run-\d+)?\.(svg|png|csv)"
    read = {file.resolve() for file in (files_below(log, []) if log.is_dir() else [log])}
    for table in map(Path.resolve, (csv, _of_samples(csv))):
        beside = table.parent == stem.parent.resolve() and re.fullmatch(written, table.name)
        if beside or table in read:
            what = "a file of the figures" if beside else "the log"
            raise ParamsError(f"csv: given {csv}, which would overwrite {what}, expected another")


def _of_samples(path: Path) -> Path:
    """Beside a file that is of the lists of a log, that of its samples."""
    return path.with_name(f"{path.stem}-samples{path.suffix}")


def _audit_lists(
    lists: tuple[RecordedList, ...],
    log: Path,
    settings: AuditSettings,
    learned: LearnedOrders | None,
    *,
    stem: Path,
    csv: Path | None,
) -> Iterator[RenderableType]:
    found = audit_lists(lists, settings=settings, learned=learned)
    yield from render_lists(found)
    states = "state" if found.coverage.used == 1 else "states"
    title = f"{_name(log)}: {found.coverage.used:,} {states}, {found.coverage.reachable:,} of them "
    title = f"{title}with an accepted move"
    with _figure(stem, log) as drawn:
        found_against_calls(found, drawn, title=title)
    yield from _written(stem, found.curves)
    if csv is not None:
        yield _table(flat(found), csv)


def _audit_samples(
    samples: tuple[RecordedSample, ...],
    log: Path,
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
            title = f"{_name(log)}: run {found.run}, model {found.model}"
            own = _of_run(stem, number)
            with _figure(own, log) as drawn:
                accuracy_against_cost(table, drawn, title=title)
            yield from _written(own, table)
    if csv is not None:
        yield _table(pd.concat(tables, ignore_index=True), csv)


@contextmanager
def _figure(stem: Path, log: Path) -> Iterator[Path]:
    """Another stem to draw at; the SVG that is there in the end is marked, and comes first."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=stem.parent, prefix=".") as folder:
        drawn = Path(folder) / stem.name
        yield drawn
        svg, png, _ = _files(drawn)
        with svg.open("ab") as file:
            file.write(_mark(log))
        for one in (svg, png):
            one.replace(stem.parent / one.name)


def _written(stem: Path, points: pd.DataFrame) -> Iterator[RenderableType]:
    """The paths of a figure and of its points, which are written."""
    svg, png, table = _files(stem)
    yield Text()
    yield from (str(svg), str(png), _table(points, table))


def _table(table: pd.DataFrame, path: Path) -> str:
    write_csv(table, path)
    return str(path)
