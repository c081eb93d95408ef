"""Steps of decoding that an accelerator records once and plays again.

A step of few rows is a thousand small launches, and on an accelerator making them takes several
times as long as what they start. Here nothing that a step reads or writes moves: a row keeps its
slot and its group's place, and what is new is written into buffers. So the launches of one step are
those of the next, and CUDA repeats them by itself (CUDA graphs). The first step after rows or room
have changed is run, the second is recorded, the others are played.

Knows: fixed rows, buffers, graphs. Does not know: prompts, sampling, which rows go on. Results are
those of steps that are not recorded, but for rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from selverify.models.generators import flash_attention, shared_attention
from selverify.models.generators.flash_attention import FlashAttention, Places
from selverify.models.generators.shared_attention import (
    MASKED,
    Grid,
    Memory,
    OwnTokens,
    Past,
)

_log = logging.getLogger(__name__)
FEWER = 4
"""Slots are given up when a step uses less than one in so many."""
Run = Callable[[Tensor, Tensor, Memory], tuple[Tensor, Tensor]]
"""Logits [C, V] and hidden states [C, D] of tokens [C, 1] at positions [C, 1]."""


class FixedTokens(OwnTokens):
    """The first ``rows`` slots of ``own``, whose room does not move while this is used."""

    at: Tensor
    """[1]: the place of the next token."""

    def __init__(self, own: OwnTokens, rows: int) -> None:
        super().__init__()
        self.layers = [layer[:, :rows] for layer in own.layers]
        like = self.layers[0]
        self.used = torch.full((like.shape[3],), MASKED, device=like.device)
        self.used[: own.size] = 0.0

    def add(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Of one token a row, which goes to the place ``at``; gives all of the room."""
        held = self.layers[layer]
        for place, new in zip(held, (keys, values), strict=True):
            place.index_copy_(2, self.at, new)
        two, rows, heads, room, width = held.shape
        seen = held.view(two, rows * heads, room, width)
        return seen[0], seen[1]

    def unseen(self, batch: int, new: int, like: Tensor) -> Tensor:
        """What hides the room that is not used yet, [room]."""
        return self.used


class FixedMemory(Memory):
    """What C rows see; ``slot_of`` [G * S] are the rows at the places of the grid.

    Of places and rows that are not used, ``slot_of`` and ``live`` may say anything. Both are on
    the accelerator.
    """

    def __init__(self, past: Past, *, rows: int, groups: int, width: int) -> None:
        own = FixedTokens(past.memory.own, rows)
        sizes = rows, groups * width, rows, rows, 1
        self.given = torch.zeros(sum(sizes), dtype=torch.long, device=own.used.device)
        """All that the processor says of a step, so that it is said at once."""
        live, self.slot_of, tokens, positions, own.at = self.given.split_with_sizes(sizes)
        self.read = tokens[:, None], positions[:, None]
        super().__init__(past.memory.levels, own, groups, width, live)
        self.tokens = own
        self._flash: FlashAttention | None = None
        self._places: Places | None = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float
    ) -> Tensor:
        """As ``attention``, by a kernel that keeps no scores where one is for these numbers."""
        if not flash_attention.fits(key):
            return super().attend(layer, query, key, value, scaling=scaling)
        batch, heads, new, width = query.shape
        kinds = key.shape[1]
        own = self.tokens.add(layer, key, value)
        asked = (query * scaling).reshape(batch, kinds, -1, width)
        if self._flash is None:
            self._flash = FlashAttention(
                self.levels, width=self.rows, rows=batch, room=own[0].shape[1], heads=asked.shape[2]
            )
        if self._places is None:
            self._places = Places(self.live, self.slot_of, kinds=kinds, width=self.rows)
        seen = self._flash(layer, asked, own, self.tokens.used, self._places)
        return seen.view(batch, new, heads, width)

    def begin(self) -> None:
        """Another forward pass comes."""
        super().begin()
        self._places = None

    def _new_grid(self, heads: int) -> Grid:
        return FixedGrid(self, heads)


class FixedGrid(Grid):
    """Brings rows to their places and back by what ``memory`` says when a step is played."""

    def __init__(self, memory: FixedMemory, heads: int) -> None:
        # Not the memory itself: it would be freed late, and the room of its rows with it.
        self.heads = heads
        self._live, self._slots = memory.live, memory.slot_of
        self._group = memory.live // memory.rows

    def product(self, given: Tensor, shared: Tensor) -> Tensor:
        """[heads, B, m, N] of rows [heads, B, m, K] with [G or 1, heads, K, N]."""
        groups, heads, size, found = shared.shape
        several = given.shape[2]
        rows = given[:, self._slots] if groups > 1 else given
        rows = rows.reshape(heads, groups, -1, size).transpose(0, 1)
        product = torch.matmul(rows, shared).transpose(0, 1).reshape(heads, -1, several, found)
        return product[:, self._live] if groups > 1 else product


