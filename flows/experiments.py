"""Runs with other parameters than the checkout's: each a DVC experiment in a copy of its own.

Knows: Prefect and DVC. Does not know: stages. Nothing in the checkout changes; DVC's cache, MLflow
and Prefect are those of the checkout. Deployments run this flow (``prefect.yaml``).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from dvc.api import DVCFileSystem
from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.runtime import flow_run
from pydantic import Field

from flows import terminal
from flows.launcher import TABLE_NAME, run_python
from flows.overrides import MAX_LENGTH, MAX_OVERRIDES, OVERRIDE, combinations
from flows.preflight import preflight
from flows.profiles import Settings
from selverify.errors import ProtocolError

log = logging.getLogger(__name__)

ARTIFACT = "experiments"
ID_LENGTH = 8

Profile = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
Override = Annotated[str, Field(pattern=OVERRIDE, max_length=MAX_LENGTH)]
Overrides = Annotated[list[Override], Field(max_length=MAX_OVERRIDES)]


@flow(name="experiments", persist_result=False)
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
        keep: Keep the experiments for dvc exp show; their artifacts stay in any case.

    Returns the names of the experiments.

    Raises:
        ParamsError: the parameters would be wrong; nothing was run.
        ProtocolError: an experiment failed; the others were run.
    """
    terminal.prepare()
    table = list(preflight().values())[-1]
    given = overrides or []
    settings = combinations(profile, given)
    label = f"run-{flow_run.id[:ID_LENGTH]}"
    names = [f"{label}-{place}" for place in range(1, len(settings) + 1)]
    states = [
        run_experiment(name, one, anew=anew, table=table.outputs[table.task], return_state=True)
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
    if failed := sorted(set(names) - set(done)):
        raise ProtocolError(f"experiments failed: {', '.join(failed)}; their logs say why")
    return names


@task(task_run_name="{name}", persist_result=False)
def run_experiment(name: str, settings: Settings, *, anew: bool, table: Path) -> None:
    """Run one experiment in a copy, and keep the main table of its report as an artifact.

    Raises:
        ProtocolError: a stage failed; the log has its error.
    """
    changes = [part for one in settings for part in ("--set-param", one)]
    # DVC is interrupted once, by its supervisor, and removes its copy.
    command = ("-m", "dvc", "exp", "run", "--temp", "--name", name)
    run_python(*command, *(["--force"] if anew else []), *changes)
    text = DVCFileSystem(rev=name).read_text(str(table / TABLE_NAME))
    create_markdown_artifact(f"```\n{text}\n```", key=ARTIFACT, description=name)
    log.info("%s: finished", name)
