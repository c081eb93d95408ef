"""How many parameters a model has.

Knows: modules of torch. Does not know: what a model computes, or what its operations cost.
"""

from __future__ import annotations

from torch import nn


def parameters_of(module: nn.Module) -> int:
    """Numbers that were learned, embeddings among them; tied weights count once, buffers never."""
    return sum(one.numel() for one in module.parameters())
