"""The one training loop: epochs of batches, early stopping, a line of the log an epoch.

Knows: optimisers, held-out losses. Does not know: models, what a loss is made of, data.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from selverify.errors import ProtocolError

Update = Callable[[], object]
"""Changes the weights once, by their gradients."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One line of the training log.

    ``part`` is what is trained, ``training_loss`` the mean over the epoch's batches.
    ``validation_loss`` is on held-out problems, None where nothing is held out.
    """

    part: str
    epoch: int
    training_loss: float
    validation_loss: float | None

    def __str__(self) -> str:
        """As it is shown to people."""
        held = "" if self.validation_loss is None else f", held out {self.validation_loss:.4f}"
        return f"{self.part}, epoch {self.epoch}, loss {self.training_loss:.4f}{held}"


ReportEpoch = Callable[[Epoch], None]


def fit(
    part: str,
    module: nn.Module,
    losses: Callable[[], Iterable[Tensor]],
    *,
    batches: int,
    update: Update,
    report: ReportEpoch,
    validation: Callable[[], float] | None = None,
    keep_start: bool = False,
) -> float:
    """Train ``module``; with a ``validation`` its weights are those of the epoch with the lowest.

    Args:
        losses: called at the start of each epoch; the mean loss of each batch, computed when it is
            the batch's turn.
        batches: how many there are in all; the training ends after them, within an epoch or not.
        validation: the loss on held-out problems; None: the last weights stay.
        keep_start: whether the weights before the first epoch may be the best, too.

    Returns:
        The lowest loss on held-out problems; infinite without any.

    Raises:
        ProtocolError: a held-out loss is not a number.
    """
    lowest, best = math.inf, copy.deepcopy(module.state_dict())
    if validation is not None and keep_start:
        lowest = _validated(validation)
    epoch = 0
    while batches:
        trained = [descend(module, loss, update) for loss in islice(losses(), batches)]
        batches, epoch = batches - len(trained), epoch + 1
        held = None if validation is None else _validated(validation)
        report(Epoch(part, epoch, sum(trained) / len(trained), held))
        if held is not None and held < lowest:
            lowest, best = held, copy.deepcopy(module.state_dict())
    if validation is not None:
        module.load_state_dict(best)
    return lowest


def descend(module: nn.Module, loss: Tensor, update: Update) -> float:
    """One step down the gradient of ``loss``, whose value is returned."""
    loss.backward()  # type: ignore[no-untyped-call]
    update()
    module.zero_grad()
    return float(loss.detach())


def batches_in_all(count: int, *, rows: int, epochs: int, share: float = 1.0) -> int:
    """Batches of ``rows`` examples to learn from, of ``count`` examples in each of ``epochs``.

    Less than all for a ``share`` below 1 (a weak model stops early), but at least one if any.
    """
    batches = epochs * math.ceil(count / rows)
    return max(1, round(batches * share)) if batches else 0


def shuffled(count: int, *, rows: int) -> tuple[Tensor, ...]:
    """All indices in random batches of at most ``rows``."""
    return torch.split(torch.randperm(count), rows)


def adamw(module: nn.Module, *, rate: float, decay: float) -> torch.optim.Optimizer:
    """AdamW in the one form whose square roots are the same on every processor."""
    return torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=decay, fused=True)


def one_cycle(module: nn.Module, *, rate: float, batches: int) -> Update:
    """AdamW with clipped gradients; the rate rises for a tenth of the batches, then falls to 0."""
    optimiser = adamw(module, rate=rate, decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=rate, total_steps=batches, pct_start=0.1, anneal_strategy="linear"
    )

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        schedule.step()

    return update


@torch.inference_mode()
def _validated(validation: Callable[[], float]) -> float:
    loss = validation()
    if math.isnan(loss):
        raise ProtocolError("training: given a held-out loss that is not a number")
    return loss
