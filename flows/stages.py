"""The stages as ``dvc.yaml`` states them: the one place where paths and dependencies stand.

Knows: DVC's reading of ``dvc.yaml``. Does not know: Prefect, MLflow, what a stage computes. DVC's
parser alone is imported, which takes a tenth of a second, so that a mistake is answered at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dvc.exceptions import DvcException
from dvc.parsing import DataResolver, split_group_name
from dvc.schema import COMPILED_MULTI_STAGE_SCHEMA
from dvc_objects.fs.memory import MemoryFileSystem
from voluptuous import Invalid
from voluptuous.humanize import humanize_error

from selverify.errors import ArtifactError, ParamsError
from selverify.params import Generator, Params, read_yaml

PIPELINE_FILE = Path("dvc.yaml")
CHECK = "parameters"
"""The entry of ``dvc.yaml`` without outputs: it refuses wrong parameters before any stage."""
PARAMS_FILE = Path("params.yaml")
METRICS_NAME = "metrics.json"


@dataclass(frozen=True, slots=True)
class Stage:
    """One entry of ``dvc.yaml``, or one combination of its matrix.

    ``task`` names the module that does the work, ``item`` is the combination, empty outside a
    matrix; ``Params.narrowed`` makes of it what the stage is run with. The first output of a stage
    is keyed by its task, every further one by its stem; an input has the key under which its
    producer writes it. A folder in which all combinations of a stage write is an input under the
    stage's task. ``sources`` are the dependencies that no stage writes: code. ``params`` are dotted
    names in ``params.yaml``. ``needed`` are the outputs of other stages that it reads, each with
    the stage that writes it.
    """

    name: str
    task: str
    item: Mapping[str, str]
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    sources: tuple[Path, ...]
    params: tuple[str, ...]
    needed: tuple[tuple[Path, str], ...]
    frozen: bool

    @property
    def metrics(self) -> Path:
        """Where the stage's metrics stand: a declared ``metrics.json``, or in its first output."""
        declared = (path for path in self.outputs.values() if path.name == METRICS_NAME)
        return next(declared, self.outputs[self.task] / METRICS_NAME)


def load_stages(params: Params, path: Path = PIPELINE_FILE) -> dict[str, Stage]:
    """Every stage by name, producers before consumers, alphabetical among equals; not ``CHECK``.

    Raises:
        ArtifactError: ``dvc.yaml`` is missing.
        ParamsError: it holds something else than stages, uses an unknown variable, or its stages
            form a circle.
    """
    entries = dict(_entries(params, path))
    written = {name: _outputs(entry) for name, entry in entries.items()}
    for name, outputs in written.items():
        if not outputs or Path() in outputs.values():
            raise ParamsError(f"{path}: stage {name!r}: given no outs, expected at least one")
    owners = {
        file: (name, key) for name, outputs in written.items() for key, file in outputs.items()
    }
    stages = {name: _stage(entry, written[name], owners) for name, entry in entries.items()}
    sorter = TopologicalSorter(
        {name: sorted({producer for _, producer in stages[name].needed}) for name in sorted(stages)}
    )
    try:
        return {name: stages[name] for name in sorter.static_order()}
    except CycleError as error:
        raise ParamsError(f"{path}: stages depend on each other in a circle: {error}") from error


def find_stage(stages: Mapping[str, Stage], name: str) -> Stage:
    """The stage called ``name``; the name of a matrix will do where it has one combination.

    Raises:
        ParamsError: ``dvc.yaml`` has no such stage, or it has several.
    """
    found = [stage for stage in stages.values() if name in {stage.name, stage.task}]
    if len(found) != 1:
        given = "several stages" if found else "no stage"
        known = ", ".join(one.name for one in found or stages.values())
        raise ParamsError(f"{PIPELINE_FILE}: {given} {name!r}; expected one of {known}")
    return found[0]


def check_inputs(stage: Stage) -> None:
    """Raise ArtifactError, naming file and producer, when an input of ``stage`` is missing."""
    for path, producer in stage.needed:
        if not path.exists():
            raise ArtifactError(
                f"{path}: missing; stage {stage.name!r} reads it and stage {producer!r} writes it "
                f"(python -m flows {producer}, or dvc repro)"
            )


