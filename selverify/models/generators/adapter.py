"""An adapter (LoRA, Hu et al. 2021) in a generator's folder, on a model of the hub or a package.

Knows: the adapter's files, the model that it is for. Does not know: how it is trained. peft, an
extra, reads and writes the weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.models.sources import ADAPTER, WEIGHTS, adapter_facts, describe_adapter
from selverify.storage import check_digests, digest, write_digests

_SHAPE = "adapter_config.json"


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
            f"installed: pip install '.[smollm2]' in the clone ({error})"
        ) from error


def add_adapter(model: Any, *, rank: int, alpha: float) -> Any:
    """The ``PeftModel`` that puts an adapter on every matrix of the model's layers, in place.

    All other weights are frozen. The change of a matrix is multiplied by alpha / rank, and is
    nothing before the training.

    Raises:
        ParamsError: as ``peft_library``.
    """
    peft = peft_library()
    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )


def save_adapter(
    folder: Path, adapted: Any, *, base: str, name: str, settings: Mapping[str, Any]
) -> None:
    """Write the adapter of a ``PeftModel`` in float16, and what it is for.

    ``base`` is the content id of its model, ``name`` what parameters call that, ``settings`` are
    those of the training. Files that are in ``folder`` before belong to the checkpoint, and get a
    digest, too.
    """
    peft = peft_library()
    shape = adapted.peft_config["default"]
    shape.base_model_name_or_path = name
    shape.inference_mode = True
    # What it would do about embeddings by itself is to ask the hub for a configuration.
    state = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    save_file({name: one.half().contiguous() for name, one in state.items()}, folder / WEIGHTS)
    shape.save_pretrained(folder)
    describe_adapter(folder, base=base, settings=settings)
    write_digests(folder)


def merge_adapter(model: Any, folder: Path, *, base: str) -> tuple[Any, str]:
    """The float32 ``model``, whose content id is ``base``, with the adapter in ``folder`` added to
    its weights, and the adapter's digest.

    Raises:
        ArtifactError: there is no adapter.
        SchemaError: a damaged one, or one for another model.
        ParamsError: as ``peft_library``.
    """
    for name in (ADAPTER, _SHAPE, WEIGHTS):
        if not (folder / name).is_file():
            raise ArtifactError(
                f"{folder / name}: no such file, expected an adapter; python -m flows generator "
                "trains it"
            )
    check_digests(folder)
    if (made_for := adapter_facts(folder)["base"]) != base:
        raise SchemaError(f"{folder}: an adapter for the model {made_for}, expected one for {base}")
    peft = peft_library()
    try:
        with warnings.catch_warnings():  # it asks the model by a name that transformers gives up
            warnings.simplefilter("ignore", FutureWarning)
            adapted = peft.PeftModel.from_pretrained(model, folder)
    except (KeyError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise SchemaError(
            f"{folder}: an adapter that does not fit the model {base}: {reason}"
        ) from error
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        given = set(file.keys())
    expected = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False).keys()
    if given != set(expected):
        raise SchemaError(
            f"{folder}: an adapter of {len(given)} matrices, expected the {len(expected)} of {base}"
        )
    return adapted.merge_and_unload(), digest(folder / WEIGHTS)
