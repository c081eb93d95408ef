"""Keys and values of prefixes, kept by their tokens; batches of prefixes of several lengths.

Knows: which prefix of a text is kept, what rows begin with. Does not know: models, requests, texts.
Results do not depend on what is kept, but for rounding.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import DynamicCache

_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Pieces = tuple[Tensor, ...]
"""Keys and values of a prefix, one after another: [layers, 2, heads, T, D / heads] each."""


class KeptPrefixes:
    """Keys and values of prefixes, the last used of them.

    A longer prefix refers to the pieces of the one that it continues. ``size``: tokens of all
    pieces together, at most ``capacity``.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._kept: OrderedDict[int, tuple[tuple[int, ...], Pieces]] = OrderedDict()
        self._used: Counter[int] = Counter()
        self.size = 0

    def longest(self, tokens: Sequence[int], *, most: int) -> Pieces:
        """What is kept of the longest prefix of ``tokens`` that has at most ``most`` tokens."""
        hashes = _hashes(tokens[:most]) if self._kept else []
        for size in range(len(hashes) - 1, 0, -1):
            known, pieces = self._kept.get(hashes[size], ((), ()))
            if pieces and known == tuple(tokens[:size]):
                self._kept.move_to_end(hashes[size])
                return pieces
        return ()

    def add(self, tokens: Sequence[int], made: Callable[[], Pieces]) -> None:
        """Keep ``tokens``, whose pieces ``made`` gives; it is not called where they are kept."""
        key = _hashes(tokens)[-1]
        if key in self._kept:
            self._kept.move_to_end(key)
        elif tokens:
            pieces = made()
            self._kept[key] = (tuple(tokens), pieces)
            for piece in pieces:
                self._used[id(piece)] += 1
                self.size += piece.shape[-2] * (self._used[id(piece)] == 1)
        while self.size > self.capacity and self._kept:
            _, (_, oldest) = self._kept.popitem(last=False)
            for piece in oldest:
                self._used[id(piece)] -= 1
                if not self._used[id(piece)]:
                    del self._used[id(piece)]
                    self.size -= piece.shape[-2]


def size_of(pieces: Sequence[Tensor]) -> int:
    """Tokens of a prefix."""
    return sum(piece.shape[-2] for piece in pieces)


def row_of(cache: DynamicCache, mask: Tensor, row: int, size: int) -> Pieces:
    """A copy of the first tokens of a row of the cache, as one piece."""
    columns = mask[row].nonzero().flatten()[:size]
    layers = [
        torch.stack([part[row][:, columns] for part in (layer.keys, layer.values)])
        for layer in cache.layers
    ]
    return (torch.stack(layers),)


def aligned(
    known: Sequence[Sequence[Tensor]], *, multiple: int = 1
) -> tuple[Tensor | None, Tensor]:
    """Prefixes as rows, right-aligned, and the mask [B, P] of them; P is a multiple of a number.

    Rows are [layers, 2, B, heads, P, D / heads]; None where every prefix is empty.
    """
    sizes = list(map(size_of, known))
    mask = right_aligned(sizes, multiple=multiple)
    example = next((piece for pieces in known for piece in pieces), None)
    if example is None or not max(sizes):
        return None, mask
    layers, two, heads, _, width = example.shape
    places = example.new_zeros((layers, two, len(known), heads, mask.shape[1], width))
    for row, (pieces, size) in enumerate(zip(known, sizes, strict=True)):
        if size:
            torch.cat(list(pieces), -2, out=places[:, :, row, :, -size:])
    return places, mask


def shared_size(rows: Sequence[tuple[int, ...]]) -> int:
    """How many tokens all rows begin with; one less than a whole row at most."""
    first, last = min(rows), max(rows)  # lexicographic: the two that differ earliest
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)) - 1)


def right_aligned(sizes: Sequence[int], *, multiple: int = 1) -> Tensor:
    """A mask [B, P] of which row b has its last ``sizes[b]`` places set; P is the least that is
    a multiple of ``multiple``."""
    longest = -(-max(sizes) // multiple) * multiple
    return (torch.arange(longest) >= longest - torch.tensor(sizes)[:, None]).long()


def _hashes(tokens: Sequence[int]) -> list[int]:
    """A hash of each prefix of ``tokens``, the empty one first."""
    powers = np.full(len(tokens), _FACTOR).cumprod()
    return [0, *((np.array(tokens, np.uint64) + np.uint64(1)) * powers).cumsum().tolist()]
