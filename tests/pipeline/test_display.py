"""What a run shows in a terminal, from lines that DVC and the stages wrote."""

from __future__ import annotations

import io
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Project, clean_environment
from rich.console import Console

from flows.display import SECONDS_FILE, Progress, read_seconds, show

STAGES = ("benchmark", "rollouts@small", "report")
LINES = """Stage 'benchmark' didn't change, skipping
Running stage 'rollouts@small':
> python -m flows rollouts@small
10:00:01.000 | INFO    | flows.stage_flow - rollouts@small: started
10:00:05.000 | INFO    | flows.mapping - rollouts@small: 3 of 4 shards are done, 9.4 problems/s
10:00:09.500 | INFO    | flows.stage_flow - rollouts@small: finished in 8.5 s
Running stage 'report':
10:00:11.000 | INFO    | flows.stage_flow - report: finished in 75.2 s
""".splitlines(keepends=True)


def shown(progress: Progress) -> list[str]:
    """The lines below the log."""
    text = io.StringIO()
    Console(file=text, width=80).print(progress)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_stages_are_followed_line_by_line() -> None:
    """What is left falls as time passes; a stage takes no less than its last time is over."""
    now = [100.0]
    before = {"benchmark": 1.0, "rollouts@small": 10.0, "report": 30.0}
    progress = Progress(STAGES, dict(before), clock=lambda: now[0])
    assert progress.left == 41.0
    progress.read(LINES[0])
    assert progress.taken == {"benchmark": 0.0} and progress.left == 40.0
    progress.read(LINES[1])
    now[0] += 4.0
    progress.read(LINES[4])
    assert (progress.running, progress.share, progress.left) == ("rollouts@small", 0.75, 36.0)
    assert shown(progress)[0].split() == ["benchmark", "up", "to", "date"]
    pace = "4 s of about 10 s; 3/4 shards, 9.4 problems/s"
    assert shown(progress)[1].endswith(pace) and "about 30 s" in shown(progress)[2]
    assert shown(progress)[3].split() == ["left", "36", "s"]
    now[0] += 60.0
    assert progress.left == 30.0
    for line in LINES[5:]:
        progress.read(line)
    assert progress.taken == {"benchmark": 0.0, "rollouts@small": 8.5, "report": 75.2}
    assert progress.running is None
    assert shown(progress)[-1].split() == ["report", "1", "min", "15", "s"]


def test_the_first_run_knows_no_times() -> None:
    progress = Progress(STAGES, {})
    assert progress.left is None
    assert shown(progress)[-1].split() == ["left", "unknown"]


def test_times_are_kept_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log stands above; a file that cannot be read is as none."""
    monkeypatch.chdir(tmp_path)
    text = io.StringIO()
    show(LINES, STAGES, Console(file=text, force_terminal=True, width=100))
    assert read_seconds() == {"rollouts@small": 8.5, "report": 75.2}
    assert "3 of 4 shards are done" in text.getvalue()
    for damaged in ("{", "[1]", '{"a": null}', "null"):
        SECONDS_FILE.write_text(damaged)
        assert read_seconds() == {}


def test_what_a_log_holds_is_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = io.StringIO()
    show(["[bold]x[/] Stage 'a' [link=y]\n"], STAGES, Console(file=text, width=100))
    assert "[bold]x[/] Stage 'a' [link=y]" in text.getvalue()


@pytest.mark.soak
def test_a_run_in_a_terminal_shows_its_stages(
    finished: tuple[Project, str], tmp_path: Path
) -> None:
    """What is left below the log, and the table in the end, as elsewhere."""
    project = Project(tmp_path / "copy")
    shutil.copytree(finished[0].root, project.root)
    shutil.rmtree(project.root / "results")
    shutil.rmtree(project.root / ".dvc" / "cache", ignore_errors=True)
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-m", "flows", "run"],
        cwd=project.root,
        env=clean_environment(project.root),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the terminal is gone with its last user
            break
        said += part
    assert run.wait() == 0, said.decode()
    text = said.decode()
    assert "second: finished in" in text and "left" in text and "the main table" in text
    assert (project.root / SECONDS_FILE).is_file()
