"""A report of outcomes so few and regular that its tables can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from selverify.experiment.audits import ScoredCandidates, ranker_table
from selverify.experiment.selection import CrossValidated, Strategy, cross_validate
from selverify.experiment.statistics import Bootstrap
from selverify.report import by_depth, names, sections, targets
from tasks.report import (
    Variant,
    equal_calls_by_strength,
    equal_cost_tables,
    outcome_tables,
    step_tables,
    transfer_table,
)

BOOTSTRAP = Bootstrap(resamples=400, seed=0)
IDS = [f"p{i:02d}" for i in range(20)]
BINS = {problem: i // 4 + 1 for i, problem in enumerate(IDS)}
# Solved problems and verifier calls a problem at N = 2 and N = 4.
METHODS = {
    "cot": {1: (6, 0)},
    "majority_gated": {2: (7, 0), 4: (9, 0)},
    "beam_keep_b": {2: (8, 4), 4: (11, 10)},
    "beam_keep_b_gated": {2: (8, 3), 4: (12, 8)},
    "verify_all": {2: (7, 4), 4: (10, 8)},
    "gates_only": {2: (8, 3), 4: (12, 7)},
    "gates_distance": {2: (9, 3), 4: (13, 6)},
    "paper": {2: (9, 2), 4: (14, 4)},
    "full": {2: (10, 2), 4: (14, 3)},
    "oracle": {2: (12, 1), 4: (17, 2)},
}
VISITS = pd.DataFrame(
    [
        ("a", 0, False, 1.0, 0.5, 2, 4, 2, 1),
        ("a", 1, True, None, None, None, None, None, None),
        ("b", 0, False, 3.0, 0.1, 4, 6, 4, 1),
        ("b", 1, False, 5.0, 0.2, 4, 5, 4, 4),
    ],
    columns=[
        "search",
        "depth",
        "trusted",
        "sigma",
        "margin",
        "k",
        "survivors",
        "calls",
        "accepted",
    ],
)
"""Four rounds of two searches: one trusted, ten moves verified, six accepted."""
STUB = '<svg xmlns="http://www.w3.org/2000/svg" width="2000" height="600"/>'


def runs(
    method: str, n: int, solved: int, calls: int, *, problems: int, setting: str = "", seed: int = 0
) -> list[dict[str, Any]]:
    """One outcome a problem, the first ``solved`` of them right."""
    return [
        {
            "method": method,
            "setting": setting,
            "n": n,
            "sampling_seed": seed,
            "problem_id": IDS[i],
            "status": "correct" if i < solved else "wrong",
            "correct": i < solved,
            "verifier_calls": calls,
            "verifier_steps": 3 * calls,
            "generated_moves": 4 * n,
            "generated_tokens": 30 * n,
            "read_tokens": 40,
            "verified_tokens": 10 * calls,
            "compute": 2e6 * (30 * n + 40 + 10 * calls),
        }
        for i in range(problems)
    ]


def outcomes() -> pd.DataFrame:
    """Every fifth problem costs two calls more; the last one runs into the time limit."""
    table = pd.DataFrame(
        [
            run
            for method, budgets in METHODS.items()
            for setting in (("k=1", "k=2") if method == "full" else ("",))
            for n, (solved, calls) in budgets.items()
            for run in runs(method, n, solved, calls, problems=len(IDS), setting=setting)
        ]
    )
    dearer = table["problem_id"].isin(IDS[::5]) & (table["verifier_calls"] > 0)
    table["verifier_calls"] += 2 * dearer
    return table.assign(status=table["status"].where(table["problem_id"] != IDS[-1], "timeout"))


def cross_validated(rows: pd.DataFrame, **changes: Any) -> CrossValidated:
    """Cross-validation of all methods in two folds, once unless told otherwise."""
    usual = {"folds": 2, "repetitions": 1, "seed": 0, "methods": list(METHODS), "rule": "accuracy"}
    return cross_validate(rows, BINS, **{**usual, **changes})


def validated() -> CrossValidated:
    """The synthetic outcomes after two-fold cross-validation."""
    baselines = ("majority_gated", "beam_keep_b_gated")
    return cross_validated(
        outcomes(),
        repetitions=3,
        rule="one_standard_error",
        strategies={
            names.STRATEGY: Strategy(baselines, by_bin=False),
            names.STRATEGY_BY_BIN: Strategy(baselines, by_bin=True),
        },
    )


def steps() -> pd.DataFrame:
    """Ten steps of four solutions: four decided, three after a mistake, three refused."""
    rows = [
        ("p00", 0, "", "", True, True, 0.9),
        ("p00", 0, "", "", True, True, 0.6),
        ("p01", 0, "", "", True, False, 0.7),
        ("p01", 0, "", "", False, False, 0.5),
        ("p01", 0, "", "", False, False, 0.5),
        ("p01", 0, "structural", "scope", False, False, None),
        ("p02", 0, "", "", True, False, 0.1),
        ("p02", 0, "", "", False, False, 0.5),
        ("p02", 0, "structural", "scope", False, False, None),
        ("p02", 1, "context", "arithmetic", True, False, None),
    ]
    names = ["problem_id", "sample", "gate", "reason", "before", "alive", "score"]
    return pd.DataFrame(rows, columns=names).assign(right=False)


def candidate_lists() -> list[ScoredCandidates]:
    """Twelve states of three moves; the ranker ranks one state in three rightly."""
    quality = np.array([0.9, 0.6, 0.2])
    return [
        ScoredCandidates(
            IDS[i],
            accepted=quality > 0.5,
            quality=quality,
            scores={"residual": quality if i % 3 == 0 else -quality},
        )
        for i in range(12)
    ]


def stub_figures(built: sections.ReportData, folder: Path) -> None:
    """Pictures that say nothing, wider than a screen, in place of the page's figures."""
    for section in (sections.glance_table(built), *sections.sections(built)):
        if section.figure:
            (folder / f"{section.figure}.svg").write_text(STUB, encoding="utf-8")


