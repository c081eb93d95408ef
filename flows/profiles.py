"""Profiles: named sets of parameters in ``profiles/``, laid over ``params.yaml``.

Knows: the two files. Does not know: what a parameter means, or DVC beyond its way of writing YAML,
which keeps comments.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from dvc.utils.serialize import ParseError, modify_yaml

from flows.stages import PARAMS_FILE, leaves, load_stages
from selverify.errors import ParamsError
from selverify.params import check_params, load_params
from selverify.storage import atomic_path

PROFILES = Path("profiles")
MISSING = object()


def apply_profile(name: str) -> dict[str, Any]:
    """Write the values of profile ``name`` into ``params.yaml``; returns those that changed.

    Raises:
        ParamsError: there is no such profile, or the parameters would be wrong with it; then
            nothing is written.
    """
    load_params(PARAMS_FILE)
    given = yaml.safe_load(PARAMS_FILE.read_text(encoding="utf-8"))
    values = read_profile(PROFILES, name)
    present = leaves("", given)
    changed = {key: values[key] for key in values if _value(present, key) != values[key]}
    if changed:
        _write(changed, given, PROFILES / f"{name}.yaml")
    return changed


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
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        return dict(_values("", raw, path))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ParamsError(f"{path}: not YAML that a profile can be: {reason}") from error


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


def _write(values: Mapping[str, Any], given: Mapping[str, Any], origin: Path) -> None:
    """Lay ``values`` over the file, which says ``given``, if what is then read is right."""
    wanted = _unshared(given)
    _set(wanted, values)
    expected = leaves("", wanted)
    with atomic_path(PARAMS_FILE) as temporary:
        shutil.copy(PARAMS_FILE, temporary)
        found = _laid(temporary, values)
        if inherited := _differing(found, expected) & expected.keys():
            # Sections that merge a changed one say it too; they keep what they said before.
            found = _laid(temporary, {key: expected[key] for key in inherited})
        # Before the comparison: a value of a wrong kind is a clearer thing to say.
        load_stages(check_params(yaml.safe_load(temporary.read_text(encoding="utf-8")), origin))
        if others := _differing(found, expected):
            raise ParamsError(
                f"{origin}: {min(others)} stands in a section of {PARAMS_FILE} that is an alias, "
                "expected one that is written out"
            )


def _unshared(section: Any) -> Any:
    """A copy in which no mapping stands twice, as one does that YAML had by an alias."""
    if not isinstance(section, Mapping):
        return section
    return {name: _unshared(value) for name, value in section.items()}


def _laid(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """What ``path`` says by dotted names once DVC has written ``values`` into it."""
    try:
        with modify_yaml(path) as written:
            _set(written, values)
    except ParseError as error:
        raise ParamsError(f"{PARAMS_FILE}: not YAML that DVC can write: {error}") from error
    return leaves("", yaml.safe_load(path.read_text(encoding="utf-8")))


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> set[str]:
    names = first.keys() | second.keys()
    return {name for name in names if _value(first, name) != _value(second, name)}


def _value(values: Mapping[str, Any], name: str) -> Any:
    """The value called ``name``; a missing one is equal to nothing else, least of all to null."""
    return values.get(name, MISSING)


def _set(params: dict[str, Any], values: Mapping[str, Any]) -> None:
    for dotted, value in values.items():
        *sections, last = dotted.split(".")
        section = params
        for name in sections:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        section[last] = value
