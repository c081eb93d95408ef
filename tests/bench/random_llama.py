"""Random weights in the shape of Llama 3.2 1B, so that nothing is downloaded, and what both
benchmarks of models of the hub measure on."""

from __future__ import annotations

from pathlib import Path

import torch
from tiny_text_models import tokenizer_of_bytes
from transformers import LlamaConfig, LlamaForCausalLM

from selverify.domains.math_steps import MathSteps
from selverify.models.assembly import EMBEDDED_AT
from selverify.models.generators.causal import CausalModel
from selverify.models.generators.pretrained import HubModel
from selverify.models.prompting import PromptData, Prompting
from selverify.params import Sampling
from selverify.types import Sample

SHAPE = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
SEED = 3
HEAD = "v_head.summary"
"""Of the value head that is saved with the weights."""


def save_random(folder: Path, kind: torch.dtype) -> None:
    """Write the model, a value head on it, and the tests' tokenizer, a token a byte."""
    torch.manual_seed(SEED)
    torch.set_default_dtype(kind)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    torch.set_default_dtype(torch.float32)
    head = torch.nn.Linear(SHAPE["hidden_size"], 1)
    tensors = {f"{HEAD}.{name}": value.data for name, value in head.named_parameters()}
    model.save_pretrained(folder, state_dict={**model.state_dict(), **tensors})
    tokenizer_of_bytes().save_pretrained(folder)


def writer(pretrained: HubModel, prompt: PromptData, *, tokens: int, rows: int) -> CausalModel:
    """Moves of at most ``tokens`` under a few-shot prompt, which is not read yet."""
    domain = MathSteps()
    return CausalModel(
        pretrained,
        kept_tokens=400_000,
        depth=EMBEDDED_AT,
        domain=domain,
        exact_values=False,
        prompting=Prompting(prompt, end_of_move=domain.end_of_move),
        prompting_id=prompt.identity,
        sampling=Sampling(
            temperature=0.8,
            max_move_tokens=tokens,
            max_solution_tokens=tokens,
            max_moves=8,
            batch_rows=rows,
        ),
        seed=SEED,
        kept_moves=0,
    )


def tokens_of(replies: tuple[tuple[Sample, ...], ...]) -> int:
    """Of all samples."""
    return sum(sample.tokens for samples in replies for sample in samples)
