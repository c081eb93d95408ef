"""What experiments that are not kept leave behind: a run each in MLflow, the last ones in Prefect.

Knows: MLflow and Prefect. Does not know: stages, schedules, why an experiment ran. Only what came
from a deployment is ever removed from Prefect.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException

from flows.environment import TRACKING_DIRECTORY, TRACKING_URI
from flows.preflight import is_writing
from flows.tracking import create_database

log = logging.getLogger(__name__)

ASIDE = "aside-"
KEPT = 28
"""Experiments of a deployment: of one every six hours, a week."""
MOST = 200
"""A page of Prefect's answers."""


@contextmanager
def tracked_aside() -> Iterator[None]:
    """Stages log to an MLflow database of their own, which is removed at the end.

    So are those of killed processes.
    """
    home = Path(TRACKING_DIRECTORY)
    home.mkdir(exist_ok=True)
    for aside in home.glob(f"{ASIDE}*"):
        process = aside.name.removeprefix(ASIDE).partition("-")[0]
        if not process.isdecimal() or not is_writing(int(process), aside):
            shutil.rmtree(aside, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{ASIDE}{os.getpid()}-", dir=home) as folder:
        given = os.environ[TRACKING_URI]
        os.environ[TRACKING_URI] = f"sqlite:///{Path(folder).resolve() / 'mlflow.db'}"
        try:
            create_database()
            yield
        finally:
            os.environ[TRACKING_URI] = given


def forget_old_runs(deployment: UUID) -> None:
    """Remove the ended runs of a deployment that kept no experiments, but for the last ``KEPT``.

    With a run go the runs of its stages and their artifacts. Where that fails is no reason to fail.
    """
    ended = FlowRunFilter(
        deployment_id={"any_": [deployment]}, state={"type": {"any_": sorted(TERMINAL_STATES)}}
    )
    try:
        with get_client(sync_client=True) as client:
            # The run that asks has not ended.
            for run in _runs(client, ended, after=KEPT - 1):
                if run.parameters.get("keep") is False:
                    _forget(client, run.id)
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("old runs stay in Prefect: %s", error)


def _forget(client: SyncPrefectClient, run: UUID) -> None:
    below = FlowRunFilter(parent_flow_run_id={"any_": [run]})
    while children := _runs(client, below):
        for child in children:
            _forget(client, child.id)
    made = ArtifactFilter(flow_run_id={"any_": [run]})
    while artifacts := client.read_artifacts(artifact_filter=made, limit=MOST):
        for artifact in artifacts:
            client.delete_artifact(artifact.id)
    client.delete_flow_run(run)


def _runs(client: SyncPrefectClient, chosen: FlowRunFilter, *, after: int = 0) -> list[FlowRun]:
    """The latest first, without the first ``after``."""
    return client.read_flow_runs(
        flow_run_filter=chosen, sort=FlowRunSort.START_TIME_DESC, limit=MOST, offset=after
    )
