"""Local servers on the loopback address: started, waited for, and stopped by the one who started.

Knows: processes and their health pages. Does not know: what is run against them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from signal import SIGINT, SIGTERM
from urllib.error import URLError
from urllib.request import urlopen

from flows.environment import PREFECT_DIRECTORY, TRACKING_DIRECTORY, TRACKING_URI
from selverify.errors import SelverifyError

LOOPBACK = "127.0.0.1"
PREFECT_PORT = 4200
MLFLOW_PORT = 5000
PREFECT_API_URL = "PREFECT_API_URL"
START_SECONDS = 120.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.2


class ServerError(SelverifyError, RuntimeError):
    """A local server did not start."""


@contextmanager
def prefect_server(port: int | None = None) -> Iterator[str]:
    """A Prefect server for the length of the block, on a free port unless one is given.

    Yields its API address, which ``PREFECT_API_URL`` holds meanwhile. A server that this variable
    names already is used as it is.

    Raises:
        ServerError: the server did not answer in time; the message names its log.
    """
    if given := os.environ.get(PREFECT_API_URL):
        yield given
        return
    port = port or _free_port()
    command = ("prefect", "server", "start", "--host", LOOPBACK, "--port", str(port))
    log = Path.cwd() / PREFECT_DIRECTORY / "server.log"
    with _running(command, log, f"http://{LOOPBACK}:{port}/api/health"):
        os.environ[PREFECT_API_URL] = f"http://{LOOPBACK}:{port}/api"
        try:
            yield os.environ[PREFECT_API_URL]
        finally:
            del os.environ[PREFECT_API_URL]


def serve_ui() -> None:
    """Serve MLflow and Prefect on the loopback address until interrupted, then stop both."""
    tracking = ("mlflow", "server", "--backend-store-uri", os.environ[TRACKING_URI])
    mlflow = (*tracking, "--host", LOOPBACK, "--port", str(MLFLOW_PORT))
    log = Path.cwd() / TRACKING_DIRECTORY / "server.log"
    with (
        stop_on_signals(),
        prefect_server(PREFECT_PORT) as prefect,
        _running(mlflow, log, f"http://{LOOPBACK}:{MLFLOW_PORT}/health"),
    ):
        print(f"MLflow:  http://{LOOPBACK}:{MLFLOW_PORT}")
        page = import_module("flows.tracking").comparison_page()
        print(f"         methods by budget: http://{LOOPBACK}:{MLFLOW_PORT}/{page}")
        print(f"Prefect: {prefect.removesuffix('/api')}")
        print("Ctrl-C stops both.", flush=True)
        signal.pause()


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Make a termination signal end the block the way Ctrl-C does, so that servers are stopped.

    Ctrl-C itself too: a shell starts what runs in its background with interrupts ignored, and what
    we start would inherit that and not end.
    """
    before = {number: signal.signal(number, _interrupt) for number in (SIGTERM, SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _running(command: Sequence[str], log: Path, health: str) -> Iterator[None]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        # A session of its own: Ctrl-C must reach the server through us, after the work stopped.
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, health, log)
        yield
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"{process.args!r} ended with {process.returncode}; see {log}")
        if _healthy(health):
            return
        time.sleep(POLL_SECONDS)
    raise ServerError(f"{health}: no answer within {START_SECONDS:.0f} s; see {log}")


def _healthy(address: str) -> bool:
    try:
        with urlopen(address, timeout=1.0) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            # The process leads its session, so its workers go with it.
            os.killpg(process.pid, number)
            process.wait(STOP_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
