"""D_type, r_theta and their sum (Eq. dtype_embed, r_model_embed, hybrid_score).

Knows: the two small networks over embeddings. Does not know: where embeddings come from, labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from selverify.heuristic.embedding import Embeddings

STEP_SCALE = 0.1
"""The learned distance counts remaining steps in tenths, so that it is of the residual's size."""


def cosine_distance(after: Tensor, goal: Tensor) -> Tensor:
    """1 - cos(z_w', z_w*) for each row, in [0, 2]."""
    return 1.0 - functional.cosine_similarity(after, goal, dim=-1)


def _head(inputs: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(inputs), nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, 1)
    )


class LearnedDistance(nn.Module):
    """d(z_w', z_w*): remaining steps to the goal, predicted from the two embeddings."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.head = _head(2 * width, hidden)

    def forward(self, after: Tensor, goal: Tensor) -> Tensor:
        """Non-negative distances [rows]."""
        steps: Tensor = self.head(torch.cat((after, goal), -1)).squeeze(-1)
        return functional.softplus(steps)


class Residual(nn.Module):
    """r_theta = g_theta([z_w; z_m; z_w*])."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.head = _head(3 * width, hidden)

    def forward(self, state: Tensor, move: Tensor, goal: Tensor) -> Tensor:
        """Residuals [rows]; lower is more worth a verifier call."""
        scores: Tensor = self.head(torch.cat((state, move, goal), -1)).squeeze(-1)
        return scores


class Heuristic(nn.Module):
    """The trained pair, with the name of every scorer that a search may ask for."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.distance = LearnedDistance(width, hidden)
        self.residual = Residual(width, hidden)

    def distances(self, rows: Embeddings) -> Tensor:
        """STEP_SCALE times the learned distance [rows]."""
        scores: Tensor = STEP_SCALE * self.distance(rows.after, rows.goal)
        return scores

    def residuals(self, rows: Embeddings) -> Tensor:
        """The learned residual [rows]."""
        scores: Tensor = self.residual(rows.state, rows.move, rows.goal)
        return scores

    def forward(self, rows: Embeddings) -> Tensor:
        """h(w, m) = D_type(w', w*) + r_theta(w, m) [rows]; lower ranks first (Eq. hybrid_score)."""
        return self.distances(rows) + self.residuals(rows)
