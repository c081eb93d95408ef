"""The project's own pipeline in a copy of its files: run, killed, run again, compared."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import stand_in
import yaml
from small_pipeline import HEALTH, METHODS, copy_project
from waiting import lives

from flows import environment
from flows.stages import Stage, load_stages
from selverify.params import load_params
from selverify.storage import digest

ROOT = Path(__file__).parents[2]
MARK = "FAULT_TEST_RUN"
ANSWERED = "FAULT_TEST_ANSWERED"
SECRET = "FAULT_TEST_KEY"
KEY = "sk-fault-test-0123456789abcdef"
TEMPORARY = re.compile(r"\.(tmp|old)-\d+$")
PATIENCE = 1500.0
ORPHAN_SECONDS = 60.0
SERVED = 12
"""Problems of the evaluation; with fewer a correlation may have no value."""
# Appended to the copy's reply cache: one line a reply, written before it is committed.
COUNTING = f"""

import threading

_ASKED = threading.local()


class _Counted:
    def __init__(self, backend):
        self._backend = backend

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def answer(self, request):
        import os, time

        reply = self._backend.answer(request)
        lines = [
            f"{{time.time()}} {{request.kind}} {{key.hex()}} {{index}}\\n"
            for key, item in _ASKED.missing
            for index in _indices(item)
        ]
        log = os.open(os.environ["{ANSWERED}"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, "".join(lines).encode())  # at once: several processes may write
        os.close(log)
        return reply


def _counting(request):
    def counted(self, kind, missing, found):
        _ASKED.missing = missing  # several threads may ask
        return request(self, kind, missing, found)

    return counted


def _counted(begin):
    def begun(self, backend, *arguments, **named):
        begin(self, _Counted(backend), *arguments, **named)

    return begun


CachedBackend.__init__ = _counted(CachedBackend.__init__)
CachedBackend._request = _counting(CachedBackend._request)
"""


@dataclass(frozen=True)
class Run:
    """A command at work, and what it says, line by line."""

    process: subprocess.Popen[str]
    mark: str
    lines: list[tuple[float, str]] = field(default_factory=list)

    @property
    def said(self) -> str:
        return "".join(line for _, line in self.lines)

    def when(self, text: str) -> float:
        """The time at which a line with ``text`` came out."""
        return next(at for at, line in self.lines if text in line)

    def wait_for(self, text: str) -> None:
        """Until a line with ``text`` comes out; fails where the command ends first."""
        deadline = time.monotonic() + PATIENCE
        while not any(text in line for _, line in list(self.lines)):
            ended = self.process.poll() is not None
            assert not ended and time.monotonic() < deadline, self.said[-3000:]
            time.sleep(0.02)

    def wait_until(self, text: str, seconds: float) -> None:
        """Until a line with ``text`` comes out, or ``seconds`` have passed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not any(text in said for _, said in list(self.lines)):
            time.sleep(0.02)

    def alive(self) -> list[psutil.Process]:
        """Every process that the command started and that still runs, in whatever session."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark:
                    found.append(process)
        return [one for one in found if lives(one)]

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(PATIENCE)

    def seconds_until_nobody_is_left(self) -> float:
        """How long the last process of the command takes to end by itself; fails after a minute."""
        started = time.monotonic()
        while alive := self.alive():
            assert time.monotonic() - started < ORPHAN_SECONDS, alive
            time.sleep(0.2)
        return time.monotonic() - started


@dataclass(frozen=True)
class State:
    """All that an undisturbed run leaves: digests of outputs, DVC's lock, and the replies."""

    outputs: Mapping[str, str]
    lock: Any
    replies: tuple[tuple[bytes, int, bytes], ...]


@dataclass(frozen=True)
class Checkout:
    """A copy of the project and how to run it."""

    root: Path
    variables: Mapping[str, str]

    @property
    def stages(self) -> dict[str, Stage]:
        return load_stages(load_params(self.root / "params.yaml"), self.root / "dvc.yaml")

    @property
    def answered_log(self) -> Path:
        return self.root.parent / f"{self.root.name}-answered.txt"

    def start(self, *arguments: str, **variables: str) -> Run:
        """Start ``python -m flows``, in a session of its own."""
        own = {*environment.settings(self.root), "PREFECT_API_URL", "PYTHONPATH"}
        kept = {name: value for name, value in os.environ.items() if name not in own}
        mark = uuid.uuid4().hex
        told = {MARK: mark, ANSWERED: str(self.answered_log), SECRET: KEY, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "flows", *arguments],
            cwd=self.root,
            env={**kept, **told, "PYTHONUNBUFFERED": "1", **self.variables, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        run = Run(process, mark)
        threading.Thread(target=_listen, args=(run,), daemon=True).start()
        return run

    def finish(self, *arguments: str, **variables: str) -> Run:
        """Run a command to its end, which has to be a good one."""
        run = self.start(*arguments, **variables)
        code = run.wait()
        assert code == 0, run.said[-6000:]
        return run

    def state(self) -> State:
        """What stands in the copy now."""
        outputs = {
            str(path): digest(self.root / path)
            for stage in self.stages.values()
            if not stage.frozen
            for path in stage.outputs.values()
        }
        lock = yaml.safe_load((self.root / "dvc.lock").read_text(encoding="utf-8"))
        del lock["stages"]["parameters"]  # the digest of params.yaml, which tests change
        return State(outputs, lock, tuple(self.replies()))

    def replies(self) -> list[tuple[bytes, int, bytes]]:
        """What the reply cache holds, read from a copy: opening what a kill left mends it."""
        with TemporaryDirectory() as folder:
            for file in (self.root / ".cache").glob("replies.sqlite*"):
                shutil.copy(file, folder)
            with closing(sqlite3.connect(Path(folder) / "replies.sqlite")) as connection:
                try:
                    asked = "SELECT key, position, value FROM replies ORDER BY key, position"
                    return connection.execute(asked).fetchall()
                except sqlite3.OperationalError:  # killed before the table was there
                    return []

    def forget(self, name: str) -> None:
        """Make stage ``name`` one that never ran: no outputs, no lock, nothing to restore it."""
        stage = self.stages[name]
        for path in stage.outputs.values():
            _delete(self.root / path)
        path = self.root / "dvc.lock"
        lock = yaml.safe_load(path.read_text(encoding="utf-8"))
        lock["stages"].pop(name, None)
        path.write_text(yaml.safe_dump(lock, sort_keys=False), encoding="utf-8")
        command = f"cmd: python -m flows {name}\n"
        for entry in list((self.root / ".dvc" / "cache" / "runs").rglob("*")):
            if entry.is_file() and entry.read_text(encoding="utf-8").startswith(command):
                entry.unlink()
                if not any(entry.parent.iterdir()):
                    entry.parent.rmdir()

    def forget_replies(self) -> None:
        """Empty the reply cache and the list of what was answered."""
        shutil.rmtree(self.root / ".cache", ignore_errors=True)
        self.answered_log.unlink(missing_ok=True)

    def answered(self) -> list[tuple[float, str]]:
        """When each reply came and what identifies it, of all runs since ``forget_replies``."""
        if not self.answered_log.is_file():
            return []
        lines = self.answered_log.read_text(encoding="utf-8").splitlines()
        return [(float(line.partition(" ")[0]), line.partition(" ")[2]) for line in lines]

    def last_commit(self) -> float:
        """When the reply cache was last written."""
        files = (self.root / ".cache").glob("replies.sqlite*")
        return max((one.stat().st_mtime for one in files if one.stat().st_size), default=0.0)

    def leftovers(self) -> list[str]:
        """Temporary files of the project's own, and of DVC's cache."""
        found = [
            path
            for path in self.root.rglob("*")
            if TEMPORARY.search(path.name) or (path.suffix == ".tmp" and path.is_file())
        ]
        return sorted(str(path.relative_to(self.root)) for path in found)


def repeated(answered: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The first answers to what was answered more than once."""
    counts = Counter(what for _, what in answered)
    first: dict[str, float] = {}
    for at, what in answered:
        first.setdefault(what, at)
    return [(first[what], what) for what, count in counts.items() if count > 1]


def _listen(run: Run) -> None:
    assert run.process.stdout is not None
    for line in run.process.stdout:
        run.lines.append((time.monotonic(), line))


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def kill_session(run: Run) -> None:
    """``kill -9`` of the command's process group."""
    with suppress(ProcessLookupError):
        os.killpg(run.process.pid, signal.SIGKILL)


def kill_everything(run: Run) -> None:
    """``kill -9`` of every process of the run, as when the memory or the machine is gone."""
    while alive := run.alive():
        for process in alive:
            with suppress(psutil.Error):
                process.kill()


def kill_command(run: Run) -> None:
    """``kill -9`` of the command alone, which can then end nobody."""
    run.process.kill()


def kill_stage(run: Run) -> None:
    """``kill -9`` of the stage's own process, or of the command where the stage has just ended."""
    for process in run.alive():
        with suppress(psutil.Error):
            words = process.cmdline()
            if words[-3:-1] == ["-m", "flows"] and words[-1] not in {"run", "pipeline"}:
                process.kill()
                return
    kill_command(run)


KILLS: Mapping[str, Callable[[Run], None]] = {
    "its process group": kill_session,
    "every process": kill_everything,
    "the command alone": kill_command,
    "the stage": kill_stage,
}


def copy(root: Path) -> Path:
    """The project's files as they are now, committed or not, but for tests and pages."""
    copy_project(root, leave_out=("tests/", "docs/"))
    (root / ".dvc" / "config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    with (root / "selverify" / "models" / "reply_cache.py").open("a") as module:
        module.write(COUNTING)
    return root


def set_shards(root: Path, stage: str, *, size: int) -> None:
    """Write into the copy how many problems a shard of ``stage`` holds."""
    module = root / "tasks" / f"{stage}.py"
    text, changed = re.subn(r"(?m)^SHARD = \d+$", f"SHARD = {size}", module.read_text("utf-8"))
    assert changed == 1
    module.write_text(text, encoding="utf-8")


def served_params(url: str) -> dict[str, object]:
    """A generator, embeddings and a judge behind ``url``, each with a key."""
    server = {
        "url": url,
        "model": "stand-in",
        "key_variable": SECRET,
        "concurrency": 4,
        "timeout_seconds": 20.0,
        "max_retries": 4,
    }
    split = {"source": "file", "path": "pool.jsonl"}
    dropped = ("backbones", "domain", "benchmark", "verifier.tune_epochs", "strengths")
    small = {name: value for name, value in HEALTH.items() if not name.startswith(dropped)}
    return {
        **small,
        "domain": "math",
        "backbones": ["served"],
        "strengths": ["strong"],
        "benchmark.math": {
            "train": {**split, "problems": 24, "seed": 1},
            "validation": {**split, "problems": 4, "seed": 2},
            "test": {"source": "file", "path": "test.jsonl", "problems": SERVED, "seed": 3},
            "further": None,
            "transfer": None,
        },
        "generator.math": {
            "served": {
                **server,
                "kind": "server",
                "api": "completions",
                "structured": False,
                "prompt": None,
                "embeddings": {**server, "dimension": stand_in.WIDTH, "batch": 16},
            }
        },
        "sampling.math.max_moves": 6,
        "verifier.kind.math": "source",
        "verifier.source.math": {
            **server,
            "kind": "judge",
            "max_tokens": 200,
            "schema_constrained": False,
        },
        "evaluation.problems": SERVED,
        "search.tau": 0.5,
        "exploration.tau": 0.5,
        "evaluation.grid.tau": [0.5],
        "evaluation.methods": METHODS,
    }


def write_benchmarks(root: Path) -> None:
    """The files that ``served_params`` names."""
    stand_in.write_questions(root / "pool.jsonl", count=40, seed=1)
    stand_in.write_questions(root / "test.jsonl", count=SERVED, seed=2)
