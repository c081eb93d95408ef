"""Runs with other parameters than the checkout's: each a DVC experiment in a copy of its own.

Knows: Prefect and DVC. Does not know: stages. Nothing in the checkout changes; DVC's cache, MLflow
and Prefect are those of the checkout. Deployments run this flow (``prefect.yaml``).
"""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated
from uuid import UUID

from dvc.api import DVCFileSystem
from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.runtime import deployment, task_run
from pydantic import Field

from flows import terminal
from flows.environment import PARENT_TASK
from flows.launcher import TABLE_NAME, run_python
from flows.origin import git
from flows.overrides import MAX_LENGTH, MAX_OVERRIDES, OVERRIDE, combinations
from flows.pipeline import failure, raised, run_name, short_id
from flows.preflight import preflight
from flows.profiles import Settings
from flows.retention import KEPT, forget_old_runs, tracked_aside
from flows.stages import Stage
from flows.tracking import Logged, publish_experiment
from selverify.errors import ProtocolError

log = logging.getLogger(__name__)

ARTIFACT = "experiments"

Profile = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
Override = Annotated[str, Field(pattern=OVERRIDE, max_length=MAX_LENGTH)]
Overrides = Annotated[list[Override], Field(max_length=MAX_OVERRIDES)]


@flow(
    name="experiments",
    flow_run_name=lambda: run_name(deployment.name or ARTIFACT),
    persist_result=False,
)
def experiments(
    profile: Profile | None = None,
    overrides: Overrides | None = None,
    anew: bool = False,
    keep: bool = True,
) -> list[str]:
    """Run every stage once for each combination of ``overrides`` over ``profile``.

    The deployments in prefect.yaml say what each is for.

    Args:
        profile: A set of parameters in profiles/, or none.
        overrides: Changes of params.yaml, name=value, or name=value,value for a run a value. A
            value is a number, a lower-case word or a list of these.
        anew: Also run stages whose result is known.
        keep: Keep the experiments for dvc exp show, and their stages in MLflow. Else each is one
            run in MLflow, and only the deployment's last runs stay in Prefect.

    Returns the names of the experiments.

    Raises:
        ParamsError: the parameters would be wrong; nothing was run.
        ProtocolError: an experiment failed; the others were run.
    """
    terminal.prepare()
    table = list(preflight().values())[-1]
    given = overrides or []
    settings = combinations(profile, given)
    label = f"run-{short_id()}"
    names = [f"{label}-{place}" for place in range(1, len(settings) + 1)]
    logged = None if keep else Logged(deployment.name or ARTIFACT, KEPT - 1 + len(names))
    states = [
        run_experiment(name, one, anew=anew, logged=logged, table=table, return_state=True)
        for name, one in zip(names, settings, strict=True)
    ]
    rows = [
        {"experiment": name, "state": state.name, "changes": " ".join(one[len(one) - len(given) :])}
        for name, one, state in zip(names, settings, states, strict=True)
    ]
    create_table_artifact(table=rows, key=ARTIFACT, description=f"profile {profile}")
    done = [name for name, state in zip(names, states, strict=True) if state.is_completed()]
    if not keep and done:
        run_python("-m", "dvc", "exp", "remove", *done)
    if not keep and deployment.id:
        forget_old_runs(UUID(deployment.id))
    failed = [
        f"{name}: {raised(state.message)}"
        for name, state in zip(names, states, strict=True)
        if not state.is_completed()
    ]
    if failed:
        raise ProtocolError(f"experiments failed: {'; '.join(failed)}")
    return names


@task(task_run_name="{name}", persist_result=False)
def run_experiment(
    name: str, settings: Settings, *, anew: bool, logged: Logged | None, table: Stage
) -> None:
    """Run one experiment in a copy, and keep the main table of its report as an artifact.

    With ``logged`` it is one run in MLflow, and the runs of its stages are not kept. One that is
    there is of an earlier try of the same flow run, and is not run again.

    Raises:
        ProtocolError: a stage failed, with the stage's error.
    """
    changes = [part for one in settings for part in ("--set-param", one)]
    # DVC is interrupted once, by its supervisor, and removes its copy.
    command = ("-m", "dvc", "exp", "run", "--temp", "--name", name)
    started, metrics = time.monotonic(), None
    os.environ[PARENT_TASK] = str(task_run.id)
    try:
        if not git(Path.cwd(), "for-each-ref", f"refs/exps/*/*/{name}"):
            with tracked_aside() if logged else nullcontext():
                run_python(*command, *(["--force"] if anew else []), *changes)
        files = DVCFileSystem(rev=name)
        metrics = json.loads(files.read_text(str(table.metrics)))
        text = files.read_text(str(table.outputs[table.task] / TABLE_NAME))
    except ProtocolError as error:
        raise ProtocolError(failure() or str(error)) from error
    finally:
        del os.environ[PARENT_TASK]
        if logged:
            publish_experiment(name, metrics, logged, seconds=time.monotonic() - started)
    create_markdown_artifact(f"```\n{text}\n```", key=ARTIFACT, description=name)
    log.info("%s: finished", name)
