"""Shards in worker processes: order, progress, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import lives, wait_until

from selverify.errors import ProtocolError
from selverify.params import load_params
from tasks.shards import LARGE, map_shards, work_on

log = logging.getLogger("tasks.somewhere")
ROOT = Path(__file__).parents[2]
FAR = 120.0


def test_a_stage_whose_shards_are_worked_on_elsewhere_needs_no_torch() -> None:
    """Only the processes that open models wait for it, and the kernels of one that trains are fixed
    before it is there."""
    stages = "rollouts, difficulty, exploration, evaluation"
    late = "{'torch', 'transformers'} & set(sys.modules)"
    modules = f"import sys, flows.__main__, flows.stages; from tasks import {stages}"
    code = f"{modules}; sys.exit(len({late}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def square(number: int) -> tuple[int, int]:
    """The square, and who computed it; the larger the number, the earlier it is done."""
    time.sleep(0.1 * (4 - number))
    log.info("squared %d", number)
    return number * number, os.getpid()


def wait_or_fail(number: int) -> int:
    """Shard 0 would take two minutes, shard 1 fails."""
    if number:
        raise ValueError(f"shard {number} is wrong")
    time.sleep(FAR)
    return number


def wait_or_die(number: int) -> int:
    """Shard 1's process is killed."""
    if number:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(FAR)
    return number


def say_who_and_wait(folder: str) -> None:
    """Leave the process's id in ``folder`` and work on."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(FAR)


def test_results_keep_the_order_of_the_shards(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the number of workers; log lines of workers come out in this process."""
    with caplog.at_level(logging.INFO):
        several = map_shards(square, (1, 2, 3), workers=2)
    lines = list(caplog.messages)
    alone = map_shards(square, (1, 2, 3), workers=1)
    assert [found for found, _ in several] == [found for found, _ in alone] == [1, 4, 9]
    assert sorted(lines) == ["squared 1", "squared 2", "squared 3"]
    assert os.getpid() not in {pid for _, pid in several}
    assert {pid for _, pid in alone} == {os.getpid()}


@pytest.mark.parametrize(
    ("model", "size"), [("grade_school-smollm2", LARGE), ("countdown-small", 3)]
)
def test_a_model_of_the_hub_gets_large_shards(model: str, size: int) -> None:
    """Its rounds of few rows take nearly as long as large ones."""
    given = load_params(ROOT / "params.yaml")
    folder = {"generator": ROOT / "models" / model}
    tasks: list[Any] = [*range(2 * LARGE)]
    shards = work_on(lambda shard: shard, tasks, given, folder, size=3, mapper=_in_order)
    assert [task for shard in shards for task in shard.tasks] == tasks
    assert len(shards[0].tasks) == size


def _in_order(work: Any, shards: Any, *, workers: int) -> list[Any]:
    return [work(shard) for shard in shards]


def test_a_failed_shard_ends_the_others_at_once() -> None:
    """The error is the shard's own; nobody waits for the shard that would take two minutes."""
    started = time.monotonic()
    with pytest.raises(ValueError, match="shard 1 is wrong"):
        map_shards(wait_or_fail, (0, 1), workers=2)
    assert time.monotonic() - started < FAR / 2


def test_a_killed_worker_is_told() -> None:
    """A worker that dies without a word ends the stage with one sentence."""
    with pytest.raises(ProtocolError, match="one of 2 worker processes died"):
        map_shards(wait_or_die, (0, 1), workers=2)


def send_a_part(of: str) -> None:
    """As a worker that is killed, or whose stage is interrupted, while it sends a large result."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        assert frame.f_back is not None
        frame = frame.f_back
    writer = frame.f_locals["result_queue"]._writer
    os.write(writer.fileno(), (1000).to_bytes(4, "big") + b"a part")
    if of == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    say_who_and_wait(of)


def test_a_worker_that_is_killed_while_it_sends_is_told(tmp_path: Path) -> None:
    """Nobody waits for the rest of its result."""
    with parent_of(tmp_path, "send_a_part, ('killed',) * 2") as parent:
        said = parent.communicate(timeout=60)[1]
    assert "one of 2 worker processes died" in said


def test_an_interrupt_while_a_worker_sends_ends_a_stage(tmp_path: Path) -> None:
    """In seconds, so that it tidies up before it is ended by force."""
    folder = tmp_path / "who"
    folder.mkdir()
    with parent_of(tmp_path, f"send_a_part, ({str(folder)!r},) * 2") as parent:
        workers = workers_in(folder)
        parent.send_signal(signal.SIGINT)
        said = parent.communicate(timeout=30)[1]
        wait_until(lambda: not any(map(lives, workers)))
    assert said.rstrip().endswith("KeyboardInterrupt")


@contextmanager
def parent_of(folder: Path, mapped: str) -> Iterator[subprocess.Popen[str]]:
    """A process that maps shards on two workers."""
    script = folder / "parent.py"
    script.write_text(
        "from tasks.shards import map_shards\n"
        "from test_shards import say_who_and_wait, send_a_part\n"
        f"if __name__ == '__main__': map_shards({mapped}, workers=2)"
    )
    here = Path(__file__)
    paths = os.pathsep.join((str(here.parent), str(here.parents[1]), str(ROOT)))
    parent = subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield parent
    finally:
        parent.kill()
        parent.wait()


def workers_in(folder: Path) -> list[psutil.Process]:
    """Both, as soon as they have said who they are."""
    wait_until(lambda: len(list(folder.iterdir())) == 2)
    return [psutil.Process(int(path.name)) for path in folder.iterdir()]


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    """A killed one leaves no process behind."""
    folder = tmp_path / "who"
    folder.mkdir()
    with parent_of(tmp_path, f"say_who_and_wait, ({str(folder)!r},) * 2") as parent:
        workers = workers_in(folder)
        parent.kill()
        parent.wait(30)
        wait_until(lambda: not any(map(lives, workers)))
