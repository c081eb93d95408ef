"""Stage ``report``: selection on folds, intervals, tables, figures and the targets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from selverify.data.grading import Grader
from selverify.domains import domain_by_name
from selverify.domains.base import knows_truth
from selverify.experiment.audits import gate_table, reliability_table, verifier_table
from selverify.experiment.equal_cost import (
    OperatingPoints,
    equal_cost,
    equal_cost_table,
    gain_table,
    near_best_table,
    operating_points,
    spanning_levels,
    transferred_cost,
)
from selverify.experiment.methods import PARTS
from selverify.experiment.selection import CrossValidated, Strategy, cross_validate, pool_runs
from selverify.experiment.statistics import Bootstrap
from selverify.params import Params
from selverify.report import by_depth, pages, plots, tables, variants
from selverify.report.claims import claims_table
from selverify.report.explorer import Outcome, TracedSearch, explorer_data
from selverify.report.headline import headline_table
from selverify.report.names import (
    FULL_METHOD,
    GATED,
    PRODUCT,
    STEP,
    STRATEGY,
    STRATEGY_BY_BIN,
    baseline_methods,
    method_name,
    ordered_methods,
    our_whole_methods,
)
from selverify.report.sections import ReportData, details, judged, metrics
from selverify.report.targets import targets
from selverify.search.compute import Sizes
from selverify.search.traces import read_events
from selverify.storage import write_plain_json
from tasks.artifacts import read_facts, read_frame, read_tasks

TERMINAL_WIDTH = 80
DETAILS = "details.json"
RELIABILITY_BINS = 10
GROUPS = 4
HORIZON = "moves of the greedy solution"
MILLION = 1_000_000
STEP_COLUMNS = ["problem_id", "sample", "gate", "reason", "before", "alive", "right", "score"]
"""Of an audited step, as far as tables are made of them."""
CURVES = ("correct", "verifier_calls", "verifier_steps", "generated_moves", "generated_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """What the pipeline measured with one backbone under one strength of the verifier.

    ``bins``: the difficulty bin of each problem.
    """

    outcomes: pd.DataFrame
    cross: CrossValidated
    bins: Mapping[str, int]

    @property
    def rows(self) -> pd.DataFrame:
        """Without the parts left out, which have a table of their own."""
        return self.cross.rows[~self.cross.rows["method"].isin(PARTS)]


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write the page, its tables as CSV, the figures, and ``details.json``.

    The main tables are of the first backbone under the first strength of the verifier.
    """
    folder = outputs["report"]
    bootstrap = Bootstrap(params.evaluation.resamples, params.evaluation.seed)
    # Chosen for the verifier where search.tau leaves it open.
    tau = float(read_facts(_main_folder(params, inputs), "evaluation", "rules")["tau"])
    measured = {
        (backbone, strength): _variant(params, inputs, backbone, strength)
        for backbone in params.backbones
        for strength in params.strengths
    }
    main = next(iter(measured.values()))
    searches = _searches(params, inputs, main.bins)
    visits = by_depth.visits_table({name: one.events for name, one in searches.items()}, tau=tau)
    steps = read_frame(_main_folder(params, inputs), "evaluation", "steps")
    by_backbone = {name: measured[name, params.strengths[0]].rows for name in params.backbones}
    by_strength = {name: measured[params.backbones[0], name].rows for name in params.strengths}
    budget = params.evaluation.headline_budget
    difficulty = _difficulty(inputs, params.backbones[0])
    along = _along(main.outcomes, difficulty)
    found = {
        **equal_cost_tables(main.cross, along, calls=params.evaluation.calls, bootstrap=bootstrap),
        "equal_calls_by_strength": equal_calls_by_strength(
            {name: measured[params.backbones[0], name].cross for name in params.strengths[1:]},
            calls=params.evaluation.calls,
            bootstrap=bootstrap,
        ),
        **outcome_tables(main, by_backbone, by_strength, budget=budget, bootstrap=bootstrap),
        **step_tables(steps, tau, bootstrap, known=knows_truth(domain_by_name(params.domain))),
        "transfer": transfer_table(
            main.cross,
            _outcomes(_main_folder(params, inputs), "transfer"),
            calls=params.evaluation.calls,
            bootstrap=bootstrap,
        ),
        "rankers": read_frame(inputs["residual"], "residual", "rankers"),
        "within": by_depth.within_table(visits),
    }
    found["curves"] = _curves(measured, found["equal_calls"])
    measures = _measures(difficulty, steps, found["verifier"], samples=params.difficulty.samples)
    report = ReportData(
        domain=params.domain,
        split=params.evaluation.split,
        budget=budget,
        runs=main.cross.runs,
        tables=found,
        within_shares={name: by_depth.share_within(visits, name) for name in by_depth.SPREADS},
        targets=targets(main.rows, measures, budget=budget, bootstrap=bootstrap),
    )
    draw_figures(report, folder)
    if len(by_backbone) > 1:
        _draw_backbones(report, by_backbone, bootstrap, folder)
    made = _made(tables.at_budget(main.rows, budget))
    _write(report, _explored(params, inputs, searches, tau, made), folder)
    write_plain_json(folder / DETAILS, details(report))
    return metrics(report)


