"""What generators that run in this process share: seeds, uniform numbers, batches of items.

Knows: requests for samples. Does not know: models, tokens, prompts.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from selverify.params import Sampling
from selverify.search.requests import CompleteItem, ProposeItem
from selverify.types import Sample

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_INDEX_STEP = 0xD1342543DE82EF95  # an odd multiplier spreads consecutive indices over 64 bits
_MASK = (1 << 64) - 1
_T = TypeVar("_T")

Item = ProposeItem | CompleteItem
Replies = tuple[tuple[Sample, ...], ...]


class SamplingGenerator(ABC):
    """A ``Proposer`` but for its identity, from one method that samples many items together."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def propose(self, items: Sequence[ProposeItem]) -> Replies:
        """Samples that end with a move's end, or with the text's."""
        return self._by_temperature(items, True, self._sampling.max_move_tokens)

    def complete(self, items: Sequence[CompleteItem]) -> Replies:
        """Samples that end with the text's end."""
        return self._by_temperature(items, False, self._sampling.max_solution_tokens)

    def _by_temperature(self, items: Sequence[Item], one_move: bool, limit: int) -> Replies:
        """Items of one temperature are sampled together."""
        replies: list[tuple[Sample, ...]] = [()] * len(items)
        asked = [temperature_of(item, self._sampling) for item in items]
        for temperature in sorted(set(asked)):
            places = [place for place, one in enumerate(asked) if one == temperature]
            chosen = [items[place] for place in places]
            part = self._sample(chosen, one_move=one_move, limit=limit, temperature=temperature)
            for place, reply in zip(places, part, strict=True):
                replies[place] = reply
        return tuple(replies)

    @abstractmethod
    def _sample(
        self, items: Sequence[Item], *, one_move: bool, limit: int, temperature: float
    ) -> Replies:
        """``count`` samples an item, of at most ``limit`` tokens each."""


def temperature_of(item: Item, sampling: Sampling) -> float:
    """The item's own temperature, or that of ``sampling``."""
    return sampling.temperature if item.temperature is None else item.temperature


def item_seeds(key: str, item: Item) -> list[int]:
    """64-bit seeds of an item's samples; ``key`` identifies the run and the state."""
    told = key.encode("utf-8", "surrogatepass")
    start = int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little")
    indices = range(item.start, item.start + item.count)
    return [(start ^ (index * _INDEX_STEP & _MASK)) & _MASK for index in indices]


def parts_of(item: Item, most: int) -> list[Item]:
    """The item cut into ranges of at most ``most`` indices; every sample keeps its seed."""
    stop = item.start + item.count
    return [
        replace(item, start=start, count=min(most, stop - start))
        for start in range(item.start, stop, most)
    ]


def uniforms(seeds: np.ndarray, step: int) -> np.ndarray:
    """One number in [0, 1) a seed and step: SplitMix64 (Steele et al. 2014), vectorised."""
    with np.errstate(over="ignore"):
        mixed = seeds + _GAMMA * np.uint64(step + 1)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def in_batches(items: Iterable[_T], fits: Callable[[Sequence[_T]], bool]) -> Iterator[list[_T]]:
    """Consecutive items in batches that fit, or one item alone."""
    batch: list[_T] = []
    for item in items:
        if batch and not fits([*batch, item]):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
