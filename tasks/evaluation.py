"""Stage ``evaluation``: all methods on shards of the problems, one process a shard.

The methods of a shard share batches and replies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import pandas as pd

from selverify.data.benchmark import TRANSFER, Task
from selverify.data.grading import TIMEOUT
from selverify.domains.base import Domain
from selverify.experiment.evaluation import Row, evaluate
from selverify.experiment.inspection import inspect_samples
from selverify.experiment.methods import METHODS, PARTS, Conditions, Trial
from selverify.models.policy_settings import save_policy_settings
from selverify.models.reply_cache import REQUEST_KINDS, CachedBackend
from selverify.models.threshold import resolve_tau
from selverify.params import Params
from selverify.search.backend import Backend
from selverify.search.compute import Sizes
from selverify.search.driver import Search, run_searches
from selverify.search.traces import Event, write_events
from tasks.artifacts import read_tasks, say, write_facts, write_rows
from tasks.models import open_grader, open_models
from tasks.shards import Mapper, Shard, map_shards, work_on

SHARD = 125
"""Problems a shard."""
ORDER = ("problem_id", "sampling_seed", "method", "setting", "n")
"""Of the rows: searches that went alike are then beside each other, which makes a small file."""


def _code() -> str:
    """The digest of the library's files, with their names."""
    root, found = Path(str(files("selverify"))), hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        text = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()} {len(text)} ".encode() + text)
    return found.hexdigest()


CODE = _code()
"""As it is imported: an edit while a run is at work is of the next run."""
GRADED_BY = [version(name) for name in ("math-verify", "latex2sympy2-extended", "sympy")]


@dataclass(frozen=True, slots=True)
class Part:
    """Of one shard the sizes of its models and the rows of ``outcomes``, and of its first seed
    ``steps`` and events."""

    sizes: Sizes
    outcomes: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    events: dict[str, tuple[Event, ...]]


def run(
    params: Params,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    mapper: Mapper = map_shards,
) -> dict[str, float]:
    """Write ``outcomes``, ``transfer``, ``rules``, and of the first sampling seed ``steps`` and
    ``events``.

    ``rules`` are tau and the models' sizes. ``outcomes`` holds every method under every seed,
    ``transfer`` the same on questions of another benchmark, ``steps`` gates and verifier against
    the truth, ``events`` the full method's searches.
    """
    params = resolve_tau(params, inputs["verifier"])
    evaluation = params.evaluation
    tasks = read_tasks(inputs["benchmark"], evaluation.split, limit=evaluation.problems)
    others = read_tasks(inputs["benchmark"], TRANSFER)
    parts, other_parts = (
        work_on(evaluate_shard, each, params, inputs, size=SHARD, mapper=mapper)
        for each in (tasks, others)
    )
    save_policy_settings(outputs["solver"], params, backbone=inputs["generator"].name)
    folder = outputs["evaluation"]
    rows, transferred = (_sorted_outcomes(each) for each in (parts, other_parts))
    write_rows(folder, "evaluation", "outcomes", rows)
    write_rows(folder, "evaluation", "transfer", transferred)
    facts = {"tau": params.search.tau, "sizes": asdict(parts[0].sizes)}
    write_facts(folder, "evaluation", "rules", facts)
    write_rows(folder, "evaluation", "steps", [row for part in parts for row in part.steps])
    events = {key: listed for part in parts for key, listed in part.events.items()}
    write_events(folder / "events.parquet", events)
    return _accuracies(pd.DataFrame(rows), evaluation.headline_budget)


def _sorted_outcomes(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return sorted((row for part in parts for row in part.outcomes), key=itemgetter(*ORDER))


def evaluate_shard(shard: Shard) -> Part:
    """Every method on the problems of one shard, under every seed."""
    parts = [_under_seed(shard, seed) for seed in shard.params.evaluation.sampling_seeds]
    outcomes = [row for part in parts for row in part.outcomes]
    return replace(parts[0], outcomes=outcomes)


def _under_seed(shard: Shard, seed: int) -> Part:
    params = shard.params
    models = open_models(params, shard.inputs, seed=seed, cached=True)
    domain, policy = models.domain, models.policy
    conditions = Conditions(
        params=params,
        dispersion=policy.reference_dispersion if policy else {},
        patterns=policy.patterns if policy else (),
    )
    left_out = PARTS if params.evaluation.leave_one_out else ()
    methods = tuple(dict.fromkeys((*params.evaluation.methods, *left_out)))

    def report(method: str, number: int, of: int) -> None:
        say(f"evaluation: {shard.name}, seed {seed}: {number} of {of} methods done, {method}")

    with closing(cast(CachedBackend, models.backend)) as backend:
        common = _common(shard, backend)
        found = evaluate(
            domain,
            backend,
            shard.tasks,
            conditions,
            methods=methods,
            report=report,
            recall=lambda own: backend.recall(f"{common} {own}"),
            remember=partial(_remember, backend, common),
        )
        outcomes = [{"sampling_seed": seed, **row} for row in found]
        part = Part(backend.sizes(), outcomes, [], {})
        if seed == params.evaluation.sampling_seeds[0] and shard.tasks[0].split != TRANSFER:
            samples = params.verifier.audit_samples
            with open_grader(params) as grader:
                steps = inspect_samples(
                    domain, backend, shard.tasks, samples=samples, grader=grader
                )
            events = _trace(domain, backend, shard.tasks, conditions)
            part = replace(part, steps=steps, events=events)
        backend.write()
        return part


def _common(shard: Shard, backend: Backend) -> str:
    """What the rows of every method follow from: code, models, problems, how they are graded."""
    models = [backend.identity(kind) for kind in sorted(REQUEST_KINDS)]
    seconds = shard.params.evaluation.grading_seconds
    return repr((CODE, GRADED_BY, models, shard.tasks, seconds))


def _remember(cache: CachedBackend, common: str, own: str, rows: list[Row]) -> None:
    """Keep the rows of a method for later evaluations of the same.

    A grading that ran out of time could end otherwise, so rows with one are made anew.
    """
    if all(row["status"] != TIMEOUT for row in rows):
        cache.remember(f"{common} {own}", rows)


def _trace(
    domain: Domain, backend: Backend, tasks: tuple[Task, ...], conditions: Conditions
) -> dict[str, tuple[Event, ...]]:
    """The full method's events at the headline budget, under the settings of ``search``."""
    full, n = METHODS["full"], conditions.params.evaluation.headline_budget
    searches = {
        task.problem.problem_id: Search(
            full.build(Trial(domain, task, n, (), conditions)), budget=n
        )
        for task in tasks
    }
    results = run_searches(searches, backend, end_of_move=domain.end_of_move, traced=True)
    return {key: result.events for key, result in results.items()}


def _accuracies(rows: pd.DataFrame, budget: int) -> dict[str, float]:
    """Each method's best setting at the headline budget, informative only."""
    greedy = [name for name, method in METHODS.items() if method.kind == "greedy"]
    chosen = rows[(rows["n"] == budget) | rows["method"].isin(greedy)]
    means = chosen.groupby(["method", "setting"])["correct"].mean()
    best = means.groupby("method").max()
    return {f"best_accuracy.{method}": float(value) for method, value in best.items()}
