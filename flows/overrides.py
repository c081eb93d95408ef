"""What a scheduled run may change: a profile, and parameters in the way of ``dvc exp run -S``.

Knows: ``params.yaml``, profiles and DVC's grammar of changes. Does not know: who runs them. The
texts come from any client of the Prefect server, so only numbers, words and lists of these pass;
nothing that names a file, an address or a secret, and nothing that hydra would evaluate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from dvc.utils.hydra import get_hydra_sweeps

from flows.profiles import Settings, params_with, profile_settings
from flows.stages import PARAMS_FILE
from selverify.errors import ParamsError

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
    given = (*(() if profile is None else profile_settings(profile)), *overrides)
    found = tuple(tuple(one["params"]) for one in get_hydra_sweeps({"params": list(given)}))
    for settings in found if overrides else ():  # a profile alone was checked when it was read
        params_with(settings, origin=Path("overrides"))
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
        raise ParamsError(
            f"overrides: given {override!r}; {name} can be changed in {PARAMS_FILE} only"
        )
    if NOT_FINITE & set(re.findall(r"[a-z0-9_]+", values)):
        raise ParamsError(f"overrides: given {override!r}, expected finite numbers")
    return len(re.findall(VALUE, values))
