"""``source.json`` in a model's folder: one of the hub, behind a server, or a tool.

Knows: the file. Does not know: how such a model is loaded or asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from selverify.errors import SchemaError
from selverify.params import (
    AnyGenerator,
    AnyVerifier,
    PretrainedParams,
    PretrainedVerifier,
    Served,
    ServedJudge,
    ServedVerifier,
    Tool,
)
from selverify.storage import read_json, write_json

SOURCE = "source.json"
GENERATOR, VERIFIER, VERSION = "generator.source", "verifier.source", 1


def has_source(folder: Path) -> bool:
    """Whether the model in ``folder`` is one that was not trained here."""
    return (folder / SOURCE).is_file()


def write_generator_source(folder: Path, source: PretrainedParams | Served) -> None:
    """Write a generator that is not trained here."""
    _write(folder, source, GENERATOR)


def read_generator_source(folder: Path) -> PretrainedParams | Served:
    """What ``write_generator_source`` wrote.

    Raises:
        SchemaError: it is no description of such a generator.
    """
    found = _read(folder, AnyGenerator, GENERATOR)
    if isinstance(found, (PretrainedParams, Served)):
        return found
    raise SchemaError(f"{folder / SOURCE}: given a training's settings, expected a model's source")


def write_verifier_source(
    folder: Path, source: Tool | PretrainedVerifier | ServedVerifier | ServedJudge
) -> None:
    """Write a verifier that is not trained here."""
    _write(folder, source, VERIFIER)


def read_verifier_source(
    folder: Path,
) -> Tool | PretrainedVerifier | ServedVerifier | ServedJudge:
    """What ``write_verifier_source`` wrote.

    Raises:
        SchemaError: it is no description of a verifier.
    """
    found: Tool | PretrainedVerifier | ServedVerifier | ServedJudge
    found = _read(folder, AnyVerifier, VERIFIER)
    return found


def _write(folder: Path, source: BaseModel, schema: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SOURCE, source.model_dump(mode="json"), schema=schema, version=VERSION)


def _read(folder: Path, kind: Any, schema: str) -> Any:
    data = read_json(folder / SOURCE, schema=schema, version=VERSION)
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise SchemaError(
            f"{folder / SOURCE}: given {first['input']!r}, expected: {first['msg']}"
        ) from error