def equal_cost_tables(
    cross: CrossValidated,
    along: Mapping[str, pd.Series],
    *,
    calls: Sequence[int],
    bootstrap: Bootstrap,
) -> dict[str, pd.DataFrame]:
    """Methods at equal cost, by the name of the CSV file; ``calls`` are the levels B.

    Compute is in millions of operations, and its table empty where a model's size is not known.

    Args:
        along: numbers of the problems, by problem, along which the gain over the hull is shown.
    """
    points = _points_of(cross)
    at_levels = partial(
        equal_cost, points, cross.folds, baselines=baseline_methods(), ours=our_whole_methods()
    )
    by_calls = at_levels(cost="verifier_calls", levels=calls)
    tokens = spanning_levels(points, "generated_tokens")
    by_tokens = at_levels(cost="generated_tokens", levels=tokens)
    found = {
        "equal_calls": equal_cost_table(by_calls, bootstrap),
        "equal_tokens": equal_cost_table(by_tokens, bootstrap),
        "equal_compute": pd.DataFrame(columns=["method", "level"]),
        "near_best": near_best_table(by_calls, bootstrap),
    }
    gains = pd.concat(
        gain_table(
            by_calls, FULL_METHOD, one.sort_index().to_numpy(), groups=GROUPS, bootstrap=bootstrap
        ).assign(along=name)
        for name, one in along.items()
    )
    if cross.pooled["compute"].notna().all():
        levels = spanning_levels(points, "compute")
        by_compute = at_levels(cost="compute", levels=levels)
        found["equal_compute"] = equal_cost_table(by_compute, bootstrap)
    return {name: _in_order(table) for name, table in found.items()} | {"gains": gains}


def equal_calls_by_strength(
    others: Mapping[str, CrossValidated], *, calls: Sequence[int], bootstrap: Bootstrap
) -> pd.DataFrame:
    """Methods at equal calls under each further verifier, which ``variant`` names."""
    found = [pd.DataFrame(columns=["variant", "method", "level"])]
    for name, cross in others.items():
        entries = equal_cost(
            _points_of(cross),
            cross.folds,
            cost="verifier_calls",
            levels=calls,
            baselines=baseline_methods(),
            ours=our_whole_methods(),
        )
        found.append(_in_order(equal_cost_table(entries, bootstrap)).assign(variant=name))
    return found[0] if len(found) == 1 else pd.concat(found[1:])


