"""Early stopping: the weights at the lowest held-out loss."""

from __future__ import annotations

import math

from torch import Tensor, nn

from selverify.errors import ProtocolError


class Best:
    """Keeps a copy of a module's weights from when its held-out loss was lowest."""

    def __init__(self, module: nn.Module) -> None:
        self.loss = float("inf")
        self._module = module
        self._kept = self._weights()

    def offer(self, loss: float) -> None:
        """Keep the present weights if ``loss`` is the lowest so far.

        Raises:
            ProtocolError: the loss is not a number.
        """
        if math.isnan(loss):
            raise ProtocolError("training: given a held-out loss that is not a number")
        if loss < self.loss:
            self.loss, self._kept = loss, self._weights()

    def restore(self) -> None:
        """Put the kept weights back."""
        self._module.load_state_dict(self._kept)

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._module.state_dict().items()}
