"""What a training needs to give the same weights again, on any number of cores.

Knows: threads, libraries of products. Does not know: models, or which kernels the processor has.

A sum of floating-point numbers depends on its order, and its order on how many threads share it; a
training turns another last digit into other weights. So trainings compute on one thread, and
independent ones side by side; adapters on a pretrained model are the exception, for they would take
hours. The order also depends on the processor's instructions: PyTorch takes them from the
environment when it is imported (``flows.environment``). Of its two libraries, oneDNN with AVX2 has
summed alike on every processor that was tried, at full speed; MKL does only with kernels that are a
quarter as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_ONEDNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@contextmanager
def reproducible() -> Iterator[None]:
    """PyTorch computes on the calling thread alone, linear layers by oneDNN; as a decorator, for a
    whole training."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _LinearByOneDNN():
            yield
    finally:
        torch.set_num_threads(before)


def side_by_side(
    train: Callable[[_Item, Event], _Result], items: Iterable[_Item], *, workers: int
) -> list[_Result]:
    """The result of ``train`` for each item, in order; each is computed on one thread of its own,
    with linear layers by oneDNN.

    ``train`` draws from a generator of its own: PyTorch's is shared between threads. Between
    batches it looks at the event, and raises once it is set: another training failed, or the caller
    was interrupted.
    """
    stop = Event()
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def alone(item: _Item) -> _Result:
        with _LinearByOneDNN():
            return train(item, stop)

    try:
        # In the context of the caller, by which its log lines find where they belong.
        trainings = [pool.submit(copy_context().run, alone, item) for item in items]
        for training in as_completed(trainings):
            training.result()  # the first that fails ends all
        return [training.result() for training in trainings]
    finally:
        stop.set()  # all are done, or the results are of no use any more
        pool.shutdown(cancel_futures=True)


class _LinearByOneDNN(TorchFunctionMode):
    """Linear layers in float32 on a processor are multiplied by oneDNN, on this thread."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is functional.linear and _ONEDNN and not torch.is_autocast_enabled("cpu"):
            rows, weight, bias = _of_linear(*args, **(kwargs or {}))
            fits = rows.device.type == "cpu" and rows.dtype == weight.dtype == torch.float32
            if fits and rows.numel():
                flat = rows.reshape(-1, rows.shape[-1])
                product: Tensor = _Linear.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
                return product.view(*rows.shape[:-1], len(weight))
        return func(*args, **(kwargs or {}))


def _of_linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    return input, weight, bias


class _Linear(torch.autograd.Function):
    """``rows`` [B, I] times ``weight`` [O, I] transposed, and ``bias`` [O]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return _product(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            _product(grad, weight.T) if of_rows else None,
            _product(grad.T, rows.T) if of_weight else None,
            grad.sum(0) if of_bias else None,
        )


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        rows.contiguous(), weight.contiguous(), bias, "none", [], ""
    )
    return product
