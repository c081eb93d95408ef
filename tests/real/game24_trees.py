"""Searches on the recorded trees of game of 24: the original one again, and gated competition.

Knows: which logs keep how many states, which searches are run on them, their settings. Does not
know: how a ranker is trained, tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from game24_notation import TARGET, Game24
from game24_ranking import K_MAX, Ranked
from game24_states import CHECKING, DOMAIN, MOVES, Visited, visited

from selverify.audit.replay import (
    Bounds,
    ByScore,
    Coverage,
    ReplayBackend,
    Replayed,
    bounds,
    recorded_problems,
    replay,
)
from selverify.errors import ProtocolError
from selverify.search import GatedSettings, gated_competition
from selverify.search.backend import Ranker
from selverify.search.breadth_first import breadth_first
from selverify.search.driver import Search
from selverify.search.gates import GATES
from selverify.search.requests import RankItem
from selverify.types import Outcome, State

KEPT = {"greedy1": 1, "greedy3": 3, "greedy5": 5}
SURE = 20.0
SCALE = ByScore(0.0, SURE)
"""The value of one evaluation: sure is 20, likely 1, impossible 0.001."""
WHOLE_TREE = 10_000
"""Calls and samples that no search on a recorded tree comes to."""
END = str(TARGET)
Texts = tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """One log: its model, and how many states it kept after each move."""

    run: str
    model: str
    width: int
    found: tuple[Visited, ...]

    @property
    def name(self) -> str:
        """Model and width."""
        return f"{self.model}, {self.width} kept"

    @cached_property
    def longest(self) -> int:
        """Proposals of the longest list: so many are asked for, which is all that there are."""
        return max(sum(own.times for own in one.whole.candidates) for one in self.found)


@dataclass(frozen=True)
class Ended:
    """One method on one tree, by puzzle: solved or not, calls, what of it was recorded."""

    solved: Mapping[str, bool]
    calls: Mapping[str, int]
    coverage: Mapping[str, Coverage]

    def bounds(self, hands: Iterable[str]) -> Bounds:
        """The rate of solved puzzles from both sides."""
        return bounds((self.solved[hand], self.coverage[hand]) for hand in hands)

    def mean_calls(self, hands: Sequence[str]) -> float:
        """Verifier calls a puzzle."""
        return sum(self.calls[hand] for hand in hands) / len(hands)


@dataclass(frozen=True)
class Reproduced:
    """How far the original search, run again, keeps what the log kept.

    ``same``: puzzles with the same states kept after every move; ``tied``: others, in all of which
    the log kept, at the first difference, states of the same values (a tie it broke otherwise).
    ``solved`` and ``solved_in_log``: puzzles where a kept derivation makes 24.
    """

    puzzles: int
    same: int
    tied: int
    solved: int
    solved_in_log: int
    calls: float
    coverage: Coverage


class RecordedRanks:
    """The scores of a ranker that did not see the puzzle, by state and move as written."""

    def __init__(self, name: str, ranked: Ranked) -> None:
        self._name = name
        self._scores: dict[tuple[str, Texts, str], dict[str, float]] = {}
        for one, scored in zip(ranked.asked, ranked.scored, strict=True):
            item = one.judged.recorded
            for place, candidate in enumerate(item.candidates):
                key = item.problem_id, said(item.prefix), said((candidate.text,))[0]
                own = {name: float(scores[place]) for name, scores in scored.scores.items()}
                self._scores.setdefault(key, own)

    def identity(self) -> str:
        """What the ranker learned from."""
        return f"recorded ranks: {self._name}"

    def rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        """The scores of each item's moves."""
        return tuple(
            tuple(self._score(item.state, move.text, item.scorer) for move in item.moves)
            for item in items
        )

    def _score(self, state: State, text: str, scorer: str) -> float:
        key = state.problem.problem_id, state.said, text
        if key not in self._scores:
            raise ProtocolError(f"{key}: no recorded rank, expected a survivor of a recorded list")
        return self._scores[key][scorer]


@cache
def trees() -> tuple[Tree, ...]:
    """Every log."""
    runs: dict[str, list[Visited]] = {}
    for one in visited():
        runs.setdefault(one.whole.run, []).append(one)
    return tuple(
        Tree(
            run,
            found[0].whole.model,
            next(width for word, width in KEPT.items() if word in run),
            tuple(found),
        )
        for run, found in runs.items()
    )


def backend(tree: Tree, domain: Game24, ranker: Ranker | None = None) -> ReplayBackend:
    """The log as the model and its verifier."""
    entries = [one.whole for one in tree.found]
    return ReplayBackend(domain, entries, judge=SCALE, whole_lists=True, ranker=ranker)


def original(tree: Tree, *, gates: bool, checks: bool) -> dict[str, Replayed[Outcome]]:
    """Tree of thoughts' search on its own log, as it was or with what is free."""
    domain = CHECKING if checks else DOMAIN
    problems = recorded_problems(domain, (one.whole for one in tree.found))
    searches = {
        hand: Search(
            breadth_first(
                domain,
                problem,
                proposals=tree.longest,
                width=tree.width,
                gates=gates,
                max_moves=MOVES,
                traced=True,
            ),
            None,
        )
        for hand, problem in problems.items()
    }
    return replay(searches, backend(tree, domain), traced=True)


