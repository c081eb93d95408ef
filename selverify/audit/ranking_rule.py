"""The rule of a ranker that was learned from a log: order, k(w), and when to do without a call.

Knows: judged lists, scores by rankers that did not see the list's problem. Does not know: logs,
embeddings, how a ranker is trained or stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from selverify.audit.counterfactual import (
    Allocator,
    Outcomes,
    Ranking,
    choose_allocation,
    rank_states,
    split_problems,
    summarise,
    verify_all,
)
from selverify.audit.judged_lists import JudgedList
from selverify.audit.learned_orders import HeldOutScores, learned_ranking
from selverify.audit.list_audit import BETA, CHOICE_FOLDS, CHOICE_REPETITIONS, sizes_to_try
from selverify.experiment.audits import BoolArray
from selverify.experiment.statistics import Bootstrap

REJECT = "reject_probability"
SKIPS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
"""Probabilities of a rejection below which doing without a call is tried."""
FEWEST_SKIPPED = 20
"""States that must speak for a threshold."""
LEARNED, RANDOM = "learned", "random"
PLAN, VERIFY_ALL = "plan", "verify-all"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which ``scorer`` orders the moves, and how many are verified: Eq. kw with a k_min of 1.

    ``reference``: sigma-bar of the scorer. ``skip_below``: the first move is committed without a
    call where the verifier rejects it with a smaller probability; None: never.
    """

    scorer: str
    k_base: float
    beta: float
    k_max: int
    reference: float
    skip_below: float | None


class Savings(NamedTuple):
    """What the rule comes to on problems that it was not learned or chosen on.

    ``table``: rows (learned, plan), (random, plan) with a k chosen alike, and (random, verify-all),
    as ``counterfactual.summarise``.
    ``skipped``: states without a call; ``right``: those of them whose first move is accepted.
    """

    table: pd.DataFrame
    skipped: int
    right: int


class _Option(NamedTuple):
    scorer: str
    k_base: int
    beta: float
    skip_below: float | None


def choose_rule(
    states: Sequence[JudgedList],
    scored: Sequence[HeldOutScores],
    scorers: Sequence[str],
    *,
    wanted: float,
    seed: int,
    resamples: int,
) -> tuple[Rule, Savings]:
    """The rule with the fewest calls that finds an accepted move often enough, and its savings.

    Often enough is a share ``wanted`` of the states that hold one; a state is skipped only by a
    threshold under which at least that share of the skipped first moves is accepted. The savings
    are of rules chosen on other problems than they are counted on.

    Args:
        scored: of each state, by a ranker that did not see its problem.
        scorers: those to choose among.

    Raises:
        SchemaError, ParamsError: as ``split_problems`` and ``choose_allocation``.
    """
    splits = split_problems(states, folds=CHOICE_FOLDS, repetitions=CHOICE_REPETITIONS, seed=seed)
    options = dict(_options(states, scored, scorers, wanted))
    choice = choose_allocation(options, splits, wanted=wanted)
    ((chosen, _),) = choice.chosen.most_common(1)
    skipped, accepted = _skipped(states, scored, chosen.scorer, chosen.skip_below)
    rule = Rule(
        chosen.scorer,
        float(chosen.k_base),
        chosen.beta,
        max(len(state.accepted) for state in states),
        sum(one.dispersion[chosen.scorer] for one in scored) / len(scored),
        chosen.skip_below,
    )
    unordered = rank_states(states, [np.zeros(len(state.accepted)) for state in states])
    firsts = {k: _outcomes(unordered, k, 0.0) for k in sizes_to_try(states)}
    rows = {
        (LEARNED, PLAN): choice.outcomes,
        (RANDOM, PLAN): choose_allocation(firsts, splits, wanted=wanted).outcomes,
        (RANDOM, VERIFY_ALL): unordered.outcomes(verify_all()),
    }
    table = summarise(states, rows, bootstrap=Bootstrap(resamples, seed))
    return rule, Savings(table, int(skipped.sum()), int((skipped & accepted).sum()))


def _options(
    states: Sequence[JudgedList],
    scored: Sequence[HeldOutScores],
    scorers: Sequence[str],
    wanted: float,
) -> Iterator[tuple[_Option, Outcomes]]:
    for scorer in scorers:
        ranking = learned_ranking(states, scored, scorer)
        skips = _thresholds(states, scored, scorer, wanted)
        for k, beta in ((k, beta) for k in sizes_to_try(states) for beta in (0.0, BETA)):
            plain = _outcomes(ranking, k, beta)
            yield _Option(scorer, k, beta, None), plain
            for threshold, (skipped, accepted) in skips.items():
                found = np.where(skipped & ~np.isnan(plain.found), accepted, plain.found)
                calls = np.where(skipped, 0.0, plain.calls)
                yield _Option(scorer, k, beta, threshold), Outcomes(calls, found, plain.to_first)


def _outcomes(ranking: Ranking, k: int, beta: float) -> Outcomes:
    longest = max(map(len, ranking.scores))
    return ranking.outcomes(Allocator("adaptive", k, beta, k_max=longest, retries=0))


def _thresholds(
    states: Sequence[JudgedList], scored: Sequence[HeldOutScores], scorer: str, wanted: float
) -> Mapping[float, tuple[BoolArray, BoolArray]]:
    """The thresholds under which the first moves are right often enough, and what they skip."""
    found = {}
    for threshold in SKIPS:
        skipped, accepted = _skipped(states, scored, scorer, threshold)
        if skipped.sum() >= FEWEST_SKIPPED and accepted[skipped].mean() >= wanted:
            found[threshold] = skipped, accepted
    return found


def _skipped(
    states: Sequence[JudgedList],
    scored: Sequence[HeldOutScores],
    scorer: str,
    threshold: float | None,
) -> tuple[BoolArray, BoolArray]:
    """[state], whether the first move is committed unasked, and whether it is accepted."""
    first = [int(np.argmin(one.scores[scorer])) for one in scored]
    chances = np.array(
        [one.scores[REJECT][place] for one, place in zip(scored, first, strict=True)]
    )
    accepted = np.array([s.accepted[place] for s, place in zip(states, first, strict=True)])
    return chances < (0.0 if threshold is None else threshold), accepted
