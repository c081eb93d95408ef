"""What a training needs to give the same weights again, on any number of cores.

Knows: threads. Does not know: models, or which kernels the processor has.

A sum of floating-point numbers depends on its order, and its order on how many threads share it; a
training turns another last digit into other weights. So trainings compute on one thread, and
independent ones side by side. The order also depends on the processor's instructions: PyTorch takes
them from the environment when it is imported (``flows.environment``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

import torch
from torch import nn

Given = TypeVar("Given")
Made = TypeVar("Made")


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes on the calling thread alone; as a decorator, for a whole training."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def adamw(module: nn.Module, *, rate: float, decay: float) -> torch.optim.Optimizer:
    """AdamW in the one form whose square roots are the same on every processor."""
    return torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=decay, fused=True)


class Stopped(Exception):
    """A training on another thread was told to end."""


class Stop:
    """Tells trainings on other threads to end, because the one who wants them was interrupted."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        """From now on ``check`` raises."""
        self._event.set()

    def check(self) -> None:
        """Raise Stopped after ``set``; to be asked before every batch."""
        if self._event.is_set():
            raise Stopped


def side_by_side(
    train: Callable[[Given, Stop], Made], given: Iterable[Given], *, workers: int
) -> list[Made]:
    """What ``train`` makes of each, in order; each on one thread of its own.

    ``train`` draws from a generator of its own: PyTorch's is shared between threads.
    """
    stop = Stop()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        trainings = [pool.submit(train, one, stop) for one in given]
        for training in as_completed(trainings):
            training.result()  # the first that fails ends all
        return [training.result() for training in trainings]
    finally:
        stop.set()  # nothing is left to do, or all of it is in vain
        pool.shutdown(cancel_futures=True)
