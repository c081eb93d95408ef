"""``source.json`` in a generator's folder: a model of the hub, or one behind a server.

Knows: the file. Does not know: how such a model is loaded or asked.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from selverify.errors import SchemaError
from selverify.params import AnyGenerator, Pretrained, Served
from selverify.storage import read_json, write_json

SOURCE = "source.json"
SCHEMA, VERSION = "generator.source", 1


def has_source(folder: Path) -> bool:
    """Whether the generator in ``folder`` is one that was not trained here."""
    return (folder / SOURCE).is_file()


def write_source(folder: Path, source: Pretrained | Served) -> None:
    """Write ``source.json``: a generator that is not trained here."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SOURCE, source.model_dump(mode="json"), schema=SCHEMA, version=VERSION)


def read_source(folder: Path) -> Pretrained | Served:
    """What ``write_source`` wrote.

    Raises:
        SchemaError: it is no description of a generator.
    """
    data = read_json(folder / SOURCE, schema=SCHEMA, version=VERSION)
    try:
        found = TypeAdapter(AnyGenerator).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise SchemaError(
            f"{folder / SOURCE}: given {first['input']!r}, expected: {first['msg']}"
        ) from error
    if isinstance(found, (Pretrained, Served)):
        return found
    raise SchemaError(f"{folder / SOURCE}: given a training's settings, expected a model's source")
