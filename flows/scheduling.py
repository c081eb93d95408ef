"""``python -m flows up``: servers, the deployments of ``prefect.yaml`` and a worker that runs them.

Knows: the order of these steps. Does not know: what a deployment runs; Prefect checks and creates
them. It is imported late, because it reads the server's address when it is imported.
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

from flows.environment import PREFECT_DIRECTORY
from flows.server import (
    PREFECT_API_URL,
    ServerError,
    pages,
    running,
    stop_on_signals,
    wait_for,
    watch,
    without_secrets,
)
from selverify.errors import ArtifactError, ParamsError
from selverify.params import read_yaml

DEPLOYMENTS_FILE = Path("prefect.yaml")
POOL = "local"
"""The work pool that every deployment in ``prefect.yaml`` names."""
# Two runs on one machine would wait for the same processor and for DVC's lock.
RUNS_AT_ONCE = 1
LAST_LINES = 5


def up() -> None:
    """Serve Prefect and MLflow, create the deployments, and run what they schedule.

    Until interrupted; then the run at work, the worker and the servers are ended, in this order.
    A server that the environment names is used as it is, and not ended.

    Raises:
        ArtifactError, ParamsError: ``prefect.yaml`` is missing, or states no deployments.
        ServerError: a server or the worker did not start, or ended by itself; or Prefect refused
            the deployments.
    """
    stated = read_deployments()
    ours = not os.environ.get(PREFECT_API_URL)
    name = f"{platform.node()}-{os.getpid()}"
    start = ("worker", "start", "--pool", POOL, "--type", "process", "--name", name)
    command = ("prefect", *start, "--limit", str(RUNS_AT_ONCE))
    log = Path.cwd() / PREFECT_DIRECTORY / "worker.log"
    with stop_on_signals(), pages() as (services, _):
        pools = import_module("flows.work_pools")
        pools.create_pool(POOL)
        if ours:
            pools.crash_interrupted(POOL)
        with running("the worker", command, log, partial(pools.is_online, POOL, name)) as worker:
            create_deployments()
            wait_for(worker)
            print(f"worker   pool {POOL!r}, one run at a time; log {log}")
            for line in stated:
                print(f"         {line}")
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
    stated = read_deployments()
    try:
        import_module("flows.work_pools").create_pool(POOL)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ParamsError(
            f"{PREFECT_API_URL}: given {without_secrets(given)!r}, expected the address of a "
            f"Prefect server that answers ({type(error).__name__})"
        ) from error
    create_deployments()
    print(f"deployments: {'; '.join(stated)}")


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


def read_deployments() -> list[str]:
    """Each deployment that ``prefect.yaml`` states with its schedules; Prefect checks the rest.

    Raises:
        ArtifactError: there is no such file.
        ParamsError: it is no YAML, or states no deployments.
    """
    if not DEPLOYMENTS_FILE.is_file():
        raise ArtifactError(f"{DEPLOYMENTS_FILE}: no such file; run this from the project's root")
    lines = []
    try:
        stated = read_yaml(DEPLOYMENTS_FILE)["deployments"]
        if not stated or any(one["work_pool"]["name"] != POOL for one in stated):
            raise ParamsError(
                f"{DEPLOYMENTS_FILE}: expected deployments, each in the work pool {POOL!r}"
            )
        for one in stated:
            schedules = (" ".join(map(str, when.values())) for when in one.get("schedules", ()))
            lines.append(f"{one['name']}: {', '.join(schedules) or 'when asked for'}")
    except (AttributeError, KeyError, TypeError) as error:
        raise ParamsError(
            f"{DEPLOYMENTS_FILE}: {error!r}; expected 'deployments', each with its name"
        ) from error
    return lines
