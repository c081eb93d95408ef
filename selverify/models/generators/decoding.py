"""Rows of tokens drawn together, a token of every row at a time.

Knows: how a token is drawn, which rows go on, what their tokens were worth to the model. Does not
know: prompts, texts, moves; when a row ends and what it has to say is asked of ``Rules``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from selverify.models.generators.branches import fork_of
from selverify.models.generators.sampling import uniforms
from selverify.models.generators.shared_attention import NONE, Past
from selverify.models.generators.shared_prefix import SharedPrefixes

BLOCK = 256
"""Words whose weights are summed before it is known in which block the drawn one lies."""
WEIGHTS_AT_ONCE = 2**19
"""Rows times words whose weights are made together on a processor: what its cache holds."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words that logits are of: ``ids`` [R] in the tokenizer's numbers, ascending, and the
    place of each of the tokenizer's words among them, ``places`` [V], ``NONE`` where it is not."""

    ids: Tensor
    places: Tensor


class Rules(Protocol):
    """When a row ends, and which tokens it is not free to choose."""

    watched: Tensor
    """Of which words [V] a row that drew them is asked about."""

    def ended(self, row: int, tokens: list[int]) -> bool:
        """Whether the last of a row's tokens, a watched one, ends it."""
        ...

    def closed(self, tokens: list[int]) -> bool:
        """Whether the last of a row's tokens, a watched one, ends a move."""
        ...

    def forced(self, row: int, tokens: list[int]) -> list[int]:
        """The tokens that must come next, after a watched one that did not end the row."""
        ...


@dataclass(frozen=True, slots=True)
class Closed:
    """K moves: the tokens ``starts`` to ``stops`` [K] of ``rows`` [K]. Of rows that agree up to
    there one is given. Hidden states [K, D]: ``before`` the tokens, their ``mean``, and ``after``
    the last."""

    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    before: Tensor
    mean: Tensor
    after: Tensor


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows of at most T tokens, of which ``lengths`` [R] count.

    ``tokens`` [R, T]. ``logprobs`` [R]: log probability of the tokens that were drawn, not forced,
    at temperature 1, in nats. ``said`` and ``behind`` [R, T]: of all tokens, and their distance
    from the most probable ones'. ``moves``: one after another in each row; None where they were not
    asked for.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    logprobs: np.ndarray
    said: Tensor
    behind: Tensor
    moves: Closed | None


