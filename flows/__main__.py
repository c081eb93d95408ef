"""``python -m flows <stage or command>``: the one entry of the Makefile, ``dvc.yaml`` and people.

Errors of the project end as one sentence on stderr with exit code 1.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module
from typing import cast

from flows.environment import fix_kernels
from flows.preflight import RUN_PROCESS, stage_at_work
from flows.stages import CHECK, PARAMS_FILE, check_inputs, find_stage, load_stages, trained_here
from flows.supervisor import (
    TERMINATED_CODE,
    Terminated,
    end_with_starter,
    interrupt_again,
    raise_terminated,
)
from selverify.errors import ParamsError, SelverifyError
from selverify.params import load_params

EXECUTE = "exec"
RUN = "run"
SCALE = "scale"
# Named, not imported: Prefect, DVC and MLflow take seconds to import and each command needs few.
COMMANDS = {
    RUN: ("flows.launcher", "run", "bring all up to date (dvc repro), print the table; [PROFILE]"),
    "pipeline": ("flows.launcher", "run_pipeline", "the same as one Prefect flow, as deployed"),
    "publish": ("flows.tracking", "publish_all", "log finished stages to MLflow, each once"),
    "show": ("flows.launcher", "show", "print the main table of the last run"),
    "readme": ("flows.published", "fill_pages", "put the measured tables into README.md and docs"),
    "published": ("flows.published", "check_published", "compute them again, compare sentences"),
    "ui": ("flows.server", "serve_ui", "MLflow and Prefect on the loopback address"),
    "up": ("flows.scheduling", "up", "the same with a worker: what prefect.yaml schedules is run"),
    "deploy": ("flows.scheduling", "deploy", "create its deployments on an existing server"),
    SCALE: ("flows.scale", "scale", "what many problems on many machines would ask and cost"),
    CHECK: (
        "flows.preflight",
        "check_parameters",
        "refuse wrong parameters, as dvc repro does first",
    ),
    "setup": ("flows.tracking", "create_database", "create the MLflow database"),
    "clean": ("flows.preflight", "clean", "remove what a run made"),
}
MOST_ARGUMENTS = {RUN: 1, SCALE: 10}
INTERRUPTED = 130
STARTED_BY_DVC = "DVC_STAGE"
STAGE_LOG = "stage-server.log"


def main(arguments: Sequence[str]) -> int:
    """Run one command or stage; returns the exit code."""
    sys.unraisablehook = interrupt_again
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_usage())
        return 0
    try:
        _dispatch(arguments[0], arguments[1:])
    except SelverifyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Terminated:
        print("ended by a termination signal (SIGTERM)", file=sys.stderr)
        return TERMINATED_CODE
    return 0


def _dispatch(name: str, rest: Sequence[str]) -> None:
    if name == EXECUTE:
        if not rest:
            raise ParamsError(f"{name}: given nothing after it, expected a command")
        _function("flows.launcher", "execute_under_environment")(rest)
    elif len(rest) > MOST_ARGUMENTS.get(name, 0):
        most = MOST_ARGUMENTS.get(name, 0)
        expected = {0: "nothing", 1: "one word at most"}.get(most, f"{most} words at most")
        raise ParamsError(f"{name}: given {' '.join(rest)!r} after it, expected {expected}")
    elif name in COMMANDS:
        module, function, _ = COMMANDS[name]
        _function(module, function)(*rest)
    else:
        _run_stage(name)


def _run_stage(name: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(raise_terminated())
        if STARTED_BY_DVC in os.environ:
            stack.enter_context(stage_at_work())
            end_with_starter(STARTED_BY_DVC, os.environ.get(RUN_PROCESS))
        # Before Prefect is imported, because a mistake should be answered at once.
        params = load_params(PARAMS_FILE)
        stage = find_stage(load_stages(params), name)
        check_inputs(stage)
        fix_kernels(stage.task, trained_here=trained_here(stage, params))
        server = _function("flows.server", "prefect_server_on_its_way")(STAGE_LOG)
        address = stack.enter_context(cast(AbstractContextManager[Callable[[], str]], server))
        run_stage = _function("flows.stage_flow", "run_stage")  # takes as long as the server does
        address()
        run_stage(name)


def _function(module: str, name: str) -> Callable[..., object]:
    found: Callable[..., object] = getattr(import_module(module), name)
    return found


def _usage() -> str:
    lines = [f"  {name:<10} {help_}" for name, (_, _, help_) in COMMANDS.items()]
    lines.append(f"  {EXECUTE:<10} any command under the project's environment variables")
    return "\n".join(["python -m flows STAGE (as in dvc.yaml), or", *lines])


if __name__ == "__main__":
    # What is imported stays to the end. Collections of garbage that look through it take an eighth
    # of the time of a stage's imports, and the last one a second when the interpreter ends.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    sys.exit(main(sys.argv[1:]))
