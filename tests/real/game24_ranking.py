"""Rankers of recorded moves of game of 24: trained on some puzzles or models, asked about others.

Knows: the two verifiers, folds by puzzle, allocations chosen on the training side. Does not know:
how a move is embedded, searches, tables.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from game24_embedding import embedded
from game24_states import MOVES, Visited, with_survivors

from selverify.audit.counterfactual import (
    AllocationChoice,
    Allocator,
    Outcomes,
    Ranking,
    choose_allocation,
    first_k,
    rank_states,
)
from selverify.audit.judged_lists import Accepts, JudgedList, by_label, by_score, judge
from selverify.audit.learned_orders import HeldOutScores, fit_on, learned_ranking
from selverify.audit.orders import FREQUENCY, LIKELIHOOD, RECORDED, UNLEARNED
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.statistics import FloatArray
from selverify.params import Residual
from selverify.training.fit import Epoch
from selverify.training.policy import LabelledList


def _tries(retries: int) -> str:
    return "once" if not retries else f"up to {retries + 1} times"


SETTINGS = Residual(
    hidden=64,
    epochs=8,
    rate=2e-3,
    weight_decay=0.01,
    pairs_per_state=4,
    trajectory_weight=0.05,
    trajectory_scale=0.2,
    rank_on="hybrid",
    validation_fraction=0.2,
    familiar=0.99,
    retrieval_patterns=0,
    seed=71,
)
"""The pipeline's, but for half the width and a quarter of the epochs: all runs in two minutes."""
FOLDS = 3
SEED = 5
WANTED = 0.985
"""Share of reachable states that a setting must serve on the training side: the target is 0.98."""
FULL = "hybrid"
LEARNED = (LIKELIHOOD, "distance_cosine", "distance", "residual", FULL, "reject_probability")
FREE = (RANDOM, RECORDED, FREQUENCY)
RANKERS = (*FREE, *LEARNED, ORACLE)
K_MAX = 12
RETRIES = (0, 1, 2)
FIXED = {
    f"k = {k}, {_tries(retries)}": first_k(k, retries=retries)
    for retries in (0, 2)
    for k in (1, 2, 3, 4)
}
ADAPTIVE = {
    f"{kind}, k_base = {k_base:g}, beta = {beta:g}, {_tries(retries)}": Allocator(
        kind, k_base=k_base, beta=beta, k_max=K_MAX, retries=retries
    )
    for kind, betas in (("adaptive", (-4.0, -2.0, -1.0, 0.5)), ("margin", (1.0,)))
    for k_base in (1.0, 1.5, 2.0)
    for beta in betas
    for retries in RETRIES
}
DOUBTS = (0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995)
"""A move that is rejected with this chance or more is not worth a call."""
Choose = Callable[[Sequence[Visited]], Accepts]
"""From the training side's states to a verdict."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A state where something passes the gates, and what the verifier says of it."""

    visited: Visited
    judged: JudgedList


@dataclass(frozen=True, eq=False)
class Ranked:
    """States with what scorers made of them that did not see their puzzles; ``folds`` of each."""

    asked: tuple[Asked, ...]
    scored: tuple[HeldOutScores, ...]
    folds: tuple[int, ...]

    @property
    def states(self) -> tuple[JudgedList, ...]:
        """Their verdicts."""
        return tuple(one.judged for one in self.asked)

    def ranking(self, name: str) -> Ranking:
        """The states in the order of one of ``RANKERS``."""
        states = self.states
        if name in LEARNED:
            return learned_ranking(states, self.scored, name)
        if name == ORACLE:
            return rank_states(states, [~one.accepted for one in states])
        return rank_states(states, [UNLEARNED[name](one.recorded) for one in states])


def by_exact_label(train: Sequence[Visited]) -> Accepts:
    """Whether 24 can still be reached, whatever the training side is."""
    del train
    return by_label


def by_recorded_value(train: Sequence[Visited]) -> Accepts:
    """The recorded verifier at the training side's threshold."""
    return by_score(threshold(train))


def threshold(train: Sequence[Visited]) -> float:
    """The score that accepts the largest share of right moves less that of wrong ones (Youden)."""
    known = [
        (one.score, bool(one.label))
        for _, item in with_survivors(train)
        for one in item.candidates
        if one.score is not None
    ]
    scores, right = np.array([score for score, _ in known]), np.array([one for _, one in known])
    options = np.unique(scores)[1:]
    gains = [np.mean(scores[right] >= tau) - np.mean(scores[~right] >= tau) for tau in options]
    return float(options[int(np.argmax(gains))])


def asked(found: Sequence[Visited], verdict: Accepts) -> list[Asked]:
    """The states where something passes the gates.

    Raises:
        ValueError: a survivor has no verdict.
    """
    alive = list(with_survivors(found))
    states, coverage = judge([item for _, item in alive], verdict, complete=True)
    if coverage.left_out:
        raise ValueError(f"given {coverage.left_out} lists without all verdicts, expected none")
    return [Asked(one, state) for (one, _), state in zip(alive, states, strict=True)]


