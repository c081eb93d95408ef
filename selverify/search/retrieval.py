"""The store of verified operator patterns behind M_ret(w) (paper, Eq. move_union).

Knows: how often each pattern was tried and accepted on the training split, and how the patterns
rank. Does not know: what a pattern means (``Domain.pattern``, ``Domain.instantiate``) or who
verified it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from selverify.domains.base import Domain
from selverify.errors import SchemaError
from selverify.storage import read_json, write_json
from selverify.types import Move, State

_SCHEMA, VERSION = "residual.patterns", 1
NORMAL_QUANTILE = 1.959963984540054  # of a two-sided 95 % interval

_Count = Annotated[int, Field(ge=0)]
_ROWS = TypeAdapter(list[tuple[str, _Count, _Count]])


@dataclass(frozen=True, slots=True)
class PatternCount:
    """How often the verifier was asked about a pattern, and how often it accepted."""

    name: str
    tries: int
    accepted: int

    @property
    def lower_bound(self) -> float:
        """Lower end of the Wilson interval of the acceptance rate, in [0, 1]."""
        return wilson_lower_bound(self.accepted, self.tries)


def wilson_lower_bound(successes: int, tries: int) -> float:
    """Lower end of the 95 % Wilson score interval (Wilson 1927); 0 without a try."""
    if tries == 0:
        return 0.0
    square = NORMAL_QUANTILE**2
    rate = successes / tries
    spread = math.sqrt(rate * (1 - rate) / tries + square / (4 * tries**2))
    bound = (rate + square / (2 * tries) - NORMAL_QUANTILE * spread) / (1 + square / tries)
    return max(0.0, bound)


@dataclass(frozen=True, slots=True)
class PatternStore:
    """Counts of the patterns seen in training, names ascending."""

    counts: tuple[PatternCount, ...]

    @classmethod
    def build(cls, domain: Domain, labelled: Iterable[tuple[State, Move, bool]]) -> PatternStore:
        """Count (state, move, accepted by the verifier); moves without a pattern do not count."""
        tries: Counter[str] = Counter()
        accepted: Counter[str] = Counter()
        for state, move, was_accepted in labelled:
            name = domain.pattern(state, move)
            if name is not None:
                tries[name] += 1
                accepted[name] += was_accepted
        return cls(tuple(PatternCount(name, tries[name], accepted[name]) for name in sorted(tries)))

    def patterns(self, limit: int) -> tuple[str, ...]:
        """The ``limit`` patterns of largest lower bound, ties by name; none never accepted."""
        verified = (count for count in self.counts if count.accepted > 0)
        ranked = sorted(verified, key=lambda count: (-count.lower_bound, count.name))
        return tuple(count.name for count in ranked[:limit])

    def save(self, path: Path) -> None:
        """Write the counts as JSON; ``path`` is never half-written."""
        rows = [(count.name, count.tries, count.accepted) for count in self.counts]
        write_json(path, rows, schema=_SCHEMA, version=VERSION)

    @classmethod
    def load(cls, path: Path) -> PatternStore:
        """Read what ``save`` wrote.

        Raises:
            ArtifactError: the file is not there.
            SchemaError: it was written under another schema or version, or a row is no count.
        """
        data = read_json(path, schema=_SCHEMA, version=VERSION)
        try:
            rows = _ROWS.validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in ("data", *first["loc"]))
            given = repr(first["input"])[:100]
            raise SchemaError(
                f"{path}: {field}: given {given}, expected: {first['msg']}"
            ) from error
        return cls(tuple(PatternCount(*row) for row in rows))
