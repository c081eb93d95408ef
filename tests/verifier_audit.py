"""What a trained verifier's scores say: of a step, and of the solutions to one question.

    python -m flows exec python tests/verifier_audit.py --policy models/grade_school-smollm2-strong
    python -m flows exec python tests/verifier_audit.py --steps FOLDER/steps.parquet

The first asks whether the score of a step says what most continuations from there reach. Stage
``verifier`` measures the same with ``verifier.audit_rollouts``; this measures a verifier that is
there, on the validation problems of a benchmark. The second reads the steps that an evaluation
scored (with ``verifier.audit_samples``), and counts the pairs of a right and a wrong solution to
one question that the product of the scores orders rightly: a vote compares no others. It is
meant for domains in which answers say whether a solution is right.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import pandas as pd

from selverify.data.grading import Grader
from selverify.experiment.statistics import (
    Bootstrap,
    Interval,
    area_under_roc,
    area_under_roc_interval,
    ratio_interval,
)
from selverify.policy import load_policy
from tasks.artifacts import read_tasks
from tasks.verifier import steps_by_rollouts

RESAMPLES = Bootstrap(resamples=10_000, seed=0)


def main() -> None:
    """Measure and print a line."""
    asked = argparse.ArgumentParser(description=__doc__)
    what = asked.add_mutually_exclusive_group(required=True)
    what.add_argument("--policy", type=Path)
    what.add_argument("--steps", type=Path, help="steps.parquet of an evaluation")
    asked.add_argument("--benchmark", type=Path, default=Path("data/benchmark"))
    asked.add_argument("--solutions", type=int, default=2, help="sampled of each problem")
    asked.add_argument("--rollouts", type=int, choices=range(1, 65), default=32, metavar="N")
    given = asked.parse_args()
    logging.disable(logging.INFO)
    print(_solutions(given.steps) if given.steps else _steps(given))


def _steps(given: argparse.Namespace) -> str:
    policy = load_policy(given.policy)
    tasks = read_tasks(given.benchmark, "validation")
    if other := {task.problem.domain for task in tasks} - {policy.domain.name}:
        raise SystemExit(f"{given.benchmark}: problems of {other.pop()}, not {policy.domain.name}")
    with Grader(seconds=5.0, workers=1) as grader:
        steps = steps_by_rollouts(
            policy.domain,
            policy.backend,
            tasks,
            solutions=given.solutions,
            rollouts=given.rollouts,
            grader=grader,
        )
    if steps.empty:
        raise SystemExit("no step was sampled that can be judged")
    found = area_under_roc_interval(
        steps["score"],
        steps["right"],
        clusters=steps["problem_id"],
        bootstrap=RESAMPLES,
    )
    return (
        f"{len(steps)} steps of {steps['problem_id'].nunique()} problems, {steps['right'].sum()} "
        f"with a right answer in most of {given.rollouts} continuations; AUC {_written(found)}"
    )


def _solutions(path: Path) -> str:
    steps = pd.read_parquet(path).dropna(subset="score").sort_values("step")
    solutions = steps.groupby(["problem_id", "sample"]).agg(
        score=("score", "prod"), right=("right", "last")
    )
    won, pairs = [], []
    for _, own in solutions.groupby("problem_id"):
        area = area_under_roc(own["score"], own["right"])
        if area is not None:
            pairs.append(int(own["right"].sum() * (~own["right"]).sum()))
            won.append(area * pairs[-1])
    if not pairs:
        raise SystemExit(f"{path}: no problem with a right and a wrong solution")
    everything = area_under_roc(solutions["score"], solutions["right"])
    return (
        f"{sum(pairs)} pairs of {len(pairs)} problems, in order "
        f"{_written(ratio_interval(won, pairs, bootstrap=RESAMPLES))}; "
        f"of all {len(solutions)} solutions together AUC {everything:.3f}"
    )


def _written(found: Interval | None) -> str:
    return "none" if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


if __name__ == "__main__":
    main()
