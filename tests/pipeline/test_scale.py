"""``python -m flows scale``: measured figures in proportion, and one sentence for anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.scale import scale
from flows.stages import PARAMS_FILE
from selverify.models.sources import write_source
from selverify.params import load_params

PROBLEMS, ROWS = 4, 40


@pytest.fixture
def measured(parameters: Path) -> Path:
    """A report of one method; the folder of the evaluation, which is not there yet."""
    (parameters / "results" / "report").mkdir(parents=True)
    metrics = {"budget": 64, "full.verifier_calls": 6.5, "full.generated_tokens": 500.0}
    (parameters / "results" / "report" / "details.json").write_text(json.dumps(metrics))
    return parameters / "results" / "evaluation" / "small-strong"


def evaluate(folder: Path) -> int:
    """Write a table of outcomes; its size."""
    folder.mkdir(parents=True)
    names = [f"p{row % PROBLEMS}" for row in range(ROWS)]
    pq.write_table(pa.table({"problem_id": names}), folder / "outcomes.parquet")
    return (folder / "outcomes.parquet").stat().st_size


def test_calls_tokens_and_prices_are_in_proportion(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale("--problems", "100000", "--machines", "50", "--million-tokens", "2")
    printed = capsys.readouterr().out
    assert printed.startswith("100,000 problems on 50 machines: 800 shards of 125, 16 a machine\n")
    (line,) = [one for one in printed.splitlines() if one.startswith("full")]
    assert line.split() == ["full", "6.50", "650,000", "500.0", "50,000,000", "100.00"]
    assert "evaluation@small-strong is not here" in printed


def test_shards_of_a_model_of_the_hub_are_large(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As its evaluation has them, whether the model is here or not."""
    given = load_params(PARAMS_FILE)
    hub = given.model_copy(update={"domain": "grade_school", "backbones": ("smollm2",)})
    monkeypatch.setattr("flows.scale.load_params", lambda path: hub)
    scale("--problems", "100000", "--machines", "50")
    assert "250 shards of 400, 5 a machine" in capsys.readouterr().out


def test_storage_and_rows_are_those_of_the_last_evaluation(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time that MLflow recorded, of two workers but for a single shard, is in proportion."""
    size = evaluate(measured)
    monkeypatch.setattr("flows.tracking.seconds_of", lambda stage, params: 8.0)
    scale("--problems", str(1000 * PROBLEMS), "--machines", "10", "--core-hour", "3.6")
    lines = capsys.readouterr().out.splitlines()
    (stored,) = [one for one in lines if one.startswith("outcomes.parquet")]
    per_problem, whole, share = size / 4, size, size / 10  # the last two in thousands
    assert stored.split()[1:] == f"{per_problem:.1f} B {whole:.1f} KB {share:.1f} KB".split()
    assert "rows of outcomes.parquet, gathered by one process: 10 a problem, 40,000 in all" in lines
    assert "time: 2.00 core seconds a problem, 2.2 core hours, 0.2 a machine" in lines
    assert "price of the cores: 8.00" in lines


def test_time_is_that_of_as_many_cores_as_the_stage_had(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One for a shard on one thread; all for one that asks a model of the hub, on all threads."""
    evaluate(measured)
    monkeypatch.setattr("flows.tracking.seconds_of", lambda stage, params: 8.0)
    generator = load_params(PARAMS_FILE).generator["math"]["llama1b"]
    text = PARAMS_FILE.read_text(encoding="utf-8")
    scheduler = text.replace("dask: null", "dask: tcp://127.0.0.1:8786")
    for source, written, told in (
        (None, text, "time: 2.00 core seconds a problem"),
        (generator, text, "time: 4.00 core seconds a problem"),
        (generator, text.replace("runner: local", "runner: dask"), "time: 4.00 core seconds"),
        (generator, scheduler.replace("runner: local", "runner: dask"), "time: unknown"),
    ):
        PARAMS_FILE.write_text(written, encoding="utf-8")
        if source is not None:
            write_source(Path("models/word_problems-small"), source)
        scale("--problems", "4", "--machines", "1")
        assert told in capsys.readouterr().out
