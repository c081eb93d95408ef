"""Embeddings of states, moves and goals from any causal model, and the ranker that reads them.

Knows: which hidden states stand for what (``models.heuristic.embedding``). Does not know: how the
heuristic is trained, searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from selverify.errors import ProtocolError
from selverify.models.generators.checkpoints import Policy
from selverify.models.generators.prefixes import Prefixes, Read
from selverify.models.generators.pretrained import Pretrained
from selverify.models.heuristic.embedding import Embed, Embeddings, concatenate
from selverify.models.heuristic.hybrid import UNTRAINED, Scorer, scorers
from selverify.models.prompting import Prompt, disarmed
from selverify.models.verifiers.reward import SCALE, SEEN, WINDOW
from selverify.search.requests import RankItem
from selverify.types import State

LOGITS_AT_ONCE = 100_000_000
"""Moves are read in batches with at most so many logits: a vocabulary has 128,000 words."""
GOALS_AT_ONCE = 32
MEMORY = 200_000
"""Ranked moves that are remembered, with the scores of all scorers."""
Key = tuple[str, str, tuple[str, ...], str]
"""What a move's scores follow from: the problem, its goal, the derivation, the move."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The moves ``start`` to ``stop`` of the item at ``place``."""

    place: int
    start: int
    stop: int


