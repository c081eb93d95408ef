"""A backbone read over many lines of tokens, and one score at each step's end.

Knows: batches, prefixes that lines share, keys and values, what was scored before, what finds no
room. Does not know: texts, layouts, how a score follows from a hidden state.

A line is read after the longest prefix of it whose keys and values are kept: one that lines of the
same state share, or one that an earlier call ended with. Padding is at the right, where a causal
model cannot see it, and before shorter prefixes, where the mask hides it. In float32 a score does
not depend on the batch; in half precision its last digits may.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from selverify.errors import ParamsError, ProtocolError
from selverify.models.generators.causal import is_out_of_memory
from selverify.models.generators.prefix_cache import (
    KeptPrefixes,
    Pieces,
    aligned,
    row_of,
    shared_size,
    size_of,
)
from selverify.models.generators.sampling import in_batches
from selverify.models.no_room import NO_ROOM_SCORE
from selverify.models.parameter_count import parameters_of
from selverify.models.verifiers.steps import Encoder, Line, state_key, verdict_of
from selverify.search.requests import VerifyItem
from selverify.types import Verdict

WORTH = 32
"""Tokens spared that a forward pass of its own is worth."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Job:
    """A line that has to be read, for the scores of its steps ``wanted``."""

    line: Line
    wanted: tuple[int, ...]

    @property
    def first(self) -> int:
        """The place of the first score that is wanted."""
        return self.line.reads[self.wanted[0]]


@dataclass(frozen=True, slots=True)
class _Row:
    """Tokens to be read after a prefix of them."""

    tokens: Sequence[int]
    prefix: Pieces

    @property
    def old(self) -> int:
        """The number T of tokens that need not be read."""
        return size_of(self.prefix)

    @property
    def new(self) -> int:
        """The number of tokens that are read."""
        return len(self.tokens) - self.old


@dataclass(frozen=True, slots=True)
class _Pass:
    """One forward pass over the rows at ``places``: hidden states [B, S, D] of their new tokens.

    A row may see the places of ``cache`` that ``mask`` [B, P] shows; all are empty unless kept.
    """

    places: list[int]
    hidden: Tensor
    cache: DynamicCache
    mask: Tensor


