"""MLflow, written to and never read back into the work: flat runs, published from result files.

Knows: MLflow and the files of a finished stage. Does not know: Prefect, DVC, how results arose.
Publishing is idempotent: a run is keyed by its stage, its parameters and the digest of its outputs.
Runs are flat and tagged, because MLflow's chart view hides nested ones.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from flows.environment import TRACKING_DIRECTORY, TRACKING_URI
from flows.stages import PARAMS_FILE, Stage, load_stages, used_params
from selverify.errors import SchemaError
from selverify.params import Params, load_params
from selverify.storage import digest

log = logging.getLogger(__name__)

CURVES_NAME = "curves.csv"
CURVE_KEYS = ("method", "fold", "n")
FIGURE_SUFFIXES = frozenset({".png", ".svg", ".md", ".csv", ".txt"})
KEY_TAG = "selverify.key"
BATCH = 1000
PARAMS_BATCH = 100


@dataclass(frozen=True, slots=True)
class Curve:
    """Metrics of one method on one fold; the nominal budget n is the step."""

    method: str
    fold: str
    points: tuple[tuple[str, float, int], ...]


def create_database() -> None:
    """Make a new tracking database, once, before anything writes to it at the same time."""
    (Path.cwd() / TRACKING_DIRECTORY).mkdir(exist_ok=True)
    MlflowClient(os.environ[TRACKING_URI]).search_experiments(max_results=1)


def publish_stage(stage: Stage, params: Params, *, seconds: float | None = None) -> int:
    """Log a finished ``stage`` and the curves it wrote; returns the number of new runs.

    A tracking server that does not answer costs a warning, never the stage's result.
    """
    try:
        return _publish(stage, params, seconds)
    except MlflowException as error:
        log.warning("%s: not logged to MLflow (python -m flows publish): %s", stage.name, error)
        return 0


def publish_all() -> int:
    """Log every stage whose outputs are there; stages that DVC restored are logged this way."""
    params = load_params(PARAMS_FILE)
    finished = [stage for stage in load_stages(params).values() if stage.metrics.is_file()]
    new = sum(publish_stage(stage, params) for stage in finished)
    print(f"MLflow: {len(finished)} stages are logged, {new} runs of them now")
    return new


def read_curves(path: Path) -> tuple[Curve, ...]:
    """Curves from a CSV with columns method, fold, n and any number of metrics.

    Raises:
        SchemaError: a column is missing, or a value is no number.
    """
    points: dict[tuple[str, str], list[tuple[str, float, int]]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = set(CURVE_KEYS) - set(reader.fieldnames or ())
        if missing:
            raise SchemaError(f"{path}: no column {', '.join(sorted(missing))}")
        for line, row in enumerate(reader, start=2):
            points[row["method"], row["fold"]].extend(_points(path, line, row))
    return tuple(Curve(method, fold, tuple(found)) for (method, fold), found in points.items())


def _points(path: Path, line: int, row: Mapping[str, str]) -> Iterator[tuple[str, float, int]]:
    for name, text in row.items():
        if name in CURVE_KEYS or not text:
            continue
        try:
            yield name, float(text), int(row["n"])
        except ValueError as error:
            raise SchemaError(f"{path}: line {line}, {name}: {error}") from error


def _publish(stage: Stage, params: Params, seconds: float | None) -> int:
    client = MlflowClient(os.environ[TRACKING_URI])
    experiment = _experiment(client, params.tracking.experiment)
    values = {name: json.dumps(value) for name, value in used_params(stage, params).items()}
    outputs = {f"dvc.out.{path}": digest(path) for path in stage.outputs.values()}
    key = _key(stage.name, values, outputs)
    if _published(client, experiment, key):
        return 0
    tags = {**_origin(stage), **outputs, "stage": stage.name, "domain": params.domain}
    curves = list(_curve_files(stage))
    for curve in curves:
        names = {"method": curve.method, "fold": curve.fold}
        _log(
            client,
            experiment,
            name=f"{curve.method}/{curve.fold}",
            params={**values, **names},
            tags={**tags, **names, "pipeline": key},
            points=curve.points,
        )
    metrics = dict(json.loads(stage.metrics.read_text(encoding="utf-8")))
    if seconds is not None:
        metrics["seconds"] = seconds
    # The stage's own run comes last: its key says that everything before it was logged.
    _log(
        client,
        experiment,
        name=stage.name,
        params=values,
        tags={**tags, KEY_TAG: key, "pipeline": key},
        points=tuple((name, value, 0) for name, value in metrics.items()),
        figures=_figures(stage),
    )
    return len(curves) + 1


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    artifacts = (Path.cwd() / TRACKING_DIRECTORY / "artifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=artifacts))


def _published(client: MlflowClient, experiment: str, key: str) -> bool:
    query = f"tags.`{KEY_TAG}` = '{key}' and attributes.status = 'FINISHED'"
    return bool(client.search_runs([experiment], query, max_results=1))


def _key(name: str, values: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    text = json.dumps([name, values, outputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _origin(stage: Stage) -> dict[str, str]:
    """The git commit, and the digests of everything the stage depends on, as DVC records them."""
    needed = (*stage.inputs.values(), *stage.sources)
    hashes = {f"dvc.dep.{path}": digest(path) for path in needed if path.exists()}
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "git.commit": _git("rev-parse", "HEAD") or "none",
        "git.changed": "unknown" if changed is None else str(bool(changed)).lower(),
        **hashes,
    }


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _curve_files(stage: Stage) -> Iterator[Curve]:
    for path in stage.outputs.values():
        if (path / CURVES_NAME).is_file():
            yield from read_curves(path / CURVES_NAME)


def _figures(stage: Stage) -> list[tuple[Path, str]]:
    """Files a person looks at, each with the folder it keeps among the run's artifacts."""
    found: list[tuple[Path, str]] = []
    for root in stage.outputs.values():
        files = sorted(path for path in root.rglob("*") if path.suffix in FIGURE_SUFFIXES)
        found += [(path, path.parent.relative_to(root.parent).as_posix()) for path in files]
    return found


def _log(
    client: MlflowClient,
    experiment: str,
    *,
    name: str,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    points: Iterable[tuple[str, float, int]],
    figures: Iterable[tuple[Path, str]] = (),
) -> None:
    run = client.create_run(experiment, run_name=name).info.run_id
    now = int(time.time() * 1000)
    metrics = [Metric(key, value, now, step) for key, value, step in points]
    settings = [Param(key, value) for key, value in params.items()]
    client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])
    for start in range(0, len(settings), PARAMS_BATCH):
        client.log_batch(run, params=settings[start : start + PARAMS_BATCH])
    for start in range(0, len(metrics), BATCH):
        client.log_batch(run, metrics=metrics[start : start + BATCH])
    for path, folder in figures:
        client.log_artifact(run, str(path), folder)
    client.set_terminated(run)
