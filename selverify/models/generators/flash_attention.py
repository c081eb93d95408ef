"""Attention of rows at fixed slots by a kernel that keeps no scores (FlashAttention, Dao 2024).

The kernel reads what all rows share and what the rows of each group share. A row's own tokens are
few, and their scores are kept. What is seen of each is merged as the sums of the weights are
(Hydragen, Juravsky et al. 2024).

Knows: where the keys of each group lie, kernels. Does not know: slots that are given and taken,
recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selverify.models.generators.shared_attention import EVEN, MASKED, Level

WIDEST, OLDEST_DEVICE = 256, (8, 0)
"""The widest head and the oldest device that the kernel supports; the width is a multiple of
``EVEN``, too."""


def fits(places: Tensor) -> bool:
    """Whether the kernel reads such keys and values [..., width]."""
    half, width = places.dtype in (torch.float16, torch.bfloat16), places.shape[-1]
    if not places.is_cuda or not half or width % EVEN or width > WIDEST:
        return False
    if torch.version.hip is not None or not torch.backends.cuda.is_flash_attention_available():
        return False
    return torch.cuda.get_device_capability(places.device) >= OLDEST_DEVICE


class Places:
    """Where the rows of one step, B at slots, stand in their groups, for ``kinds`` heads of keys.

    ``slot_of`` [G * S]: the slot of each place of the grid; ``live`` [B]: the place of each slot.
    """

    def __init__(self, live: Tensor, slot_of: Tensor, *, kinds: int, width: int) -> None:
        head = torch.arange(kinds, device=live.device)
        group, row = live // width, live % width
        self.sources = (slot_of.view(-1, 1, width) * kinds + head[:, None]).flatten()
        self.back = ((group[:, None] * kinds + head) * width + row[:, None]).flatten()


@dataclass(frozen=True, slots=True)
class Texts:
    """Where T texts lie, one after another: ``queries`` [T + 1] and ``keys`` [T + 1] are where
    those of each begin, and there are at most ``longest`` of each. ``used`` [T]: of the keys; None:
    all up to those of the next text."""

    queries: Tensor
    keys: Tensor
    used: Tensor | None
    longest: tuple[int, int]


class FlashLevel:
    """Keys and values that the ``width`` rows of each group share."""

    def __init__(self, level: Level, *, width: int, rows: int, heads: int) -> None:
        """Each of ``rows`` has ``heads`` queries of each head of keys."""
        self._level = level.places
        _, _, groups, kinds, room, _ = level.places.shape
        device = level.places.device
        empty = torch.zeros(groups, dtype=torch.long, device=device)
        if level.bias is not None:
            empty = (level.bias != 0.0).sum(1)  # all before the first used place
        self._one = groups == 1
        if self._one:
            queries = torch.tensor([0, rows], dtype=torch.int32, device=device)
            keys = torch.stack((empty[0], torch.full_like(empty[0], room)))
            self._texts = Texts(queries, keys.int(), None, (rows, room))
            return
        texts = torch.arange(groups * kinds + 1, device=device)
        begins, used = texts * room, (room - empty).repeat_interleave(kinds)
        begins[:-1] += room - used
        queries, longest = texts * width * heads, (width * heads, room)
        self._texts = Texts(queries.int(), begins.int(), used.int(), longest)

    def seen(self, layer: int, asked: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """Of queries [B, kinds, m, width], and the logarithm of the sum of their weights
        [B, kinds, m]."""
        batch, kinds, several, width = asked.shape
        keys, values = self._level[layer]
        if self._one:
            shared = keys[0].transpose(0, 1), values[0].transpose(0, 1)
            found, sums = flash(asked.flatten(1, 2), *shared, self._texts)
            return found.view(asked.shape), sums.t().reshape(batch, kinds, several)
        rows = asked.view(batch * kinds, -1).index_select(0, places.sources)
        rows, keys, values = (part.reshape(-1, 1, width) for part in (rows, keys, values))
        found, sums = flash(rows, keys, values, self._texts)
        found = found.view(-1, several * width).index_select(0, places.back)
        sums = sums.view(-1, several).index_select(0, places.back)
        return found.view(asked.shape), sums.view(batch, kinds, several)


class FlashAttention:
    """Of ``rows`` at slots to ``levels`` and to their own tokens, which have ``room`` places."""

    def __init__(
        self, levels: Sequence[Level], *, width: int, rows: int, room: int, heads: int
    ) -> None:
        self.levels = [FlashLevel(level, width=width, rows=rows, heads=heads) for level in levels]
        like = levels[0].places
        kinds, size = like.shape[3], -(-(room + 1) // EVEN) * EVEN
        self._room = room
        self._scores = torch.full((rows * kinds, heads, size), MASKED, device=like.device)

    def __call__(
        self,
        layer: int,
        asked: Tensor,
        own: tuple[Tensor, Tensor],
        unseen: Tensor,
        places: Places,
    ) -> Tensor:
        """What queries [B, kinds, m, width] see; keys and values of ``own`` [B * kinds, room,
        width], of which ``unseen`` [room] hides some."""
        batch, kinds, several, width = asked.shape
        (seen, total), *others = (level.seen(layer, asked, places) for level in self.levels)
        for found, sums in others:
            seen = seen.lerp(found, (sums - total).sigmoid().to(seen.dtype)[..., None])
            total = torch.logaddexp(total, sums)
        keys, values = own
        own_asked = asked.view(batch * kinds, several, width)
        scores, room = self._scores, self._room
        torch.add(torch.bmm(own_asked, keys.transpose(1, 2)), unseen, out=scores[..., :room])
        # What is shared counts as one more place, whose value is what is seen of it.
        scores[..., room] = total.reshape(batch * kinds, several)
        weights = scores.softmax(-1).to(values.dtype)
        mixed = torch.bmm(weights[..., :room], values)
        return mixed.addcmul_(seen.view(mixed.shape), weights[..., room, None]).view(asked.shape)


def flash(asked: Tensor, keys: Tensor, values: Tensor, texts: Texts) -> tuple[Tensor, Tensor]:
    """What queries [Q, heads, width] see of the keys and values [K, kinds, width] of their texts,
    and the logarithms of the sums of their weights [heads, Q]."""
    found, sums, *_ = torch.ops.aten._flash_attention_forward(
        asked, keys, values, texts.queries, texts.keys, *texts.longest,
        0.0, False, False, scale=1.0, seqused_k=texts.used,
    )  # fmt: skip
    return found, sums
