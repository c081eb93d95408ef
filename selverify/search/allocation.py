"""How many verifier calls a state deserves: k(w) (paper, Eq. kw).

Knows: scores h and the formula. Does not know: where scores come from or what budget is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

STOPPING = "stopping"
ALLOCATIONS = ("all", "fixed", "adaptive", "margin", STOPPING)


def dispersion(scores: Sequence[float]) -> float:
    """sigma(w): the population standard deviation of the scores; 0 for fewer than two."""
    if len(scores) < 2:
        return 0.0
    mean = math.fsum(scores) / len(scores)
    return math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / len(scores))


def worth_a_call(reject_probabilities: Sequence[float], *, price: float) -> int:
    """1 where a call on the move least likely to be rejected is worth its price, else 0.

    Weitzman (1979): of boxes that hold 1 with probability a_i and else nothing, and cost ``price``
    to open, the one of the largest a_i is opened next, as long as none held anything and its
    reservation value 1 - price / a_i is above 0. Where all are 1 nothing is known (an unfamiliar
    state, docs/decisions/0024), and a call is made.
    """
    least = min(reject_probabilities)
    return int(1.0 - least > price or least == 1.0)


def margin(scores: Sequence[float]) -> float:
    """The gap between the two best (lowest) scores; 0 for fewer than two."""
    if len(scores) < 2:
        return 0.0
    best, second = sorted(scores)[:2]
    return second - best


def verification_budget(
    sigma: float, *, reference: float, k_base: float, beta: float, k_min: int, k_max: int
) -> int:
    """k(w) = clip(k_min, k_max, k_base (1 + beta (sigma / reference - 1))), Eq. kw.

    Rounded half up. A ``reference`` (sigma-bar) of 0 or less says nothing: the factor is then 1.
    With beta > 0 spread scores get more calls, which is the equation; with beta < 0 close scores
    do, which is half of the sentence below it.
    """
    # beta = 0 comes first: a tiny reference makes the ratio infinite, and 0 * inf is no number.
    factor = 1.0 + beta * (sigma / reference - 1.0) if beta and reference > 0 else 1.0
    return math.floor(min(max(k_base * factor, k_min), k_max) + 0.5)


def calls_at(
    scores: Sequence[float],
    *,
    allocation: str,
    reference: float,
    k_base: float,
    beta: float,
    k_min: int,
    k_max: int,
) -> int:
    """k(w) for the scores h of all unverified survivors, before the calls left limit it.

    ``all``: every survivor. ``fixed``: k_base, clipped. ``adaptive``: Eq. kw. ``margin``: Eq. kw
    with the margin of the two best scores in place of sigma and the sign of beta turned, so that
    with beta > 0 a smaller margin gets more calls; the reference stays sigma-bar.
    """
    if allocation == "all":
        return len(scores)
    spread, slope = 0.0, 0.0
    if allocation == "adaptive":
        spread, slope = dispersion(scores), beta
    elif allocation == "margin":
        spread, slope = margin(scores), -beta
    return verification_budget(
        spread, reference=reference, k_base=k_base, beta=slope, k_min=k_min, k_max=k_max
    )
