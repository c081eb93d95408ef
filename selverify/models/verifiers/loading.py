"""Published models on disk: folders of the Hugging Face layout, repositories, packages.

Knows: files, what identifies weights, that none are missing. Does not know: what a model is for.
No code of a repository runs and no pickle is read: weights are safetensors, the rest is JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.models.packages import PREFIX, package_folder
from selverify.models.verifiers.steps import Encoder, Script
from selverify.storage import digest

CPU, AUTO = "cpu", "auto"
ROUNDING = 0.02
"""Of the largest number: how far apart two norms in half precision may be that are the same."""
_FETCHED = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")
"""What is fetched of a repository."""


def check_device(device: str) -> None:
    """See that there is such a device before anything is loaded.

    Raises:
        ParamsError: it is none, or PyTorch finds none of that number here.
    """
    count = torch.cuda.device_count() if device != CPU and torch.cuda.is_available() else 0
    known = [CPU, *["cuda"][:count], *(f"cuda:{number}" for number in range(count))]
    if device not in known:
        raise ParamsError(
            f"device: given {device!r}, expected one of {', '.join(known)}; the number of CUDA "
            f"devices that PyTorch finds here is {count}"
        )


def local_folder(source: str, *, revision: str | None) -> tuple[Path, str]:
    """The folder of a model, fetched from the hub where ``source`` is none, and its content id.

    Args:
        source: a folder, ``owner/name`` of a repository on the hub, or ``package:name``.
        revision: a commit, branch or tag of the repository, or the version of the package; None
            for a folder.

    Raises:
        ParamsError: a repository without a revision, or a folder with one; or as
            ``package_folder``.
        ArtifactError: there is no such folder, and the hub gave no such repository.
        SchemaError: as ``package_folder``.
    """
    if source.startswith(PREFIX):
        return package_folder(source.removeprefix(PREFIX), version=revision)
    folder = Path(source)
    if folder.is_dir() != (revision is None):
        raise ParamsError(
            f"model {source!r}: given revision {revision!r}, expected a folder that exists and no "
            "revision, or a repository with the revision that is meant"
        )
    if revision is None:
        return folder, digest(folder)
    try:
        path = Path(snapshot_download(source, revision=revision, allow_patterns=list(_FETCHED)))
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"model {source}@{revision}: the hub did not give it, expected a repository that can "
            f"be reached or is cached: {_first_line(error)}"
        ) from error
    return path, f"{source}@{path.name}"  # the folder of a snapshot is named by its commit


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder.

    Raises:
        ArtifactError: there is none.
    """
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{folder}: no tokenizer that can be read, expected tokenizer.json: "
            f"{_first_line(error)}"
        ) from error


def load_encoder(source: str, script: Script, *, revision: str | None) -> Encoder:
    """The encoder for a model elsewhere; errors as in ``local_folder`` and ``Encoder``."""
    folder, _ = local_folder(source, revision=revision)
    return Encoder(load_tokenizer(folder), script)


def number_type(dtype: str, device: str) -> torch.dtype:
    """The type that ``dtype`` names; ``auto``: bfloat16 where the device has units for matrices of
    it, else float32, which other processors multiply faster."""
    if dtype != AUTO:
        named: torch.dtype = getattr(torch, dtype)
        return named
    if torch.device(device).type == CPU:
        fast = torch.cpu._is_amx_tile_supported()
    else:
        with torch.cuda.device(device):
            fast = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if fast else torch.float32


def load_model(auto: Any, folder: Path, *, dtype: torch.dtype, device: str) -> Any:
    """A model of a transformers auto class, in evaluation mode.

    Raises:
        ArtifactError: no configuration, or no weights in safetensors.
        SchemaError: weights of the architecture are missing, which would be drawn at random.
    """
    try:
        model, info = auto.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{folder}: no model that can be read, expected config.json and safetensors: "
            f"{_first_line(error)}"
        ) from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise SchemaError(
            f"{folder}: {len(missing)} weights missing, such as {missing[0]}, expected all of a "
            f"{type(model).__name__}"
        )
    model = model.to(device).eval().requires_grad_(False)
    if torch.device(device).type != CPU:
        fuse_norms(model)
    return model


def fuse_norms(model: nn.Module) -> None:
    """Put PyTorch's norm, one kernel, in the place of norms by the root mean square, which
    transformers computes by seven. Norms that compute something else stay."""
    for name, norm in list(model.named_modules()):
        weight, eps = getattr(norm, "weight", None), getattr(norm, "variance_epsilon", None)
        if not isinstance(weight, nn.Parameter) or weight.dim() != 1 or not isinstance(eps, float):
            continue
        if len(signature(norm.forward).parameters) > 1:  # such as a gate
            continue
        fused = nn.RMSNorm(len(weight), eps, device="meta")
        fused.weight = weight
        probe = torch.linspace(-1.0, 2.0, len(weight)).to(weight)
        expected = norm(probe)
        if (fused(probe) - expected).abs().max() <= ROUNDING * expected.abs().max():
            model.set_submodule(name, fused)


def load_tensors(folder: Path, names: Collection[str]) -> dict[str, Tensor]:
    """Weights by their names in the checkpoint, from its files of safetensors.

    Raises:
        SchemaError: there are no weights of these names, or a file is damaged.
    """
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                there = set(file.keys()).intersection(names)
                found |= {name: file.get_tensor(name) for name in there}
        except SafetensorError as error:
            raise SchemaError(f"{path}: no safetensors, or damaged: {error}") from error
    if missing := [name for name in names if name not in found]:
        raise SchemaError(
            f"{folder}: no weights {missing[0]}, expected the model that the format is for"
        )
    return found


def content_id(*parts: object) -> str:
    """A short digest of values whose ``repr`` tells them apart."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
