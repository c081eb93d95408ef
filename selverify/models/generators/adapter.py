"""An adapter (LoRA, Hu et al. 2021) in a generator's folder, on a model of the hub or a package.

Knows: the adapter's files, the model that it is for. Does not know: how it is trained. peft, an
extra, reads and writes the weights.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.storage import check_digests, digest, read_json, write_digests, write_json

WEIGHTS = "adapter_model.safetensors"
_SETTINGS, _DESCRIBED = "adapter_config.json", "adapter.json"
_SCHEMA, _VERSION = "generator.adapter", 1


def peft_library() -> Any:
    """The module peft.

    Raises:
        ParamsError: it is not installed.
    """
    try:
        return import_module("peft")
    except ImportError as error:
        raise ParamsError(
            "generator: given an adapter (tuning), expected the extra that reads it to be "
            f"installed: pip install 'selverify[smollm2]' ({error})"
        ) from error


def has_adapter(folder: Path) -> bool:
    """Whether the generator in ``folder`` is a tuned one."""
    return (folder / WEIGHTS).is_file()


def save_adapter(folder: Path, adapted: Any, *, base: str, name: str) -> None:
    """Write the adapter of a ``PeftModel`` in float16, and the model that it is for.

    ``base`` is the content id of that model, ``name`` what parameters call it. Files that are in
    ``folder`` before belong to the generator, and get a digest, too.
    """
    peft = peft_library()
    settings = adapted.peft_config["default"]
    settings.base_model_name_or_path = name
    settings.inference_mode = True
    # What it would do about embeddings by itself is to ask the hub for a configuration.
    state = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    save_file({name: one.half().contiguous() for name, one in state.items()}, folder / WEIGHTS)
    settings.save_pretrained(folder)
    write_json(folder / _DESCRIBED, {"base": base}, schema=_SCHEMA, version=_VERSION)
    write_digests(folder)


def merge_adapter(model: Any, folder: Path, *, base: str) -> tuple[Any, str]:
    """The float32 ``model``, whose content id is ``base``, with the adapter in ``folder`` added to
    its weights, and the adapter's digest.

    Raises:
        ArtifactError: there is no adapter.
        SchemaError: a damaged one, or one for another model.
        ParamsError: as ``peft_library``.
    """
    for name in (_DESCRIBED, _SETTINGS, WEIGHTS):
        if not (folder / name).is_file():
            raise ArtifactError(
                f"{folder / name}: no such file, expected an adapter; python -m flows generator "
                "trains it"
            )
    check_digests(folder)
    described = read_json(folder / _DESCRIBED, schema=_SCHEMA, version=_VERSION)
    if described["base"] != base:
        raise SchemaError(
            f"{folder}: an adapter for the model {described['base']}, expected one for {base}"
        )
    peft = peft_library()
    try:
        adapted = peft.PeftModel.from_pretrained(model, folder)
    except (KeyError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise SchemaError(
            f"{folder}: an adapter that does not fit the model {base}: {reason}"
        ) from error
    return adapted.merge_and_unload(), digest(folder / WEIGHTS)
