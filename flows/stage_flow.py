"""A stage as a Prefect flow: do the work, as one task or one a shard, then publish it.

Knows: Prefect, the artifacts that a stage leaves there. Does not know: what the stage computes, or
MLflow beyond one call.
"""

from __future__ import annotations

import base64
import csv
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import httpx
from prefect import Flow, flow, task
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_table_artifact,
)
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import PrefectException
from prefect.flow_engine import run_flow
from prefect.runtime import flow_run

from flows import terminal
from flows.artifacts import shown
from flows.environment import PARENT_TASK
from flows.execution import execute
from flows.origin import REPORT_NAME, present_origin, record_origin
from flows.stages import PARAMS_FILE, Stage, find_stage, load_stages
from selverify.params import load_params
from tasks import find_run, works_on_shards

if TYPE_CHECKING:
    from flows.tracking import Published

log = logging.getLogger(__name__)

MAIN_TABLE = "main.csv"
FIGURE = ".svg"


def run_stage(name: str) -> dict[str, float]:
    """Run stage ``name`` as the Prefect flow of the same name; returns its metrics.

    Raises:
        SelverifyError: a parameter, an input or an output is wrong, or what the stage raised.
    """
    given = load_params(PARAMS_FILE)
    stage = find_stage(load_stages(given), name)
    params = given.narrowed(**stage.item)
    run = find_run(stage.task)
    terminal.prepare()

    with ExitStack() as stack:
        options: dict[str, Any] = {}
        if works_on_shards(run):
            mapping = import_module("flows.mapping")  # with all of the library that shards need
            options["task_runner"] = stack.enter_context(mapping.task_runner(params.tracking))
            mapper = mapping.mapper(stage.name, params.tracking, key=_key(stage.name, "progress"))
            run = partial(run, **{"mapper": mapper})

        def work() -> dict[str, float]:
            return execute(stage, params, run)

        if not options:
            work = task(name=f"{stage.name}: run")(work)

        @task(name=f"{stage.name}: publish")
        def publish(seconds: float) -> Published:
            from flows.tracking import publish_stage  # MLflow, once the work is done

            return publish_stage(stage, params, seconds=seconds, flow_run=str(flow_run.id))

        origin = present_origin(Path.cwd())
        run_name = f"{stage.name} at {origin.commit}"

        @flow(name=stage.name, **options)
        def body() -> dict[str, float]:
            with terminal.quiet_once_terminated():
                log.info("%s: started", stage.name)
                started = time.monotonic()
                metrics = work()
                seconds = time.monotonic() - started
                if (stage.outputs[stage.task] / REPORT_NAME).is_file():
                    record_origin(Path.cwd(), stage.outputs[stage.task], origin)
                published = publish(seconds)
                with shown(stage.name):
                    _show(stage, metrics, published)
                log.info("%s: finished in %.1f s", stage.name, seconds)
                return metrics

        try:
            return _run(body, run_name, (stage.task, f"commit {origin.commit}"))
        finally:
            terminal.flush()


def _run(body: Flow[[], dict[str, float]], run_name: str, named: Sequence[str]) -> dict[str, float]:
    """Run a flow under these tags, below the task run that the environment names, if one is.

    Where it stands in Prefect is no reason to fail: else it stands by itself. The run is made here:
    tasks would take the tags of a context over, and ask the server for seconds whether a limit is
    set on any.
    """
    created = None
    with get_client(sync_client=True) as client:
        if parent := os.environ.get(PARENT_TASK):
            try:
                tagged = (*named, *_above(client, UUID(parent)))
                created = client.create_flow_run(
                    body, name=run_name, tags=tagged, parent_task_run_id=UUID(parent)
                )
            except (httpx.HTTPError, PrefectException, ValueError) as error:
                log.warning("%s: not shown below its pipeline: %s", run_name, error)
        if created is None:
            created = client.create_flow_run(body, name=run_name, tags=named)
    return cast(dict[str, float], run_flow(body, flow_run=created))


def _above(client: SyncPrefectClient, parent: UUID) -> Iterator[str]:
    """A tag with the name of the flow run of a task run; none where it is not told."""
    with suppress(httpx.HTTPError, PrefectException):
        above = client.read_task_run(parent).flow_run_id
        if above is not None:
            yield f"parent {client.read_flow_run(above).name}"


def _show(stage: Stage, metrics: Mapping[str, float], published: Published) -> None:
    """Leave as Prefect artifacts: metrics, figures, the main table, and where else the stage is."""
    rows = [{"metric": key, "value": value} for key, value in metrics.items()]
    create_table_artifact(table=rows, key=_key(stage.name))
    create_markdown_artifact(_links(stage, published), key=_key(stage.name, "links"))
    folder = stage.outputs[stage.task]
    for figure in sorted(folder.glob(f"*{FIGURE}")):
        data = base64.b64encode(figure.read_bytes()).decode()
        create_image_artifact(
            f"data:image/svg+xml;base64,{data}",
            key=_key(stage.name, figure.stem),
            description=figure.as_posix(),
        )
    table = folder / MAIN_TABLE
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            create_table_artifact(list(csv.DictReader(file)), key=_key(stage.name, table.stem))


def _links(stage: Stage, published: Published) -> str:
    """What finds the stage's run in MLflow and its outputs in ``dvc.lock``."""
    mlflow = f"`{published.run}`" if published.run else "not logged (python -m flows publish)"
    if published.page:
        mlflow = f"[{published.run}]({published.page})"
    lines = [
        "| Of this stage | Where |",
        "| --- | --- |",
        f"| MLflow run | {mlflow} |",
        f"| git commit | `{published.commit}` |",
        *(f"| `{path}` in `dvc.lock` | md5 `{md5}` |" for path, md5 in published.outputs.items()),
    ]
    return "\n".join(lines)


def _key(*parts: str) -> str:
    """An artifact's key: it may hold lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]", "-", "-".join(parts).lower())
