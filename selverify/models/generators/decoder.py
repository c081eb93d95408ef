"""A lean forward pass of a ``LlamaForCausalLM`` that shares prefixes between rows.

Knows: the weights, keys and values of prefixes, sampling. Does not know: problems, moves, verdicts.
A state's prefix is computed once and only its new words later; the rows that continue it attend to
one shared copy. Rows that are sampled after one prefix are computed once while their words are the
same: 16 samples of a move are two to three texts. ``tests/models/test_decoder.py`` holds all of it
to the transformers forward pass.

Shapes: G groups (prefixes), S rows a group, R rows in all, N distinct texts of rows, T prefix
words, M new words, H heads, D width.
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

from selverify.models.generators.branches import Step, next_step
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
    """Prefixes of a batch, padded on the left: keys and values [layers, 2, G, H, T, D/H].

    ``absent`` [G, T] is added to scores: 0 at a word, -inf at the padding.
    """

    keys_values: Tensor
    absent: Tensor
    lengths: Tensor
    last: Tensor

    def take(self, rows: Tensor) -> Prefix:
        """The prefixes at the given positions, in that order."""
        return Prefix(
            self.keys_values[:, :, rows], self.absent[rows], self.lengths[rows], self.last[rows]
        )


@dataclass(frozen=True, slots=True)
class Sampled:
    """R rows, each of which continues a prefix by at most M words.

    ``words`` [R, M] are -1 after a row's end, ``lengths`` [R] count them, ``logprobs`` [R] are
    their summed log probabilities at temperature 1, in nats. ``distinct`` [R] marks, of the rows
    that a stop word ended, the first with its words after its prefix. ``hidden`` [R, M, D] are the
    hidden states after each of its words, and numbers without a meaning elsewhere. Without
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
        later = torch.full((length, length), -torch.inf).triu(1)
        kept = []
        for index, layer in enumerate(self.layers):
            query, key, value = (
                part.transpose(1, 2) for part in self._project(layer, hidden, turns)
            )
            own = (groups, self.heads, rows, length, self.head_width)
            key, value = key.view(own), value.contiguous().view(own)
            if keep:
                kept.append(torch.stack((key, value)))
            past = query @ prefix.keys_values[index, 0].transpose(-1, -2)
            past += prefix.absent[:, None, None]
            present = query.view(own) @ key.transpose(-1, -2)
            present += later
            past = past.view(groups, self.heads, rows, length, -1)
            weights = torch.cat((past, present), -1).softmax(-1)
            split = past.shape[-1]
            past_weights = weights[..., :split].reshape(groups, self.heads, rows * length, split)
            mixed = past_weights @ prefix.keys_values[index, 1]
            mixed = mixed + (weights[..., split:] @ value).view(mixed.shape)
            joined = mixed.transpose(1, 2).reshape(hidden.shape)
            hidden = self._finish(layer, hidden, joined)
        final = self._norm(hidden, self.final_norm).view(groups, rows, length, self.width)
        return final, kept

    @torch.inference_mode()
    def sample(
        self,
        prefix: Prefix,
        seeds: np.ndarray,
        groups: np.ndarray,
        *,
        stops: Sequence[int],
        limit: int,
        temperature: float,
        keep: bool,
    ) -> Sampled:
        """Continue prefixes in R rows until a stop word or ``limit`` words.

        Args:
            prefix: G prefixes.
            seeds: uint64 [R]; seed and step alone fix the uniform number that picks a word.
            groups: which prefix each row continues [R].
            stops: words that end a row (kept in the output).
            limit: words a row at most.
            temperature: 0 takes the most probable word.
            keep: whether to keep hidden states; costs a step more for each distinct row.
        """
        words = np.full((len(seeds), limit), -1, dtype=np.int64)
        logprobs = np.zeros(len(seeds))
        distinct = np.zeros(len(seeds), dtype=bool)
        kept = torch.zeros((len(seeds), limit if keep else 0, self.width))
        own = torch.empty((len(self.layers), 2, len(seeds), self.heads, limit, self.head_width))
        # The rows that are under way, the text of each, and the group of each text.
        rows, texts, hidden = np.arange(len(seeds)), groups, prefix.last
        groups = np.arange(len(hidden))
        for step in range(limit):
            if not len(rows):
                break
            picked, logprob = self._pick(hidden, texts, uniforms(seeds[rows], step), temperature)
            words[rows, step] = picked
            logprobs[rows] += logprob
            ended = np.isin(picked, stops)
            live = ~ended & (step + 1 < limit)
            going = live | ended if keep else live
            if not going.any():
                break
            rows, live = rows[going], live[going]
            forked = next_step(texts[going], picked[going])
            _move(own, forked, used=step)
            prefix, groups = _of_groups(prefix, groups[forked.parents])
            hidden = self._step(prefix, own, forked.words, groups, step)
            if keep:
                distinct[rows[forked.first & ~live]] = True
                kept[torch.from_numpy(rows), step] = hidden[torch.from_numpy(forked.texts)]
            rows, texts = rows[live], forked.texts[live]
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
        absent = torch.where(mask.bool(), 0.0, -torch.inf)
        return Prefix(keys_values, absent, lengths, torch.stack(last))

    def _step(
        self, prefix: Prefix, own: Tensor, words: np.ndarray, groups: np.ndarray, step: int
    ) -> Tensor:
        """Hidden states [N, D] of N texts after one more word each; their keys and values are kept.

        ``own``: keys and values of the texts [layers, 2, at least N, H, M, D/H], ``step`` words of
        which are there. ``groups`` [N]: the prefix that each continues.
        """
        count, lines = len(words), torch.from_numpy(groups)
        hidden = self.embedding[torch.from_numpy(words)]
        turns = self._turns(prefix.lengths[lines] + step)
        seats = _Seats(groups, prefix.absent, self.heads)
        for index, layer in enumerate(self.layers):
            query, key, value = self._project(layer, hidden, turns)
            own[index, 0, :count, :, step] = key
            own[index, 1, :count, :, step] = value
            keys, values = own[index, :, :count, :, : step + 1]
            past = seats.scores(query, prefix.keys_values[index, 0])
            present = query[:, :, None] @ keys.mT
            weights = torch.cat((past, present[:, :, 0]), -1).softmax(-1)
            split = past.shape[-1]
            mixed = seats.mixed(weights[..., :split], prefix.keys_values[index, 1])
            mixed = mixed + _product(weights[:, :, None, split:], values)[:, :, 0]
            hidden = self._finish(layer, hidden, mixed.view(count, self.width))
        return self._norm(hidden, self.final_norm)

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """By which cosines and sines the heads of words at ``positions`` are rotated."""
        return self.cos[positions][..., None, :], self.sin[positions][..., None, :]

    def _project(
        self, layer: _Layer, hidden: Tensor, turns: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated and scaled queries, rotated keys, values, each [..., H, D/H]."""
        fused = functional.linear(
            self._norm(hidden, layer.attention_norm), layer.qkv, layer.qkv_bias
        ).view(*hidden.shape[:-1], 3 * self.heads, self.head_width)
        turned, (cos, sin) = fused[..., : 2 * self.heads, :], turns
        query, key = (turned * cos + _rotate(turned) * sin).chunk(2, -2)
        return query * self.head_width**-0.5, key, fused[..., 2 * self.heads :, :]

    def _finish(self, layer: _Layer, hidden: Tensor, joined: Tensor) -> Tensor:
        hidden = hidden + functional.linear(joined, layer.output, layer.output_bias)
        gate, up = functional.linear(self._norm(hidden, layer.feed_norm), layer.gate_up).chunk(
            2, -1
        )
        return hidden + functional.linear(functional.silu(gate) * up, layer.down)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, (self.width,), weight, self.epsilon)

    def _pick(
        self, hidden: Tensor, texts: np.ndarray, uniform: np.ndarray, temperature: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The next word [R] and its log probability for each row; ``texts`` [R]: which it has."""
        at = torch.from_numpy(texts)
        logprobs = self.logits(hidden).log_softmax(-1)
        if temperature == 0.0:
            picked = logprobs.argmax(-1)[at]
        else:
            weights = (logprobs / temperature).softmax(-1)
            sums = weights.cumsum(-1, dtype=torch.float64)[at]
            last = sums[:, -1:]  # what is below it belongs to a word with a weight
            target = torch.from_numpy(uniform)[:, None] * last
            target = target.minimum(last.nextafter(torch.zeros_like(last)))
            picked = torch.searchsorted(sums, target, right=True).squeeze(-1)
        return picked.numpy(), logprobs[at, picked].double().numpy()


class _Seats:
    """Where the heads of N texts stand among those of G groups, each group's beside one another.

    What a group's texts share is multiplied by all of them at once, so every group has as many
    seats as the largest needs. Empty ones are used for nothing else.
    """

    def __init__(self, groups: np.ndarray, absent: Tensor, heads: int) -> None:
        """``groups`` [N]: of each text. ``absent`` [G, T]: of their prefixes."""
        counts = np.bincount(groups, minlength=len(absent))
        order = np.argsort(groups, kind="stable")
        seat = np.empty_like(groups)
        seat[order] = np.arange(len(groups)) - np.repeat(counts.cumsum() - counts, counts)
        self._shape = (len(absent), heads, int(counts.max()))
        lines = groups[:, None] * heads + np.arange(heads)
        self._at = torch.from_numpy((lines * self._shape[2] + seat[:, None]).ravel())
        self._absent = absent[:, None, None]

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Of queries [N, H, D/H] and their groups' keys [G, H, T, D/H]: [N, H, T]."""
        return self._back((self._seated(query) @ keys.mT).add_(self._absent), len(query))

    def mixed(self, weights: Tensor, values: Tensor) -> Tensor:
        """The groups' values [G, H, T, D/H], weighted for each text: [N, H, D/H]."""
        return self._back(self._seated(weights) @ values, len(weights))

    def _seated(self, rows: Tensor) -> Tensor:
        size = rows.shape[-1]
        seats = rows.new_zeros((*self._shape, size))
        seats.view(-1, size).index_copy_(0, self._at, rows.reshape(-1, size))
        return seats

    def _back(self, seats: Tensor, count: int) -> Tensor:
        size = seats.shape[-1]
        return seats.view(-1, size).index_select(0, self._at).view(count, -1, size)


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


def _move(own: Tensor, forked: Step, *, used: int) -> None:
    """Bring keys and values of the texts, ``used`` words each, to where the next ones are."""
    new = torch.from_numpy(forked.moved)
    old = torch.from_numpy(forked.parents[forked.moved])
    if used and len(new):
        own[:, :, new, :, :used] = own[:, :, old, :, :used]


def _of_groups(prefix: Prefix, groups: np.ndarray) -> tuple[Prefix, np.ndarray]:
    """The prefixes that are still continued, and which of them each text continues.

    They are copied, so this waits until a quarter of them has ended.
    """
    left, of_texts = np.unique(groups, return_inverse=True)
    if len(left) > 0.75 * len(prefix.lengths):
        return prefix, groups
    return prefix.take(torch.from_numpy(left)), of_texts
