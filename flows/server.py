"""Local servers on the loopback address: start, wait until healthy, stop.

Knows: processes, ports and health pages. Does not know: what is run against them.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from signal import SIGINT, SIGTERM
from urllib.error import HTTPError
from urllib.request import urlopen

from flows.environment import PREFECT_DIRECTORY, TRACKING_DIRECTORY, TRACKING_URI
from flows.preflight import server_at_work, writable
from flows.supervisor import nothing_left, supervising
from selverify.errors import ParamsError, SelverifyError

LOOPBACK = "127.0.0.1"
# The tools' own names of these settings, and their own defaults.
PREFECT_PORT = ("PREFECT_SERVER_API_PORT", 4200)
MLFLOW_PORT = ("MLFLOW_PORT", 5000)
PREFECT_API_URL = "PREFECT_API_URL"
# Ten on an idle machine; one that is at work on something else needs many times as long.
START_SECONDS = 300.0
POLL_SECONDS = 0.2
WATCH_SECONDS = 1.0
SERVER_LOG = "server.log"
HIGHEST_PORT = 65535
ANSWER_SECONDS = 10.0
"""That a server is asked for; one that has not answered by then is a busy one."""


class ServerError(SelverifyError, RuntimeError):
    """A local server did not start, or ended by itself."""


@dataclass(frozen=True, slots=True)
class Service:
    """What was started, and the question whether it is up by now."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    answers: Callable[[], bool]


@contextmanager
def prefect_server() -> Iterator[str]:
    """A Prefect server on a free port for the length of the block.

    Yields its API address, which ``PREFECT_API_URL`` holds meanwhile. A server that this variable
    names already is used as it is.

    Raises:
        ServerError: the server did not answer in time; the message names its log.
    """
    with prefect_server_on_its_way() as address:
        yield address()


@contextmanager
def prefect_server_on_its_way(log_name: str = SERVER_LOG) -> Iterator[Callable[[], str]]:
    """The same, but it may still be starting: what is yielded waits for it and returns its address.

    Args:
        log_name: of the server's log, where another one may be at work beside it.

    Raises:
        ServerError: when it is waited for, as in ``prefect_server``.
    """
    if given := os.environ.get(PREFECT_API_URL):
        check_answers(given)
        yield lambda: given
        return
    with starting_prefect(_free_port(), log_name) as server:

        def address() -> str:
            wait_for(server)
            return os.environ[PREFECT_API_URL]

        yield address


def check_answers(given: str) -> None:
    """See whether a Prefect server is at ``given``; a slow one, or one with a login, is.

    Raises:
        ParamsError: nothing answers there.
    """
    try:
        urlopen(f"{without_secrets(given)}/health", timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, HTTPError) or isinstance(reason, (TimeoutError, ssl.SSLError)):
            return
        raise ParamsError(
            f"{PREFECT_API_URL}: given {without_secrets(given)!r}, expected the address of a "
            f"Prefect server that answers ({type(reason).__name__})"
        ) from error


@contextmanager
def starting_prefect(port: int, log_name: str = SERVER_LOG) -> Iterator[Service]:
    """A Prefect server on its way up; ``PREFECT_API_URL`` names it for the length of the block."""
    origin = f"http://{LOOPBACK}:{port}"
    # A page of the web must not be able to talk to it from a browser on this machine.
    variables = {"PREFECT_SERVER_CORS_ALLOWED_ORIGINS": origin}
    command = ("prefect", "server", "start", "--host", LOOPBACK, "--port", str(port))
    log, healthy = _log_in(PREFECT_DIRECTORY, log_name), partial(_healthy, f"{origin}/api/health")
    with server_at_work(), running("Prefect", command, log, healthy, variables) as server:
        os.environ[PREFECT_API_URL] = f"{origin}/api"
        try:
            yield server
        finally:
            del os.environ[PREFECT_API_URL]


def starting_mlflow(port: int) -> AbstractContextManager[Service]:
    """An MLflow server on its way up, on the database that ``MLFLOW_TRACKING_URI`` names."""
    # Not on the command line, which every user of the machine can read: it may hold a password.
    variables = {"MLFLOW_BACKEND_STORE_URI": os.environ[TRACKING_URI]}
    command = ("mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1")
    healthy = partial(_healthy, f"http://{LOOPBACK}:{port}/health")
    return running("MLflow", command, _log_in(TRACKING_DIRECTORY), healthy, variables)


def _log_in(directory: str, name: str = SERVER_LOG) -> Path:
    return Path.cwd() / directory / name


