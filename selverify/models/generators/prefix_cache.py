"""Keys and values of prefixes, kept by their tokens; batches of prefixes of several lengths.

Knows: which prefix of a text is kept, what rows begin with. Does not know: models, requests, texts.
Results do not depend on what is kept, but for rounding.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import DynamicCache

_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Pieces = tuple[Tensor, ...]
"""Keys and values of a prefix, one after another: [layers, 2, heads, T, D / heads] each."""
SPLIT = 16
"""A common beginning of prefixes is kept by itself if it has so many tokens more than what is."""


@dataclass(frozen=True, slots=True)
class _Kept:
    tokens: tuple[int, ...]
    pieces: Pieces
    parent: int
    """The key of the prefix that this one continues; 0: none."""


class KeptPrefixes:
    """Keys and values of prefixes, the last used of them, and of what these begin with.

    A longer prefix refers to the pieces of the one that it continues, which is kept for as long; a
    common beginning of two prefixes refers to a part of a piece. ``size``: tokens of all pieces
    together, at most ``capacity``.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._beginnings: dict[int, int] = {}
        self._continued: Counter[int] = Counter()
        self._used: Counter[int] = Counter()
        self.size = 0

    def longest(self, tokens: Sequence[int], *, most: int) -> Pieces:
        """What is kept of the longest prefix of ``tokens`` that has at most ``most`` tokens: of one
        that was added, or what one begins with, where that is ``SPLIT`` tokens more at least.
        """
        hashes = _hashes(tokens[:most]) if self._kept else []
        begun = 0
        for size in range(len(hashes) - 1, 0, -1):
            if begun and size <= begun - SPLIT:
                break
            known = self._kept.get(hashes[size])
            if known is not None and known.tokens == tuple(tokens[:size]):
                self._kept.move_to_end(hashes[size])
                return known.pieces
            if not begun and self._begins(self._beginnings.get(hashes[size]), tokens[:size]):
                begun = size
        if begun < SPLIT:
            return ()
        pieces = _first(self._kept[self._beginnings[hashes[begun]]].pieces, begun)
        self.add(tokens[:begun], lambda: pieces)
        return pieces

    def _begins(self, key: int | None, tokens: Sequence[int]) -> bool:
        """Whether there is a prefix ``key`` and it begins with ``tokens``."""
        return key is not None and self._kept[key].tokens[: len(tokens)] == tuple(tokens)

    def latest_first(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """The places of ``prompts``, by when what is kept of each was last used.

        Those of which nothing is kept come last. In another order, what is new of the first ones
        would drive out what is kept of the others before they are read.
        """
        uses = {key: use for use, key in enumerate(self._kept, 1)}
        last = [
            next((uses[key] for key in reversed(_hashes(prompt)[1:-1]) if key in uses), 0)
            for prompt in prompts
        ]
        return sorted(range(len(prompts)), key=lambda place: -last[place])

    def add(self, tokens: Sequence[int], made: Callable[[], Pieces]) -> None:
        """Keep ``tokens``, whose pieces ``made`` gives; it is not called where they are kept."""
        hashes = _hashes(tokens)
        key = hashes[-1]
        if key in self._kept:
            self._kept.move_to_end(key)
        elif tokens:
            pieces = made()
            before = hashes[size_of(pieces[:-1])]
            parent = before if before in self._kept else 0
            self._kept[key] = _Kept(tuple(tokens), pieces, parent)
            self._continued[parent] += 1
            for beginning in hashes[1:]:
                self._beginnings.setdefault(beginning, key)
            for piece in pieces:
                self._used[_place(piece)] += 1
                self.size += _held(piece) * (self._used[_place(piece)] == 1)
        while self.size > self.capacity and self._kept:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the prefix that was used longest ago, of those that none continues."""
        key = next(iter(self._kept))
        while self._continued[key]:
            self._kept.move_to_end(key)
            key = next(iter(self._kept))
        oldest = self._kept.pop(key)
        self._continued.subtract([oldest.parent])
        if not self._continued[oldest.parent]:
            del self._continued[oldest.parent]
        for beginning in _hashes(oldest.tokens):
            if self._beginnings.get(beginning) == key:
                del self._beginnings[beginning]
        for piece in oldest.pieces:
            self._used[_place(piece)] -= 1
            if not self._used[_place(piece)]:
                del self._used[_place(piece)]
                self.size -= _held(piece)


def _place(piece: Tensor) -> int:
    """Where the memory of a piece is, or of the one that it is a part of."""
    return piece.untyped_storage().data_ptr()


def _held(piece: Tensor) -> int:
    """Tokens that there is memory for at that place."""
    return piece.untyped_storage().nbytes() // piece[..., :1, :].nbytes


def _first(pieces: Pieces, size: int) -> Pieces:
    """The pieces' first tokens, without a copy."""
    found: list[Tensor] = []
    for piece in pieces:
        left = size - size_of(found)
        if left > 0:
            found.append(piece[..., :left, :])
    return tuple(found)


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