class Recorder:
    """Records what a function launches on an accelerator.

    A recording takes the memory of the one before, which must not be played any more.
    """

    def __init__(self) -> None:
        self.works = True
        self.recordings = 0
        self._last: torch.cuda.CUDAGraph | None = None

    def record(
        self, work: Callable[[], tuple[Tensor, Tensor]]
    ) -> tuple[torch.cuda.CUDAGraph | None, tuple[Tensor, Tensor]]:
        """What ``work`` gives, and what to play for the next time; None where it cannot be."""
        graph = torch.cuda.CUDAGraph()
        pool = None if self._last is None else self._last.pool()
        stream, found = torch.cuda.current_stream(), None
        try:
            with torch.cuda.graph(graph, pool=pool):
                found = work()
        except RuntimeError as error:
            torch.cuda.set_stream(stream)
            found = None  # also where only the end of the recording failed
            # Nothing is freed while something is recorded, so memory may be short only then.
            short = isinstance(error, torch.OutOfMemoryError) or "ALLOC_FAILED" in str(error)
            if not short:
                _log.warning("sampling: steps cannot be recorded and take longer: %s", error)
            self.works &= short
        if found is None:  # not where the error is handled, which holds what was made so far
            del graph
            self.forget()
            return None, work()
        self._last = graph
        self.recordings += 1
        graph.replay()
        return graph, found

    def forget(self) -> None:
        """Give back the memory of the last recording."""
        self._last = None
        torch.cuda.empty_cache()


class RecordedSteps:
    """Steps of one ``Past`` of at most ``rows`` rows, ``width`` of a group.

    ``recorder``: None where all steps are run, for comparison.
    """

    def __init__(
        self, run: Run, past: Past, *, rows: int, width: int, recorder: Recorder | None
    ) -> None:
        self._run = run
        self._recorder = recorder
        self._most, self._width, self._groups = rows, width, past.memory.groups
        self._memory: FixedMemory | None = None
        past.memory.stays = torch.arange(past.memory.groups)
        self._settle(past, rows, shared_attention.ROOM)

    def step(self, past: Past, tokens: Tensor, positions: Tensor) -> None:
        """One more token [B] after every row, at positions [B]; both are on the processor."""
        memory, used = past.memory, len(tokens)
        room = memory.own.layers[0].shape[3]
        if used > self._rows:  # rows that agreed until now
            self._settle(past, min(self._most, max(used, 2 * self._rows)), room)
        elif used * FEWER <= self._rows:
            self._settle(past, 2 * used, room)
        if memory.own.size == room:
            self._settle(past, self._rows, 2 * room)
        fixed, stays = self._memory, memory.stays
        assert fixed is not None and stays is not None
        places = stays[memory.live // memory.rows] * self._width + memory.live % memory.rows
        slot_of = torch.zeros(len(fixed.slot_of), dtype=torch.long)
        slot_of[places] = torch.arange(used)
        ended = torch.zeros(self._rows - used, dtype=torch.long)
        at = torch.tensor([memory.own.size])
        given = torch.cat((places, ended, slot_of, tokens, ended, positions, ended, at))
        fixed.given.copy_(given, non_blocking=True)
        fixed.tokens.used[memory.own.size] = 0.0
        logits, hidden = self._played()
        past.logits, past.hidden = logits[:used], hidden[:used]
        memory.own.size += 1

    def _settle(self, past: Past, rows: int, room: int) -> None:
        """Buffers for so many rows, and room for so many tokens of each."""
        own = past.memory.own
        self._memory = None  # its room is given up
        self._graph: torch.cuda.CUDAGraph | None = None
        self._found: tuple[Tensor, Tensor] | None = None
        self._tried = False
        if not own.layers or own.layers[0].shape[3] != room:
            own.settle(past.memory.levels[0].places, self._most, room)
        self._memory = FixedMemory(past, rows=rows, groups=self._groups, width=self._width)
        self._rows = rows

    def _played(self) -> tuple[Tensor, Tensor]:
        """Logits and hidden states of a step with what the buffers hold."""
        assert self._memory is not None
        work, recorder = (
            partial(self._run, *self._memory.read, self._memory),
            self._recorder,
        )
        with torch.cuda.device(self._memory.given.get_device()):
            if self._graph is not None and self._found is not None:
                self._graph.replay()
            elif self._found is None or self._tried or recorder is None or not recorder.works:
                self._found = work()
            else:
                self._tried = True
                self._graph, self._found = recorder.record(work)
        return self._found
