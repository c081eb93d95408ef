"""Prompts that a hub model reads once, and rows of tokens after them that share what was read.

Knows: keys and values, groups of rows, attention over both. Does not know: requests, texts,
sampling, scores. Results do not depend on what is kept or who shares it, but for rounding.

A state's prompt begins with that of the state before it, and all prompts begin with the same
examples, so only what is new of them is read. The samples of a state attend to one copy of its
prompt, and all states to one copy of what they begin with (as in Hydragen, Juravsky et al. 2024):
copies would be most of what decoding costs. Each row has only its own few tokens for itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.models.generators.prefix_cache import (
    KeptPrefixes,
    Pieces,
    aligned,
    right_aligned,
    shared_size,
    size_of,
)
from selverify.models.generators.pretrained import HubModel

NAME = "selverify_shared"
"""Of the attention, as transformers knows it."""
SHARED = 16
"""What all prompts of a batch begin with is read and kept by itself from so many tokens on."""
READ_AT_LEAST, READ_AT_ONCE = 512, 2048
"""Tokens that go through the model together where prompts are read; less make slow products."""
ROOM = 64
"""Places that the rows' own tokens begin with; where they are full, they double. Room that was
never written to is no memory yet on a processor, and copies are costly."""
NONE = -1
"""No row is at this place of a grid."""
FULL = 0.75
"""So much of what is read together is not padding, but for the first tokens of it."""
_MASKED = -1.0e30
"""Added to the score of a place that is not to be seen. Finite: a row of padding sees nothing."""
_PROBE = ((1, 2, 3, 4, 5), (1, 2, 6, 7, 8))
_TOLERANCE = {torch.float32: 1e-3}
_COARSE = 0.1
_UNUSUAL = (
    "{}: given {} where prefixes are shared, expected a model whose attention goes by keys and "
    "values alone"
)


@dataclass(frozen=True, slots=True)
class Level:
    """Keys and values [layers, 2, G, heads, P, width] that the rows of each of G groups share.

    With G = 1 all rows share them. ``bias`` [G, P] is 0 at used places; None: all are used.
    """

    places: Tensor
    bias: Tensor | None

    def take(self, groups: Tensor) -> Level:
        """The given groups, in that order; itself where all share it or all stay.

        Used up where groups only leave: the others then move up in place, for gigabytes of new
        memory cost more than what is done with them.
        """
        size, left = self.places.shape[2], len(groups)
        if size == 1 or torch.equal(groups, torch.arange(size, device=groups.device)):
            return self
        bias = None if self.bias is None else self.bias[groups]
        if bool((groups.diff() <= 0).any()):
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
        self.bias = None if padding is None else padding.float() * _MASKED
        self._layers: list[Tensor] = []

    def add(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's keys and values [B * heads, size + n, width] with new ones [B, heads, n,
        width]."""
        batch, heads, new, width = keys.shape
        used = self.size + new
        if layer == len(self._layers):
            self._layers.append(self._first(keys))
        elif self._layers[layer].shape[3] < used:
            self._grow(layer, batch, max(used, 2 * self._layers[layer].shape[3]))
        held = self._layers[layer]
        held[0, :batch, :, self.size : used] = keys
        held[1, :batch, :, self.size : used] = values
        seen = held[:, :batch, :, :used].view(2, batch * heads, used, width)
        return seen[0], seen[1]

    def move(self, sources: Tensor, places: Tensor) -> None:
        """Copy what some rows hold to other rows; none of those is a source."""
        if not len(places):
            return
        rows = 1 + int(places.max())
        for layer, old in enumerate(self._layers):
            if old.shape[1] < rows:
                self._grow(layer, max(rows, 2 * old.shape[1]), old.shape[3])
            held = self._layers[layer]
            held[:, places, :, : self.size] = held[:, sources, :, : self.size]

    def stacked(self, rows: Tensor) -> Tensor:
        """Those of some rows: [layers, 2, B, heads, size, width]."""
        (two, _, heads, _, width), layers = self._layers[0].shape, len(self._layers)
        found = self._layers[0].new_empty((layers, two, len(rows), heads, self.size, width))
        for layer, held in enumerate(self._layers):
            torch.index_select(held[..., : self.size, :], 1, rows, out=found[layer])
        return found

    def _first(self, keys: Tensor) -> Tensor:
        batch, heads, new, width = keys.shape
        if self.bias is None:
            return keys.new_empty((2, max(batch, self.rows), heads, max(new, ROOM), width))
        # Padding is multiplied by 0, and must be finite for that.
        return keys.new_zeros((2, len(self.bias), heads, self.bias.shape[1], width))

    def _grow(self, layer: int, rows: int, room: int) -> None:
        old = self._layers[layer]
        kept = min(rows, old.shape[1])
        new = old.new_empty((2, rows, old.shape[2], room, old.shape[4]))
        new[:, :kept, :, : self.size] = old[:, :kept, :, : self.size]
        self._layers[layer] = new


