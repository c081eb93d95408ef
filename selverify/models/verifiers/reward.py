"""The heads of the process reward model, on a tuned backbone.

Knows: the backbone's log probabilities of words, and how steps multiply. Does not know: how the
head is trained, problems, verdicts.

Where a step contradicts the problem's text, the probabilities that a small backbone gives to its
words tell more than the hidden state. On a few hundred problems a head on hidden states overfits to
them; a head on the probabilities generalises. Where a step is wrong because the goal cannot be
reached any more, legal words are equally probable, and a head values the state after the step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WINDOW = 12
"""Words of a move that the head sees; the longest move of any domain has fewer."""
SEEN = 3 * WINDOW
SCALE = 0.3
"""Log probabilities reach about -10 nats; scaled, they suit a small network."""
HOPEFUL = 2.0
"""Before training a move counts as right with probability 0.88."""


def token_logprobs(logprobs: Tensor, words: Tensor, ended: Tensor) -> Tensor:
    """What the backbone's predictions say of the move so far, at each word.

    Args:
        logprobs: [..., M, V], in nats, predicted at each place before its word was said.
        words: [..., M], the words said.
        ended: [..., M], whether a word ends a move or precedes the first one.

    Returns:
        [..., M, SEEN]: of the last WINDOW words, newest first, the log probability, its distance
        from the most probable word's, and 1 where the word belongs to the move.
    """
    said = logprobs.gather(-1, words[..., None]).squeeze(-1)
    behind = said - logprobs.amax(-1)
    earlier_ends = _window(ended.to(said.dtype), fill=1.0)[..., 1:].cumsum(-1)
    first = torch.ones_like(earlier_ends[..., :1])
    inside = torch.cat((first, (earlier_ends == 0).to(said.dtype)), -1)
    parts = [SCALE * _window(values, fill=0.0) * inside for values in (said, behind)]
    return torch.cat((*parts, inside), -1)


def _window(values: Tensor, *, fill: float) -> Tensor:
    """[..., M, WINDOW]: at each place the last WINDOW values, newest first."""
    padding = values.new_full((*values.shape[:-1], WINDOW - 1), fill)
    return torch.cat((padding, values), -1).unfold(-1, WINDOW, 1).flip(-1)


class TokenLogprobHead(nn.Module):
    """The value of a state as a product: all moves so far are right, and the rest succeeds.

    log V(w_t) = sum over i up to t of log sigmoid(right_i) + log sigmoid(rest_t).

    ``right`` sees the log probabilities of move i; ``rest`` sees the state before move t, which
    cannot tell whether that move is right. Monte-Carlo values mix both: a right step of a problem
    that the generator seldom solves has a low value. Only the first factor is a verdict.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        last = nn.Linear(hidden, 1)
        nn.init.constant_(last.bias, HOPEFUL)
        self.right = nn.Sequential(nn.Linear(SEEN, hidden), nn.SiLU(), last)
        self.rest = nn.Linear(width, 1)  # a deeper one overfits

    def log_right(self, seen: Tensor) -> Tensor:
        """Log probability [...] that a move is right, from its ``token_logprobs`` [..., SEEN]."""
        return functional.logsigmoid(self.right(seen).squeeze(-1))

    def forward(self, seen: Tensor, before: Tensor) -> Tensor:
        """Log values [..., T] of the states after T moves.

        Args:
            seen: ``token_logprobs`` of the moves, [..., T, SEEN].
            before: hidden states before the moves, [..., T, D].
        """
        rest = functional.logsigmoid(self.rest(before).squeeze(-1))
        return self.log_right(seen).cumsum(-1) + rest


class ValueHead(nn.Module):
    """The value of a state, from the tuned backbone's hidden state after its last word."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    def logit(self, states: Tensor) -> Tensor:
        """Log odds [...] of reaching the right answer from ``states`` [..., D]."""
        log_odds: Tensor = self.value(states).squeeze(-1)
        return log_odds
