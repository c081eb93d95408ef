"""The stages as ``dvc.yaml`` states them: the one place where paths and dependencies stand.

Knows: how to read ``dvc.yaml``. Does not know: DVC itself, Prefect, what a stage computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from string import Template
from typing import Any

import yaml

from selverify.errors import ArtifactError, ParamsError
from selverify.params import Params

PIPELINE_FILE = Path("dvc.yaml")
PARAMS_FILE = Path("params.yaml")
METRICS_NAME = "metrics.json"


@dataclass(frozen=True, slots=True)
class Stage:
    """One entry of ``dvc.yaml``.

    The first output of a stage is keyed by the stage's name, every further one by its stem; an
    input has the key under which its producer writes it. ``sources`` are the dependencies that no
    stage writes: code. ``params`` are dotted names in ``params.yaml``.
    """

    name: str
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    sources: tuple[Path, ...]
    params: tuple[str, ...]
    producers: Mapping[str, str]
    frozen: bool

    @property
    def metrics(self) -> Path:
        """Where the stage's metrics stand: a declared ``metrics.json``, or in its first output."""
        declared = (path for path in self.outputs.values() if path.name == METRICS_NAME)
        return next(declared, self.outputs[self.name] / METRICS_NAME)


def load_stages(params: Params, path: Path = PIPELINE_FILE) -> dict[str, Stage]:
    """Every stage by name, producers before consumers, alphabetical among equals.

    Raises:
        ArtifactError: ``dvc.yaml`` is missing.
        ParamsError: it uses an unknown variable, or its stages form a circle.
    """
    entries = _entries(params, path)
    written = {name: _outputs(name, entry) for name, entry in entries.items()}
    owners = {
        file: (name, key) for name, outputs in written.items() for key, file in outputs.items()
    }
    stages = {name: _stage(name, entry, written[name], owners) for name, entry in entries.items()}
    sorter = TopologicalSorter(
        {name: sorted(set(stages[name].producers.values())) for name in sorted(stages)}
    )
    try:
        return {name: stages[name] for name in sorter.static_order()}
    except CycleError as error:
        raise ParamsError(f"{path}: stages depend on each other in a circle: {error}") from error


def find_stage(stages: Mapping[str, Stage], name: str) -> Stage:
    """The stage called ``name``.

    Raises:
        ParamsError: ``dvc.yaml`` has no such stage.
    """
    if name not in stages:
        raise ParamsError(
            f"{PIPELINE_FILE}: no stage {name!r}; expected one of {', '.join(stages)}"
        )
    return stages[name]


def check_inputs(stage: Stage) -> None:
    """Raise ArtifactError, naming file and producer, when an input of ``stage`` is missing."""
    for key, path in stage.inputs.items():
        if not path.exists():
            producer = stage.producers[key]
            raise ArtifactError(
                f"{path}: missing; stage {stage.name!r} reads it and stage {producer!r} writes it "
                f"(python -m flows {producer}, or dvc repro)"
            )


def used_params(stage: Stage, params: Params) -> dict[str, Any]:
    """The values of the dotted names in ``stage.params``, flattened to dotted leaves.

    Raises:
        ParamsError: ``dvc.yaml`` names a parameter that ``params.yaml`` does not have.
    """
    everything = params.model_dump(mode="json")
    found: dict[str, Any] = {}
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


def _entries(params: Params, path: Path) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; run this from the project's root")
    text = Template(path.read_text(encoding="utf-8"))
    try:
        filled = text.substitute(domain=params.domain, backbone=params.backbone)
    except (KeyError, ValueError) as error:
        raise ParamsError(
            f"{path}: variable {error}; expected only ${{domain}} and ${{backbone}}"
        ) from error
    stages: dict[str, dict[str, Any]] = yaml.safe_load(filled)["stages"]
    return stages


def _paths(items: Iterable[str | Mapping[str, Any]]) -> list[Path]:
    """``- path`` and ``- path: {cache: false}`` both name a path."""
    return [Path(item if isinstance(item, str) else next(iter(item))) for item in items]


def _outputs(name: str, entry: Mapping[str, Any]) -> dict[str, Path]:
    groups = (entry.get(group, ()) for group in ("outs", "metrics", "plots"))
    paths = [path for group in groups for path in _paths(group)]
    return {(path.stem if index else name): path for index, path in enumerate(paths)}


def _stage(
    name: str,
    entry: Mapping[str, Any],
    outputs: Mapping[str, Path],
    owners: Mapping[Path, tuple[str, str]],
) -> Stage:
    needed = _paths(entry.get("deps", ()))
    inputs = {owners[path][1]: path for path in needed if path in owners}
    return Stage(
        name=name,
        inputs=inputs,
        outputs=outputs,
        sources=tuple(path for path in needed if path not in owners),
        params=tuple(entry.get("params", ())),
        producers={key: owners[path][0] for key, path in inputs.items()},
        frozen=bool(entry.get("frozen", False)),
    )