@contextmanager
def pages() -> Iterator[tuple[list[Service], str]]:
    """Prefect and MLflow, each started unless the environment names one; prints their addresses.

    Yields what was started, and MLflow's address.

    Raises:
        ParamsError: the variable of a port holds no port.
        ServerError: a port is in use, or a server did not answer in time.
    """
    started: list[Service] = []
    taken = None
    with ExitStack() as stack:
        stack.enter_context(nothing_left())
        if given := os.environ.get(PREFECT_API_URL):
            check_answers(given)
        else:
            taken = find_port(*PREFECT_PORT)
            started.append(stack.enter_context(starting_prefect(taken)))
        tracking = os.environ[TRACKING_URI]
        if not tracking.startswith("http"):
            port = find_port(*MLFLOW_PORT)
            if port == taken:
                raise ParamsError(
                    f"{MLFLOW_PORT[0]}: given {port}, expected another than Prefect's"
                )
            tracking = f"http://{LOOPBACK}:{port}"
            started.append(stack.enter_context(starting_mlflow(port)))
        for server in started:  # which all start at the same time: each takes many seconds
            wait_for(server)
        here = {server.name for server in started}
        for name, address in (("Prefect", os.environ[PREFECT_API_URL]), ("MLflow", tracking)):
            origin = "this machine only" if name in here else "named by you, not started here"
            print(f"{name:<8} {without_secrets(address).removesuffix('/api')}  ({origin})")
        yield started, without_secrets(tracking).rstrip("/")


def serve_ui() -> None:
    """Serve MLflow and Prefect on the loopback address until interrupted, then stop both."""
    with stop_on_signals(), pages() as (started, tracking):
        with _told():
            page = import_module("flows.tracking").comparison_page()
        print(f"Which method is best at which budget: {tracking}/{page}")
        print("Ctrl-C stops what was started here.", flush=True)
        watch(started)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except SelverifyError:
        raise
    except import_module("flows.tracking").TRACKING_ERRORS as error:
        reason, *_ = str(error).splitlines() or [""]
        given = without_secrets(os.environ[TRACKING_URI])
        raise ParamsError(
            f"{TRACKING_URI}: given {given!r}, expected a server that answers: {reason}"
        ) from error


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
def running(
    name: str,
    command: Sequence[str],
    log: Path,
    answers: Callable[[], bool],
    variables: Mapping[str, str] | None = None,
) -> Iterator[Service]:
    """A Python module at work for the length of the block, its output in ``log``.

    ``variables`` are added to the environment. It ends when the block does, with everything that it
    started, also when this process is killed.
    """
    with writable(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open("w", encoding="utf-8")
    with (
        output,
        # In a session of its own: Ctrl-C must reach it through us, after the work stopped.
        supervising(
            [sys.executable, "-m", *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(variables or {})},
        ) as process,
    ):
        yield Service(name, process, log, answers)


def wait_for(service: Service) -> None:
    """Return once the service answers.

    Raises:
        ServerError: it ended, or did not answer in time.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        check(service)
        if service.answers():
            return
        time.sleep(POLL_SECONDS)
    raise ServerError(f"{service.name}: not up within {START_SECONDS:.0f} s; see {service.log}")


def check(service: Service) -> None:
    """Raise ServerError where the service has ended by itself."""
    if (code := service.process.poll()) is not None:
        raise ServerError(f"{service.name} ended with exit code {code}; see {service.log}")


def watch(services: Sequence[Service]) -> None:
    """Look after ``services`` until an interrupt; ServerError where one ends by itself."""
    while True:
        for service in services:
            check(service)
        time.sleep(WATCH_SECONDS)


def without_secrets(address: str) -> str:
    """``address`` without the user and the password that it may name."""
    # As text: what is no address may hold a password, too.
    return address if address.startswith("sqlite:") else re.sub(r"^([\w+]+://)?.*@", r"\1", address)


def _healthy(address: str) -> bool:
    try:
        with urlopen(address, timeout=1.0) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def find_port(variable: str, usual: int) -> int:
    """The port that ``variable`` names, or the usual one; nothing listens on it.

    Raises:
        ParamsError: it names none.
        ServerError: something listens there.
    """
    given = os.environ.get(variable) or str(usual)
    if re.fullmatch("[1-9][0-9]{0,4}", given) is None or int(given) > HIGHEST_PORT:
        raise ParamsError(f"{variable}: given {given!r}, expected a port, 1 to {HIGHEST_PORT}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, int(given)))
        except OSError as error:
            raise ServerError(
                f"{LOOPBACK}:{given} is in use ({error.strerror}); stop what uses it, or name "
                f"another port in {variable}"
            ) from error
    return int(given)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
