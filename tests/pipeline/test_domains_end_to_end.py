"""Every stage after the frozen one, in order, on a handful of problems of each domain."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
from ledger_totals import check_totals

from flows.stages import PARAMS_FILE, PIPELINE_FILE, load_stages
from selverify.params import Benchmark, Params, load_params
from tasks import evaluation
from tasks.artifacts import read_training
from tasks.models import resolve_tau

ROOT = Path(__file__).parents[2]
SIZES = {"train": 80, "validation": 4, "test": 6}


def small(domain: str, *, strengths: tuple[str, ...], **evaluation: object) -> Params:
    """The project's parameters with little of everything."""
    params = load_params(ROOT / PARAMS_FILE)
    benchmark: Benchmark = params.benchmark[domain]
    splits = {
        name: getattr(benchmark, name).model_copy(update={"problems": count})
        for name, count in SIZES.items()
    }
    changes = {
        "rollouts": {"solutions": 4, "rollouts": 2, "share": 0.5},
        "verifier": {"audit_samples": 1, "tune_epochs": 2, "share": {"strong": 1.0, "weak": 0.9}},
        "difficulty": {"samples": 4},
        "exploration": {"proposals": 8},
        "residual": {"epochs": 2},
        "evaluation": {
            "problems": 6,
            "budgets": (2, 4),
            "headline_budget": 4,
            "repetitions": 1,
            "resamples": 50,
            "grid": params.evaluation.grid.model_copy(
                update={"k_base": (2.0,), "skip_below": (0.05,), "proposals": (8, 16)}
            ),
            **evaluation,
        },
    }
    sections = {
        name: getattr(params, name).model_copy(update=values) for name, values in changes.items()
    }
    return params.model_copy(
        update={
            "domain": domain,
            "strengths": strengths,
            "benchmark": {domain: benchmark.model_copy(update=splits)},
            **sections,
        }
    )


def run_all(params: Params, folder: Path) -> dict[str, Path]:
    """Run every stage but the frozen one in ``folder``; the outputs of the report."""
    stages = load_stages(params, ROOT / PIPELINE_FILE)
    shipped = Path("models") / f"{params.domain}-small"
    (folder / "models").mkdir()
    (folder / shipped).symlink_to(ROOT / shipped)
    for stage in stages.values():
        if stage.frozen:
            continue
        for path in stage.outputs.values():
            (path.parent if path.suffix else path).mkdir(parents=True, exist_ok=True)
        run = import_module(f"tasks.{stage.task}").run
        run(params.narrowed(**stage.item), stage.inputs, stage.outputs)
    return dict(stages["report"].outputs)


def test_countdown_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the benchmark to the report, with the backbone that is shipped."""
    monkeypatch.chdir(tmp_path)
    params = small("countdown", strengths=("strong",))
    written = run_all(params, tmp_path)
    valued, explored = read_training(Path("data/benchmark"), params.rollouts.share)
    assert len(valued) == len(explored) == 40
    report = (written["report"] / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report: countdown, 6 problems, N = 4")
    assert "| Full (gates + hybrid + k(w)) |" in report
    assert "## Sampling seeds" not in report and "## Methods by verifier" not in report


@pytest.mark.soak
def test_word_problems_run_to_their_end_under_two_seeds_and_two_verifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part of the report, and event logs whose costs are those of the outcomes.

    The evaluation's six shards on two processes give the bytes that they give on one.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "SHARD", 2)
    params = small(
        "word_problems",
        strengths=("strong", "weak"),
        sampling_seeds=(81, 82),
        leave_one_out=True,
    )
    written = run_all(params, tmp_path)
    report = (written["report"] / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report: word_problems, 6 problems, 2 sampling seeds, N = 4")
    titles = ("Sampling seeds", "Strength of the verifier", "Methods by verifier", "One part left")
    for title in titles:
        assert f"## {title}" in report
    curves = pd.read_csv(written["report"] / "curves.csv")
    assert set(curves["strength"]) == {"strong", "weak"}
    folder = Path("results/evaluation/small-strong")
    check_totals(folder, resolve_tau(params, Path("models/small-strong/verifier")))
    alone = params.tracking.model_copy(update={"threads": 1, "reply_cache": "another.sqlite"})
    stage = load_stages(params, ROOT / PIPELINE_FILE)["evaluation@small-strong"]
    again = {name: tmp_path / "again" / path.name for name, path in stage.outputs.items()}
    again["evaluation"].mkdir(parents=True)
    evaluation.run(
        params.model_copy(update={"tracking": alone}).narrowed(**stage.item), stage.inputs, again
    )
    for name in ("outcomes", "steps", "events"):
        first, second = (
            (place / f"{name}.parquet").read_bytes() for place in (folder, again["evaluation"])
        )
        assert first == second, name