def transfer_table(
    cross: CrossValidated, outcomes: pd.DataFrame, *, calls: Sequence[int], bootstrap: Bootstrap
) -> pd.DataFrame:
    """Methods at equal calls on the questions of another benchmark, as chosen on this one."""
    if outcomes.empty:
        return pd.DataFrame(columns=["method", "level", "problems"])
    pooled, runs = pool_runs(outcomes)
    entries = transferred_cost(
        operating_points(cross.pooled, runs=cross.runs),
        operating_points(pooled, runs=runs),
        cost="verifier_calls",
        levels=calls,
        baselines=baseline_methods(),
        ours=our_whole_methods(),
    )
    table = _in_order(equal_cost_table(entries, bootstrap))
    return table.assign(problems=outcomes["problem_id"].nunique())


def _points_of(cross: CrossValidated) -> OperatingPoints:
    """Compute in millions of operations."""
    pooled = cross.pooled.assign(compute=cross.pooled["compute"] / MILLION)
    return operating_points(pooled, runs=cross.runs)


def _along(outcomes: pd.DataFrame, difficulty: pd.DataFrame) -> dict[str, pd.Series]:
    """Of each evaluated problem pass@1 and, where 0-shot CoT ran, the moves of its solution."""
    problems = outcomes["problem_id"].unique()
    found = {"pass@1": difficulty.set_index("problem_id")["pass_at_1"].loc[problems]}
    greedy = outcomes[outcomes["method"] == "cot"]
    if len(greedy):
        found[HORIZON] = greedy.groupby("problem_id")["generated_moves"].mean()
    return found


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Methods in the order of every table."""
    return table.set_index("method").loc[ordered_methods(table["method"])].reset_index()


def outcome_tables(
    main: Variant,
    by_backbone: Mapping[str, pd.DataFrame],
    by_strength: Mapping[str, pd.DataFrame],
    *,
    budget: int,
    bootstrap: Bootstrap,
) -> dict[str, pd.DataFrame]:
    """What was measured on whole searches, by the name of its CSV file.

    Args:
        by_backbone: out-of-fold rows of each backbone under the first strength of the verifier.
        by_strength: those of the first backbone under each strength.
    """
    rows, cross = main.rows, main.cross
    points = tables.points_table(rows, bootstrap)
    best = variants.against_best_table
    return {
        "rows": rows,
        "points": points,
        "main": tables.main_table(rows, runs=cross.runs, budget=budget, bootstrap=bootstrap),
        "paper": tables.paper_table(rows, budget=budget, bootstrap=bootstrap),
        "ablation": tables.ablation_table(rows, budget=budget, bootstrap=bootstrap),
        "leave_one_out": tables.leave_one_out_table(cross.rows, budget=budget, bootstrap=bootstrap),
        "claims": claims_table(rows, by_backbone, main.bins, budget=budget, bootstrap=bootstrap),
        "headline": headline_table(rows, budget=budget, bootstrap=bootstrap),
        "by_budget": variants.by_budget_table(rows, bootstrap),
        "by_bin": tables.by_bin_table(rows, main.bins, budget=budget),
        "settings": tables.settings_table(cross, budget=budget),
        "seeds": variants.seeds_table(main.outcomes, rows, budget=budget),
        "backbones": best(by_backbone, budget=budget, bootstrap=bootstrap),
        "strengths": best(by_strength, budget=budget, bootstrap=bootstrap),
        "ranking": variants.ranking_table(by_strength, budget=budget, bootstrap=bootstrap),
    }


def step_tables(
    steps: pd.DataFrame, tau: float, bootstrap: Bootstrap, *, known: bool
) -> dict[str, pd.DataFrame]:
    """What was measured on single steps, of the verifier where it decides.

    It decides on steps that pass the gates where the right answer was still in reach: by the score
    of the step alone, beside which is the product of the scores of all steps up to it. Where the
    truth of steps is not ``known``, only answers are judged, and the product comes first: metrics
    take what comes first. An answer's own score says nothing of the steps that it follows from.
    """
    if steps.empty:  # read from a file, it has no columns
        steps = pd.DataFrame(columns=STEP_COLUMNS)
    steps = steps.astype({"score": float})  # where all are refused no score says so
    so_far = steps.groupby(["problem_id", "sample"])["score"].cumprod()
    seen = steps.assign(product=so_far)[(steps["gate"] == "") & steps["before"]]
    truth, problems, bins = seen["alive"], seen["problem_id"], RELIABILITY_BINS
    kinds = {STEP: seen["score"], PRODUCT: seen["product"]}
    if not known:
        kinds = dict(reversed(kinds.items()))
    measured = [
        verifier_table(scores, truth, problems, tau=tau, bins=bins, bootstrap=bootstrap)
        for scores in kinds.values()
    ]
    curves = [reliability_table(scores, truth, bins=bins) for scores in kinds.values()]
    return {
        "gates": gate_table(steps),
        "verifier": pd.concat(measured, keys=kinds, names=["of"]).reset_index("of"),
        "reliability": pd.concat(curves, keys=kinds, names=["of"]).reset_index("of"),
    }


def draw_figures(report: ReportData, folder: Path) -> None:
    """The figures that every run has."""
    validated = f"{report.domain}, two-fold cross-validated"
    verified = f"Verifier on {report.split} problems"
    at_budget = f"{report.domain}, N = {report.budget}"
    along = f"{report.domain}, along a solution"
    for draw, table, stem, title in (
        (plots.accuracy_at_equal_calls, "equal_calls", "equal_calls", validated),
        (plots.accuracy_against_budget, "points", "accuracy_n", validated),
        (plots.accuracy_against_calls, "points", "accuracy_calls", validated),
        (plots.accuracy_against_tokens, "points", "accuracy_tokens", validated),
        (plots.accuracy_by_bin, "by_bin", "by_bin", at_budget),
        (plots.gains, "gains", "gains", validated),
        (plots.reliability_diagram, "reliability", "reliability", verified),
        (plots.ranker_recall, "rankers", "rankers", "Rankers on held-out training problems"),
        (plots.within_problems, "within", "within", along),
        (plots.gate_bars, "gates", "gates", "What the gates refuse"),
    ):
        draw(report.tables[table], folder / stem, title=title)


def _main_folder(params: Params, inputs: Mapping[str, Path]) -> Path:
    """The folder with the evaluation that the main tables show."""
    return inputs["evaluation"] / f"{params.backbones[0]}-{params.strengths[0]}"


def _difficulty(inputs: Mapping[str, Path], backbone: str) -> pd.DataFrame:
    return read_frame(inputs["difficulty"] / backbone, "difficulty", "difficulty")


def _outcomes(folder: Path, name: str) -> pd.DataFrame:
    """Rows of an evaluation, with what they cost in operations."""
    rows = read_frame(folder, "evaluation", name)
    rules = read_facts(folder, "evaluation", "rules")
    return rows if rows.empty else rows.assign(compute=Sizes(**rules["sizes"]).operations(rows))


def _variant(params: Params, inputs: Mapping[str, Path], backbone: str, strength: str) -> Variant:
    settings = params.evaluation
    outcomes = _outcomes(inputs["evaluation"] / f"{backbone}-{strength}", "outcomes")
    difficulty = _difficulty(inputs, backbone)
    bins = dict(zip(difficulty["problem_id"], difficulty["difficulty_bin"], strict=True))
    parts = PARTS if settings.leave_one_out else ()
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
    return Variant(outcomes, cross, bins)


def _searches(
    params: Params, inputs: Mapping[str, Path], bins: Mapping[str, int]
) -> dict[str, TracedSearch]:
    """The traced search of each evaluated problem, by its name."""
    listed = read_tasks(inputs["benchmark"], params.evaluation.split)
    tasks = {task.problem.problem_id: task for task in listed}
    problems = {name: task.problem for name, task in tasks.items()}
    path = _main_folder(params, inputs) / "events.parquet"
    found = read_events(path, domain_by_name(params.domain), problems=problems)
    return {name: TracedSearch(tasks[name], bins[name], events) for name, events in found.items()}


def _explored(
    params: Params,
    inputs: Mapping[str, Path],
    searches: Mapping[str, TracedSearch],
    tau: float,
    made: Mapping[str, Sequence[Outcome]],
) -> list[dict[str, Any]]:
    policy = json.loads((inputs["residual"] / "policy.json").read_text(encoding="utf-8"))
    with Grader(seconds=params.evaluation.grading_seconds, workers=1) as grader:
        return explorer_data(
            domain_by_name(params.domain),
            list(searches.values()),
            tau=tau,
            reference_dispersion=policy["reference_dispersion"]["hybrid"],
            outcomes=made,
            matches=grader.matches,
        )


def _made(rows: pd.DataFrame) -> dict[str, list[Outcome]]:
    """What each method made of each problem, by its name."""
    columns = ["correct", "verifier_calls", "generated_tokens"]
    means = rows.groupby(["problem_id", "method"])[columns].mean()
    found: dict[str, list[Outcome]] = {}
    for method in ordered_methods(set(rows["method"])):
        own = means.xs(method, level="method")
        for problem, *values in own.itertuples():
            rounded = (round(float(one), 3) for one in values)
            found.setdefault(str(problem), []).append(Outcome(method_name(method), *rounded))
    return found


def _measures(
    difficulty: pd.DataFrame, steps: pd.DataFrame, verifier: pd.DataFrame, *, samples: int
) -> dict[str, float]:
    """What the targets take from other stages, each a share in [0, 1].

    Without pass@64 where a problem has fewer or more samples than that.
    """
    own = judged(verifier).set_index("metric")["value"]
    solved = float((difficulty["right_derivation_rate"] > 0).mean())
    return {
        "pass_at_1": float(difficulty["pass_at_1"].mean()),
        **({"pass_at_64": solved} if samples == 64 else {}),
        "gated_share": float((steps["gate"] != "").mean()) if len(steps) else math.nan,
        "step_auc": float(own.get("step_auc", math.nan)),
    }


def _curves(measured: Mapping[tuple[str, str], Variant], by_calls: pd.DataFrame) -> pd.DataFrame:
    """Means of each method, backbone, strength, fold and n, and over all folds: MLflow's curves.

    Of the first backbone and strength also the accuracy for at most n calls (``by_calls``).
    """
    curves = []
    for (backbone, strength), variant in measured.items():
        rows = variant.cross.rows
        whole = pd.concat([rows, rows.assign(fold="all")], ignore_index=True)
        means = whole.groupby(["method", "fold", "n"], sort=False)[list(CURVES)].mean()
        named = means.astype(float).reset_index().rename(columns={"correct": "accuracy"})
        named.insert(1, "backbone", backbone)
        named.insert(2, "strength", strength)
        curves.append(named)
    reached = by_calls.dropna(subset="accuracy")[["method", "level", "accuracy"]]
    columns = {"level": "n", "accuracy": "accuracy_at_most_n_calls"}
    first = dict(zip(("backbone", "strength"), next(iter(measured)), strict=True))
    curves.append(reached.rename(columns=columns).assign(**first, fold="all"))
    return pd.concat(curves, ignore_index=True)


def _write(report: ReportData, searches: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Every table and page; the HTML page holds the figures, so they are drawn before."""
    for name, table in report.tables.items():
        pages.write_csv(table, folder / f"{name}.csv")
    texts = {
        "report.md": pages.to_markdown(report),
        "tables.tex": pages.to_latex(report),
        "main.txt": pages.to_terminal(report, width=TERMINAL_WIDTH),
        "report.html": pages.to_html(
            report, folder, searches, remark=domain_by_name(report.domain).remark
        ),
    }
    for name, text in texts.items():
        pages.write_text(text, folder / name)


def _draw_backbones(
    report: ReportData, rows: Mapping[str, pd.DataFrame], bootstrap: Bootstrap, folder: Path
) -> None:
    """Full and the best baselines of each backbone, under the first strength of the verifier."""
    points = {name: tables.points_table(own, bootstrap) for name, own in rows.items()}
    methods = [*report.tables["backbones"]["baseline"].astype(str), FULL_METHOD]
    path = folder / "backbones"
    plots.accuracy_of_backbones(points, path, methods=methods, title=report.domain)
