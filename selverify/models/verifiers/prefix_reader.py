"""A backbone read over many lines of tokens, and one score at each step's end.

Knows: batches, beginnings that lines share, keys and values, what was scored before. Does not know:
texts, layouts, how a score follows from a hidden state.

A line is read after the longest beginning of it whose keys and values are at hand: one that lines
of the same state share, or one that an earlier call ended with. Padding stands at the right, where
a causal model cannot see it, and before shorter beginnings, where the mask hides it. In float32 a
score does not depend on the batch; in half precision its last digits may.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.models.verifiers.steps import Encoder, Line, state_key
from selverify.search.requests import VerifyItem
from selverify.types import Verdict

WORTH = 32
"""Tokens spared that a forward pass of its own is worth."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What reading may take at once, and what is remembered between calls.

    Attributes:
        batch_tokens: tokens, padding included, in one forward pass; a longer line runs alone.
        remembered_scores: step scores kept by the tokens before them.
        kept_tokens: tokens of lines whose keys and values are kept for their continuation; 0 for
            none. A token takes 2 * layers * heads of keys * their width numbers.
    """

    batch_tokens: int
    remembered_scores: int
    kept_tokens: int

    def __post_init__(self) -> None:
        if self.batch_tokens < 1 or self.remembered_scores < 0 or self.kept_tokens < 0:
            raise ParamsError(
                f"given {self}, expected batch_tokens of at least 1 and the others of at least 0"
            )


@dataclass(frozen=True, slots=True)
class Job:
    """A line that has to be read: which of its steps, and what it shares a state with."""

    line: Line
    wanted: tuple[int, ...]
    state: tuple[str, ...]

    @property
    def first(self) -> int:
        """The place of the first score that is wanted."""
        return self.line.reads[self.wanted[0]]


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens to be read after a beginning of them, [layers, 2, heads, T, width] or None for none.

    Scores are read at ``reads``; with ``keep`` the keys and values of all tokens come back.
    """

    tokens: Sequence[int]
    begun: Tensor | None
    reads: tuple[int, ...]
    keep: bool

    @property
    def old(self) -> int:
        """The number T of tokens that need not be read."""
        return 0 if self.begun is None else self.begun.shape[-2]

    @property
    def new(self) -> int:
        """The number of tokens that are read."""
        return len(self.tokens) - self.old


class HiddenStateVerifier:
    """A verifier whose step scores follow from a causal backbone's hidden states."""

    def __init__(
        self,
        encoder: Encoder,
        backbone: Any,
        head: Callable[[Tensor], Tensor],
        *,
        identity: str,
        effort: Effort,
    ) -> None:
        """
        Args:
            backbone: a transformers model without a head, in evaluation mode.
            head: scores [N] in [0, 1] from hidden states [N, D] in float32.
            identity: of the weights, the layout and the precision.
        """
        self._encoder = encoder
        self._backbone = backbone
        self._head = head
        self._identity = identity
        self._effort = effort
        self._positions = int(backbone.config.max_position_embeddings)
        self._scores: OrderedDict[bytes, float] = OrderedDict()
        self._begun: OrderedDict[bytes, Tensor] = OrderedDict()
        self._kept_tokens = 0

    def identity(self) -> str:
        """Content id of the weights, the layout and the precision."""
        return self._identity

    @torch.inference_mode()
    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """One verdict an item, a score for each of its steps.

        Raises:
            SchemaError: an item has more tokens than the model has positions.
            ProtocolError: an item has no step, or the model's score of a step is no number.
        """
        lines = [self._line(item) for item in items]
        found = {
            key: self._scores[key]
            for line in lines
            for key in line.keys[-line.new :]
            if key in self._scores
        }
        for chunk in _chunks(_jobs(items, lines, found), self._effort.batch_tokens):
            found |= self._read(chunk)
        self._remember(found)
        return tuple(_verdict([found[key] for key in line.keys[-line.new :]]) for line in lines)

    def _line(self, item: VerifyItem) -> Line:
        line = self._encoder.line(item)
        if len(line.tokens) > self._positions:
            raise SchemaError(
                f"{item.state.problem.problem_id}: given {len(line.tokens)} tokens of a question "
                f"with {len(line.reads)} steps, expected at most {self._positions}, the model's "
                "positions"
            )
        return line

    def _read(self, jobs: Sequence[Job]) -> dict[bytes, float]:
        """The wanted scores of a chunk, by key."""
        shared = self._shared(jobs)
        rows = []
        for job in jobs:
            begun = shared.get(job.state)
            if begun is None:
                begun = self._longest(job.line, below=job.first)
            reads = tuple(job.line.reads[place] for place in job.wanted)
            rows.append(Row(job.line.tokens, begun, reads, keep=self._effort.kept_tokens > 0))
        found: dict[bytes, float] = {}
        for place, scores, states in self._forward(rows):
            job = jobs[place]
            keys = [job.line.keys[step] for step in job.wanted]
            found |= zip(keys, scores, strict=True)
            if states is not None:
                self._keep(job.line.keys[-1], states)
        return found

    def _shared(self, jobs: Sequence[Job]) -> dict[tuple[str, ...], Tensor]:
        """Keys and values of the beginning that a state's lines share, where it is worth it."""
        rows: dict[tuple[str, ...], Row] = {}
        for state, group in _by_state(jobs).items():
            same = min(_shared_size(group), *(job.first for job in group))
            begun = self._longest(group[0].line, below=same)
            row = Row(group[0].line.tokens[:same], begun, (), keep=True)
            if (same - row.old) * (len(group) - 1) >= WORTH:
                rows[state] = row
        read = self._forward(list(rows.values()))
        states = list(rows)
        return {states[place]: part for place, _, part in read if part is not None}

    def _longest(self, line: Line, *, below: int) -> Tensor | None:
        """What is kept of the longest beginning with at most ``below`` tokens."""
        for read, key in zip(reversed(line.reads), reversed(line.keys), strict=True):
            if read < below and key in self._begun:
                self._begun.move_to_end(key)
                return self._begun[key]
        return None

    def _forward(self, rows: Sequence[Row]) -> Iterator[tuple[int, list[float], Tensor | None]]:
        """Of each row, in any order: its place, its scores, its keys and values if kept."""
        for places in _batches(rows, self._effort.batch_tokens):
            batch = [rows[place] for place in places]
            hidden, cache = self._pass(batch)
            scores = iter(self._score(batch, hidden))
            past = max(row.old for row in batch)
            for at, (place, row) in enumerate(zip(places, batch, strict=True)):
                states = _states(cache, at, past - row.old, len(row.tokens)) if row.keep else None
                yield place, [next(scores) for _ in row.reads], states

    def _pass(self, batch: Sequence[Row]) -> tuple[Tensor, Any]:
        """Hidden states [B, S, D] of the new tokens, and the cache if one is needed."""
        device = self._backbone.device
        old = torch.tensor([row.old for row in batch])
        new = [torch.tensor(row.tokens[row.old :]) for row in batch]
        tokens = torch.nn.utils.rnn.pad_sequence(new, batch_first=True)
        past = int(old.max())
        mask = torch.arange(past + tokens.shape[1]) >= past - old[:, None]
        # Some models scale their positions by the largest one, so padding must not add to it.
        last = torch.tensor([len(row.tokens) - 1 for row in batch])
        positions = torch.minimum(old[:, None] + torch.arange(tokens.shape[1]), last[:, None])
        cache = _joined(batch, past) if past else None
        if cache is None and any(row.keep for row in batch):
            cache = DynamicCache()
        out = self._backbone(
            input_ids=tokens.to(device),
            attention_mask=mask.long().to(device),
            position_ids=positions.to(device),
            past_key_values=cache,
            use_cache=cache is not None,
        )
        return out.last_hidden_state, cache

    def _score(self, batch: Sequence[Row], hidden: Tensor) -> list[float]:
        places = [(at, read - row.old) for at, row in enumerate(batch) for read in row.reads]
        if not places:
            return []
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
        while len(self._scores) > self._effort.remembered_scores:
            self._scores.popitem(last=False)

    def _keep(self, key: bytes, states: Tensor) -> None:
        if key in self._begun:
            self._begun.move_to_end(key)
            return
        self._begun[key] = states
        self._kept_tokens += states.shape[-2]
        while self._kept_tokens > self._effort.kept_tokens:
            _, oldest = self._begun.popitem(last=False)
            self._kept_tokens -= oldest.shape[-2]


