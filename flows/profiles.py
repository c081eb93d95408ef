"""Profiles: named sets of parameters in ``profiles/``, laid over ``params.yaml``.

Knows: the two files. Does not know: what a parameter means, or DVC beyond its way of writing YAML,
which keeps comments.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from dvc.utils.serialize import modify_yaml

from flows.stages import PARAMS_FILE, leaves
from selverify.errors import ParamsError
from selverify.params import check_params, load_params

PROFILES = Path("profiles")


def apply_profile(name: str) -> dict[str, Any]:
    """Write the values of profile ``name`` into ``params.yaml``; returns those that changed.

    Raises:
        ParamsError: there is no such profile, or the parameters would be wrong with it; then
            nothing is written.
    """
    load_params(PARAMS_FILE)
    given = yaml.safe_load(PARAMS_FILE.read_text(encoding="utf-8"))
    values = read_profile(PROFILES, name)
    check_params(_laid_over(given, values), PROFILES / f"{name}.yaml")
    present = leaves("", given)
    changed = {key: value for key, value in values.items() if present.get(key) != value}
    if changed:
        with modify_yaml(PARAMS_FILE) as written:
            _set(written, changed)
    return changed


def read_profile(folder: Path, name: str) -> dict[str, Any]:
    """The values of a profile by their dotted names.

    Raises:
        ParamsError: there is no such profile.
    """
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise ParamsError(f"{folder}: no profile {name!r}; expected one of {', '.join(known)}")
    return leaves("", yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8")))


def _laid_over(params: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    copied = copy.deepcopy(dict(params))
    _set(copied, values)
    return copied


def _set(params: dict[str, Any], values: Mapping[str, Any]) -> None:
    for dotted, value in values.items():
        *sections, last = dotted.split(".")
        section = params
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
