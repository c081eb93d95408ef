"""Models that were trained here: a generator with its embeddings, and a process reward model.

Knows: how items become batches of words and what replies the models give. Does not know: calls,
budgets, searches. Randomness: an item's seed follows from (run seed, problem, trace, index) alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

import numpy as np
import torch
from torch import Tensor

from selverify.domains.base import Domain
from selverify.models.generators.checkpoints import Backbone, RewardModel
from selverify.models.generators.decoder import Decoder, Sampled, little_padding
from selverify.models.generators.reading import Tokens, reading_order
from selverify.models.generators.sampling import (
    Item,
    Replies,
    SamplingGenerator,
    in_batches,
    item_seeds,
)
from selverify.models.heuristic.embedding import Embeddings, embeddings_of, move_keys
from selverify.models.heuristic.kept import KeptEmbeddings
from selverify.models.parameter_count import parameters_of
from selverify.models.verifiers.reward import token_logprobs
from selverify.models.verifiers.steps import verdict_of
from selverify.params import Sampling
from selverify.search.backend import NOTHING
from selverify.search.requests import RankItem, VerifyItem
from selverify.types import Sample, State, Verdict

WORDS_AT_ONCE = 40_000
GROUPS_AT_ONCE = 256
_CONTINUATIONS_AT_ONCE = 64
_REMEMBERED = 500_000
"""Judged moves that are remembered; a derivation's are asked for again with each new move."""
_Group = tuple[Tokens, Sequence[Tokens]]
"""A prefix, and rows of words that continue it."""


