"""What has to hold before DVC runs, and mending of what an interrupted run left behind.

Knows: DVC's lock file, temporary names of ``selverify.storage``. Does not know: stages' contents.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TextIO

import psutil

from flows.environment import PREFECT_DIRECTORY
from flows.stages import PARAMS_FILE, Stage, load_stages
from selverify.domains import domain_by_name
from selverify.errors import ArtifactError, ParamsError, ProtocolError, SchemaError
from selverify.models.sources import (
    adapter_facts,
    has_adapter,
    has_source,
    read_generator_source,
    write_source,
)
from selverify.params import Generator, Params, PretrainedParams, Served, load_params

DVC_DIRECTORY = Path(".dvc")
AT_WORK = Path("tmp") / "selverify.lock"
STAGE_AT_WORK = Path("tmp") / "selverify-stage.lock"
SERVER_AT_WORK = Path(PREFECT_DIRECTORY) / "selverify-server.lock"
COPIES = DVC_DIRECTORY / "tmp" / "exps"
"""Where DVC keeps experiments that wait, and the copies of the project that others run in."""
DVC_LOCK = Path("dvc.lock")
LOCK_BEFORE = Path("tmp") / "selverify-dvc.lock"
STAGE_ENTRY = re.compile(r"^(?=  \S)", re.MULTILINE)
"""Where a stage's entry in ``dvc.lock`` begins."""
RUN_PROCESS = "SELVERIFY_RUN"
"""The environment variable that tells what a run starts which process the run is."""
BEING_FILLED_SECONDS = 5.0
SQLITE_FILES = ("", "-journal", "-shm", "-wal")
LEFTOVER = re.compile(r"\.(tmp|old)-(\d+)$")


def preflight() -> dict[str, Stage]:
    """Check parameters and stages, remove leftovers, and return the stages in order.

    Raises:
        ParamsError: ``params.yaml`` or ``dvc.yaml`` is wrong.
        ArtifactError: this is no DVC project.
    """
    params, stages = _read_parameters()
    if not DVC_DIRECTORY.is_dir():
        raise ArtifactError(f"{DVC_DIRECTORY}: missing; run this from the project's root")
    mend_lock(DVC_DIRECTORY / "tmp" / "rwlock")
    mend_known_runs(DVC_DIRECTORY / "cache" / "runs")
    remove_leftovers(path for stage in stages.values() for path in stage.outputs.values())
    name_sources(params, stages)
    return stages


def check_parameters() -> tuple[Params, dict[str, Stage]]:
    """Refuse wrong parameters before DVC has removed the outputs of a stage, which it then runs.

    Models that are not trained here are named anew: stages depend on the file, not on parameters.

    Raises:
        ParamsError: ``params.yaml`` or ``dvc.yaml`` is wrong.
        SchemaError: as in ``name_sources``.
    """
    params, stages = _read_parameters()
    check_methods(params.evaluation.methods)  # takes imports that only these need
    name_sources(params, stages)
    return params, stages


def check_methods(names: Sequence[str]) -> None:
    """Refuse methods that there are not, and a choice of which no report could be made.

    Raises:
        ParamsError: it is one.
    """
    known = import_module("selverify.experiment.methods").METHODS
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ParamsError(
            f"evaluation.methods: given {unknown[0]!r}, expected some of {', '.join(known)}"
        )
    if "full" not in names or not any(name.endswith("_gated") for name in names):
        raise ParamsError(
            f"evaluation.methods: given {', '.join(names)}, expected full and a baseline with "
            "gates, such as best_of_n_gated, which the report compares"
        )


def _read_parameters() -> tuple[Params, dict[str, Stage]]:
    params = load_params(PARAMS_FILE)
    for domain in params.benchmark:
        domain_by_name(domain)
    return params, load_stages(params)


