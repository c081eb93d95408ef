"""Embeddings of states, moves and goals from any causal model, and the ranker that reads them.

Knows: which hidden states stand for what (``selverify.heuristic.embedding``). Does not know: how
the heuristic is trained, searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from selverify.backends.models import Policy
from selverify.backends.prefixes import Prefixes, Read
from selverify.backends.pretrained import Pretrained
from selverify.backends.reward import SCALE, SEEN, WINDOW
from selverify.errors import ProtocolError
from selverify.heuristic.embedding import Embeddings, concatenate
from selverify.heuristic.hybrid import UNTRAINED, Scorer, scorers
from selverify.prompting import Prompt
from selverify.requests import RankItem
from selverify.types import State

LOGITS_AT_ONCE = 100_000_000
"""Moves are read in batches with at most so many logits: a vocabulary has 128,000 words."""
MEMORY = 200_000
"""Ranked moves that are remembered, with the scores of all scorers."""
Embed = Callable[[Sequence[RankItem]], list[Embeddings]]


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

    def embed(self, items: Sequence[RankItem]) -> list[Embeddings]:
        """Embeddings of every item's moves at its state; on the CPU, in float32."""
        goals = self._goals({item.state.problem.goal for item in items})
        prompts = [self._pretrained.encode(self._prompting(item.state)) for item in items]
        moves = [[self._tokens(move.text) for move in item.moves] for item in items]
        found: list[Embeddings] = [Embeddings(*(torch.empty(0) for _ in fields(Embeddings)))]
        found *= len(items)
        for chosen in self._batches(prompts, moves):
            past = self._prefixes.read([prompts[place] for place in chosen])
            sizes = [len(moves[place]) for place in chosen]
            rows = torch.arange(len(chosen)).repeat_interleave(torch.tensor(sizes))
            state, first = past.hidden[rows], past.logits[rows]
            tokens, mask = _padded([row for place in chosen for row in moves[place]])
            device = past.lengths.device
            read = self._prefixes.extend(past.take(rows.to(device)), tokens.to(device))
            parts = _embeddings(state, first, read, tokens.to(device), mask.to(device))
            for place, part in zip(chosen, _split(parts, sizes), strict=True):
                goal = goals[items[place].state.problem.goal].expand(len(part.state), -1)
                found[place] = replace(part, goal=goal)
        return found

    def _tokens(self, text: str) -> tuple[int, ...]:
        """A move's own tokens, the end of the move among them."""
        end = "" if self._end.strip() else self._end
        encoded = self._pretrained.tokenizer.encode(text + end, add_special_tokens=False)
        return tuple(encoded)

    def _goals(self, goals: set[str]) -> dict[str, Tensor]:
        texts = sorted(goals)
        prompts = [self._pretrained.encode(Prompt((), text)) for text in texts]
        return dict(zip(texts, self._prefixes.read(prompts).hidden.cpu(), strict=True))

    def _batches(
        self, prompts: Sequence[Sequence[int]], moves: Sequence[Sequence[Sequence[int]]]
    ) -> Iterator[list[int]]:
        """Items of similar size, with at most ``LOGITS_AT_ONCE`` logits of moves together."""
        words = len(self._pretrained.tokenizer)
        longest = [max(map(len, rows)) for rows in moves]
        batch: list[int] = []
        for place in sorted(range(len(prompts)), key=lambda at: (longest[at], len(prompts[at]))):
            together = [*batch, place]
            rows = sum(len(moves[at]) for at in together)
            if batch and rows * max(longest[at] for at in together) * words > LOGITS_AT_ONCE:
                yield batch
                together = [place]
            batch = together
        if batch:
            yield batch


class TrainedRanker:
    """Satisfies ``Ranker``: a policy's scorers over embeddings. A move is read once for all."""

    def __init__(self, embed: Embed, policy: Policy | None, *, backbone: str) -> None:
        """``backbone`` identifies what ``embed`` reads with; without a policy only the scorers
        that need no training answer."""
        self._embed = embed
        self._scorers: dict[str, Scorer] = dict(UNTRAINED)
        if policy is not None:
            heuristic = policy.heuristic
            self._scorers = {**scorers(heuristic), "doubt": heuristic.doubts}
        self._identity = f"{backbone} {policy.digest if policy else None}"
        self._known: dict[tuple[str, str, str], tuple[float, ...]] = {}

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
        asked: dict[tuple[str, str, str], None] = {}
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
            columns = [scorer(rows).tolist() for scorer in self._scorers.values()]
            self._known.update(zip(asked, zip(*columns, strict=True), strict=True))


def _keys(item: RankItem) -> list[tuple[str, str, str]]:
    problem = item.state.problem
    where = f"{problem.text}\0{problem.goal}"
    return [(where, item.state.trace, move.text) for move in item.moves]


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
