"""MLflow, written to and never read back into the work: runs published from result files.

Knows: MLflow and the files of a finished stage. Does not know: Prefect, DVC, how results arose.
Publishing is idempotent: a run is keyed by its stage, its parameters and the digest of its outputs.
The stage that writes curves is the parent run of its pipeline; its children are the curves, one a
method, backbone, strength and fold, and the runs of the other stages.
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
from tempfile import TemporaryFile
from urllib.parse import quote, urlencode

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from flows.environment import TRACKING_DIRECTORY, TRACKING_URI
from flows.server import without_secrets
from flows.stages import PARAMS_FILE, Stage, load_stages, used_params
from selverify.errors import ParamsError, SchemaError
from selverify.params import Params, load_params
from selverify.storage import digest

log = logging.getLogger(__name__)

CURVES_NAME = "curves.csv"
STEP = "n"
SHOWN_SUFFIXES = frozenset({".png", ".svg", ".md", ".csv", ".txt", ".html", ".tex"})
CHECKPOINT_SUFFIXES = frozenset({".safetensors", ".json"})
DATA, MODELS = Path("data"), Path("models")
KEY_TAG = "selverify.key"
PENDING_TAG = "selverify.pending"
FLOW_RUN_TAG = "prefect.flow_run"
OUTPUT_TAG = "dvc.out."
PIPELINE = "pipeline"
BATCH = 1000
PARAMS_BATCH = 100
DIGEST_LENGTH = 32


SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Published:
    """A stage in MLflow: how many runs are new, its run, and that run's page where it has one.

    ``run`` is None where MLflow did not answer. ``outputs`` are digests by path, as ``dvc.lock``
    will state them; ``commit`` is git's.
    """

    new: int
    run: str | None
    page: str | None
    outputs: Mapping[str, str]
    commit: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a stage's outputs are of: its parameters as texts, and the outputs' digests by tag."""

    stage: Stage
    values: Mapping[str, str]
    outputs: Mapping[str, str]

    @classmethod
    def of(cls, stage: Stage, params: Params) -> Result:
        """Read the outputs of a finished stage."""
        values = {name: json.dumps(value) for name, value in used_params(stage, params).items()}
        outputs = {f"{OUTPUT_TAG}{path}": digest(path) for path in stage.outputs.values()}
        return cls(stage, values, outputs)

    @property
    def key(self) -> str:
        """What one run of MLflow is found by; equal results have the same one."""
        text = json.dumps([self.stage.name, self.values, self.outputs], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Curve:
    """Metrics along the nominal budget n, and what they are of: ``names`` by column."""

    names: Mapping[str, str]
    points: tuple[tuple[str, float, int], ...]


def create_database() -> None:
    """Make a new tracking database, once, before anything writes to it at the same time.

    Raises:
        ParamsError: ``MLFLOW_TRACKING_URI`` names no database or server that can be used.
    """
    (Path.cwd() / TRACKING_DIRECTORY).mkdir(exist_ok=True)
    given = os.environ[TRACKING_URI]
    try:
        if given.startswith(SQLITE):  # MLflow tries for minutes
            with TemporaryFile(dir=Path(given.removeprefix(SQLITE)).parent):
                pass
        MlflowClient(given).search_experiments(max_results=1)
    except (MlflowException, OSError, ValueError) as error:
        reason, *_ = str(error).splitlines() or [""]
        raise ParamsError(
            f"{TRACKING_URI}: given {without_secrets(given)!r}, expected sqlite:///FILE or "
            f"http://HOST:PORT: {reason}"
        ) from error


def publish_stage(
    stage: Stage,
    params: Params,
    *,
    seconds: float | None = None,
    flow_run: str | None = None,
) -> Published:
    """Log a finished ``stage`` and the curves it wrote, unless that was done before.

    ``flow_run`` is the Prefect run that came to this result last. A tracking server that does not
    answer costs a warning, never the stage's result.
    """
    result = Result.of(stage, params)
    new = 0
    run: str | None = None
    page: str | None = None
    try:
        client = MlflowClient(os.environ[TRACKING_URI])
        experiment = _experiment(client, params.tracking.experiment)
        run = next(iter(_found(client, experiment, KEY_TAG, result.key)), None)
        if run is None:
            new, run = _publish(client, experiment, result, params, seconds=seconds)
        if flow_run is not None:
            client.set_tag(run, FLOW_RUN_TAG, flow_run)
        page = _page(experiment, run)
    except MlflowException as error:
        log.warning("%s: not logged to MLflow (python -m flows publish): %s", stage.name, error)
    digests = {name.removeprefix(OUTPUT_TAG): value for name, value in result.outputs.items()}
    return Published(new, run, page, digests, _git("rev-parse", "HEAD") or "none")


def publish_all() -> int:
    """Log every stage whose outputs are there; stages that DVC restored are logged this way."""
    params = load_params(PARAMS_FILE)
    stages = load_stages(params)
    finished = [stage for stage in stages.values() if stage.metrics.is_file()]
    new = sum(publish_stage(stage, params.narrowed(**stage.item)).new for stage in finished)
    try:
        _adopt(MlflowClient(os.environ[TRACKING_URI]), params)  # those logged after their parent
    except MlflowException as error:
        log.warning("pipeline: its runs were not joined (python -m flows publish): %s", error)
    print(f"MLflow: {len(finished)} stages are logged, {new} runs of them now")
    return new


def seconds_of(stage: Stage, params: Params) -> float | None:
    """How long it took to write the outputs of ``stage``; None where MLflow does not know it."""
    try:
        client = MlflowClient(os.environ[TRACKING_URI])
        experiment = _experiment(client, params.tracking.experiment)
        key = Result.of(stage, params).key
        runs = [client.get_run(run) for run in _found(client, experiment, KEY_TAG, key)]
    except MlflowException:
        return None
    return next(
        (run.data.metrics["seconds"] for run in runs if "seconds" in run.data.metrics), None
    )


def comparison_page() -> str:
    """The address, on MLflow's server, of the charts of all methods along the budget.

    Sorted by time, as by default, its list would show parent runs only.
    """
    client = MlflowClient(os.environ[TRACKING_URI])
    experiment = _experiment(client, load_params(PARAMS_FILE).tracking.experiment)
    query = {
        "compareRunsMode": "CHART",
        "searchFilter": "params.fold = 'all'",
        "orderByKey": "metrics.`accuracy`",
        "orderByAsc": "false",
    }
    return f"#/experiments/{experiment}/runs?{urlencode(query, quote_via=quote)}"


def read_curves(path: Path) -> tuple[Curve, ...]:
    """Curves from a CSV: the columns before ``n`` name a curve, those after it are its metrics.

    Raises:
        SchemaError: there is no such column, or a value is no number.
    """
    points: dict[tuple[tuple[str, str], ...], list[tuple[str, float, int]]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = list(reader.fieldnames or ())
        if STEP not in columns:
            raise SchemaError(f"{path}: no column {STEP!r}")
        keys = columns[: columns.index(STEP)]
        for line, row in enumerate(reader, start=2):
            names = tuple((key, row.pop(key)) for key in keys)
            points[names].extend(_points(path, line, row))
    return tuple(Curve(dict(names), tuple(found)) for names, found in points.items())


def _points(path: Path, line: int, row: Mapping[str, str]) -> Iterator[tuple[str, float, int]]:
    for name, text in row.items():
        if name == STEP or not text:
            continue
        try:
            yield name, float(text), int(row[STEP])
        except ValueError as error:
            raise SchemaError(f"{path}: line {line}, {name}: {error}") from error


def _page(experiment: str, run: str) -> str | None:
    """The page of a run on the tracking server; None where a database is written to directly."""
    address = os.environ[TRACKING_URI]
    if not address.startswith("http"):
        return None
    return f"{without_secrets(address).rstrip('/')}/#/experiments/{experiment}/runs/{run}"


def _publish(
    client: MlflowClient,
    experiment: str,
    result: Result,
    params: Params,
    *,
    seconds: float | None,
) -> tuple[int, str]:
    """Log a stage; the number of new runs, and its own."""
    stage, key = result.stage, result.key
    for unfinished in _found(client, experiment, PENDING_TAG, key):
        client.delete_run(unfinished)
    curves = list(_curve_files(stage))
    tags = {**_origin(stage), **result.outputs, "stage": stage.name, "domain": params.domain}
    name = f"{PIPELINE} {params.domain}" if curves else stage.name
    run = client.create_run(experiment, run_name=name, tags={PENDING_TAG: key}).info.run_id
    for curve in curves:
        child = client.create_run(
            experiment,
            run_name="/".join(curve.names.values()),
            tags={MLFLOW_PARENT_RUN_ID: run, PENDING_TAG: key},
        ).info.run_id
        _log(
            client,
            child,
            params={**result.values, **curve.names},
            tags={**tags, **curve.names},
            points=curve.points,
        )
    metrics = dict(json.loads(stage.metrics.read_text(encoding="utf-8")))
    if seconds is not None:
        metrics["seconds"] = seconds
    if datasets := _datasets(stage):
        client.log_inputs(run, datasets)
    # Last, because the key says that everything before it was logged.
    _log(
        client,
        run,
        params=result.values,
        tags={**tags, KEY_TAG: key},
        points=tuple((name, value, 0) for name, value in metrics.items()),
        files=_files(stage),
    )
    if curves:
        _adopt(client, params)
    return len(curves) + 1, run


def _adopt(client: MlflowClient, params: Params) -> None:
    """Put the runs of the pipeline's stages under the run of the one that writes curves.

    A stage that several pipelines share stays with the first.
    """
    experiment = _experiment(client, params.tracking.experiment)
    runs: list[str] = []
    parent = None
    for stage in load_stages(params).values():
        if not stage.metrics.is_file():
            continue
        result = Result.of(stage, params.narrowed(**stage.item))
        for run in _found(client, experiment, KEY_TAG, result.key)[:1]:
            runs.append(run)
            parent = run if any(_curve_files(stage)) else parent
    for run in runs:
        if parent not in {None, run}:
            tags = client.get_run(run).data.tags
            client.set_tag(run, MLFLOW_PARENT_RUN_ID, tags.get(MLFLOW_PARENT_RUN_ID, parent))


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    artifacts = (Path.cwd() / TRACKING_DIRECTORY / "artifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=artifacts))


def _found(client: MlflowClient, experiment: str, tag: str, value: str) -> list[str]:
    query = f"tags.`{tag}` = '{value}'"
    return [run.info.run_id for run in client.search_runs([experiment], query)]


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


def _files(stage: Stage) -> list[tuple[Path, str]]:
    """What a person looks at, and checkpoints, each with its folder among the run's artifacts."""
    found: list[tuple[Path, str]] = []
    for root in stage.outputs.values():
        suffixes = CHECKPOINT_SUFFIXES if MODELS in root.parents else SHOWN_SUFFIXES
        inside = root.rglob("*") if root.is_dir() else (root,)
        files = sorted(path for path in inside if path.suffix in suffixes)
        top = root.parent if root.is_dir() else root.parent.parent
        found += [(path, path.parent.relative_to(top).as_posix()) for path in files]
    return found


def _datasets(stage: Stage) -> list[DatasetInput]:
    """The tables that the stage reads, by the digest that DVC records."""
    return [
        DatasetInput(
            Dataset(
                name=path.as_posix(),
                digest=digest(path)[:DIGEST_LENGTH],
                source_type="local",
                source=json.dumps({"uri": path.as_posix()}),
            ),
            [InputTag("mlflow.data.context", stage.task)],
        )
        for path in stage.inputs.values()
        if DATA in path.parents
    ]


def _log(
    client: MlflowClient,
    run: str,
    *,
    params: Mapping[str, str],
    tags: Mapping[str, str],
    points: Iterable[tuple[str, float, int]],
    files: Iterable[tuple[Path, str]] = (),
) -> None:
    """Fill a run and end it."""
    now = int(time.time() * 1000)
    metrics = [Metric(key, value, now, step) for key, value, step in points]
    settings = [Param(key, value) for key, value in params.items()]
    for start in range(0, len(settings), PARAMS_BATCH):
        client.log_batch(run, params=settings[start : start + PARAMS_BATCH])
    for start in range(0, len(metrics), BATCH):
        client.log_batch(run, metrics=metrics[start : start + BATCH])
    for path, folder in files:
        client.log_artifact(run, str(path), folder)
    client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])
    client.set_terminated(run)
