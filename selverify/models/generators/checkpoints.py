"""Checkpoints on disk and in memory: backbone, process reward model, ranker.

Knows: files, schemas, digests. Weights are safetensors and configuration is JSON, never pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from selverify.errors import ArtifactError, SchemaError
from selverify.models.generators.decoder import Decoder
from selverify.models.heuristic.hybrid import Heuristic
from selverify.models.tokenizer import Words, load_words
from selverify.models.verifiers.reward import TokenLogprobHead, ValueHead, token_logprobs
from selverify.storage import check_digests, digest, write_digests

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

_ARCHITECTURE = "LlamaForCausalLM"
_ANGLES = "default"
_KEPT_WORDS = 120_000
"""Keys and values of a prefix's words take 4 KiB each in the small backbone: half a gigabyte."""
_RANKER_SCHEMA = 7
REWARD_HEAD = "reward_head.safetensors"


@dataclass(frozen=True, slots=True)
class Backbone:
    """A trained ``LlamaForCausalLM`` and its words; nothing here trains it further."""

    decoder: Decoder
    words: Words
    digest: str


@dataclass(frozen=True, slots=True)
class RewardModel:
    """A process reward model: its tuned backbone, and a head that judges moves or states by it."""

    decoder: Decoder
    head: TokenLogprobHead | ValueHead
    words: Words
    digest: str

    @torch.inference_mode()
    def log_scores(self, before: Tensor, after: Tensor, said: Tensor, end: int) -> Tensor:
        """Log score [..., M] of the move which ends at each word.

        Args:
            before: hidden states [..., M, D] that predict the words.
            after: those after the words, [..., M, D].
            said: the words [..., M], moves one after the other.
            end: the word that ends a move.
        """
        if isinstance(self.head, ValueHead):
            return functional.logsigmoid(self.head.logit(after))
        logprobs = self.decoder.logits(before).log_softmax(-1)
        return self.head.log_right(token_logprobs(logprobs, said, said == end))


@dataclass(frozen=True, slots=True)
class RankerCheckpoint:
    """The trained heuristic with sigma-bar, the mean dispersion of its exploration log."""

    heuristic: Heuristic
    reference_dispersion: dict[str, float]
    patterns: tuple[str, ...]
    digest: str


def load_backbone(folder: Path, vocabulary: Sequence[str]) -> Backbone:
    """A generator in the Hugging Face layout.

    Raises:
        ArtifactError: a file of the checkpoint is missing.
        SchemaError: the tokenizer, the architecture or the rotary angles are other ones, heads
            share keys, the output layer is not tied to the embedding, the activation is not SiLU,
            a setting or a tensor is missing, or a file is damaged.
    """
    check_digests(folder)
    words = load_words(folder, vocabulary)
    described, weights = folder / "config.json", folder / "model.safetensors"
    config = _json(described)
    found = config.get("architectures", [None])[0]
    if found != _ARCHITECTURE:
        raise SchemaError(f"{described}: architecture {found}, expected {_ARCHITECTURE}")
    angles = config.get("rope_parameters")
    if not isinstance(angles, dict) or angles.get("rope_type", _ANGLES) != _ANGLES:
        raise SchemaError(f"{described}: rope_parameters {angles}, expected rope_type {_ANGLES}")
    heads = config.get("num_attention_heads")
    for name, usual, expected in (
        ("num_key_value_heads", heads, heads),
        ("tie_word_embeddings", False, True),
        ("hidden_act", "silu", "silu"),
    ):
        if (given := config.get(name, usual)) != expected:
            raise SchemaError(f"{described}: {name} {given}, expected {expected}")
    if not weights.is_file():
        raise ArtifactError(f"{weights}: no such file; expected the weights beside config.json")
    with _readable(weights):
        read = load_file(weights)
    try:
        decoder = Decoder(config, read, capacity=_KEPT_WORDS)
    except KeyError as error:
        raise SchemaError(
            f"{folder}: no {error} in config.json and model.safetensors, expected all of a Llama"
        ) from error
    return Backbone(decoder, words, digest(folder))


def save_reward_model(
    folder: Path, model: LlamaForCausalLM, head: TokenLogprobHead | ValueHead, words: Words
) -> None:
    """Write the backbone in the Hugging Face layout, and ``reward_head.safetensors`` beside it."""
    model.save_pretrained(folder)
    words.save(folder)
    save_file(head.state_dict(), folder / REWARD_HEAD)
    write_digests(folder)


def load_reward_model(folder: Path, vocabulary: Sequence[str]) -> RewardModel:
    """The process reward model that ``save_reward_model`` wrote; errors as in ``load_backbone``."""
    path = folder / REWARD_HEAD
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected a reward model's head")
    backbone = load_backbone(folder, vocabulary)
    with _readable(path):
        weights = load_file(path)
    head = _head_like(weights)
    head.load_state_dict(weights)
    return RewardModel(backbone.decoder, head.eval(), backbone.words, backbone.digest)


def _head_like(weights: Mapping[str, Tensor]) -> TokenLogprobHead | ValueHead:
    if "value.weight" in weights:
        return ValueHead(weights["value.weight"].shape[1])
    return TokenLogprobHead(weights["rest.weight"].shape[1], weights["right.0.weight"].shape[0])


def save_ranker_checkpoint(
    folder: Path,
    heuristic: Heuristic,
    *,
    backbone: str,
    reference_dispersion: dict[str, float],
    patterns: Sequence[str],
) -> None:
    """Write ``heuristic.safetensors``, ``policy.json`` and their digests."""
    save_file(heuristic.state_dict(), folder / "heuristic.safetensors")
    described = {
        "schema": _RANKER_SCHEMA,
        **heuristic.sizes,
        "backbone": backbone,
        "reference_dispersion": reference_dispersion,
        "patterns": list(patterns),
    }
    text = json.dumps(described, indent=1, sort_keys=True)
    (folder / "policy.json").write_text(text + "\n", encoding="utf-8")
    write_digests(folder)


def load_ranker_checkpoint(folder: Path, backbone: str) -> RankerCheckpoint:
    """The heuristic trained on embeddings of the generator that ``backbone`` identifies.

    Raises:
        ArtifactError: a file is missing.
        SchemaError: another schema, embeddings of another backbone, or a damaged file.
    """
    check_digests(folder)
    path = folder / "policy.json"
    described = _json(path)
    if described.get("schema") != _RANKER_SCHEMA:
        raise SchemaError(
            f"{path}: schema {described.get('schema')}, expected {_RANKER_SCHEMA}; train it again "
            "(python -m flows residual, or make run)"
        )
    if described["backbone"] != backbone:
        raise SchemaError(
            f"{path}: backbone {described['backbone']}, expected {backbone}; "
            "train the residual again for this generator"
        )
    heuristic = Heuristic(described["width"], described["seen"], described["hidden"])
    with _readable(folder / "heuristic.safetensors"):
        heuristic.load_state_dict(load_file(folder / "heuristic.safetensors"))
    return RankerCheckpoint(
        heuristic.eval(),
        dict(described["reference_dispersion"]),
        tuple(described["patterns"]),
        f"{digest(path)} {digest(folder / 'heuristic.safetensors')}",
    )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        raise SchemaError(f"{path}: no weights in safetensors, or damaged: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected a checkpoint there")
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path}: not JSON: {error}") from error
    if not isinstance(read, dict):
        raise SchemaError(f"{path}: given no object, expected one that describes a checkpoint")
    return read
