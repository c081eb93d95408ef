"""MLflow, written to and never read back into the work: runs published from result files.

Knows: MLflow, the files of a finished stage, what DVC records of it. Does not know: Prefect, how
results arose.
Publishing is idempotent: a run is keyed by its stage, its parameters and the digest of its outputs.
The stage that writes curves is the parent run of its pipeline; its children are the curves, one a
method, backbone, strength and fold, and the runs of the other stages.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import quote, urlencode

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from sqlalchemy.exc import SQLAlchemyError

from flows.environment import TRACKING_DIRECTORY, TRACKING_URI
from flows.origin import code_changed, git
from flows.preflight import DVC_LOCK
from flows.server import without_secrets
from flows.stages import PARAMS_FILE, Stage, leaves, load_stages, used_params
from selverify.errors import ParamsError, SchemaError, SelverifyError
from selverify.params import Params, load_params, read_yaml
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
NEEDED_TAG, NEEDED_NAME = "dvc.deps", "dependencies.json"
"""Of what a stage depends on: the tag with one digest of all, the artifact with each."""
EXPERIMENT_TAG = "selverify.experiment"
"""Of a run that stands for all stages of an experiment that was not kept."""
DVC_EXPERIMENT, DVC_EXPERIMENT_TAG = "DVC_EXP_NAME", "dvc.exp"
DVC_ROOT = "DVC_ROOT"
"""DVC tells what it starts where the checkout is, also in the copy that an experiment runs in."""
PIPELINE, PIPELINE_SECONDS = "pipeline", "pipeline_seconds"
BATCH = 1000
PARAMS_BATCH = 100
DIGEST_LENGTH = 32
SQLITE = "sqlite:///"
TRACKING_ERRORS = (MlflowException, SQLAlchemyError, OSError, ImportError)
"""What MLflow raises where a server refuses, a database is none, or its driver is missing."""


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
class Logged:
    """Experiments that are one run each: what they are for, and how many of these are kept."""

    label: str
    keep: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a stage's outputs are of: its parameters as texts, and the outputs' digests by tag."""

    stage: Stage
    values: Mapping[str, str]
    outputs: Mapping[str, str]

    @classmethod
    def of(cls, stage: Stage, params: Params) -> Result:
        """Read the outputs of a finished stage."""
        values = _texts(used_params(stage, params))
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


class Tracker:
    """The experiment that ``params`` name, on the tracking server of the environment."""

    def __init__(self, params: Params) -> None:
        self.client = MlflowClient(os.environ[TRACKING_URI])
        name = params.tracking.experiment
        found = self.client.get_experiment_by_name(name)
        self.experiment = str(
            found.experiment_id
            if found is not None
            else self.client.create_experiment(
                name, artifact_location=artifact_location(os.environ[TRACKING_URI])
            )
        )

    def find(self, tag: str, value: str) -> list[Run]:
        """The runs with this tag, newest first."""
        return list(self.client.search_runs([self.experiment], f"tags.`{tag}` = '{value}'"))

    def create(self, name: str, tags: dict[str, str], started: int) -> str:
        """A new run; its id. Milliseconds of the epoch say when its work began."""
        run = self.client.create_run(self.experiment, start_time=started, run_name=name, tags=tags)
        return str(run.info.run_id)

    def finish(
        self,
        run: str,
        params: Mapping[str, str],
        tags: Mapping[str, str],
        points: Iterable[tuple[str, float, int]],
        files: Iterable[tuple[Path, str]] = (),
        *,
        ended: int,
        failed: bool = False,
    ) -> None:
        """Fill a run and end it; tags are last, for one may say that all else was logged."""
        settings = [Param(key, value) for key, value in params.items()]
        metrics = [Metric(key, value, ended, step) for key, value, step in points]
        for start in range(0, len(settings), PARAMS_BATCH):
            self.client.log_batch(run, params=settings[start : start + PARAMS_BATCH])
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(run, metrics=metrics[start : start + BATCH])
        for path, folder in files:
            self.client.log_artifact(run, str(path), folder)
        self.client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])
        self.client.set_terminated(run, "FAILED" if failed else "FINISHED", end_time=ended)

    def page(self, run: str) -> str | None:
        """The run's page; None where a database is written to directly."""
        address = os.environ[TRACKING_URI]
        if not address.startswith("http"):
            return None
        return f"{without_secrets(address).rstrip('/')}/#/experiments/{self.experiment}/runs/{run}"


