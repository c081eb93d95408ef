"""Exploration: gated competition with every survivor verified, for candidate lists to learn from.

Knows: the settings of exploration and what is kept of a walk. Does not know: files, models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from selverify.domains.base import Domain
from selverify.search.gated import gated_walk, outcome
from selverify.search.gates import GATES
from selverify.search.protocol import Asking
from selverify.search.rules import GatedSettings
from selverify.search.walk import Visit
from selverify.types import Move, Outcome, Problem, State


@dataclass(frozen=True, slots=True)
class CandidateList:
    """The post-gating list of one visited state with verifier labels (paper, Eq. verifier_label).

    ``moves``, ``scores`` and ``labels`` (score at least tau) are parallel. ``committed`` is the
    index of the move last committed here, or None.
    """

    state: State
    moves: tuple[Move, ...]
    scores: tuple[float, ...]
    labels: tuple[bool, ...]
    committed: int | None


@dataclass(frozen=True, slots=True)
class Exploration:
    """The candidate lists of all visited states, in order of visit, and how the walk ended."""

    lists: tuple[CandidateList, ...]
    outcome: Outcome

    @property
    def answered(self) -> bool:
        """Whether the walk ended with an answer, right or wrong."""
        return self.outcome.answer is not None


def explore(
    domain: Domain,
    problem: Problem,
    *,
    proposals: int,
    tau: float,
    max_retries: int,
    max_moves: int,
) -> Asking[Exploration]:
    """Gated competition with every survivor verified, those that check for free, too.

    It may draw as many samples as a straight derivation with every retry would; each is verified
    at most once, so the same number bounds the calls.
    """
    settings = GatedSettings(
        proposals=proposals,
        k_base=1.0,
        beta=0.0,
        k_min=1,
        k_max=1,
        tau=tau,
        max_retries=max_retries,
        max_moves=max_moves,
        scorer="none",
        skip_below=0.0,
        allocation="all",
        reference_dispersion=0.0,
        gates=GATES,
        patterns=(),
        commit="verifier",
        rank_weight=0.0,
        fallback=False,
    )
    cap = proposals * (max_retries + 1) * max_moves
    walk = yield from gated_walk(
        domain,
        problem,
        rules=replace(settings.rules(domain), settled=None),
        budget=cap,
        generation_cap=cap,
    )
    lists = tuple(_candidate_list(visit, tau) for visit in walk.visits if visit.judged)
    return Exploration(lists, outcome(domain, walk))


def _candidate_list(visit: Visit, tau: float) -> CandidateList:
    texts = [one.move.text for one in visit.judged]
    return CandidateList(
        visit.state,
        tuple(one.move for one in visit.judged),
        tuple(one.score for one in visit.judged),
        tuple(one.score >= tau for one in visit.judged),
        texts.index(visit.taken[-1]) if visit.taken else None,
    )
