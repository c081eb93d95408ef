"""The published pages: filled from a run, its rows kept beside them, and computed again from these.

Knows: what the stage ``report`` reads, where rows are kept. Does not know: how a number was
measured, what a page says. Problems are not kept: the stage ``benchmark`` makes them again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from difflib import unified_diff
from itertools import islice, repeat
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pandas.testing import assert_frame_equal
from pydantic import BaseModel, ConfigDict, ValidationError

from flows.execution import execute
from flows.folded_rows import fold, unfold
from flows.origin import Origin, find_origin, model_digests
from flows.preflight import alone, preflight
from flows.readme import BEGIN, DRAWN, FIGURES, fill
from flows.sentences import check_sentences
from flows.stages import PARAMS_FILE, PIPELINE_FILE, Stage, check_inputs, leaves, load_stages
from flows.tracking import seconds_of
from selverify.errors import ArtifactError, SchemaError, SelverifyError
from selverify.params import Params, check_params, load_params, read_yaml, validation_sentence
from selverify.storage import atomic_path, digest, write_plain_json
from tasks import find_run

ROWS = Path("docs/results")
MANIFEST = "manifest.json"
NOT_KEPT = ("benchmark",)
"""Stages whose outputs are made again."""
OF_THE_MACHINE = ("tracking.", "generator.", "verifier.source.")
"""Parameters that no report reads, and that may name servers and folders."""
WEIGHTS = "*.safetensors"
DATA = "SELVERIFY_DATA"
"""The folder of recorded data; where a benchmark was read from files, they lie in ``problems``."""
EVENTS = "events.parquet"
"""Of searches, which a report reads of its first backbone and strength alone."""
AS_PUBLISHED = "as published"
SHOWN = 20
"""Lines of a difference."""
NEAR = 1e-9
"""Between two numbers that count as equal."""


class Manifest(BaseModel):
    """What a page is of: its origin, the parameters by dotted name, models and data.

    ``command`` made it, from a commit's code where ``clean``. ``models`` are told as on the page.
    ``data`` are the digests of what the report was computed from, by path, as ``dvc.lock`` states
    them. ``minutes`` are those of each stage that MLflow knows, without what an earlier run had
    left in the caches.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: Origin
    command: str
    clean: bool
    params: dict[str, Any]
    models: dict[str, str]
    data: dict[str, str]
    minutes: dict[str, float]


def fill_pages() -> None:
    """Fill the pages from the last stage's report, keep its rows beside them, and say so.

    Raises:
        ArtifactError: the report is missing, or nobody knows where it was computed.
    """
    root = Path.cwd()
    with alone():
        stages = preflight()
        last = list(stages.values())[-1]
        report = last.outputs[last.task]
        origin = find_origin(root, report)
        if origin is None:
            raise ArtifactError(
                f"{report}: given a report of unknown origin, expected one that was computed here "
                "(python -m flows exec dvc repro --force --single-item report)"
            )
        check_inputs(last)
        filled = fill(root, report, origin=origin)
        rows = ROWS / filled[-1].stem
        _keep(stages, root / rows, origin)
    print(f"Filled {' and '.join(map(str, filled))} from {report}/; its rows are in {rows}/")


def check_published() -> None:
    """Compute every page whose rows are kept again from these, and name those without.

    Numbers in sentences are compared with the tables.

    Raises:
        ArtifactError: no rows are kept.
        SchemaError: a page, a figure or a sentence says something else, of which the first
            differences are printed; or a file of sentences cannot be read.
    """
    root, wrong = Path.cwd(), []
    # The largest first, so that no process waits for the other's at the end.
    found = [one.parent for one in sorted((root / ROWS).glob(f"*/{MANIFEST}"))]
    folders = sorted(found, key=lambda one: -sum(file.stat().st_size for file in one.rglob("*")))
    if not folders:
        raise ArtifactError(f"{ROWS}: no rows; expected those that `python -m flows readme` keeps")
    # A process each: a page is computed in a folder of its own.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as processes:
        for folder, (lines, said) in zip(
            folders, processes.map(_checked, folders, repeat(root)), strict=True
        ):
            print(*lines, f"{folder.name}: {said}", sep="\n", flush=True)
            wrong += [folder.name] * (not said.startswith(AS_PUBLISHED))
    for page in sorted((root / ROWS.parent).glob(f"{ROWS.name}*.md")):
        if BEGIN in page.read_text("utf-8") and page.stem not in {one.name for one in folders}:
            print(f"{page.stem}: no rows")
    for said, lines in check_sentences(root):
        print(*lines, said, sep="\n")
        wrong += [said.partition(":")[0]] * bool(lines)
    if wrong:
        raise SchemaError(
            f"{', '.join(wrong)}: expected what the rows in {ROWS} give, and in sentences what the "
            "tables say"
        )


