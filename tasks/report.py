"""Stage ``report``: selection on folds, intervals, tables, figures and the targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from selverify.data.benchmark import Task
from selverify.domains import domain_by_name
from selverify.experiment.audits import gate_table, reliability_table, verifier_table
from selverify.experiment.selection import CrossValidated, Strategy, cross_validate
from selverify.experiment.statistics import Bootstrap
from selverify.params import Params
from selverify.report.by_depth import share_within, visits_table, within_table
from selverify.report.explorer import Searched, explorer_data
from selverify.report.headline import headline_table
from selverify.report.html import render_html
from selverify.report.names import FULL, GATED, LEAVE_ONE_OUT, STRATEGY, STRATEGY_BY_BIN
from selverify.report.pages import latex, main_table_text, render, write_csv, write_text
from selverify.report.plots import (
    accuracy_against_budget,
    accuracy_against_calls,
    accuracy_against_tokens,
    accuracy_by_bin,
    accuracy_of_backbones,
    gate_bars,
    ranker_recall,
    reliability_diagram,
    within_problems,
)
from selverify.report.sections import Report, metrics
from selverify.report.tables import (
    ablation_table,
    by_bin_table,
    frontier_table,
    leave_one_out_table,
    main_table,
    paper_table,
    points_table,
    settings_table,
)
from selverify.report.targets import Measures, by_budget_table, targets
from selverify.report.variants import against_best_table, ranking_table, seeds_table
from selverify.search.traces import Event, read_events
from selverify.storage import write_plain_json
from tasks.artifacts import read_facts, read_frame, read_tasks

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
TABLES = (
    "main",
    "paper",
    "by_budget",
    "ablation",
    "headline",
    "leave_one_out",
    "frontier",
    "by_bin",
    "settings",
    "seeds",
    "backbones",
    "strengths",
    "ranking",
    "gates",
    "rankers",
    "verifier",
    "within",
)
"""Tables of the report that are written as CSV."""


class _Measure(TypedDict):
    budget: int
    bootstrap: Bootstrap


@dataclass(frozen=True, slots=True, eq=False)
class _Variant:
    """What the pipeline measured with one backbone under one strength of the verifier."""

    outcomes: pd.DataFrame
    cross: CrossValidated
    bins: Mapping[str, int]


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write the page, its tables as CSV, the figures, and ``metrics.json``.

    The main tables are of the first backbone under the first strength of the verifier.
    """
    folder = outputs["report"]
    variants: dict[tuple[str, str], _Variant] = {
        (backbone, strength): _variant(params, inputs, backbone, strength)
        for backbone in params.backbones
        for strength in params.strengths
    }
    searches = _searches(params, inputs)
    report, points = _report(params, inputs, variants, searches)
    write_text(render(report), folder / "report.md")
    write_text(latex(report), folder / "tables.tex")
    text = main_table_text(report.main, budget=report.budget, width=TERMINAL)
    write_text(text, folder / "main.txt")
    for name in TABLES:
        write_csv(getattr(report, name), folder / f"{name}.csv")
    write_csv(points, folder / "points.csv")
    write_csv(_methods(variants[_main(params)].cross.rows), folder / "rows.csv")
    write_csv(_curves(variants), folder / "curves.csv")
    _figures(report, points, _steps(params, inputs), folder)
    if len(params.backbones) > 1:
        _backbone_figure(report, variants, params, folder)
    bins = variants[_main(params)].bins
    page = render_html(report, folder, _explorer(params, inputs, searches, bins))
    write_text(page, folder / "report.html")
    found = metrics(report)
    write_plain_json(outputs["metrics"], found)
    return {name: float(value) for name, value in found.items()}


def _main(params: Params) -> tuple[str, str]:
    return params.backbones[0], params.strengths[0]


def _of_main(params: Params, inputs: Mapping[str, Path]) -> Path:
    """The folder with the evaluation that the main tables show."""
    return inputs["evaluation"] / "-".join(_main(params))


