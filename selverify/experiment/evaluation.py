"""Every method on the same problems, budgets and seeds: the table ``outcomes``.

Knows: which trials a method takes part in, and how an outcome becomes a row. Does not know: which
setting is chosen (``selection``), files, figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.domains.base import Domain
from selverify.errors import BudgetError, ParamsError
from selverify.experiment.methods import (
    METHODS,
    Conditions,
    Trial,
    capped,
    points_of,
    setting_name,
)
from selverify.experiment.reuse import Key, Searches
from selverify.search.backend import Backend
from selverify.search.driver import Result, Search, run_searches
from selverify.types import Outcome

Row = dict[str, Any]
MOST_UNDER_WAY = 5000
"""When so many searches are, those of another method or problem wait: each holds its state, a vote
its solutions."""
_Key = tuple[str, str, Key]
"""Of a search: its method, problem, and what tells it from others of these."""


def evaluate(
    domain: Domain,
    backend: Backend,
    tasks: Sequence[Task],
    conditions: Conditions,
    *,
    methods: Sequence[str],
    report: Callable[[str, int, int], None],
    recall: Callable[[str], list[Row] | None] = lambda _own: None,
    remember: Callable[[str, list[Row]], None] = lambda _own, _rows: None,
) -> list[Row]:
    """One row for each (method, setting, budget, problem): the table ``outcomes``.

    The searches of all methods advance together, so that batches stay large, and share the
    backend's reply cache.

    Args:
        report: called with a method, how many are done, and of how many, when it is done.
        recall: gives a method's rows that were made before by what they depend on
            (``Method.depends_on``), or None.
        remember: called with the same and the rows that were made now.

    Raises:
        ParamsError: a method that does not exist.
        BudgetError: a budget below 1.
    """
    evaluation = conditions.params.evaluation
    for n in evaluation.budgets:
        if n < 1:
            raise BudgetError(f"evaluation.budgets: given {n}, expected at least 1")
    for name in methods:
        if name not in METHODS:
            raise ParamsError(
                f"evaluation.methods: given {name!r}, expected among {', '.join(METHODS)}"
            )
    own = {name: METHODS[name].depends_on(conditions) for name in methods}
    found = {name: rows for name in methods if (rows := recall(own[name])) is not None}
    for number, name in enumerate(found, start=1):
        report(name, number, len(methods))
    searched = {
        name: {
            task.problem.problem_id: Searches(
                METHODS[name], _budgets(domain, task, conditions, name)
            )
            for task in tasks
        }
        for name in methods
        if name not in found
    }
    left = {name: len(by_problem) for name, by_problem in searched.items()}
    waiting = ((name, problem_id) for name in tuple(searched) for problem_id in searched[name])
    under_way = 0
    with Grader(seconds=evaluation.grading_seconds, workers=1) as grader:

        def first_searches() -> dict[_Key, Search[Outcome]]:
            """Of those that wait, as many as there is room for."""
            nonlocal under_way
            begun: dict[_Key, Search[Outcome]] = {}
            while under_way < MOST_UNDER_WAY and (next_one := next(waiting, None)):
                name, problem_id = next_one
                some = searched[name][problem_id].begin()
                begun |= {(name, problem_id, key): search for key, search in some.items()}
                under_way += len(some)
            return begun

        def then(key: _Key, result: Result[Outcome]) -> dict[_Key, Search[Outcome]]:
            nonlocal under_way
            name, problem_id, asked = key
            searches = searched[name][problem_id]
            further = searches.go_on(asked, result)
            under_way += len(further) - 1
            left[name] -= not searches.under_way
            if not left[name]:
                found[name] = _rows(name, searched.pop(name).values(), grader)
                remember(own[name], found[name])
                report(name, len(found), len(methods))
            begun = {(name, problem_id, one): search for one, search in further.items()}
            return begun | first_searches()

        run_searches(first_searches(), backend, end_of_move=domain.end_of_move, then=then)
    return [row for name in methods for row in found.get(name, ())]


def _budgets(
    domain: Domain, task: Task, conditions: Conditions, method: str
) -> Iterator[dict[str, Trial]]:
    """The trials of a method on one problem, by the name of their setting; the largest first."""
    row, params = METHODS[method], conditions.params
    points = points_of(row, params)
    for n in (1,) if row.kind == "greedy" else sorted(params.evaluation.budgets, reverse=True):
        yield {
            setting_name(point): Trial(domain, task, n, capped(point, n), conditions)
            for point in points
        }


def _rows(method: str, searched: Iterable[Searches], grader: Grader) -> list[Row]:
    return [
        {
            "method": method,
            "setting": setting,
            "n": trial.n,
            "problem_id": trial.task.problem.problem_id,
            **_row(result, trial.task.truth.answer, grader),
        }
        for searches in searched
        for setting, trial, result in searches.results
    ]


def _row(result: Result[Outcome], gold: str, grader: Grader) -> Row:
    graded = grader.grade(gold, result.outcome.answer)
    ledger = result.ledger
    return {
        "answer": result.outcome.answer,
        "status": graded.status,
        "correct": graded.correct,
        "reason": result.outcome.reason,
        "verifier_calls": ledger.verifier_calls,
        "verifier_steps": ledger.verifier_steps,
        "generated_moves": ledger.generated_moves,
        "generated_tokens": ledger.generated_tokens,
        "read_tokens": ledger.read_tokens,
        "verified_tokens": ledger.verified_tokens,
        "rank_items": ledger.rank_items,
    }
