"""Published reward models in miniature: real architectures, random weights, real layouts of files.

Tokenizers are of the two kinds that the families use: bytes without merges as Llama 3 and Qwen2
begin with, and one that spells spaces as Mistral does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Model,
)

from selverify.domains.math_steps import MathSteps
from selverify.errors import Refusal
from selverify.models.verifiers.server import ReplyCheck
from selverify.search.requests import VerifyItem
from selverify.types import Move

DOMAIN = MathSteps()
POSITIONS = 512
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
    "initializer_range": 0.5,  # the default makes every score of so small a model alike
}
LLAMA_TOKENS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
LLAMA_CHAT = (
    "{{- bos_token }}{{- '<|start_header_id|>system<|end_header_id|>\n\nOld news.<|eot_id|>' }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{- message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
)
QWEN_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>")
QWEN_CHAT = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor %}"
)


def move(text: str) -> Move:
    """A step of ordinary text."""
    parsed = DOMAIN.parse(text)
    assert isinstance(parsed, Move)
    return parsed


def item(question: str, before: Sequence[str], steps: Sequence[str]) -> VerifyItem:
    """The verifier is asked for ``steps`` after the derivation ``before``."""
    state = DOMAIN.initial_state(DOMAIN.read(question, problem_id="p7"), budget=4)
    for text in before:
        state = DOMAIN.apply(state, move(text))
    return VerifyItem(state, tuple(map(move, steps)))


@dataclass(eq=False)
class Server:
    """Replies to each body by a function of it, and keeps what it was sent."""

    reply: Callable[[Mapping[str, Any]], Any]
    calls: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def ask_each(
        self, path: str, bodies: Sequence[Mapping[str, object]], *, fault: ReplyCheck
    ) -> list[dict[str, Any] | Refusal]:
        self.calls.append(path)
        # As it arrives over a wire: nothing but JSON.
        sent = json.loads(json.dumps(bodies))
        self.bodies += sent
        replies = map(self.reply, sent)
        return [one if isinstance(one, Refusal) else json.loads(json.dumps(one)) for one in replies]


def byte_tokenizer(special: Sequence[str], chat: str | None) -> PreTrainedTokenizerFast:
    """A token a byte; the first special token begins a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = Tokenizer(BPE({one: place for place, one in enumerate(alphabet)}, []))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    model.add_special_tokens([AddedToken(one, special=True) for one in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        bos_token=special[0],
        pad_token=special[0],
        additional_special_tokens=list(special[1:]),
        chat_template=chat,
    )


def mistral_tokenizer() -> PreTrainedTokenizerFast:
    """A space is put before any text and spelt as in Mistral's; what is unknown falls to bytes."""
    pairs = [("\u2581", "\u043a"), ("\u2581\u043a", "\u0438"), ("\u2581", "+"), ("\u2581", "-")]
    pairs += [("\u2581", "s"), ("\u2581s", "o"), (".", "\u2581")]
    letters = [*map(chr, range(33, 127)), "\u2581", "\u043a", "\u0438"]
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    words += [left + right for left, right in pairs]
    vocabulary = {word: place for place, word in enumerate(words)}
    model = Tokenizer(BPE(vocabulary, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    model.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    model.add_special_tokens([AddedToken(one, special=True) for one in words[:3]])
    model.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=model, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def save_mistral(folder: Path, *, sliding_window: int | None = None) -> None:
    """A model laid out as Math-Shepherd."""
    tokenizer = mistral_tokenizer()
    config = MistralConfig(vocab_size=len(tokenizer), sliding_window=sliding_window, **SHAPE)
    _save(folder, MistralForCausalLM, config, tokenizer)


def save_llama(folder: Path, *, chat: str | None = LLAMA_CHAT, seed: int = 3) -> None:
    """A model laid out as RLHFlow's."""
    tokenizer = byte_tokenizer(LLAMA_TOKENS, chat)
    config = LlamaConfig(vocab_size=len(tokenizer), **SHAPE)
    _save(folder, LlamaForCausalLM, config, tokenizer, seed=seed)


def _save(folder: Path, kind: Any, config: Any, tokenizer: Any, seed: int = 3) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        kind(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_qwen(folder: Path, layers: dict[str, nn.Linear], *, architecture: str) -> None:
    """A Qwen2 backbone with a head beside it, in two files with an index, as published.

    The configuration names code of the repository, which must not be asked for.
    """
    tokenizer = byte_tokenizer(QWEN_TOKENS, QWEN_CHAT)
    config = Qwen2Config(vocab_size=len(tokenizer), **SHAPE)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        backbone = Qwen2Model(config)
    config.save_pretrained(folder)
    path = folder / "config.json"
    described = json.loads(path.read_text())
    described |= {
        "architectures": [architecture],
        "auto_map": {"AutoModel": f"code.{architecture}"},
    }
    path.write_text(json.dumps(described))
    tokenizer.save_pretrained(folder)
    body = {f"model.{name}": tensor for name, tensor in backbone.state_dict().items()}
    head = {
        f"{name}.{part}": tensor
        for name, layer in layers.items()
        for part, tensor in layer.state_dict().items()
    }
    save_shards(folder, [body, head])


def save_shards(folder: Path, shards: Sequence[dict[str, Tensor]]) -> None:
    """Several files of weights and the index that names them."""
    places = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        places |= dict.fromkeys(tensors, name)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@contextmanager
def tokens_read() -> Iterator[list[int]]:
    """A list that grows by the number of tokens, padding included, of each forward pass."""
    counted: list[int] = []

    def count(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, nn.Embedding):
            counted.append(inputs[0].numel())

    handle = nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield counted
    finally:
        handle.remove()