def _tau(params: Params, inputs: Mapping[str, Path]) -> float:
    """The main variant's; chosen for its verifier where ``search.tau`` leaves it open."""
    return float(read_facts(_of_main(params, inputs), "evaluation", "rules")["tau"])


def _variant(params: Params, inputs: Mapping[str, Path], backbone: str, strength: str) -> _Variant:
    settings = params.evaluation
    outcomes = read_frame(inputs["evaluation"] / f"{backbone}-{strength}", "evaluation", "outcomes")
    difficulty = _difficulty(inputs, backbone)
    bins = dict(zip(difficulty["problem_id"], difficulty["difficulty_bin"], strict=True))
    parts = LEAVE_ONE_OUT if settings.leave_one_out else ()
    baselines = tuple(method for method in settings.methods if method.endswith(GATED))
    cross = cross_validate(
        outcomes,
        bins,
        folds=settings.folds,
        repetitions=settings.repetitions,
        seed=settings.seed,
        methods=tuple(dict.fromkeys((*settings.methods, *parts))),
        rule=settings.selection,
        strategies={
            STRATEGY: Strategy(baselines, by_bin=False),
            STRATEGY_BY_BIN: Strategy(baselines, by_bin=True),
        },
    )
    return _Variant(outcomes, cross, bins)


def _difficulty(inputs: Mapping[str, Path], backbone: str) -> pd.DataFrame:
    return read_frame(inputs["difficulty"] / backbone, "difficulty", "difficulty")


def _methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Without the parts left out, which have a table of their own."""
    return rows[~rows["method"].isin(LEAVE_ONE_OUT)]


def _by_backbone(
    variants: Mapping[tuple[str, str], _Variant], params: Params
) -> dict[str, pd.DataFrame]:
    """The methods' rows of each backbone under the first strength of the verifier."""
    strength = params.strengths[0]
    return {name: _methods(variants[name, strength].cross.rows) for name in params.backbones}


def _report(
    params: Params,
    inputs: Mapping[str, Path],
    variants: Mapping[tuple[str, str], _Variant],
    searches: Mapping[str, tuple[Task, tuple[Event, ...]]],
) -> tuple[Report, pd.DataFrame]:
    settings = params.evaluation
    backbone, strength = _main(params)
    main = variants[backbone, strength]
    rows, budget = _methods(main.cross.rows), settings.headline_budget
    bootstrap = Bootstrap(settings.resamples, settings.seed)
    measure: _Measure = {"budget": budget, "bootstrap": bootstrap}
    visits = visits_table(
        {name: events for name, (_, events) in searches.items()}, tau=_tau(params, inputs)
    )
    steps = _steps(params, inputs)
    decided = _decided(steps)
    verifier = verifier_table(
        decided["score"],
        decided["alive"],
        decided["problem_id"],
        tau=_tau(params, inputs),
        bins=RELIABILITY_BINS,
        bootstrap=bootstrap,
    )
    difficulty = _difficulty(inputs, backbone)
    measures = Measures(
        pass_at_1=float(difficulty["pass_at_1"].mean()),
        pass_at_64=float((difficulty["right_derivation_rate"] > 0).mean()),
        gated_share=float((steps["gate"] != "").mean()),
        step_auc=float(verifier.loc[verifier["metric"] == "step_auc", "value"].mean()),
    )
    by_backbone = _by_backbone(variants, params)
    by_strength = {name: _methods(variants[backbone, name].cross.rows) for name in params.strengths}
    points = points_table(rows, bootstrap)
    report = Report(
        domain=params.domain,
        budget=budget,
        runs=main.cross.runs,
        main=main_table(rows, runs=main.cross.runs, **measure),
        paper=paper_table(rows, **measure),
        ablation=ablation_table(rows, **measure),
        leave_one_out=leave_one_out_table(main.cross.rows, **measure),
        headline=headline_table(rows, **measure),
        by_budget=by_budget_table(rows, bootstrap),
        frontier=frontier_table(points, budget=budget),
        by_bin=by_bin_table(rows, main.bins, budget=budget),
        settings=settings_table(main.cross, budget=budget),
        seeds=seeds_table(main.outcomes, rows, budget=budget),
        backbones=against_best_table(by_backbone, **measure),
        strengths=against_best_table(by_strength, **measure),
        ranking=ranking_table(by_strength, **measure),
        gates=gate_table(steps),
        rankers=read_frame(inputs["residual"], "residual", "rankers"),
        verifier=verifier,
        within=within_table(visits),
        within_shares={name: share_within(visits, name) for name in ("sigma", "k")},
        targets=targets(rows, measures, **measure),
    )
    return report, points


