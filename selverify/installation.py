"""Is everything there to solve a problem? One check at a time, each a line.

Knows: packages, the models folder. Does not know: how its findings are shown.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
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
SMOKE_SIZE, SMOKE_BUDGET = 4, 4


@dataclass(frozen=True, slots=True)
class Check:
    """One line: ``status`` is ``ok``, ``failed`` or ``skipped``."""

    status: str
    name: str
    text: str


def checks(models: Path) -> Iterator[Check]:
    """Python, packages, the models, one problem solved."""
    yield Check("ok", "Python", platform.python_version())
    for package in PACKAGES:
        yield _package(package)
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
