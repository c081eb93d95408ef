"""Problems and what follows them as padded word ids, and the loss of the words that follow.

Knows: a backbone's words. Does not know: what a problem or a move is, rollouts, searches.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM

from selverify.models.tokenizer import Words

Encoded = tuple[list[int], list[int]]
"""Word ids of a problem's text, after the one that begins it, and of what follows it."""
_Row = TypeVar("_Row", bound=Sequence[list[int]])


def encode(text: str, moves: Sequence[str], words: Words) -> Encoded:
    """The word ids of a problem and of moves."""
    return [words.bos, *words.encode(text)], words.encode(" ".join(moves))


def length(row: Sequence[list[int]]) -> int:
    """Words of the problem and of what follows it."""
    return len(row[0]) + len(row[1])


def like_lengths(rows: list[_Row], tokens: int, rng: random.Random) -> list[list[_Row]]:
    """Shuffled batches of rows of like lengths, each of ``tokens`` at most, padding included."""
    batches: list[list[_Row]] = []
    for row in sorted(rows, key=length):
        if not batches or (len(batches[-1]) + 1) * length(row) > tokens:
            batches.append([])
        batches[-1].append(row)
    rng.shuffle(batches)
    return batches


def pad(rows: Sequence[Encoded], words: Words) -> tuple[Tensor, Tensor]:
    """Word ids [rows, longest], and how many of them are the problem's [rows]."""
    tokens = [torch.tensor([*problem, *moves]) for problem, moves in rows]
    lengths = torch.tensor([len(problem) for problem, _ in rows])
    return pad_sequence(tokens, batch_first=True, padding_value=words.pad), lengths


def language_loss(
    model: LlamaForCausalLM,
    tokens: Tensor,
    lengths: Tensor,
    words: Words,
    *,
    bfloat16: bool = False,
) -> Tensor:
    """Mean cross-entropy of the words after the problems, in nats a word.

    ``tokens`` and ``lengths`` as ``pad`` gives them.
    """
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
        logits = model(input_ids=tokens[:, :-1]).logits
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    ).view(len(tokens), -1)
    places = torch.arange(1, tokens.shape[1])
    followed = (places >= lengths[:, None]) & (tokens[:, 1:] != words.pad)
    mean: Tensor = (losses * followed).sum() / followed.sum()
    return mean