@dataclass(slots=True)
class Memory:
    """What a forward pass sees beside its own tokens.

    ``groups`` and ``rows`` are G and S, the grid; ``live`` [B] are the places in it of the rows
    that are read, in the order in which they are read.
    """

    levels: tuple[Level, ...]
    own: OwnTokens
    groups: int
    rows: int
    live: Tensor
    layers: int = 0
    """How many layers have attended."""


@dataclass(slots=True)
class Past:
    """Rows of G groups, at most S of each: place s of group g of the grid is g * S + s.

    ``lengths`` [G] are those of the prompts, to which each row adds ``memory.own.size`` tokens;
    ``logits`` [B, V] predict the next one of the rows, ``hidden`` [B, D] is the state after the
    last one, at the depth that is read; both in float32, in the order of ``memory.live``.
    """

    memory: Memory
    lengths: Tensor
    logits: Tensor
    hidden: Tensor

    @torch.inference_mode()
    def take(self, grid: Tensor) -> Tensor:
        """Go on with rows that continue those at the places ``grid`` [G', S'] of the old grid,
        ``NONE`` where no row is; several may continue one.

        The rows of a group stay together; where the groups are as many as before, some may be
        empty. ``logits`` and ``hidden`` are those of the old rows until the next step.

        Returns:
            ``memory.live`` [B]: the place of each row in the new grid.
        """
        memory, wanted = self.memory, grid != NONE
        groups, olds = grid.amax(1) // memory.rows, torch.arange(len(grid), device=grid.device)
        if len(grid) == memory.groups:
            groups = groups.where(groups >= 0, olds)
        places = wanted.flatten().nonzero().flatten()
        memory.live = self._slots_filled(grid.flatten()[places], places)
        if len(grid) != memory.groups or not torch.equal(groups, olds):
            memory.levels = tuple(level.take(groups) for level in memory.levels)
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
        news = torch.arange(count, device=places.device)
        olds = torch.arange(len(memory.live), device=places.device)
        slots = places.new_zeros(memory.groups * memory.rows).index_copy_(0, memory.live, olds)
        slots = slots[parents]
        firsts = torch.full_like(olds, count).scatter_reduce_(0, slots, news, "amin")
        stays = (firsts[slots] == news) & (slots < count)
        taken = torch.zeros(count, dtype=torch.bool, device=places.device)
        taken[slots[stays]] = True
        free = (~taken).nonzero().flatten()
        memory.own.move(slots[~stays], free)
        slots = slots.masked_scatter(~stays, free)
        return torch.empty_like(places).index_copy_(0, slots, places)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any
) -> tuple[Tensor, None]:
    """Attention over shared levels and a row's own tokens; without a ``memory``, the usual one."""
    memory: Memory | None = more.pop("memory", None)
    if memory is None:
        out, _ = sdpa_attention_forward(module, query, key, value, mask, **more)
        return out, None
    memory.layers += 1
    out = attention(memory, module.layer_idx, query, key, value, scaling=more["scaling"])
    return out, None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def attention(
    memory: Memory, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float
) -> Tensor:
    """What each token sees, [B, n, all heads, width], of queries [B, all heads, n, width].

    ``key`` and ``value`` [B, heads, n, width] are of the same n tokens, which are remembered. One
    softmax goes over the scores of all levels and of the row's own tokens up to each one.
    """
    batch, heads, new, width = query.shape
    kinds = key.shape[1]
    keys, values = memory.own.add(layer, key, value)
    asked = (query * scaling).reshape(batch * kinds, -1, width)
    own = torch.bmm(asked, keys.transpose(1, 2)).float()
    if new > 1 or memory.own.bias is not None:
        own.view(batch, kinds, -1, new, own.shape[-1]).add_(_own_bias(memory.own, batch, new, own))
    grid = _Grid(memory, kinds)
    scores = [grid.scores(level, layer, asked) for level in memory.levels]
    weights = torch.cat((*scores, own), -1).softmax(-1).to(value.dtype)
    *parts, last = torch.split(weights, [one.shape[-1] for one in (*scores, own)], -1)
    mixed = torch.bmm(last, values)
    for level, part in zip(memory.levels, parts, strict=True):
        mixed += grid.product(part, level.places[layer, 1])
    mixed = mixed.view(batch, kinds, -1, new, width).permute(0, 3, 1, 2, 4)
    return mixed.reshape(batch, new, heads, width)