def _searches(
    params: Params, inputs: Mapping[str, Path]
) -> dict[str, tuple[Task, tuple[Event, ...]]]:
    """The traced search of each test problem."""
    tasks = {task.problem.problem_id: task for task in read_tasks(inputs["benchmark"], "test")}
    problems = {name: task.problem for name, task in tasks.items()}
    path = _of_main(params, inputs) / "events.parquet"
    found = read_events(path, domain_by_name(params.domain), problems=problems)
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
        tau=_tau(params, inputs),
        reference_dispersion=policy["reference_dispersion"]["hybrid"],
    )


def _curves(variants: Mapping[tuple[str, str], _Variant]) -> pd.DataFrame:
    """Means of each method, backbone, strength, fold and n, and over all folds: MLflow's curves."""
    tables = []
    for (backbone, strength), variant in variants.items():
        rows = variant.cross.rows
        whole = pd.concat([rows, rows.assign(fold="all")], ignore_index=True)
        means = whole.groupby(["method", "fold", "n"], sort=False)[list(CURVES)].mean()
        named = means.astype(float).reset_index().rename(columns={"correct": "accuracy"})
        named.insert(1, "backbone", backbone)
        named.insert(2, "strength", strength)
        tables.append(named)
    return pd.concat(tables, ignore_index=True)


def _steps(params: Params, inputs: Mapping[str, Path]) -> pd.DataFrame:
    return read_frame(_of_main(params, inputs), "evaluation", "steps")


def _decided(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps that pass the gates where the right answer was still in reach: what is decided."""
    return steps[(steps["gate"] == "") & steps["before"]]


def _figures(report: Report, points: pd.DataFrame, steps: pd.DataFrame, folder: Path) -> None:
    shown = [method for method in SHOWN if method in set(points["method"])]
    title = f"{report.domain}, two-fold cross-validated"
    accuracy_against_budget(points, folder / "accuracy_n", methods=shown, title=title)
    accuracy_against_calls(points, folder / "accuracy_calls", methods=shown, title=title)
    accuracy_against_tokens(points, folder / "accuracy_tokens", methods=shown, title=title)
    title = f"{report.domain}, N = {report.budget}"
    accuracy_by_bin(report.by_bin, folder / "by_bin", methods=shown, title=title)
    decided = _decided(steps)
    table = reliability_table(decided["score"], decided["alive"], bins=RELIABILITY_BINS)
    write_csv(table, folder / "reliability.csv")
    reliability_diagram(table, folder / "reliability", title="Verifier on test problems")
    ranker_recall(report.rankers, folder / "rankers", title="Rankers on held-out training problems")
    within_problems(report.within, folder / "within", title=f"{report.domain}, along a solution")
    gate_bars(report.gates, folder / "gates", title="What the gates refuse")


def _backbone_figure(
    report: Report,
    variants: Mapping[tuple[str, str], _Variant],
    params: Params,
    folder: Path,
) -> None:
    """Full and the best baselines of each backbone, under the first strength of the verifier."""
    bootstrap = Bootstrap(params.evaluation.resamples, params.evaluation.seed)
    rows = _by_backbone(variants, params)
    points = {name: points_table(own, bootstrap) for name, own in rows.items()}
    methods = [*dict.fromkeys(report.backbones["baseline"].astype(str)), FULL]
    accuracy_of_backbones(points, folder / "backbones", methods=methods, title=report.domain)
