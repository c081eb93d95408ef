"""``source.json`` in a model's folder: one of the hub, behind a server, or a tool.

Knows: the file, and what the adapter beside it is for. Does not know: how such a model is loaded or
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from selverify.errors import SchemaError
from selverify.params import (
    AnyVerifier,
    PretrainedParams,
    Served,
    VerifierSource,
    validation_sentence,
)
from selverify.storage import read_json, write_json

SOURCE = "source.json"
ADAPTER, WEIGHTS = "adapter.json", "adapter_model.safetensors"
_GENERATOR, _VERIFIER, _VERSION = "generator.source", "verifier.source", 1
_ADAPTER = "generator.adapter"
_AnySource = Annotated[PretrainedParams | Served, Field(discriminator="kind")]


def has_source(folder: Path) -> bool:
    """Whether the model in ``folder`` is one that was not trained here."""
    return (folder / SOURCE).is_file()


def write_source(folder: Path, source: PretrainedParams | Served | VerifierSource) -> None:
    """Write a generator or a verifier that is not trained here."""
    schema = _VERIFIER if isinstance(source, VerifierSource) else _GENERATOR
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SOURCE, source.model_dump(mode="json"), schema=schema, version=_VERSION)


def read_generator_source(folder: Path) -> PretrainedParams | Served:
    """The generator that ``write_source`` wrote.

    Raises:
        ArtifactError: the file is not there.
        SchemaError: it is no description of such a generator.
    """
    found: PretrainedParams | Served = _read(folder, _AnySource, _GENERATOR)
    return found


def read_verifier_source(folder: Path) -> VerifierSource:
    """The verifier that ``write_source`` wrote; errors as for a generator."""
    found: VerifierSource = _read(folder, AnyVerifier, _VERIFIER)
    return found


def sources_of(models: Mapping[str, Path]) -> dict[str, PretrainedParams | Served | VerifierSource]:
    """Of a generator and a verifier those that were not trained here, by these names."""
    readers = {"generator": read_generator_source, "verifier": read_verifier_source}
    return {
        name: read(models[name])
        for name, read in readers.items()
        if name in models and has_source(models[name])
    }


def has_adapter(folder: Path) -> bool:
    """Whether the model in ``folder`` is tuned by an adapter."""
    return (folder / WEIGHTS).is_file()


def describe_adapter(folder: Path, *, base: str, settings: Mapping[str, Any]) -> None:
    """Write the content id of the model that an adapter is for, and its training's settings."""
    facts = {"base": base, "settings": dict(settings)}
    write_json(folder / ADAPTER, facts, schema=_ADAPTER, version=_VERSION)


def adapter_facts(folder: Path) -> dict[str, Any]:
    """``base`` and ``settings``, as ``describe_adapter`` wrote them.

    Raises:
        ArtifactError: the file is not there.
        SchemaError: it says something else.
    """
    facts = read_json(folder / ADAPTER, schema=_ADAPTER, version=_VERSION)
    if not isinstance(facts, dict) or not {"base", "settings"} <= facts.keys():
        raise SchemaError(f"{folder / ADAPTER}: expected base and settings of an adapter")
    return facts


def _read(folder: Path, kind: Any, schema: str) -> Any:
    path = folder / SOURCE
    data = read_json(path, schema=schema, version=_VERSION)
    try:
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        raise SchemaError(f"{path}: {validation_sentence(error)}") from error