def cross_fitted(
    found: Sequence[Visited], choose: Choose, *, folds: int = FOLDS, settings: Residual = SETTINGS
) -> Ranked:
    """Every state ranked by what was learned, and judged at what was chosen, on other puzzles."""
    hands = sorted({one.hand for one in found})
    random.Random(SEED).shuffle(hands)
    fold_of = {hand: place % folds for place, hand in enumerate(hands)}
    parts = []
    for fold in range(folds):
        train = [one for one in found if fold_of[one.hand] != fold]
        test = [one for one in found if fold_of[one.hand] == fold]
        verdict = choose(train)
        parts.append(fitted(asked(train, verdict), asked(test, verdict), settings=settings))
    return together(parts)


def transferred(train: Sequence[Asked], test: Sequence[Asked]) -> Ranked:
    """Fold 1 is the test side by a ranker of the training side, less the puzzles that both hold.

    Fold 0 is half of the training side by the other half, on which settings can be chosen.
    """
    common = {one.visited.hand for one in test}
    own = [one for one in train if one.visited.hand not in common]
    hands = sorted({one.visited.hand for one in own})
    random.Random(SEED).shuffle(hands)
    half = set(hands[::2])
    inner = fitted(
        [one for one in own if one.visited.hand in half],
        [one for one in own if one.visited.hand not in half],
    )
    return together([inner, fitted(own, test)])


def fitted(
    train: Sequence[Asked], test: Sequence[Asked], *, settings: Residual = SETTINGS
) -> Ranked:
    """The test side by a ranker of the training side."""
    scored = fit_on(lists(train), lists(test), settings, report=_silent)
    return Ranked(tuple(test), tuple(scored), (0,) * len(test))


def together(parts: Sequence[Ranked]) -> Ranked:
    """Parts as one, each a fold of its own."""
    return Ranked(
        tuple(one for part in parts for one in part.asked),
        tuple(one for part in parts for one in part.scored),
        tuple(fold for fold, part in enumerate(parts) for _ in part.asked),
    )


def lists(found: Sequence[Asked]) -> list[LabelledList]:
    """What a ranker learns from; after an accepted move a derivation goes on to its third move."""
    rows = embedded([one.visited for one in found])
    return [
        LabelledList(
            one.visited.hand,
            own,
            tuple(one.judged.accepted.tolist()),
            int(one.judged.accepted.argmax()) if one.judged.accepted.any() else None,
            MOVES - one.visited.depth if one.judged.accepted.any() else None,
        )
        for one, own in zip(found, rows, strict=True)
    ]


def chosen(ranked: Ranked, ranker: str, options: Mapping[str, Allocator]) -> AllocationChoice[str]:
    """What the ranker finds with the setting that is chosen on the other folds."""
    order = ranked.ranking(ranker)
    return pick(ranked, {name: order.outcomes(option) for name, option in options.items()})


def pick(ranked: Ranked, options: Mapping[str, Outcomes]) -> AllocationChoice[str]:
    """Of outcomes under several settings those under the one that the other folds choose."""
    return choose_allocation(options, [ranked.folds], wanted=WANTED)


def while_hopeful(ranked: Ranked, most: float, order: str = FULL) -> Outcomes:
    """One by one in an order until a move is accepted, or the rest is doubted too much.

    As many are asked about as have a doubt below ``most``, and at least one. In expectation over
    ties, so a random order needs no draws.
    """
    ranking = ranked.ranking(order)
    rows = [
        _hopeful(np.asarray(reach), np.sum(own.scores["reject_probability"] < most))
        for reach, own in zip(ranking.reach, ranked.scored, strict=True)
    ]
    calls, found = np.array(rows, dtype=np.float64).T
    return Outcomes(calls, np.where(np.isnan(ranking.to_first), np.nan, found), ranking.to_first)


def _hopeful(reach: FloatArray, hopeful: int) -> tuple[float, float]:
    """Calls, and the chance that one was found among them."""
    asked_about = max(1, int(hopeful))
    return float(np.sum(1.0 - reach[:asked_about])), float(reach[asked_about])


def part_of(outcomes: Outcomes, kept: Sequence[bool]) -> Outcomes:
    """Those of some states."""
    rows = np.asarray(kept, dtype=np.bool_)
    return Outcomes(*(column[rows] for column in outcomes))


def settings_chosen(choice: AllocationChoice[str]) -> str:
    """Each setting and how many folds it was chosen for."""
    return "; ".join(f"{name} ({times})" for name, times in Counter(choice.chosen).most_common())


def _silent(epoch: Epoch) -> None:
    del epoch