@contextmanager
def alone() -> Iterator[None]:
    """Be the only run of this checkout for the length of the block.

    The system gives the lock back when this process ends, however it ends, and with it the
    supervisors of what it started, which inherit the lock: a killed run may leave work that is
    still ending. A stage that DVC started without a supervisor has a lock of its own
    (``stage_at_work``).

    What a kill cut off from ``dvc.lock``, in this run or an earlier one, is put back.

    Raises:
        ArtifactError: this is no DVC project.
        ProtocolError: another process runs the pipeline here, or what a killed one started does.
    """
    with _open_lock(AT_WORK) as file:
        if not _locked(file):
            raise ProtocolError(_who_runs(file))
        with _open_lock(STAGE_AT_WORK) as stage:
            if not _locked(stage):
                raise ProtocolError(
                    "a stage is at work in this checkout, started by DVC or left by a killed run; "
                    "expected none: wait for it, or stop it"
                )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        os.set_inheritable(file.fileno(), True)
        before = DVC_DIRECTORY / LOCK_BEFORE
        with writable(before):
            mend_dvc_lock(DVC_LOCK, before)
            before.write_bytes(DVC_LOCK.read_bytes() if DVC_LOCK.is_file() else b"")
        os.environ[RUN_PROCESS] = str(os.getpid())
        try:
            yield
        finally:
            del os.environ[RUN_PROCESS]
            mend_dvc_lock(DVC_LOCK, before)


@contextmanager
def stage_at_work() -> Iterator[None]:
    """Keep other runs from becoming ``alone`` for the length of the block."""
    with _open_lock(STAGE_AT_WORK) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def server_at_work() -> Iterator[None]:
    """Keep ``clean`` away from Prefect's home for the length of the block.

    Supervisors of what is started in it inherit the lock, as that of ``alone``.
    """
    with _open(SERVER_AT_WORK) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.set_inheritable(file.fileno(), True)
        yield


def _open_lock(name: Path) -> TextIO:
    if not DVC_DIRECTORY.is_dir():
        raise ArtifactError(f"{DVC_DIRECTORY}: missing; run this from the project's root")
    return _open(DVC_DIRECTORY / name)


def _open(lock: Path) -> TextIO:
    with writable(lock):
        lock.parent.mkdir(exist_ok=True)
        return lock.open("a+", encoding="ascii")


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Say of an error of the system in the block that ``path`` could not be opened.

    Raises:
        ArtifactError: there was one.
    """
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"{path}: not opened ({error.strerror}), expected a file that can be written to"
        ) from error


def _locked(file: TextIO) -> bool:
    """Whether this process could lock ``file`` for itself."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _who_runs(file: TextIO) -> str:
    file.seek(0)
    process = file.read(20)
    if process.isdecimal() and not psutil.pid_exists(int(process)):
        return (
            f"what process {process}, which was killed, had started is still ending in this "
            "checkout, expected no process: wait for it"
        )
    return (
        f"process {process or 'unknown'} runs the pipeline in this checkout, expected no other "
        "run: wait for it, or stop it"
    )


def name_sources(params: Params, stages: Mapping[str, Stage]) -> list[Path]:
    """Write ``source.json`` for models that are not trained here, where it says something else.

    The generator's stage is frozen, because a training takes long; to name a model takes nothing.
    Returns the folders written.

    Raises:
        SchemaError: a tuned model is asked for, and the folder holds none, or one of another
            tuning.
    """
    written = []
    for stage in stages.values():
        if stage.task != "generator":
            continue
        folder = stage.outputs["generator"]
        settings = params.generator[params.domain][stage.item["backbone"]]
        if isinstance(settings, Generator):
            continue
        _check_adapter(settings, folder, stage.name)
        if _source(folder) != settings:
            write_source(folder, settings)
            written.append(folder)
    return written


def _source(folder: Path) -> PretrainedParams | Served | None:
    """What the folder names; None where that is nothing, or was written under other parameters."""
    try:
        return read_generator_source(folder) if has_source(folder) else None
    except SchemaError:
        return None


