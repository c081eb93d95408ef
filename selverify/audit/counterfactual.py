"""What any order and any allocation of verifier calls would have found on recorded lists.

Knows: judged lists, scores of rankers, k(w), batches. Does not know: logs, how scores were made,
figures. Equal scores are in a uniformly random order, and every figure is the exact expectation
over it. States of one problem are not independent: every interval resamples problems.

An allocation verifies the best-ranked k moves at once and, where it may try again, the next k of
the rest, as gated competition does. In rank order that is a row of cuts 0 = c_0 < c_1 < ... < c_r:
with F(c) the chance that an accepted move is among the first c, it makes
sum_i (c_i - c_{i-1}) (1 - F(c_{i-1})) calls and finds one with chance F(c_r).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from selverify.audit.judged_lists import JudgedList
from selverify.errors import ParamsError, SchemaError
from selverify.experiment.audits import BoolArray, Place, calls_to_first_accept, first_target
from selverify.experiment.statistics import (
    DIGITS,
    Bootstrap,
    FloatArray,
    clustered_ratios,
    interval_table,
)
from selverify.search.allocation import calls_at, dispersion

_Key = TypeVar("_Key", bound=Hashable)


class Allocator(NamedTuple):
    """How many of the best-ranked moves are verified at once, and how often again.

    ``allocation``, ``k_base``, ``beta``, ``k_max``: as :func:`allocation.calls_at` takes them, with
    a k_min of 1. ``retries``: further batches while none is accepted; None: until one is, or none
    is left.
    """

    allocation: str
    k_base: float
    beta: float
    k_max: int
    retries: int | None


def verify_all() -> Allocator:
    """Every candidate, at once."""
    return Allocator("all", k_base=1.0, beta=0.0, k_max=1, retries=0)


def first_k(k: int, *, retries: int | None = 0) -> Allocator:
    """The k best-ranked at once; then, ``retries`` times, the next k."""
    return Allocator("fixed", k_base=k, beta=0.0, k_max=k, retries=retries)


def one_by_one() -> Allocator:
    """In rank order until one is accepted or none is left."""
    return first_k(1, retries=None)


class Outcomes(NamedTuple):
    """What an allocation comes to at each state, in expectation over ties.

    ``calls`` [state]: verifier calls. ``found`` [state]: the chance that an accepted move was
    found, NaN where the list holds none. ``to_first`` [state]: calls to the first accepted move if
    they were made one by one, NaN where there is none; it depends on the order alone.
    """

    calls: FloatArray
    found: FloatArray
    to_first: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The moves of every state in the order of one ranker.

    Attributes:
        scores: [state], the scores in rising order.
        reach: [state], F(c) for c = 0 to the number of moves.
        references: [state], sigma-bar for k(w).
        to_first: [state], as in :class:`Outcomes`.
    """

    scores: tuple[tuple[float, ...], ...]
    reach: tuple[tuple[float, ...], ...]
    references: tuple[float, ...]
    to_first: FloatArray

    def outcomes(self, allocator: Allocator) -> Outcomes:
        """Expected calls and finds at every state."""
        rows = zip(self.scores, self.reach, self.references, strict=True)
        calls, found = np.array([_outcome(*row, allocator) for row in rows], dtype=np.float64).T
        found = np.where(np.isnan(self.to_first), np.nan, found)
        return Outcomes(calls, found, self.to_first)


def rank_states(
    states: Sequence[JudgedList],
    scores: Sequence[npt.ArrayLike],
    *,
    references: Sequence[float] | None = None,
) -> Ranking:
    """The states in the order of ``scores``.

    Args:
        scores: [state][move], lower first.
        references: [state], sigma-bar of the scores; None: the mean of sigma(w) over the states of
            more than one move (0 without any), which needs no verdict. One move has no spread, and
            with many such states all others would seem spread.
    """
    arrays = [np.asarray(own, dtype=np.float64) for own in scores]
    rising = tuple(tuple(np.sort(own).tolist()) for own in arrays)
    if references is None:
        spreads = [dispersion(own) for own in rising if len(own) > 1]
        references = [sum(spreads) / max(len(spreads), 1)] * len(rising)
    places = [first_target(own, one.accepted) for one, own in zip(states, arrays, strict=True)]
    return Ranking(
        rising,
        tuple(_reach(place, len(own)) for place, own in zip(places, rising, strict=True)),
        tuple(references),
        np.array([np.nan if one is None else calls_to_first_accept([one])[0] for one in places]),
    )


