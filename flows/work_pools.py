"""Work pools and their runs on the Prefect server that ``PREFECT_API_URL`` names.

Knows: Prefect's client. Does not know: deployments, processes.
"""

from __future__ import annotations

from contextlib import suppress

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ObjectAlreadyExists
from prefect.states import Crashed

AT_WORK = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


def create_pool(name: str) -> None:
    """Create a work pool of processes unless there is one."""
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))


def crash_interrupted(pool: str) -> None:
    """Say of every run in ``pool`` that is said to be at work that it crashed.

    For a pool without a worker: a machine that lost its power could not report it.
    """
    at_work = FlowRunFilter(state={"type": {"any_": AT_WORK}})
    in_pool = WorkPoolFilter(name={"any_": [pool]})
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=at_work, work_pool_filter=in_pool)
        for run in runs:
            state: State[None] = Crashed(message="The run's machine or worker was stopped.")
            client.set_flow_run_state(run.id, state, force=True)


def is_online(pool: str, worker: str) -> bool:
    """Whether the worker of this name has reported to the server."""
    with get_client(sync_client=True) as client:
        return any(one.name == worker for one in client.read_workers_for_work_pool(pool))
