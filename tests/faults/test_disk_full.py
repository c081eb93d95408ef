"""A disk without space: one sentence, nothing half written, and the same bytes once there is some.

The disk is a tmpfs of some hundred KiB where this process may mount one, and else a limit to the
size of any file.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fake_backend import FakeBackend, PassingBackend, pool_proposer
from safetensors.numpy import save_file

from flows.execution import execute
from flows.stages import Stage
from selverify.domains.math_steps import MathSteps
from selverify.errors import ArtifactError
from selverify.models.reply_cache import CachedBackend
from selverify.params import Params, load_params
from selverify.search.ledger import Ledger
from selverify.search.requests import Propose, ProposeItem
from selverify.search.traces import Event, write_events
from selverify.storage import write_json, write_plain_json, write_table

ROOT = Path(__file__).parents[2]
SIZE = 200 << 10
MANY = 2_000
SCHEMA, VERSION = "stage.table", 1
DOMAIN = MathSteps()


class Disk:
    """A folder with little space, and how it was made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kind = "tmpfs" if self._mount() else "RLIMIT_FSIZE"

    def _mount(self) -> bool:
        options = ["-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(self.folder)]
        try:
            done = subprocess.run(["mount", *options], capture_output=True, check=False)
        except OSError:
            return False
        return done.returncode == 0

    @contextmanager
    def full(self) -> Iterator[None]:
        """Within the block files larger than the disk find no space."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if self.kind == "RLIMIT_FSIZE":
            resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def enlarge(self) -> None:
        """Make space."""
        if self.kind == "tmpfs":
            options = ["-o", f"remount,size={64 << 20}", str(self.folder)]
            subprocess.run(["mount", *options], check=True)

    def unmount(self) -> None:
        if self.kind == "tmpfs":
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = Disk(folder)
    yield made
    made.unmount()


def rows(path: Path) -> None:
    numbers = np.random.default_rng(1).random(100_000)  # which no compression makes small
    write_table(path, [{"n": float(n)} for n in numbers], schema=SCHEMA, version=VERSION)


def facts(path: Path) -> None:
    write_json(path, {"text": "x" * (2 * SIZE)}, schema=SCHEMA, version=VERSION)


def metrics(path: Path) -> None:
    write_plain_json(path, ["x" * (2 * SIZE)])


def events(path: Path) -> None:
    state = DOMAIN.initial_state(DOMAIN.read("What is 1 + 1?", problem_id="p"), budget=1)
    numbers = np.random.default_rng(1).random(30_000).tolist()
    told = [Event(i, "note", state, Ledger(), (("x", n),)) for i, n in enumerate(numbers)]
    write_events(path, {"a": told})


def weights(path: Path) -> None:
    save_file({"weight": np.zeros(SIZE)}, path)


WRITERS: dict[str, Callable[[Path], None]] = {
    writer.__name__: writer for writer in (rows, facts, metrics, events)
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_finds_no_space_leaves_the_older_one(name: str, disk: Disk) -> None:
    """One sentence, no temporary file, and the file that was there."""
    path = disk.folder / "file"
    path.write_text("older")
    with disk.full(), pytest.raises(ArtifactError, match="not written") as caught:
        WRITERS[name](path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert [one.name for one in disk.folder.iterdir()] == ["file"]
    assert path.read_text() == "older"
    disk.enlarge()
    WRITERS[name](path)
    assert path.stat().st_size > SIZE


@pytest.mark.parametrize("writer", [rows, weights], ids=lambda one: one.__name__)
def test_a_stage_that_finds_no_space_has_no_output(
    writer: Callable[[Path], None], disk: Disk, record
) -> None:
    """Whatever library writes; the next run, with space, has all."""

    def run(params: Params, inputs: object, outputs: dict[str, Path]) -> dict[str, float]:
        (outputs["stage"] / "first.txt").write_text("written first")
        writer(outputs["stage"] / "large")
        return {"done": 1.0}

    folder = disk.folder / "data" / "stage"
    stage = Stage("stage", "stage", {}, {}, {"stage": folder}, (), (), (), frozen=False)
    params = load_params(ROOT / "params.yaml")
    with disk.full(), pytest.raises(ArtifactError, match="not written") as caught:
        execute(stage, params, run)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)
    assert list(folder.parent.iterdir()) == []
    disk.enlarge()
    assert execute(stage, params, run) == {"done": 1.0}
    assert {path.name for path in folder.iterdir()} == {"first.txt", "large", "metrics.json"}
    record(
        f"no space on the disk ({disk.kind}), a stage that writes {writer.__name__}",
        "the stage fails, space is made, the stage runs again",
        moments=1,
        held="one sentence that names the output; no output and no temporary file; then all of it",
    )


def test_a_reply_cache_without_space_keeps_what_was_paid_for(disk: Disk, record) -> None:
    """The batch that found no space is asked again, and nothing else."""
    fake = FakeBackend(DOMAIN, pool_proposer(["1+1=2 " * 9]), name="n", seed=1, max_moves=9)
    backend = PassingBackend(fake)

    def samples() -> int:
        return sum(item.count for request in backend.requests for item in request.items)

    requests = []
    for number in range(MANY // 100):
        problem = DOMAIN.read(f"What is {number} + {number}?", problem_id=f"p{number}")
        state = DOMAIN.initial_state(problem, budget=1)
        requests.append(Propose((ProposeItem(state, 0, 100),)))
    path = disk.folder / "replies.sqlite"
    cache = CachedBackend(backend, path)
    with disk.full(), pytest.raises(ArtifactError, match="cannot be written") as caught:
        for request in requests:
            cache.answer(request)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    cache.close()
    paid = samples()
    assert 100 < paid < MANY
    disk.enlarge()
    cache = CachedBackend(backend, path)
    for request in requests:
        assert cache.answer(request) == fake.answer(request)
    cache.close()
    twice = samples() - MANY
    assert twice == 100
    record(
        f"no space on the disk ({disk.kind}), a reply cache",
        f"the disk is full after {paid} of {MANY} replies; space is made, the same again",
        moments=1,
        held=f"one sentence that names the file; {twice} replies asked twice, the batch in flight",
    )