class Decoding:
    """Rows that continue the prompts of ``past``, S of each, on their way to their ends.

    Rows of a prompt that have drawn the same tokens so far are one row of ``past`` (``branches``).
    """

    def __init__(
        self,
        prefixes: SharedPrefixes,
        past: Past,
        rules: Rules,
        words: Words,
        *,
        seeds: np.ndarray,
        most: np.ndarray,
        temperature: float,
        keep: bool,
    ) -> None:
        """
        Args:
            past: a row for each prompt; used up.
            words: what its logits are of; forced tokens are among them.
            seeds: of each row [G, S].
            most: how many tokens each row may have [G, S]; 0 for one that is not to be drawn.
            keep: whether moves and their hidden states are asked for; what ends with a move then
                takes one more step.
        """
        rows, longest = seeds.size, int(most.max())
        self._prefixes = prefixes
        self._past = past
        prefixes.expect(past, rows=int(np.count_nonzero(most)), width=seeds.shape[1])
        self._rules = rules
        self._words = words
        self._seeds = seeds.ravel()
        self._most = most.ravel()
        self._temperature = temperature
        self._place = np.where(most > 0, np.arange(rows).reshape(seeds.shape), NONE)
        self._columns = np.zeros(seeds.shape, np.int64)
        self._at = np.arange(len(seeds))[:, None]
        self._queues: dict[int, list[int]] = {}
        self._tokens = np.zeros((rows, longest), np.int64)
        self._lengths = np.zeros(rows, np.int64)
        self._logprobs = np.zeros(rows)
        self._said, self._behind = torch.zeros((2, rows, longest))
        self._moves = _Moves(past.hidden) if keep else None

    def run(self) -> Drawn:
        """Draw until every row has ended."""
        step = 0
        while (self._place != NONE).any():
            picked = self._pick(step)
            before = self._place.copy()
            closed = self._end_rows(step)
            drawn = np.where(closed, before, self._place)
            if (drawn != NONE).any():
                self._go_on(drawn, picked, closed)
            step += 1
        numbers = (self._tokens, self._lengths, self._logprobs)
        moves = None if self._moves is None else self._moves.closed()
        return Drawn(*numbers, self._said, self._behind, moves)

    def _rows_with_logits(self) -> tuple[np.ndarray, Tensor]:
        """The rows that are there, and the logits of each: as ``past`` holds them, where its rows
        stay at their slots and each is one of these."""
        rows, logits = self._place[self._place != NONE], self._past.logits
        lines, columns = (self._place != NONE).nonzero()
        at = self._at[lines, self._columns[lines, columns]]
        order = at.argsort()
        if self._past.steps is not None and np.array_equal(at[order], np.arange(len(logits))):
            return rows[order], logits
        return rows, logits[torch.from_numpy(at).to(logits.device, non_blocking=True)]

    def _pick(self, step: int) -> np.ndarray:
        """The next token of every row [G, S] that is there; noted."""
        rows, logits = self._rows_with_logits()
        forced = np.full(len(rows), NONE)
        for at, row in enumerate(rows) if self._queues else ():
            if queue := self._queues.get(row):
                forced[at] = queue.pop(0)
        # Nothing waits for an accelerator before it is given all that there is to draw.
        uniform, known = (
            torch.from_numpy(part).to(logits.device, non_blocking=True)
            for part in (uniforms(self._seeds[rows], step), forced)
        )
        places, said, behind = draw(
            logits,
            uniform,
            temperature=self._temperature,
            forced=torch.where(known == NONE, NONE, self._words.places[known]),
        )
        found = torch.stack((self._words.ids[places].double(), said.double(), behind.double()))
        tokens, said, behind = found.cpu()
        self._tokens[rows, step] = tokens.long().numpy()
        self._lengths[rows] = step + 1
        self._said[rows, step], self._behind[rows, step] = said.float(), behind.float()
        free = forced == NONE
        self._logprobs[rows[free]] += self._said[rows[free], step].double().numpy()
        picked: np.ndarray = np.where(self._place != NONE, self._tokens[self._place, step], 0)
        return picked

    def _end_rows(self, step: int) -> np.ndarray:
        """Take out the rows that have ended; queue what others must say next.

        Returns:
            Where rows have closed a move [G, S], if moves are asked for.
        """
        closed = np.zeros(self._place.shape, dtype=bool)
        self._place[self._most[self._place] == step + 1] = NONE
        rows = self._place.ravel()
        watched = self._rules.watched[torch.from_numpy(self._tokens[rows, step])].numpy()
        for at in np.flatnonzero(watched & (rows != NONE)):
            row = int(rows[at])
            tokens = self._tokens[row, : step + 1].tolist()
            closed.ravel()[at] = self._moves is not None and self._rules.closed(tokens)
            if self._rules.ended(row, tokens):
                self._place.ravel()[at] = NONE
            elif not self._queues.get(row) and (queue := self._rules.forced(row, tokens)):
                self._queues[row] = queue
        return closed

    def _go_on(self, drawn: np.ndarray, picked: np.ndarray, closed: np.ndarray) -> None:
        """Read the token that each of the rows ``drawn`` was given, once for those that agree."""
        width = self._past.memory.rows
        fork = fork_of(drawn != NONE, self._columns, picked, width=width)
        if fork is None:
            return
        drawn, self._place = drawn[fork.groups], self._place[fork.groups]
        lines, rows = (drawn != NONE).nonzero()
        used = np.zeros(fork.parents.shape, dtype=bool)
        used[lines, fork.columns[lines, rows]] = True
        # Gaps enlarge products with shared keys; to close them moves nothing.
        columns = used.cumsum(1) - 1
        self._columns = np.take_along_axis(columns, fork.columns, 1)
        at = used.nonzero()[0], columns[used]
        grid = np.full((len(used), columns.max() + 1), NONE)
        grid[at] = fork.groups[at[0]] * width + fork.parents[used]
        order = self._past.take(torch.from_numpy(grid)).numpy()
        parents = self._at.ravel()[grid.ravel()[order]]
        self._at = np.zeros(grid.shape, np.int64)
        self._at.ravel()[order] = np.arange(len(order))
        words = np.zeros(grid.shape, np.int64)
        words[at] = fork.words[used]
        self._prefixes.step(self._past, torch.from_numpy(words.ravel()[order]))
        if self._moves is not None:
            lines, rows = (fork.first & closed)[fork.groups].nonzero()
            columns = self._at[lines, self._columns[lines, rows]]
            self._moves.read(self._past.hidden, parents, drawn[lines, rows], columns)


