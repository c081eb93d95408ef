"""Stage ``report``: selection on folds, intervals, tables, figures and the targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from selverify.audits import gate_table, reliability_table, verifier_table
from selverify.benchmark import Task
from selverify.domains import domain_by_name
from selverify.params import Params
from selverify.plots import (
    accuracy_against_budget,
    accuracy_against_calls,
    accuracy_against_tokens,
    accuracy_by_bin,
    gate_bars,
    ranker_recall,
    reliability_diagram,
    within_problems,
)
from selverify.reporting.cells import Report, metrics
from selverify.reporting.explorer import Searched, explorer_data
from selverify.reporting.headline import headline_table
from selverify.reporting.html import render_html
from selverify.reporting.names import LEAVE_ONE_OUT
from selverify.reporting.pages import latex, main_table_text, render, write_csv, write_text
from selverify.reporting.tables import (
    ablation_table,
    by_bin_table,
    frontier_table,
    leave_one_out_table,
    main_table,
    points_table,
    settings_table,
)
from selverify.reporting.targets import Measures, by_budget_table, targets
from selverify.reporting.within import share_within, visits_table, within_table
from selverify.selection import CrossValidated, cross_validate
from selverify.statistics import Bootstrap
from selverify.storage import write_plain_json
from selverify.traces import Event, read_events
from tasks.artifacts import read_frame, read_tasks

TERMINAL = 118
RELIABILITY_BINS = 10
CURVES = ("correct", "verifier_calls", "verifier_steps", "generated_moves", "generated_tokens")
SHOWN = (
    "cot",
    "majority_gated",
    "best_of_n",
    "best_of_n_gated",
    "beam_keep_b",
    "beam_keep_b_gated",
    "beam_snell_gated",
    "dvts_gated",
    "gates_only",
    "full",
    "oracle",
)
"""Methods in the figures; the tables have all of them."""


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write the page, its tables as CSV, the figures, and ``metrics.json``."""
    folder, settings = outputs["report"], params.evaluation
    bootstrap = Bootstrap(settings.resamples, settings.seed)
    outcomes = read_frame(inputs["evaluation"], "evaluation", "outcomes")
    difficulty = read_frame(inputs["difficulty"], "difficulty", "difficulty")
    bins = dict(zip(difficulty["problem_id"], difficulty["difficulty_bin"], strict=True))
    cross = cross_validate(
        outcomes,
        bins,
        folds=settings.folds,
        repetitions=settings.repetitions,
        seed=settings.seed,
        methods=(*settings.methods, *(LEAVE_ONE_OUT if settings.leave_one_out else ())),
        rule=settings.selection,
    )
    parts = leave_one_out_table(cross.rows, budget=settings.headline_budget, bootstrap=bootstrap)
    cross = replace(cross, rows=cross.rows[~cross.rows["method"].isin(LEAVE_ONE_OUT)])
    searches = _searches(params, inputs)
    traced = {name: events for name, (_, events) in searches.items()}
    visits = visits_table(traced, tau=params.search.tau)
    report, points = _report(
        params,
        inputs,
        cross,
        difficulty=difficulty,
        bins=bins,
        visits=visits,
        parts=parts,
        bootstrap=bootstrap,
    )
    write_text(render(report), folder / "report.md")
    write_text(latex(report), folder / "tables.tex")
    text = main_table_text(report.main, budget=report.budget, width=TERMINAL)
    write_text(text, folder / "main.txt")
    for name in (
        "main",
        "by_budget",
        "ablation",
        "headline",
        "leave_one_out",
        "frontier",
        "by_bin",
        "settings",
        "gates",
        "rankers",
        "verifier",
        "within",
    ):
        write_csv(getattr(report, name), folder / f"{name}.csv")
    write_csv(points, folder / "points.csv")
    write_csv(cross.rows, folder / "rows.csv")
    write_csv(_curves(cross.rows), folder / "curves.csv")
    _figures(report, points, inputs, folder)
    page = render_html(report, folder, _explorer(params, inputs, searches, bins))
    write_text(page, folder / "report.html")
    found = metrics(report)
    write_plain_json(outputs["metrics"], found)
    return {name: float(value) for name, value in found.items()}


