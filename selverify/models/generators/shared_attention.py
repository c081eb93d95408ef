"""Attention of rows of tokens that share keys and values of what they continue.

Knows: levels of shared keys and values, rows in a grid, their own tokens. Does not know: how
prompts are read and kept, requests, sampling.

All rows of a group attend to one copy of its prompt, and all groups to one copy of what they begin
with (as in Hydragen, Juravsky et al. 2024). Each row has only its own few tokens for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from selverify.errors import ParamsError

if TYPE_CHECKING:
    from selverify.models.generators.recorded_steps import RecordedSteps

NAME = "selverify_shared"
"""Of the attention, as transformers knows it."""
ROOM = 64
"""Places that the rows' own tokens begin with; where they are full, they double. Room that was
never written to is no memory yet on a processor, and copies are costly."""
NONE = -1
"""No row is at this place of a grid."""
EVEN = 8
"""On an accelerator rows of numbers that are multiplied begin at a multiple: others make slow
products."""
_NOT_SHARED = ("softcap", "s_aux")
"""What attention may also go by: scores that are bounded (Gemma 2), and sinks (gpt-oss)."""
UNUSUAL = (
    "{}: given {} where prefixes are shared, expected a model whose attention goes by keys and "
    "values alone"
)
MASKED = -1.0e30
"""Added to the score of a place that is not to be seen. Finite: a row of padding sees nothing."""


@dataclass(frozen=True, slots=True)
class Level:
    """Keys and values [layers, 2, G, heads, P, width] that the rows of each of G groups share.

    With G = 1 all rows share them. ``bias`` [G, P] is 0 at used places, which are a group's last
    ones; None: all are used.
    """

    places: Tensor
    bias: Tensor | None

    def take(self, groups: Tensor) -> Level:
        """The given groups, in that order; itself where all share it or all stay.

        Used up where groups only leave: the others then move up in place, for gigabytes of new
        memory cost more than what is done with them.
        """
        size, left = self.places.shape[2], len(groups)
        if size == 1 or torch.equal(groups, torch.arange(size)):
            return self
        moved = bool((groups.diff() <= 0).any())
        groups = groups.to(self.places.device)
        bias = None if self.bias is None else self.bias[groups]
        if moved:
            return Level(self.places[:, :, groups], bias)
        for layer in self.places:
            layer[:, :left] = layer[:, groups]
        return Level(self.places[:, :, :left], bias)


class OwnTokens:
    """Keys and values of each row's own tokens: a tensor [2, R, heads, room, width] a layer.

    The first B of R rows are used, and the first ``size`` places of their room. ``padding`` [R, T]:
    1 where a token is padding; None: none is, and there may be any number of tokens. ``rows``: the
    most rows that there will be, where it is known.
    """

    def __init__(self, padding: Tensor | None = None) -> None:
        self.size = self.rows = 0
        self.bias = None if padding is None else padding.float() * MASKED
        self.layers: list[Tensor] = []

    def add(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's keys and values [B * heads, size + n, width] with new ones [B, heads, n,
        width]."""
        batch, heads, new, width = keys.shape
        used = self.size + new
        if layer == len(self.layers):
            self.layers.append(self._first(keys))
        elif self.layers[layer].shape[3] < used:
            self._grow(layer, batch, max(used, 2 * self.layers[layer].shape[3]))
        held = self.layers[layer]
        held[0, :batch, :, self.size : used] = keys
        held[1, :batch, :, self.size : used] = values
        seen = held[:, :batch, :, :used].view(2, batch * heads, used, width)
        return seen[0], seen[1]

    def unseen(self, batch: int, new: int, like: Tensor) -> Tensor | None:
        """What hides later tokens from the n new ones, and padding from all: [B or 1, 1, 1, n, T],
        None where nothing is hidden. ``like`` as scores."""
        if new == 1 and self.bias is None:
            return None
        used = self.size + new
        later = torch.ones((new, used), dtype=torch.bool, device=like.device).triu(self.size + 1)
        bias = like.new_zeros((1, new, used)).masked_fill(later, MASKED)
        if self.bias is not None:
            bias = bias + self.bias[:batch, None, :used]
        return bias[:, None, None]

    def settle(self, like: Tensor, rows: int, room: int) -> None:
        """Room for so many tokens of so many rows, zero where none is. ``like`` as
        ``Level.places``."""
        layers, two, _, heads, _, width = like.shape
        for layer in range(layers):  # one after another, so that both are there of one alone
            new = like.new_zeros((two, rows, heads, room, width))
            if layer < len(self.layers):
                new[:, :, :, : self.size] = self.layers[layer][:, :rows, :, : self.size]
            self.layers[layer : layer + 1] = [new]

    def move(self, sources: Tensor, places: Tensor) -> None:
        """Copy what some rows hold to other rows; none of those is a source."""
        if not len(places):
            return
        rows, device = 1 + int(places.max()), self.layers[0].device
        places, sources = (part.to(device, non_blocking=True) for part in (places, sources))
        for layer, old in enumerate(self.layers):
            if old.shape[1] < rows:
                self._grow(layer, max(rows, 2 * old.shape[1]), old.shape[3])
            held = self.layers[layer]
            held[:, places, :, : self.size] = held[:, sources, :, : self.size]

    def stacked(self, rows: Tensor) -> Tensor:
        """Those of some rows: [layers, 2, B, heads, size, width]."""
        (two, _, heads, _, width), layers = self.layers[0].shape, len(self.layers)
        found = self.layers[0].new_empty((layers, two, len(rows), heads, self.size, width))
        for layer, held in enumerate(self.layers):
            torch.index_select(held[..., : self.size, :], 1, rows, out=found[layer])
        return found

    def _first(self, keys: Tensor) -> Tensor:
        batch, heads, new, width = keys.shape
        if self.bias is None:
            return keys.new_empty((2, max(batch, self.rows), heads, max(new, ROOM), width))
        # Padding is multiplied by 0, and must be finite for that.
        return keys.new_zeros((2, len(self.bias), heads, self.bias.shape[1], width))

    def _grow(self, layer: int, rows: int, room: int) -> None:
        old = self.layers[layer]
        kept = min(rows, old.shape[1])
        new = old.new_empty((2, rows, old.shape[2], room, old.shape[4]))
        new[:, :kept, :, : self.size] = old[:, :kept, :, : self.size]
        self.layers[layer] = new


