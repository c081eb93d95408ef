"""What experiments that are not kept leave behind: a run each in MLflow, the last ones in Prefect.

Knows: MLflow and Prefect. Does not know: stages, schedules, why an experiment ran. Only what came
from a deployment is ever removed from Prefect.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException

from flows.environment import TRACKING_DIRECTORY, TRACKING_URI
from flows.tracking import create_database

log = logging.getLogger(__name__)

KEPT = 28
"""Experiments of a deployment: of one every six hours, a week."""
MOST = 200
"""A page of Prefect's answers; what is beyond it goes with the next run."""


@contextmanager
def tracked_aside() -> Iterator[None]:
    """Stages log to an MLflow database of their own, which is removed at the end."""
    Path(TRACKING_DIRECTORY).mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="aside-", dir=TRACKING_DIRECTORY) as folder:
        given = os.environ[TRACKING_URI]
        os.environ[TRACKING_URI] = f"sqlite:///{Path(folder).resolve() / 'mlflow.db'}"
        try:
            create_database()
            yield
        finally:
            os.environ[TRACKING_URI] = given


def forget_old_runs(deployment: UUID) -> None:
    """Remove the ended runs of a deployment from Prefect, but for the last ``KEPT``.

    With a run go the runs of its stages and their artifacts. Where that fails is no reason to fail.
    """
    ended = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=sorted(TERMINAL_STATES))),
    )
    try:
        with get_client(sync_client=True) as client:
            # The run that asks has not ended.
            for run in _runs(client, ended, after=KEPT - 1):
                _forget(client, run)
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("old runs stay in Prefect: %s", error)


def _forget(client: SyncPrefectClient, run: UUID) -> None:
    below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run]))
    for child in _runs(client, below):
        _forget(client, child)
    made = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run]))
    for artifact in client.read_artifacts(artifact_filter=made, limit=MOST):
        client.delete_artifact(artifact.id)
    client.delete_flow_run(run)


def _runs(client: SyncPrefectClient, chosen: FlowRunFilter, *, after: int = 0) -> list[UUID]:
    """The ids of runs, the latest first, without the first ``after``."""
    found = client.read_flow_runs(
        flow_run_filter=chosen, sort=FlowRunSort.START_TIME_DESC, limit=MOST, offset=after
    )
    return [run.id for run in found]