class _Grid:
    """Where the rows [B] are among the places [G, heads, S] of their groups."""

    def __init__(self, memory: Memory, heads: int) -> None:
        self._shape = memory.groups, heads, memory.rows
        self._group, row = memory.live // memory.rows, memory.live % memory.rows
        head = torch.arange(heads, device=row.device)
        places = (self._group[:, None] * heads + head) * memory.rows + row[:, None]
        self._places = places.flatten()

    def scores(self, level: Level, layer: int, asked: Tensor) -> Tensor:
        """[B * heads, m, P] in float32 of queries [B * heads, m, width]."""
        scores = self.product(asked, level.places[layer, 0].transpose(-1, -2)).float()
        if level.bias is not None:
            bias = level.bias if len(level.bias) == 1 else level.bias[self._group]
            scores.view(-1, self._shape[1], *scores.shape[1:]).add_(bias[:, None, None])
        return scores

    def product(self, given: Tensor, shared: Tensor) -> Tensor:
        """[B * heads, m, N] of rows [B * heads, m, K] with what groups share, [G or 1, heads, K,
        N]: few large products, with room for rows that are not there."""
        groups, heads, rows = self._shape
        several, size = given.shape[1:]
        if len(shared) == 1:
            given = given.view(-1, heads, several, size).transpose(0, 1).reshape(heads, -1, size)
            found = torch.matmul(given, shared[0]).view(heads, -1, several, shared.shape[-1])
            return found.transpose(0, 1).flatten(0, 1)
        room = given.new_zeros((groups * heads * rows, several, size))
        room.index_copy_(0, self._places, given)
        found = torch.matmul(room.view(groups, heads, rows * several, size), shared)
        return found.view(len(room), several, -1)[self._places]


def _own_bias(own: OwnTokens, batch: int, new: int, like: Tensor) -> Tensor:
    """What hides later tokens from earlier ones, and padding from all: [B or 1, 1, 1, n, T]."""
    used = own.size + new
    unseen = torch.ones((new, used), dtype=torch.bool, device=like.device).triu(own.size + 1)
    bias = like.new_zeros((1, new, used)).masked_fill(unseen, _MASKED)
    if own.bias is not None:
        bias = bias + own.bias[:batch, None, :used]
    return bias[:, None, None]