@dataclass(slots=True)
class Memory:
    """What a forward pass sees beside its own tokens.

    ``groups`` and ``rows`` are G and S, the grid; ``live`` [B] are the places in it of the rows
    that are read, in the order in which they are read. ``live`` and ``stays`` are on the processor,
    where rows are counted without waiting for an accelerator.
    """

    levels: tuple[Level, ...]
    own: OwnTokens
    groups: int
    rows: int
    live: Tensor
    layers: int = 0
    """How many layers have attended."""
    stays: Tensor | None = None
    """[G]: which of the groups there were at first each one is, where keys and values that they
    share stay when groups leave; None: they do not."""
    laid: Grid | None = None
    """The grid of this pass."""

    def begin(self) -> None:
        """Another forward pass comes."""
        self.layers, self.laid = 0, None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float
    ) -> Tensor:
        """As ``attention``."""
        return attention(self, layer, query, key, value, scaling=scaling)

    def grid(self, heads: int) -> Grid:
        """Of queries of so many heads of keys; all layers of a pass have one."""
        if self.laid is None or self.laid.heads != heads:
            self.laid = self._new_grid(heads)
        return self.laid

    def _new_grid(self, heads: int) -> Grid:
        return Grid(self, heads)


@dataclass(slots=True)
class Past:
    """Rows of G groups, at most S of each: place s of group g of the grid is g * S + s.

    ``lengths`` [G] are those of the prompts, on the processor; each row adds ``memory.own.size``
    tokens;
    ``logits`` [B, V] predict the next one of the rows, ``hidden`` [B, D] is the state after the
    last one, at the depth that is read; in the order of ``memory.live`` and in float32, but for the
    logits of recorded steps, which are in the model's numbers.
    """

    memory: Memory
    lengths: Tensor
    logits: Tensor
    hidden: Tensor
    steps: RecordedSteps | None = None
    """What takes its steps where rows stay at their slots."""

    @torch.inference_mode()
    def take(self, grid: Tensor) -> Tensor:
        """Go on with rows that continue those at the places ``grid`` [G', S'] of the old grid,
        ``NONE`` where no row is; several may continue one. ``grid`` is on the processor.

        The rows of a group stay together; where the groups are as many as before, some may be
        empty. ``logits`` and ``hidden`` are those of the old rows until the next step.

        Returns:
            ``memory.live`` [B]: the place of each row in the new grid.
        """
        memory, wanted = self.memory, grid != NONE
        same = grid.shape == (memory.groups, memory.rows) and int(wanted.sum()) == len(memory.live)
        if same and torch.equal(grid.flatten()[memory.live], memory.live):
            return memory.live  # every row goes on by itself
        groups, olds = grid.amax(1) // memory.rows, torch.arange(len(grid))
        if len(grid) == memory.groups:
            groups = groups.where(groups >= 0, olds)
        places = wanted.flatten().nonzero().flatten()
        memory.live = self._slots_filled(grid.flatten()[places], places)
        if len(grid) != memory.groups or not torch.equal(groups, olds):
            if memory.stays is None:
                memory.levels = tuple(level.take(groups) for level in memory.levels)
            else:
                memory.stays = memory.stays[groups]
            self.lengths = self.lengths[groups]
        memory.groups, memory.rows = grid.shape
        return memory.live

    def _slots_filled(self, parents: Tensor, places: Tensor) -> Tensor:
        """The place of each row, where those at ``places`` [B] continue those at ``parents``.

        The first row that continues another keeps that one's slot, if it is below B; own tokens of
        every other one are copied to a slot that is free.
        """
        memory, count = self.memory, len(places)
        if not memory.own.size:
            return places
        news, olds = torch.arange(count), torch.arange(len(memory.live))
        slots = places.new_zeros(memory.groups * memory.rows).index_copy_(0, memory.live, olds)
        slots = slots[parents]
        firsts = torch.full_like(olds, count).scatter_reduce_(0, slots, news, "amin")
        stays = (firsts[slots] == news) & (slots < count)
        taken = torch.zeros(count, dtype=torch.bool)
        taken[slots[stays]] = True
        free = (~taken).nonzero().flatten()
        memory.own.move(slots[~stays], free)
        slots = slots.masked_scatter(~stays, free)
        return torch.empty_like(places).index_copy_(0, slots, places)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any
) -> tuple[Tensor, None]:
    """Attention over shared levels and a row's own tokens; without a ``memory``, the usual one.

    Raises:
        ParamsError: scores are changed by more than keys, in a way that is not computed here.
    """
    memory: Memory | None = more.pop("memory", None)
    if memory is None:
        out, _ = sdpa_attention_forward(module, query, key, value, mask, **more)
        return out, None
    for name in _NOT_SHARED:
        if more.get(name) is not None:
            raise ParamsError(UNUSUAL.format(type(module).__name__, name))
    memory.layers += 1
    out = memory.attend(module.layer_idx, query, key, value, scaling=more["scaling"])
    return out, None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def attention(
    memory: Memory, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float
) -> Tensor:
    """What each token sees, [B, n, all heads, width], of queries [B, all heads, n, width].

    ``key`` and ``value`` [B, heads, n, width] are of the same n tokens, which are remembered. One
    softmax goes over the scores of all levels and of the row's own tokens up to each one.

    Own tokens lie row by row; scores lie head by head, [heads, B, m, places] of m queries a row,
    so that those of a level that all rows share are one product a head.
    """
    batch, heads, new, width = query.shape
    kinds = key.shape[1]
    keys, values = memory.own.add(layer, key, value)
    asked = (query * scaling).reshape(batch * kinds, -1, width)
    own = torch.bmm(asked, keys.transpose(1, 2)).float().view(batch, kinds, -1, keys.shape[1])
    unseen = memory.own.unseen(batch, new, own)
    if unseen is not None:
        own.view(batch, kinds, -1, new, own.shape[-1]).add_(unseen)
    grid = memory.grid(kinds)
    sizes = [*(level.places.shape[-2] for level in memory.levels), own.shape[-1]]
    asked = asked.view(batch, kinds, -1, width).transpose(0, 1).contiguous()
    weights = own.new_empty((*asked.shape[:-1], sum(sizes)))
    *parts, last = weights.split_with_sizes(sizes, -1)
    for level, part in zip(memory.levels, parts, strict=True):
        grid.scores(level, layer, asked, part)
    last.copy_(own.transpose(0, 1))
    weights = weights.softmax(-1).to(value.dtype)
    *parts, last = weights.split_with_sizes(sizes, -1)
    last = last.transpose(0, 1).reshape(batch * kinds, -1, sizes[-1])
    mixed = torch.bmm(last, values).view(batch, kinds, -1, width)
    for level, part in zip(memory.levels, parts, strict=True):
        mixed += grid.product(part, level.places[layer, 1]).transpose(0, 1)
    mixed = mixed.view(batch, kinds, -1, new, width).permute(0, 3, 1, 2, 4)
    return mixed.reshape(batch, new, heads, width)


