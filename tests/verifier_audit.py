"""Whether a trained verifier's score of a step says what most continuations from there reach.

    python -m flows exec python tests/verifier_audit.py --policy models/grade_school-smollm2-strong

Stage ``verifier`` measures the same with ``verifier.audit_rollouts``; this measures a verifier that
is there, on the validation problems of a benchmark.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from selverify.data.grading import Grader
from selverify.experiment.statistics import Bootstrap, area_under_roc_interval
from selverify.policy import load_policy
from tasks.artifacts import read_tasks
from tasks.verifier import steps_by_rollouts


def main() -> None:
    """Measure and print a line."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--policy", type=Path, required=True)
    asked.add_argument("--benchmark", type=Path, default=Path("data/benchmark"))
    asked.add_argument("--solutions", type=int, default=2, help="sampled of each problem")
    asked.add_argument("--rollouts", type=int, choices=range(1, 65), default=32, metavar="N")
    given = asked.parse_args()
    logging.disable(logging.INFO)
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
        bootstrap=Bootstrap(resamples=10_000, seed=0),
    )
    area = "none" if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
    print(
        f"{len(steps)} steps of {steps['problem_id'].nunique()} problems, {steps['right'].sum()} "
        f"with a right answer in most of {given.rollouts} continuations; AUC {area}"
    )


if __name__ == "__main__":
    main()
