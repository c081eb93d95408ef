"""Is everything there to solve a problem? One check at a time, each a line.

Knows: packages, the models folder. Does not know: how its findings are shown. Prefect is asked for
in a process of its own, because this library does not import it.
"""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from selverify.domains.base import knows_truth
from selverify.policy import TrainedPolicy, load_policy

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "math-verify",
)
SERVER = "prefect.server.api.server"
SERVER_SECONDS = 120
SMOKE_SIZE, SMOKE_BUDGET = 4, 4


@dataclass(frozen=True, slots=True)
class Check:
    """One line: ``status`` is ``ok``, ``failed`` or ``skipped``."""

    status: str
    name: str
    text: str


def checks(models: Path, *, pipeline: bool) -> Iterator[Check]:
    """Python, packages, Prefect's server (if ``pipeline``), the models, one problem solved."""
    yield Check("ok", "Python", platform.python_version())
    for package in PACKAGES:
        yield _package(package)
    if pipeline:
        yield _server()
    loaded: list[TrainedPolicy] = []
    yield _attempt("models", lambda: _load(models, loaded))
    if loaded:
        yield _attempt("solving", lambda: _solve(loaded[0]))
    else:
        yield Check("skipped", "solving", "no models to solve with")


def _package(name: str) -> Check:
    try:
        return Check("ok", name, version(name))
    except PackageNotFoundError:
        return Check("failed", name, "not installed")


def _server() -> Check:
    if find_spec("prefect") is None:
        return Check("skipped", "Prefect", "not installed; only the pipeline needs it")
    with tempfile.TemporaryDirectory() as home:
        quiet = {"PREFECT_HOME": home, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", f"import {SERVER}"],
                env={**os.environ, **quiet},
                capture_output=True,
                text=True,
                timeout=SERVER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            text = f"{SERVER} is not imported after {SERVER_SECONDS} seconds"
            return Check("failed", "Prefect", text)
    if done.returncode:
        return Check("failed", "Prefect", f"{SERVER} does not import: {_last(done.stderr)}")
    return Check("ok", "Prefect", f"{version('prefect')}, its server imports")


def _attempt(name: str, work: Callable[[], str]) -> Check:
    try:
        return Check("ok", name, work())
    except Exception as error:  # whatever goes wrong here is what the check is for
        return Check("failed", name, f"{type(error).__name__}: {_last(str(error))}")


def _load(models: Path, loaded: list[TrainedPolicy]) -> str:
    policy = load_policy(models)
    loaded.append(policy)
    return f"{policy.policy_settings.backbone}, verifier and policy load from {models}"


def _solve(policy: TrainedPolicy) -> str:
    if not knows_truth(policy.domain):
        return f"a policy for {policy.domain.name}, whose problems come from files: none is solved"
    problem, truth = policy.domain.generate(
        random.Random(0), problem_id="check", minimum=SMOKE_SIZE, maximum=SMOKE_SIZE
    )
    solved = policy.solve(problem, budget=SMOKE_BUDGET)
    found = "no answer" if solved.answer is None else f"answer {solved.answer}"
    return f"{found} after {solved.verifier_calls} verifier calls (right: {truth.answer})"


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
