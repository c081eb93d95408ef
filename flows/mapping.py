"""The shards of a stage as Prefect tasks, on processes of this machine or on Dask.

Knows: Prefect, Dask, how a stage's shards may be retried. Does not know: what a shard holds, or
what is done with the results. Results do not depend on where shards run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

from prefect import Task, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import as_completed
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows import terminal
from flows.artifacts import shown
from flows.environment import PREFECT_DIRECTORY
from flows.server import LOOPBACK, prefect_server
from selverify.errors import NoReply, ParamsError
from selverify.models.sources import sources_of
from selverify.params import Server, Tracking
from tasks.shards import Mapper, Shard, processes

T = TypeVar("T")
Apply = Callable[[Callable[[Shard], T], Shard], T]

log = logging.getLogger(__name__)

DASK = "dask"
# Each request was repeated by the client before; what is waited for is a server that starts again.
RETRIES = 2
RETRY_SECONDS = 30.0


@contextmanager
def task_runner(tracking: Tracking) -> Iterator[TaskRunner[Any]]:
    """What runs the tasks of a stage's flow, as ``tracking.runner`` says.

    Dask's workers report to a Prefect server, which is started unless there is one.

    Raises:
        ParamsError: Dask is asked for and not installed.
    """
    if tracking.runner != DASK:
        yield ThreadPoolTaskRunner(max_workers=tracking.threads)
        return
    runner = _dask_runner(tracking)
    with prefect_server() as api, temporary_settings({PREFECT_API_URL: api}):
        yield runner


def _dask_runner(tracking: Tracking) -> TaskRunner[Any]:
    try:
        config = import_module("dask").config
        make = import_module("prefect_dask").DaskTaskRunner
    except ImportError as error:
        raise ParamsError(
            "tracking.runner: given 'dask', expected the extra that runs it to be installed: "
            f"pip install '.[dask]' in the clone ({error})"
        ) from error
    if tracking.dask is not None:
        return make(address=tracking.dask)  # type: ignore[no-any-return]
    config.set({"distributed.worker.daemon": False})  # the grader has a process of its own
    logging.getLogger("distributed").setLevel(logging.ERROR)
    return make(  # type: ignore[no-any-return]
        cluster_kwargs={
            "n_workers": tracking.threads,
            "threads_per_worker": 1,
            "host": LOOPBACK,
            "dashboard_address": f"{LOOPBACK}:0",
            "worker_dashboard_address": f"{LOOPBACK}:0",
            "silence_logs": logging.CRITICAL,
            "preload": [f"{__package__}.dask_worker"],
            "local_directory": f"{PREFECT_DIRECTORY}/dask",  # a killed run leaves its there
        }
    )


def mapper(stage: str, tracking: Tracking, *, key: str) -> Mapper:
    """Maps the shards of ``stage`` as tasks of the flow that calls it, with a progress artifact.

    Args:
        key: the artifact's.
    """

    def mapped(work: Callable[[Shard], T], shards: Sequence[Shard], *, workers: int) -> list[T]:
        workers = min(workers, len(shards))
        remote = tracking.runner == DASK
        retries = RETRIES if shards and _asks_a_server(shards[0].inputs) else 0
        sizes = [len(shard.tasks) for shard in shards]
        with _applied(remote, workers) as apply:
            tasks = [_task(stage, apply, work, shard, retries) for shard in shards]
            done = _as_completed(
                tasks, together=remote or workers > 1, scheduler=tracking.dask if remote else None
            )
            return _results(stage, done, sizes, key=key)

    return mapped


def _applied(remote: bool, workers: int) -> Any:
    """How a task works on its shard: where it runs, or in a process of this machine."""
    if not remote and workers > 1:
        return processes(workers)
    return nullcontext(_on_worker if remote else lambda work, shard: work(shard))


def _on_worker(work: Callable[[Shard], T], shard: Shard) -> T:
    terminal.prepare()
    return work(shard)


def _task(
    stage: str, apply: Apply[T], work: Callable[[Shard], T], shard: Shard, retries: int
) -> Task[[], T]:
    """A task without parameters: Prefect would look through all that they hold."""

    @task(
        name=f"{stage}: shard",
        task_run_name=lambda: shard.name,
        retries=retries,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=_may_pass,
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    def work_on_shard() -> T:
        return apply(work, shard)

    return work_on_shard


def _may_pass(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether a shard's failure is one of a server that may answer later; asked before a retry."""
    error = state.result(raise_on_failure=False)
    if not isinstance(error, NoReply):
        return False
    log.warning("%s: %s; tried again in %.0f s", run.name, error, RETRY_SECONDS)
    return True


def _asks_a_server(inputs: Mapping[str, Path]) -> bool:
    return any(isinstance(source, Server) for source in sources_of(inputs).values())


def _results(
    stage: str, done: Iterator[tuple[int, T]], sizes: Sequence[int], *, key: str
) -> list[T]:
    """The results of all shards in their order; the first that fails ends this."""
    count, started = len(sizes), time.monotonic()
    progress: UUID | None = None
    with shown(key):
        made = create_progress_artifact(0.0, key=key, description=f"{count} shards")
        progress = cast(UUID, made)
    found: dict[int, T] = {}
    for place, result in done:
        found[place] = result
        rate = sum(sizes[one] for one in found) / max(time.monotonic() - started, 1e-3)
        log.info("%s: %d of %d shards are done, %.1f problems/s", stage, len(found), count, rate)
        if progress is not None:
            with shown(key):
                update_progress_artifact(progress, progress=100.0 * len(found) / count)
    return [found[place] for place in range(count)]


def _as_completed(
    tasks: Sequence[Task[[], T]], *, together: bool, scheduler: str | None
) -> Iterator[tuple[int, T]]:
    if not together:
        yield from ((place, one()) for place, one in enumerate(tasks))
        return
    try:
        places = {one.submit(): place for place, one in enumerate(tasks)}
    except OSError as error:
        if scheduler is None:
            raise
        raise ParamsError(
            f"tracking.dask: no scheduler answers ({error}), expected one, or null"
        ) from error
    for future in as_completed(list(places)):
        yield places[future], future.result()
