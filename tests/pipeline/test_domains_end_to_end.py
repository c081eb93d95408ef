"""Every stage after the frozen one, in order, on a handful of problems of each domain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from checkouts import commit, git
from ledger_totals import check_totals
from small_pipeline import HEALTH, ROOT, copy_project, run_stages, set_params, small_params

from flows import published
from flows.execution import execute
from flows.origin import present_origin, record_origin
from flows.sentences import SENTENCES
from selverify.errors import SchemaError
from selverify.models.threshold import resolve_tau
from selverify.params import Params
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import held_out
from tasks import evaluation, verifier
from tasks.artifacts import read_training


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with the backbones that are shipped."""
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    for shipped in (ROOT / "models").glob("*-small"):
        (Path("models") / shipped.name).symlink_to(shipped)
    return tmp_path


@pytest.mark.soak
@pytest.mark.usefixtures("folder")
def test_countdown_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the benchmark to the report, with the backbone that is shipped.

    The reward model learns from its share alone, and tau is chosen on problems that it left out;
    it could be the median if nothing were right.
    """
    seen: dict[str, list[ValuedSolution]] = {}
    train, choose = verifier.TRAINERS["value"], verifier._choose_tau

    def training(solutions: list[ValuedSolution], *given: Any, **options: Any) -> dict[str, float]:
        seen["train"] = solutions
        return train(solutions, *given, **options)

    def choosing(solutions: list[ValuedSolution], params: Params, *places: Any) -> dict[str, float]:
        seen["tau"] = solutions
        wrong = [replace(one, start=0.0, values=(0.0,) * len(one.values)) for one in solutions]
        settings = params.verifier.model_copy(update={"threshold": "median"})
        median = choose(wrong, params.model_copy(update={"verifier": settings}), *places)
        assert set(median) == {"threshold.tau", "threshold.right", "threshold.wrong"}
        return choose(solutions, params, *places)

    monkeypatch.setitem(verifier.TRAINERS, "value", training)
    monkeypatch.setattr(verifier, "_choose_tau", choosing)
    sizes = {"train": 48, "validation": 4, "test": 6}
    splits = {f"benchmark.countdown.{name}.problems": size for name, size in sizes.items()}
    params = small_params({"domain": "countdown", "rollouts.share": 0.5, **splits})
    written = run_stages(params)["report"].outputs
    valued, explored = read_training(Path("data/benchmark"), params.rollouts.share)
    assert len(valued) == len(explored) == 24
    learned, asked = ({one.problem_id for one in seen[name]} for name in ("train", "tau"))
    trained = set(held_out(seen["train"], params.verifier)[0])
    assert learned <= {task.problem.problem_id for task in valued}
    assert not asked & trained and asked & learned == learned - trained
    further = {task.problem.problem_id for task in explored[:17]}  # 0.35 of 48
    assert asked - learned and asked - learned <= further
    report = (written["report"] / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report: countdown, 6 problems, N = 4")
    assert "| Ours (full) |" in report
    assert "## Sampling seeds" not in report and "## Methods by verifier" not in report


@pytest.mark.soak
def test_word_problems_run_to_their_end_under_two_seeds_and_two_verifiers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part of the report, and event logs whose costs are those of the outcomes.

    The evaluation's six shards on two processes give the bytes that they give on one.
    """
    monkeypatch.setattr(evaluation, "SHARD", 2)
    given = {
        "strengths": ["strong", "weak"],
        "verifier.share": {"strong": 1.0, "weak": 0.9},
        "evaluation.sampling_seeds": [81, 82],
        "evaluation.leave_one_out": True,
    }
    params = small_params(given)
    stages = run_stages(params)
    written = stages["report"].outputs
    report = (written["report"] / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# Report: word_problems, 6 problems, 2 sampling seeds, N = 4")
    titles = ("Sampling seeds", "Strength of the verifier", "Methods by verifier", "One part left")
    for title in titles:
        assert f"## {title}" in report
    curves = pd.read_csv(written["report"] / "curves.csv")
    assert set(curves["strength"]) == {"strong", "weak"}
    stage = stages["evaluation@small-strong"]
    check_totals(stage.outputs["evaluation"], resolve_tau(params, stage.inputs["verifier"]))
    names = [
        stage.outputs["evaluation"] / f"{one}.parquet" for one in ("outcomes", "steps", "events")
    ]
    on_two = [name.read_bytes() for name in names]
    alone = {**given, "tracking.threads": 1, "tracking.reply_cache": "another.sqlite"}
    execute(stage, small_params(alone).narrowed(**stage.item), evaluation.run)
    assert [name.read_bytes() for name in names] == on_two
    check_pages(folder, given)


def check_pages(folder: Path, given: dict[str, Any]) -> None:
    """The page that was filled is what its rows give; a number that is not is found."""
    others = ("models/", "data/", "results/", "docs/results/", "flows/", "tests/")
    copy_project(folder, leave_out=others)
    commit(folder)
    other = {"source": "math500", "path": None, "problems": 10, "seed": 1}  # null in params.yaml
    set_params(folder, {**HEALTH, **given, "benchmark.math.transfer": other})
    report = Path("results", "report")
    record_origin(folder, report, present_origin(folder))  # as the stage under Prefect does
    published.fill_pages()
    git(folder, "checkout", "params.yaml")
    published.check_published()
    sentences = folder / SENTENCES / "README.yaml"
    sentences.parent.mkdir()
    sentences.write_text("tables: {}\nsentences: []\n", encoding="utf-8")
    with pytest.raises(SchemaError, match=r"^README\.md: expected what the rows"):
        published.check_published()
    sentences.unlink()
    page = folder / "docs" / "results.md"
    text = page.read_text(encoding="utf-8")
    by_hand, begin, filled = text.partition(":begin -->")
    row = next(line for line in filled.splitlines() if line.startswith("| Ours (full) |"))
    changed = filled.replace(row, f"{row[:-2]}1 |", 1)
    page.write_text(by_hand + begin + changed, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"^results: expected what the rows"):
        published.check_published()
    page.write_text(text, encoding="utf-8")
    figure = next((folder / "docs" / "figures").glob("*.svg"))
    figure.write_bytes(figure.read_bytes() + b" ")
    with pytest.raises(SchemaError, match=r"^results: expected what the rows"):
        published.check_published()
