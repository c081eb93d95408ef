"""Prompts read by a causal model once: what was computed of a prefix is kept and continued.

Knows: keys and values of prefixes, batches of prompts of several lengths. Does not know: requests,
texts, sampling. Results do not depend on what is kept, but for rounding.

Peers read the whole prompt again for each step. Here the next state's prompt begins with the last
one's, and all prompts begin with the same examples, so only what is new of them is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from selverify.errors import ProtocolError, SchemaError

SHARED = 16
"""A beginning that all prompts of a batch share is kept by itself from so many tokens on."""
_FACTOR, _MODULUS = 0x9E3779B97F4A7C15, (1 << 61) - 1


@dataclass(frozen=True, slots=True)
class Past:
    """Prompts that were read. Row b of ``cache`` holds P places, of which ``mask`` [B, P] are used.

    ``lengths`` [B] counts a prompt's tokens, ``logits`` [B, V] predict the next one, ``hidden``
    [B, D] is the last layer's state after the last one; both in float32.
    """

    cache: DynamicCache
    mask: Tensor
    lengths: Tensor
    logits: Tensor
    hidden: Tensor

    def take(self, rows: Tensor) -> Past:
        """The given rows, in that order, each as often as it is named; this one is used up."""
        self.cache.batch_select_indices(rows)
        return Past(
            self.cache, self.mask[rows], self.lengths[rows], self.logits[rows], self.hidden[rows]
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """A beginning of T tokens with its keys and values, [layers, 2, heads, T, D / heads]."""

    tokens: tuple[int, ...]
    keys_values: Tensor


@dataclass(frozen=True, slots=True)
class Read:
    """What a forward pass over new tokens [B, T] gave."""

    logits: Tensor
    hidden: Tensor


class Prefixes:
    """Reads prompts with ``model`` and keeps at most ``capacity`` tokens' keys and values."""

    def __init__(self, model: Any, *, capacity: int, positions: int) -> None:
        self.model = model
        self._capacity = capacity
        self._positions = positions
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._size = 0
        self._hidden: Tensor | None = None
        model.base_model.register_forward_hook(self._take_hidden)

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        found: torch.device = self.model.device
        return found

    @torch.inference_mode()
    def read(self, prompts: Sequence[tuple[int, ...]]) -> Past:
        """All prompts as one batch; of each at least the last token is read.

        Raises:
            SchemaError: a prompt is empty or has more tokens than the model has positions.
        """
        for prompt in prompts:
            if not 0 < len(prompt) <= self._positions:
                raise SchemaError(
                    f"a prompt of {len(prompt)} tokens, expected 1 to {self._positions}, the "
                    "model's positions"
                )
        hashes = [_hashes(prompt) for prompt in prompts]
        self._keep_the_shared(prompts, hashes)
        known = [self._longest(prompt, row) for prompt, row in zip(prompts, hashes, strict=True)]
        cache, mask, tokens, fresh = self._assemble(prompts, known)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        positions = (lengths[:, None] - fresh.sum(1, keepdim=True) + fresh.cumsum(1) - 1).clamp(0)
        read = self._forward(tokens, torch.cat((mask, fresh), 1), positions, cache, last=True)
        mask = torch.cat((mask, fresh), 1)
        for row, prompt in enumerate(prompts):
            # Without the last token, which is read again: its logits are not kept.
            if len(prompt) > 1 and not self._is_kept(prompt[:-1]):
                self._add(tuple(prompt[:-1]), cache, mask[row : row + 1, :-1], row)
        return Past(cache, mask, lengths, read.logits[:, -1], read.hidden[:, -1])

    @torch.inference_mode()
    def extend(self, past: Past, tokens: Tensor) -> Read:
        """Tokens [B, T] read after every prompt of ``past``, which is used up; for padding at their
        right end any token will do."""
        steps = torch.arange(tokens.shape[1], device=self.device)
        mask = torch.cat((past.mask, past.mask.new_ones(tokens.shape)), 1)
        return self._forward(tokens, mask, past.lengths[:, None] + steps, past.cache, last=False)

    @torch.inference_mode()
    def step(self, past: Past, tokens: Tensor) -> Past:
        """One more token [B] after every row."""
        mask = torch.cat((past.mask, past.mask.new_ones((len(tokens), 1))), 1)
        read = self._forward(tokens[:, None], mask, past.lengths[:, None], past.cache, last=True)
        return Past(past.cache, mask, past.lengths + 1, read.logits[:, -1], read.hidden[:, -1])

    def _forward(
        self, tokens: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache, *, last: bool
    ) -> Read:
        """Logits of all tokens, or of the last one only: a vocabulary is wide."""
        out = self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1 if last else 0,
        )
        hidden, self._hidden = self._hidden, None
        if hidden is None:
            raise ProtocolError(
                f"{type(self.model).__name__}: its decoder gave no last hidden state, expected one"
            )
        return Read(out.logits.float(), hidden.float())

    def _take_hidden(self, _: object, __: object, out: Any) -> None:
        """The decoder's last state: to ask the model for it would keep every layer's."""
        self._hidden = out.last_hidden_state

    def _assemble(
        self, prompts: Sequence[Sequence[int]], known: Sequence[Tensor | None]
    ) -> tuple[DynamicCache, Tensor, Tensor, Tensor]:
        """The kept parts and the new tokens, each aligned at its right end, with their masks."""
        sizes = [0 if part is None else part.shape[-2] for part in known]
        mask = _right_aligned(sizes, self.device)
        new = [prompt[size:] for prompt, size in zip(prompts, sizes, strict=True)]
        fresh = _right_aligned([len(part) for part in new], self.device)
        tokens = torch.zeros(fresh.shape, dtype=torch.long, device=self.device)
        tokens[fresh.bool()] = torch.tensor([one for part in new for one in part]).to(self.device)
        cache = DynamicCache()
        example = next((part for part in known if part is not None), None)
        if example is not None:
            layers, two, heads, _, width = example.shape
            places = example.new_zeros((layers, two, len(prompts), heads, max(sizes), width))
            for row, part in enumerate(known):
                if part is not None:
                    places[:, :, row, :, max(sizes) - part.shape[-2] :] = part
            for layer in range(layers):
                cache.update(places[layer, 0], places[layer, 1], layer)
        return cache, mask, tokens, fresh

    def _keep_the_shared(
        self, prompts: Sequence[tuple[int, ...]], hashes: Sequence[Sequence[int]]
    ) -> None:
        """Read the beginning that all prompts share by itself, so that each is spared it."""
        first, last = min(prompts), max(prompts)  # lexicographic: the two that differ earliest
        pairs = enumerate(zip(first, last, strict=False))
        shared = next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)) - 1)
        known = [self._longest(prompt, row) for prompt, row in zip(prompts, hashes, strict=True)]
        spared = all(part is not None and part.shape[-2] >= shared for part in known)
        if spared or shared < SHARED or first == last:
            return
        beginning = tuple(first[:shared])
        cache, _, tokens, fresh = self._assemble([beginning], [None])
        self._forward(tokens, fresh, fresh.cumsum(1) - 1, cache, last=True)
        self._add(beginning, cache, fresh, 0)

    def _longest(self, prompt: Sequence[int], hashes: Sequence[int]) -> Tensor | None:
        """What is kept of the longest beginning of ``prompt`` without its last token."""
        for size in range(len(prompt) - 1, 0, -1):
            kept = self._kept.get(hashes[size])
            if kept is not None and kept.tokens == tuple(prompt[:size]):
                self._kept.move_to_end(hashes[size])
                return kept.keys_values
        return None

    def _is_kept(self, tokens: Sequence[int]) -> bool:
        return _hashes(tokens)[-1] in self._kept

    def _add(self, tokens: tuple[int, ...], cache: DynamicCache, mask: Tensor, row: int) -> None:
        used = mask[0].bool()
        layers = [
            torch.stack((layer.keys[row, :, : len(used)], layer.values[row, :, : len(used)]))
            for layer in cache.layers
        ]
        self._kept[_hashes(tokens)[-1]] = Kept(tokens, torch.stack(layers)[..., used, :].clone())
        self._size += len(tokens)
        while self._size > self._capacity and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest.tokens)


def _right_aligned(sizes: Sequence[int], device: torch.device) -> Tensor:
    """A mask [B, max(sizes)] of which row b has its last ``sizes[b]`` places set."""
    longest = max(sizes)
    places = torch.arange(longest, device=device)
    return (places >= longest - torch.tensor(sizes, device=device)[:, None]).long()


def _hashes(tokens: Sequence[int]) -> list[int]:
    """A hash of each beginning of ``tokens``, the empty one first."""
    return list(accumulate(tokens, _hash, initial=0))


def _hash(before: int, token: int) -> int:
    return (before * _FACTOR + token + 1) % _MODULUS
