"""Which numbers a training step computes with.

Knows: what the processor multiplies natively. Does not know: models, losses.
"""

from __future__ import annotations

import torch


def bfloat16_where_native(*, wanted: bool = True) -> torch.autocast:
    """A context in which products are bfloat16 where that is ``wanted`` and the processor has it.

    Elsewhere PyTorch would emulate it, which takes more than twice as long as float32.
    """
    native = torch.cpu._is_avx512_bf16_supported()
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=wanted and native)
