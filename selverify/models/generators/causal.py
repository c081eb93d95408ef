"""A generator that is any causal language model, decoding many problems together.

Knows: how prompts become samples, and when a move ends. Does not know: calls, budgets, searches.
Randomness: an item's seed follows from (run seed, problem, derivation, index) alone; temperature 0
needs none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from selverify.domains.base import close_move
from selverify.models.generators.decoder import uniforms
from selverify.models.generators.prefixes import Past, Prefixes
from selverify.models.generators.pretrained import Pretrained
from selverify.models.prompting import Prompt
from selverify.params import Sampling
from selverify.search.backend import NOTHING
from selverify.search.requests import CompleteItem, ProposeItem
from selverify.types import Sample, State

SHRINK = 0.75
"""Finished rows leave the batch once at most this share of its rows goes on."""
TAIL = 8
"""Last tokens of a row that are looked through for the end of a move."""


@dataclass(slots=True)
class _Row:
    """A sample under way."""

    tokens: list[int] = field(default_factory=list)
    logprob: float = 0.0


class CausalModel:
    """Satisfies ``Proposer``; see the module's text."""

    def __init__(
        self,
        pretrained: Pretrained,
        prefixes: Prefixes,
        *,
        end_of_move: str,
        prompting: Callable[[State], Prompt],
        prompting_id: str,
        sampling: Sampling,
        seed: int,
    ) -> None:
        """``prompting_id`` identifies what ``prompting`` shows beside the state."""
        self._pretrained = pretrained
        self._prefixes = prefixes
        self._end = end_of_move
        self._prompting = prompting
        self._sampling = sampling
        self._seed = seed
        self._ends = pretrained.ends()
        self._closing = _closing(pretrained, end_of_move)
        sampled = sampling.model_dump_json(exclude={"max_moves", "batch_rows"})
        self._identity = f"{pretrained.digest} {prompting_id} {sampled} {seed}"

    def identity(self) -> str:
        """Of the weights, the prompts, the sampling and the seed."""
        return self._identity

    def propose(self, items: Sequence[ProposeItem]) -> tuple[tuple[Sample, ...], ...]:
        """Samples that end with a move's end, or with the text's."""
        counts, limit = [item.count for item in items], self._sampling.max_move_tokens
        return self._sample(items, counts, stop=True, limit=limit, greedy=False)

    def complete(self, items: Sequence[CompleteItem]) -> tuple[tuple[Sample, ...], ...]:
        """Samples that end with the text's end."""
        replies: list[tuple[Sample, ...]] = [()] * len(items)
        limit = self._sampling.max_solution_tokens
        for greedy in (False, True):
            places = [place for place, item in enumerate(items) if item.greedy == greedy]
            chosen = [items[place] for place in places]
            counts = [item.count for item in chosen]
            part = self._sample(chosen, counts, stop=False, limit=limit, greedy=greedy)
            for place, reply in zip(places, part, strict=True):
                replies[place] = reply
        return tuple(replies)

    def _sample(
        self,
        items: Sequence[ProposeItem | CompleteItem],
        counts: Sequence[int],
        *,
        stop: bool,
        limit: int,
        greedy: bool,
    ) -> tuple[tuple[Sample, ...], ...]:
        prompts = [self._pretrained.encode(self._prompting(item.state)) for item in items]
        room = self._pretrained.positions
        replies = [(NOTHING,) * count for count in counts]
        fitting = [place for place, prompt in enumerate(prompts) if len(prompt) < room]
        order = sorted(fitting, key=lambda place: len(prompts[place]))
        for chosen in _batches(order, counts, self._sampling.batch_rows):
            past = self._prefixes.read([prompts[place] for place in chosen])
            repeated = torch.tensor([counts[place] for place in chosen])
            rows = torch.arange(len(chosen)).repeat_interleave(repeated)
            seeds = [seed for place in chosen for seed in self._seeds(items[place])]
            temperature = 0.0 if greedy else self._sampling.temperature
            limits = [min(limit, room - len(prompts[place])) for place in chosen]
            samples = self._decode(
                past.take(rows.to(past.lengths.device)),
                np.array(seeds, dtype=np.uint64),
                stop=stop,
                limits=[limits[row] for row in rows.tolist()],
                temperature=temperature,
            )
            said = iter(samples)
            for place in chosen:
                replies[place] = tuple(next(said) for _ in range(counts[place]))
        return tuple(replies)

    def _seeds(self, item: ProposeItem | CompleteItem) -> list[int]:
        return item_seeds(self._seed, item.state, range(item.start, item.start + item.count))

    def _decode(
        self,
        past: Past,
        seeds: np.ndarray,
        *,
        stop: bool,
        limits: Sequence[int],
        temperature: float,
    ) -> list[Sample]:
        """One sample a row of ``past``, of at most ``limits`` tokens each."""
        rows = [_Row() for _ in seeds]
        live = np.arange(len(rows))  # which row each row of the batch continues; -1 when it ended
        most = np.array(limits)
        for step in range(max(limits)):
            picked, logprobs = _pick(past.logits, seeds[live], step, temperature)
            for at, place in enumerate(live):
                if place < 0:
                    continue
                ended = self._ended(rows[place], picked[at], logprobs[at], stop=stop)
                if ended or step + 1 == most[place]:
                    live[at] = -1
            going = np.flatnonzero(live >= 0)
            if not len(going):
                break
            if len(going) <= SHRINK * len(live):
                past = past.take(torch.from_numpy(going).to(past.lengths.device))
                live, picked = live[going], picked[going]
            past = self._prefixes.step(past, torch.from_numpy(picked).to(past.lengths.device))
        return [self._finished(row, stop=stop) for row in rows]

    def _ended(self, row: _Row, token: int, logprob: float, *, stop: bool) -> bool:
        """Add a token to a sample; whether it is its last."""
        row.tokens.append(int(token))
        row.logprob += float(logprob)
        if token in self._ends:
            return True
        if not stop or token not in self._closing:
            return False
        if self._end not in self._pretrained.decode(row.tokens[-TAIL:]):
            return False
        # What is blank so far has not begun.
        return not self._end.isspace() or bool(self._pretrained.decode(row.tokens).strip())

    def _finished(self, row: _Row, *, stop: bool) -> Sample:
        text = self._pretrained.decode(row.tokens)
        if stop:
            before, end, _ = text.lstrip().partition(self._end)
            text = close_move(before, self._end) if end else text.strip()
        return Sample(text, len(row.tokens), row.logprob)


