"""The pipeline flow: every stage in order, through DVC, so that fresh ones are skipped.

Knows: Prefect and DVC. Does not know: the DAG, which is ``dvc.yaml``. A deployment runs this flow;
``dvc repro`` does the same work without it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import httpx
from dvc.exceptions import DvcException
from dvc.repo import Repo
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run, task_run

from flows import terminal
from flows.environment import PARENT_TASK
from flows.origin import short_commit
from flows.preflight import alone, preflight, remove_others
from flows.stages import CHECK
from selverify.errors import ProtocolError

ID_LENGTH = 8
RAISED = " run encountered an exception: "
"""Before what was raised, in the state of a flow or task run that failed."""
# DVC ignores an interrupt while a stage works, and says no more than how the stage's shell ended.
INTERRUPTED = (f"exited with {-signal.SIGINT}", f"exited with {128 + signal.SIGINT}")


@task(task_run_name="{name}")
def reproduce(name: str) -> bool:
    """Bring one stage up to date; True when it had to run or be restored.

    Raises:
        ProtocolError: the stage failed and printed its own error.
        KeyboardInterrupt: the stage was interrupted.
    """
    os.environ[PARENT_TASK] = str(task_run.id)
    try:
        with Repo() as repo:
            return bool(repo.reproduce(targets=[name], single_item=True))
    except DvcException as error:
        if str(error.__cause__).endswith(INTERRUPTED):
            raise KeyboardInterrupt from error
        raise ProtocolError(f"stage {name!r} failed: {failure() or error}") from error
    finally:
        del os.environ[PARENT_TASK]


def raised(message: str | None) -> str:
    """What a state's message says without Prefect's words before it."""
    text = message or ""
    return text.partition(RAISED)[2] or text


def failure() -> str:
    """Why the last stage below the task run that calls this failed; "" where that is not known."""
    below = FlowRunFilter(parent_task_run_id={"any_": [task_run.id]})
    with suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=below, sort=FlowRunSort.END_TIME_DESC):
            if run.state is not None and run.state.is_failed():
                return raised(run.state.message)
    return ""


def short_id() -> str:
    """Of the flow run that calls this: the end of its id, which begins with the time."""
    return str(flow_run.id)[-ID_LENGTH:]


def run_name(of: str) -> str:
    """Of a flow run that starts here, in its context: what it is of, the commit, and its own id."""
    return f"{of} at {short_commit(Path.cwd())}, {short_id()}"


@flow(name="pipeline", flow_run_name=lambda: run_name("pipeline"))
def pipeline() -> list[str]:
    """Bring every stage up to date; returns the names of those that were not.

    Raises:
        ProtocolError: a stage failed, or another run is at work here.
    """
    terminal.prepare()
    with alone():
        stages = preflight()
        remove_others(stages)
        changed = [name for name in (CHECK, *stages) if reproduce(name)]
    print(f"pipeline: {', '.join(changed) or 'nothing'} brought up to date", flush=True)
    return changed
