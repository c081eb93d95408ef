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

from selverify.domains.base import Domain
from selverify.types import Move, State

NORMAL_QUANTILE = 1.959963984540054  # of a two-sided 95 % interval


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
