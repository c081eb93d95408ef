"""The project's stages on little of everything: ``profiles/health.yaml``, and changes to it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from flows.execution import execute
from flows.profiles import PROFILES, read_profile
from flows.stages import PARAMS_FILE, PIPELINE_FILE, Stage, load_stages
from selverify.params import Params, check_params
from tasks import find_run

ROOT = Path(__file__).parents[1]
HEALTH = read_profile(ROOT / PROFILES, "health")
METHODS = read_profile(ROOT / PROFILES, "served")["evaluation.methods"]
"""Those that need no right steps."""


def lay(params: dict[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """``params`` with values set by their dotted names, which it may lack."""
    for dotted, value in changes.items():
        *sections, last = dotted.split(".")
        section = params
        for name in sections:
            if section.get(name) is None:  # also where it is null
                section[name] = {}
            section = section[name]
        section[last] = value
    return params


def set_params(root: Path, changes: Mapping[str, object]) -> None:
    """Write values by their dotted names into the ``params.yaml`` of ``root``."""
    path = root / PARAMS_FILE
    params = lay(yaml.safe_load(path.read_text(encoding="utf-8")), changes)
    path.write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")


def small_params(changes: Mapping[str, object]) -> Params:
    """The parameters under the health profile, then ``changes`` by their dotted names."""
    params = yaml.safe_load((ROOT / PARAMS_FILE).read_text(encoding="utf-8"))
    return check_params(lay(params, {**HEALTH, **changes}), PARAMS_FILE)


def copy_project(root: Path, *, leave_out: tuple[str, ...] = ()) -> None:
    """Put the project's files as they are now, committed or not, into ``root``."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if (ROOT / name).is_file() and not name.startswith(leave_out):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)


def run_stages(params: Params, tasks: Collection[str] = ()) -> dict[str, Stage]:
    """Run the stages of ``tasks``, or all but the frozen one, without Prefect and MLflow."""
    stages = load_stages(params, ROOT / PIPELINE_FILE)
    for stage in stages.values():
        if stage.task in tasks or not (tasks or stage.frozen):
            execute(stage, params.narrowed(**stage.item), find_run(stage.task))
    return stages