class LocalGenerator(SamplingGenerator):
    """A backbone that was trained here; satisfies ``Proposer``."""

    def __init__(
        self,
        domain: Domain,
        backbone: Backbone,
        sampling: Sampling,
        *,
        seed: int,
        kept_moves: int,
    ) -> None:
        """``kept_moves``: of so many sampled moves the embeddings are kept until ``embed``."""
        super().__init__(sampling)
        self._domain = domain
        self._decoder = backbone.decoder
        self._words = backbone.words
        self._seed = seed
        self._end = self._words.ids[domain.end_of_move]
        self._kept = KeptEmbeddings(kept_moves)
        self._identity = (
            f"{backbone.digest} {sampling.model_dump_json(exclude={'max_moves'})} {seed}"
        )

    def identity(self) -> str:
        """Of the weights, the sampling and the seed."""
        return self._identity

    def tokens(self, text: str) -> int:
        """The number of words."""
        return len(text.split())

    def parameters(self) -> int:
        """Of the backbone; its output is tied to its embeddings."""
        return self._decoder.parameters

    def embed(self, items: Sequence[RankItem]) -> list[Embeddings]:
        """Embeddings of every item's moves at its state, from the frozen generator.

        Of moves that were sampled here they are there already; the others are read.
        """
        return self._kept.complete(items, self._read_moves)

    def _read_moves(self, items: Sequence[RankItem]) -> list[Embeddings]:
        groups = [
            (self._prefix(item.state), [tuple(self._words.encode(m.text)) for m in item.moves])
            for item in items
        ]
        found: dict[int, Embeddings] = {}
        for chosen, last, hidden, tokens in read_groups(self._decoder, groups):
            sizes = [len(groups[index][1]) for index in chosen]
            lines = torch.arange(len(chosen)).repeat_interleave(torch.tensor(sizes))
            rows = torch.cat([torch.arange(size) for size in sizes])
            read = self._embeddings(
                [items[chosen[line]].state.problem.goal for line in lines.tolist()],
                last[lines],
                hidden=hidden[lines, rows],
                tokens=tokens[lines, rows],
                lengths=torch.tensor([len(row) for index in chosen for row in groups[index][1]]),
            )
            found.update(zip(chosen, read.split(sizes), strict=True))
        return [found[index] for index in range(len(items))]

    def _keep(
        self, states: Sequence[State], texts: Sequence[str], last: Tensor, sampled: Sampled
    ) -> None:
        """Keep the embeddings of moves that are not kept yet.

        Args:
            states: before each row's move [R].
            texts: of the moves [R].
            last: hidden states before the moves [R, D].
            sampled: what was sampled.
        """
        # A text leaves special words out, so what is read of it is not what was sampled.
        whole = (sampled.words > self._words.eos) | (sampled.words < 0)
        new = {
            key: row
            for row in np.flatnonzero(sampled.distinct & whole.all(-1)).tolist()
            for key in move_keys(states[row], [texts[row]])
            if key not in self._kept
        }
        if new:
            rows = torch.tensor(list(new.values()))
            lengths = torch.from_numpy(sampled.lengths)[rows]
            words = torch.from_numpy(sampled.words)[rows, : lengths.max()]
            read = self._embeddings(
                [goal for _, goal, *_ in new],
                last[rows],
                hidden=sampled.hidden[rows, : lengths.max()],
                tokens=words.clamp(min=0),
                lengths=lengths,
            )
            self._kept.add(list(new), read)

    def _embeddings(
        self,
        goals: Sequence[str],
        states: Tensor,
        *,
        hidden: Tensor,
        tokens: Tensor,
        lengths: Tensor,
    ) -> Embeddings:
        """One row for each of R moves, padded to M words.

        Args:
            goals: the goal of each move's problem.
            states: hidden states before the moves [R, D].
            hidden: hidden states after each word [R, M, D].
            tokens: the words [R, M].
            lengths: words of each move [R].
        """
        known = {goal: self._goal(goal) for goal in dict.fromkeys(goals)}
        logprobs = self._decoder.logits(predicting(states, hidden)).log_softmax(-1)
        seen = token_logprobs(logprobs, tokens, tokens == self._end)
        return embeddings_of(
            state=states,
            goal=torch.stack([known[goal] for goal in goals]),
            hidden=hidden,
            said=logprobs.gather(-1, tokens[..., None]).squeeze(-1),
            seen=seen[torch.arange(len(seen)), lengths - 1],
            lengths=lengths,
        )

    def _sample(
        self, items: Sequence[Item], *, one_move: bool, limit: int, temperature: float
    ) -> Replies:
        prefixes = [self._prefix(item.state) for item in items]
        keep = one_move and self._kept.capacity > 0
        stops = (self._end, self._words.eos) if one_move else (self._words.eos,)
        limits = [min(limit, self._decoder.positions - len(prefix)) for prefix in prefixes]
        replies = [(NOTHING,) * item.count for item in items]
        fitting = [index for index, most in enumerate(limits) if most > 0]
        order = sorted(fitting, key=lambda index: (limits[index], len(prefixes[index])))
        counts = [items[index].count for index in order]
        before = dict(zip(order, accumulate(counts, initial=0), strict=False))

        def fits(batch: Sequence[int]) -> bool:
            first, last = batch[0], batch[-1]
            rows = before[last] + items[last].count - before[first]
            return limits[first] == limits[last] and rows <= self._sampling.batch_rows

        for chosen in in_batches(order, fits):
            sizes = [items[index].count for index in chosen]
            lines = np.arange(len(chosen)).repeat(sizes)
            seeds = [seed for index in chosen for seed in self._seeds(items[index])]
            prefix = self._decoder.prefixes([prefixes[index] for index in chosen])
            sampled = self._decoder.sample(
                prefix,
                np.array(seeds, dtype=np.uint64),
                lines,
                stops=stops,
                limit=limits[chosen[0]],
                temperature=temperature,
                keep=keep,
            )
            samples = [
                Sample(self._words.decode(row[:length].tolist()), int(length), float(logprob))
                for row, length, logprob in zip(
                    sampled.words, sampled.lengths, sampled.logprobs, strict=True
                )
            ]
            if keep:
                states = [items[chosen[line]].state for line in lines.tolist()]
                texts = [sample.text for sample in samples]
                self._keep(states, texts, prefix.last[torch.from_numpy(lines)], sampled)
            rows = iter(samples)
            for index, size in zip(chosen, sizes, strict=True):
                replies[index] = tuple(islice(rows, size))
        return tuple(replies)

    def _seeds(self, item: Item) -> list[int]:
        return item_seeds(f"{self._seed}|{item.state.problem.problem_id}|{item.state.trace}", item)

    def _prefix(self, state: State) -> Tokens:
        return (self._words.bos, *self._words.encode(self._domain.serialise(state)))

    def _goal(self, goal: str) -> Tensor:
        words = (self._words.bos, *self._words.encode(goal))
        return self._decoder.prefixes([words]).last[0]


