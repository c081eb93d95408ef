"""``python -m flows up``: servers, the deployments of ``prefect.yaml`` and a worker that runs them.

Knows: the order of these steps. Does not know: what a deployment runs. Prefect is imported late,
because it reads the server's address when it is imported.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import httpx
import yaml
from pydantic import BaseModel, Field, ValidationError

from flows.environment import PREFECT_DIRECTORY
from flows.server import (
    PREFECT_API_URL,
    ServerError,
    pages,
    running,
    stop_on_signals,
    wait_for,
    watch,
)
from selverify.errors import ArtifactError, ParamsError

DEPLOYMENTS_FILE = Path("prefect.yaml")
POOL_TYPE = "process"
# Two runs on one machine would wait for the same processor and for DVC's lock.
RUNS_AT_ONCE = 1
LAST_LINES = 5


class Pool(BaseModel):
    """The work pool of a deployment."""

    name: str


class Schedule(BaseModel):
    """When a deployment runs; Prefect checks it."""

    cron: str | None = None
    interval: float | None = None
    rrule: str | None = None
    timezone: str = "UTC"

    def __str__(self) -> str:
        if self.interval is not None:
            return f"every {self.interval:g} s"
        return f"{self.cron or self.rrule} {self.timezone}"


class Deployment(BaseModel):
    """What this module reads of a deployment; Prefect reads the rest."""

    name: str
    work_pool: Pool
    schedules: tuple[Schedule, ...] = ()


class Stated(BaseModel):
    """What this module reads of ``prefect.yaml``."""

    deployments: tuple[Deployment, ...] = Field(min_length=1)


def up() -> None:
    """Serve Prefect and MLflow, create the deployments, and run what they schedule.

    Until interrupted; then the run at work, the worker and the servers are ended, in this order.
    A server that the environment names is used as it is, and not ended.

    Raises:
        ArtifactError, ParamsError: ``prefect.yaml`` is missing or wrong.
        ServerError: a server or the worker did not start, or ended by itself.
    """
    deployments = read_deployments(DEPLOYMENTS_FILE)
    pool = deployments[0].work_pool.name
    ours = not os.environ.get(PREFECT_API_URL)
    name = f"{platform.node()}-{os.getpid()}"
    start = ("worker", "start", "--pool", pool, "--type", POOL_TYPE, "--name", name)
    command = ("prefect", *start, "--limit", str(RUNS_AT_ONCE))
    log = Path.cwd() / PREFECT_DIRECTORY / "worker.log"
    with stop_on_signals(), pages() as services:
        pools = import_module("flows.work_pools")
        pools.create_pool(pool, POOL_TYPE)
        if ours:
            pools.crash_interrupted(pool)
        with running("the worker", command, log, partial(pools.is_online, pool, name)) as worker:
            create_deployments()
            wait_for(worker)
            print(f"worker   pool {pool!r}, one run at a time; log {log}")
            for one in deployments:
                when = ", ".join(map(str, one.schedules)) or "when asked for"
                print(f"         {one.name}: {when}")
            print("Ctrl-C stops what was started here.", flush=True)
            watch([*services, worker])


def deploy() -> None:
    """Create or update the deployments on the server that ``PREFECT_API_URL`` names.

    Raises:
        ParamsError: it names none, or none that answers.
    """
    given = os.environ.get(PREFECT_API_URL)
    if not given:
        raise ParamsError(f"{PREFECT_API_URL}: not set; expected the address of a Prefect server")
    deployments = read_deployments(DEPLOYMENTS_FILE)
    try:
        import_module("flows.work_pools").create_pool(deployments[0].work_pool.name, POOL_TYPE)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ParamsError(
            f"{PREFECT_API_URL}: given {given!r}, expected the address of a Prefect server that "
            f"answers: {error}"
        ) from error
    create_deployments()
    print(f"{len(deployments)} deployments: {', '.join(one.name for one in deployments)}")


def read_deployments(path: Path) -> tuple[Deployment, ...]:
    """The deployments that ``path`` states, all in one pool.

    Raises:
        ArtifactError: there is no such file.
        ParamsError: it states none, one without a name or a pool, or several pools.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; run this from the project's root")
    try:
        found = Stated.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).deployments
    except ValidationError as error:
        (first, *_) = error.errors()
        place = ".".join(str(part) for part in first["loc"])
        raise ParamsError(f"{path}: {place or 'the file'}: {first['msg'].lower()}") from error
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: no YAML: {' '.join(str(error).split())}") from error
    pools = sorted({one.work_pool.name for one in found})
    if len(pools) != 1:
        raise ParamsError(f"{path}: work pools {', '.join(pools)}; expected one for all")
    return found


def create_deployments() -> None:
    """Create what ``prefect.yaml`` states; what is there already is brought up to date.

    Raises:
        ServerError: Prefect refused; its last lines say why.
    """
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:]
        raise ServerError(f"{DEPLOYMENTS_FILE}: not deployed: {' '.join(said)}")