class HiddenStates:
    """Embeds the moves of items with the frozen generator; see the module's text."""

    def __init__(
        self,
        pretrained: Pretrained,
        prefixes: Prefixes,
        *,
        prompting: Callable[[State], Prompt],
        end_of_move: str,
    ) -> None:
        self._pretrained = pretrained
        self._prefixes = prefixes
        self._prompting = prompting
        self._end = end_of_move
        self._goals: dict[str, Tensor] = {}

    def embed(self, items: Sequence[RankItem]) -> list[Embeddings]:
        """Embeddings of every item's moves at its state; on the CPU, in float32."""
        self._read_goals({item.state.problem.goal for item in items})
        prompts = [self._pretrained.encode(self._prompting(item.state)) for item in items]
        moves = [[self._tokens(move.text) for move in item.moves] for item in items]
        found: list[list[Embeddings]] = [[] for _ in items]
        for chosen in self._batches(prompts, moves):
            past = self._prefixes.read([prompts[part.place] for part in chosen])
            sizes = [part.stop - part.start for part in chosen]
            rows = torch.arange(len(chosen)).repeat_interleave(torch.tensor(sizes))
            device = past.lengths.device
            rows = rows.to(device)
            state, first = past.hidden[rows], past.logits[rows]
            said = [row for part in chosen for row in moves[part.place][part.start : part.stop]]
            tokens, mask = (one.to(device) for one in _padded(said))
            read = self._prefixes.extend(past.take(rows), tokens)
            parts = _split(_embeddings(state, first, read, tokens, mask), sizes)
            for part, rows_of in zip(chosen, parts, strict=True):
                goal = self._goals[items[part.place].state.problem.goal]
                goals = goal.expand(len(rows_of.state), -1)
                found[part.place].append(replace(rows_of, goal=goals))
        return [concatenate(parts) for parts in found]

    def _tokens(self, text: str) -> tuple[int, ...]:
        """A move's own tokens, the end of the move among them."""
        end = "" if self._end.strip() else self._end
        encoded = self._pretrained.tokenizer.encode(disarmed(text) + end, add_special_tokens=False)
        return tuple(encoded)

    def _read_goals(self, goals: set[str]) -> None:
        """Bring the goals' hidden states into ``_goals``."""
        if len(self._goals) > MEMORY:
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
        batch: list[_Part] = []
        taken = 0
        for place in sorted(range(len(prompts)), key=lambda at: (longest[at], len(prompts[at]))):
            fitting = max(1, LOGITS_AT_ONCE // max(1, longest[place] * words))
            for start in range(0, len(moves[place]), fitting):
                part = _Part(place, start, min(start + fitting, len(moves[place])))
                size = part.stop - part.start
                if batch and (taken + size) * longest[place] * words > LOGITS_AT_ONCE:
                    yield batch
                    batch, taken = [], 0
                batch.append(part)
                taken += size
        if batch:
            yield batch


class TrainedRanker:
    """Satisfies ``Ranker``: a policy's scorers over embeddings. A move is read once for all."""

    def __init__(
        self, embed: Embed, policy: Policy | None, *, backbone: str, alone: bool = False
    ) -> None:
        """``backbone`` identifies what ``embed`` reads with; without a policy only the scorers
        that need no training answer. ``alone``: a move's score is the same whatever else is asked,
        to the last bit, where its embedding is."""
        self._embed = embed
        self._alone = alone
        self._scorers: dict[str, Scorer] = dict(UNTRAINED)
        if policy is not None:
            heuristic = policy.heuristic
            self._scorers = {
                **scorers(heuristic),
                "reject_probability": heuristic.guarded_reject_probabilities,
            }
        self._identity = f"{backbone} {policy.digest if policy else None}"
        self._known: dict[Key, tuple[float, ...]] = {}

    def identity(self) -> str:
        """Of the embeddings and the trained heuristic."""
        return self._identity

    @torch.inference_mode()
    def rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        """The named scorer's score of each item's moves, lower first.

        Raises:
            ProtocolError: no scorer has that name.
        """
        places = {name: place for place, name in enumerate(self._scorers)}
        for item in items:
            if item.scorer not in places:
                raise ProtocolError(
                    f"scorer {item.scorer!r} given, expected one of {', '.join(places)}"
                )
        if len(self._known) > MEMORY:
            self._known.clear()
        self._learn(items)
        return tuple(
            tuple(self._known[key][places[item.scorer]] for key in _keys(item)) for item in items
        )

    def _learn(self, items: Sequence[RankItem]) -> None:
        """Bring all scorers' scores of moves not yet known into ``_known``."""
        asked: dict[Key, None] = {}
        fresh: list[RankItem] = []
        for item in items:
            new = {
                key: move
                for key, move in zip(_keys(item), item.moves, strict=True)
                if key not in self._known and key not in asked
            }
            if new:
                asked |= dict.fromkeys(new)
                fresh.append(replace(item, moves=tuple(new.values())))
        if fresh:
            rows = concatenate(self._embed(fresh))
            scores = [
                row
                for part in (rows.each() if self._alone else [rows])
                for row in zip(*(one(part).tolist() for one in self._scorers.values()), strict=True)
            ]
            self._known.update(zip(asked, scores, strict=True))


def _keys(item: RankItem) -> list[Key]:
    problem, said = item.state.problem, item.state.said
    return [(problem.text, problem.goal, said, move.text) for move in item.moves]


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Tokens [B, T] aligned at their left end, and which of them are tokens."""
    longest = max(map(len, rows))
    tokens = torch.zeros((len(rows), longest), dtype=torch.long)
    for place, row in enumerate(rows):
        tokens[place, : len(row)] = torch.tensor(row)
    lengths = torch.tensor([len(row) for row in rows])
    return tokens, torch.arange(longest) < lengths[:, None]


def _embeddings(
    state: Tensor, first: Tensor, read: Read, tokens: Tensor, mask: Tensor
) -> Embeddings:
    """Rows without a goal, which stands as an empty tensor until it is filled in."""
    logprobs = torch.cat((first[:, None], read.logits[:, :-1]), 1).log_softmax(-1)
    said = logprobs.gather(-1, tokens[..., None]).squeeze(-1)
    behind = said - logprobs.amax(-1)
    lengths = mask.sum(1)
    mean = (read.hidden * mask[..., None]).sum(1) / lengths[:, None]
    after = read.hidden[torch.arange(len(tokens), device=tokens.device), lengths - 1]
    seen = least_probable(said, behind, mask)
    logprob = (said * mask).sum(1)
    parts = (state, mean, after, state[:, :0], seen, logprob)
    return Embeddings(*(part.cpu() for part in parts))


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


def _split(rows: Embeddings, sizes: Sequence[int]) -> list[Embeddings]:
    columns = [getattr(rows, one.name).split(list(sizes)) for one in fields(Embeddings)]
    return [Embeddings(*parts) for parts in zip(*columns, strict=True)]
