"""Embeddings of states, moves and goals from a server's embeddings endpoint.

Knows: which text each embedding is of (``models.heuristic.embedding``). Does not know: servers. An
endpoint gives no probabilities of a move, so token log probabilities are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from selverify.domains.base import Domain
from selverify.models.heuristic.embedding import Embeddings
from selverify.models.verifiers.reward import SEEN
from selverify.search.requests import RankItem


class EmbedsTexts(Protocol):
    """What embeds texts, one list of numbers each, in their order."""

    def identity(self) -> str:
        """Content id of all that the numbers depend on."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> list[list[float]]:
        """One embedding a text."""
        ...


class ServedStates:
    """Embeds the moves of items by their texts; each distinct text is asked for once."""

    def __init__(self, embeddings: EmbedsTexts, domain: Domain) -> None:
        self._embeddings = embeddings
        self._domain = domain

    def embed(self, items: Sequence[RankItem]) -> list[Embeddings]:
        """Embeddings of every item's moves at its state; all log probabilities are 0."""
        serialised = [self._domain.serialise(item.state) for item in items]
        wanted = dict.fromkeys(
            text
            for item, state in zip(items, serialised, strict=True)
            for text in self._texts(item, state)
        )
        vectors = self._embeddings.embed_texts(list(wanted))
        known = {text: torch.tensor(one) for text, one in zip(wanted, vectors, strict=True)}
        found = []
        for item, state in zip(items, serialised, strict=True):
            texts = [known[text] for text in self._texts(item, state)]
            count = len(item.moves)
            found.append(
                Embeddings(
                    state=texts[0].expand(count, -1),
                    move=torch.stack(texts[2 : 2 + count]),
                    after=torch.stack(texts[2 + count :]),
                    goal=texts[1].expand(count, -1),
                    token_logprobs=torch.zeros(count, SEEN),
                    logprob=torch.zeros(count),
                )
            )
        return found

    def _texts(self, item: RankItem, state: str) -> list[str]:
        """The state, the goal, each move, and each state after a move."""
        moves = [move.text for move in item.moves]
        between = self._domain.end_of_move if self._domain.end_of_move.isspace() else " "
        return [state, item.state.problem.goal, *moves, *(f"{state}{between}{m}" for m in moves)]