def reproduced(tree: Tree) -> Reproduced:
    """The original search run again, against the states that the log kept."""
    found = original(tree, gates=False, checks=False)
    log, right = _selected(tree), _right(tree)
    same = tied = solved = solved_in_log = 0
    for hand, one in found.items():
        kept = _kept(one)
        same += kept == log[hand]
        tied += kept != log[hand] and _differ_by_a_tie(tree, hand, kept, log[hand])
        solved += any((hand, path) in right for path in kept[-1])
        solved_in_log += any((hand, path) in right for path in log[hand][-1])
    calls = sum(one.result.ledger.verifier_calls for one in found.values()) / len(found)
    coverage = sum((one.coverage for one in found.values()), Coverage())
    return Reproduced(len(found), same, tied, solved, solved_in_log, calls, coverage)


def ended(found: Mapping[str, Replayed[Outcome]], *, any_kept: bool = False) -> Ended:
    """Solved where the answer is 24; ``any_kept``: where a kept state's number is, as the log."""
    return Ended(
        {
            hand: _any_solved(one) if any_kept else one.result.outcome.answer == END
            for hand, one in found.items()
        },
        {hand: one.result.ledger.verifier_calls for hand, one in found.items()},
        {hand: one.coverage for hand, one in found.items()},
    )


def gated(tree: Tree, settings: Mapping[str, GatedSettings], ranker: Ranker) -> dict[str, Ended]:
    """Gated competition under each of the settings; a finished answer checks for free.

    Each asks for all that was proposed at a state.
    """
    problems = recorded_problems(CHECKING, (one.whole for one in tree.found))
    searches = {
        (name, hand): Search(
            gated_competition(
                CHECKING,
                problem,
                rules=replace(own, proposals=tree.longest).rules(CHECKING),
                budget=WHOLE_TREE,
                generation_cap=WHOLE_TREE,
            ),
            WHOLE_TREE,
        )
        for name, own in settings.items()
        for hand, problem in problems.items()
    }
    found = replay(searches, backend(tree, CHECKING, ranker))
    return {name: ended({hand: found[name, hand] for hand in problems}) for name in settings}


def rules(tau: float, **changed: object) -> GatedSettings:
    """Verify every survivor at a state, accept from ``tau`` on, go back where nothing is left."""
    plain = GatedSettings(
        proposals=1,
        k_base=1.0,
        beta=0.0,
        k_min=1,
        k_max=K_MAX,
        tau=SCALE.scaled(tau),
        max_retries=0,
        max_moves=MOVES,
        scorer="none",
        skip_below=0.0,
        allocation="all",
        reference_dispersion=0.0,
        gates=GATES,
        patterns=(),
        commit="verifier",
        rank_weight=0.0,
        fallback=False,
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


def said(texts: Iterable[str]) -> Texts:
    """Moves as states tell them apart."""
    return tuple(" ".join(text.split()) for text in texts)


def _kept(one: Replayed[Outcome]) -> list[set[Texts]]:
    """The states that were kept after each move."""
    kept: list[set[Texts]] = [set() for _ in range(MOVES)]
    for event in one.result.events:
        if event.event == "keep":
            kept[len(event.state.derivation) - 1].add(event.state.said)
    return kept


def _any_solved(one: Replayed[Outcome]) -> bool:
    states = (event.state for event in one.result.events if event.event == "keep")
    return any(DOMAIN.answer(state) == END for state in states)


def _selected(tree: Tree) -> dict[str, list[set[Texts]]]:
    """The same of the log, by puzzle."""
    log: dict[str, list[set[Texts]]] = {}
    for one in tree.found:
        kept = log.setdefault(one.hand, [set() for _ in range(MOVES)])
        for candidate in one.row["candidates"]:
            if candidate["selected"]:
                kept[one.depth].add(said((*one.whole.prefix, candidate["text"])))
    return log


def _right(tree: Tree) -> set[tuple[str, Texts]]:
    """Recorded derivations that make 24, by exact truth."""
    return {
        (one.hand, said((*one.whole.prefix, candidate.text)))
        for one in tree.found
        if one.depth == MOVES - 1
        for candidate in one.whole.candidates
        if candidate.label
    }


def _differ_by_a_tie(
    tree: Tree, hand: str, kept: Sequence[set[Texts]], log: Sequence[set[Texts]]
) -> bool:
    """Whether at their first difference both kept states of the same values."""
    scores = {
        said((*one.whole.prefix, candidate.text)): candidate.score
        for one in tree.found
        if one.hand == hand
        for candidate in one.whole.candidates
    }
    ours, theirs = next((a, b) for a, b in zip(kept, log, strict=True) if a != b)
    return sorted(map(_known(scores), ours)) == sorted(map(_known(scores), theirs))


def _known(scores: Mapping[Texts, float | None]) -> Callable[[Texts], float]:
    return lambda path: scores.get(path) or 0.0
