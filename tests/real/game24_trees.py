"""Searches on the recorded trees of game of 24: the original one again, and gated competition.

Knows: which logs keep how many states, how a log answers in the place of a model and its verifier,
which searches are run on it, their settings. Does not know: how a ranker is trained, tables.

What a log lacks is a miss, answered with what cannot help a search: a blank sample, which no domain
reads as a move, or a verdict of 0. The search goes on in a defined way, and its puzzle is among the
touched ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from breadth_first import breadth_first
from game24_notation import TARGET, Game24
from game24_ranking import K_MAX, Ranked
from game24_states import CHECKING, DOMAIN, MOVES, Visited, visited

from selverify.search.backend import Ranker
from selverify.search.driver import Result, Search, run_searches
from selverify.search.gated import gated_competition
from selverify.search.gates import GATES
from selverify.search.requests import (
    Propose,
    ProposeItem,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.search.rules import GatedSettings
from selverify.types import Move, Outcome, Problem, Sample, Verdict

KEPT = {"greedy1": 1, "greedy3": 3, "greedy5": 5}
SURE = 20.0
"""The value of one evaluation: sure is 20, likely 1, impossible 0.001."""
BLANK = Sample("", 0, 0.0)
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


class Ended(NamedTuple):
    """One method on one puzzle: whether it is solved, verifier calls, whether a miss touched it."""

    solved: bool
    calls: int
    touched: bool


def solved_rates(found: Collection[Ended]) -> tuple[float, float, float]:
    """Solved puzzles: touched ones as failures, as they ended, and as successes."""
    failures = sum(one.solved and not one.touched for one in found)
    successes = failures + sum(one.touched for one in found)
    return tuple(
        count / len(found) for count in (failures, sum(one.solved for one in found), successes)
    )


def mean_calls(found: Collection[Ended]) -> float:
    """Verifier calls a puzzle."""
    return sum(one.calls for one in found) / len(found)


class Reproduced(NamedTuple):
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


class RecordedTree:
    """A log as a backend; ``missed`` are the puzzles for which it lacked something.

    The proposals of a visited state are all that there are: what is asked for beyond them is blank
    and no miss. A verdict is the recorded value on [0, ``SURE``], cut off at both ends.
    """

    def __init__(self, tree: Tree, ranker: Ranker | None) -> None:
        self._ranker = ranker
        self._proposals: dict[tuple[str, Texts], tuple[Sample, ...]] = {}
        self._verdicts: dict[tuple[str, Texts], float] = {}
        self.missed: set[str] = set()
        for one in tree.found:
            before = said(one.whole.prefix)
            self._proposals[one.hand, before] = tuple(
                Sample(own.text, 0, 0.0) for own in one.whole.candidates for _ in range(own.times)
            )
            for own in one.whole.candidates:
                if own.score is not None and isinstance(move := DOMAIN.parse(own.text), Move):
                    verdict = min(1.0, max(0.0, own.score / SURE))
                    self._verdicts.setdefault((one.hand, (*before, move.text)), verdict)

    def concurrency(self, kind: str) -> int:
        """It is read, not waited for."""
        return 0

    def tokens(self, text: str) -> int:
        """Not recorded, so none."""
        return 0

    def answer(self, request: Request) -> Reply:
        """What the log holds, or what stands for a miss."""
        if isinstance(request, Propose):
            return tuple(map(self._proposed, request.items))
        if isinstance(request, Verify):
            return tuple(map(self._verdict, request.items))
        return self._ranker.rank(request.items)  # type: ignore[union-attr]

    def _proposed(self, item: ProposeItem) -> tuple[Sample, ...]:
        key = item.state.problem.problem_id, item.state.said
        if key not in self._proposals:
            self.missed.add(key[0])
        found = self._proposals.get(key, ())[item.start : item.start + item.count]
        return found + (BLANK,) * (item.count - len(found))

    def _verdict(self, item: VerifyItem) -> Verdict:
        hand, before = item.state.problem.problem_id, item.state.said
        scores = []
        for move in item.steps:
            before = (*before, move.text)
            if (hand, before) not in self._verdicts:
                self.missed.add(hand)
            scores.append(self._verdicts.get((hand, before), 0.0))
        return Verdict(scores[-1], tuple(scores))


class RecordedRanks:
    """The scores of a ranker that did not see the puzzle, by state and move as written."""

    def __init__(self, ranked: Ranked) -> None:
        self._scores: dict[tuple[str, Texts, str], dict[str, float]] = {}
        for one, scored in zip(ranked.asked, ranked.scored, strict=True):
            item = one.judged.recorded
            for place, candidate in enumerate(item.candidates):
                key = item.problem_id, said(item.prefix), said((candidate.text,))[0]
                own = {name: float(scores[place]) for name, scores in scored.scores.items()}
                self._scores.setdefault(key, own)

    def rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        """The scores of each item's moves."""
        return tuple(
            tuple(
                self._scores[item.state.problem.problem_id, item.state.said, move.text][item.scorer]
                for move in item.moves
            )
            for item in items
        )


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


