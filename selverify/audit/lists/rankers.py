"""Orders in which to ask about the candidates of a recorded list, without any training.

Knows: what a list records of each candidate. Does not know: what is learned from other lists,
calls. Scores rank lower first; equal scores stand in a uniformly random order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from selverify.audit.lists.judging import Verdict
from selverify.audit.schema import RecordedList
from selverify.errors import SchemaError
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.statistics import FloatArray

Ranker = Callable[[RecordedList], FloatArray]
"""Scores [candidate] of a list, lower first. It may read everything but verdicts."""

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


def ranker_name(ranker: str) -> str:
    """The display name of a ranker; one that is not in the list shows its own."""
    return RANKER_NAMES.get(ranker, ranker)


def in_order(rankers: Sequence[str]) -> list[str]:
    """Distinct rankers in the order of :data:`RANKER_NAMES`, others before the oracle by name."""
    place = {name: number for number, name in enumerate(RANKER_NAMES)}
    return sorted(set(rankers), key=lambda name: (place.get(name, len(place) - 1.5), name))


def random_order(item: RecordedList) -> FloatArray:
    """Every candidate alike."""
    return np.zeros(len(item.candidates))


def recorded_order(item: RecordedList) -> FloatArray:
    """As the candidates stand in the log, first mention first."""
    return np.arange(len(item.candidates), dtype=np.float64)


def most_proposed_first(item: RecordedList) -> FloatArray:
    """The self-consistency of a move: how often the model proposed it."""
    return -np.array([candidate.times for candidate in item.candidates], dtype=np.float64)


def most_likely_first(item: RecordedList) -> FloatArray:
    """The model's log probability of the whole move, highest first.

    Raises:
        SchemaError: a candidate has none.
    """
    known = [one.logprob for one in item.candidates if one.logprob is not None]
    if len(known) < len(item.candidates):
        raise SchemaError(
            f"state {item.state_id!r} of {item.problem_id!r}: {len(known)} of "
            f"{len(item.candidates)} candidates have a log probability, expected all"
        )
    return -np.array(known, dtype=np.float64)


def shortest_first(item: RecordedList) -> FloatArray:
    """By the number of characters."""
    return np.array([len(candidate.text) for candidate in item.candidates], dtype=np.float64)


def oracle(verdict: Verdict) -> Ranker:
    """The best order there is: the accepted first. It knows the verdicts, so it is a bound only."""

    def scores(item: RecordedList) -> FloatArray:
        return np.array(
            [0.0 if verdict(candidate) else 1.0 for candidate in item.candidates], dtype=np.float64
        )

    return scores


def rankers_for(lists: Sequence[RecordedList], verdict: Verdict) -> dict[str, Ranker]:
    """The rankers that these lists can serve, by name, in the order of every table.

    Proposal counts say nothing where every text was proposed once, and log probabilities are used
    where every candidate has one.
    """
    found: dict[str, Ranker] = {RANDOM: random_order, RECORDED: recorded_order}
    candidates = [one for item in lists for one in item.candidates]
    if any(one.times > 1 for one in candidates):
        found[FREQUENCY] = most_proposed_first
    if all(one.logprob is not None for one in candidates):
        found[LIKELIHOOD] = most_likely_first
    return {**found, SHORTEST: shortest_first, ORACLE: oracle(verdict)}


def scores_of(ranker: Ranker, lists: Sequence[RecordedList]) -> list[FloatArray]:
    """The ranker's scores of every list.

    Raises:
        SchemaError: it gave another number of scores than there are candidates.
    """
    found = []
    for item in lists:
        scores = np.asarray(ranker(item), dtype=np.float64)
        if scores.shape != (len(item.candidates),):
            raise SchemaError(
                f"state {item.state_id!r} of {item.problem_id!r}: the ranker gave scores of shape "
                f"{scores.shape}, expected ({len(item.candidates)},)"
            )
        found.append(scores)
    return found
