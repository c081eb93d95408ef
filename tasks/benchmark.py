"""Stage ``benchmark``: generate the problems and check that no test problem is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from selverify.benchmark import build, check_leaks, to_rows
from selverify.domains import domain_by_name
from selverify.params import Params
from tasks.artifacts import write_rows


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``problems`` and ``truths`` of all splits."""
    tasks = build(domain_by_name(params.domain), params.benchmark[params.domain])
    check_leaks(tasks)
    problems, truths = to_rows(tasks)
    write_rows(outputs["benchmark"], "benchmark", "problems", problems)
    write_rows(outputs["benchmark"], "benchmark", "truths", truths)
    return {"problems": len(problems)}
