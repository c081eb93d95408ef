"""Causal models of real architectures with random weights and a byte-level tokenizer with a chat
template, small enough for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

CONFIGURED = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
}
ARCHITECTURES = [
    # Qwen differs from Llama in biases alone, Mistral in its window.
    pytest.param(name, marks=[pytest.mark.soak] if name != "llama" else [])
    for name in sorted(CONFIGURED)
]
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n"
    "{{ message['content'] | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SPECIAL = ["<|bos|>", "<|start|>", "<|end|>"]
MERGES = [("\u010a", "\u010a"), (".", "\u010a\u010a")]  # a step's end can be part of one token


def build(folder: Path, architecture: str, *, positions: int = 512) -> Path:
    """Write a model with its tokenizer to ``folder``."""
    tokenizer = tokenizer_of_bytes()
    config, kind = CONFIGURED[architecture]
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": positions,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.eos_token_id,
        "initializer_range": 0.2,
    }
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = kind(config(**settings)).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tokenizer_of_bytes() -> PreTrainedTokenizerFast:
    """A token a byte, and one for the end of a step."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: place for place, letter in enumerate(letters)}
    for left, right in MERGES:
        words[left + right] = len(words)
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        additional_special_tokens=[SPECIAL[1]],
        chat_template=TEMPLATE,
    )
