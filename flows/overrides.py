"""What a scheduled run may change: a profile, and parameters in the way of ``dvc exp run -S``.

Knows: ``params.yaml``, profiles and DVC's grammar of changes. Does not know: who runs them. The
texts come from whoever reaches the Prefect server, so only numbers, words and lists of these pass;
nothing that names a file, an address or a secret, and nothing that hydra would evaluate.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from dvc.exceptions import InvalidArgumentError
from dvc.utils.hydra import apply_overrides, get_hydra_sweeps

from flows.profiles import PROFILES, read_profile
from flows.stages import PARAMS_FILE, leaves, load_stages
from selverify.errors import ParamsError
from selverify.params import check_params

NAME = r"[a-z][a-z0-9_]{0,39}(?:\.[a-z][a-z0-9_]{0,39}){0,7}"
NUMBER = r"-?(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,9})?(?:e-?[0-9]{1,2})?"
ATOM = rf"(?:{NUMBER}|[a-z][a-z0-9_]{{0,39}})"
VALUE = rf"(?:\[{ATOM}(?:, ?{ATOM})*\]|{ATOM})"
OVERRIDE = rf"^{NAME}={VALUE}(?:,{VALUE})*$"
MAX_LENGTH = 200
MAX_OVERRIDES = 32
MAX_COMBINATIONS = 64
NOT_FINITE = frozenset({"inf", "nan"})
# What the machine has, where results go, and what is fetched from where: not a choice of a run.
REFUSED_PARTS = frozenset({"tracking", "model", "revision", "path", "url", "key_variable"})

Settings = tuple[str, ...]


def combinations(profile: str | None, overrides: Sequence[str]) -> tuple[Settings, ...]:
    """Every combination of the values in ``overrides`` over ``profile``, as texts for ``-S``.

    An override is ``name=value``, or ``name=value,value`` for one run a value. The parameters that
    each combination leads to were checked.

    Raises:
        ParamsError: an override is no such text, or names what a run may not change; there is no
            such profile; there are too many combinations; or the parameters would be wrong.
    """
    if len(overrides) > MAX_OVERRIDES:
        raise ParamsError(f"overrides: given {len(overrides)}, expected at most {MAX_OVERRIDES}")
    count = math.prod(_values(override) for override in overrides)
    if count > MAX_COMBINATIONS:
        raise ParamsError(f"overrides: {count} combinations, expected at most {MAX_COMBINATIONS}")
    values = {} if profile is None else read_profile(PROFILES, profile)
    given = (*_settings(values), *overrides)
    found = tuple(tuple(one["params"]) for one in get_hydra_sweeps({"params": list(given)}))
    for settings in found:
        _check(settings)
    return found


def _values(override: str) -> int:
    """How many values an override names."""
    if len(override) > MAX_LENGTH or re.fullmatch(OVERRIDE, override) is None:
        raise ParamsError(
            f"overrides: given {override[:MAX_LENGTH]!r}, expected name=value of at most "
            f"{MAX_LENGTH} characters, where a value is a number, a lower-case word or a list"
        )
    name, _, values = override.partition("=")
    if REFUSED_PARTS & set(name.split(".")):
        raise ParamsError(f"overrides: given {override!r}; {name} stands in {PARAMS_FILE} only")
    if NOT_FINITE & set(re.findall(r"[a-z0-9_]+", values)):
        raise ParamsError(f"overrides: given {override!r}, expected finite numbers")
    return len(re.findall(VALUE, values))


def _settings(values: Mapping[str, Any]) -> Settings:
    """The values of a profile as texts for ``-S``; ``++``, for a profile may state a new model.

    Raises:
        ParamsError: DVC would read another value out of such a text.
    """
    texts = tuple(
        f"++{name}={json.dumps(value, ensure_ascii=False, default=str)}"
        for name, value in values.items()
    )
    laid = leaves("", _laid(texts))
    for name, value in values.items():
        if laid.get(name) != value:
            raise ParamsError(
                f"overrides: given {name}: {value!r} by a profile, which DVC reads as "
                f"{laid.get(name)!r}; expected numbers, words or lists"
            )
    return texts


def _check(settings: Settings) -> None:
    """Raise ParamsError where ``params.yaml`` as DVC would write it is wrong."""
    load_stages(check_params(_laid(settings), Path("overrides")))


def _laid(settings: Settings) -> Any:
    """What ``params.yaml`` would say once DVC has written ``settings`` into it."""
    with TemporaryDirectory() as folder:
        written = Path(shutil.copy(PARAMS_FILE, folder))
        try:
            apply_overrides(written, list(settings))
        except InvalidArgumentError as error:
            reason = str(error.__cause__).partition("\n")[0]
            raise ParamsError(f"overrides: {reason}") from error
        return yaml.safe_load(written.read_text(encoding="utf-8"))
