"""The rule of a ranker that was learned from a log: order, k(w), and when to do without a call.

Knows: judged lists, scores by rankers that did not see the list's problem. Does not know: logs,
embeddings, how a ranker is trained or stored.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from selverify.audit.counterfactual import (
    AllocationChoice,
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
from selverify.experiment.statistics import Bootstrap, IntArray, wilson_interval
from selverify.search.gated import REJECT_PROBABILITY

_Key = TypeVar("_Key", bound=Hashable)

SKIPS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
"""Probabilities of a rejection below which doing without a call is tried."""
SLACK, SLACK_OF_PROBLEMS = 0.05, 0.1
"""How far below ``wanted`` the intervals of the skipped first moves' share may begin."""
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
    """What the rule comes to, by rankers that did not see the problem.

    ``table``: rows (learned, plan), (random, plan) with a k chosen alike, and (random, verify-all),
    as ``counterfactual.summarise``, but with ``found`` of the states with several candidates.
    ``contested``: states that hold an accepted and a rejected candidate; ``won``: the share of
    them where the rule finds an accepted one, NaN where there are none.
    ``skipped``: states without a call, of ``skipped_problems``; ``right``: those of the states
    whose first move is accepted.
    """

    table: pd.DataFrame
    contested: int
    won: float
    skipped: int
    skipped_problems: int
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
    strange: BoolArray,
    seed: int,
    resamples: int,
) -> tuple[Rule, Savings]:
    """The rule with the fewest calls that finds an accepted move often enough, and its savings.

    Often enough is a share ``wanted`` of the states that hold one among several candidates: with
    one candidate there is nothing to choose, and most states of samples have no more. A state is
    skipped only by a
    threshold under which at least that share of the skipped first moves is accepted, by an interval
    over states that begins at most ``SLACK`` below, and by one over problems, since states of one
    problem are not independent, that begins at most ``SLACK_OF_PROBLEMS`` below. The rule is the
    one chosen most often on parts of the problems, without its ``reference``. Its savings are
    counted on all, because rules that are chosen on a part are often cheaper than it, and find
    less.

    Args:
        scored: of each state, by a ranker that did not see its problem.
        scorers: those to choose among.
        strange: [state], where the ranker would not know the state and ask for every candidate.

    Raises:
        SchemaError, ParamsError: as ``split_problems`` and ``choose_allocation``.
    """
    splits = split_problems(states, folds=CHOICE_FOLDS, repetitions=CHOICE_REPETITIONS, seed=seed)
    unordered = rank_states(states, [np.zeros(len(state.accepted)) for state in states])
    every = unordered.outcomes(verify_all())
    options = {
        one: Outcomes(
            *(np.where(strange, all_, own) for all_, own in zip(every, made, strict=True))
        )
        for one, made in _options(states, scored, scorers)
    }
    _, problems = np.unique([state.problem_id for state in states], return_inverse=True)
    allowed = partial(_safe, list(options.values()), problems=problems, wanted=wanted)
    several = np.array([len(state.accepted) > 1 for state in states])
    choices = {one: _where(several, made) for one, made in options.items()}
    shipped = _most_chosen(choose_allocation(choices, splits, wanted=wanted, allowed=allowed))
    rule = Rule(
        shipped.scorer,
        float(shipped.k_base),
        shipped.beta,
        max(len(state.accepted) for state in states),
        0.0,
        shipped.skip_below,
    )
    firsts = {k: _where(several, _outcomes(unordered, k, 0.0)) for k in sizes_to_try(states)}
    rows = {
        (LEARNED, PLAN): choices[shipped],
        (RANDOM, PLAN): firsts[_most_chosen(choose_allocation(firsts, splits, wanted=wanted))],
        (RANDOM, VERIFY_ALL): _where(several, every),
    }
    table = summarise(states, rows, bootstrap=Bootstrap(resamples, seed))
    choosing = several & [bool(state.accepted.any()) for state in states]
    table = _never_certain(table, problems=len(np.unique(problems[choosing])))
    skipped, right = _skipped(options[shipped])
    of_problems = len(np.unique(problems[skipped]))
    won = options[shipped].found[[len(set(state.accepted)) == 2 for state in states]]
    return rule, Savings(
        table,
        len(won),
        float(won.mean()) if len(won) else math.nan,
        int(skipped.sum()),
        of_problems,
        int(right.sum()),
    )


