"""A generator that is any causal language model, decoding many problems together.

Knows: how prompts become samples, and when a move ends. Does not know: calls, budgets, searches.
Randomness: an item's seed follows from (run seed, problem, derivation, index) alone; temperature 0
needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from selverify.domains.base import close_move
from selverify.models.generators.prefix_cache import Past, PrefixCache
from selverify.models.generators.pretrained import HubModel
from selverify.models.generators.sampling import (
    Item,
    Replies,
    SamplingGenerator,
    in_batches,
    item_seeds,
    uniforms,
)
from selverify.models.prompting import Prompt
from selverify.params import Sampling
from selverify.search.backend import NOTHING
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


class CausalModel(SamplingGenerator):
    """Satisfies ``Proposer``; see the module's text."""

    def __init__(
        self,
        pretrained: HubModel,
        prefixes: PrefixCache,
        *,
        end_of_move: str,
        prompting: Callable[[State], Prompt],
        prompting_id: str,
        sampling: Sampling,
        seed: int,
    ) -> None:
        """``prompting_id`` identifies what ``prompting`` shows beside the state."""
        super().__init__(sampling)
        self._pretrained = pretrained
        self._prefixes = prefixes
        self._end = end_of_move
        self._prompting = prompting
        self._seed = seed
        self._ends = pretrained.ends()
        self._closing = _closing(pretrained, end_of_move)
        sampled = sampling.model_dump_json(exclude={"max_moves", "batch_rows"})
        self._identity = f"{pretrained.digest} {prompting_id} {sampled} {seed}"

    def identity(self) -> str:
        """Of the weights, the prompts, the sampling and the seed."""
        return self._identity

    def _sample(
        self, items: Sequence[Item], *, one_move: bool, limit: int, temperature: float
    ) -> Replies:
        prompts = [self._pretrained.encode(self._prompting(item.state)) for item in items]
        room = self._pretrained.positions
        replies = [(NOTHING,) * item.count for item in items]
        fitting = [place for place, prompt in enumerate(prompts) if len(prompt) < room]
        order = sorted(fitting, key=lambda place: len(prompts[place]))

        def fits(batch: Sequence[int]) -> bool:
            return sum(items[place].count for place in batch) <= self._sampling.batch_rows

        for chosen in in_batches(order, fits):
            past = self._prefixes.read([prompts[place] for place in chosen])
            counts = torch.tensor([items[place].count for place in chosen])
            rows = torch.arange(len(chosen)).repeat_interleave(counts)
            samples = self._decode(
                past.take(rows.to(past.lengths.device)),
                np.array(
                    [seed for place in chosen for seed in self._seeds(items[place])], np.uint64
                ),
                one_move=one_move,
                limits=[min(limit, room - len(prompts[chosen[row]])) for row in rows.tolist()],
                temperature=temperature,
            )
            said = iter(samples)
            for place in chosen:
                replies[place] = tuple(next(said) for _ in range(items[place].count))
        return tuple(replies)

    def _seeds(self, item: Item) -> list[int]:
        said = "\x1f".join(item.state.said)
        return item_seeds(f"{self._seed}|{item.state.problem.problem_id}|{said}", item)

    def _decode(
        self,
        past: Past,
        seeds: np.ndarray,
        *,
        one_move: bool,
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
                ended = self._ended(rows[place], picked[at], logprobs[at], one_move=one_move)
                if ended or step + 1 == most[place]:
                    live[at] = -1
            going = np.flatnonzero(live >= 0)
            if not len(going):
                break
            if len(going) <= SHRINK * len(live):
                past = past.take(torch.from_numpy(going).to(past.lengths.device))
                live, picked = live[going], picked[going]
            past = self._prefixes.step(past, torch.from_numpy(picked).to(past.lengths.device))
        return [self._finished(row, one_move=one_move) for row in rows]

    def _ended(self, row: _Row, token: int, logprob: float, *, one_move: bool) -> bool:
        """Add a token to a sample; whether it is its last."""
        row.tokens.append(int(token))
        row.logprob += float(logprob)
        if token in self._ends:
            return True
        if not one_move or token not in self._closing:
            return False
        if self._end not in self._pretrained.decode(row.tokens[-TAIL:]):
            return False
        # What is blank so far has not begun.
        return not self._end.isspace() or bool(self._pretrained.decode(row.tokens).strip())

    def _finished(self, row: _Row, *, one_move: bool) -> Sample:
        text = self._pretrained.decode(row.tokens)
        if one_move:
            before, end, _ = text.lstrip().partition(self._end)
            text = close_move(before, self._end) if end else text.strip()
        return Sample(text, len(row.tokens), row.logprob)


def _closing(pretrained: HubModel, end_of_move: str) -> frozenset[int]:
    """Tokens that can complete ``end_of_move``: their text holds its last character."""
    size = len(pretrained.tokenizer)
    texts = pretrained.tokenizer.batch_decode([[token] for token in range(size)])
    return frozenset(token for token, text in enumerate(texts) if end_of_move[-1] in text)


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
