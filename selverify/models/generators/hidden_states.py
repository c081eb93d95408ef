"""Embeddings of states, moves and goals from any causal model.

Knows: which hidden states stand for what (``models.heuristic.embedding``). Does not know: how the
heuristic is trained, searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from selverify.models.generators.prefix_cache import PrefixCache
from selverify.models.generators.pretrained import HubModel
from selverify.models.generators.sampling import in_batches
from selverify.models.heuristic.embedding import Embeddings, concatenate, embeddings_of
from selverify.models.prompting import Prompt, disarmed
from selverify.models.verifiers.reward import SCALE, SEEN, WINDOW
from selverify.search.requests import RankItem
from selverify.types import State

LOGITS_AT_ONCE = 100_000_000
"""Moves are read in batches with at most so many logits: a vocabulary has 128,000 words."""
GOALS_AT_ONCE = 32
_REMEMBERED_GOALS = 200_000


@dataclass(frozen=True, slots=True)
class _Part:
    """The moves ``start`` to ``stop`` of the item at ``place``, at most ``longest`` tokens each."""

    place: int
    start: int
    stop: int
    longest: int


class HiddenStates:
    """Embeds the moves of items with the frozen generator; see the module's text."""

    def __init__(
        self,
        pretrained: HubModel,
        prefixes: PrefixCache,
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
        for parts in self._batches(prompts, moves):
            sizes = [part.stop - part.start for part in parts]
            goals = [self._goals[items[part.place].state.problem.goal] for part in parts]
            rows = self._read_moves(
                [prompts[part.place] for part in parts],
                [row for part in parts for row in moves[part.place][part.start : part.stop]],
                torch.arange(len(parts)).repeat_interleave(torch.tensor(sizes)),
                torch.stack(goals),
            )
            for part, own in zip(parts, _split(rows, sizes), strict=True):
                found[part.place].append(own)
        return [concatenate(parts) for parts in found]

    def _read_moves(
        self,
        prompts: Sequence[tuple[int, ...]],
        moves: Sequence[Sequence[int]],
        rows: Tensor,
        goals: Tensor,
    ) -> Embeddings:
        """A row a move, which continues the prompt that ``rows`` says; ``goals`` one a prompt."""
        past = self._prefixes.read(prompts)
        rows = rows.to(past.lengths.device)
        state, first = past.hidden[rows], past.logits[rows]
        lengths = torch.tensor(list(map(len, moves)), device=rows.device)
        tokens = pad_sequence(list(map(torch.tensor, moves)), batch_first=True).to(rows.device)
        read = self._prefixes.extend(past.take(rows), tokens)
        logprobs = torch.cat((first[:, None], read.logits[:, :-1]), 1).log_softmax(-1)
        said = logprobs.gather(-1, tokens[..., None]).squeeze(-1)
        mask = torch.arange(tokens.shape[1], device=rows.device) < lengths[:, None]
        return embeddings_of(
            state=state,
            goal=goals.to(rows.device)[rows],
            hidden=read.hidden,
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
