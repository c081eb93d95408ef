"""The published pages: filled from a run, its rows kept beside them, and computed again from these.

Knows: what the stage ``report`` reads, where rows are kept. Does not know: how a number was
measured, what a page says. Problems are not kept: the stage ``benchmark`` makes them again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import asdict
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from flows.execution import execute
from flows.origin import Origin, changed_values, find_origin, model_digests
from flows.preflight import preflight
from flows.readme import FIGURES, fill
from flows.stages import PARAMS_FILE, PIPELINE_FILE, Stage, load_stages
from selverify.errors import ArtifactError, SchemaError, SelverifyError
from selverify.params import Params, check_params, load_params
from selverify.storage import atomic_path, write_plain_json
from tasks import find_run

ROWS = Path("docs/results")
MANIFEST = "manifest.json"
NOT_KEPT = ("benchmark",)
"""Stages whose outputs are made again."""
WEIGHTS = "*.safetensors"
DATA = "SELVERIFY_DATA"
"""The folder of recorded data; where a benchmark was read from files, they lie in ``problems``."""
SHOWN = 20
"""Lines of a difference."""


def fill_pages() -> None:
    """Fill the pages from the last stage's report, keep its rows beside them, and say so."""
    root, stages = Path.cwd(), preflight()
    last = list(stages.values())[-1]
    report = last.outputs[last.task]
    origin = find_origin(root, report)
    filled = fill(root, report, origin=origin)
    rows = _keep(last, root / ROWS / filled[-1].stem, origin, load_params(PARAMS_FILE))
    shown = " and ".join(map(str, filled))
    print(f"Filled {shown} from {report}/; rows are in {rows.relative_to(root)}/")


def check_published() -> None:
    """Compute every page of results again from its rows.

    Raises:
        ArtifactError: no rows are kept.
        SchemaError: a page or a figure says something else; the first differences are printed.
    """
    root, wrong = Path.cwd(), []
    folders = sorted(one.parent for one in (root / ROWS).glob(f"*/{MANIFEST}"))
    if not folders:
        raise ArtifactError(f"{ROWS}: no rows; expected those that `python -m flows readme` keeps")
    for folder in folders:
        started = time.monotonic()
        with TemporaryDirectory() as temporary:
            try:
                differences = list(_differences(folder, Path(temporary), root))
            except SelverifyError as error:
                print(f"{folder.name}: not checked: {error}")
                wrong.append(folder.name)
                continue
        print(*differences, sep="\n", end="\n" * bool(differences))
        said = "differs" if differences else "as published"
        print(f"{folder.name}: {said} ({time.monotonic() - started:.0f} s)")
        wrong += [folder.name] * bool(differences)
    if wrong:
        raise SchemaError(f"{', '.join(wrong)}: expected what the rows in {ROWS} give")


def _keep(report: Stage, folder: Path, origin: Origin, params: Params) -> Path:
    """Copy what the report was computed from, without problems and weights."""
    manifest = {
        "origin": asdict(origin),
        "params": changed_values(Path.cwd()),
        "models": dict(model_digests(params, Path.cwd())),
    }
    with atomic_path(folder) as temporary:
        temporary.mkdir(parents=True)
        for path, producer in report.needed:
            if producer.partition("@")[0] not in NOT_KEPT:
                ignored = shutil.ignore_patterns(WEIGHTS)
                shutil.copytree(path, temporary / path, ignore=ignored)
        write_plain_json(temporary / MANIFEST, manifest)
    return folder


def _differences(folder: Path, work: Path, root: Path) -> Iterator[str]:
    """The first lines in which pages differ from what the rows in ``folder`` give, and figures."""
    manifest = _read(folder / MANIFEST)
    shutil.copytree(folder, work, dirs_exist_ok=True)
    shutil.copy(root / "README.md", work)
    shutil.copytree(
        root / "docs", work / "docs", ignore=lambda _, names: {*names} - {*_pages(names)}
    )
    params = check_params(
        _laid_over(yaml.safe_load((root / PARAMS_FILE).read_text("utf-8")), manifest["params"]),
        folder / MANIFEST,
    )
    with chdir(work):
        stages = load_stages(params, root / PIPELINE_FILE)
        last = list(stages.values())[-1]
        for stage in (*(stages[name] for name in NOT_KEPT), last):
            execute(stage, params, find_run(stage.task))
        origin = Origin(**{**manifest["origin"], "changes": tuple(manifest["origin"]["changes"])})
        filled = fill(work, last.outputs[last.task], origin=origin)
    for page in filled:
        here, computed = ((one / page).read_text("utf-8").splitlines() for one in (root, work))
        found = unified_diff(here, computed, f"{page}", "from its rows", lineterm="", n=0)
        yield from islice(found, SHOWN)
    for figure in sorted((work / FIGURES).rglob("*.svg")):
        name = figure.relative_to(work)
        if not (root / name).is_file() or (root / name).read_bytes() != figure.read_bytes():
            yield f"{name} differs from what its rows give"


def _pages(names: list[str]) -> Iterator[str]:
    return (name for name in names if name.endswith(".md"))


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found
    except ValueError as error:
        raise SchemaError(f"{path}: {error}, expected what `flows readme` writes") from error


def _laid_over(present: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """``present`` with values by their dotted names; files are looked for in ``SELVERIFY_DATA``."""
    folder = Path(os.environ.get(DATA, "."), "problems")
    for dotted, value in values.items():
        *sections, last = dotted.split(".")
        section = present
        for name in sections:
            section = section.setdefault(name, {})
        if last == "path" and value is not None:
            found = folder / Path(value).name
            section[last] = str(found.resolve()) if found.is_file() else value
        else:
            section[last] = value
    return present
