"""``make run``: is there anything to do, a Prefect server while ``dvc repro`` works, the table.

Knows: the order of these steps. Does not know: the DAG, or how a stage is run.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, cast

from rich.console import Console

from flows import terminal
from flows.preflight import alone, preflight, remove_others
from flows.readme import PAGE_NAME, published, stamp
from flows.server import prefect_server, stop_on_signals, without_secrets
from flows.stages import PARAMS_FILE, Stage, load_stages
from flows.supervisor import nothing_left, supervising
from selverify.errors import ArtifactError, ParamsError, ProtocolError, SchemaError
from selverify.params import load_params

TABLE_NAME = "main.txt"
# An experiment is a commit, and a machine that only runs need not know a person's name for it.
COMMITTER = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "experiments"), ("EMAIL", "experiments@localhost"))
}


def run(profile: str | None = None) -> None:
    """Bring every stage up to date with ``dvc repro`` and print the main table.

    With a ``profile`` its values are written into ``params.yaml`` first.

    Raises:
        ParamsError: there is no such profile.
        ProtocolError: a stage failed and printed its own error; or
            another run is at work here.
    """
    with alone(), nothing_left():
        show_table(_bring_up_to_date(profile))


def _bring_up_to_date(profile: str | None) -> dict[str, Stage]:
    if profile is not None:
        changed = import_module("flows.profiles").apply_profile(profile)
        for name, value in changed.items():
            print(f"{PARAMS_FILE}: {name} = {value}  (profile {profile})")
    stages = preflight()
    remove_others(stages)
    if _call("-m", "dvc", "status", "--quiet") == 0:
        print("Nothing to do: every stage is up to date.\n")
    else:
        with stop_on_signals(), prefect_server() as api:
            print(f"Prefect server for this run: {without_secrets(api)}", flush=True)
            _reproduce(list(stages))
        run_python("-m", "flows", "publish")
    return stages


def run_pipeline() -> None:
    """Run the pipeline flow once, on a Prefect server of its own unless one is named already."""
    preflight()
    with nothing_left(), stop_on_signals(), prefect_server():
        # Prefect reads the server's address when it is imported.
        pipeline = import_module("flows.pipeline").pipeline
        try:
            pipeline()
        finally:
            terminal.flush()


def show() -> None:
    """Print the main table of the last run and where the rest is."""
    show_table(load_stages(load_params(PARAMS_FILE)))


def show_table(stages: dict[str, Stage]) -> None:
    """Print the main table that the last stage wrote, and what is published of the same domain.

    Raises:
        ArtifactError: it is not there yet.
        SchemaError: it is no text.
    """
    last = list(stages.values())[-1]
    report = last.outputs[last.task]
    table = report / TABLE_NAME
    if not table.is_file():
        raise ArtifactError(f"{table}: missing; stage {last.name!r} writes it (make run)")
    try:
        print(table.read_text(encoding="utf-8").rstrip())
    except UnicodeDecodeError as error:
        raise SchemaError(f"{table}: {error}, expected a table as text (make run)") from error
    if stated := published(Path.cwd(), report):
        print(f"\n{stated}")
    if (report / PAGE_NAME).is_file():
        print(f"\nReport: {stamp(report, load_params(PARAMS_FILE), root=Path.cwd())}")
    print(f"Figures and tables: {report}/")
    print("MLflow comparison of methods and budgets: make ui")


def execute_under_environment(arguments: Sequence[str]) -> None:
    """Replace this process by a command that runs under the project's environment variables.

    Raises:
        ParamsError: it cannot be run.
    """
    try:
        os.execvp(arguments[0], list(arguments))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ParamsError(
            f"exec: given {arguments[0]!r} ({reason}), expected a program that can be run"
        ) from error


def _reproduce(stages: Sequence[str]) -> None:
    """``dvc repro``; in a terminal with the stages below its log, elsewhere the log alone."""
    command = ("-m", "dvc", "repro")
    if not sys.stdout.isatty():
        run_python(*command)
        return
    display = import_module("flows.display")
    variables = {**COMMITTER, **os.environ, "PYTHONUNBUFFERED": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines: Iterable[str] = ()
    try:
        with supervising([sys.executable, *command], env=variables, **streams) as process:
            lines = io.TextIOWrapper(cast(BinaryIO, process.stdout), "utf-8", "replace")
            display.show(lines, stages, Console())
            code = process.wait()
    finally:
        sys.stdout.writelines(lines)  # what was said after an interrupt
    _check_end(code, command)


def run_python(*arguments: str) -> None:
    """Run a Python command to its end.

    Raises:
        ProtocolError: it ended with another exit code than 0 and printed its own error.
    """
    _check_end(_call(*arguments), arguments)


def _check_end(code: int, arguments: Sequence[str]) -> None:
    if code:
        raise ProtocolError(f"{' '.join(arguments[1:4])} ended with exit code {code}")


def _call(*arguments: str) -> int:
    """The exit code of a Python command, which ends when we do, also when we are killed.

    In a session of its own: an interrupt from the terminal would otherwise reach DVC, its stage
    and us at once, and we would stop the server while they still tidy up.
    """
    with supervising([sys.executable, *arguments], env={**COMMITTER, **os.environ}) as process:
        return process.wait()
