"""Orders in which to verify the candidates of a recorded list, without any training.

Knows: what a list records of each candidate. Does not know: what is learned from other lists,
calls. Scores rank lower first; equal scores are in a uniformly random order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from selverify.audit.judged_lists import Accepts
from selverify.audit.log import RecordedList
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.statistics import FloatArray

RECORDED, FREQUENCY, LIKELIHOOD, SHORTEST = "recorded", "frequency", "likelihood", "shortest"
RANKER_NAMES = MappingProxyType(
    {
        RANDOM: "Random order",
        RECORDED: "Recorded order",
        FREQUENCY: "Most proposed first",
        LIKELIHOOD: "Log probability",
        SHORTEST: "Shortest first",
        "distance_cosine": "Cosine distance",
        "distance": "D_type",
        "residual": "Residual",
        "hybrid": "D_type + residual",
        "hybrid_without_trajectory": "Hybrid, L_rank only",
        "reject_probability": "Learned reject probability",
        ORACLE: "Oracle",
    }
)
"""Display names, in the order of every table."""
LEARNED = frozenset(
    {"distance", "residual", "hybrid", "hybrid_without_trajectory", "reject_probability"}
)
"""Those of them that are trained on other problems' verdicts."""

CandidateScores = Callable[[RecordedList], FloatArray]
"""Scores [candidate] of a list, lower first."""
UNLEARNED: Mapping[str, CandidateScores] = MappingProxyType(
    {
        RANDOM: lambda item: np.zeros(len(item.candidates)),
        RECORDED: lambda item: np.arange(len(item.candidates), dtype=np.float64),
        FREQUENCY: lambda item: -np.array([one.times for one in item.candidates], np.float64),
        LIKELIHOOD: lambda item: -np.array([one.logprob for one in item.candidates], np.float64),
        SHORTEST: lambda item: np.array([len(one.text) for one in item.candidates], np.float64),
    }
)
"""All alike; first mention first; most often proposed; the model's log probability of the whole
move, which every candidate must have; characters. None of them reads a verdict."""


def ranker_name(ranker: str) -> str:
    """The display name of a ranker; one that is not in the list shows its own."""
    return RANKER_NAMES.get(ranker, ranker)


def rankers_in_order(rankers: Sequence[str]) -> list[str]:
    """Distinct rankers in the order of :data:`RANKER_NAMES`, others before the oracle by name."""
    place = {name: number for number, name in enumerate(RANKER_NAMES)}
    return sorted(set(rankers), key=lambda name: (place.get(name, len(place) - 1.5), name))


def oracle_order(accepts: Accepts) -> CandidateScores:
    """The best possible order: the accepted first. It knows the verdicts, so it is a bound only."""
    return lambda item: np.array([0.0 if accepts(one) else 1.0 for one in item.candidates])


def orders_for(lists: Sequence[RecordedList], accepts: Accepts) -> dict[str, CandidateScores]:
    """The orders that these lists can serve, by name, in the order of every table.

    Proposal counts say nothing where every text was proposed once, and log probabilities are used
    where every candidate has one.
    """
    candidates = [one for item in lists for one in item.candidates]
    served = {
        FREQUENCY: any(one.times > 1 for one in candidates),
        LIKELIHOOD: all(one.logprob is not None for one in candidates),
    }
    orders = {name: scores for name, scores in UNLEARNED.items() if served.get(name, True)}
    return {**orders, ORACLE: oracle_order(accepts)}
