"""What ``make run`` shows in a terminal: a line a stage below the log, with what is left.

Knows: lines that DVC and our stages write, how long stages took before. Does not know: processes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from selverify.storage import write_plain_json

SECONDS_FILE = Path(".cache/stage_seconds.json")
"""How long each stage took when it ran last, on this machine."""
RUNNING = re.compile(r"Running stage '([^']+)'")
KEPT = re.compile(r"Stage '([^']+)' (?:didn't change|is cached)")
SHARDS = re.compile(r"\| flows\.mapping - (\S+): (\d+) of (\d+) shards are done, (\S+) problems/s")
FINISHED = re.compile(r"\| flows\.stage_flow - (\S+): finished in ([\d.]+) s")
BAR = 16
REFRESHES = 2
"""A second."""
MINUTE = 60


@dataclass
class Progress:
    """The stages of a run, in their order, as the lines of its log tell.

    ``before``: seconds by stage, of the last time. ``taken``: of this run, 0 for a stage that was
    up to date. ``share`` and ``pace``: of the stage at work, by its shards.
    """

    stages: Sequence[str]
    before: dict[str, float]
    clock: Callable[[], float] = time.monotonic
    taken: dict[str, float] = field(default_factory=dict)
    running: str | None = None
    share: float = 0.0
    pace: str = ""
    _started: float = 0.0

    def read(self, line: str) -> None:
        """Take note of what one line says."""
        if found := RUNNING.search(line):
            self.running, self.share, self.pace = found[1], 0.0, ""
            self._started = self.clock()
        elif found := KEPT.search(line):
            self.taken[found[1]] = 0.0
        elif found := SHARDS.search(line):
            self.share = int(found[2]) / max(1, int(found[3]))
            self.pace = f"; {found[2]}/{found[3]} shards, {found[4]} problems/s"
        elif found := FINISHED.search(line):
            self.taken[found[1]] = self.before[found[1]] = float(found[2])
            self.running = None if found[1] == self.running else self.running

    @property
    def elapsed(self) -> float:
        """Seconds of the stage at work."""
        return self.clock() - self._started if self.running else 0.0

    @property
    def left(self) -> float | None:
        """Seconds of all that is not done, by the last times; None where one is unknown."""
        waiting = [name for name in self.stages if name not in self.taken]
        if any(name not in self.before for name in waiting):
            return None
        expected = sum(self.before[name] for name in waiting)
        done = min(self.elapsed, self.before[self.running]) if self.running in waiting else 0.0
        return expected - done

    def __rich__(self) -> Table:
        """A line a stage, and what is left."""
        table = Table.grid(padding=(0, 2))
        for name in self.stages:
            table.add_row(Text(name), *self._line(name))
        if len(self.taken) < len(self.stages):
            left = self.left
            table.add_row(
                Text("left", style="bold"), "", Text("unknown" if left is None else _time(left))
            )
        return table

    def _line(self, name: str) -> tuple[ProgressBar | str, Text]:
        if name in self.taken:
            seconds = self.taken[name]
            return "", Text(_time(seconds) if seconds else "up to date", style="green")
        expected = self.before.get(name)
        of = "" if expected is None else f" of about {_time(expected)}"
        if name != self.running:
            return "", Text("" if expected is None else f"about {_time(expected)}", style="dim")
        by_time = min(0.99, self.elapsed / expected) if expected else 0.0
        bar = ProgressBar(total=1.0, completed=max(self.share, by_time), width=BAR)
        return bar, Text(f"{_time(self.elapsed)}{of}{self.pace}")


def show(lines: Iterable[str], stages: Sequence[str], console: Console) -> None:
    """Print ``lines`` as they come, and below them how far the stages are."""
    progress = Progress(stages, read_seconds())
    with Live(progress, console=console, refresh_per_second=REFRESHES):
        for line in lines:
            progress.read(line)
            console.print(Text.from_ansi(line.rstrip("\n")), soft_wrap=True)
    if progress.taken:
        SECONDS_FILE.parent.mkdir(exist_ok=True)
        write_plain_json(SECONDS_FILE, progress.before)


def read_seconds() -> dict[str, float]:
    """How long stages took before; what cannot be read is unknown."""
    with suppress(OSError, ValueError, AttributeError, TypeError):
        stated = json.loads(SECONDS_FILE.read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in stated.items()}
    return {}


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), MINUTE)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
