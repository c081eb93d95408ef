"""Embeddings of states, moves and goals: what the frozen generator backbone says of them.

Knows: which hidden state stands for what. Does not know: how they are computed, batches, models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One row for each (state, move), all of shape [rows, D].

    ``state`` is z_w, the hidden state after the last word of w. ``move`` is z_m, the mean of the
    hidden states over the move's words read after w. ``after`` is z_w', the hidden state after
    the move's last word. ``goal`` is z_w*, the hidden state after the question read alone.
    ``logprob`` [rows] is the generator's log probability of the move at w, in nats.
    """

    state: Tensor
    move: Tensor
    after: Tensor
    goal: Tensor
    logprob: Tensor

    def take(self, rows: Tensor) -> Embeddings:
        """The rows at the given positions, in that order."""
        return Embeddings(
            self.state[rows], self.move[rows], self.after[rows], self.goal[rows], self.logprob[rows]
        )


def concatenate(parts: list[Embeddings]) -> Embeddings:
    """All rows of ``parts``, in order."""
    return Embeddings(
        torch.cat([part.state for part in parts]),
        torch.cat([part.move for part in parts]),
        torch.cat([part.after for part in parts]),
        torch.cat([part.goal for part in parts]),
        torch.cat([part.logprob for part in parts]),
    )
