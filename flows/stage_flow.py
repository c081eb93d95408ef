"""A stage as a Prefect flow of two tasks: do the work, then publish it.

Knows: Prefect. Does not know: what the stage computes, or MLflow beyond one call.
"""

from __future__ import annotations

import logging
import re
import time

from prefect import flow, task
from prefect.artifacts import create_table_artifact

from flows import terminal
from flows.execution import execute
from flows.stages import PARAMS_FILE, find_stage, load_stages, params_of
from flows.tracking import publish_stage
from selverify.params import load_params
from tasks import find_run

log = logging.getLogger(__name__)


def run_stage(name: str) -> dict[str, float]:
    """Run stage ``name`` as the Prefect flow of the same name; returns its metrics.

    Raises:
        SelverifyError: a parameter, an input or an output is wrong, or what the stage raised.
    """
    given = load_params(PARAMS_FILE)
    stage = find_stage(load_stages(given), name)
    params = params_of(stage, given)
    run = find_run(stage.task)
    terminal.prepare()

    @task(name=f"{stage.name}: run")
    def work() -> tuple[dict[str, float], float]:
        started = time.monotonic()
        metrics = execute(stage, params, run)
        return metrics, time.monotonic() - started

    @task(name=f"{stage.name}: publish")
    def publish(seconds: float) -> None:
        publish_stage(stage, params, seconds=seconds)

    @flow(name=stage.name)
    def body() -> dict[str, float]:
        log.info("%s: started", stage.name)
        metrics, seconds = work()
        publish(seconds)
        rows = [{"metric": key, "value": value} for key, value in metrics.items()]
        create_table_artifact(table=rows, key=re.sub(r"[^a-z0-9]", "-", stage.name))
        log.info("%s: finished in %.1f s", stage.name, seconds)
        return metrics

    return body()
