"""Candidate lists as table rows, and back to states with their labels.

Knows: the columns of a candidate list. Does not know: models, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selverify.data.benchmark import Task
from selverify.domains.base import Domain
from selverify.errors import SchemaError
from selverify.search.exploration import Exploration
from selverify.types import Move, State


def exploration_rows(task: Task, exploration: Exploration, *, right: bool) -> list[dict[str, Any]]:
    """One row a visited state; ``remaining`` is g(w) on the path to a right answer, else None.

    Args:
        right: whether the answer of the exploration is right.
    """
    outcome = exploration.outcome
    path = [move.text for move in outcome.derivation or ()] if right else []
    rows = []
    for index, item in enumerate(exploration.lists):
        depth = len(item.state.derivation)
        taken = item.moves[item.committed].text if item.committed is not None else None
        said = list(item.state.said)
        on_path = taken is not None and [*said, taken] == path[: depth + 1]
        rows.append(
            {
                "problem_id": task.problem.problem_id,
                "visit": index,
                "derivation": said,
                "moves": [move.text for move in item.moves],
                "scores": list(item.scores),
                "labels": list(item.labels),
                "committed": item.committed,
                "remaining": len(path) - depth if on_path else None,
            }
        )
    return rows


def state_of(domain: Domain, task: Task, row: Mapping[str, Any]) -> State:
    """The visited state of a row."""
    state = domain.initial_state(task.problem, budget=1)
    for move in parse_moves(domain, row["derivation"], where="candidate list"):
        state = domain.apply(state, move)
    return state


def parse_moves(domain: Domain, texts: Sequence[str], *, where: str) -> tuple[Move, ...]:
    """Parse stored moves.

    Args:
        where: what holds them, for the error.

    Raises:
        SchemaError: a stored text is no move of this domain.
    """
    moves = []
    for text in texts:
        move = domain.parse(text)
        if not isinstance(move, Move):
            raise SchemaError(f"{where}: given {text!r}, expected a move of {domain.name}")
        moves.append(move)
    return tuple(moves)