def trained_here(stage: Stage, params: Params) -> bool:
    """Whether the generator that ``stage`` works with is one that the project trains whole."""
    backbone = stage.item.get("backbone", params.backbones[0])
    return isinstance(params.generator[params.domain][backbone], Generator)


def used_params(stage: Stage, params: Params) -> dict[str, Any]:
    """The values of the dotted names in ``stage.params``, flattened to dotted leaves, and ``item``.

    Raises:
        ParamsError: ``dvc.yaml`` names a parameter that ``params.yaml`` does not have.
    """
    everything = leaves("", params.model_dump(mode="json"))
    found: dict[str, Any] = dict(stage.item)
    for dotted in stage.params:
        inside = {name for name in everything if f"{name}.".startswith(f"{dotted}.")}
        if not inside:
            raise ParamsError(f"{PIPELINE_FILE}: stage {stage.name!r}: no parameter {dotted!r}")
        found.update({name: value for name, value in everything.items() if name in inside})
    return found


def leaves(prefix: str, value: Any) -> dict[str, Any]:
    """The values of nested mappings by their dotted names under ``prefix``."""
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(leaves(f"{prefix}.{key}" if prefix else key, inner))
    return flat


def _entries(params: Params, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every combination of every entry by DVC's name for it, with ``task`` and ``item`` put in."""
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; run this from the project's root")
    read = read_yaml(path)
    if not isinstance(read, dict) or not read.get("stages"):
        raise ParamsError(f"{path}: given no 'stages', expected stages by their names")
    try:
        COMPILED_MULTI_STAGE_SCHEMA(read)
        yield from _resolved(params, read["stages"])
    except Invalid as error:
        raise ParamsError(f"{path}: {humanize_error(read, error).splitlines()[0]}") from error
    except (DvcException, TypeError) as error:  # the latter for a matrix that is a single word
        raise ParamsError(f"{path}: {' '.join(str(error).split())}") from error


def _resolved(params: Params, entries: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries as DVC resolves them, with ``params`` in the place of ``params.yaml``."""
    files = MemoryFileSystem(global_store=False)  # type: ignore[no-untyped-call]
    variables = [params.model_dump(mode="json")]
    resolver = DataResolver(
        SimpleNamespace(fs=files, config={}), "", {"vars": variables, "stages": entries}
    )
    for name in resolver.get_keys():
        task, combination = split_group_name(name)
        entry = resolver.resolve_one(name)[name]
        matrix = resolver.definitions[task]
        values = matrix.normalized_iterable[combination] if combination else {}
        item = {axis: str(value) for axis, value in values.items()}
        if not all(isinstance(one, str) for one in entry.get("params", ())):
            raise ParamsError(f"{PIPELINE_FILE}: stage {name!r}: expected names in params")
        if task != CHECK:
            yield name, {**entry, "name": name, "task": task, "item": item}


def _outputs(entry: Mapping[str, Any]) -> dict[str, Path]:
    """Where it writes; ``- path`` and ``- path: {cache: false}`` both name a path."""
    items = [item for group in ("outs", "metrics", "plots") for item in entry.get(group, ())]
    paths = [Path(item if isinstance(item, str) else next(iter(item), "")) for item in items]
    return {(path.stem if index else entry["task"]): path for index, path in enumerate(paths)}


def _stage(
    entry: Mapping[str, Any],
    outputs: Mapping[str, Path],
    owners: Mapping[Path, tuple[str, str]],
) -> Stage:
    inputs: dict[str, Path] = {}
    sources: list[Path] = []
    needed: list[tuple[Path, str]] = []
    for path in map(Path, entry.get("deps", ())):
        under = [file for file in owners if path == file or path in file.parents]
        if under:
            inputs[owners[under[0]][1]] = path
            needed += [(file, owners[file][0]) for file in under]
        else:
            sources.append(path)
    return Stage(
        name=entry["name"],
        task=entry["task"],
        item=entry["item"],
        inputs=inputs,
        outputs=outputs,
        sources=tuple(sources),
        params=tuple(entry.get("params", ())),
        needed=tuple(needed),
        frozen=entry.get("frozen", False),
    )
