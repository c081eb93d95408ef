"""Prompts that a hub model reads once, and rows of tokens after them that share what was read.

Knows: what is kept, how prompts and steps go through the model. Does not know: requests, texts,
sampling, scores. Results do not depend on what is kept or who shares it, but for rounding.

A state's prompt begins with that of the state before it, and all prompts begin with the same
examples, so only what is new of them is read (``shared_attention``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from selverify.errors import ParamsError, ProtocolError, SchemaError, SelverifyError
from selverify.models.generators.prefix_cache import (
    KeptPrefixes,
    Pieces,
    aligned,
    right_aligned,
    shared_size,
    size_of,
)
from selverify.models.generators.pretrained import HubModel
from selverify.models.generators.recorded_steps import RecordedSteps, Recorder
from selverify.models.generators.shared_attention import (
    EVEN,
    MASKED,
    NAME,
    UNUSUAL,
    Level,
    Memory,
    OwnTokens,
    Past,
)

SHARED = 16
"""What all prompts of a batch begin with is read and kept by itself from so many tokens on."""
READ_AT_LEAST, READ_AT_ONCE = 512, 2048
"""Tokens that go through the model together where prompts are read; less make slow products."""
FULL = 0.75
"""So much of what is read together is not padding, but for the first tokens of it."""
_PROBE = "Each of 3 boxes holds 4 red and 5 green pens, so there are 27 pens."
_PROBED = ((0, 1, 2, 3, 4), (0, 1, 5, 6, 7))
"""Which tokens of the text are read: two rows that begin alike."""
_TOLERANCE = {torch.float32: 1e-3}
_COARSE = 0.1


class SharedPrefixes:
    """Reads prompts and rows after them; keeps keys and values of at most ``capacity`` tokens.

    ``depth``: the share of the layers after which hidden states are taken; 1 is after the last.
    """

    def __init__(
        self, pretrained: HubModel, *, capacity: int, depth: float, fixed: bool | None = None
    ) -> None:
        """``fixed``: whether rows stay where they are while they are decoded, so that steps can be
        recorded; None: on an accelerator.

        Raises:
            ParamsError: the model attends in another way than by keys and values alone.
        """
        self._model = pretrained.model
        self._positions = pretrained.positions
        self._dtype = pretrained.dtype
        self._kept = KeptPrefixes(capacity)
        self._recorder = Recorder() if self._model.device.type == "cuda" else None
        self._fixed = self._recorder is not None if fixed is None else fixed
        whole = depth == 1
        self._read_after = self._model.base_model if whole else _layer_at(self._model, depth)
        self._state_of = _last_state if whole else _inner_state
        self._probe(pretrained.tokenizer.encode(_PROBE, add_special_tokens=False))

    def forget_recordings(self) -> None:
        """Give back the memory of recorded steps, where there are any."""
        if self._recorder is not None:
            self._recorder.forget()

    @property
    def recordings(self) -> int:
        """How often steps were recorded."""
        return 0 if self._recorder is None else self._recorder.recordings

    @property
    def capacity(self) -> int:
        """So many tokens of prompts are kept."""
        return self._kept.capacity

    def reading_turns(self, prompts: Sequence[tuple[int, ...]]) -> list[int]:
        """The turn in which to read each, from 0 on: first those of which what is kept was used
        last. The prompts of a turn have half the capacity's tokens together."""
        turns, turn, filled = [0] * len(prompts), 0, 0
        for place in self._kept.latest_first(prompts):
            size = len(prompts[place])
            if filled and (filled + size) * 2 > self.capacity:
                turn, filled = turn + 1, 0
            turns[place], filled = turn, filled + size
        return turns

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
        positions = self._next_positions(past, tokens.shape[1]).to(tokens.device)
        logits, hidden = self._forward(tokens, positions, past.memory)
        past.memory.own.size += tokens.shape[1]
        return logits.float(), hidden

    @torch.inference_mode()
    def expect(self, past: Past, *, rows: int, width: int) -> None:
        """Steps of at most so many rows will follow, ``width`` of them in a group: get ready."""
        past.memory.own.rows = rows
        if self._fixed:
            past.steps = RecordedSteps(
                self._fixed_step, past, rows=rows, width=width, recorder=self._recorder
            )

    @torch.inference_mode()
    def step(self, past: Past, tokens: Tensor) -> None:
        """One more token [B] after every row; ``tokens`` are on the processor."""
        positions = self._next_positions(past, 1)
        if past.steps is not None:
            past.steps.step(past, tokens, positions[:, 0])
            return
        tokens, positions = (part.to(self._model.device) for part in (tokens, positions))
        logits, hidden = self._forward(tokens[:, None], positions, past.memory, last=True)
        past.memory.own.size += 1
        past.logits, past.hidden = logits[:, -1].float(), hidden[:, -1]

    def _fixed_step(
        self, tokens: Tensor, positions: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor]:
        logits, hidden = self._forward(tokens, positions, memory)
        return logits[:, -1], hidden[:, -1]

    def _next_positions(self, past: Past, count: int) -> Tensor:
        memory = past.memory
        first = past.lengths[memory.live // memory.rows] + memory.own.size
        return first[:, None] + torch.arange(count)

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
        whole = [(*own, row) for own, row in zip(behind, rows, strict=True)]
        level = _level(whole, multiple=EVEN if self._fixed else 1)
        levels = levels if level is None else (*levels, level)
        lengths, live = torch.tensor(list(map(len, prompts))), torch.arange(len(prompts))
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
        before, own = _level(known, multiple=1), OwnTokens(1 - fresh)
        places = torch.tensor(order)
        memory = Memory(levels if before is None else (*levels, before), own, len(new), 1, places)
        whole = torch.tensor(lengths)[places, None].to(fresh)
        positions = (whole - fresh.sum(1, keepdim=True) + fresh.cumsum(1) - 1).clamp(0)
        for start, stop in _parts(list(map(len, new))):
            count = int(fresh[:, stop - 1].sum())  # the longest come first
            memory.live = places[:count]
            part = slice(count), slice(start, stop)
            logits, hidden = self._forward(tokens[part], positions[part], memory, last=True)
            own.size += stop - start
        back = places.argsort().to(fresh.device)
        return own.stacked(back), logits[back, -1].float(), hidden[back, -1]

    def _forward(
        self, tokens: Tensor, positions: Tensor, memory: Memory, *, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits of all tokens, or of the last one only (a vocabulary is wide), in the model's
        numbers; hidden states of all in float32."""
        memory.begin()
        states: list[Tensor] = []
        reading = self._read_after.register_forward_hook(
            lambda layer, given, out: states.append(self._state_of(out))
        )
        # By its place, which copies the state: the product of a strided view with frozen weights is
        # made row by row, a hundred times slower.
        try:
            out = self._model(
                input_ids=tokens,
                # Taken as it is, so that no mask is made: the attention knows who sees what.
                attention_mask=tokens.new_ones((1, 1, 1, 1)),
                position_ids=positions,
                use_cache=False,
                logits_to_keep=torch.tensor([tokens.shape[1] - 1], device=tokens.device)
                if last
                else 0,
                memory=memory,
            )
        finally:
            reading.remove()
        if not memory.layers:
            raise ParamsError(UNUSUAL.format(type(self._model).__name__, "attention of its own"))
        if not states:
            raise ProtocolError(
                f"{type(self._model).__name__}: its decoder gave no hidden state, expected one"
            )
        return out.logits, states[0].float()

    @torch.inference_mode()
    def _probe(self, text: Sequence[int]) -> None:
        """See that shared prefixes give the logits that the model gives by itself.

        Of a text: what tokens that never follow each other give is mostly rounding in half
        precision.
        """
        model, given = self._model, [[text[at % len(text)] for at in row] for row in _PROBED]
        rows = torch.tensor(given, device=model.device)
        expected = model(rows).logits[:, -1].float()
        rounding = 0.0
        if self._dtype != torch.float32:
            # As far apart as two attentions of the model's own.
            model.set_attn_implementation("eager")
            rounding = 2 * float((model(rows).logits[:, -1].float() - expected).abs().max())
        model.set_attn_implementation(NAME)
        try:
            past = self._read([tuple(row[:-1]) for row in given], self._shared(tuple(given[0][:2])))
            self.expect(past, rows=4, width=2)
            past.take(torch.tensor([[0, 0], [1, 1]]))
            self.step(past, torch.tensor([row[-1] for row in given]).repeat_interleave(2))
        except SelverifyError:
            raise
        except (AttributeError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise ParamsError(UNUSUAL.format(type(model).__name__, reason)) from error
        self._kept = KeptPrefixes(self._kept.capacity)
        apart = float((past.logits - expected.repeat_interleave(2, 0)).abs().max())
        allowed = _TOLERANCE.get(self._dtype, _COARSE) * float(expected.abs().max())
        if not apart <= max(allowed, rounding):
            raise ParamsError(UNUSUAL.format(type(model).__name__, f"logits {apart:.2g} apart"))


def _last_state(out: Any) -> Tensor:
    """The decoder's last state: to ask the model for it would keep every layer's."""
    state: Tensor = out.last_hidden_state
    return state


def _inner_state(out: Any) -> Tensor:
    """A layer's state, scaled to a root mean square of 1."""
    state = out[0] if isinstance(out, tuple) else out
    return functional.rms_norm(state.float(), state.shape[-1:])


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


def _level(rows: Sequence[Sequence[Tensor]], *, multiple: int) -> Level | None:
    """Rows of pieces, right-aligned, each shared by a group of its own; None where all are
    empty."""
    places, mask = aligned(rows, multiple=multiple)
    if places is None:
        return None
    bias = None if bool(mask.all()) else (1.0 - mask.float()).to(places.device) * MASKED
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
