"""Embeddings that are kept with the samples that they were computed for.

Knows: which moves' embeddings are there, and how many. Does not know: how they are computed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import torch

from selverify.models.heuristic.embedding import (
    Embed,
    Embeddings,
    MoveKey,
    concatenate,
    move_keys,
)
from selverify.search.requests import RankItem

_Place = tuple[Embeddings, int]
"""Embeddings of several moves, and which of their rows is meant."""


class KeptEmbeddings:
    """The embeddings of the ``capacity`` moves that were added last."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._places: OrderedDict[MoveKey, _Place] = OrderedDict()

    def __contains__(self, key: MoveKey) -> bool:
        return key in self._places

    def add(self, keys: Sequence[MoveKey], rows: Embeddings) -> None:
        """Keep one row a key. Keys are new ones: rows leave memory with the last of their keys."""
        self._places.update((key, (rows, row)) for row, key in enumerate(keys))
        while len(self._places) > self.capacity:
            self._places.popitem(last=False)

    def complete(self, items: Sequence[RankItem], read: Embed) -> list[Embeddings]:
        """Embeddings of every item's moves: what is kept, and the others as ``read`` gives them."""
        keys = [move_keys(item.state, (move.text for move in item.moves)) for item in items]
        absent = [self._without_kept(*pair) for pair in zip(items, keys, strict=True)]
        found = iter(read([item for item in absent if item.moves]))
        completed = []
        for own, item in zip(keys, absent, strict=True):
            unkept = _places(next(found)) if item.moves else iter(())
            completed.append(_joined([self._places.get(key) or next(unkept) for key in own]))
        return completed

    def _without_kept(self, item: RankItem, keys: Sequence[MoveKey]) -> RankItem:
        pairs = zip(keys, item.moves, strict=True)
        return replace(item, moves=tuple(move for key, move in pairs if key not in self))


def _places(rows: Embeddings) -> Iterator[_Place]:
    return ((rows, row) for row in range(len(rows.logprob)))


def _joined(places: Sequence[_Place]) -> Embeddings:
    """One row a place, in order; neighbours in the same embeddings are taken together."""
    runs = [list(run) for _, run in groupby(places, key=lambda place: id(place[0]))]
    return concatenate([run[0][0].take(torch.tensor([row for _, row in run])) for run in runs])
