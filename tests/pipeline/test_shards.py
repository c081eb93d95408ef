"""Shards in worker processes: order, progress, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
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
    """Only the processes that open models wait for it."""
    stages = "rollouts, difficulty, exploration, evaluation"
    late = "{'torch', 'transformers'} & set(sys.modules)"
    code = f"import sys; from tasks import {stages}; sys.exit(len({late}))"
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    """Neither a killed parent nor an interrupted one leaves a process behind."""
    folder = str(tmp_path)
    code = (
        "from tasks.shards import map_shards; from test_shards import say_who_and_wait\n"
        f"if __name__ == '__main__': map_shards(say_who_and_wait, ({folder!r},) * 2, workers=2)"
    )
    script = tmp_path.parent / f"parent-{how}.py"
    script.write_text(code)
    here = Path(__file__)
    paths = os.pathsep.join((str(here.parent), str(here.parents[1]), str(ROOT)))
    parent = subprocess.Popen(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [psutil.Process(int(path.name)) for path in tmp_path.iterdir()]
    try:
        parent.send_signal(how)
        parent.wait(30)
        wait_until(lambda: not any(map(lives, workers)))
    finally:
        parent.kill()
