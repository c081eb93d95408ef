"""The trained ranker: every scorer's score of each move, from the move's embedding.

Knows: scorers by name, embeddings. Does not know: how embeddings are computed, how the heuristic is
trained, searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from selverify.errors import ProtocolError
from selverify.models.generators.checkpoints import RankerCheckpoint
from selverify.models.heuristic.embedding import Embed, MoveKey, concatenate, move_keys
from selverify.models.heuristic.hybrid import UNTRAINED, Scorer, scorers
from selverify.models.parameter_count import parameters_of
from selverify.search.requests import RankItem

_REMEMBERED = 200_000
"""Ranked moves that are remembered, with the scores of all scorers."""


class TrainedRanker:
    """Satisfies ``Ranker``. A move is embedded once for all scorers."""

    def __init__(
        self,
        embed: Embed,
        checkpoint: RankerCheckpoint | None,
        *,
        backbone: str,
        alone: bool = False,
    ) -> None:
        """``backbone`` identifies what ``embed`` reads with; without a checkpoint only the scorers
        that need no training answer. ``alone``: a move's score is the same whatever else is asked,
        to the last bit, where its embedding is."""
        self._embed = embed
        self._alone = alone
        self._trained = checkpoint is not None
        self._scorers: dict[str, Scorer] = dict(UNTRAINED)
        self._parameters = 0
        if checkpoint is not None:
            heuristic = checkpoint.heuristic
            self._parameters = parameters_of(heuristic)
            self._scorers = {
                **scorers(heuristic),
                "reject_probability": heuristic.guarded(heuristic.reject_probabilities),
                "expected_loss": heuristic.guarded(heuristic.expected_losses),
            }
        self._identity = f"{backbone} {checkpoint.digest if checkpoint else None}"
        self._known: dict[MoveKey, tuple[float, ...]] = {}

    def identity(self) -> str:
        """Of the embeddings and the trained heuristic."""
        return self._identity

    def parameters(self) -> int:
        """Of all heads, though no one scorer needs all of them; 0 without a checkpoint."""
        return self._parameters

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
                    + ("" if self._trained else ", or a trained policy beside the generator")
                )
        if len(self._known) > _REMEMBERED:
            self._known = {}  # another thread may still read what was there
        known = self._known
        self._learn(items, known)
        return tuple(
            tuple(known[key][places[item.scorer]] for key in _keys(item)) for item in items
        )

    def _learn(self, items: Sequence[RankItem], known: dict[MoveKey, tuple[float, ...]]) -> None:
        """Bring all scorers' scores of moves not yet known into ``known``."""
        asked: dict[MoveKey, None] = {}
        fresh: list[RankItem] = []
        for item in items:
            new = {
                key: move
                for key, move in zip(_keys(item), item.moves, strict=True)
                if key not in known and key not in asked
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
            known.update(zip(asked, scores, strict=True))


def _keys(item: RankItem) -> list[MoveKey]:
    return move_keys(item.state, (move.text for move in item.moves))