def problems(tree: Tree, domain: Game24) -> dict[str, Problem]:
    """The puzzles of a log, by hand."""
    return {one.hand: domain.read(one.whole.question, problem_id=one.hand) for one in tree.found}


@cache
def original(
    tree: Tree, *, gates: bool, checks: bool
) -> tuple[dict[str, Result[Outcome]], frozenset[str]]:
    """Tree of thoughts' search on its own log, as it was or with what is free; touched puzzles."""
    domain, backend = CHECKING if checks else DOMAIN, RecordedTree(tree, None)
    searches = {
        hand: Search(
            breadth_first(
                domain,
                problem,
                proposals=tree.longest,
                width=tree.width,
                gates=gates,
                max_moves=MOVES,
            ),
            None,
        )
        for hand, problem in problems(tree, domain).items()
    }
    found = run_searches(searches, backend, end_of_move=domain.end_of_move, traced=True)
    return found, frozenset(backend.missed)


def reproduced(tree: Tree) -> Reproduced:
    """The original search run again, against the states that the log kept."""
    found, _ = original(tree, gates=False, checks=False)
    log, right = _selected(tree), _right(tree)
    same = tied = solved = solved_in_log = 0
    for hand, one in found.items():
        kept = _kept(one)
        same += kept == log[hand]
        tied += kept != log[hand] and _differ_by_a_tie(tree, hand, kept, log[hand])
        solved += any((hand, path) in right for path in kept[-1])
        solved_in_log += any((hand, path) in right for path in log[hand][-1])
    calls = sum(one.ledger.verifier_calls for one in found.values()) / len(found)
    return Reproduced(len(found), same, tied, solved, solved_in_log, calls)


def ended(
    found: Mapping[str, Result[Outcome]], touched: Collection[str], *, any_kept: bool = False
) -> dict[str, Ended]:
    """Solved where the answer is 24; ``any_kept``: where a kept state's number is, as the log."""
    return {
        hand: Ended(
            _any_solved(one) if any_kept else one.outcome.answer == END,
            one.ledger.verifier_calls,
            hand in touched,
        )
        for hand, one in found.items()
    }


def gated(tree: Tree, settings: GatedSettings, ranker: Ranker) -> dict[str, Ended]:
    """Gated competition; a finished answer checks for free.

    It asks for all that was proposed at a state.
    """
    backend = RecordedTree(tree, ranker)
    searches = {
        hand: Search(
            gated_competition(
                CHECKING,
                problem,
                rules=replace(settings, proposals=tree.longest).rules(CHECKING),
                budget=WHOLE_TREE,
                generation_cap=WHOLE_TREE,
            ),
            WHOLE_TREE,
        )
        for hand, problem in problems(tree, CHECKING).items()
    }
    found = run_searches(searches, backend, end_of_move=CHECKING.end_of_move)
    return ended(found, backend.missed)


def rules(tau: float, **changed: object) -> GatedSettings:
    """Verify every survivor at a state, accept from ``tau`` on, go back where nothing is left."""
    plain = GatedSettings(
        proposals=1,
        k_base=1.0,
        beta=0.0,
        k_min=1,
        k_max=K_MAX,
        tau=tau / SURE,
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


def _kept(one: Result[Outcome]) -> list[set[Texts]]:
    """The states that were kept after each move."""
    kept: list[set[Texts]] = [set() for _ in range(MOVES)]
    for event in one.events:
        if event.event == "keep":
            kept[len(event.state.derivation) - 1].add(event.state.said)
    return kept


def _any_solved(one: Result[Outcome]) -> bool:
    states = (event.state for event in one.events if event.event == "keep")
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
    values = [sorted(scores.get(path) or 0.0 for path in paths) for paths in (ours, theirs)]
    return values[0] == values[1]
