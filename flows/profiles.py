"""Profiles: named sets of parameters in ``profiles/``, laid over ``params.yaml``.

Knows: the two files, and DVC's way of writing changes, which keeps comments. Does not know: what a
parameter means.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dvc.exceptions import InvalidArgumentError
from dvc.utils.hydra import apply_overrides

from flows.stages import PARAMS_FILE, leaves, load_stages
from selverify.errors import ParamsError
from selverify.params import check_params, load_params, parse_yaml, read_yaml
from selverify.storage import atomic_path

PROFILES = Path("profiles")
Settings = tuple[str, ...]


def apply_profile(name: str) -> dict[str, Any]:
    """Write the values of profile ``name`` into ``params.yaml``; returns those that changed.

    Raises:
        ParamsError: there is no such profile, or the parameters would be wrong with it; then
            nothing is written.
    """
    load_params(PARAMS_FILE)
    values, origin = read_profile(PROFILES, name), PROFILES / f"{name}.yaml"
    present = leaves("", read_yaml(PARAMS_FILE))
    changed = {key: values[key] for key in _differing(present, values) & values.keys()}
    if changed:
        expected = _laid_over(present, values)
        texts = _as_settings(values)
        text = params_with(texts, origin=origin)
        found = leaves("", parse_yaml(text))
        # Sections that merge a changed one would change with it: they keep what they said before.
        inherited = {key: expected[key] for key in _differing(found, expected) & expected.keys()}
        if inherited:
            text = params_with(texts, _as_settings(inherited), origin=origin)
        _check_nothing_else(text, expected, origin)
        with atomic_path(PARAMS_FILE) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return changed


def profile_settings(name: str) -> Settings:
    """The values of a profile as texts for DVC's ``--set-param``.

    Raises:
        ParamsError: the parameters would be wrong with it, or others than it names would change.
    """
    values, origin = read_profile(PROFILES, name), PROFILES / f"{name}.yaml"
    texts = _as_settings(values)
    expected = _laid_over(leaves("", read_yaml(PARAMS_FILE)), values)
    _check_nothing_else(params_with(texts, origin=origin), expected, origin)
    return texts


def params_with(*steps: Settings, origin: Path) -> str:
    """What ``params.yaml`` would say once DVC has written each of ``steps`` into it.

    Raises:
        ParamsError: DVC refuses one, or the parameters would be wrong; it names ``origin``.
    """
    with TemporaryDirectory() as folder:
        written = Path(shutil.copy(PARAMS_FILE, folder))
        try:
            for settings in steps:
                apply_overrides(written, list(settings))
        except InvalidArgumentError as error:
            reason = str(error.__cause__).partition("\n")[0]
            raise ParamsError(f"{origin}: {reason}") from error
        text = written.read_text(encoding="utf-8")
    load_stages(check_params(parse_yaml(text), origin))
    return text


def _as_settings(values: Mapping[str, Any]) -> Settings:
    """As texts for DVC; with ``++``, for a profile may state a new model."""
    return tuple(
        f"++{name}={json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in values.items()
    )


def _laid_over(present: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """``present`` with ``values``, each in the place of a value, a section or a part of one."""
    return {
        **{
            name: value
            for name, value in present.items()
            if not any(
                f"{name}.".startswith(f"{one}.") or one.startswith(f"{name}.") for one in values
            )
        },
        **values,
    }


def _check_nothing_else(text: str, expected: Mapping[str, Any], origin: Path) -> None:
    if others := _differing(leaves("", parse_yaml(text)), expected):
        raise ParamsError(
            f"{origin}: DVC would not write {min(others)} as it should be, expected numbers, words "
            f"or lists, and no section of {PARAMS_FILE} that is an alias"
        )


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> set[str]:
    """The names of what one of the two lacks or has otherwise."""
    both = first.keys() & second.keys()
    return (first.keys() ^ second.keys()) | {name for name in both if first[name] != second[name]}


def read_profile(folder: Path, name: str) -> dict[str, Any]:
    """The values of a profile by their dotted names.

    Raises:
        ParamsError: there is no such profile, or it is no YAML mapping of names to values.
    """
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise ParamsError(f"{folder}: no profile {name!r}; expected one of {', '.join(known)}")
    path = folder / f"{name}.yaml"
    try:
        return dict(_values("", read_yaml(path), path))
    except RecursionError as error:
        raise ParamsError(f"{path}: not YAML without an alias of a section in itself") from error


def _values(prefix: str, section: object, path: Path) -> Iterator[tuple[str, Any]]:
    if not isinstance(section, dict) or not section:
        where = f"{path}: {prefix}" if prefix else f"{path}"
        raise ParamsError(f"{where}: given {section!r}, expected a mapping of names to values")
    for key, value in section.items():
        if not isinstance(key, str) or not key or "." in key:
            raise ParamsError(f"{path}: given the key {key!r}, expected a name without dots")
        dotted = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            yield from _values(dotted, value, path)
        else:
            yield dotted, value
