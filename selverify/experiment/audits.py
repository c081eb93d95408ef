"""Audits of the ranker, the verifier and the gates, each by itself, against the truth.

Knows: candidate lists with scores and labels. Does not know: models, searches, files.
Orders are by score, lower first. Equal scores are in a uniformly random order, and every figure
is the exact expectation over it; so a random order is a ranker that scores everything alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from selverify.errors import ParamsError, SchemaError
from selverify.experiment.statistics import (
    Bootstrap,
    FloatArray,
    Interval,
    area_under_roc_interval,
    clustered_mean,
    paired,
    pass_at_k,
)

BoolArray = npt.NDArray[np.bool_]

RANDOM = "random"
ORACLE = "oracle"
_KIND_OF_REASON = r"^((?:malformed: )?[^:]*)"


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCandidates:
    """The post-gating candidates at one state, with the verifier's verdicts.

    Attributes:
        problem_id: the cluster that intervals resample.
        accepted: [move], the verifier's verdict.
        quality: [move], the verifier's score; the best accepted move has the highest.
        scores: [move] for each ranker, lower first.
    """

    problem_id: str
    accepted: BoolArray
    quality: FloatArray
    scores: Mapping[str, FloatArray]


class Place(NamedTuple):
    """Where an order first meets a target: ``before`` moves rank strictly better, and the next
    ``tied`` moves of equal score hold ``targets`` of them."""

    before: int
    tied: int
    targets: int


def first_target(scores: npt.ArrayLike, targets: npt.ArrayLike) -> Place | None:
    """The place of the best-ranked target, lower scores first; None when there is no target.

    Args:
        scores: [move].
        targets: [move], true for the moves that are looked for.
    """
    values, wanted = np.asarray(scores, np.float64), np.asarray(targets, np.bool_)
    if values.shape != wanted.shape or np.isnan(values).any():
        raise SchemaError(f"given {values.size} scores, expected {wanted.size} and none NaN")
    if not wanted.any():
        return None
    tied = values == values[wanted].min()
    before = int(np.sum(values < values[wanted].min()))
    return Place(before, int(tied.sum()), int(np.sum(tied & wanted)))


def recall_at_k(places: Sequence[Place], *, k: int) -> FloatArray:
    """[place] chance that a target is among the first k; 1 - C(g-t, k-b)/C(g, k-b) within a tie."""
    before, tied, targets = np.array(places, dtype=np.int64).reshape(-1, 3).T
    return pass_at_k(targets, samples=tied, k=np.clip(k - before, 0, tied))


def calls_to_first_accept(places: Sequence[Place]) -> FloatArray:
    """[place] expected verifier calls, one by one in rank order, until one is accepted.

    b + (g + 1)/(t + 1): the mean rank of the first of t targets among g in random order is
    (g + 1)/(t + 1) (negative hypergeometric).
    """
    before, tied, targets = np.array(places, dtype=np.float64).reshape(-1, 3).T
    return before + (tied + 1) / (targets + 1)


def pairwise_accuracy(scores: npt.ArrayLike, accepted: npt.ArrayLike) -> float | None:
    """Share of (accepted, rejected) pairs ranked rightly, ties half; None without such a pair."""
    values, labels = np.asarray(scores, np.float64), np.asarray(accepted, np.bool_)
    if labels.all() or not labels.any():
        return None
    gaps = values[~labels][None, :] - values[labels][:, None]
    return float(np.mean((gaps > 0) + 0.5 * (gaps == 0)))


def ranker_table(
    lists: Sequence[ScoredCandidates], *, ks: Sequence[int], bootstrap: Bootstrap
) -> pd.DataFrame:
    """Every ranker of the lists, and the random and the oracle order, on the same states.

    Recall is of the best accepted move (the verifier's highest score), calls are to the first
    accepted one; states without an accepted move do not count there, and pairwise accuracy also
    needs a rejected one. Means are over states, intervals resample problems.

    Returns:
        One row a (ranker, metric): ranker, metric (``recall_at_k``, ``calls_to_first_accept``,
        ``pairwise_accuracy``), k (0 where there is none), value, low, high, states.

    Raises:
        SchemaError: no list, or lists that do not score with the same rankers.
    """
    if not lists:
        raise SchemaError("candidate lists: given none, expected at least one")
    names = set(lists[0].scores)
    if any(set(one.scores) != names for one in lists):
        raise SchemaError(f"candidate lists: not all of them are scored by {sorted(names)}")
    rows = [
        row
        for ranker in [RANDOM, *sorted(names), ORACLE]
        for row in _ranker_rows(ranker, lists, ks=ks, bootstrap=bootstrap)
    ]
    return pd.DataFrame(rows, columns=["ranker", "metric", "k", "value", "low", "high", "states"])


def verifier_table(
    scores: npt.ArrayLike,
    truth: npt.ArrayLike,
    problems: npt.ArrayLike,
    *,
    tau: float,
    bins: int,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """The verifier's step scores against exact truth, intervals clustered by problem.

    Args:
        scores: [step] in [0, 1].
        truth: [step], true where the right answer can still be derived rightly.
        problems: [step], the problem of each step.
        tau: a step is accepted when its score is at least tau.

    Returns:
        metric, value, low, high: ``step_auc``, ``accept_rate_right`` and ``accept_rate_wrong``
        (shares of the right and of the wrong steps accepted), ``precision``, ``base_rate``; and
        ``calibration_error`` without an interval, because resampling biases it upwards. Rows
        without data (no wrong step, for example) are left out; of no step ``calibration_error`` is
        the only row, and NaN.
    """
    columns = ["metric", "value", "low", "high"]
    if not np.size(scores):
        return pd.DataFrame([("calibration_error", np.nan, np.nan, np.nan)], columns=columns)
    values, wanted = paired(scores, truth)
    right = wanted.astype(np.bool_)
    accepted = values >= tau
    blank = np.full(values.shape, np.nan)
    shares = {
        "accept_rate_right": np.where(right, accepted, blank),
        "accept_rate_wrong": np.where(~right, accepted, blank),
        "precision": np.where(accepted, right, blank),
        "base_rate": right.astype(np.float64),
    }
    error = _expected_calibration_error(reliability_table(values, right, bins=bins))
    table = {
        "step_auc": area_under_roc_interval(values, right, clusters=problems, bootstrap=bootstrap),
        **{
            name: clustered_mean(share, problems, bootstrap=bootstrap)
            for name, share in shares.items()
        },
        "calibration_error": Interval(error, np.nan, np.nan),
    }
    rows = [(name, one.value, one.low, one.high) for name, one in table.items() if one is not None]
    return pd.DataFrame(rows, columns=columns)


def reliability_table(scores: npt.ArrayLike, truth: npt.ArrayLike, *, bins: int) -> pd.DataFrame:
    """Scores in [0, 1] cut into ``bins`` equal widths; bins without a score are left out.

    Args:
        scores: [step].
        truth: [step], whether the step is right.

    Returns:
        One row a bin [low, high): low, high, count, mean_score, rate (the share that is right);
        none without a score.

    Raises:
        ParamsError: no bin, or a score outside [0, 1].
    """
    columns = ["low", "high", "count", "mean_score", "rate"]
    if not np.size(scores):
        return pd.DataFrame(columns=columns, dtype=np.float64)
    values, right = paired(scores, truth)
    if bins < 1 or values.min() < 0.0 or values.max() > 1.0:
        raise ParamsError(f"given {bins} bins, expected at least 1, and scores in [0, 1]")
    which = np.minimum((values * bins).astype(np.int64), bins - 1)
    rows = [
        (b / bins, (b + 1) / bins, np.sum(inside), values[inside].mean(), right[inside].mean())
        for b in np.unique(which).tolist()
        for inside in [which == b]
    ]
    return pd.DataFrame(rows, columns=columns)


def gate_table(candidates: pd.DataFrame) -> pd.DataFrame:
    """Refusals by gate and reason, and how many of them were right by exact truth.

    What a reason says behind a colon, as which number is unknown, is not counted apart.

    Args:
        candidates: one row a sampled candidate: gate and reason (both "" for a survivor), and
            right (true where the candidate is a right move; false for malformed text).

    Returns:
        gate, reason, refused, share (of all candidates), false_rejects; most frequent first.
    """
    refused = candidates[candidates["gate"] != ""]
    kinds = refused["reason"].astype(str).str.extract(_KIND_OF_REASON, expand=False)
    refused = refused.assign(reason=kinds)
    grouped = refused.groupby(["gate", "reason"])["right"]
    table = grouped.agg(refused="size", false_rejects="sum").reset_index()
    table.insert(3, "share", table["refused"] / max(len(candidates), 1))
    order = table.sort_values(["refused", "gate", "reason"], ascending=[False, True, True])
    return order.astype({"false_rejects": int}).reset_index(drop=True)


def _expected_calibration_error(table: pd.DataFrame) -> float:
    """sum_b (n_b / n) |mean score - share right| (Naeini et al. 2015), in [0, 1]."""
    gaps = table["count"] * (table["mean_score"] - table["rate"]).abs()
    return float(sum(gaps)) / int(table["count"].sum())


def _ranker_rows(
    ranker: str, lists: Sequence[ScoredCandidates], *, ks: Sequence[int], bootstrap: Bootstrap
) -> Iterator[tuple[str, str, int, float, float, float, int]]:
    reachable = [item for item in lists if item.accepted.any()]
    best = _places(ranker, [(item, _best_accepted(item)) for item in reachable])
    any_accepted = _places(ranker, [(item, item.accepted) for item in reachable])
    pairs = [
        pairwise_accuracy(_scores(item, ranker, item.accepted), item.accepted) for item in reachable
    ]
    columns = [
        *((f"recall_at_{k}", k, recall_at_k(best, k=k)) for k in ks),
        ("calls_to_first_accept", 0, calls_to_first_accept(any_accepted)),
        ("pairwise_accuracy", 0, np.array(pairs, dtype=np.float64)),
    ]
    problems = [item.problem_id for item in reachable]
    for metric, k, values in columns:
        found = clustered_mean(values, problems, bootstrap=bootstrap)
        if found is not None:
            states = int(np.sum(~np.isnan(values)))
            yield ranker, metric, k, found.value, found.low, found.high, states


def _places(ranker: str, targets: Iterable[tuple[ScoredCandidates, BoolArray]]) -> list[Place]:
    found = [first_target(_scores(item, ranker, wanted), wanted) for item, wanted in targets]
    return [place for place in found if place is not None]


def _scores(item: ScoredCandidates, ranker: str, targets: BoolArray) -> FloatArray:
    if ranker == RANDOM:
        return np.zeros(targets.shape)
    if ranker == ORACLE:
        return np.where(targets, 0.0, 1.0)
    return item.scores[ranker]


def _best_accepted(item: ScoredCandidates) -> BoolArray:
    best: BoolArray = item.accepted & (item.quality == item.quality[item.accepted].max())
    return best