def _never_certain(table: pd.DataFrame, *, problems: int) -> pd.DataFrame:
    """Where a rule failed in no state, resamples do not either: Wilson's interval over problems."""
    if not problems:
        return table
    certain = (table["found_low"] == 1.0) & (table["allocator"] == PLAN)
    low = wilson_interval(problems, problems).low
    return table.assign(found_low=table["found_low"].mask(certain, low))


def _where(several: BoolArray, own: Outcomes) -> Outcomes:
    """``found`` of these states only; of all where there are none."""
    return own._replace(found=np.where(several | ~several.any(), own.found, np.nan))


def problems_to_skip(wanted: float) -> int:
    """Of how many problems a log has to be for a rule that skips to be allowed at all: on each half
    even moves that are all accepted need so many."""
    level = max(wanted - SLACK_OF_PROBLEMS, 0.0)
    return 2 * next(n for n in count(1) if wilson_interval(n, n).low >= level)


def _most_chosen(choice: AllocationChoice[_Key]) -> _Key:
    ((key, _),) = choice.chosen.most_common(1)
    return key


def _skipped(own: Outcomes) -> tuple[BoolArray, BoolArray]:
    """[state], whether the first move is committed unasked, and whether that one is accepted."""
    skipped = own.calls == 0.0
    return skipped, skipped & (own.found == 1.0)


def _safe(
    options: Sequence[Outcomes], known: BoolArray, *, problems: IntArray, wanted: float
) -> BoolArray:
    """[option], whether the ``known`` states speak for what is skipped: none, or enough right.

    ``problems``: [state], the number of its problem.
    """

    def is_safe(skipped: BoolArray, right: BoolArray) -> bool:
        if not skipped.any():
            return True
        counts = np.bincount(problems[skipped & known])
        accepted = np.bincount(problems[right & known], minlength=len(counts))
        own = counts > 0
        if not own.any():
            return False
        shares = accepted[own] / counts[own]
        of_states = wilson_interval(float(accepted.sum()), int(counts.sum()))
        of_problems = wilson_interval(float(shares.sum()), len(shares))
        return (
            of_states.value >= wanted
            and of_states.low >= wanted - SLACK
            and of_problems.low >= wanted - SLACK_OF_PROBLEMS
        )

    return np.array([is_safe(*_skipped(own)) for own in options])


def _options(
    states: Sequence[JudgedList], scored: Sequence[HeldOutScores], scorers: Sequence[str]
) -> Iterator[tuple[_Option, Outcomes]]:
    for scorer in scorers:
        ranking = learned_ranking(states, scored, scorer)
        first = [int(np.argmin(one.scores[scorer])) for one in scored]
        pairs = list(zip(states, scored, first, strict=True))
        accepted = np.array([state.accepted[place] for state, _, place in pairs])
        chances = np.array([one.scores[REJECT_PROBABILITY][place] for _, one, place in pairs])
        for k, beta in product(sizes_to_try(states), (0.0, BETA)):
            plain = _outcomes(ranking, k, beta)
            yield _Option(scorer, k, beta, None), plain
            for threshold in SKIPS:
                skipped = chances < threshold
                found = np.where(skipped & ~np.isnan(plain.found), accepted, plain.found)
                calls = np.where(skipped, 0.0, plain.calls)
                yield _Option(scorer, k, beta, threshold), Outcomes(calls, found, plain.to_first)


def _outcomes(ranking: Ranking, k: int, beta: float) -> Outcomes:
    longest = max(map(len, ranking.scores))
    return ranking.outcomes(Allocator("adaptive", k, beta, k_max=longest, retries=0))