def summarise(
    states: Sequence[JudgedList],
    outcomes: Mapping[tuple[str, str], Outcomes],
    *,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """One row a (ranker, allocator) of ``outcomes``, in their order.

    Returns:
        ranker, allocator, states, reachable (states that hold an accepted move), and with the ends
        of their intervals (``_low``, ``_high``): found (share of the reachable),
        calls_where_reachable (a reachable state), to_first (as in :class:`Outcomes`), calls (a
        state), calls_ratio (over those of verify-all).
    """
    reachable = np.array([state.accepted.any() for state in states])
    own = list(outcomes.values())
    columns = {
        "found": [one.found for one in own],
        "calls_where_reachable": [np.where(reachable, one.calls, np.nan) for one in own],
        "to_first": [one.to_first for one in own],
        "calls": [one.calls for one in own],
    }
    table = _labels(outcomes, ("ranker", "allocator"))
    table = table.assign(states=len(states), reachable=int(reachable.sum()))
    return table.join(_means(columns, states, bootstrap)).join(_ratios(own, states, bootstrap))


def differences(
    states: Sequence[JudgedList],
    outcomes: Mapping[tuple[str, str], Outcomes],
    *,
    against: Sequence[str],
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Each ranker less each ranker of ``against`` under the same allocator, on the same states.

    Returns:
        ranker, allocator, against, and with intervals: found (share of states, positive: more),
        calls (a state, negative: fewer).
    """
    pairs = {
        (ranker, allocator, other): (own, outcomes[other, allocator])
        for (ranker, allocator), own in outcomes.items()
        for other in against
        if other != ranker and (other, allocator) in outcomes
    }
    table = _labels(pairs, ("ranker", "allocator", "against"))
    gaps = {
        "found": [own.found - base.found for own, base in pairs.values()],
        "calls": [own.calls - base.calls for own, base in pairs.values()],
    }
    return table.join(_means(gaps, states, bootstrap))


def found_curves(
    states: Sequence[JudgedList],
    outcomes: Mapping[tuple[str, str, float], Outcomes],
    *,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Found against calls, a row a (ranker, family of allocators, setting) of ``outcomes``.

    Returns:
        ranker, family, setting (k, or k_base), and with intervals: found, calls, calls_ratio, as in
        :func:`summarise`.
    """
    table = _labels(outcomes, ("ranker", "family", "setting"))
    own = list(outcomes.values())
    columns = {"found": [one.found for one in own], "calls": [one.calls for one in own]}
    return table.join(_means(columns, states, bootstrap)).join(_ratios(own, states, bootstrap))


def split_problems(
    states: Sequence[JudgedList], *, folds: int, repetitions: int, seed: int
) -> list[tuple[int, ...]]:
    """For each repetition the fold of each state; a problem's states stay together.

    Problems with an accepted move somewhere are dealt out first, so that every fold holds some.

    Raises:
        SchemaError: fewer such problems than folds.
    """
    names = sorted({state.problem_id for state in states})
    useful = {state.problem_id for state in states if state.accepted.any()}
    if len(useful) < folds:
        raise SchemaError(
            f"problems with an accepted move: given {len(useful)}, expected at least {folds}, so "
            "that settings can be chosen on some and scored on others (--by says what counts as "
            "accepted: a label, where any candidate has one)"
        )
    rng, found = random.Random(seed), []
    for _ in range(repetitions):
        rng.shuffle(names)
        dealt = sorted(names, key=lambda name: name not in useful)
        fold_of = {name: place % folds for place, name in enumerate(dealt)}
        found.append(tuple(fold_of[state.problem_id] for state in states))
    return found


class AllocationChoice(NamedTuple, Generic[_Key]):
    """Outcomes under settings chosen on other problems, and how often each setting was chosen."""

    outcomes: Outcomes
    chosen: Counter[_Key]


def choose_allocation(
    options: Mapping[_Key, Outcomes],
    splits: Sequence[Sequence[int]],
    *,
    wanted: float,
    allowed: Callable[[BoolArray], BoolArray] | None = None,
) -> AllocationChoice[_Key]:
    """Each fold is scored with the setting that the other folds choose, so none scores itself.

    Chosen is the option with the fewest calls among those that find an accepted move in at least
    a share ``wanted`` of the states that hold one (``found`` is no NaN); where none does, the one
    that finds most. Ties: the first of ``options``.

    Args:
        splits: for each repetition the fold of each state; outcomes are means over repetitions.
        allowed: from the states that may be looked at, [state], the options to choose among,
            [option]; None: all.

    Raises:
        ParamsError: ``wanted`` outside [0, 1].
    """
    if not 0.0 <= wanted <= 1.0:
        raise ParamsError(f"wanted: given {wanted:g}, expected a share from 0 to 1")
    keys, columns = list(options), Outcomes(*map(np.stack, zip(*options.values(), strict=True)))
    chosen: Counter[_Key] = Counter()
    total = np.zeros((len(columns), columns.calls.shape[1]))
    for split in splits:
        folds = np.asarray(split)
        for fold in np.unique(folds):
            held = folds == fold
            shares = _shares(columns.found[:, ~held]).round(DIGITS)
            costs = np.round(columns.calls[:, ~held].mean(axis=1), DIGITS)
            usable = np.ones(len(keys), np.bool_) if allowed is None else allowed(~held)
            enough = usable & (shares >= min(wanted, float(shares[usable].max())))
            best = int(np.argmin(np.where(enough, costs, np.inf)))
            chosen[keys[best]] += 1
            total[:, held] += np.stack([one[best, held] for one in columns])
    return AllocationChoice(Outcomes(*(total / len(splits))), chosen)


def _shares(found: FloatArray) -> FloatArray:
    """[option], of [option, state]: of the states with an accepted move, 1 without such states."""
    counts = (~np.isnan(found)).sum(axis=1)
    return np.where(counts > 0, np.nansum(found, axis=1) / np.maximum(counts, 1), 1.0)


def _outcome(
    scores: tuple[float, ...], reach: tuple[float, ...], reference: float, allocator: Allocator
) -> tuple[float, float]:
    calls, before = 0.0, 0
    for cut in _cuts(scores, reference, allocator):
        # Calls of this batch, times the chance that it comes to it.
        calls, before = calls + (cut - before) * (1.0 - reach[before]), cut
    return calls, reach[before]


def _cuts(scores: tuple[float, ...], reference: float, allocator: Allocator) -> Iterator[int]:
    """After how many moves in all each batch ends; k(w) is of the moves that are left."""
    cut, tries = 0, 0
    while cut < len(scores) and (allocator.retries is None or tries <= allocator.retries):
        # The first k need no scores, and lists may be long.
        left = () if allocator.allocation == "fixed" else scores[cut:]
        cut += calls_at(
            left,
            allocation=allocator.allocation,
            reference=reference,
            k_base=allocator.k_base,
            beta=allocator.beta,
            k_min=1,
            k_max=allocator.k_max,
        )
        cut, tries = min(cut, len(scores)), tries + 1
        yield cut


def _reach(place: Place | None, moves: int) -> tuple[float, ...]:
    """F(c); of n tied moves, t of them accepted, c hold none with prod_{i<c} (n-t-i)/(n-i)."""
    if place is None:
        return (0.0,) * (moves + 1)
    left = np.arange(place.tied, 0, -1)
    missed = np.cumprod(np.maximum(left - place.targets, 0) / left)
    after = moves - place.before - place.tied
    return (0.0,) * (place.before + 1) + tuple((1.0 - missed).tolist()) + (1.0,) * after


def _labels(keys: Iterable[Sequence[object]], names: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame([list(key) for key in keys], columns=list(names))


def _ratios(
    outcomes: Sequence[Outcomes], states: Sequence[JudgedList], bootstrap: Bootstrap
) -> pd.DataFrame:
    """All calls over those of verify-all, which makes one a candidate."""
    columns = {"calls_ratio": [own.calls for own in outcomes]}
    return _means(columns, states, bootstrap, weights=[len(state.accepted) for state in states])


def _means(
    columns: Mapping[str, Sequence[FloatArray]],
    states: Sequence[JudgedList],
    bootstrap: Bootstrap,
    *,
    weights: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Means over states, or sums over those of ``weights``, a row an outcome, with interval ends.

    One resampling serves all of them.
    """
    found = iter(
        clustered_ratios(
            [one for own in columns.values() for one in own],
            np.ones(len(states)) if weights is None else weights,
            [state.problem_id for state in states],
            bootstrap=bootstrap,
        )
    )
    tables = [interval_table(name, [next(found) for _ in own]) for name, own in columns.items()]
    return pd.concat(tables, axis=1)