def _keep(stages: Mapping[str, Stage], folder: Path, origin: Origin) -> None:
    """Copy what the last stage's report was computed from, without problems and weights."""
    params, known = (
        leaves("", read_yaml(PARAMS_FILE)),
        load_params(PARAMS_FILE),
    )
    needed = list(stages.values())[-1].needed
    main = f"{known.backbones[0]}-{known.strengths[0]}"
    manifest = Manifest(
        origin=origin,
        command=origin.command,
        clean=origin.clean,
        params={
            name: Path(value).name if name.endswith(".path") and value else value
            for name, value in params.items()
            if not name.startswith(OF_THE_MACHINE)
        },
        models=dict(model_digests(known, Path.cwd())),
        data={path.as_posix(): digest(path) for path, _ in needed},
        minutes=dict(_minutes(stages.values(), known)),
    )
    with atomic_path(folder) as temporary:
        temporary.mkdir(parents=True)
        for path, producer in needed:
            if producer.partition("@")[0] not in NOT_KEPT:
                ignored = shutil.ignore_patterns(WEIGHTS)
                shutil.copytree(path, temporary / path, ignore=ignored)
        for events in temporary.rglob(EVENTS):
            if events.parent.name != main:
                events.unlink()
        fold(temporary)
        write_plain_json(temporary / MANIFEST, manifest.model_dump(mode="json"))


def _minutes(stages: Iterable[Stage], params: Params) -> Iterator[tuple[str, float]]:
    for stage in stages:
        seconds = seconds_of(stage, params.narrowed(**stage.item))
        if seconds is not None:
            yield stage.name, round(seconds / 60, 1)


def _checked(folder: Path, root: Path) -> tuple[list[str], str]:
    """The first differences of one page, and what is said of it."""
    started = time.monotonic()
    with TemporaryDirectory() as temporary:
        try:
            differences = list(_differences(folder, Path(temporary), root))
        except SelverifyError as error:
            return [], f"not checked: {error}"
    said = "differs" if differences else AS_PUBLISHED
    return differences, f"{said} ({time.monotonic() - started:.0f} s)"


def _differences(folder: Path, work: Path, root: Path) -> Iterator[str]:
    """The first lines in which pages differ from what the rows in ``folder`` give, and figures."""
    manifest = _read(folder / MANIFEST)
    shutil.copytree(folder, work, dirs_exist_ok=True)
    unfold(work)
    for page in (root / "README.md", *(root / "docs").glob("*.md"), *(root / FIGURES).rglob(DRAWN)):
        (work / page.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, work / page.relative_to(root))
    present = read_yaml(root / PARAMS_FILE)
    params = check_params(_laid_over(present, manifest.params), folder / MANIFEST)
    with chdir(work):
        stages = load_stages(params, root / PIPELINE_FILE)
        last = list(stages.values())[-1]
        for stage in (*(stages[name] for name in NOT_KEPT), last):
            execute(stage, params, find_run(stage.task))
        for path in (path for name in NOT_KEPT for path in stages[name].outputs.values()):
            made, stated = digest(path), manifest.data.get(path.as_posix())
            if made != stated:
                yield f"{path}: made again, its digest is {made}, expected {stated}"
        filled = fill(work, last.outputs[last.task], origin=manifest.origin)
    for page in filled:
        here, computed = ((one / page).read_text("utf-8").splitlines() for one in (root, work))
        found = unified_diff(here, computed, f"{page}", "from its rows", lineterm="", n=0)
        yield from islice(found, SHOWN)
    for figure in sorted((*(work / FIGURES).rglob("*.svg"), *(work / FIGURES).rglob(DRAWN))):
        name = figure.relative_to(work)
        if not (root / name).is_file() or not _equal(root / name, figure):
            yield f"{name} differs from what its rows give"


def _equal(here: Path, computed: Path) -> bool:
    """Byte for byte, but numbers of a table to ``NEAR``: another processor rounds otherwise."""
    if here.suffix != ".csv":
        return here.read_bytes() == computed.read_bytes()
    try:
        assert_frame_equal(pd.read_csv(here), pd.read_csv(computed), rtol=NEAR, atol=NEAR)
    except AssertionError:
        return False
    return True


def _read(path: Path) -> Manifest:
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise SchemaError(f"{path}: {validation_sentence(error)}") from error


def _laid_over(present: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """``present`` with values by their dotted names.

    Where a split of a known benchmark was read from a copy, one is looked for in ``SELVERIFY_DATA``
    and else it is downloaded.
    """
    folder = Path(os.environ.get(DATA, "."), "problems")
    for dotted, value in values.items():
        *sections, last = dotted.split(".")
        section = present
        for name in sections:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        if last == "path" and value:
            known = values.get(".".join((*sections, "source")), "file") != "file"
            found = folder / value
            section[last] = str(found.resolve()) if found.is_file() else None if known else value
        else:
            section[last] = value
    return present
