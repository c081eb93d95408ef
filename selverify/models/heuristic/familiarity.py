"""Whether a state is like those that the ranker was trained on.

Knows: hidden states of states. Does not know: how they were made, moves, labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_JITTER = 1e-9


class Familiarity(nn.Module):
    """The Mahalanobis distance of z_w to the training states, and how far is too far.

    Before ``fit`` every state is familiar.
    """

    mean: Tensor
    whiten: Tensor
    limit: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("whiten", torch.eye(width))
        self.register_buffer("limit", torch.tensor(float("inf")))

    def fit(self, states: Tensor, held: Tensor, *, familiar: float) -> None:
        """Learn the distance from ``states`` and the limit from ``held`` (both [states, D]).

        The share ``familiar`` of the held-out states lies within the limit. The covariance is
        shrunk (Ledoit and Wolf 2004): there may be fewer states than dimensions.
        """
        from sklearn.covariance import LedoitWolf

        fitted = LedoitWolf(store_precision=False).fit(states.double().numpy())
        covariance = torch.from_numpy(fitted.covariance_)
        spread = covariance.diagonal().mean() + _JITTER  # states may be constant in a direction
        covariance += _JITTER * spread * torch.eye(len(covariance))
        self.mean.copy_(torch.from_numpy(fitted.location_))
        self.whiten.copy_(torch.linalg.cholesky(torch.linalg.inv(covariance)))
        self.limit.copy_(torch.quantile(self(held), familiar))

    def forward(self, states: Tensor) -> Tensor:
        """Distances [rows] of states [rows, D], in standard deviations."""
        distances: Tensor = torch.linalg.vector_norm((states - self.mean) @ self.whiten, dim=-1)
        return distances

    def is_unlike(self, states: Tensor) -> Tensor:
        """[rows], True for a state beyond the limit, and for one that is no number."""
        within: Tensor = self(states) <= self.limit
        return ~within
