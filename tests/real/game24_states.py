"""The recorded states of game of 24, what the gates make of them, and how one asks about them.

Knows: the records, both notations' gates. Does not know: rankers, searches, tables. The records
are not part of the project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import recorded
from game24_notation import (
    LEFT,
    NOT_READ,
    NOT_THERE,
    REFUSED_BEFORE,
    WRONG,
    Game24,
    Table,
    countdown_text,
    in_countdown,
    made,
)
from recorded import Record

from selverify.audit.importers import IMPORTERS
from selverify.audit.log import RecordedList
from selverify.domains.countdown import Countdown
from selverify.search.gates import reject
from selverify.types import Move, State

FILE = "candidates/game24_tot_states.jsonl.gz"
MOVES = 3
"""Of every derivation: four cards become one."""
DOMAIN = Game24(checks=False)
CHECKING = Game24(checks=True)
COUNTDOWN = Countdown()
PASSED = ("ok", "ok_rounded")
UNSAID = "cannot be said"
RECORDED_REASON = {
    NOT_READ: "unparsed",
    NOT_THERE: "scope",
    WRONG: "arith",
    LEFT: "left",
    REFUSED_BEFORE: "parent_invalid",
}
"""The records' word for each of our reasons."""
COUNTDOWN_REASON = {
    "operand not available": "scope",
    "division by zero": "arith",
    "division is not exact": "arith",
    "difference is negative": "arith",
    "result above 200": "arith",
    "arithmetic": "arith",
    "remaining list": "left",
}


@dataclass(frozen=True, eq=False)
class Visited:
    """A state that a recorded run visited.

    ``whole`` is the list as recorded, ``survivors`` what passes the gates, None where nothing does;
    scores are means over the verifier's evaluations: 20 sure, 1 likely, 0.001 impossible.
    """

    row: Record
    state: State
    whole: RecordedList
    survivors: RecordedList | None

    @property
    def hand(self) -> str:
        """The puzzle: its cards, ascending."""
        return self.whole.problem_id

    @property
    def depth(self) -> int:
        """Moves before this state."""
        return len(self.whole.prefix)

    @property
    def table(self) -> Table:
        """What the moves so far left."""
        return table_of(self.state)


@cache
def visited() -> tuple[Visited, ...]:
    """Every recorded state, in recorded order."""
    lists = IMPORTERS["tree_of_thought"](recorded.DATA / FILE)
    return tuple(
        _visited(row, item)
        for row, item in zip(recorded.records(FILE), lists, strict=True)
        if isinstance(item, RecordedList)
    )


def gate_counts() -> Counter[tuple[str, str]]:
    """(recorded, ours) of every recorded candidate, in the records' words."""
    return Counter(
        (candidate["gate"], ours(one, candidate["text"]))
        for one in visited()
        for candidate in one.row["candidates"]
    )


def refused_right_moves() -> list[str]:
    """Moves of label 1 that a gate refuses."""
    return [
        candidate["text"]
        for one in visited()
        for candidate in one.row["candidates"]
        if candidate["label"] and ours(one, candidate["text"]) not in PASSED
    ]


def different_tables() -> list[str]:
    """States whose exact table, or whose legality, is another one than recorded."""
    return [
        one.whole.state_id
        for one in visited()
        if (one.table.numbers if one.table.legal else None) != _ascending(one.row["numbers_left"])
    ]


def countdown_counts() -> Counter[tuple[str, str]]:
    """(recorded, ``Countdown``'s) of every candidate at a legal state, in the records' words.

    The table stands as a problem of its own, so that only its numbers need words.
    """
    return Counter(
        (candidate["gate"], by_countdown(one, candidate["text"]))
        for one in visited()
        if one.table.legal
        for candidate in one.row["candidates"]
    )


def ours(one: Visited, text: str) -> str:
    """What the gates say of a candidate, in the records' words."""
    move = DOMAIN.parse(text)
    refused = reject(DOMAIN, one.state, candidate=move)
    if refused is not None or not isinstance(move, Move):
        return RECORDED_REASON[refused.reason] if refused else UNSAID
    return "ok_rounded" if made(one.table.numbers, move).rounded else "ok"


def by_countdown(one: Visited, text: str) -> str:
    """What ``Countdown``'s gates say of the same move at the same table."""
    state = countdown_state(one)
    move = countdown_move(text)
    if state is None or move is None:
        return UNSAID
    refused = reject(COUNTDOWN, state, candidate=move)
    return "ok" if refused is None else COUNTDOWN_REASON[refused.reason]


def countdown_state(one: Visited) -> State | None:
    """The table in ``Countdown``'s words, or None where it lacks one."""
    if not {str(number) for number in one.table.numbers} <= set(COUNTDOWN.vocabulary):
        return None
    problem = COUNTDOWN.read(countdown_text(one.table.numbers), problem_id=one.hand)
    return COUNTDOWN.initial_state(problem, budget=0)


def countdown_move(text: str) -> Move | None:
    """A candidate in ``Countdown``'s words, or None where it lacks one."""
    move = DOMAIN.parse(text)
    said = in_countdown(move) if isinstance(move, Move) else None
    found = COUNTDOWN.parse(said) if said is not None else None
    return found if isinstance(found, Move) else None


def with_survivors(found: Sequence[Visited]) -> Iterator[tuple[Visited, RecordedList]]:
    """The states where something passes the gates, with what does."""
    for one in found:
        if one.survivors is not None:
            yield one, one.survivors


def table_of(state: State) -> Table:
    """The context of a state of this game."""
    if not isinstance(state.context, Table):
        raise TypeError(f"given {type(state.context).__name__}, expected a Table")
    return state.context


def _visited(row: Record, item: RecordedList) -> Visited:
    hand = " ".join(sorted(row["start"], key=int))
    evaluations = int(row["verifier"].removeprefix("value"))
    candidates = tuple(
        one.model_copy(update={"score": None if one.score is None else one.score / evaluations})
        for one in item.candidates
    )
    whole = item.model_copy(update={"problem_id": hand, "candidates": candidates})
    state = DOMAIN.initial_state(DOMAIN.read(hand, problem_id=hand), budget=0)
    for text in whole.prefix:
        move = DOMAIN.parse(text)
        if isinstance(move, Move):
            state = DOMAIN.apply(state, move)
    kept = tuple(
        one for one in candidates if reject(DOMAIN, state, candidate=DOMAIN.parse(one.text)) is None
    )
    passed = whole.model_copy(update={"candidates": kept, "committed": None}) if kept else None
    return Visited(row, state, whole, passed)


def _ascending(numbers: Sequence[str] | None) -> tuple[Fraction, ...] | None:
    return None if numbers is None else tuple(sorted(map(Fraction, numbers)))
