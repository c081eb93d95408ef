"""Stage ``evaluation``: all methods in one process, so that they share batches and replies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from selverify.backends.base import Backend
from selverify.benchmark import Task
from selverify.domains.base import Domain
from selverify.evaluation import LEAVE_ONE_OUT, Rules, evaluate, gated_settings, settings_of
from selverify.inspection import add_scores, inspect_samples
from selverify.params import Params
from selverify.reply_cache import CachedBackend
from selverify.scheduler import Search, run_lockstep
from selverify.search.gated import gated_competition
from selverify.solver import save_solver
from selverify.traces import write_events
from tasks.artifacts import local_backend, read_tasks, say, write_rows


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``outcomes``, and of the first sampling seed ``steps`` and ``events``.

    ``outcomes`` holds every method under every sampling seed, ``steps`` gates and verifier against
    the truth, ``events`` the full method's searches.
    """
    evaluation = params.evaluation
    cache = Path(params.tracking.reply_cache)
    cache.parent.mkdir(parents=True, exist_ok=True)
    tasks = read_tasks(inputs["benchmark"], "test", limit=evaluation.problems)
    parts = LEAVE_ONE_OUT if evaluation.leave_one_out else ()
    methods = tuple(dict.fromkeys((*evaluation.methods, *parts)))
    rows: list[dict[str, object]] = []
    for place, seed in enumerate(evaluation.sampling_seeds):
        domain, local = local_backend(params, inputs, seed=seed)
        policy = local.policy
        rules = Rules(
            params=params,
            dispersion=policy.reference_dispersion if policy else {},
            patterns=policy.patterns if policy else (),
        )
        backend = CachedBackend(local, cache)
        say(f"evaluation: sampling seed {place + 1} of {len(evaluation.sampling_seeds)}")
        try:
            found = evaluate(domain, backend, tasks, rules, methods=methods, report=_report)
            rows += [{"sampling_seed": seed, **row} for row in found]
            if not place:
                walked, items = inspect_samples(
                    domain, backend, tasks, samples=params.verifier.audit_samples
                )
                steps = add_scores(backend, walked, items)
                _trace(domain, backend, tasks, rules, outputs["evaluation"])
        finally:
            backend.close()
    save_solver(outputs["solver"], params, backbone=inputs["generator"].name)
    write_rows(outputs["evaluation"], "evaluation", "outcomes", rows)
    write_rows(outputs["evaluation"], "evaluation", "steps", steps)
    return _accuracies(pd.DataFrame(rows), evaluation.headline_budget)


def _trace(
    domain: Domain, backend: Backend, tasks: tuple[Task, ...], rules: Rules, folder: Path
) -> None:
    """The full method's event log at the headline budget, under the settings of ``search``."""
    n = rules.params.evaluation.headline_budget
    (setting,) = settings_of("", rules.params)
    searches = {
        task.problem.problem_id: Search(
            gated_competition(
                domain,
                task.problem,
                settings=gated_settings(setting, rules, n),
                budget=n,
                generation_cap=rules.generation_cap(n),
                traced=True,
            ),
            budget=n,
        )
        for task in tasks
    }
    results = run_lockstep(searches, backend, end_of_move=domain.end_of_move, traced=True)
    write_events(folder / "events.parquet", {key: result.events for key, result in results.items()})


def _accuracies(rows: pd.DataFrame, budget: int) -> dict[str, float]:
    """Each method's best setting at the headline budget, informative only."""
    chosen = rows[(rows["n"] == budget) | (rows["method"] == "cot")]
    means = chosen.groupby(["method", "setting"])["correct"].mean()
    best = means.groupby("method").max()
    return {f"best_accuracy.{method}": float(value) for method, value in best.items()}


def _report(method: str, number: int, methods: int) -> None:
    say(f"evaluation: method {number} of {methods}, {method}")
