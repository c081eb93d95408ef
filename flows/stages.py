"""The stages as ``dvc.yaml`` states them: the one place where paths and dependencies stand.

Knows: how to read ``dvc.yaml``. Does not know: DVC itself, Prefect, what a stage computes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selverify.errors import ArtifactError, ParamsError
from selverify.params import Params, read_yaml

PIPELINE_FILE = Path("dvc.yaml")
CHECK = "parameters"
"""The entry of ``dvc.yaml`` that writes nothing: it refuses wrong parameters before any stage."""
PARAMS_FILE = Path("params.yaml")
METRICS_NAME = "metrics.json"
VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True, slots=True)
class Stage:
    """One entry of ``dvc.yaml``, or one combination of its matrix.

    ``task`` names the module that does the work, ``item`` is the combination, empty outside a
    matrix. The first output of a stage is keyed by its task, every further one by its stem; an
    input has the key under which its producer writes it. A folder in which all combinations of a
    stage write is an input under the stage's task. ``sources`` are the dependencies that no stage
    writes: code. ``params`` are dotted names in ``params.yaml``.
    ``needed`` are the outputs of other stages that it reads, with who writes each.
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
    if idle := [name for name, outputs in written.items() if not outputs]:
        raise ParamsError(f"{path}: stage {idle[0]!r}: given no outs, expected at least one")
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


def params_of(stage: Stage, params: Params) -> Params:
    """What ``stage`` is run with: the parameters, narrowed to its combination."""
    return params.narrowed(**stage.item)


def check_inputs(stage: Stage) -> None:
    """Raise ArtifactError, naming file and producer, when an input of ``stage`` is missing."""
    for path, producer in stage.needed:
        if not path.exists():
            raise ArtifactError(
                f"{path}: missing; stage {stage.name!r} reads it and stage {producer!r} writes it "
                f"(python -m flows {producer}, or dvc repro)"
            )


def used_params(stage: Stage, params: Params) -> dict[str, Any]:
    """The values of the dotted names in ``stage.params``, flattened to dotted leaves, and ``item``.

    Raises:
        ParamsError: ``dvc.yaml`` names a parameter that ``params.yaml`` does not have.
    """
    everything = params.model_dump(mode="json")
    found: dict[str, Any] = dict(stage.item)
    for dotted in stage.params:
        value: Any = everything
        for part in dotted.split("."):
            if not isinstance(value, dict) or part not in value:
                raise ParamsError(f"{PIPELINE_FILE}: stage {stage.name!r}: no parameter {dotted!r}")
            value = value[part]
        found.update(leaves(dotted, value))
    return found


def leaves(prefix: str, value: Any) -> dict[str, Any]:
    """The values of nested mappings by their dotted names under ``prefix``."""
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat.update(leaves(f"{prefix}.{key}" if prefix else key, inner))
    return flat


_Paths = list[str | Annotated[dict[str, Any], Field(min_length=1)]]


class _Entry(BaseModel):
    """What is read of an entry."""

    model_config = ConfigDict(strict=True)

    matrix: dict[str, list[str]] = {}
    deps: _Paths = []
    params: list[str] = []
    outs: _Paths = []
    metrics: _Paths = []
    plots: _Paths = []
    frozen: bool = False


def _checked(entry: Any, name: object, path: Path) -> dict[str, Any]:
    """``entry`` itself.

    Raises:
        ParamsError: something of it is not what DVC has there.
    """
    try:
        _Entry.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][:2]) or "the entry"
        raise ParamsError(
            f"{path}: stage {name!r}: {place}: given {first['input']!r}, expected: {first['msg']}"
        ) from error
    checked: dict[str, Any] = entry
    return checked


def _entries(params: Params, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every combination of every entry by DVC's name for it, with ``task`` and ``item`` put in."""
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; run this from the project's root")
    names = params.model_dump(mode="json")
    read = read_yaml(path)
    entries = read.get("stages") if isinstance(read, dict) else None
    if not isinstance(entries, dict) or not entries or not all(isinstance(e, str) for e in entries):
        raise ParamsError(f"{path}: given no 'stages', expected stages by their names")
    for task, entry in entries.items():
        if task == CHECK:
            continue
        matrix = entry.get("matrix", {}) if isinstance(entry, dict) else {}
        axes = _checked({"matrix": _filled(matrix, names, path)}, task, path)["matrix"]
        for values in itertools.product(*axes.values()):
            item = dict(zip(axes, values, strict=True))
            name = f"{task}@{'-'.join(values)}" if item else task
            filled = _checked(_filled(entry, {**names, "item": item}, path), name, path)
            yield name, {**filled, "name": name, "task": task, "item": item}


def _filled(value: Any, names: Mapping[str, Any], path: Path) -> Any:
    """``value`` with every ``${...}`` replaced; a text that is one variable becomes its value."""
    if isinstance(value, Mapping):
        return {
            _filled(key, names, path): _filled(inner, names, path) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_filled(inner, names, path) for inner in value]
    if not isinstance(value, str):
        return value
    whole = VARIABLE.fullmatch(value)
    if whole is not None:
        return _variable(whole[1], names, path)
    return VARIABLE.sub(lambda found: str(_variable(found[1], names, path)), value)


def _variable(dotted: str, names: Mapping[str, Any], path: Path) -> Any:
    """The value of ``a.b`` or ``a[0]`` among ``names``."""
    value: Any = names
    for part in re.findall(r"\w+", dotted):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ParamsError(
                f"{path}: variable {dotted!r}; expected a name of params.yaml or item"
            ) from error
    return value


def _paths(items: Iterable[str | Mapping[str, Any]]) -> list[Path]:
    """``- path`` and ``- path: {cache: false}`` both name a path."""
    return [Path(item if isinstance(item, str) else next(iter(item))) for item in items]


def _outputs(entry: Mapping[str, Any]) -> dict[str, Path]:
    groups = (entry.get(group, ()) for group in ("outs", "metrics", "plots"))
    paths = [path for group in groups for path in _paths(group)]
    return {(path.stem if index else entry["task"]): path for index, path in enumerate(paths)}


def _stage(
    entry: Mapping[str, Any],
    outputs: Mapping[str, Path],
    owners: Mapping[Path, tuple[str, str]],
) -> Stage:
    inputs: dict[str, Path] = {}
    sources: list[Path] = []
    needed: list[tuple[Path, str]] = []
    for path in _paths(entry.get("deps", ())):
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
        frozen=bool(entry.get("frozen", False)),
    )
