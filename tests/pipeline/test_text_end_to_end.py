"""Every stage on a benchmark from files, with a model that knows nothing of this project.

The model is an ordinary causal one of another tokenizer, the verifier a head on its hidden states:
the stages, the files and the report are those of the domains that the project draws itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import stand_in
import tiny_sums
import yaml
from ledger_totals import check_totals
from small_pipeline import HEALTH, METHODS, ROOT, lay, run_stages

from flows.preflight import name_sources
from flows.profiles import PROFILES, apply_profile
from flows.stages import PARAMS_FILE, PIPELINE_FILE, load_stages
from selverify.errors import SchemaError
from selverify.models.sources import read_generator_source
from selverify.models.threshold import resolve_tau
from selverify.params import Params, load_params
from selverify.policy import load_policy
from tasks.artifacts import read_rows
from tasks.models import open_models

POOL, TEST, OTHER = "pool.jsonl", "test.jsonl", "other.jsonl"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_sums.build(tmp_path_factory.mktemp("sums"))


def stated_by_profile(model: Path) -> Params:
    """What ``params.yaml`` says after a profile that states the benchmark, the model and sizes."""
    files = {
        **{"train": (POOL, 160), "validation": (POOL, 10), "test": (TEST, 12)},
        "transfer": (OTHER, 6),
    }
    source = {"kind": "transformers", "model": str(model), "revision": None, "dtype": "float32"}
    changes = {
        "domain": "math",
        "backbones": ["sums"],
        "benchmark.math": {
            name: {"source": "file", "path": path, "problems": count, "seed": seed}
            for seed, (name, (path, count)) in enumerate(files.items())
        },
        "generator.math.sums": {
            **source,
            "prompt": None,
            "kept_tokens": 20_000,
            "exact_values": False,
            "alphabet": None,
            "tuning": None,
        },
        "sampling.math": {"max_move_tokens": 16, "max_solution_tokens": 48, "max_moves": 6},
        "rollouts": {"solutions": 6, "rollouts": 4, "share": 0.5},
        "verifier": {
            "kind": {"math": "head"},
            "audit_samples": 2,
            "audit_rollouts": 4,
            "epochs": 40,
        },
        "difficulty.samples": 8,
        "residual.epochs": 3,
        "evaluation.problems": 12,
        "evaluation.methods": METHODS,
    }
    of_health = {name: value for name, value in HEALTH.items() if "benchmark" not in name}
    for name in (PARAMS_FILE, PIPELINE_FILE):
        shutil.copy(ROOT / name, name)
    PROFILES.mkdir()
    text = yaml.safe_dump(lay(lay({}, of_health), changes))
    (PROFILES / "sums.yaml").write_text(text, encoding="utf-8")
    assert apply_profile("sums")["generator.math.sums.revision"] is None
    return load_params(PARAMS_FILE)


@pytest.mark.soak  # the model is trained first
def test_a_benchmark_of_files_and_a_model_of_another_house_run_to_the_report(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model and all that it needs were stated by a profile."""
    monkeypatch.chdir(tmp_path)
    stand_in.write_questions(Path(POOL), count=200, seed=1)
    stand_in.write_questions(Path(TEST), count=12, seed=2)
    stand_in.write_questions(Path(OTHER), count=6, seed=3)
    params = stated_by_profile(model)
    stages = load_stages(params)
    assert name_sources(params, stages) == [Path("models/math-sums")]
    assert name_sources(params, stages) == []  # it says so already
    assert read_generator_source(Path("models/math-sums")) == params.generator["math"]["sums"]
    run_stages(params)
    report = (stages["report"].outputs["report"] / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report: math, 12 problems, N = 4")
    assert "| Ours (full) |" in report
    assert "## On 6 questions of another benchmark" in report
    check_totals(
        Path("results/evaluation/sums-strong"),
        resolve_tau(params, Path("models/sums-strong/verifier")),
    )
    check_truth()
    check_policy(params)
    check_another_model_is_refused(params, dict(stages["difficulty@sums"].inputs))


def check_truth() -> None:
    """Where nobody knows which steps are right, only answers are judged."""
    steps = pd.DataFrame(read_rows(Path("results/evaluation/sums-strong"), "evaluation", "steps"))
    judged = steps[steps["before"]]
    assert 0 < judged["alive"].mean() < 1
    assert not steps[~steps["before"]]["alive"].any()
    assert (steps["gate"] == "context").any(), "false sums are there and are refused"


def check_policy(params: Params) -> None:
    """The trained policy solves questions that are typed in."""
    policy = load_policy("models/sums-strong")
    solved = policy.solve("What is 2+3+4?", budget=8)
    assert solved.derivation
    assert solved == policy.solve("What is 2+3+4?", budget=8)
    assert policy.longest is None
    assert params.domain == policy.domain.name


def check_another_model_is_refused(params: Params, inputs: dict[str, Path]) -> None:
    """The frozen stage was run for other parameters: nothing runs on the wrong model."""
    sums = params.generator["math"]["sums"].model_copy(update={"dtype": "bfloat16"})
    changed = params.model_copy(update={"generator": {"math": {"sums": sums}}})
    with pytest.raises(SchemaError, match=r"generator\.math\.sums says; run python -m flows gen"):
        open_models(changed, inputs, seed=1)