class _Moves:
    """Hidden states of the moves that the B rows of a ``Past`` have begun, and of those closed."""

    def __init__(self, hidden: Tensor) -> None:
        self._before = hidden
        self._total = torch.zeros_like(hidden)
        self._starts = np.zeros(len(hidden), np.int64)
        self._size = 0
        self._closed: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._states: list[Tensor] = []

    def read(
        self, hidden: Tensor, parents: np.ndarray, rows: np.ndarray, columns: np.ndarray
    ) -> None:
        """One more token: row b of the B has ``hidden`` [B, D] after it and continues the old row
        ``parents[b]``. It closes a move in those at ``columns`` [K], which are drawn as ``rows``.
        """
        self._size += 1
        old = torch.from_numpy(parents).to(hidden.device, non_blocking=True)
        self._before, self._total = self._before[old], self._total[old] + hidden
        self._starts = self._starts[parents]
        if not len(rows):
            return
        starts = self._starts[columns]
        at = torch.from_numpy(columns).to(hidden.device, non_blocking=True)
        self._closed.append((rows, starts, np.full(len(rows), self._size)))
        sizes = torch.from_numpy(self._size - starts).to(hidden, non_blocking=True)
        mean = self._total[at] / sizes[:, None]
        self._states.append(torch.stack((self._before[at], mean, hidden[at])).cpu())
        self._before[at], self._total[at] = hidden[at], 0.0
        self._starts[columns] = self._size

    def closed(self) -> Closed:
        """All moves, each after those before it in its row."""
        if not self._closed:
            nothing = np.zeros(0, np.int64)
            return Closed(nothing, nothing, nothing, *self._before.new_zeros((3, 0, 0)))
        rows, starts, stops = map(np.concatenate, zip(*self._closed, strict=True))
        return Closed(rows, starts, stops, *torch.cat(self._states, 1))


def draw(
    logits: Tensor, uniform: Tensor, *, temperature: float, forced: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A word [B] a row of logits [B, V] by inversion of its number in [0, 1), or the forced one.

    Returns the words, their log probabilities at temperature 1, in nats, and how far these lie
    behind the most probable words'. Words are summed in blocks, so that no sum runs over all.
    """
    size = len(logits)
    if logits.device.type == "cpu":
        size = max(1, WEIGHTS_AT_ONCE // logits.shape[1])
    parts = zip(*(torch.split(part, size) for part in (logits, uniform, forced)), strict=True)
    found = [_drawn(*part, temperature=temperature) for part in parts]
    picked, said, behind = (torch.cat(part) for part in zip(*found, strict=True))
    return picked, said, behind


def _drawn(
    logits: Tensor, uniform: Tensor, forced: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for rows whose weights are held at once."""
    top = logits.amax(-1, keepdim=True)
    below = logits - top.float()
    weights = below.exp_() if temperature in (0.0, 1.0) else below.exp()
    total = weights.sum(-1)
    if temperature == 0.0:
        picked = logits.argmax(-1)
    else:
        if temperature != 1.0:
            weights = below.div_(temperature).exp_()
        picked = _inverted(weights, uniform)
    picked = torch.where(forced == NONE, picked, forced)
    behind = (logits.gather(-1, picked[:, None]).float() - top).squeeze(-1)
    return picked, behind - total.log(), behind


def _inverted(weights: Tensor, uniform: Tensor) -> Tensor:
    """The first word up to which the weights [B, V] sum to more than that share of them."""
    words = weights.shape[1]
    if words % BLOCK:
        weights = torch.nn.functional.pad(weights, (0, -words % BLOCK))
    blocks = weights.view(len(weights), -1, BLOCK)
    # An accelerator adds float32 numbers in pairs, which loses little, five times as fast.
    exact = torch.float64 if weights.device.type == "cpu" else None
    sums = blocks.sum(-1, dtype=exact).cumsum(-1, dtype=torch.float64)
    target = (uniform * sums[:, -1])[:, None]
    block = torch.searchsorted(sums, target, right=True).clamp(max=sums.shape[1] - 1)
    rows = torch.arange(len(weights), device=weights.device)[:, None]
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[rows, block].squeeze(1).cumsum(-1, dtype=torch.float64) + before
    # Rounding can leave the last sum below the target: never beyond the last word with a weight.
    last = inside[:, -1:]
    target = target.minimum(last.nextafter(torch.zeros_like(last)))
    word = torch.searchsorted(inside, target, right=True).clamp(max=BLOCK - 1)
    return (block * BLOCK + word).clamp(max=words - 1).squeeze(-1)
