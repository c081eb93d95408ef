"""Verifiers that were not trained here, opened by the row of ``params.VERIFIERS`` for their kind.

Knows: the table. Does not know: how any of them works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TypeVar

from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.models.sources import read_verifier_source
from selverify.models.verifiers.server import Asks
from selverify.params import VERIFIERS, Server
from selverify.search.backend import Verifier

_Format = TypeVar("_Format")
PUBLISHED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "peiyi9979/math-shepherd-mistral-7b-prm": ("step_token", "math_shepherd"),
        "RLHFlow/Llama3.1-8B-PRM-Deepseek-Data": ("step_token", "rlhflow"),
        "RLHFlow/Llama3.1-8B-PRM-Mistral-Data": ("step_token", "rlhflow"),
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B": ("value_head", "skywork"),
        "Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B": ("value_head", "skywork"),
        "Qwen/Qwen2.5-Math-PRM-7B": ("value_head", "qwen_math"),
        "Qwen/Qwen2.5-Math-PRM-72B": ("value_head", "qwen_math"),
        "Qwen/Qwen2.5-Math-7B-PRM800K": ("value_head", "qwen_math"),
    }
)
"""Kind and format of the models that a name alone says enough of."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a verifier may need beside its own settings.

    ``device`` is where a model of the hub runs; ``ask`` makes what talks to a server.
    """

    domain: Domain
    device: str
    ask: Callable[[Server], Asks]


def open_verifier(folder: Path, surroundings: Surroundings) -> Verifier:
    """The verifier that ``source.json`` in ``folder`` names, ready to give verdicts.

    Raises:
        ArtifactError, ParamsError, SchemaError: there is no such model, format or tool.
    """
    source = read_verifier_source(folder)
    verifier: Verifier = resolve_name(VERIFIERS[source.kind].opens)(source, surroundings)
    return verifier


def format_named(formats: Mapping[str, _Format], name: str) -> _Format:
    """The format called ``name``.

    Raises:
        ParamsError: there is none.
    """
    if name not in formats:
        raise ParamsError(
            f"verifier.source: given the format {name!r}, expected one of {', '.join(formats)}"
        )
    return formats[name]
