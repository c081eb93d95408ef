"""The rules of a gated competition, and which of them a walk has leant on.

Knows: what every setting means, where a walk asks it, and when another would have answered alike.
Does not know: states, moves, backends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from selverify.errors import ParamsError
from selverify.search.allocation import ALLOCATIONS, calls_for, spread
from selverify.search.candidates import Gates

COMMITS = ("verifier", "heuristic", "joint")


@dataclass(frozen=True, slots=True)
class GatedSettings:
    """The rules of one gated competition.

    ``proposals``: samples a round at a state. ``k_base``, ``beta``, ``k_min``, ``k_max``,
    ``reference_dispersion`` (sigma-bar): Eq. kw. ``allocation``: one of ``ALLOCATIONS``. ``tau``:
    a move is accepted when its score is at least tau. ``max_retries``: further rounds at a state
    without an accepted move. ``max_moves``: a state this deep has no survivors. ``scorer``: the
    name sent with a Rank request; ``none`` (proposal order) and ``frequency`` (most often proposed
    first) send none. ``skip_below``: at a state where nothing was verified yet, a top-ranked move
    whose probability of being rejected is below this is committed without a call; 0 is never.
    ``gates``: both, the structural one, or none: every well-formed move survives. ``patterns``: the
    retrieval store; empty is off. ``commit``: among accepted moves the highest ``verifier`` score,
    the lowest ``heuristic``, or ``joint``: the highest log odds of the score less ``rank_weight`` *
    h. ``fallback``: whether to go on below tau, with more samples, or unverified, once accepted
    moves or calls have run out.

    Raises:
        ParamsError: an ``allocation`` or ``commit`` of another name, or ``proposals`` below 1.
    """

    proposals: int
    k_base: float
    beta: float
    k_min: int
    k_max: int
    tau: float
    max_retries: int
    max_moves: int
    scorer: str
    skip_below: float
    allocation: str
    reference_dispersion: float
    gates: Gates
    patterns: tuple[str, ...]
    commit: str
    rank_weight: float
    fallback: bool

    def __post_init__(self) -> None:
        if self.allocation not in ALLOCATIONS:
            raise ParamsError(f"allocation: given {self.allocation!r}, expected {ALLOCATIONS}")
        if self.commit not in COMMITS:
            raise ParamsError(f"commit: given {self.commit!r}, expected {COMMITS}")
        if self.proposals < 1:
            raise ParamsError(f"proposals: given {self.proposals}, expected at least 1")


@dataclass(slots=True)
class Decisions:
    """What a walk asked of ``settings``, and so which others would have led it the same way.

    Scores between ``highest_rejected`` and ``lowest_accepted`` were never met, so any tau above the
    first and up to the second would have told accepted moves from rejected ones alike; so too for
    the reject probabilities. ``allowances`` holds the spread that k(w) was asked of, the most that
    could be verified there, and how many were.
    """

    settings: GatedSettings
    highest_rejected: float = -math.inf
    lowest_accepted: float = math.inf
    highest_trusted: float = -math.inf
    lowest_refused: float = math.inf
    allowances: list[tuple[float, int, int]] = field(default_factory=list)

    def accepts(self, score: float) -> bool:
        """V = 1[score >= tau]."""
        if score >= self.settings.tau:
            self.lowest_accepted = min(self.lowest_accepted, score)
            return True
        self.highest_rejected = max(self.highest_rejected, score)
        return False

    def asks_for_reject_probability(self) -> bool:
        """Whether any move could be trusted; with ``skip_below`` 0 none can."""
        if self.settings.skip_below > 0:
            return True
        self.lowest_refused = 0.0
        return False

    def trusts(self, reject_probability: float) -> bool:
        """Whether a move that is rejected with this probability is committed without a call."""
        if reject_probability < self.settings.skip_below:
            self.highest_trusted = max(self.highest_trusted, reject_probability)
            return True
        self.lowest_refused = min(self.lowest_refused, reject_probability)
        return False

    def allowance(self, scores: Sequence[float], *, most: int) -> int:
        """k(w) for the scores of all unverified survivors.

        Args:
            most: how many can be verified here, whatever k(w) says.
        """
        allocation = self.settings.allocation
        if allocation == "all":
            return len(scores)
        found = spread(scores, allocation=allocation)
        k = _calls(self.settings, found)
        self.allowances.append((found, most, min(k, most)))
        return k

    def same_under(self, other: GatedSettings) -> bool:
        """Whether the walk would have gone the same way under ``other``, which may differ in tau,
        ``skip_below``, ``k_base`` and ``beta``; under what differs elsewhere nobody knows."""
        mine = self.settings
        return (
            other.allocation == mine.allocation
            and self.highest_rejected < other.tau <= self.lowest_accepted
            and self.highest_trusted < other.skip_below <= self.lowest_refused
            and all(
                min(_calls(other, found), most) == verified
                for found, most, verified in self.allowances
            )
            and mine
            == replace(
                other, tau=mine.tau, skip_below=mine.skip_below, k_base=mine.k_base, beta=mine.beta
            )
        )


def _calls(settings: GatedSettings, spread: float) -> int:
    return calls_for(
        spread,
        allocation=settings.allocation,
        reference=settings.reference_dispersion,
        k_base=settings.k_base,
        beta=settings.beta,
        k_min=settings.k_min,
        k_max=settings.k_max,
    )
