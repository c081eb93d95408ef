"""Settings of a gated competition, and the rules made from them.

Knows: the meaning of every setting. Does not know: the order in which rules are followed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.search.allocation import ALLOCATIONS, STOPPING, calls_at, worth_a_call
from selverify.search.candidates import Gates, checked, inadmissible, sift
from selverify.search.gated import REJECT_PROBABILITY, Rules
from selverify.search.protocol import Asking, propose, rank
from selverify.search.recover import recover
from selverify.search.requests import ProposeItem, RankItem
from selverify.search.walk import Judged, Visit
from selverify.types import Move, Sample, State

COMMITS = ("verifier", "heuristic", "joint")
SURE = 1e-6
"""Scores are kept this far from 0 and 1, so that they have log odds."""


@dataclass(frozen=True, slots=True)
class GatedSettings:
    """The settings of one gated competition.

    ``proposals``: samples a round at a state. ``k_base``, ``beta``, ``k_min``, ``k_max``,
    ``reference_dispersion`` (sigma-bar): Eq. kw. ``allocation``: one of ``ALLOCATIONS``; in
    ``stopping`` ``skip_below`` is the price of a call and h the probability of rejection. ``tau``:
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

    def rules(self, domain: Domain) -> Rules:
        """The rules made from these settings in ``domain``."""
        return Rules(
            propose=partial(_sample, proposals=self.proposals),
            retrieve=partial(_retrieved, domain, patterns=self.patterns, gates=self.gates),
            gates=lambda state, samples: sift(domain, state, samples=samples, gates=self.gates),
            rank=partial(_ranked, scorer=self.scorer),
            settled=partial(_settled, domain) if domain.checks_answers() else None,
            skip=(lambda chance: chance < self.skip_below) if self.skip_below > 0 else None,
            width=self.width,
            accept=partial(_at_least, tau=self.tau),
            commit=partial(_worth, commit=self.commit, rank_weight=self.rank_weight),
            recover=partial(recover, max_retries=self.max_retries, fallback=self.fallback),
            one_by_one=self.allocation == STOPPING,
            max_moves=self.max_moves,
        )

    def width(self, scores: Sequence[float], most: int) -> int:
        """k(w) for the scores h of all unverified survivors, whatever ``most`` allows."""
        if self.allocation == STOPPING:
            return worth_a_call(scores, price=self.skip_below)
        return calls_at(
            scores,
            allocation=self.allocation,
            reference=self.reference_dispersion,
            k_base=self.k_base,
            beta=self.beta,
            k_min=self.k_min,
            k_max=self.k_max,
        )


def _sample(visit: Visit, left: int, *, proposals: int) -> Asking[tuple[Sample, ...]]:
    """Gen(w): ``proposals`` samples, at most ``left``, after those drawn here before."""
    count = min(proposals, left)
    if not count:
        return ()
    (samples,) = yield from propose(ProposeItem(visit.state, visit.drawn, count))
    return samples


def _retrieved(
    domain: Domain, state: State, *, patterns: tuple[str, ...], gates: Gates
) -> tuple[Move, ...]:
    """Ret(w): stored patterns instantiated at ``state``, gated like any other candidate."""
    return tuple(
        move
        for pattern in patterns
        for move in domain.instantiate(state, pattern)
        if inadmissible(domain, state, candidate=move, gates=gates) is None
    )


def _ranked(visit: Visit, *, scorer: str) -> Asking[tuple[float, ...]]:
    """h(w, m) of the pool, lower first. One move alone needs no order: its h is 0."""
    pool = visit.pool
    if scorer == "none" or (len(pool) == 1 and scorer != REJECT_PROBABILITY):
        return (0.0,) * len(pool)
    if scorer == "frequency":
        return tuple(-float(visit.counts[move.text]) for move in pool)
    (scores,) = yield from rank(RankItem(visit.state, pool, scorer))
    return scores


def _settled(domain: Domain, state: State, move: Move) -> bool:
    return checked(domain, domain.apply(state, move))


def _at_least(score: float, *, tau: float) -> bool:
    """V = 1[score >= tau] (Eq. verifier_label)."""
    return score >= tau


def _worth(judged: Judged, *, commit: str, rank_weight: float) -> float:
    """The worth of an accepted move. h is a log odds, as the score's is (Eq. rank_loss)."""
    if commit == "verifier":
        return judged.score
    if commit == "heuristic":
        return -judged.h
    score = min(max(judged.score, SURE), 1.0 - SURE)
    return math.log(score / (1.0 - score)) - rank_weight * judged.h
