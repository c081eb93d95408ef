"""The training loop of every model: epochs of batches, early stopping, one log line an epoch.

Knows: optimisers, losses on held-out problems. Does not know: models, data, terms of a loss.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Event

import torch
from torch import Tensor, nn

from selverify.errors import ProtocolError

Update = Callable[[], object]
"""Changes the weights once, by their gradients."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One line of the training log.

    ``part`` names the module, ``training_loss`` is the mean over the epoch's batches.
    ``validation_loss`` is on held-out problems, None where nothing is held out.
    """

    part: str
    epoch: int
    training_loss: float
    validation_loss: float | None

    def __str__(self) -> str:
        """For the console."""
        held = "" if self.validation_loss is None else f", held out {self.validation_loss:.4f}"
        return f"{self.part}, epoch {self.epoch}, loss {self.training_loss:.4f}{held}"


ReportEpoch = Callable[[Epoch], None]


@dataclass(frozen=True)
class Batches:
    """Random batches of at most ``rows`` of ``count`` examples, drawn anew in each of ``epochs``.

    The training ends after a ``share`` of all of them, within an epoch or not: a weak model stops
    early, after one batch at least. ``draws``: from where the batches are drawn; None: PyTorch's
    own generator, which all threads share.
    """

    count: int
    rows: int
    epochs: int
    share: float = 1.0
    draws: torch.Generator | None = None

    @property
    def total(self) -> int:
        """Batches of all epochs."""
        return self.epochs * math.ceil(self.count / self.rows)

    @property
    def learned(self) -> int:
        """How many of them are learned from."""
        return max(1, round(self.total * self.share)) if self.total else 0

    def epoch(self) -> Sequence[Tensor]:
        """The indices [at most ``rows``] of each batch of one epoch."""
        return torch.split(torch.randperm(self.count, generator=self.draws), self.rows)


def fit(
    part: str,
    module: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    batches: Batches,
    *,
    update: Update,
    report: ReportEpoch,
    validation: Callable[[], float] | None = None,
    keep_start: bool = False,
    stop: Event | None = None,
) -> float:
    """Train ``module``; with a ``validation`` its weights are those of the epoch with the lowest.

    Args:
        loss_of: the mean loss of the examples of these indices.
        validation: the loss on held-out problems; None: the last weights stay.
        keep_start: whether the weights before the first epoch may be the best, too.
        stop: ends the training before the next batch once it is set.

    Returns:
        The lowest loss on held-out problems; infinite without any.

    Raises:
        ProtocolError: a held-out loss is not a number.
        CancelledError: it was stopped.
    """
    lowest, best = math.inf, copy.deepcopy(module.state_dict())
    if validation is not None and keep_start:
        lowest = _validated(validation)
    left, epoch = batches.learned, 0
    while left:
        chosen = _until(stop, batches.epoch()[:left])
        trained = [descend(module, loss_of(rows), update) for rows in chosen]
        left, epoch = left - len(trained), epoch + 1
        held = None if validation is None else _validated(validation)
        report(Epoch(part, epoch, sum(trained) / len(trained), held))
        if held is not None and held < lowest:
            lowest, best = held, copy.deepcopy(module.state_dict())
    if validation is not None:
        module.load_state_dict(best)
    return lowest


def _until(stop: Event | None, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    for batch in batches:
        if stop is not None and stop.is_set():
            raise CancelledError
        yield batch


def descend(module: nn.Module, loss: Tensor, update: Update) -> float:
    """One step down the gradient of ``loss``, whose value is returned."""
    loss.backward()  # type: ignore[no-untyped-call]
    update()
    module.zero_grad()
    return float(loss.detach())


def adamw(module: nn.Module, *, rate: float, decay: float) -> torch.optim.Optimizer:
    """AdamW in the one form whose square roots are the same on every processor."""
    return torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=decay, fused=True)


def one_cycle(module: nn.Module, *, rate: float, batches: int) -> Update:
    """AdamW with clipped gradients; the rate rises for a tenth of the batches, then falls to 0.

    It rises for two batches at least, because PyTorch's schedule divides by that number less one;
    one or two batches are the beginning of a schedule of three.
    """
    optimiser = adamw(module, rate=rate, decay=0.0)
    steps = max(3, batches)
    rising = max(0.1, 2 / steps)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=rate, total_steps=steps, pct_start=rising, anneal_strategy="linear"
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
