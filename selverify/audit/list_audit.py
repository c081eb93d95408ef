"""What a log of candidate lists says that selective verification would have saved.

Knows: which orders and allocations are compared, and that settings are chosen on other problems.
Does not know: files, how results are shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from selverify.audit.counterfactual import (
    AllocationChoice,
    Allocator,
    Outcomes,
    Ranking,
    choose_allocation,
    differences,
    first_k,
    found_curves,
    one_by_one,
    rank_states,
    split_problems,
    summarise,
    verify_all,
)
from selverify.audit.judged_lists import (
    Accepts,
    JudgedList,
    ListCoverage,
    by_label,
    by_score,
    judge,
)
from selverify.audit.log import RecordedList, in_order
from selverify.audit.orders import RECORDED, orders_for, rankers_in_order
from selverify.errors import ParamsError, SchemaError
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.statistics import Bootstrap

VERIFY_ALL = "verify-all"
FAMILIES = ONE_BY_ONE, FIRST_K, ADAPTIVE = "one by one", "first k", "k(w)"
ANY = "any"
"""The order and the allocation chosen together."""
LABEL, SCORE = "label", "score"
LARGEST_SEED = (1 << 63) - 1
"""PyTorch takes few larger ones."""
EVERY_K_UP_TO = 10
LARGER_BY = 1.25
"""Beyond every k up to 10, each k is this much larger: lists may hold thousands of candidates."""
BETA = 0.5
"""Of k(w)."""
CHOICE_FOLDS, CHOICE_REPETITIONS = 2, 20
"""Of the choice of settings."""
CURVE_RESAMPLES = 2_000
"""Of the intervals in the figure, at most."""

LearnedOrders = Callable[[Sequence[JudgedList]], Mapping[str, Ranking]]
"""Orders by name, each state's learned on other problems."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How a log is audited.

    ``by``: accept by ``label``, or by ``score`` at least ``tau``; None: what the log can serve,
    labels first. ``tau``: None is the middle of [0, 1], if all scores are within. ``complete``: use
    only lists without misses. ``wanted``: the share of the reachable states in which a chosen
    setting is to find an accepted move. ``resamples``: of the intervals. ``seed``: of these and of
    the folds.
    """

    by: str | None = None
    tau: float | None = None
    complete: bool = False
    wanted: float = 0.98
    resamples: int = 10_000
    seed: int = 0


class AuditOption(NamedTuple):
    """An order and an allocation of one of the ``FAMILIES``; ``k`` is k_base for k(w)."""

    ranker: str
    family: str
    k: int
    beta: float


class AcceptRule(NamedTuple):
    """What counts as accepted, as a function and in words."""

    accepts: Accepts
    words: str


@dataclass(frozen=True, slots=True, eq=False)
class ListAudit:
    """The tables of an audit, as :mod:`selverify.audit.counterfactual` gives them.

    ``rule``: what counts as accepted. ``chosen``: how often each option was chosen for a row of
    ``summary``, by (ranker, allocator).
    """

    rule: str
    wanted: float
    coverage: ListCoverage
    summary: pd.DataFrame
    differences: pd.DataFrame
    curves: pd.DataFrame
    chosen: Mapping[tuple[str, str], Counter[AuditOption]]


def accept_rule(lists: Sequence[RecordedList], *, by: str | None, tau: float | None) -> AcceptRule:
    """The rule that ``by`` and ``tau`` ask for, or the one that the lists can serve.

    Raises:
        ParamsError: ``by`` of another name, a ``tau`` that labels do not need, or none where the
            scores are no probabilities.
        SchemaError: no candidate has what the rule reads.
    """
    candidates = [one for item in lists for one in item.candidates]
    labelled = any(one.label is not None for one in candidates)
    scores = [one.score for one in candidates if one.score is not None]
    if by not in (None, LABEL, SCORE):
        raise ParamsError(f"by: given {by!r}, expected {LABEL!r} or {SCORE!r}")
    if by == LABEL and tau is not None:
        raise ParamsError(f"tau: given {tau:g}, expected none where moves are accepted by label")
    if by is None:
        by = LABEL if labelled and tau is None else SCORE
    if not (labelled if by == LABEL else scores):
        other, there = (SCORE, scores) if by == LABEL else (LABEL, labelled)
        raise SchemaError(
            f"verdicts by {by}: no candidate of the log has a {by}, "
            + (f"expected some (candidates of the log have a {other})" if there else "")
            + ("" if there else f"nor has any a {other}; expected one of the two")
        )
    if by == LABEL:
        return AcceptRule(by_label, "its label says that it is right")
    level = _middle(scores) if tau is None else tau
    return AcceptRule(by_score(level), f"its recorded score is at least {level:g}")


def audit_lists(
    lists: Sequence[RecordedList],
    *,
    settings: AuditSettings,
    learned: LearnedOrders | None = None,
) -> ListAudit:
    """Every order that the lists can serve, under several allocations, against verify-all.

    The order of ``lists`` does not matter.

    Raises:
        SchemaError: no list can be used, or too few problems have an accepted move to choose
            settings on some of them and score on others.
    """
    rule = accept_rule(lists, by=settings.by, tau=settings.tau)
    states, coverage = judge(in_order(lists), rule.accepts, complete=settings.complete)
    if not coverage.reachable:
        raise SchemaError(
            f"of {coverage.lists} lists of the log {coverage.used} can be used, and none of them "
            f"holds an accepted candidate (one is accepted if {rule.words}); expected some"
        )
    rankings = _rankings(states, rule.accepts, learned)
    options = _options(states, rankings)
    choices = _choices(states, options, settings)
    rows = {
        (RANDOM, VERIFY_ALL): rankings[RANDOM].outcomes(verify_all()),
        **{key: choice.outcomes for key, choice in choices.items()},
    }
    drawn: dict[tuple[str, str, float], Outcomes] = {
        (one.ranker, one.family, one.k): own
        for one, own in options.items()
        if one.family != ONE_BY_ONE
    }
    bootstrap = Bootstrap(settings.resamples, settings.seed)
    of_curves = Bootstrap(min(settings.resamples, CURVE_RESAMPLES), settings.seed)
    return ListAudit(
        rule.words,
        settings.wanted,
        coverage,
        summarise(states, rows, bootstrap=bootstrap),
        differences(states, rows, against=(RANDOM, RECORDED), bootstrap=bootstrap),
        found_curves(states, drawn, bootstrap=of_curves),
        {key: choice.chosen for key, choice in choices.items()},
    )


def flat(found: ListAudit) -> pd.DataFrame:
    """``summary`` with the setting chosen most often, and its differences from other orders.

    Columns beyond those of ``summary``: k, beta; calls_less_random, found_less_random,
    calls_less_recorded and found_less_recorded with the ends of their intervals.
    """
    keys = ["ranker", "allocator"]
    settings = [
        (*key, option.k, option.beta)
        for key, counts in found.chosen.items()
        for option, _ in counts.most_common(1)
    ]
    table = found.summary.merge(
        pd.DataFrame(settings, columns=[*keys, "k", "beta"]), on=keys, how="left"
    )
    for other, own in found.differences.groupby("against"):
        gaps = own.drop(columns="against")
        names = {name: re.sub("^(calls|found)", rf"\1_less_{other}", name) for name in gaps.columns}
        table = table.merge(gaps.rename(columns=names), on=keys, how="left")
    return table


def _middle(scores: Sequence[float]) -> float:
    if min(scores) < 0.0 or max(scores) > 1.0:
        raise ParamsError(
            f"tau: given none, and the log's scores run from {min(scores):g} to {max(scores):g}; "
            "expected the score from which on a move is accepted"
        )
    return 0.5


def _rankings(
    states: Sequence[JudgedList], accepts: Accepts, learned: LearnedOrders | None
) -> dict[str, Ranking]:
    lists = [state.recorded for state in states]
    found = {
        name: rank_states(states, [scores(item) for item in lists])
        for name, scores in orders_for(lists, accepts).items()
    }
    found |= {} if learned is None else learned(states)
    return {name: found[name] for name in rankers_in_order(list(found))}


def _options(
    states: Sequence[JudgedList], rankings: Mapping[str, Ranking]
) -> dict[AuditOption, Outcomes]:
    """Every order under every allocation that is tried.

    k(w) is not tried on scores that say nothing or too much: at random it is the first k, and the
    oracle's spread shows how many moves are right.
    """
    sizes = sizes_to_try(states)
    plain = {(ONE_BY_ONE, 1, 0.0): one_by_one()} | {(FIRST_K, k, 0.0): first_k(k) for k in sizes}
    spread = {
        (ADAPTIVE, k, BETA): Allocator("adaptive", k, BETA, k_max=sizes[-1], retries=0)
        for k in sizes
    }
    return {
        AuditOption(ranker, *setting): ranking.outcomes(allocator)
        for ranker, ranking in rankings.items()
        for setting, allocator in (plain if ranker in (RANDOM, ORACLE) else plain | spread).items()
    }


def sizes_to_try(states: Sequence[JudgedList]) -> list[int]:
    """The k to try, up to the length of the longest list."""
    longest = max(len(state.accepted) for state in states)
    found = list(range(1, min(longest, EVERY_K_UP_TO) + 1))
    while found[-1] < longest:
        found.append(min(longest, round(LARGER_BY * found[-1])))
    return found


def _choices(
    states: Sequence[JudgedList],
    options: Mapping[AuditOption, Outcomes],
    settings: AuditSettings,
) -> dict[tuple[str, str], AllocationChoice[AuditOption]]:
    """Each order and family with the settings chosen for it, and the choice among all but the
    oracle's."""
    splits = split_problems(
        states, folds=CHOICE_FOLDS, repetitions=CHOICE_REPETITIONS, seed=settings.seed
    )
    groups: dict[tuple[str, str], dict[AuditOption, Outcomes]] = {}
    for family in FAMILIES:
        for one, own in options.items():
            if one.family == family:
                groups.setdefault((one.ranker, family), {})[one] = own
    groups[ANY, ANY] = {one: own for one, own in options.items() if one.ranker != ORACLE}
    return {
        key: choose_allocation(group, splits, wanted=settings.wanted)
        for key, group in groups.items()
    }