def report() -> sections.ReportData:
    """The report of all of these."""
    cross = validated()
    weaker = cross.rows.assign(correct=cross.rows["correct"] * (cross.rows["method"] != "full"))
    tables = outcome_tables(
        Variant(outcomes(), cross, BINS),
        {"small": cross.rows, "base": weaker},
        {"strong": cross.rows, "weak": weaker},
        budget=4,
        bootstrap=BOOTSTRAP,
    )
    along = {
        "pass@1": pd.Series({name: i % 5 / 4 for i, name in enumerate(IDS)}),
        "moves of the greedy solution": pd.Series(4.0, index=list(IDS)),
    }
    tables |= equal_cost_tables(cross, along, calls=(1, 2, 4, 8), bootstrap=BOOTSTRAP)
    tables["equal_calls_by_strength"] = equal_calls_by_strength(
        {"weak": cross}, calls=(1, 2, 4, 8), bootstrap=BOOTSTRAP
    )
    others = outcomes().assign(correct=lambda rows: ~rows["correct"].astype(bool))
    tables["transfer"] = transfer_table(cross, others, calls=(1, 2, 4, 8), bootstrap=BOOTSTRAP)
    tables["rankers"] = ranker_table(candidate_lists(), ks=[1, 2], bootstrap=BOOTSTRAP)
    tables |= step_tables(steps(), 0.5, BOOTSTRAP, known=True)
    tables["within"] = by_depth.within_table(VISITS)
    measures = {"pass_at_1": 0.3, "pass_at_64": 0.85, "gated_share": 0.3, "step_auc": 0.93}
    return sections.ReportData(
        domain="word_problems",
        split="test",
        budget=4,
        runs=cross.runs,
        tables=tables,
        within_shares={name: by_depth.share_within(VISITS, name) for name in by_depth.SPREADS},
        targets=targets.targets(cross.rows, measures, budget=4, bootstrap=BOOTSTRAP),
    )