def artifact_location(uri: str) -> str | None:
    """Where a new experiment keeps its files: beside its database; a server decides for itself."""
    if uri.startswith("http"):
        return None
    folder = Path(os.environ.get(DVC_ROOT, "")) / TRACKING_DIRECTORY
    if uri.startswith(SQLITE):
        folder = Path(uri.removeprefix(SQLITE)).parent
    return (folder / "artifacts").resolve().as_uri()


def create_database() -> None:
    """Make a new tracking database, once, before anything writes to it at the same time.

    Raises:
        ParamsError: ``MLFLOW_TRACKING_URI`` names no database or server that can be used.
    """
    given = os.environ[TRACKING_URI]
    try:
        (Path.cwd() / TRACKING_DIRECTORY).mkdir(exist_ok=True)
        if given.startswith(SQLITE):  # MLflow tries for minutes
            with TemporaryFile(dir=Path(given.removeprefix(SQLITE)).parent):
                pass
        MlflowClient(given).search_experiments(max_results=1)
    except (*TRACKING_ERRORS, ValueError) as error:
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
    new, run, page = 0, None, None
    try:
        tracker = Tracker(params)
        run = next((one.info.run_id for one in tracker.find(KEY_TAG, result.key)), None)
        if run is None:
            new, run = _publish(tracker, result, params, seconds)
        if flow_run is not None:
            tracker.client.set_tag(run, FLOW_RUN_TAG, flow_run)
        page = tracker.page(run)
    except TRACKING_ERRORS as error:
        log.warning("%s: not logged to MLflow (python -m flows publish): %s", stage.name, error)
    digests = {name.removeprefix(OUTPUT_TAG): value for name, value in result.outputs.items()}
    return Published(new, run, page, digests, git(Path.cwd(), "rev-parse", "HEAD") or "none")


def publish_all() -> None:
    """Log every stage whose outputs are there; stages that DVC restored are logged this way.

    Outputs that DVC does not know under the present parameters are left out.
    """
    params = load_params(PARAMS_FILE)
    finished = _finished(params)
    lock = read_yaml(DVC_LOCK) if DVC_LOCK.is_file() else {}
    known = [stage for stage in finished if _is_recorded(stage, params, lock)]
    published = [publish_stage(stage, params.narrowed(**stage.item)) for stage in known]
    try:
        _adopt(Tracker(params), params)  # those logged after their parent
    except TRACKING_ERRORS as error:
        log.warning("pipeline: its runs were not joined (python -m flows publish): %s", error)
    if others := [stage.name for stage in finished if stage not in known]:
        print(
            f"MLflow: {', '.join(others)}: not logged, because {DVC_LOCK} states other parameters "
            "or outputs"
        )
    logged = sum(one.run is not None for one in published)
    new = sum(one.new for one in published)
    print(f"MLflow: {logged} stages are logged, {new} runs of them now")


def publish_experiment(
    name: str, metrics: Mapping[str, float] | None, logged: Logged, *, seconds: float
) -> None:
    """Log an experiment that was not kept as one run, and remove old ones of the same label.

    ``metrics`` are the pipeline's, None where it failed. That MLflow does not answer, or that
    ``params.yaml`` was broken meanwhile, costs a warning.
    """
    try:
        tracker = Tracker(load_params(PARAMS_FILE))
        ended = int(time.time() * 1000)
        run = tracker.create(
            f"{logged.label} {name}", {EXPERIMENT_TAG: logged.label}, ended - int(1000 * seconds)
        )
        commit = git(Path.cwd(), "rev-parse", "HEAD") or "none"
        points = [(key, value, 0) for key, value in {**(metrics or {}), "seconds": seconds}.items()]
        tracker.finish(run, {}, {"git.commit": commit}, points, ended=ended, failed=metrics is None)
        for old in tracker.find(EXPERIMENT_TAG, logged.label)[logged.keep :]:
            tracker.client.delete_run(old.info.run_id)
    except (*TRACKING_ERRORS, ParamsError) as error:
        log.warning("%s: not logged to MLflow: %s", name, error)


