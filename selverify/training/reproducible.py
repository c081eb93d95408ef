"""What a training needs to give the same weights again, on any number of cores.

Knows: threads. Does not know: models, or which kernels the processor has.

A sum of floating-point numbers depends on its order, and its order on how many threads share it; a
training turns another last digit into other weights. So trainings compute on one thread, and
independent ones side by side; adapters on a pretrained model are the exception, for they would take
hours. The order also depends on the processor's instructions: PyTorch takes them from the
environment when it is imported (``flows.environment``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event
from typing import TypeVar

import torch

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes on the calling thread alone; as a decorator, for a whole training."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def side_by_side(
    train: Callable[[_Item, Event], _Result], items: Iterable[_Item], *, workers: int
) -> list[_Result]:
    """The result of ``train`` for each item, in order; each is computed on one thread of its own.

    ``train`` draws from a generator of its own: PyTorch's is shared between threads. Before every
    batch it looks at the event, and raises once it is set: another training failed, or the caller
    was interrupted.
    """
    stop = Event()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        # In the context of the caller, by which its log lines find where they belong.
        trainings = [pool.submit(copy_context().run, train, item, stop) for item in items]
        for training in as_completed(trainings):
            training.result()  # the first that fails ends all
        return [training.result() for training in trainings]
    finally:
        stop.set()  # all are done, or the results are of no use any more
        pool.shutdown(cancel_futures=True)
