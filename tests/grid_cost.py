"""What cross-validation's settings cost: ``python tests/grid_cost.py`` after ``make run``.

Knows: the default run's models and problems. Does not know: Prefect, DVC. The full method on one
shard of test problems: one setting, the default grid, and the grid of ``profiles/grid.yaml``, each
first with an empty cache of replies and then with a full one. Seconds are the processor's, on one
thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import cast

import torch

from flows.profiles import PROFILES, read_profile
from selverify.experiment.evaluation import evaluate
from selverify.experiment.methods import METHODS, Conditions, points_of
from selverify.models.reply_cache import CachedBackend
from selverify.models.threshold import resolve_tau
from selverify.params import Params, load_params
from tasks.artifacts import read_tasks
from tasks.evaluation import SHARD
from tasks.models import open_models

INPUTS = {
    "benchmark": Path("data/benchmark"),
    "generator": Path("models/word_problems-small"),
    "verifier": Path("models/small-strong/verifier"),
    "residual": Path("models/small-strong/policy"),
}


def main() -> None:
    """Measure and print a table."""
    torch.set_num_threads(1)
    params = load_params(Path("params.yaml")).narrowed(backbone="small", strength="strong")
    params = resolve_tau(params, INPUTS["verifier"])
    grid = params.evaluation.grid
    prefix = "evaluation.grid."
    large = {
        name.removeprefix(prefix): values for name, values in read_profile(PROFILES, "grid").items()
    }
    own = {axis: (getattr(params.search, axis),) for axis in METHODS["full"].grid}
    grids = {
        "one": {**grid.model_dump(), **own},
        "default": grid.model_dump(),
        "profile grid": {**grid.model_dump(), **large},
    }
    print("| grid | settings | s, no reply known | s, all known |\n| --- | ---: | ---: | ---: |")
    for name, values in grids.items():
        chosen = params.evaluation.model_copy(update={"grid": type(grid).model_validate(values)})
        given = resolve_tau(params.model_copy(update={"evaluation": chosen}), INPUTS["verifier"])
        with tempfile.TemporaryDirectory() as folder:
            seconds = [_seconds(given, Path(folder) / "replies.sqlite") for _ in range(2)]
        settings = len(points_of(METHODS["full"], given))
        print(f"| {name} | {settings} | {seconds[0]:.1f} | {seconds[1]:.1f} |", flush=True)


def _seconds(params: Params, cache: Path) -> float:
    tracking = params.tracking.model_copy(update={"threads": 1, "reply_cache": str(cache)})
    params = params.model_copy(update={"tracking": tracking})
    CachedBackend.create(cache)
    seed = params.evaluation.sampling_seeds[0]
    models = open_models(params, INPUTS, seed=seed, cached=True)
    assert models.policy is not None
    backend = cast(CachedBackend, models.backend)
    conditions = Conditions(params, models.policy.reference_dispersion, models.policy.patterns)
    tasks = read_tasks(INPUTS["benchmark"], "test")[:SHARD]
    began = time.process_time()
    try:
        evaluate(
            models.domain,
            backend,
            tasks,
            conditions,
            methods=("full",),
            report=lambda method, number, of: None,
        )
        seconds = time.process_time() - began
        backend.write()
        return seconds
    finally:
        backend.close()


if __name__ == "__main__":
    main()