def seconds_of(stage: Stage, params: Params) -> float | None:
    """How long it took to write the outputs of ``stage``; None where MLflow does not know it."""
    key = Result.of(stage, params).key
    try:
        runs = Tracker(params).find(KEY_TAG, key)
    except TRACKING_ERRORS:
        return None
    return next(
        (run.data.metrics["seconds"] for run in runs if "seconds" in run.data.metrics), None
    )


def comparison_page() -> str:
    """The address, on MLflow's server, of the charts of the methods of the last pipeline.

    Of all pipelines where outputs of the last one are missing. An oracle is no choice, and stands
    in no chart. Sorted by time, as by default, its list would show parent runs only.
    """
    from selverify.report.names import ORACLES

    params = load_params(PARAMS_FILE)
    tracker = Tracker(params)
    wanted = ["params.fold = 'all'", *(f"params.method != '{name}'" for name in ORACLES)]
    pipeline = None
    with suppress(SelverifyError):
        _, pipeline = _logged(tracker, params)
    if pipeline is not None:
        wanted.append(f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{pipeline.info.run_id}'")
    query = {
        "compareRunsMode": "CHART",
        "searchFilter": " and ".join(wanted),
        "orderByKey": "metrics.`accuracy`",
        "orderByAsc": "false",
    }
    return f"#/experiments/{tracker.experiment}/runs?{urlencode(query, quote_via=quote)}"


def read_curves(path: Path) -> tuple[Curve, ...]:
    """Curves from a CSV: the columns before ``n`` name a curve, those after it are its metrics.

    Raises:
        SchemaError: there is no such column, or a value is no number.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    try:
        place = list(table.columns).index(STEP)
        keys, metrics = list(table.columns[:place]), list(table.columns[place + 1 :])
        return tuple(
            Curve(
                dict(zip(keys, map(str, names), strict=True)),
                tuple(
                    (name, float(row[name]), int(row[STEP]))
                    for row in rows.to_dict("records")
                    for name in metrics
                    if row[name]
                ),
            )
            for names, rows in table.groupby(keys, sort=False)
        )
    except ValueError as error:
        raise SchemaError(f"{path}: {error}, expected a column {STEP!r}, and numbers") from error


def _finished(params: Params) -> list[Stage]:
    """The stages whose outputs are there."""
    return [
        stage
        for stage in load_stages(params).values()
        if stage.metrics.is_file() and all(path.exists() for path in stage.outputs.values())
    ]


def _is_recorded(stage: Stage, params: Params, lock: Mapping[str, Any]) -> bool:
    """Whether the entry in ``lock`` is of the outputs that are there and of these parameters.

    A frozen stage, which DVC does not run, need not have one.
    """
    try:
        entry = lock["stages"][stage.name]
        outputs = {one["path"]: one["md5"] for one in entry["outs"]}
        values = {**stage.item, **leaves("", entry["params"][PARAMS_FILE.as_posix()])}
    except (KeyError, TypeError):
        return stage.frozen
    if values != used_params(stage, params.narrowed(**stage.item)):
        return False
    return outputs == {path.as_posix(): digest(path) for path in stage.outputs.values()}


def _publish(
    tracker: Tracker, result: Result, params: Params, seconds: float | None
) -> tuple[int, str]:
    """Log a stage; the number of new runs, and its own."""
    stage, client = result.stage, tracker.client
    for unfinished in tracker.find(PENDING_TAG, result.key):
        client.delete_run(unfinished.info.run_id)
    # The work's time, not that of the logging.
    ended = int(time.time() * 1000)
    started = ended - int(1000 * (seconds or 0.0))
    curves = list(_curves(stage))
    needed = _needed(stage)
    tags = {**_origin(needed), **result.outputs, "stage": stage.name, "domain": params.domain}
    name = f"{PIPELINE} {params.domain}" if curves else stage.name
    pending = {PENDING_TAG: result.key}
    run = tracker.create(name, pending, started)
    for curve in curves:
        child = tracker.create(
            "/".join(curve.names.values()), {MLFLOW_PARENT_RUN_ID: run, **pending}, started
        )
        named = {**result.values, **curve.names}
        tracker.finish(child, named, {**tags, **curve.names}, curve.points, ended=ended)
    metrics = dict(json.loads(stage.metrics.read_text(encoding="utf-8")))
    if seconds is not None:
        metrics["seconds"] = seconds
    if datasets := _datasets(stage):
        client.log_inputs(run, datasets)
    client.log_dict(run, needed, NEEDED_NAME)
    points = [(name, value, 0) for name, value in metrics.items()]
    # Last, because the key says that everything before it was logged.
    keyed = {**tags, KEY_TAG: result.key}
    values = _pipeline_values(params) if curves else {}
    tracker.finish(run, {**values, **result.values}, keyed, points, _files(stage), ended=ended)
    if curves:
        _adopt(tracker, params)
    return len(curves) + 1, run


def _pipeline_values(params: Params) -> dict[str, str]:
    """What any stage uses, but for what tells the combinations of a matrix apart."""
    values: dict[str, Any] = {}
    for stage in load_stages(params).values():
        used = used_params(stage, params.narrowed(**stage.item))
        values |= {name: value for name, value in used.items() if name not in stage.item}
    return _texts(values)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in values.items()}


def _adopt(tracker: Tracker, params: Params) -> None:
    """Put the runs of the pipeline's stages under the run of the one that writes curves.

    A stage that several pipelines share stays with the first.
    """
    runs, parent = _logged(tracker, params)
    if parent is None:
        return
    for run in runs:
        if run is not None and run.info.run_id != parent.info.run_id:
            above = run.data.tags.get(MLFLOW_PARENT_RUN_ID, parent.info.run_id)
            tracker.client.set_tag(run.info.run_id, MLFLOW_PARENT_RUN_ID, above)
    seconds = [run.data.metrics["seconds"] for run in runs if run and "seconds" in run.data.metrics]
    whole = len(seconds) == len(runs)  # else DVC restored a stage
    if whole and PIPELINE_SECONDS not in parent.data.metrics:
        tracker.client.log_metric(parent.info.run_id, PIPELINE_SECONDS, sum(seconds))


def _logged(tracker: Tracker, params: Params) -> tuple[list[Run | None], Run | None]:
    """The runs of the stages whose outputs are there, if they have one; the run with curves."""
    runs: list[Run | None] = []
    parent = None
    for stage in _finished(params):
        key = Result.of(stage, params.narrowed(**stage.item)).key
        run = next(iter(tracker.find(KEY_TAG, key)), None)
        runs.append(run)
        parent = run if any(_curves(stage)) else parent
    return runs, parent


def _origin(needed: Mapping[str, str]) -> dict[str, str]:
    """The git commit, one digest of what a stage depends on, and DVC's name of an experiment."""
    text = json.dumps(needed, sort_keys=True)
    changed = code_changed(Path.cwd())
    experiment = os.environ.get(DVC_EXPERIMENT)
    return {
        "git.commit": git(Path.cwd(), "rev-parse", "HEAD") or "none",
        "git.changed": "unknown" if changed is None else str(changed).lower(),
        NEEDED_TAG: hashlib.sha256(text.encode()).hexdigest()[:16],
        **({DVC_EXPERIMENT_TAG: experiment} if experiment else {}),
    }


def _needed(stage: Stage) -> dict[str, str]:
    """The digests of what the stage depends on, by path, as DVC records them."""
    needed = (*stage.inputs.values(), *stage.sources)
    return {path.as_posix(): digest(path) for path in needed if path.exists()}


def _curves(stage: Stage) -> Iterator[Curve]:
    for path in stage.outputs.values():
        if (path / CURVES_NAME).is_file():
            yield from read_curves(path / CURVES_NAME)


def _files(stage: Stage) -> Iterator[tuple[Path, str]]:
    """What a person looks at, and checkpoints, each with its folder among the run's artifacts."""
    for root in stage.outputs.values():
        suffixes = CHECKPOINT_SUFFIXES if MODELS in root.parents else SHOWN_SUFFIXES
        top = root.parent if root.is_dir() else root.parent.parent
        for path in sorted(root.rglob("*") if root.is_dir() else (root,)):
            if path.suffix in suffixes:
                yield path, path.parent.relative_to(top).as_posix()


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