class LocalVerifier:
    """A process reward model that was trained here; satisfies ``Verifier``."""

    def __init__(self, reward: RewardModel, *, end_of_move: str) -> None:
        self._reward = reward
        self._words = reward.words
        self._end = self._words.ids[end_of_move]
        self._log_scores: dict[tuple[Tokens, Tokens], float] = {}

    def identity(self) -> str:
        """Of the weights."""
        return self._reward.digest

    def parameters(self) -> int:
        """Of the tuned backbone and its head."""
        return self._reward.decoder.parameters + parameters_of(self._reward.head)

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """A step's score: the probability that it is right, or the value of the state after it."""
        if len(self._log_scores) > _REMEMBERED:
            self._log_scores.clear()
        moves = [self._moves(item) for item in items]
        self._judge(pair for pairs in moves for pair in pairs)
        return tuple(
            verdict_of([math.exp(self._log_scores[pair]) for pair in pairs]) for pairs in moves
        )

    def _moves(self, item: VerifyItem) -> list[tuple[Tokens, Tokens]]:
        """Each step of ``item``: the words before it, and its own."""
        before = (self._words.bos, *self._words.encode(item.state.problem.text))
        for move in item.state.derivation:
            before += tuple(self._words.encode(move.text))
        pairs = []
        for move in item.steps:
            said = tuple(self._words.encode(move.text))
            pairs.append((before, said))
            before += said
        return pairs

    def _judge(self, pairs: Iterable[tuple[Tokens, Tokens]]) -> None:
        """Bring the log score of each move into ``_log_scores``."""
        by_prefix: dict[Tokens, list[Tokens]] = {}
        for prefix, said in dict.fromkeys(pairs):
            if (prefix, said) not in self._log_scores:
                by_prefix.setdefault(prefix, []).append(said)
        groups = [
            (prefix, rows[start : start + _CONTINUATIONS_AT_ONCE])
            for prefix, rows in by_prefix.items()
            for start in range(0, len(rows), _CONTINUATIONS_AT_ONCE)
        ]
        for chosen, last, hidden, tokens in read_groups(self._reward.decoder, groups):
            before = predicting(last[:, None].expand_as(hidden[:, :, 0]), hidden)
            logs = self._reward.log_scores(before, hidden, tokens, self._end)
            for line, index in enumerate(chosen):
                prefix, rows = groups[index]
                for row, said in enumerate(rows):
                    self._log_scores[prefix, said] = float(logs[line, row, len(said) - 1])


def read_groups(
    decoder: Decoder, groups: Sequence[_Group]
) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
    """Indices, last prefix states [G, D], hidden states [G, S, M, D] and words [G, S, M].

    A prefix comes after those that it begins with.
    """
    shapes = [(len(rows), max(map(len, rows))) for _, rows in groups]
    sizes = [sum(map(len, rows)) for _, rows in groups]
    prefixes = [prefix for prefix, _ in groups]
    turns = reading_order(prefixes, kept_tokens=decoder.capacity)

    def padded(batch: Sequence[int]) -> tuple[int, ...]:
        return (len(batch), *(max(shapes[index][axis] for index in batch) for axis in (0, 1)))

    def fits(batch: Sequence[int]) -> bool:
        if len(batch) > GROUPS_AT_ONCE or turns[batch[0]] != turns[batch[-1]]:
            return False
        shape = padded(batch)
        words, deepest = math.prod(shape), max(len(prefixes[index]) for index in batch)
        small = words <= WORDS_AT_ONCE and deepest + shape[-1] <= decoder.positions
        return small and little_padding(words, sum(sizes[index] for index in batch))

    order = sorted(range(len(groups)), key=lambda i: (turns[i], shapes[i], len(prefixes[i])))
    for chosen in in_batches(order, fits):
        tokens = torch.zeros(padded(chosen), dtype=torch.long)
        for line, index in enumerate(chosen):
            for row, words in enumerate(groups[index][1]):
                tokens[line, row, : len(words)] = torch.tensor(words)
        prefix = decoder.prefixes([prefixes[index] for index in chosen])
        yield chosen, prefix.last, decoder.extend(prefix, tokens), tokens


def predicting(first: Tensor, hidden: Tensor) -> Tensor:
    """The states [..., M, D] that predict the words: ``first`` [..., D], then those after words."""
    return torch.cat((first[..., None, :], hidden[..., :-1, :]), -2)
