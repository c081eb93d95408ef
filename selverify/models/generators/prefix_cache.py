"""Prompts read by a hub model once: keys and values of a prefix are kept and continued.

Knows: keys and values of prefixes by their tokens, batches of prompts of several lengths. Does not
know: requests, texts, sampling, scores. Results do not depend on what is kept, but for rounding.

A state's prompt begins with that of the state before it, and all prompts begin with the same
examples, so only what is new of them is read.
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
from selverify.models.generators.pretrained import HubModel

SHARED = 16
"""A prefix that all prompts of a batch share is kept by itself from so many tokens on."""
_FACTOR, _MODULUS = 0x9E3779B97F4A7C15, (1 << 61) - 1


class KeptPrefixes:
    """Keys and values [layers, 2, heads, T, D / heads] of prefixes, the last used of them.

    ``capacity``: tokens of all prefixes together.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._kept: OrderedDict[int, tuple[tuple[int, ...], Tensor]] = OrderedDict()
        self._size = 0

    def longest(self, tokens: Sequence[int], *, most: int) -> Tensor | None:
        """What is kept of the longest prefix of ``tokens`` that has at most ``most`` tokens."""
        hashes = _hashes(tokens[:most]) if self._kept else []
        for size in range(len(hashes) - 1, 0, -1):
            known, keys_values = self._kept.get(hashes[size], ((), None))
            if keys_values is not None and known == tuple(tokens[:size]):
                self._kept.move_to_end(hashes[size])
                return keys_values
        return None

    def add(self, tokens: Sequence[int], cache: DynamicCache, mask: Tensor, row: int) -> None:
        """Keep ``tokens``, which are the first that ``mask`` [B, P] shows in a row of ``cache``."""
        key = _hashes(tokens)[-1]
        if key in self._kept:
            self._kept.move_to_end(key)
        elif tokens:
            self._kept[key] = (tuple(tokens), row_of(cache, mask, row, len(tokens)))
            self._size += len(tokens)
        while self._size > self.capacity:
            _, (oldest, _) = self._kept.popitem(last=False)
            self._size -= len(oldest)


def row_of(cache: DynamicCache, mask: Tensor, row: int, size: int) -> Tensor:
    """A copy [layers, 2, heads, size, D / heads] of the first tokens of a row of the cache."""
    columns = mask[row].nonzero().flatten()[:size]
    return torch.stack(
        [
            torch.stack([part[row][:, columns] for part in (layer.keys, layer.values)])
            for layer in cache.layers
        ]
    )


def joined(known: Sequence[Tensor | None]) -> tuple[DynamicCache, Tensor]:
    """Kept prefixes as the rows of a cache, aligned at their right end, and the mask of them."""
    sizes = [0 if part is None else part.shape[-2] for part in known]
    example = next((part for part in known if part is not None), None)
    if example is None:
        return DynamicCache(), _right_aligned(sizes)
    layers, two, heads, _, width = example.shape
    longest = max(sizes)
    places = example.new_zeros((layers, two, len(known), heads, longest, width))
    for row, part in enumerate(known):
        if part is not None:
            places[:, :, row, :, longest - part.shape[-2] :] = part
    return DynamicCache([(layer[0], layer[1]) for layer in places]), _right_aligned(sizes)


def shared_size(rows: Sequence[tuple[int, ...]]) -> int:
    """How many tokens all rows begin with; one less than a whole row at most."""
    first, last = min(rows), max(rows)  # lexicographic: the two that differ earliest
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)) - 1)


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


class PrefixCache:
    """Reads prompts with a causal model and keeps at most ``capacity`` tokens' keys and values."""

    def __init__(self, pretrained: HubModel, *, capacity: int) -> None:
        self._model = pretrained.model
        self._positions = pretrained.positions
        self._kept = KeptPrefixes(capacity)
        self._hidden: Tensor | None = None
        self._model.base_model.register_forward_hook(self._take_hidden)

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
        shared = shared_size(prompts)
        if shared >= SHARED and min(prompts) != max(prompts):
            known = [self._longest(prompt) for prompt in prompts]
            if any(part is None or part.shape[-2] < shared for part in known):
                self._read([prompts[0][:shared]], [None], keep=shared)
        return self._read(prompts, [self._longest(prompt) for prompt in prompts], keep=-1)

    @torch.inference_mode()
    def extend(self, past: Past, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] and hidden states [B, T, D] of tokens read after the prompts.

        ``past`` is used up; for padding at the right end of ``tokens`` [B, T] any token will do.
        """
        steps = torch.arange(tokens.shape[1], device=self._model.device)
        mask = torch.cat((past.mask, past.mask.new_ones(tokens.shape)), 1)
        return self._forward(tokens, mask, past.lengths[:, None] + steps, past.cache, last=False)

    @torch.inference_mode()
    def step(self, past: Past, tokens: Tensor) -> Past:
        """One more token [B] after every row."""
        mask = torch.cat((past.mask, past.mask.new_ones((len(tokens), 1))), 1)
        positions = past.lengths[:, None]
        logits, hidden = self._forward(tokens[:, None], mask, positions, past.cache, last=True)
        return Past(past.cache, mask, past.lengths + 1, logits[:, -1], hidden[:, -1])

    def _longest(self, prompt: Sequence[int]) -> Tensor | None:
        return self._kept.longest(prompt, most=len(prompt) - 1)

    def _read(
        self, prompts: Sequence[tuple[int, ...]], known: Sequence[Tensor | None], *, keep: int
    ) -> Past:
        """Prompts as one batch after what is known of each; ``prompt[:keep]`` is kept.

        The last token of a prompt is read again, because its logits are not kept.
        """
        device = self._model.device
        cache, mask = joined(known)
        new = [
            prompt if part is None else prompt[part.shape[-2] :]
            for prompt, part in zip(prompts, known, strict=True)
        ]
        fresh = _right_aligned(list(map(len, new))).to(device)
        tokens = torch.zeros(fresh.shape, dtype=torch.long, device=device)
        tokens[fresh.bool()] = torch.tensor([one for part in new for one in part]).to(device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        positions = (lengths[:, None] - fresh.sum(1, keepdim=True) + fresh.cumsum(1) - 1).clamp(0)
        mask = torch.cat((mask.to(device), fresh), 1)
        logits, hidden = self._forward(tokens, mask, positions, cache, last=True)
        for row, prompt in enumerate(prompts):
            self._kept.add(prompt[:keep], cache, mask, row)
        return Past(cache, mask, lengths, logits[:, -1], hidden[:, -1])

    def _forward(
        self, tokens: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache, *, last: bool
    ) -> tuple[Tensor, Tensor]:
        """Logits of all tokens, or of the last one only (a vocabulary is wide), hidden states of
        all; both in float32."""
        out = self._model(
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
                f"{type(self._model).__name__}: its decoder gave no last hidden state, expected one"
            )
        return out.logits.float(), hidden.float()

    def _take_hidden(self, _: object, __: object, out: Any) -> None:
        """The decoder's last state: to ask the model for it would keep every layer's."""
        self._hidden = out.last_hidden_state


def _right_aligned(sizes: Sequence[int]) -> Tensor:
    """A mask [B, max(sizes)] of which row b has its last ``sizes[b]`` places set."""
    longest = max(sizes)
    return (torch.arange(longest) >= longest - torch.tensor(sizes)[:, None]).long()


def _hashes(tokens: Sequence[int]) -> list[int]:
    """A hash of each prefix of ``tokens``, the empty one first."""
    return list(accumulate(tokens, _hash, initial=0))


def _hash(before: int, token: int) -> int:
    return (before * _FACTOR + token + 1) % _MODULUS
