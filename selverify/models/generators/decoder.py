"""A lean forward pass of a ``LlamaForCausalLM`` that shares prefixes between rows.

Knows: the weights, keys and values of prefixes, sampling. Does not know: problems, moves, verdicts.
A state's prefix is computed once and only its new words later; the rows that continue it attend to
one shared copy. Rows that are sampled after one prefix are computed once while their words are the
same: 16 samples of a move are two to three texts. ``tests/models/test_decoder.py`` holds all of it
to the transformers forward pass.

Shapes: G groups (prefixes), S rows a group, N columns (distinct texts of rows), T prefix words,
M new words, H heads, D width.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from selverify.models.generators.branches import Fork, fork_of
from selverify.models.generators.prefix_cache import Pieces, aligned, size_of
from selverify.models.generators.reading import reading_order
from selverify.models.generators.sampling import in_batches, uniforms

_AT_ONCE = 256
"""Prefixes that are computed together."""
_SMALL_PRODUCT = 400
"""Below so many products of numbers, ``torch.bmm`` has no fast kernel."""
_SMALL, _PADDING = 500, 1.5
_MODEL = "model."
_Words = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One block's weights, with the projections of one input fused."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    feed_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class _Entry:
    """One kept prefix: keys and values, the last hidden state [D], and which one it continues.

    ``pieces``: those of ``before``, and its own.
    """

    pieces: Pieces
    last: Tensor
    before: _Words

    @property
    def size(self) -> int:
        """Its own words."""
        return self.pieces[-1].shape[-2]


@dataclass(frozen=True, slots=True)
class Prefix:
    """Prefixes of a batch, padded on the left: keys and values [layers, 2, G, H, T, D/H]."""

    keys_values: Tensor
    mask: Tensor
    lengths: Tensor
    last: Tensor

    def take(self, rows: Tensor) -> Prefix:
        """The prefixes at the given positions, in that order."""
        return Prefix(
            self.keys_values[:, :, rows], self.mask[rows], self.lengths[rows], self.last[rows]
        )


@dataclass(frozen=True, slots=True)
class Sampled:
    """Continuations of G prefixes, S rows each, of at most M words.

    ``words`` [G, S, M] are -1 after a row's end, ``lengths`` [G, S] count them, ``logprobs`` [G, S]
    are their summed log probabilities at temperature 1, in nats. ``distinct`` [G, S] marks, of the
    rows that a stop word ended, the first with its words in its group. ``hidden`` [G, S, M, D] are
    the hidden states after each of its words, and numbers without a meaning elsewhere. Without
    ``keep`` it has no words, and no row is marked.
    """

    words: np.ndarray
    lengths: np.ndarray
    logprobs: np.ndarray
    distinct: np.ndarray
    hidden: Tensor


class Decoder:
    """Prefix sharing over one backbone; the prefixes used last are kept.

    ``capacity``: words of all that are kept; of one that continues another only those after it.
    ``positions``: words that a prefix and what continues it may have together.
    """

    def __init__(
        self, config: Mapping[str, Any], weights: Mapping[str, Tensor], *, capacity: int
    ) -> None:
        """``config`` and ``weights``: of a Llama, as ``config.json`` and ``model.safetensors`` name
        them. They are read without transformers, which takes seconds to import.

        Raises:
            KeyError: one of them is missing.
        """
        own = {
            name: weight.detach().float().clone()
            for name, weight in weights.items()
            if name.startswith(_MODEL)
        }
        self.parameters = sum(weight.numel() for weight in own.values())
        self.heads = int(config["num_attention_heads"])
        self.width = int(config["hidden_size"])
        self.head_width = self.width // self.heads
        self.epsilon = float(config["rms_norm_eps"])
        self.embedding = own[f"{_MODEL}embed_tokens.weight"]
        self.final_norm = own[f"{_MODEL}norm.weight"]
        self.layers = [_fuse(own, number) for number in range(int(config["num_hidden_layers"]))]
        positions = torch.arange(int(config["max_position_embeddings"]), dtype=torch.float32)
        pairs = torch.arange(0, self.head_width, 2).float() / self.head_width
        angles = torch.outer(positions, 1 / float(config["rope_parameters"]["rope_theta"]) ** pairs)
        self.cos = torch.cat((angles, angles), -1).cos()
        self.sin = torch.cat((angles, angles), -1).sin()
        self.positions = len(positions)
        self.capacity = capacity
        self._entries: OrderedDict[_Words, _Entry] = OrderedDict()
        self._size = 0

    @torch.inference_mode()
    def prefixes(self, sequences: Sequence[_Words]) -> Prefix:
        """Keys and values of each sequence; of one that continues a kept prefix, only what follows
        is computed."""
        new = [words for words in dict.fromkeys(sequences) if words not in self._entries]
        depths = [depth for _, depth in reading_order(new, kept_tokens=self.capacity)]
        for depth in range(max(depths, default=-1) + 1):
            self._read([words for words, own in zip(new, depths, strict=True) if own == depth])
        for words in dict.fromkeys(sequences):
            self._touch(words)
        prefix = self._stack([self._entries[words] for words in sequences])
        while self._size > self.capacity:
            _, oldest = self._entries.popitem(last=False)
            self._size -= oldest.size
        return prefix

    @torch.inference_mode()
    def extend(self, prefix: Prefix, tokens: Tensor) -> Tensor:
        """Final hidden states [G, S, M, D] of ``tokens`` [G, S, M], each row after its prefix.

        Rows are padded on the right with any word; what follows a row's end is meaningless.
        """
        hidden, _ = self._extend(prefix, tokens, keep=False)
        return hidden

    def _extend(self, prefix: Prefix, tokens: Tensor, *, keep: bool) -> tuple[Tensor, list[Tensor]]:
        """The same, and where they are to be kept each layer's keys and values of the words.

        These are [2, G, H, S, M, D/H].
        """
        groups, rows, length = tokens.shape
        hidden = self.embedding[tokens].view(groups, rows * length, self.width)
        positions = prefix.lengths[:, None, None] + torch.arange(length)
        turns = self._turns(positions.expand(groups, rows, length).reshape(groups, -1))
        causal = torch.ones(length, length).tril().bool()
        kept = []
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, turns)
            own = (groups, self.heads, rows, length, self.head_width)
            key, value = key.view(own), value.view(own)
            if keep:
                kept.append(torch.stack((key, value)))
            past = query @ prefix.keys_values[index, 0].transpose(-1, -2)
            past = past.masked_fill(~prefix.mask[:, None, None, :], -torch.inf)
            present = query.view(own) @ key.transpose(-1, -2)
            present = present.masked_fill(~causal, -torch.inf)
            past = past.view(groups, self.heads, rows, length, -1)
            weights = torch.cat((past, present), -1).softmax(-1)
            split = past.shape[-1]
            past_weights = weights[..., :split].reshape(groups, self.heads, rows * length, split)
            mixed = past_weights @ prefix.keys_values[index, 1]
            mixed = mixed + (weights[..., split:] @ value).view(mixed.shape)
            hidden = self._finish(layer, hidden, mixed)
        final = self._norm(hidden, self.final_norm).view(groups, rows, length, self.width)
        return final, kept

    @torch.inference_mode()
    def sample(
        self,
        prefix: Prefix,
        seeds: np.ndarray,
        *,
        stops: Sequence[int],
        limit: int,
        temperature: float,
        keep: bool,
    ) -> Sampled:
        """Continue each prefix in S rows until a stop word or ``limit`` words.

        Args:
            prefix: G prefixes.
            seeds: uint64 [G, S]; row and step alone fix the uniform number that picks a word.
            stops: words that end a row (kept in the output).
            limit: words a row at most.
            temperature: 0 takes the most probable word.
            keep: whether to keep hidden states; costs a step more for each distinct row.
        """
        groups, rows = seeds.shape
        words = np.full((groups, rows, limit), -1, dtype=np.int64)
        logprobs = np.zeros((groups, rows), dtype=np.float64)
        distinct = np.zeros((groups, rows), dtype=bool)
        kept = torch.zeros((groups, rows, limit if keep else 0, self.width))
        lines, live = np.arange(groups), np.ones((groups, rows), dtype=bool)
        columns = np.zeros((groups, rows), dtype=np.int64)
        own = torch.empty((len(self.layers), 2, rows, groups, self.heads, limit, self.head_width))
        hidden = prefix.last[:, None, :]
        for step in range(limit):
            picked, logprob = self._pick(hidden, columns, uniforms(seeds[lines], step), temperature)
            words[lines, :, step] = np.where(live, picked, -1)
            logprobs[lines] += np.where(live, logprob, 0.0)
            ended = live & np.isin(picked, stops)
            live = live & ~ended & (step + 1 < limit)
            going = live | ended if keep else live
            fork = fork_of(going, columns, picked, width=hidden.shape[1])
            if fork is None:
                break
            if keep:
                distinct[lines] |= ended & fork.first
            own = _moved(own, fork, used=step)
            if fork.packed:
                prefix = prefix.take(torch.from_numpy(fork.groups))
                lines, live = lines[fork.groups], live[fork.groups]
            columns = fork.columns
            hidden = self._step(prefix, own, torch.from_numpy(fork.words), step)
            if keep:
                kept[torch.from_numpy(lines), :, step] = _of_rows(hidden, columns)
        return Sampled(words, (words >= 0).sum(-1), logprobs, distinct, kept)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the vocabulary (the output layer is tied to the embedding)."""
        scores: Tensor = hidden @ self.embedding.T
        return scores

    def _touch(self, words: _Words) -> None:
        """Mark a kept prefix as just used, then what it continues, which has to be kept longer."""
        while words in self._entries:
            self._entries.move_to_end(words)
            words = self._entries[words].before

    def _read(self, sequences: Sequence[_Words]) -> None:
        """Keep sequences of which none begins with another."""
        known = {words: self._known(words) for words in sequences}
        order = sorted(sequences, key=lambda words: (len(words) - known[words], known[words]))

        def fits(batch: Sequence[_Words]) -> bool:
            new = [len(words) - known[words] for words in batch]
            deepest = max(known[words] for words in batch)
            small = len(new) <= _AT_ONCE and deepest + new[-1] <= self.positions
            return small and little_padding(len(new) * new[-1], sum(new))

        for batch in in_batches(order, fits):
            for words, entry in self._lengthen([(known[words], words) for words in batch]).items():
                self._entries[words] = entry
                self._size += entry.size
                self._touch(words)

    def _known(self, words: _Words) -> int:
        """Length of the longest kept prefix that ``words`` begin with, else 0."""
        lengths = range(len(words) - 1, 0, -1)
        return next((length for length in lengths if words[:length] in self._entries), 0)

    def _lengthen(self, group: Sequence[tuple[int, _Words]]) -> dict[_Words, _Entry]:
        """Entries of sequences of which the first words, as many as is said, are kept already."""
        older = [self._entries.get(words[:known]) for known, words in group]
        new = [words[known:] for known, words in group]
        tokens = torch.zeros((len(new), 1, max(map(len, new))), dtype=torch.long)
        for row, words in enumerate(new):
            tokens[row, 0, : len(words)] = torch.tensor(words)
        hidden, kept = self._extend(self._stack(older), tokens, keep=True)
        keys_values = torch.stack(kept)[..., 0, :, :]  # [layers, 2, G, H, M, D/H]
        computed = {}
        for row, (entry, words, (known, whole)) in enumerate(zip(older, new, group, strict=True)):
            own = keys_values[:, :, row, :, : len(words)].clone()
            pieces = (*entry.pieces, own) if entry else (own,)
            last = hidden[row, 0, len(words) - 1].clone()
            computed[whole] = _Entry(pieces, last, whole[:known])
        return computed

    def _stack(self, entries: Sequence[_Entry | None]) -> Prefix:
        """Prefixes of a batch; None stands for the one without a word."""
        known = [entry.pieces if entry else () for entry in entries]
        keys_values, mask = aligned(known)
        if keys_values is None:
            shape = (len(self.layers), 2, len(known), self.heads, 0, self.head_width)
            keys_values = torch.empty(shape)
        last = [entry.last if entry else torch.zeros(self.width) for entry in entries]
        lengths = torch.tensor(list(map(size_of, known)))
        return Prefix(keys_values, mask.bool(), lengths, torch.stack(last))

    def _step(self, prefix: Prefix, own: Tensor, words: Tensor, step: int) -> Tensor:
        groups, rows = words.shape
        hidden = self.embedding[words]
        turns = self._turns((prefix.lengths + step)[:, None].expand(groups, rows))
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, turns)
            own[index, 0, :rows, :, :, step] = key.permute(2, 0, 1, 3)
            own[index, 1, :rows, :, :, step] = value.permute(2, 0, 1, 3)
            past = query @ prefix.keys_values[index, 0].transpose(-1, -2)
            past = past.masked_fill(~prefix.mask[:, None, None, :], -torch.inf)
            mine = own[index, :, :rows, :, :, : step + 1]
            present = query.permute(2, 0, 1, 3)[..., None, :] @ mine[0].transpose(-1, -2)
            weights = torch.cat((past, present[..., 0, :].permute(1, 2, 0, 3)), -1).softmax(-1)
            split = past.shape[-1]
            mixed = weights[..., :split] @ prefix.keys_values[index, 1]
            said = _product(weights[..., split:].permute(2, 0, 1, 3)[..., None, :], mine[1])
            mixed = mixed + said[..., 0, :].permute(1, 2, 0, 3)
            hidden = self._finish(layer, hidden, mixed)
        return self._norm(hidden, self.final_norm)

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """By which cosines and sines words at ``positions`` [G, rows] are rotated."""
        return self.cos[positions][:, None], self.sin[positions][:, None]

    def _project(
        self, layer: _Layer, hidden: Tensor, turns: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated and scaled queries, rotated keys, values, each [G, H, rows, D/H]."""
        groups, rows, _ = hidden.shape
        fused = functional.linear(
            self._norm(hidden, layer.attention_norm), layer.qkv, layer.qkv_bias
        )
        query, key, value = (
            part.view(groups, rows, self.heads, self.head_width).transpose(1, 2)
            for part in fused.chunk(3, -1)
        )
        cos, sin = turns
        query = (query * cos + _rotate(query) * sin) * self.head_width**-0.5
        return query, key * cos + _rotate(key) * sin, value.contiguous()

    def _finish(self, layer: _Layer, hidden: Tensor, mixed: Tensor) -> Tensor:
        groups, rows, _ = hidden.shape
        joined = mixed.transpose(1, 2).reshape(groups, rows, self.width)
        hidden = hidden + functional.linear(joined, layer.output, layer.output_bias)
        gate, up = functional.linear(self._norm(hidden, layer.feed_norm), layer.gate_up).chunk(
            2, -1
        )
        return hidden + functional.linear(functional.silu(gate) * up, layer.down)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, (self.width,), weight, self.epsilon)

    def _pick(
        self, hidden: Tensor, columns: np.ndarray, uniform: np.ndarray, temperature: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """A word [G, S] and its log probability for each row, which reads one of the columns."""
        logprobs = self.logits(hidden).log_softmax(-1)
        if temperature == 0.0:
            picked = _of_rows(logprobs.argmax(-1), columns)
        else:
            weights = (logprobs / temperature).softmax(-1)
            sums = _of_rows(weights.cumsum(-1, dtype=torch.float64), columns)
            last = sums[..., -1:]  # what is below it belongs to a word with a weight
            target = torch.from_numpy(uniform)[..., None] * last
            target = target.minimum(last.nextafter(torch.zeros_like(last)))
            picked = torch.searchsorted(sums, target, right=True).squeeze(-1)
        chosen = _of_rows(logprobs, columns).gather(-1, picked[..., None]).squeeze(-1)
        return picked.numpy(), chosen.double().numpy()


def little_padding(padded: int, words: int) -> bool:
    """Whether a batch of so many words, or of ``padded`` with what fills it up, is worth it."""
    return padded <= _SMALL + _PADDING * words


def _product(row: Tensor, matrix: Tensor) -> Tensor:
    """``row @ matrix`` for batches of a row each, in a third of the time for small ones."""
    if row.shape[-1] * matrix.shape[-1] < _SMALL_PRODUCT:
        return (row.mT * matrix).sum(-2, keepdim=True)
    return row @ matrix


def _rotate(values: Tensor) -> Tensor:
    first, second = values.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _fuse(model: Mapping[str, Tensor], number: int) -> _Layer:
    layer = f"{_MODEL}layers.{number}."
    attention, forward = f"{layer}self_attn.", f"{layer}mlp."
    biased = f"{attention}q_proj.bias" in model
    return _Layer(
        model[f"{layer}input_layernorm.weight"],
        torch.cat([model[f"{attention}{name}_proj.weight"] for name in "qkv"]),
        torch.cat([model[f"{attention}{name}_proj.bias"] for name in "qkv"]) if biased else None,
        model[f"{attention}o_proj.weight"],
        model[f"{attention}o_proj.bias"] if biased else None,
        model[f"{layer}post_attention_layernorm.weight"],
        torch.cat([model[f"{forward}{name}_proj.weight"] for name in ("gate", "up")]),
        model[f"{forward}down_proj.weight"],
    )


def _of_rows(values: Tensor, columns: np.ndarray) -> Tensor:
    """For each row the value of its column: [G, S, ...] of ``values`` [G, N, ...]."""
    return values[torch.arange(len(columns))[:, None], torch.from_numpy(columns)]


def _moved(own: Tensor, fork: Fork, *, used: int) -> Tensor:
    """Keys and values [layers, 2, S, G, H, limit, D/H] of the new columns, ``used`` words each."""
    if not fork.packed:
        lines, columns = (fork.parents != np.arange(fork.parents.shape[1])).nonzero()
        parents = fork.parents[lines, columns]
        own[:, :, columns, lines, :, :used] = own[:, :, parents, lines, :, :used]
        return own
    layers, two, rows, _, heads, limit, size = own.shape
    moved = own.new_empty((layers, two, rows, len(fork.groups), heads, limit, size))
    moved[:, :, : fork.parents.shape[1], :, :, :used] = own[
        :, :, fork.parents.T, fork.groups, :, :used
    ]
    return moved