def _check_adapter(settings: PretrainedParams | Served, folder: Path, stage: str) -> None:
    tuning = settings.tuning if isinstance(settings, PretrainedParams) else None
    if tuning is None:
        return
    wanted = tuning.model_dump(exclude={"saved_steps"})
    found = adapter_facts(folder)["settings"] if has_adapter(folder) else None
    other = [name for name in wanted if found is None or found.get(name) != wanted[name]]
    if not other:
        return
    holds = "no adapter" if found is None else "an adapter of another tuning"
    asked = ", ".join(f"{name} {wanted[name]}" for name in other)
    raise SchemaError(
        f"{folder}: given {holds}, expected one of {asked}; run python -m flows benchmark and "
        f"python -m flows {stage}"
    )


def mend_lock(path: Path) -> None:
    """Remove a lock file of no bytes: an interrupt leaves one, and all DVC commands trip on it."""
    if path.is_file() and path.stat().st_size == 0:
        path.unlink()


def mend_dvc_lock(lock: Path, before: Path) -> None:
    """Put back what a kill cut off from ``lock``; ``before`` is its copy of when the run started.

    DVC empties the file, then writes all entries in their order. Those that were written whole are
    kept, the others are as in the copy; DVC compares digests and finds what is newer in its cache.
    The copy is then removed. Where there is none, the last run had a clean end, and nothing is
    mended; nor is a lock that is as git has it.
    """
    if not before.is_file():
        return
    if lock.is_file():
        head, old = _entries(before.read_text("utf-8", "replace"))
        text = lock.read_text("utf-8", "replace")
        head_now, now = _entries(text)
        cut_off = not text.endswith("\n") or _is_start(now, old)
        if cut_off and not _is_committed(lock):
            if now:
                now.popitem()
            if entries := "".join((old | now).values()):
                lock.write_text((head or head_now) + entries, "utf-8")
            else:
                lock.unlink()
    before.unlink()


def _is_committed(file: Path) -> bool:
    git = import_module("flows.origin").git  # with all that says where numbers come from
    return bool(git(file.parent, "status", "--porcelain", "--", file.name) == "")


def _entries(lock: str) -> tuple[str, dict[str, str]]:
    """The text before the first stage, and each stage's text by its name."""
    head, *entries = STAGE_ENTRY.split(lock)
    return head, {entry.partition("\n")[0]: entry for entry in entries}


def _is_start(now: Mapping[str, str], old: Mapping[str, str]) -> bool:
    """Whether ``now`` has only the first stages of ``old``, or of the last one only the start."""
    names = list(now)
    if names != list(old)[: len(names)]:
        return False
    if len(names) < len(old):
        return True
    return any(now[name] != old[name] and old[name].startswith(now[name]) for name in names[-1:])


def mend_known_runs(folder: Path) -> None:
    """Remove empty folders of known runs: a kill leaves one, and DVC fails on it ever after.

    One that was made a moment ago may be about to be filled, and is waited for.
    """
    found = [path for path in sorted(folder.glob("*/*")) if path.is_dir()]
    empty = [path for path in found if not any(path.iterdir())]
    if empty:
        newest = max(path.stat().st_mtime for path in empty)
        time.sleep(min(max(newest + BEING_FILLED_SECONDS - time.time(), 0), BEING_FILLED_SECONDS))
    for path in empty:
        with suppress(OSError):  # it was filled meanwhile, or another process has removed it
            path.rmdir()


def remove_leftovers(outputs: Iterable[Path]) -> None:
    """Remove temporary siblings of ``outputs`` whose writer no longer runs.

    An output that stepped aside for a newer one, which then never came, is put back.
    """
    for output in outputs:
        for path in sorted(output.parent.glob(f"{output.name}.*-*")):
            match = LEFTOVER.search(path.name)
            if match is None or is_writing(int(match[2]), path):
                continue
            if match[1] == "old" and not output.exists():
                path.rename(output)
            else:
                delete(path)


