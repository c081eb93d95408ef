"""The backend of models that we trained: generator, heuristic and process reward model in process.

Knows: how requests become batches of words and what replies the models give. Does not know: calls,
budgets, searches. Randomness: an item's seed follows from (run seed, problem, trace, index) alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import cast

import numpy as np
import torch
from torch import Tensor

from selverify.domains.base import Domain
from selverify.errors import ProtocolError
from selverify.models.generators.checkpoints import Backbone, Policy, RewardModel
from selverify.models.generators.decoder import Decoder
from selverify.models.heuristic.embedding import Embeddings, concatenate
from selverify.models.heuristic.hybrid import UNTRAINED, Scorer, scorers
from selverify.models.verifiers.reward import token_logprobs
from selverify.params import Sampling
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Rank,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.types import Sample, State, Verdict

WORDS_AT_ONCE = 40_000
ROWS_AT_ONCE = 64
MEMORY = 500_000
"""Judged moves that are remembered; a derivation's are asked for again with each new move."""


RANKED = 200_000
"""Ranked moves that are remembered, with the scores of all scorers."""
Read = tuple[tuple[int, ...], str, tuple[int, ...]]
"""The words before a move, the problem's goal, the move's own words."""


@dataclass(frozen=True, slots=True)
class Continuations:
    """Rows of words that continue one prefix."""

    prefix: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a backbone computed of S moves of up to M words after one prefix.

    ``last`` [D] is the hidden state after the prefix, ``hidden`` [S, M, D] those after each word,
    ``said`` [S, M] the words' log probabilities, ``seen`` [S, M, SEEN] what
    ``token_logprobs`` gives up to each.
    """

    last: Tensor
    hidden: Tensor
    said: Tensor
    seen: Tensor


class LocalBackend:
    """Answers requests with trained models; see the module's text."""

    def __init__(
        self,
        domain: Domain,
        backbone: Backbone,
        sampling: Sampling,
        *,
        seed: int,
        reward: RewardModel | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.domain = domain
        self.backbone = backbone
        self.sampling = sampling
        self.seed = seed
        self.reward = reward
        self.policy = policy
        self.words = backbone.words
        self._end = self.words.ids[domain.end_of_move]
        self._judged: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        self._ranked: dict[Read, tuple[float, ...]] = {}
        self._scorers: dict[str, Scorer] = dict(UNTRAINED)
        if policy is not None:
            heuristic = policy.heuristic
            self._scorers = {
                **scorers(heuristic),
                "reject_probability": heuristic.guarded_reject_probabilities,
            }
        sampled = sampling.model_dump_json(exclude={"max_moves"})
        self._identities = {
            Propose.kind: f"{backbone.digest} {sampled} {seed}",
            Rank.kind: f"{backbone.digest} {policy.digest if policy else None}",
            Verify.kind: f"{reward.digest if reward else None}",
        }

    def identity(self, kind: str) -> str:
        """Of the models, settings and seed that replies to requests of ``kind`` follow from."""
        return self._identities[Propose.kind if kind == Complete.kind else kind]

    def answer(self, request: Request) -> Reply:
        """The reply to one plural request.

        Raises:
            ProtocolError: the request needs a model that this backend was not given.
        """
        if isinstance(request, Propose):
            return self._propose(request.items)
        if isinstance(request, Complete):
            return self._complete(request.items)
        if isinstance(request, Rank):
            return self._rank(request.items)
        if isinstance(request, Verify):
            return self._verify(request.items)
        raise ProtocolError(f"given a {type(request).__name__}, expected a request for a model")

    def embed(self, items: Sequence[RankItem]) -> list[Embeddings]:
        """Embeddings of every item's moves at its state, from the frozen generator."""
        decoder, words = self.backbone.decoder, self.words
        goals = {item.state.problem.goal: self._goal(item.state) for item in items}
        groups = [
            Continuations(
                self._prefix(item.state), tuple(tuple(words.encode(m.text)) for m in item.moves)
            )
            for item in items
        ]
        found: list[Embeddings] = [EMPTY] * len(groups)
        for chosen, last, hidden, tokens in _batches(decoder, groups):
            logprobs = decoder.logits(_before(last, hidden)).log_softmax(-1)
            said = logprobs.gather(-1, tokens[..., None]).squeeze(-1)
            seen = token_logprobs(logprobs, tokens, tokens == self._end)
            for line, index in enumerate(chosen):
                goal = goals[items[index].state.problem.goal]
                lengths = [len(row) for row in groups[index].rows]
                read = Reading(last[line], hidden[line], said[line], seen[line])
                found[index] = _pick(read, lengths, goal)
        return found

    def _propose(self, items: Sequence[ProposeItem]) -> tuple[tuple[Sample, ...], ...]:
        limit = self.sampling.max_move_tokens
        stops = (self._end, self.words.eos)
        return self._sample(items, stops=stops, limit=limit, greedy=False)

    def _complete(self, items: Sequence[CompleteItem]) -> tuple[tuple[Sample, ...], ...]:
        replies: list[tuple[Sample, ...]] = [()] * len(items)
        for greedy in (False, True):
            chosen = [index for index, item in enumerate(items) if item.greedy == greedy]
            part = self._sample(
                [items[index] for index in chosen],
                stops=(self.words.eos,),
                limit=self.sampling.max_solution_tokens,
                greedy=greedy,
            )
            for index, reply in zip(chosen, part, strict=True):
                replies[index] = reply
        return tuple(replies)

    def _sample(
        self,
        items: Sequence[ProposeItem] | Sequence[CompleteItem],
        *,
        stops: Sequence[int],
        limit: int,
        greedy: bool,
    ) -> tuple[tuple[Sample, ...], ...]:
        prefixes = [self._prefix(item.state) for item in items]
        replies: list[tuple[Sample, ...]] = [()] * len(items)
        order = sorted(range(len(items)), key=lambda i: (items[i].count, len(prefixes[i])))
        for chosen in _runs(order, [item.count for item in items], self.sampling.batch_rows):
            seeds = np.array([self._seeds(items[index]) for index in chosen], dtype=np.uint64)
            said, lengths, logprobs = self.backbone.decoder.sample(
                self.backbone.decoder.prefixes([prefixes[index] for index in chosen]),
                seeds,
                stops=stops,
                limit=limit,
                temperature=0.0 if greedy else self.sampling.temperature,
            )
            for line, index in enumerate(chosen):
                replies[index] = tuple(
                    Sample(self.words.decode(row[:length].tolist()), int(length), float(logprob))
                    for row, length, logprob in zip(
                        said[line], lengths[line], logprobs[line], strict=True
                    )
                )
        return tuple(replies)

    def _seeds(self, item: ProposeItem | CompleteItem) -> list[int]:
        key = f"{self.seed}|{item.state.problem.problem_id}|{item.state.trace}"
        start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
        mask = (1 << 64) - 1
        step = 0xD1342543DE82EF95  # an odd multiplier spreads consecutive indices over 64 bits
        return [(start ^ (index * step & mask)) & mask for index in _indices(item)]

    def _rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        """The scores of each item's moves. A move is read once, for every scorer."""
        places = {name: place for place, name in enumerate(self._scorers)}
        for item in items:
            if item.scorer not in places:
                raise ProtocolError(
                    f"scorer {item.scorer!r} given, expected one of {', '.join(places)}"
                    + ("" if self.policy else ", or a trained policy beside the backbone")
                )
        if len(self._ranked) > RANKED:
            self._ranked.clear()
        keys = [self._reads(item) for item in items]
        fresh: list[RankItem] = []
        asked: dict[Read, None] = {}
        for item, reads in zip(items, keys, strict=True):
            new = {
                read: move
                for read, move in zip(reads, item.moves, strict=True)
                if read not in self._ranked and read not in asked
            }
            if new:
                asked |= dict.fromkeys(new)
                fresh.append(replace(item, moves=tuple(new.values())))
        if fresh:
            self._ranked.update(zip(asked, self._score(fresh), strict=True))
        return tuple(
            tuple([self._ranked[read][places[item.scorer]] for read in reads])
            for item, reads in zip(items, keys, strict=True)
        )

    def _reads(self, item: RankItem) -> list[Read]:
        """What each move's scores follow from."""
        prefix = self._prefix(item.state)
        goal = item.state.problem.goal
        return [(prefix, goal, tuple(self.words.encode(move.text))) for move in item.moves]

    @torch.inference_mode()
    def _score(self, items: Sequence[RankItem]) -> list[tuple[float, ...]]:
        """Of each item's moves, one after the other, what every scorer gives."""
        rows = concatenate(self.embed(items))
        columns = [scorer(rows).tolist() for scorer in self._scorers.values()]
        return list(zip(*columns, strict=True))

    def _verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """A step's score: the probability that it and every step before it are right.

        Where the reward model's scores do not multiply: the value of the state after it.
        """
        if self.reward is None:
            raise ProtocolError("a Verify request given, expected a backend with a verifier")
        if len(self._judged) > MEMORY:
            self._judged.clear()
        texts = [self._said(item) for item in items]
        if not self.reward.multiplies:
            texts = [text[-len(item.steps) :] for item, text in zip(items, texts, strict=True)]
        self._judge(pair for text in texts for pair in text)
        verdicts = []
        for item, text in zip(items, texts, strict=True):
            logs = [self._judged[pair] for pair in text]
            scores = accumulate(logs) if self.reward.multiplies else logs
            steps = tuple(map(math.exp, scores))[-len(item.steps) :]
            verdicts.append(Verdict(steps[-1], steps))
        return tuple(verdicts)

    def _said(self, item: VerifyItem) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Each move from the problem's text on: the words before it, and its own."""
        words = self.words
        before = (words.bos, *words.encode(item.state.problem.text))
        pairs = []
        for move in (*item.state.derivation, *item.steps):
            said = tuple(words.encode(move.text))
            pairs.append((before, said))
            before += said
        return pairs

    def _judge(self, pairs: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
        """Bring the log score of each move into ``_judged``."""
        reward = cast(RewardModel, self.reward)
        by_prefix: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for prefix, said in dict.fromkeys(pairs):
            if (prefix, said) not in self._judged:
                by_prefix.setdefault(prefix, []).append(said)
        groups = [
            Continuations(prefix, tuple(rows[start : start + ROWS_AT_ONCE]))
            for prefix, rows in by_prefix.items()
            for start in range(0, len(rows), ROWS_AT_ONCE)
        ]
        for chosen, last, hidden, tokens in _batches(reward.decoder, groups):
            logs = reward.log_scores(_before(last, hidden), hidden, tokens, self._end)
            for line, index in enumerate(chosen):
                prefix, rows = groups[index].prefix, groups[index].rows
                for row, said in enumerate(rows):
                    self._judged[prefix, said] = float(logs[line, row, len(said) - 1])

    def _prefix(self, state: State) -> tuple[int, ...]:
        return (self.words.bos, *self.words.encode(self.domain.serialise(state)))

    def _goal(self, state: State) -> Tensor:
        goal = (self.words.bos, *self.words.encode(state.problem.goal))
        return self.backbone.decoder.prefixes([goal]).last[0]


def _indices(item: ProposeItem | CompleteItem) -> range:
    return range(item.start, item.start + item.count)


def _runs(order: Sequence[int], counts: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Consecutive items of one count, at most ``limit`` rows together."""
    run: list[int] = []
    for index in order:
        full = run and (len(run) + 1) * counts[index] > limit
        if full or (run and counts[run[0]] != counts[index]):
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _batches(
    decoder: Decoder, groups: Sequence[Continuations]
) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
    """Indices, last prefix states [G, D], hidden states [G, S, M, D] and words [G, S, M]."""
    shapes = [(len(group.rows), max(map(len, group.rows))) for group in groups]
    order = sorted(range(len(groups)), key=lambda i: (shapes[i], len(groups[i].prefix)))
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order):
            rows, length = (
                max(shapes[i][axis] for i in order[start : stop + 1]) for axis in (0, 1)
            )
            if (stop + 1 - start) * rows * length > WORDS_AT_ONCE or stop - start >= 256:
                break
            stop += 1
        chosen = order[start:stop]
        rows, length = (max(shapes[i][axis] for i in chosen) for axis in (0, 1))
        tokens = torch.zeros((len(chosen), rows, length), dtype=torch.long)
        for line, index in enumerate(chosen):
            for row, words in enumerate(groups[index].rows):
                tokens[line, row, : len(words)] = torch.tensor(words)
        prefix = decoder.prefixes([groups[index].prefix for index in chosen])
        yield chosen, prefix.last, decoder.extend(prefix, tokens), tokens
        start = stop


def _before(last: Tensor, hidden: Tensor) -> Tensor:
    """The states [G, S, M, D] that predict the words, from those after them and the prefix's."""
    first = last[:, None, None].expand_as(hidden[:, :, :1])
    return torch.cat((first, hidden[:, :, :-1]), 2)


def _pick(read: Reading, lengths: list[int], goal: Tensor) -> Embeddings:
    count, ends = len(lengths), torch.tensor(lengths)
    rows, hidden = torch.arange(count), read.hidden[:count]
    mask = (torch.arange(hidden.shape[1]) < ends[:, None]).to(hidden.dtype)
    return Embeddings(
        state=read.last.expand(count, -1),
        move=(hidden * mask[..., None]).sum(1) / ends[:, None],
        after=hidden[rows, ends - 1],
        goal=goal.expand(count, -1),
        token_logprobs=read.seen[rows, ends - 1],
        logprob=(read.said[:count] * mask).sum(1),
    )


EMPTY = Embeddings(*(torch.empty(0) for _ in fields(Embeddings)))
