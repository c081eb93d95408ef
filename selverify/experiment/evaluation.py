"""Every method on the same problems, budgets and seeds: the table ``outcomes``.

Knows: which trials a method takes part in, and how an outcome becomes a row. Does not know: which
setting is chosen (``selection``), files, figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.domains.base import Domain
from selverify.errors import BudgetError, ParamsError
from selverify.experiment.methods import (
    METHODS,
    Conditions,
    Method,
    Trial,
    capped,
    points_of,
    setting_name,
)
from selverify.experiment.reuse import Searches
from selverify.search.backend import Backend
from selverify.search.driver import Result
from selverify.types import Outcome

Row = dict[str, Any]
Known = Callable[[str, Callable[[], list[Row]]], list[Row]]


def evaluate(
    domain: Domain,
    backend: Backend,
    tasks: Sequence[Task],
    conditions: Conditions,
    *,
    methods: Sequence[str],
    report: Callable[[str, int, int], None],
    known: Known = lambda _, make: make(),
) -> list[Row]:
    """One row for each (method, setting, budget, problem): the table ``outcomes``.

    All searches of a method advance together, and methods share the backend's reply cache.

    Args:
        report: called with the method, its number and how many methods there are, before each.
        known: called with what a method's rows depend on (``Method.depends_on``) and what makes
            them; it returns them, made now or before.

    Raises:
        ParamsError: a method that does not exist.
        BudgetError: a budget below 1.
    """
    evaluation = conditions.params.evaluation
    for n in evaluation.budgets:
        if n < 1:
            raise BudgetError(f"evaluation.budgets: given {n}, expected at least 1")
    rows: list[Row] = []
    with Grader(seconds=evaluation.grading_seconds, workers=1) as grader:
        for number, name in enumerate(methods, start=1):
            if name not in METHODS:
                raise ParamsError(
                    f"evaluation.methods: given {name!r}, expected among {', '.join(METHODS)}"
                )
            report(name, number, len(methods))
            method = METHODS[name]

            def make(method: Method = method) -> list[Row]:
                return [
                    {
                        "method": method.name,
                        "setting": setting,
                        "n": trial.n,
                        "problem_id": trial.task.problem.problem_id,
                        **_row(result, trial.task.truth.answer, grader),
                    }
                    for setting, trial, result in _run(
                        domain, backend, tasks, conditions, method=method
                    )
                ]

            rows += known(method.depends_on(conditions), make)
    return rows


def _run(
    domain: Domain,
    backend: Backend,
    tasks: Sequence[Task],
    conditions: Conditions,
    *,
    method: Method,
) -> Iterator[tuple[str, Trial, Result[Outcome]]]:
    """The result of each setting (by its name), budget and problem."""
    searches = Searches(method, backend)
    points = {setting_name(point): point for point in points_of(method, conditions.params)}
    budgets = (1,) if method.kind == "greedy" else conditions.params.evaluation.budgets
    for n in sorted(budgets, reverse=True):
        as_run = {name: capped(point, n) for name, point in points.items()}
        trials = {
            point: [Trial(domain, task, n, point, conditions) for task in tasks]
            for point in as_run.values()
        }
        results = searches.run([trial for listed in trials.values() for trial in listed])
        for name, point in as_run.items():
            for trial in trials[point]:
                yield name, trial, results[trial.key]


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
