"""Linear layers that multiply in 8-bit integers, for processors (LLM.int8, Dettmers et al. 2022).

Knows: rounding of weights and of what goes through them, which layers are given the same. Does not
know: tokens, attention.

Processors with instructions for it (VNNI, AMX) multiply these some four times as fast as float32
numbers. On others two products are added in 16 bits, which they can exceed, so there the same
integers are multiplied as float32 numbers.
Each token is rounded by itself, and sums of integers are exact, so a product does not depend on
what is read with it.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from selverify.errors import ParamsError

MOST = 127
_TINY = 1e-12
SIBLINGS = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
"""Layers of a module that are given the same x, as models of the Llama kind name them."""


class Int8Linear(nn.Module):
    """y = x W^T + b, with W rounded to 255 levels an output, and x to 255 a token.

    Of several layers: the outputs of one after those of the other.
    """

    scale: Tensor

    def __init__(self, *linears: nn.Linear) -> None:
        super().__init__()
        codes, scale = rounded(torch.cat([one.weight.detach().float() for one in linears]))
        weight = codes if sums_are_exact() else codes.float()
        self.weight = nn.Parameter(weight.t().contiguous(), requires_grad=False)
        self.register_buffer("scale", scale.squeeze(1))
        biases: list[Tensor] = [one.bias for one in linears if one.bias is not None]
        self.bias = nn.Parameter(torch.cat(biases), requires_grad=False) if biases else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs] in float32 of x [..., inputs]."""
        codes, step = rounded(x.reshape(-1, x.shape[-1]))
        product = self.product(codes).float().mul_(step).mul_(self.scale)
        if self.bias is not None:
            product += self.bias
        return product.view(*x.shape[:-1], -1)

    def product(self, codes: Tensor) -> Tensor:
        """Sums [B, outputs] of codes [B, inputs] times weights: integers, as such or in float32."""
        if self.weight.dtype == torch.int8:
            return torch._int_mm(codes, self.weight)
        return torch.mm(codes.float(), self.weight)


class Siblings:
    """Layers, all with a bias or none, that are given the same x one after another: the first one
    called computes all, and what the others have not taken yet is held."""

    def __init__(self, *linears: nn.Linear) -> None:
        self.whole = Int8Linear(*linears)
        self._sizes = [one.out_features for one in linears]
        self._held: tuple[Tensor, dict[int, Tensor]] | None = None

    def output(self, x: Tensor, place: int) -> Tensor:
        """That of the layer at ``place``."""
        held = self._held
        if held is None or held[0] is not x or place not in held[1]:
            held = x, dict(enumerate(self.whole(x).split_with_sizes(self._sizes, -1)))
        found = held[1].pop(place)
        self._held = held if held[1] else None
        return found


class Sibling(nn.Module):
    """One of ``Siblings``, in its layer's place."""

    def __init__(self, siblings: Siblings, place: int) -> None:
        super().__init__()
        self.whole = siblings.whole  # the weights, which belong to the model
        self._siblings, self._place = siblings, place

    def forward(self, x: Tensor) -> Tensor:
        """[..., outputs] in float32 of x [..., inputs]."""
        return self._siblings.output(x, self._place)


@cache
def sums_are_exact() -> bool:
    """Whether this processor multiplies the largest integers of 8 bits without an error."""
    largest = torch.full((64, 64), MOST, dtype=torch.int8)
    return bool((torch._int_mm(largest, largest) == MOST * MOST * 64).all())


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [B, D] as codes from -127 to 127, and what one step of each row's is worth [B, 1]."""
    step = rows.abs().amax(1, keepdim=True).clamp_(min=_TINY) / MOST
    return (rows / step).round_().to(torch.int8), step


def round_linears(module: nn.Module) -> None:
    """Put layers that multiply in 8 bits in the place of all linear ones inside ``module``.

    Raises:
        ParamsError: there is none.
    """
    found = {name: one for name, one in module.named_modules() if isinstance(one, nn.Linear)}
    if not found:
        raise ParamsError(
            f"dtype: given int8 for {type(module).__name__}, which has no linear layers of torch; "
            "expected auto, bfloat16, float16 or float32"
        )
    for parent in {name.rpartition(".")[0]: None for name in found}:
        for names in SIBLINGS:
            own = [f"{parent}.{name}".lstrip(".") for name in names]
            layers = [found[name] for name in own if name in found]
            kinds = {(one.in_features, one.bias is None) for one in layers}
            if len(layers) == len(own) and len(kinds) == 1:
                siblings = Siblings(*layers)
                for place, name in enumerate(own):
                    module.set_submodule(name, Sibling(siblings, place))
                    del found[name]
    for name, linear in found.items():
        module.set_submodule(name, Int8Linear(linear))