class SharedPrefixes:
    """Reads prompts and rows after them; keeps keys and values of at most ``capacity`` tokens.

    ``depth``: the share of the layers after which hidden states are taken; 1 is after the last.
    """

    def __init__(self, pretrained: HubModel, *, capacity: int, depth: float) -> None:
        """
        Raises:
            ParamsError: the model attends in another way than by keys and values alone.
        """
        self._model = pretrained.model
        self._positions = pretrained.positions
        self._dtype = pretrained.dtype
        self._kept = KeptPrefixes(capacity)
        self._hidden: Tensor | None = None
        if depth < 1:
            _layer_at(self._model, depth).register_forward_hook(self._take_inner)
        else:
            self._model.base_model.register_forward_hook(self._take_last)
        self._probe()

    @property
    def capacity(self) -> int:
        """So many tokens of prompts are kept."""
        return self._kept.capacity

    @torch.inference_mode()
    def read(self, prompts: Sequence[tuple[int, ...]]) -> Past:
        """All prompts as one batch, a row each; of each at least the last token is read.

        Raises:
            SchemaError: a prompt is empty or has more tokens than the model has positions.
        """
        self.check(prompts)
        size = shared_size(prompts) if len(prompts) > 1 else 0
        shared = self._shared(prompts[0][:size]) if size >= SHARED else ()
        return self._read(prompts, shared)

    def check(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Refuse prompts that cannot be read; errors as in ``read``."""
        for prompt in prompts:
            if not 0 < len(prompt) <= self._positions:
                raise SchemaError(
                    f"a prompt of {len(prompt)} tokens, expected 1 to {self._positions}, the "
                    "model's positions"
                )

    @torch.inference_mode()
    def extend(self, past: Past, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] and hidden states [B, T, D] of tokens [B, T] read after the rows.

        For padding at the right end of ``tokens`` any token will do. ``past`` is used up.
        """
        return self._forward(tokens, self._next_positions(past, tokens.shape[1]), past.memory)

    @torch.inference_mode()
    def step(self, past: Past, tokens: Tensor) -> None:
        """One more token [B] after every row."""
        positions = self._next_positions(past, 1)
        logits, hidden = self._forward(tokens[:, None], positions, past.memory, last=True)
        past.logits, past.hidden = logits[:, -1], hidden[:, -1]

    def _next_positions(self, past: Past, count: int) -> Tensor:
        memory = past.memory
        first = past.lengths[memory.live // memory.rows] + memory.own.size
        return first[:, None] + torch.arange(count, device=first.device)

    def _shared(self, tokens: tuple[int, ...]) -> Pieces:
        """Of tokens that several prompts begin with: read alone where they are not all kept."""
        known = self._kept.longest(tokens, most=len(tokens))
        if size_of(known) == len(tokens):
            return known
        known = self._kept.longest(tokens, most=len(tokens) - 1)
        made, _, _ = self._made([tokens[size_of(known) :]], [known], [len(tokens)], ())
        pieces = (*known, made[:, :, 0].clone())
        self._kept.add(tokens, lambda: pieces)
        return pieces

    def _read(self, prompts: Sequence[tuple[int, ...]], shared: Pieces) -> Past:
        """Prompts after what is known of each; all begin with the tokens of ``shared``.

        The last token of a prompt is read again, because its logits are not kept.
        """
        start = size_of(shared)
        known = [self._kept.longest(prompt, most=len(prompt) - 1) for prompt in prompts]
        known = [pieces if size_of(pieces) >= start else shared for pieces in known]
        new = [prompt[size_of(own) :] for prompt, own in zip(prompts, known, strict=True)]
        levels = (Level(torch.cat(shared, -2)[:, :, None], None),) if shared else ()
        behind = [_behind(pieces, start) for pieces in known]
        made, logits, hidden = self._made(new, behind, list(map(len, prompts)), levels)
        rows = [made[:, :, row, :, made.shape[-2] - len(own) :] for row, own in enumerate(new)]
        for prompt, own, row in zip(prompts, known, rows, strict=True):
            self._kept.add(prompt[:-1], partial(_with, own, row[..., :-1, :]))
        level = _level([(*own, row) for own, row in zip(behind, rows, strict=True)])
        levels = levels if level is None else (*levels, level)
        lengths = torch.tensor(list(map(len, prompts)), device=logits.device)
        live = torch.arange(len(prompts), device=logits.device)
        return Past(Memory(levels, OwnTokens(), len(prompts), 1, live), lengths, logits, hidden)

    def _made(
        self,
        new: Sequence[Sequence[int]],
        known: Sequence[Sequence[Tensor]],
        lengths: Sequence[int],
        levels: tuple[Level, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [layers, 2, B, heads, T, width] of ``new`` tokens, right-aligned, and
        logits and hidden states after the last of each, read some columns at a time.

        ``lengths``: tokens of the whole prompts, whose last ones are new.
        """
        order = sorted(range(len(new)), key=lambda row: -len(new[row]))
        fresh = right_aligned([len(new[row]) for row in order]).to(self._model.device)
        tokens = torch.zeros_like(fresh)
        tokens[fresh.bool()] = torch.tensor([one for row in order for one in new[row]]).to(fresh)
        before, own = _level(known), OwnTokens(1 - fresh)
        places = torch.tensor(order, device=fresh.device)
        memory = Memory(levels if before is None else (*levels, before), own, len(new), 1, places)
        whole = torch.tensor(lengths, device=fresh.device)[places, None]
        positions = (whole - fresh.sum(1, keepdim=True) + fresh.cumsum(1) - 1).clamp(0)
        for start, stop in _parts(list(map(len, new))):
            count = int(fresh[:, stop - 1].sum())  # the longest come first
            memory.live = places[:count]
            part = slice(count), slice(start, stop)
            logits, hidden = self._forward(tokens[part], positions[part], memory, last=True)
        back = places.argsort()
        return own.stacked(back), logits[back, -1], hidden[back, -1]

    def _forward(
        self, tokens: Tensor, positions: Tensor, memory: Memory, *, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits of all tokens, or of the last one only (a vocabulary is wide), hidden states of
        all; both in float32."""
        memory.layers = 0
        # By its place, which copies the state: the product of a strided view with frozen weights is
        # made row by row, a hundred times slower.
        end = torch.tensor([tokens.shape[1] - 1], device=tokens.device)
        out = self._model(
            input_ids=tokens,
            # Taken as it is, so that no mask is made: the attention knows who sees what.
            attention_mask=tokens.new_ones((1, 1, 1, 1)),
            position_ids=positions,
            use_cache=False,
            logits_to_keep=end if last else 0,
            memory=memory,
        )
        if not memory.layers:
            raise ParamsError(_UNUSUAL.format(type(self._model).__name__, "attention of its own"))
        hidden, self._hidden = self._hidden, None
        if hidden is None:
            raise ProtocolError(
                f"{type(self._model).__name__}: its decoder gave no hidden state, expected one"
            )
        memory.own.size += tokens.shape[1]
        return out.logits.float(), hidden.float()

    def _take_last(self, _: object, __: object, out: Any) -> None:
        """The decoder's last state: to ask the model for it would keep every layer's."""
        self._hidden = out.last_hidden_state

    def _take_inner(self, _: object, __: object, out: Any) -> None:
        """A layer's state, scaled to a root mean square of 1."""
        hidden = out[0] if isinstance(out, tuple) else out
        self._hidden = functional.rms_norm(hidden.float(), hidden.shape[-1:])

    @torch.inference_mode()
    def _probe(self) -> None:
        """See that shared prefixes give the logits that the model gives by itself."""
        model = self._model
        rows = torch.tensor(_PROBE, device=model.device)
        expected = model(rows).logits[:, -1].float()
        rounding = 0.0
        if self._dtype != torch.float32:
            # Odd tokens can make large logits: as far apart as two attentions of the model's own.
            model.set_attn_implementation("eager")
            rounding = 2 * float((model(rows).logits[:, -1].float() - expected).abs().max())
        model.set_attn_implementation(NAME)
        past = self._read([row[:-1] for row in _PROBE], self._shared(_PROBE[0][:2]))
        past.take(torch.tensor([[0, 0], [1, 1]], device=rows.device))
        self.step(past, rows[:, -1].repeat_interleave(2))
        self._kept = KeptPrefixes(self._kept.capacity)
        apart = float((past.logits - expected.repeat_interleave(2, 0)).abs().max())
        allowed = _TOLERANCE.get(self._dtype, _COARSE) * float(expected.abs().max())
        if not apart <= max(allowed, rounding):
            raise ParamsError(_UNUSUAL.format(type(model).__name__, f"logits {apart:.2g} apart"))


def _layer_at(model: Any, depth: float) -> Any:
    """The layer that ends that share of all, at least the first one.

    Raises:
        ParamsError: no list of as many layers as the configuration says.
    """
    count = int(model.config.get_text_config().num_hidden_layers)
    for part in model.base_model.modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return part[max(0, round(depth * count) - 1)]
    raise ParamsError(
        f"{type(model).__name__}: given no list of the {count} layers that its configuration has, "
        "expected one, for hidden states are taken after some of them"
    )


def _parts(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Columns of right-aligned rows that are read together: few, without much padding.

    Attention holds scores of all rows, whether they have tokens in these columns or not.
    """
    longest = max(lengths)
    begins = sorted(longest - size for size in lengths)
    start = 0
    while start < longest:
        stop, used = start, 0
        while stop < longest:
            rows = bisect_right(begins, stop)
            area = rows * (stop + 1 - start)
            wasteful = area > READ_AT_LEAST and used + rows < FULL * area
            held = len(lengths) * (stop + 1 - start)
            if stop > start and (held > READ_AT_ONCE or wasteful):
                break
            stop, used = stop + 1, used + rows
        yield start, stop
        start = stop


def _level(rows: Sequence[Sequence[Tensor]]) -> Level | None:
    """Rows of pieces, right-aligned, each shared by a group of its own; None where all are
    empty."""
    places, mask = aligned(rows)
    if places is None:
        return None
    bias = None if bool(mask.all()) else (1.0 - mask.float()).to(places.device) * _MASKED
    return Level(places, bias)


def _behind(pieces: Pieces, start: int) -> list[Tensor]:
    """The pieces without their first ``start`` tokens."""
    kept = []
    for piece in pieces:
        size = piece.shape[-2]
        if start < size:
            kept.append(piece[..., start:, :])
        start = max(0, start - size)
    return kept


def _with(known: Pieces, row: Tensor) -> Pieces:
    return (*known, row.clone()) if row.shape[-2] else known
