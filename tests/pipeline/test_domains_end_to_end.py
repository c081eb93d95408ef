"""Every stage after the frozen one, in order, on a handful of problems of each domain."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from flows.stages import PARAMS_FILE, PIPELINE_FILE, load_stages
from selverify.params import Benchmark, Params, load_params
from tasks.artifacts import read_training

ROOT = Path(__file__).parents[2]
TAU = {"word_problems": 0.8, "countdown": 0.4}  # such that the small verifier rejects some
SIZES = {"train": 80, "validation": 4, "test": 6}


def small(domain: str) -> Params:
    """The project's parameters with little of everything."""
    params = load_params(ROOT / PARAMS_FILE)
    benchmark: Benchmark = params.benchmark[domain]
    splits = {
        name: getattr(benchmark, name).model_copy(update={"problems": count})
        for name, count in SIZES.items()
    }
    changes = {
        "rollouts": {"solutions": 4, "rollouts": 2, "share": 0.5},
        "verifier": {"audit_samples": 1},
        "difficulty": {"samples": 4},
        "exploration": {"proposals": 8, "tau": TAU[domain]},
        "residual": {"epochs": 2},
        "evaluation": {
            "problems": 6,
            "budgets": (2, 4),
            "headline_budget": 4,
            "repetitions": 1,
            "resamples": 50,
        },
    }
    sections = {
        name: getattr(params, name).model_copy(update=values) for name, values in changes.items()
    }
    return params.model_copy(
        update={
            "domain": domain,
            "benchmark": {domain: benchmark.model_copy(update=splits)},
            **sections,
        }
    )


@pytest.mark.parametrize("domain", ["word_problems", "countdown"])
def test_the_chain_runs_to_its_end(
    domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the benchmark to the report, with the backbone that is shipped."""
    monkeypatch.chdir(tmp_path)
    params = small(domain)
    stages = load_stages(params, ROOT / PIPELINE_FILE)
    shipped = Path("models") / f"{domain}-small"
    (tmp_path / "models").mkdir()
    (tmp_path / shipped).symlink_to(ROOT / shipped)
    for name, stage in stages.items():
        if stage.frozen:
            continue
        for path in stage.outputs.values():
            (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
        import_module(f"tasks.{name}").run(params, stage.inputs, stage.outputs)
    valued, explored = read_training(Path("data/benchmark"), params.rollouts.share)
    assert len(valued) == len(explored) == 40
    report = Path("results/report/report.md").read_text(encoding="utf-8")
    assert report.startswith(f"# Report: {domain}, 6 problems, N = 4")
    assert "| Full (gates + hybrid + k(w)) |" in report