class HiddenStateVerifier:
    """A verifier whose step scores follow from a causal backbone's hidden states."""

    def __init__(
        self,
        encoder: Encoder,
        backbone: Any,
        head: Callable[[Tensor], Tensor],
        *,
        identity: str,
        batch_tokens: int,
        remembered_scores: int,
        kept_tokens: int,
    ) -> None:
        """
        Args:
            backbone: a transformers model without a head, in evaluation mode.
            head: scores [N] in [0, 1] from hidden states [N, D] in float32.
            identity: of the weights, the layout and the precision.
            batch_tokens: tokens, padding included, in one forward pass; a longer line runs alone.
            remembered_scores: step scores kept by the tokens before them.
            kept_tokens: tokens of lines whose keys and values are kept for their continuation; 0
                for none. A token takes 2 * layers * heads of keys * their width numbers.
        """
        self._encoder = encoder
        self._backbone = backbone
        self._head = head
        self._identity = identity
        self._batch_tokens = batch_tokens
        self._remembered_scores = remembered_scores
        self._positions = int(backbone.config.max_position_embeddings)
        self._scores: OrderedDict[bytes, float] = OrderedDict()
        self._kept = KeptPrefixes(kept_tokens)
        self._warned = False

    def identity(self) -> str:
        """Content id of the weights, the layout and the precision."""
        return self._identity

    def parameters(self) -> int:
        """Of the backbone; a head on it adds less than a hundredth."""
        return parameters_of(self._backbone)

    @torch.inference_mode()
    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item, a score for each of its steps.

        A step that ends behind the model's last position scores ``NO_ROOM_SCORE``.

        Raises:
            ProtocolError: an item has no step, or the model's score of a step is no number.
            ParamsError: there is no memory for an item alone.
        """
        lines = [self._line(item) for item in items]
        asked = [line.keys[-line.new :] for line in lines]
        found = {key: self._scores[key] for keys in asked for key in keys if key in self._scores}
        for line in lines:
            ends = zip(line.keys, line.reads, strict=True)
            found |= {key: NO_ROOM_SCORE for key, read in ends if read >= self._positions}
        states = _jobs(items, lines, set(found))
        while states:
            some = next(in_batches(states, self._fits_at_once))
            read = self._read_if_it_fits(some)
            if read is not None:
                found |= read
                states = states[len(some) :]
        self._remember(found)
        return tuple(verdict_of([found[key] for key in keys]) for keys in asked)

    def _line(self, item: VerifyItem) -> Line:
        """The item's line, up to the last step that the model has positions for."""
        line = self._encoder.line(item)
        if len(line.tokens) <= self._positions:
            return line
        if not self._warned:
            self._warned = True
            _log.warning(
                "verifier: %s: given %d tokens of a question with %d steps, expected at most %d, "
                "the model's positions; a step without room scores %s",
                item.state.problem.problem_id,
                len(line.tokens),
                len(line.reads),
                self._positions,
                NO_ROOM_SCORE,
            )
        last = max((read for read in line.reads if read < self._positions), default=-1)
        return replace(line, tokens=line.tokens[: last + 1])

    def _fits_at_once(self, states: Sequence[Sequence[_Job]]) -> bool:
        """Whether the lines of whole states have few enough tokens to be read together."""
        tokens = sum(len(job.line.tokens) for jobs in states for job in jobs)
        return tokens <= self._batch_tokens

    def _read_if_it_fits(self, states: Sequence[Sequence[_Job]]) -> dict[bytes, float] | None:
        """As ``_read``; None where memory was short and less is to be read at once.

        Raises:
            ParamsError: it is short for a line alone.
        """
        try:
            return self._read(states)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            sizes = [len(job.line.tokens) for jobs in states for job in jobs]
            if not self._halve_batches(sizes):
                raise ParamsError(
                    f"verifier.source: given a question with steps of {max(sizes)} tokens, "
                    "expected memory for them: a smaller model, another dtype, or another device"
                ) from error
        return None

    def _halve_batches(self, sizes: Sequence[int]) -> bool:
        """Drop what is kept, and from now on keep half as much, or read half as much at once,
        whichever was more.

        False: it was one line, and nothing was kept. ``sizes``: tokens of the lines.
        """
        longest, held = max(sizes), self._kept.size
        together = min(self._batch_tokens, longest * len(sizes))
        if together <= longest and not held:
            return False
        fewer = held > together or together <= longest
        if not fewer:
            self._batch_tokens = max(longest, together // 2)
        self._kept = KeptPrefixes(held // 2 if fewer else self._kept.capacity)
        _log.warning(
            "verifier: no memory for %d tokens together beside %d kept ones, going on with %d and "
            "at most %d (batch_tokens, kept_tokens)",
            together,
            held,
            min(self._batch_tokens, together),
            self._kept.capacity,
        )
        return True

    def _read(self, states: Sequence[Sequence[_Job]]) -> dict[bytes, float]:
        """The wanted scores of the states' lines, by key."""
        prefixes = self._shared(states)
        jobs, rows = [], []
        for place, some in enumerate(states):
            for job in some:
                prefix = prefixes.get(place)
                if prefix is None:
                    prefix = self._kept.longest(job.line.tokens, most=job.first)
                jobs.append(job)
                rows.append(_Row(job.line.tokens, prefix))
        found: dict[bytes, float] = {}
        keep = self._kept.capacity > 0
        for done in self._passes(rows, keep=keep):
            wanted = [
                (at, rows[place].old, jobs[place].line, step)
                for at, place in enumerate(done.places)
                for step in jobs[place].wanted
            ]
            columns = [(at, line.reads[step] - old) for at, old, line, step in wanted]
            keys = [line.keys[step] for _, _, line, step in wanted]
            found |= zip(keys, self._score(done.hidden, columns), strict=True)
            for at, place in enumerate(done.places if keep else ()):
                tokens = rows[place].tokens
                made = partial(row_of, done.cache, done.mask, at, len(tokens))
                self._kept.add(tokens, made)
        return found

    def _shared(self, states: Sequence[Sequence[_Job]]) -> dict[int, Pieces]:
        """By state: keys and values of the prefix of its lines, where reading it pays."""
        rows: dict[int, _Row] = {}
        for place, jobs in enumerate(states):
            lines = [job.line.tokens for job in jobs]
            size = min(shared_size(lines), *(job.first for job in jobs))
            row = _Row(lines[0][:size], self._kept.longest(lines[0], most=size))
            if row.new * (len(jobs) - 1) >= WORTH:
                rows[place] = row
        names = list(rows)
        return {
            names[place]: row_of(done.cache, done.mask, at, len(rows[names[place]].tokens))
            for done in self._passes(list(rows.values()), keep=True)
            for at, place in enumerate(done.places)
        }

    def _passes(self, rows: Sequence[_Row], *, keep: bool) -> Iterator[_Pass]:
        """Rows of similar shape together, in any order, whose padded area is small enough."""

        def fits(batch: Sequence[int]) -> bool:
            width = max(rows[at].old for at in batch) + max(rows[at].new for at in batch)
            return width * len(batch) <= self._batch_tokens

        order = sorted(range(len(rows)), key=lambda at: (rows[at].new, rows[at].old))
        for places in in_batches(order, fits):
            yield self._pass(places, [rows[at] for at in places], keep=keep)

    def _pass(self, places: list[int], batch: Sequence[_Row], *, keep: bool) -> _Pass:
        device = self._backbone.device
        new = [torch.tensor(row.tokens[row.old :]) for row in batch]
        tokens = pad_sequence(new, batch_first=True).to(device)
        before, mask = aligned([row.prefix for row in batch])
        cache = DynamicCache(None if before is None else [(one[0], one[1]) for one in before])
        mask = torch.cat((mask.to(device), torch.ones_like(tokens)), 1)
        # Some models scale their positions by the largest one, so padding must not add to it.
        old = torch.tensor([row.old for row in batch])
        last = torch.tensor([len(row.tokens) - 1 for row in batch])
        positions = torch.minimum(old[:, None] + torch.arange(tokens.shape[1]), last[:, None])
        used = cache if keep or old.any() else None
        out = self._backbone(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions.to(device),
            past_key_values=used,
            use_cache=used is not None,
        )
        return _Pass(places, out.last_hidden_state, cache, mask)

    def _score(self, hidden: Tensor, places: Sequence[tuple[int, int]]) -> list[float]:
        """Scores at (row, column) of ``hidden``."""
        rows, columns = torch.tensor(places, device=hidden.device).T
        scores: list[float] = self._head(hidden[rows, columns].float()).tolist()
        if not all(map(math.isfinite, scores)):
            raise ProtocolError(
                f"the model gave {scores}, expected a number for each step; try another dtype"
            )
        return scores

    def _remember(self, found: dict[bytes, float]) -> None:
        for key, score in found.items():
            self._scores[key] = score
            self._scores.move_to_end(key)
        while len(self._scores) > self._remembered_scores:
            self._scores.popitem(last=False)


def _jobs(
    items: Sequence[VerifyItem], lines: Sequence[Line], known: set[bytes]
) -> list[list[_Job]]:
    """Lines to be read by state, the longest first; a step that several share is read once."""
    states: dict[tuple[str, ...], list[_Job]] = {}
    for place in sorted(range(len(lines)), key=lambda one: -len(lines[one].tokens)):
        line = lines[place]
        new = range(len(line.keys) - line.new, len(line.keys))
        wanted = tuple(step for step in new if line.keys[step] not in known)
        if wanted:
            known |= {line.keys[step] for step in wanted}
            states.setdefault(state_key(items[place].state), []).append(_Job(line, wanted))
    return list(states.values())
