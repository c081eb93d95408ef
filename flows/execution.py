"""A stage without any orchestration: inputs checked, outputs whole or absent, metrics beside them.

Knows: stages and files. Does not know: Prefect, MLflow, what the stage computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack

from flows.stages import Stage, check_inputs
from selverify.errors import SchemaError
from selverify.params import Params
from selverify.storage import atomic_path, write_plain_json
from tasks import Run


def execute(stage: Stage, params: Params, run: Run) -> dict[str, float]:
    """Call ``run`` on temporary outputs, and rename these when it succeeds.

    An output without a suffix is a directory and exists, empty, when ``run`` starts. The returned
    metrics are written as ``metrics.json``; they must not depend on the clock, or equal work
    would give unequal files.

    Raises:
        ArtifactError: an input is missing, or an output was not written.
        SchemaError: a metric is no finite number.
    """
    check_inputs(stage)
    with ExitStack() as stack:
        outputs = {
            key: stack.enter_context(atomic_path(path)) for key, path in stage.outputs.items()
        }
        for key, path in stage.outputs.items():
            if not path.suffix:
                outputs[key].mkdir()
        metrics = _finite(stage.task, run(params, stage.inputs, outputs))
        declared = {path: outputs[key] for key, path in stage.outputs.items()}
        beside = outputs[stage.task] / stage.metrics.name
        write_plain_json(declared.get(stage.metrics, beside), metrics)
    return metrics


def _finite(name: str, metrics: Mapping[str, float]) -> dict[str, float]:
    numbers = {key: float(value) for key, value in metrics.items()}
    for key, value in numbers.items():
        if not math.isfinite(value):
            raise SchemaError(f"tasks/{name}.py: metric {key!r} is {value}; expected a number")
    return numbers
