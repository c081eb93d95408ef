"""Every stage on a benchmark from files, with a model that knows nothing of this project.

The model is an ordinary causal one of another tokenizer, the verifier a head on its hidden states:
the stages, the files and the report are those of the domains that the project draws itself.
"""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import tiny_sums
import yaml
from ledger_totals import check_totals
from test_domains_end_to_end import ROOT

from flows.preflight import name_sources
from flows.profiles import PROFILES, apply_profile
from flows.stages import PARAMS_FILE, PIPELINE_FILE, load_stages
from selverify.errors import SchemaError
from selverify.models.sources import read_generator_source
from selverify.params import Params, Pretrained, TextBenchmark, TextSplit, load_params
from selverify.policy import load_policy
from tasks.artifacts import read_rows
from tasks.models import open_models, resolve_tau

PROBLEMS = {"train": 160, "validation": 10, "test": 12}
METHODS = (
    "cot", "majority", "majority_gated", "best_of_n", "best_of_n_gated", "beam_keep_b",
    "beam_keep_b_gated", "beam_snell", "beam_snell_gated", "dvts", "dvts_gated", "verify_all",
    "gates_only", "gates_distance", "full", "full_always_asks", "ranker_only",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_sums.build(tmp_path_factory.mktemp("sums"))


def text_params(model: Path, folder: Path) -> Params:
    """The project's parameters with little of everything, on files of ``folder``."""
    params = load_params(ROOT / PARAMS_FILE)
    pool, test = folder / "pool.jsonl", folder / "test.jsonl"
    tiny_sums.write_questions(pool, count=200, seed=1)
    tiny_sums.write_questions(test, count=PROBLEMS["test"], seed=2)
    splits = {
        name: TextSplit(
            source="file",
            path=str(test if name == "test" else pool),
            problems=count,
            seed=seed,
        )
        for seed, (name, count) in enumerate(PROBLEMS.items())
    }
    source = Pretrained(
        kind="transformers",
        model=str(model),
        revision=None,
        dtype="float32",
        prompt=None,
        kept_tokens=20_000,
    )
    sampling = params.sampling["word_problems"].model_copy(
        update={"max_move_tokens": 16, "max_solution_tokens": 48, "max_moves": 6}
    )
    changes = {
        "rollouts": {"solutions": 6, "rollouts": 4, "share": 0.5},
        "verifier": {"kind": {"math": "head"}, "audit_samples": 2, "epochs": 40},
        "difficulty": {"samples": 8},
        "exploration": {"proposals": 8},
        "residual": {"epochs": 3},
        "evaluation": {
            "problems": PROBLEMS["test"],
            "budgets": (2, 4),
            "headline_budget": 4,
            "methods": METHODS,
            "repetitions": 1,
            "resamples": 50,
            "grid": params.evaluation.grid.model_copy(
                update={"k_base": (2.0,), "skip_below": (0.05,), "proposals": (8, 16)}
            ),
        },
    }
    sections = {
        name: getattr(params, name).model_copy(update=values) for name, values in changes.items()
    }
    return params.model_copy(
        update={
            "domain": "math",
            "backbones": ("sums",),
            "benchmark": {"math": TextBenchmark(**splits)},
            "generator": {"math": {"sums": source}},
            "sampling": {"math": sampling},
            **sections,
        }
    )


def test_a_benchmark_of_files_and_a_model_of_another_house_run_to_the_report(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model and all that it needs were stated by a profile."""
    monkeypatch.chdir(tmp_path)
    params = by_profile(text_params(model, tmp_path))
    stages = load_stages(params, ROOT / PIPELINE_FILE)
    assert name_sources(params, stages) == [Path("models/math-sums")]
    assert name_sources(params, stages) == []  # it says so already
    assert read_generator_source(Path("models/math-sums")) == params.generator["math"]["sums"]
    for stage in stages.values():
        if stage.frozen:
            continue
        for path in stage.outputs.values():
            (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
        import_module(f"tasks.{stage.task}").run(
            params.narrowed(**stage.item), stage.inputs, stage.outputs
        )
    report = (stages["report"].outputs["report"] / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report: math, 12 problems, N = 4")
    assert "| Full (gates + hybrid + k(w)) |" in report
    check_totals(
        Path("results/evaluation/sums-strong"),
        resolve_tau(params, Path("models/sums-strong/verifier")),
    )
    check_truth()
    check_policy(params)
    check_another_model_is_refused(params, dict(stages["difficulty@sums"].inputs))


def by_profile(stated: Params) -> Params:
    """What ``params.yaml`` says after a profile that states all of ``stated`` was laid over it."""
    for name in (PARAMS_FILE, PIPELINE_FILE):
        shutil.copy(ROOT / name, name)
    PROFILES.mkdir()
    values = stated.model_dump(mode="json", exclude={"tracking"})
    (PROFILES / "sums.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    assert apply_profile("sums")["generator.math.sums.revision"] is None
    params = load_params(PARAMS_FILE)
    assert params.generator["math"]["sums"] == stated.generator["math"]["sums"]
    return params


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