def _report(
    params: Params,
    inputs: Mapping[str, Path],
    cross: CrossValidated,
    *,
    difficulty: pd.DataFrame,
    bins: Mapping[str, int],
    visits: pd.DataFrame,
    parts: pd.DataFrame,
    bootstrap: Bootstrap,
) -> tuple[Report, pd.DataFrame]:
    budget = params.evaluation.headline_budget
    steps = _steps(inputs)
    decided = _decided(steps)
    verifier = verifier_table(
        decided["score"],
        decided["alive"],
        decided["problem_id"],
        tau=params.search.tau,
        bins=RELIABILITY_BINS,
        bootstrap=bootstrap,
    )
    gates = gate_table(steps)
    measures = Measures(
        pass_at_1=float(difficulty["pass_at_1"].mean()),
        pass_at_64=float((difficulty["right_derivation_rate"] > 0).mean()),
        gated_share=float((steps["gate"] != "").mean()),
        step_auc=float(verifier.set_index("metric").loc["step_auc", "value"]),
    )
    points = points_table(cross.rows, bootstrap)
    report = Report(
        domain=params.domain,
        budget=budget,
        main=main_table(cross.rows, budget=budget, bootstrap=bootstrap),
        ablation=ablation_table(cross.rows, budget=budget, bootstrap=bootstrap),
        leave_one_out=parts,
        headline=headline_table(cross.rows, budget=budget, bootstrap=bootstrap),
        by_budget=by_budget_table(cross.rows, bootstrap),
        frontier=frontier_table(points, budget=budget),
        by_bin=by_bin_table(cross.rows, bins, budget=budget),
        settings=settings_table(cross, budget=budget),
        gates=gates,
        rankers=read_frame(inputs["residual"], "residual", "rankers"),
        verifier=verifier,
        within=within_table(visits),
        within_shares={name: share_within(visits, name) for name in ("sigma", "k")},
        targets=targets(cross.rows, measures, budget=budget, bootstrap=bootstrap),
    )
    return report, points


def _searches(
    params: Params, inputs: Mapping[str, Path]
) -> dict[str, tuple[Task, tuple[Event, ...]]]:
    """The traced search of each test problem."""
    tasks = {task.problem.problem_id: task for task in read_tasks(inputs["benchmark"], "test")}
    problems = {name: task.problem for name, task in tasks.items()}
    path = inputs["evaluation"] / "events.parquet"
    found = read_events(path, domain_by_name(params.domain), problems)
    return {name: (tasks[name], events) for name, events in found.items()}


def _explorer(
    params: Params,
    inputs: Mapping[str, Path],
    searches: Mapping[str, tuple[Task, tuple[Event, ...]]],
    bins: Mapping[str, int],
) -> list[dict[str, Any]]:
    policy = json.loads((inputs["residual"] / "policy.json").read_text(encoding="utf-8"))
    return explorer_data(
        domain_by_name(params.domain),
        [
            Searched(task.problem, task.truth, bins[name], events)
            for name, (task, events) in searches.items()
        ],
        tau=params.search.tau,
        reference_dispersion=policy["reference_dispersion"]["hybrid"],
    )


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Means of each (method, fold, n), and over both folds: what MLflow shows along the budget."""
    whole = pd.concat([rows, rows.assign(fold="all")], ignore_index=True)
    means = whole.groupby(["method", "fold", "n"], sort=False)[list(CURVES)].mean()
    return means.astype(float).reset_index()


def _steps(inputs: Mapping[str, Path]) -> pd.DataFrame:
    return read_frame(inputs["evaluation"], "evaluation", "steps")


def _decided(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps that pass the gates where the right answer was still in reach: what is decided."""
    return steps[(steps["gate"] == "") & steps["before"]]


def _figures(
    report: Report, points: pd.DataFrame, inputs: Mapping[str, Path], folder: Path
) -> None:
    shown = [method for method in SHOWN if method in set(points["method"])]
    title = f"{report.domain}, two-fold cross-validated"
    accuracy_against_budget(points, folder / "accuracy_n", methods=shown, title=title)
    accuracy_against_calls(points, folder / "accuracy_calls", methods=shown, title=title)
    accuracy_against_tokens(points, folder / "accuracy_tokens", methods=shown, title=title)
    title = f"{report.domain}, N = {report.budget}"
    accuracy_by_bin(report.by_bin, folder / "by_bin", methods=shown, title=title)
    decided = _decided(_steps(inputs))
    table = reliability_table(decided["score"], decided["alive"], bins=RELIABILITY_BINS)
    write_csv(table, folder / "reliability.csv")
    reliability_diagram(table, folder / "reliability", title="Verifier on test problems")
    ranker_recall(report.rankers, folder / "rankers", title="Rankers on held-out training problems")
    within_problems(report.within, folder / "within", title=f"{report.domain}, along a solution")
    gate_bars(report.gates, folder / "gates", title="What the gates refuse")
