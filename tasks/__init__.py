"""One thin module a stage: read artifacts, call ``selverify``, write artifacts.

A stage module exposes ``run(params, inputs, outputs)``; one that works on shards takes a ``mapper``
too, which says where they are worked on. It knows no Prefect, DVC or MLflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path

from selverify.errors import ArtifactError
from selverify.params import Params

Run = Callable[[Params, Mapping[str, Path], Mapping[str, Path]], Mapping[str, float]]


def find_run(name: str) -> Run:
    """The ``run`` function of ``tasks/<name>.py``.

    Raises:
        ArtifactError: there is no such module.
    """
    module = f"{__name__}.{name}"
    if find_spec(module) is None:
        raise ArtifactError(f"tasks/{name}.py: no such file; stage {name!r} needs it")
    run: Run = import_module(module).run
    return run


def works_on_shards(run: Run) -> bool:
    """Whether ``run`` takes a ``mapper``."""
    return "mapper" in signature(run).parameters
