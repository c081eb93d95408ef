"""The searches of one method on a problem, each made once under all settings that lead it alike.

Knows: which decisions a gated competition took, and when other settings would have taken the same
ones. Does not know: what a search does between its decisions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from selverify.experiment.methods import Gated, Method, Point, Trial
from selverify.search.driver import Result, Search
from selverify.search.gated import Rules
from selverify.search.ledger import Ledger
from selverify.search.rules import GatedSettings
from selverify.types import Outcome

Key = tuple[int, tuple[Point, int, str]]
"""Of a search under way: the budget that it was begun with, and ``Trial.key``."""


@dataclass(slots=True)
class Decisions:
    """What a gated competition decided by ``settings``, and so which others would decide alike.

    No score between ``highest_rejected`` and ``lowest_accepted`` was met, so any tau above the
    first and up to the second accepts the same moves; so too for the reject probabilities.
    ``widths`` holds the scores h that k(w) followed from, the most that could be verified there,
    and how many were.
    """

    settings: GatedSettings
    highest_rejected: float = -math.inf
    lowest_accepted: float = math.inf
    highest_skipped: float = -math.inf
    lowest_verified: float = math.inf
    widths: list[tuple[tuple[float, ...], int, int]] = field(default_factory=list)

    def recorded(self, rules: Rules) -> Rules:
        """``rules``, which are those of the settings, with every decision noted here."""
        if rules.skip is None:
            self.lowest_verified = 0.0
        skip = None if rules.skip is None else self.skip
        return replace(rules, accept=self.accept, skip=skip, width=self.width)

    def accept(self, score: float) -> bool:
        """V = 1[score >= tau]."""
        if score >= self.settings.tau:
            self.lowest_accepted = min(self.lowest_accepted, score)
            return True
        self.highest_rejected = max(self.highest_rejected, score)
        return False

    def skip(self, reject_probability: float) -> bool:
        """Whether a move that is rejected with this probability is committed without a call."""
        if reject_probability < self.settings.skip_below:
            self.highest_skipped = max(self.highest_skipped, reject_probability)
            return True
        self.lowest_verified = min(self.lowest_verified, reject_probability)
        return False

    def width(self, scores: Sequence[float], most: int) -> int:
        """k(w) where at most ``most`` moves can be verified."""
        k = self.settings.width(scores, most)
        self.widths.append((tuple(scores), most, min(k, most)))
        return k

    def same_under(self, other: GatedSettings) -> bool:
        """Whether the search goes the same way under ``other``.

        ``other`` may differ in tau, ``skip_below``, ``k_base`` and ``beta``; of settings that
        differ elsewhere nothing is known, so False.
        """
        mine = self.settings
        free = {name: getattr(mine, name) for name in ("tau", "skip_below", "k_base", "beta")}
        return (
            mine == replace(other, **free)
            and (mine.skip_below > 0.0) == (other.skip_below > 0.0)  # else nothing is predicted
            and self.highest_rejected < other.tau <= self.lowest_accepted
            and self.highest_skipped < other.skip_below <= self.lowest_verified
            and all(
                min(other.width(scores, most), most) == verified
                for scores, most, verified in self.widths
            )
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """Trials that are likely to go the same way; the search of the ``first`` is under way."""

    first: Trial
    others: Sequence[Trial]
    decisions: Decisions | None


class Searches:
    """The searches of one method on one problem; one that would go the same way is not made again.

    Those of the largest budget begin together, and those of the next one when they have ended. Of
    gated competitions with one number of proposals one is under way at a time.
    """

    def __init__(self, method: Method, budgets: Iterable[Mapping[str, Trial]]) -> None:
        """``budgets``: the trials of each by the name of their setting, in falling order."""
        self._method = method
        self._budgets = iter(budgets)
        self._trials: Mapping[str, Trial] = {}
        self._known: dict[tuple[Point, int, str], Result[Outcome]] = {}
        self._under_way: dict[Key, _Group] = {}
        self.results: list[tuple[str, Trial, Result[Outcome]]] = []
        """Of each budget whose searches have ended: the setting's name, the trial, its result."""

    def begin(self) -> dict[Key, Search[Outcome]]:
        """The first searches of the next budget that needs any; none where all have ended."""
        for trials in self._budgets:
            self._trials = trials
            if begun := self._first_searches():
                return begun
            self._end_of_budget()
        return {}

    def go_on(self, key: Key, result: Result[Outcome]) -> dict[Key, Search[Outcome]]:
        """What to make after the search under ``key`` has ended with ``result``."""
        group = self._under_way.pop(key)
        self._known[group.first.key] = result
        left = []
        for trial in group.others:
            if self._leads(group.decisions, trial):
                self._known[trial.key] = result
            else:
                left.append(trial)
        if left:
            return dict([self._begun(*left)])
        if self._under_way:
            return {}
        self._end_of_budget()
        return self.begin()

    @property
    def under_way(self) -> bool:
        """Whether a search has begun and not ended."""
        return bool(self._under_way)

    def _first_searches(self) -> dict[Key, Search[Outcome]]:
        groups: dict[object, list[Trial]] = {}
        for trial in {trial.key: trial for trial in self._trials.values()}.values():
            made = self._known.get(trial.key)
            if made is None or not self._within_limits(made, trial):
                gated = isinstance(self._method.build, Gated)
                groups.setdefault(trial.key[1] if gated else trial.key, []).append(trial)
        return dict(self._begun(*group) for group in groups.values())

    def _within_limits(self, made: Result[Outcome], trial: Trial) -> bool:
        return self._method.stepwise and same_with_less(
            made.ledger, budget=trial.n, generation_cap=trial.generation_cap
        )

    def _begun(self, first: Trial, *others: Trial) -> tuple[Key, Search[Outcome]]:
        build, decisions = self._method.build, None
        if isinstance(build, Gated):
            settings = build.settings(first)
            decisions = Decisions(settings)
            search = build.search(first, decisions.recorded(settings.rules(first.domain)))
        else:
            search = build(first)
        key = first.n, first.key
        self._under_way[key] = _Group(first, others, decisions)
        budget = first.n if self._method.kind in ("vote", "gated", "part") else None
        return key, Search(search, budget=budget)

    def _leads(self, decisions: Decisions | None, trial: Trial) -> bool:
        build = self._method.build
        return (
            decisions is not None
            and isinstance(build, Gated)
            and decisions.same_under(build.settings(trial))
        )

    def _end_of_budget(self) -> None:
        self.results += [
            (name, trial, self._known[trial.key]) for name, trial in self._trials.items()
        ]


def same_with_less(spent: Ledger, *, budget: int, generation_cap: int) -> bool:
    """Whether a step-level search that spent this much would go the same way under these limits.

    It looks at its limits only where they cut a round of samples or calls short, or are used up.
    Strictly less than both was spent, so neither happens.
    """
    return spent.verifier_calls < budget and spent.generated_moves < generation_cap
