"""Embeddings of states, moves and goals: hidden states of the frozen generator backbone.

Knows: which hidden state stands for what. Does not know: how they are computed, batches, models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from selverify.errors import SchemaError
from selverify.search.requests import RankItem
from selverify.types import State


class Embeddings(NamedTuple):
    """One row for each (state, move), all of shape [rows, D].

    ``state`` is z_w, the hidden state after the last word of w. ``move`` is z_m, the mean of the
    hidden states over the move's words read after w. ``after`` is z_w', the hidden state after
    the move's last word. ``goal`` is z_w*, the hidden state after the question read alone.
    ``token_logprobs`` [rows, SEEN] are the generator's log probabilities of the move's words
    (``models.verifiers.reward.token_logprobs``). ``logprob`` [rows] is its log probability of the
    whole move at w, in nats.
    """

    state: Tensor
    move: Tensor
    after: Tensor
    goal: Tensor
    token_logprobs: Tensor
    logprob: Tensor

    def take(self, rows: Tensor) -> Embeddings:
        """The rows at the given positions, in that order."""
        return Embeddings(*(column[rows] for column in self))

    def cpu(self) -> Embeddings:
        """The rows on the CPU."""
        return Embeddings(*(column.cpu() for column in self))

    def split(self, sizes: Sequence[int]) -> list[Embeddings]:
        """Consecutive rows, as many as each of ``sizes`` says."""
        columns = [torch.split(column, list(sizes)) for column in self]
        return [Embeddings(*parts) for parts in zip(*columns, strict=True)]

    def each(self) -> list[Embeddings]:
        """Every row alone: what is computed from it depends, to the last bit, on no other.

        What is computed from all together takes a tenth of the time.
        """
        return self.split([1] * len(self.logprob))


SHARED = ("state", "goal")
"""Columns in which all moves of a state have the same row."""


def embeddings_of(
    *, state: Tensor, goal: Tensor, hidden: Tensor, said: Tensor, seen: Tensor, lengths: Tensor
) -> Embeddings:
    """Embeddings of moves of at most M words, padded on the right.

    Args:
        state: hidden states before each move [rows, D]; ``goal`` those of the goals [rows, D].
        hidden: hidden states after each word [rows, M, D].
        said: log probabilities of the words [rows, M], in nats.
        seen: token log probabilities [rows, SEEN].
        lengths: words of each move [rows].
    """
    mask = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    after = hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
    mean = (hidden * mask[..., None]).sum(1) / lengths[:, None]
    return Embeddings(state, mean, after, goal, seen, (said * mask).sum(1))


MoveKey = tuple[str, str, tuple[str, ...], str]
"""What a move's embedding follows from: the problem, its goal, the derivation, the move."""


def move_keys(state: State, texts: Iterable[str]) -> list[MoveKey]:
    """The key of each of the moves of these ``texts`` at ``state``."""
    problem, said = state.problem, state.said
    return [(problem.text, problem.goal, said, text) for text in texts]


Embed = Callable[[Sequence[RankItem]], list[Embeddings]]
"""What gives the embeddings of every item's moves at its state, one entry an item."""


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors by their names, for a table: in float16, in the format of safetensors."""
    return save({name: one.half().cpu().contiguous() for name, one in tensors.items()})


def unpacked(stored: bytes) -> dict[str, Tensor]:
    """What ``packed`` made the bytes of, in float32.

    Raises:
        SchemaError: they are something else.
    """
    try:
        return {name: one.float() for name, one in load(stored).items()}
    except SafetensorError as error:
        raise SchemaError(f"stored embeddings: given {len(stored)} bytes, {error}") from error


def pack_moves(rows: Embeddings) -> bytes:
    """The moves of one state; of ``state`` and ``goal``, which they share, one row is kept."""
    shared = {name: getattr(rows, name)[:1] for name in SHARED}
    return packed(rows._asdict() | shared)


def unpack_moves(stored: bytes) -> Embeddings:
    """What ``pack_moves`` kept, a row a move.

    Raises:
        SchemaError: as ``unpacked``.
    """
    found = unpacked(stored)
    count = len(found["move"])
    shared = {name: found[name].expand(count, -1) for name in SHARED}
    return Embeddings(**{**found, **shared})


def concatenate(parts: list[Embeddings]) -> Embeddings:
    """All rows of ``parts``, in order."""
    return Embeddings(*map(torch.cat, zip(*parts, strict=True)))
