"""The searches of one method, each made once under all settings that lead it the same way.

Knows: which decisions a gated competition took, and when other settings would have taken the same
ones. Does not know: what a search does between its decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from selverify.experiment.methods import Gated, Method, Point, Trial
from selverify.search.backend import Backend
from selverify.search.driver import Result, Search, run_searches
from selverify.search.gated import Rules
from selverify.search.ledger import Ledger
from selverify.search.rules import GatedSettings
from selverify.types import Outcome

Key = tuple[Point, int, str]


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
class _Made:
    """A search that was made; ``decisions`` if it is a gated competition."""

    decisions: Decisions | None
    result: Result[Outcome]


class Searches:
    """The searches of one method; one that would go the same way is not made again."""

    def __init__(self, method: Method, backend: Backend) -> None:
        self._method, self._backend = method, backend
        self._known: dict[Key, _Made] = {}

    def run(self, trials: Sequence[Trial]) -> dict[Key, Result[Outcome]]:
        """The result of each trial, all at one budget; budgets come in falling order.

        Each wave makes one gated competition for each problem and number of proposals; those of one
        problem are likely to be the same.
        """
        groups: dict[object, list[Trial]] = {}
        for trial in trials:
            made = self._known.get(trial.key)
            if made is None or not self._within_limits(made, trial):
                gated = isinstance(self._method.build, Gated)
                groups.setdefault(trial.key[1:] if gated else trial.key, []).append(trial)
        waiting = list(groups.values())
        while waiting:
            self._known |= self._make([group[0] for group in waiting])
            left = [self._unanswered(*group) for group in waiting]
            waiting = [group for group in left if group]
        return {trial.key: self._known[trial.key].result for trial in trials}

    def _within_limits(self, made: _Made, trial: Trial) -> bool:
        return self._method.stepwise and same_with_less(
            made.result.ledger, budget=trial.n, generation_cap=trial.generation_cap
        )

    def _make(self, trials: Sequence[Trial]) -> dict[Key, _Made]:
        build, searches, decided = self._method.build, {}, {}
        for trial in trials:
            if isinstance(build, Gated):
                settings = build.settings(trial)
                decisions = Decisions(settings)
                decided[trial.key] = decisions
                search = build.search(trial, decisions.recorded(settings.rules(trial.domain)))
            else:
                search = build(trial)
            budget = trial.n if self._method.kind in ("vote", "gated", "part") else None
            searches[trial.key] = Search(search, budget=budget)
        results = run_searches(searches, self._backend, end_of_move=trials[0].domain.end_of_move)
        return {key: _Made(decided.get(key), result) for key, result in results.items()}

    def _unanswered(self, first: Trial, *others: Trial) -> list[Trial]:
        """Those of ``others`` that the search of ``first`` says nothing of."""
        made, left = self._known[first.key], []
        for trial in others:
            if self._leads(made, trial):
                self._known[trial.key] = made
            else:
                left.append(trial)
        return left

    def _leads(self, made: _Made, trial: Trial) -> bool:
        build = self._method.build
        return (
            made.decisions is not None
            and isinstance(build, Gated)
            and made.decisions.same_under(build.settings(trial))
        )


def same_with_less(spent: Ledger, *, budget: int, generation_cap: int) -> bool:
    """Whether a step-level search that spent this much would go the same way under these limits.

    It looks at its limits only where they cut a round of samples or calls short, or are used up.
    Strictly less than both was spent, so neither happens.
    """
    return spent.verifier_calls < budget and spent.generated_moves < generation_cap