def is_writing(process: int, path: Path) -> bool:
    """Whether ``process`` runs and is older than ``path``: numbers of processes are used again."""
    try:
        return psutil.Process(process).create_time() <= path.stat().st_mtime
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False


def remove_others(stages: Mapping[str, Stage]) -> None:
    """Remove combinations that are no longer asked for from folders that a stage reads as a whole.

    They would be part of what the stage depends on; DVC's cache has them.

    Raises:
        ArtifactError: something else is there, which may be somebody's own; nothing is removed.
    """
    others: dict[Path, str] = {}
    for stage in stages.values():
        wanted = {path for path, _ in stage.needed}
        for folder in set(stage.inputs.values()) - wanted:
            others |= dict.fromkeys(set(folder.glob("*")) - wanted, stage.name)
    if not others:
        return
    params = load_params(PARAMS_FILE)
    backbones = {name for models in params.generator.values() for name in models}
    known = {path for stage in _every_stage(params, backbones) for path in stage.outputs.values()}
    for path, name in sorted(others.items()):
        if path.with_name(LEFTOVER.sub("", path.name)) not in known:
            raise ArtifactError(
                f"{path}: given no stage's output, expected outputs alone in a folder that stage "
                f"{name!r} reads as a whole; move it elsewhere"
            )
    for path in others:
        delete(path)


def _every_stage(params: Params, backbones: Iterable[str]) -> list[Stage]:
    """The stages of all combinations of ``backbones`` and strengths, asked for or not."""
    everything = {"backbones": tuple(backbones), "strengths": tuple(params.verifier.share)}
    return list(load_stages(params.model_copy(update=everything)).values())


def clean() -> None:
    """Remove what a run made: outputs, cached replies, DVC's cache, Prefect's home.

    The output of a frozen stage, the virtual environment and MLflow's history stay.

    Raises:
        ProtocolError: a run, an experiment or a server is at work here.
    """
    with alone(), _open(SERVER_AT_WORK) as server:
        if not _locked(server):
            raise ProtocolError(
                "a Prefect server is at work in this checkout, expected none: stop what started it "
                "(make ui, make up or a stage)"
            )
        if (process := _dvc_at_work()) is not None:
            raise ProtocolError(
                f"process {process} runs DVC or an experiment in this checkout, expected none: "
                "wait for it, or stop it"
            )
        preflight()
        params = load_params(PARAMS_FILE)
        stages = _every_stage(params, params.generator[params.domain])
        outputs = [path for stage in stages if not stage.frozen for path in stage.outputs.values()]
        replies = Path(params.tracking.reply_cache)
        # SQLite keeps its journal beside the database.
        databases = (replies.with_name(f"{replies.name}{end}") for end in SQLITE_FILES)
        locks = {DVC_DIRECTORY / AT_WORK, DVC_DIRECTORY / STAGE_AT_WORK}
        temporary = set((DVC_DIRECTORY / "tmp").glob("*")) - locks
        kept_by_tools = (DVC_DIRECTORY / "cache", *temporary, Path(PREFECT_DIRECTORY))
        pages = [path.with_suffix(".html") for path in outputs]  # the report's copy with its origin
        for path in (*outputs, *pages, *filter(Path.is_file, databases), *kept_by_tools):
            delete(path)


def _dvc_at_work() -> int | None:
    """A process of DVC in this checkout, or one in the copies that DVC makes for experiments.

    DVC lets go of its own lock while it makes them and while stages run.
    """
    root, copies = Path.cwd(), COPIES.resolve()
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if process.info["cwd"] is None:  # another user's, who may not be asked
            continue
        folder = Path(process.info["cwd"])
        around = {folder, *folder.parents}
        names = {Path(word).name for word in (process.info["cmdline"] or ())[:3]}
        if copies in around or (root in around and "dvc" in names):
            return int(process.pid)
    return None


def delete(path: Path) -> None:
    """Remove a file or a whole directory; nothing happens where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
