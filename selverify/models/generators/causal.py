"""A generator that is any causal language model, decoding many problems together.

Knows: how prompts become samples, when a move ends, which hidden states stand for what
(``models.heuristic.embedding``). Does not know: calls, budgets, searches, how a ranker is trained.
Randomness: an item's seed follows from (run seed, problem, derivation, index) alone; temperature 0
needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

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
from selverify.models.heuristic.embedding import Embeddings, concatenate, embeddings_of
from selverify.models.parameter_count import parameters_of
from selverify.models.prompting import Prompt, disarmed
from selverify.models.verifiers.reward import SCALE, SEEN, WINDOW
from selverify.params import Sampling
from selverify.search.backend import NOTHING
from selverify.search.requests import RankItem
from selverify.types import Sample, State

SHRINK = 0.75
"""Finished rows leave the batch once at most this share of its rows goes on."""
TAIL = 8
"""Last tokens of a row that are looked through for the end of a move."""

LOGITS_AT_ONCE = 100_000_000
"""Moves are embedded in batches with at most so many logits: a vocabulary has 128,000 words."""
GOALS_AT_ONCE = 32
_REMEMBERED_GOALS = 200_000
_REMEMBERED_COUNTS = 200_000


@dataclass(frozen=True, slots=True)
class _Part:
    """The moves ``start`` to ``stop`` of the item at ``place``, at most ``longest`` tokens each."""

    place: int
    start: int
    stop: int
    longest: int


@dataclass(slots=True)
class _Row:
    """A sample under way."""

    tokens: list[int] = field(default_factory=list)
    logprob: float = 0.0


class CausalModel(SamplingGenerator):
    """Satisfies ``Proposer``, and embeds moves; see the module's text."""

    def __init__(
        self,
        pretrained: HubModel,
        *,
        kept_tokens: int,
        end_of_move: str,
        prompting: Callable[[State], Prompt],
        prompting_id: str,
        sampling: Sampling,
        seed: int,
    ) -> None:
        """``prompting_id`` identifies what ``prompting`` shows beside the state; ``kept_tokens``
        bounds the cache of prefixes."""
        super().__init__(sampling)
        self._pretrained = pretrained
        self._prefixes = PrefixCache(pretrained, capacity=kept_tokens)
        self._goals: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
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

    def tokens(self, text: str) -> int:
        """The tokenizer's count, without what a template puts around a text."""
        if len(self._counts) > _REMEMBERED_COUNTS:
            self._counts.clear()
        if text not in self._counts:
            encoded = self._pretrained.tokenizer.encode(disarmed(text), add_special_tokens=False)
            self._counts[text] = len(encoded)
        return self._counts[text]

    def parameters(self) -> int:
        """Of the model; output weights that are tied to its embeddings count once."""
        return parameters_of(self._pretrained.model)

    def embed(self, items: Sequence[RankItem]) -> list[Embeddings]:
        """Embeddings of every item's moves at its state; on the CPU, in float32."""
        self._read_goals({item.state.problem.goal for item in items})
        prompts = [self._pretrained.encode(self._prompting(item.state)) for item in items]
        moves = [[self._tokens(move.text) for move in item.moves] for item in items]
        found: list[list[Embeddings]] = [[] for _ in items]
        for parts in self._batches(prompts, moves):
            sizes = [part.stop - part.start for part in parts]
            goals = [self._goals[items[part.place].state.problem.goal] for part in parts]
            rows = self._read_moves(
                [prompts[part.place] for part in parts],
                [row for part in parts for row in moves[part.place][part.start : part.stop]],
                torch.arange(len(parts)).repeat_interleave(torch.tensor(sizes)),
                torch.stack(goals),
            )
            for part, own in zip(parts, rows.split(sizes), strict=True):
                found[part.place].append(own)
        return [concatenate(parts) for parts in found]

    def _read_moves(
        self,
        prompts: Sequence[tuple[int, ...]],
        moves: Sequence[Sequence[int]],
        rows: Tensor,
        goals: Tensor,
    ) -> Embeddings:
        """One row a move. ``rows`` [moves] are the places of the prompts that the moves continue;
        ``goals`` [prompts, D] are the hidden states of the prompts' goals."""
        past = self._prefixes.read(prompts)
        rows = rows.to(past.lengths.device)
        state, first = past.hidden[rows], past.logits[rows]
        lengths = torch.tensor(list(map(len, moves)), device=rows.device)
        tokens = pad_sequence(list(map(torch.tensor, moves)), batch_first=True).to(rows.device)
        logits, hidden = self._prefixes.extend(past.take(rows), tokens)
        logprobs = torch.cat((first[:, None], logits[:, :-1]), 1).log_softmax(-1)
        said = logprobs.gather(-1, tokens[..., None]).squeeze(-1)
        mask = torch.arange(tokens.shape[1], device=rows.device) < lengths[:, None]
        return embeddings_of(
            state=state,
            goal=goals.to(rows.device)[rows],
            hidden=hidden,
            said=said,
            seen=least_probable(said, said - logprobs.amax(-1), mask),
            lengths=lengths,
        ).cpu()

    def _tokens(self, text: str) -> tuple[int, ...]:
        """A move's own tokens, the end of the move among them."""
        end = "" if self._end.strip() else self._end
        encoded = self._pretrained.tokenizer.encode(disarmed(text) + end, add_special_tokens=False)
        return tuple(encoded)

    def _read_goals(self, goals: set[str]) -> None:
        """Bring the goals' hidden states into ``_goals``."""
        if len(self._goals) > _REMEMBERED_GOALS:
            self._goals.clear()
        fresh = sorted(goals - self._goals.keys())
        for start in range(0, len(fresh), GOALS_AT_ONCE):
            texts = fresh[start : start + GOALS_AT_ONCE]
            prompts = [self._pretrained.encode(Prompt((), disarmed(text))) for text in texts]
            self._goals.update(zip(texts, self._prefixes.read(prompts).hidden.cpu(), strict=True))

    def _batches(
        self, prompts: Sequence[Sequence[int]], moves: Sequence[Sequence[Sequence[int]]]
    ) -> Iterator[list[_Part]]:
        """Moves of items of similar size, with at most ``LOGITS_AT_ONCE`` logits together."""
        words = len(self._pretrained.tokenizer)
        longest = [max(map(len, rows), default=0) for rows in moves]
        parts = []
        for place in sorted(range(len(prompts)), key=lambda at: (longest[at], len(prompts[at]))):
            fitting = max(1, LOGITS_AT_ONCE // max(1, longest[place] * words))
            for start in range(0, len(moves[place]), fitting):
                stop = min(start + fitting, len(moves[place]))
                parts.append(_Part(place, start, stop, longest[place]))

        def fits(batch: Sequence[_Part]) -> bool:
            rows = sum(part.stop - part.start for part in batch)
            return rows * batch[-1].longest * words <= LOGITS_AT_ONCE

        return in_batches(parts, fits)

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


def least_probable(said: Tensor, behind: Tensor, mask: Tensor) -> Tensor:
    """What the generator held least probable of each move, the least probable token first.

    A step of text has more tokens than a head can see, and where it may be wrong, some of them
    surprise.

    Args:
        said: log probabilities of the tokens [B, T], in nats.
        behind: their distance from the most probable token's.
        mask: which places are tokens.

    Returns:
        [B, SEEN]: of WINDOW tokens ``SCALE`` times both, and 1 where there is a token.
    """
    padding = (0, max(0, WINDOW - said.shape[1]))
    ordered = said.masked_fill(~mask, torch.inf).argsort(dim=1, stable=True)[:, :WINDOW]
    inside = mask.gather(1, ordered).to(said.dtype)
    parts = [SCALE * values.gather(1, ordered) * inside for values in (said, behind)]
    seen = torch.cat([torch.nn.functional.pad(part, padding) for part in (*parts, inside)], 1)
    return seen.view(len(said), SEEN)