def item_seeds(seed: int, state: State, indices: range) -> list[int]:
    """64-bit seeds of the samples with these indices at ``state``, for a run's ``seed``."""
    said = "\x1f".join(state.said)
    key = f"{seed}|{state.problem.problem_id}|{said}"
    start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    mask = (1 << 64) - 1
    step = 0xD1342543DE82EF95  # an odd multiplier spreads consecutive indices over 64 bits
    return [(start ^ (index * step & mask)) & mask for index in indices]


def _closing(pretrained: Pretrained, end_of_move: str) -> frozenset[int]:
    """Tokens that can complete ``end_of_move``: their text holds its last character."""
    size = len(pretrained.tokenizer)
    texts = pretrained.tokenizer.batch_decode([[token] for token in range(size)])
    return frozenset(token for token, text in enumerate(texts) if end_of_move[-1] in text)


def _batches(order: Sequence[int], counts: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Consecutive items with at most ``limit`` samples together, or one item alone."""
    batch: list[int] = []
    rows = 0
    for place in order:
        if batch and rows + counts[place] > limit:
            yield batch
            batch, rows = [], 0
        batch.append(place)
        rows += counts[place]
    if batch:
        yield batch


def _pick(
    logits: Tensor, seeds: np.ndarray, step: int, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """A token [B] a row and its log probability at temperature 1, in nats."""
    logprobs = logits.log_softmax(-1)
    if temperature == 0.0:
        picked = logprobs.argmax(-1)
    else:
        weights = (logprobs / temperature).softmax(-1).cumsum(-1)
        uniform = torch.from_numpy(uniforms(seeds, step)).to(weights)
        # Rounding can leave the last sum below 1: never beyond the last word.
        picked = torch.searchsorted(weights, uniform[:, None] * weights[:, -1:]).squeeze(-1)
    chosen = logprobs.gather(-1, picked[:, None]).squeeze(-1)
    return picked.cpu().numpy(), chosen.double().cpu().numpy()
