"""Linear layers that multiply in 8-bit integers, for processors (LLM.int8, Dettmers et al. 2022).

Knows: rounding of weights and of what goes through them. Does not know: models, tokens, attention.

Processors with instructions for it (VNNI, AMX) multiply these some four times as fast as float32
numbers.
Each token is rounded by itself, and sums of integers are exact, so a product does not depend on
what is read with it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from selverify.errors import ParamsError

MOST = 127
_TINY = 1e-12


class Int8Linear(nn.Module):
    """y = x W^T + b, with W rounded to 255 levels an output, and x to 255 a token."""

    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        codes, scale = rounded(linear.weight.detach().float())
        self.weight = nn.Parameter(codes.t().contiguous(), requires_grad=False)
        self.register_buffer("scale", scale.squeeze(1))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs] in float32 of x [..., inputs]."""
        codes, scale = rounded(x.reshape(-1, x.shape[-1]))
        product = torch._int_mm(codes, self.weight).float().mul_(scale).mul_(self.scale)
        if self.bias is not None:
            product += self.bias
        return product.view(*x.shape[:-1], -1)


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [B, D] as codes from -127 to 127, and what one step of each row's is worth [B, 1]."""
    step = rows.abs().amax(1, keepdim=True).clamp_(min=_TINY) / MOST
    return (rows / step).round_().to(torch.int8), step


def round_linears(module: nn.Module) -> None:
    """Put an ``Int8Linear`` in the place of every linear layer inside ``module``.

    Raises:
        ParamsError: there is none.
    """
    found = [(name, one) for name, one in module.named_modules() if isinstance(one, nn.Linear)]
    if not found:
        raise ParamsError(
            f"dtype: given int8 for {type(module).__name__}, which has no linear layers of torch; "
            "expected auto, bfloat16, float16 or float32"
        )
    for name, linear in found:
        module.set_submodule(name, Int8Linear(linear))
