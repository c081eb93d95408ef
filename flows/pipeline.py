"""The pipeline flow: every stage in order, through DVC, so that fresh ones are skipped.

Knows: Prefect and DVC. Does not know: the DAG, which is ``dvc.yaml``. A deployment runs this flow;
``dvc repro`` does the same work without it.
"""

from __future__ import annotations

import os
import signal

from dvc.exceptions import DvcException
from dvc.repo import Repo
from prefect import flow, task
from prefect.runtime import task_run

from flows import terminal
from flows.environment import PARENT_TASK
from flows.preflight import alone, preflight, remove_others
from flows.stages import CHECK
from selverify.errors import ProtocolError

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
        raise ProtocolError(f"stage {name!r} failed: {error}") from error
    finally:
        del os.environ[PARENT_TASK]


@flow(name="pipeline")
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
