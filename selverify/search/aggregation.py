"""From the scores of single steps to the score of a derivation.

Knows: numbers. Does not know: what a step's score means to its verifier (docs/protocol.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

Aggregate = Callable[[Sequence[float]], float]

AGGREGATIONS: Mapping[str, Aggregate] = MappingProxyType(
    {"last": lambda scores: scores[-1], "min": min, "prod": math.prod}
)
"""Score of a derivation from the scores of its steps in order, at least one; higher is better."""
