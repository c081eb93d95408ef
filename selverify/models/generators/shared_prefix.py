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
ROOM = 16
"""Places by which the rows' own tokens grow."""
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
    """Keys and values of each row's own tokens: a tensor [2, G, heads, S, room, width] a layer.

    Of the room the first ``size`` places are used; the others are 0. All of it is multiplied: a
    part of it would be copied first. ``bias`` [G, T] is that of padding among the tokens, or None.
    """

    def __init__(self, bias: Tensor | None = None) -> None:
        self.size = 0
        self.bias = bias
        self._layers: list[Tensor] = []

    def add(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's room of keys and of values with those new ones [G, heads, S, n, width]."""
        new = keys.shape[3]
        if layer == len(self._layers):
            self._layers.append(keys.new_empty((2, *keys.shape[:3], 0, keys.shape[4])))
        held, size = self._layers[layer], self.size
        if held.shape[4] < size + new:
            grown = (size + new + ROOM - 1) // ROOM * ROOM
            wider = held.new_zeros((*held.shape[:4], grown, held.shape[5]))
            wider[..., :size, :] = held[..., :size, :]
            self._layers[layer] = held = wider
        held[0, ..., size : size + new, :] = keys
        held[1, ..., size : size + new, :] = values
        return held[0], held[1]

    def take(self, groups: Tensor, slots: Tensor) -> None:
        """Keep the rows ``slots`` [G', S'] of the given groups [G'], in that order."""
        for layer, held in enumerate(self._layers):
            rows = held.transpose(2, 3)[:, groups[:, None], slots]
            self._layers[layer] = rows.transpose(2, 3).contiguous()

    def copy(self, sources: Tensor, places: Tensor) -> None:
        """Put what is at some places of the grid at others, too."""
        for held in self._layers if len(places) else ():
            rows = held.shape[3]
            (g, s), (to_g, to_s) = ((one // rows, one % rows) for one in (sources, places))
            held.transpose(2, 3)[:, to_g, to_s] = held.transpose(2, 3)[:, g, s]

    def stacked(self) -> Tensor:
        """[layers, 2, G, heads, S, size, width]."""
        return torch.stack([held[..., : self.size, :] for held in self._layers])


@dataclass(slots=True)
class Memory:
    """What a forward pass sees beside its own tokens.

    ``groups`` and ``rows`` are G and S, the grid; ``live`` [B] are its places whose rows are read,
    in order; None: all.
    """

    levels: tuple[Level, ...]
    own: OwnTokens
    groups: int
    rows: int
    live: Tensor | None = None
    layers: int = 0
    """How many layers have attended."""


@dataclass(slots=True)
class Past:
    """G groups of S rows each, row s of group g at g * S + s, and what they continue.

    ``lengths`` [G] are those of the prompts, to which each row adds ``memory.own.size`` tokens;
    ``logits`` [B, V] predict the next one of the live rows, ``hidden`` [B, D] is the state after
    the last one, at the depth that is read; both in float32.
    """

    memory: Memory
    lengths: Tensor
    logits: Tensor
    hidden: Tensor

    @torch.inference_mode()
    def take(self, grid: Tensor) -> None:
        """Go on with rows that continue those at the places ``grid`` [G', S'] of the old grid,
        ``NONE`` where no row is; several may continue one.

        The rows of a group stay together; where the groups are as many as before, some may be
        empty.
        ``logits`` and ``hidden`` are those of the old rows until the next step.
        """
        memory, wanted = self.memory, grid != NONE
        every = torch.arange(grid.numel(), device=grid.device).view(grid.shape)
        groups, olds = grid.amax(1) // memory.rows, torch.arange(len(grid), device=grid.device)
        if len(grid) == memory.groups:
            groups = groups.where(groups >= 0, olds)
        same = tuple(grid.shape) == (memory.groups, memory.rows)
        if same and torch.equal(groups, olds):
            moved = wanted & (grid != every)
            memory.own.copy(grid[moved], every[moved])
        else:
            memory.own.take(groups, (grid % memory.rows).where(wanted, 0))
            memory.levels = tuple(level.take(groups) for level in memory.levels)
            self.lengths = self.lengths[groups]
            memory.groups, memory.rows = grid.shape
        memory.live = None if bool(wanted.all()) else wanted.flatten().nonzero().flatten()


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
    softmax goes over the scores of all levels and of the row's own tokens up to each one. Rows that
    are not live are there for this alone: all else of the model costs what live rows do.
    """
    groups, rows = memory.groups, memory.rows
    if memory.live is not None:
        size = groups * rows
        query, key, value = (_spread(part, memory.live, size) for part in (query, key, value))
    batch, heads, new, width = query.shape
    kinds = key.shape[1]
    repeats = heads // kinds

    def grouped(part: Tensor) -> Tensor:
        return part.view(groups, rows, kinds, new, width).transpose(1, 2)

    keys, values = memory.own.add(layer, grouped(key), grouped(value))
    asked = (query * scaling).reshape(groups, rows, kinds, repeats * new, width).transpose(1, 2)
    flat = asked.reshape(groups, kinds, rows * repeats * new, width)
    shape = (groups, kinds, rows, repeats, new, -1)
    scores = [_level_scores(level, layer, flat).view(shape) for level in memory.levels]
    own = torch.matmul(asked, keys.transpose(-1, -2)).view(shape).float()
    scores.append(own + _own_bias(memory.own, keys.shape[3], new, own))
    weights = torch.cat(scores, -1).softmax(-1).to(value.dtype)
    parts = torch.split(weights, [one.shape[-1] for one in scores], -1)
    mixed = torch.matmul(parts[-1].reshape(*asked.shape[:-1], -1), values)
    mixed = mixed.view(groups, kinds, rows * repeats * new, width)
    for level, part in zip(memory.levels, parts, strict=False):
        mixed = mixed + _level_mix(level, layer, part.reshape(*flat.shape[:-1], -1))
    mixed = mixed.view(groups, kinds, rows, repeats, new, width)
    mixed = mixed.permute(0, 2, 4, 1, 3, 5).reshape(batch, new, heads, width)
    return mixed if memory.live is None else mixed[memory.live]


def _spread(part: Tensor, live: Tensor, size: int) -> Tensor:
    """Live rows at their places of a grid of so many, 0 elsewhere."""
    return part.new_zeros((size, *part.shape[1:])).index_copy_(0, live, part)


def _level_scores(level: Level, layer: int, asked: Tensor) -> Tensor:
    """[G, heads, M, P] in float32 of queries [G, heads, M, width]."""
    keys = level.places[layer, 0]
    if len(keys) == len(asked):
        scores = torch.matmul(asked, keys.transpose(-1, -2)).float()
    else:
        scores = torch.matmul(_together(asked), keys[0].transpose(-1, -2)).float()
        scores = _apart(scores, len(asked))
    return scores if level.bias is None else scores + level.bias[:, None, None]


def _level_mix(level: Level, layer: int, weights: Tensor) -> Tensor:
    """[G, heads, M, width] of weights [G, heads, M, P]."""
    values = level.places[layer, 1]
    if len(values) == len(weights):
        return torch.matmul(weights, values)
    return _apart(torch.matmul(_together(weights), values[0]), len(weights))


def _together(parts: Tensor) -> Tensor:
    """[heads, G * M, _] of [G, heads, M, _]: one matrix for all groups."""
    groups, heads, size, width = parts.shape
    return parts.transpose(0, 1).reshape(heads, groups * size, width)


def _apart(parts: Tensor, groups: int) -> Tensor:
    heads, size, width = parts.shape
    return parts.view(heads, groups, size // groups, width).transpose(0, 1).contiguous()


def _own_bias(own: OwnTokens, room: int, new: int, like: Tensor) -> Tensor:
    """What hides later tokens from earlier ones, and padding and unused room from all:
    [G or 1, 1, 1, 1, n, room]."""
    unseen = torch.ones((new, room), dtype=torch.bool, device=like.device).triu(own.size + 1)
    bias = like.new_zeros((new, room)).masked_fill(unseen, _MASKED)[None, None, None, None]
    if own.bias is None:
        return bias
    padding = functional.pad(own.bias, (0, max(0, room - own.bias.shape[1])))[:, :room]
    return bias + padding[:, None, None, None, None]


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
        first = past.lengths.repeat_interleave(past.memory.rows) + past.memory.own.size
        if past.memory.live is not None:
            first = first[past.memory.live]
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
        return Past(Memory(levels, OwnTokens(), len(prompts), 1), lengths, logits, hidden)

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
        fresh = right_aligned(list(map(len, new))).to(self._model.device)
        tokens = torch.zeros_like(fresh)
        tokens[fresh.bool()] = torch.tensor([one for part in new for one in part]).to(fresh)
        before = _level(known)
        memory = Memory(
            levels if before is None else (*levels, before),
            OwnTokens((1.0 - fresh.float()) * _MASKED),
            len(new),
            1,
        )
        first = torch.tensor(lengths).to(fresh)[:, None] - fresh.sum(1, keepdim=True)
        positions = (first + fresh.cumsum(1) - 1).clamp(0)
        for start, stop in _parts(list(map(len, new))):
            live = fresh[:, stop - 1].nonzero().flatten()
            memory.live = None if len(live) == len(new) else live
            part = live, slice(start, stop)
            logits, hidden = self._forward(tokens[part], positions[part], memory, last=True)
        return memory.own.stacked()[..., 0, :, :], logits[:, -1], hidden[:, -1]

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