class Grid:
    """Where the rows [B] are among the places [G, heads, S] of their groups."""

    def __init__(self, memory: Memory, heads: int) -> None:
        self.heads = heads
        self._groups, self._width = memory.groups, memory.rows
        live = memory.live.to(memory.own.layers[0].device)
        self._group, row = live // memory.rows, live % memory.rows
        head = torch.arange(heads, device=row.device)[:, None]
        self._places = ((self._group * heads + head) * memory.rows + row).flatten()
        self._rows = row.new_zeros(memory.groups * heads * memory.rows).index_copy_(
            0, self._places, torch.arange(len(self._places), device=row.device)
        )

    def scores(self, level: Level, layer: int, asked: Tensor, out: Tensor) -> None:
        """Write to ``out`` [heads, B, m, P] in float32 those of queries [heads, B, m, width]."""
        keys = level.places[layer, 0].transpose(-1, -2)
        if len(keys) == 1 and asked.dtype == out.dtype:
            torch.bmm(asked.flatten(1, 2), keys[0], out=out.view(len(out), -1, out.shape[-1]))
        else:
            out.copy_(self.product(asked, keys))
        if level.bias is not None:
            bias = level.bias if len(level.bias) == 1 else level.bias[self._group]
            out.add_(bias[:, None])

    def product(self, given: Tensor, shared: Tensor) -> Tensor:
        """[heads, B, m, N] of rows [heads, B, m, K] with what groups share, [G or 1, heads, K, N]:
        few large products, with room for rows that are not there."""
        several, found = given.shape[2], shared.shape[-1]
        if len(shared) == 1:
            return torch.bmm(given.flatten(1, 2), shared[0]).view(len(given), -1, several, found)
        room = given.flatten(0, 1).index_select(0, self._rows)
        room = room.view(self._groups, self.heads, self._width * several, -1)
        product = torch.matmul(room, shared).view(-1, several, found)
        return product.index_select(0, self._places).view(self.heads, -1, several, found)