def _jobs(
    items: Sequence[VerifyItem], lines: Sequence[Line], found: dict[bytes, float]
) -> list[Job]:
    """Lines to be read, the longest first; a step that several have in common is read once."""
    taken = set(found)
    jobs = []
    for place in sorted(range(len(lines)), key=lambda one: -len(lines[one].tokens)):
        line = lines[place]
        new = range(len(line.keys) - line.new, len(line.keys))
        wanted = tuple(step for step in new if line.keys[step] not in taken)
        if wanted:
            taken.update(line.keys[step] for step in wanted)
            jobs.append(Job(line, wanted, state_key(items[place].state)))
    return jobs


def _by_state(jobs: Sequence[Job]) -> dict[tuple[str, ...], list[Job]]:
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.state, []).append(job)
    return groups


def _shared_size(jobs: Sequence[Job]) -> int:
    """How many tokens all lines begin with."""
    lines = [job.line.tokens for job in jobs]
    first, last = min(lines), max(lines)  # lexicographic: the two that differ earliest
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), len(first))


def _chunks(jobs: Sequence[Job], limit: int) -> Iterator[list[Job]]:
    """Whole states of at most ``limit`` tokens together, or one state alone."""
    chunk: list[Job] = []
    size = 0
    for group in _by_state(jobs).values():
        more = sum(len(job.line.tokens) for job in group)
        if chunk and size + more > limit:
            yield chunk
            chunk, size = [], 0
        chunk += group
        size += more
    if chunk:
        yield chunk


def _batches(rows: Sequence[Row], limit: int) -> Iterator[list[int]]:
    """Places of rows of similar shape whose padded area is at most ``limit``, or of one row."""
    batch: list[int] = []
    past = 0
    for place in sorted(range(len(rows)), key=lambda at: (rows[at].new, rows[at].old)):
        past = max(past, rows[place].old)
        if batch and (past + rows[place].new) * (len(batch) + 1) > limit:
            yield batch
            batch, past = [], rows[place].old
        batch.append(place)
    if batch:
        yield batch


def _joined(batch: Sequence[Row], past: int) -> DynamicCache:
    """The beginnings side by side, each aligned at its right end with what follows."""
    example = next(row.begun for row in batch if row.begun is not None)
    layers, two, heads, _, width = example.shape
    places = example.new_zeros((layers, two, len(batch), heads, past, width))
    for at, row in enumerate(batch):
        if row.begun is not None:
            places[:, :, at, :, past - row.old :] = row.begun
    return DynamicCache([(layer[0], layer[1]) for layer in places])


def _states(cache: Any, row: int, start: int, size: int) -> Tensor:
    """A row's keys and values [layers, 2, heads, size, width], as a copy without padding."""
    layers = [
        torch.stack([part[row, :, start : start + size] for part in (layer.keys, layer.values)])
        for layer in cache.layers
    ]
    return torch.stack(layers)


def _verdict(scores: Sequence[float]) -> Verdict:
    return Verdict(scores[-1], tuple(scores))
