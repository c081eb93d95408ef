"""D_type, r_theta and their sum (Eq. dtype_embed, r_model_embed, hybrid_score).

Knows: the small networks over embeddings. Does not know: where embeddings come from, labels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from selverify.models.heuristic.embedding import Embeddings
from selverify.models.heuristic.familiarity import Familiarity
from selverify.models.verifiers.head import StepHead, read_of

STEP_SCALE = 0.1
"""The learned distance counts remaining steps in tenths, so that it is of the residual's size."""


def cosine_distance(after: Tensor, goal: Tensor) -> Tensor:
    """1 - cos(z_w', z_w*) for each row, in [0, 2]."""
    return 1.0 - functional.cosine_similarity(after, goal, dim=-1)


def _head(inputs: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(inputs), nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, 1)
    )


Scorer = Callable[[Embeddings], Tensor]


class LearnedDistance(nn.Module):
    """d(z_w', z_w*): remaining steps to the goal, predicted from the two embeddings."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.head = _head(2 * width, hidden)

    def forward(self, after: Tensor, goal: Tensor) -> Tensor:
        """Non-negative distances [rows]."""
        steps: Tensor = self.head(torch.cat((after, goal), -1)).squeeze(-1)
        return functional.softplus(steps)


class PrintedHead(nn.Module):
    """g([z_w; z_m; z_w*]), the residual as the paper prints it (Eq. r_model_embed)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.head = _head(3 * width, hidden)

    def forward(self, rows: Embeddings) -> Tensor:
        """One number a row [rows]."""
        scores: Tensor = self.head(torch.cat((rows.state, rows.move, rows.goal), -1))
        return scores.squeeze(-1)


class MoveHead(PrintedHead):
    """g([z_w; z_m; z_w*; e_m]): the paper's inputs, and the move's token log probabilities e_m.

    Hidden states represent the content of a move, the log probabilities of its words the
    generator's confidence in it, which hidden states of a small model hardly show
    (docs/decisions/0024).
    """

    def __init__(self, width: int, seen: int, hidden: int) -> None:
        super().__init__(width, hidden)
        self.logprob_term = nn.Sequential(nn.Linear(seen, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, rows: Embeddings) -> Tensor:
        """One number a row [rows]."""
        term: Tensor = self.logprob_term(rows.token_logprobs)
        return super().forward(rows) + term.squeeze(-1)


class Heuristic(nn.Module):
    """The trained distance and residual, and how likely the verifier is to accept a move.

    ``residual`` orders the moves of one state. Its level is not comparable across states, so
    ``acceptance`` decides whether a state deserves a call at all, and ``expected`` is the score
    that the verifier would give. Both read what a verifier's head does, z_w' in place of z_w and
    z_w*, and are valid for states like those of their training only, which ``familiarity`` detects.

    Three residuals are there for comparison. ``plain`` is trained without the trajectory term,
    ``wordless`` reads no token log probabilities, and ``printed`` is the paper's: it reads none
    either, and L_rank orders r_theta alone (docs/decisions/0012).
    """

    def __init__(self, width: int, seen: int, hidden: int) -> None:
        super().__init__()
        self.sizes = {"width": width, "seen": seen, "hidden": hidden}
        self.distance = LearnedDistance(width, hidden)
        self.residual = MoveHead(width, seen, hidden)
        self.acceptance = StepHead(width, seen, hidden)
        self.expected = StepHead(width, seen, hidden)
        self.familiarity = Familiarity(width)
        self.plain = copy.deepcopy(self.residual)  # the same start
        self.wordless = PrintedHead(width, hidden)
        self.printed = copy.deepcopy(self.wordless)

    def distances(self, rows: Embeddings) -> Tensor:
        """STEP_SCALE times the learned distance [rows]."""
        scores: Tensor = STEP_SCALE * self.distance(rows.after, rows.goal)
        return scores

    def with_residual(self, residual: PrintedHead) -> Scorer:
        """h = D_type + ``residual``, of embeddings [rows]; lower ranks first."""

        def scores(rows: Embeddings) -> Tensor:
            found: Tensor = self.distances(rows) + residual(rows)
            return found

        return scores

    def reject_probabilities(self, rows: Embeddings) -> Tensor:
        """The probability that the verifier rejects the move [rows], below 1."""
        return _below_one(torch.sigmoid(-self.acceptance(read_of(rows))))

    def expected_losses(self, rows: Embeddings) -> Tensor:
        """1 less the score that the verifier is expected to give the move [rows], below 1."""
        return _below_one(torch.sigmoid(-self.expected(read_of(rows))))

    def guarded(self, scorer: Scorer) -> Scorer:
        """``scorer``, and 1 at an unfamiliar state: what a move is trusted by."""
        return lambda rows: scorer(rows).masked_fill(self.familiarity.is_unlike(rows.state), 1.0)

    def forward(self, rows: Embeddings) -> Tensor:
        """h(w, m) = D_type(w', w*) + r_theta(w, m) [rows]; lower ranks first (Eq. hybrid_score)."""
        return self.with_residual(self.residual)(rows)


def _below_one(chances: Tensor) -> Tensor:
    return chances.clamp(max=1.0 - torch.finfo(chances.dtype).eps)


UNTRAINED: Mapping[str, Scorer] = MappingProxyType(
    {
        "likelihood": lambda rows: -rows.logprob,
        "distance_cosine": lambda rows: cosine_distance(rows.after, rows.goal),
    }
)
"""Scorers that the generator alone gives."""


def scorers(heuristic: Heuristic) -> dict[str, Scorer]:
    """Every scorer by the name that a search asks for; lower ranks first."""
    return {
        **UNTRAINED,
        "distance": heuristic.distances,
        "residual": heuristic.residual,
        "hybrid": heuristic,
        "hybrid_without_trajectory": heuristic.with_residual(heuristic.plain),
        "hybrid_without_token_logprobs": heuristic.with_residual(heuristic.wordless),
        "printed": heuristic.with_residual(heuristic.printed),
    }
