"""A small causal model, trained in seconds, that adds three digits step by step and errs at times.

It is an ordinary checkpoint with an ordinary tokenizer, so that everything which is made for models
of the hub can run on it and find right and wrong answers.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

STEPS, ROWS = 300, 48
MISREAD = 0.25
WORDS = ["What", "is", "The", "answer", "\\", "boxed", "{", "}", "+", "=", "?", ".", " ", "\n\n"]
SPECIAL = ["<bos>", "<eos>", "<unk>"]


def question(digits: tuple[int, ...]) -> str:
    return f"What is {'+'.join(map(str, digits))}?"


def solution(digits: tuple[int, ...], rng: random.Random, *, misread: float) -> str:
    """Steps with an empty line between them; some take another digit than the question's."""
    steps, total = [], digits[0]
    for digit in digits[1:]:
        read = rng.randint(1, 9) if rng.random() < misread else digit
        claimed = total + read + (rng.random() < misread / 4)  # a gate sees this one
        steps.append(f"{total}+{read}={claimed}")
        total = claimed
    return "\n\n".join((*steps, f"The answer is \\boxed{{{total}}}."))


def build(folder: Path) -> Path:
    """Train and write the checkpoint."""
    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = LlamaForCausalLM(config)
        _train(model, tokenizer)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    rng = random.Random(5)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=STEPS)
    for _ in range(STEPS):
        rows = []
        for _ in range(ROWS):
            digits = tuple(rng.randint(1, 9) for _ in range(3))
            text = f"{question(digits)}\n\n{solution(digits, rng, misread=MISREAD)}"
            said = tokenizer.encode(text, add_special_tokens=False)
            rows.append(torch.tensor([tokenizer.bos_token_id, *said, tokenizer.eos_token_id]))
        tokens = pad_sequence(rows, batch_first=True, padding_value=-100)
        loss = model(input_ids=tokens.clamp(min=0), labels=tokens).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


def _tokenizer() -> PreTrainedTokenizerFast:
    words = [*SPECIAL, *WORDS, *map(str, range(10))]
    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n\n|\d|\w+|[^\w]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )
