"""A stage's outputs are whole or absent, with its metrics beside them; leftovers are removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from small_pipeline import set_params

from flows import environment
from flows.execution import execute
from flows.preflight import (
    check_parameters,
    clean,
    mend_lock,
    remove_leftovers,
    remove_others,
    server_at_work,
)
from flows.profiles import apply_profile
from flows.stages import Stage, load_stages
from flows.tracking import Curve, read_curves
from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.models.sources import read_generator_source
from selverify.params import Params, load_params

PARAMS = load_params(Path(__file__).parents[2] / "params.yaml")


def stage_in(folder: Path, **outputs: Path) -> Stage:
    """A stage without inputs that writes under ``folder``."""
    written = {"work": folder / "work", **outputs}
    return Stage("work", "work", {}, {}, written, (), (), (), frozen=False)


def write_one(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    (outputs["work"] / "a.txt").write_text(params.domain)
    return {"files": 1}


def test_outputs_and_metrics_appear_together(tmp_path: Path) -> None:
    """Without a declared metrics file, the first output's folder holds it."""
    assert execute(stage_in(tmp_path), PARAMS, write_one) == {"files": 1.0}
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["a.txt", "metrics.json"]
    assert json.loads((tmp_path / "work" / "metrics.json").read_text()) == {"files": 1.0}
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_a_declared_metrics_file_is_written_instead(tmp_path: Path) -> None:
    """The report keeps its metrics outside its folder, for git."""
    execute(stage_in(tmp_path, metrics=tmp_path / "metrics.json"), PARAMS, write_one)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.json", "work"]
    assert not (tmp_path / "work" / "metrics.json").exists()


def test_a_failing_stage_leaves_no_output_and_no_temporary(tmp_path: Path) -> None:
    """What it wrote before it failed is gone."""

    def fail(*arguments: object) -> dict[str, float]:
        write_one(*arguments)  # type: ignore[arg-type]
        raise SchemaError("the second half is missing")

    with pytest.raises(SchemaError):
        execute(stage_in(tmp_path), PARAMS, fail)
    assert list(tmp_path.iterdir()) == []


def test_a_stage_that_forgets_an_output_fails(tmp_path: Path) -> None:
    """A declared file that was not written is an error, and the other output is not kept."""
    stage = stage_in(tmp_path, table=tmp_path / "table.csv")
    with pytest.raises(ArtifactError, match=r"table\.csv: nothing was written"):
        execute(stage, PARAMS, write_one)
    assert not (tmp_path / "table.csv").exists()
    assert not list(tmp_path.glob("*.tmp-*"))


def test_a_metric_that_is_no_number_is_named(tmp_path: Path) -> None:
    """NaN in a metrics file would break every reader after it."""
    with pytest.raises(SchemaError, match="metric 'auc' is nan"):
        execute(stage_in(tmp_path), PARAMS, lambda *_: {"auc": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_an_empty_lock_is_removed_and_a_real_one_kept(tmp_path: Path) -> None:
    """An interrupt at a bad moment leaves a lock file of no bytes."""
    lock = tmp_path / "rwlock"
    lock.touch()
    mend_lock(lock)
    assert not lock.exists()
    lock.write_text("{}")
    mend_lock(lock)
    assert lock.exists()


def test_a_leftover_is_not_that_of_a_later_process_of_the_same_number(tmp_path: Path) -> None:
    """The system uses numbers of processes again; who began after the file did not write it."""
    recycled = tmp_path / f"out.tmp-{os.getpid()}"
    recycled.mkdir()
    os.utime(recycled, (0, 0))
    remove_leftovers([tmp_path / "out"])
    assert not recycled.exists()


def test_leftovers_of_dead_writers_are_removed(tmp_path: Path) -> None:
    """A temporary output of a running process stays, as does a file that only looks like one."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, running = tmp_path / f"out.tmp-{ended.pid}", tmp_path / f"out.tmp-{os.getpid()}"
    other = tmp_path / "out.tmp-copy"
    for path in (dead, running, other):
        path.mkdir()
    remove_leftovers([tmp_path / "out"])
    assert sorted(tmp_path.iterdir()) == sorted([running, other])


def test_an_output_that_stepped_aside_comes_back(tmp_path: Path) -> None:
    """A kill between two renames leaves the older output under another name only."""
    output, other = tmp_path / "work", tmp_path / "more"
    for path in (tmp_path / "work.old-999999999", other, tmp_path / "more.old-999999999"):
        path.mkdir()
        (path / "rows").write_text(path.name, encoding="utf-8")
    remove_leftovers([output, other])
    assert (output / "rows").read_text(encoding="utf-8") == "work.old-999999999"
    assert (other / "rows").read_text(encoding="utf-8") == "more"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["more", "work"]


@pytest.mark.usefixtures("parameters")
def test_combinations_that_are_not_asked_for_leave_the_folders_that_are_read_whole() -> None:
    """The others and the folders that are read as they are stay; so does what no stage wrote."""
    stages = load_stages(PARAMS)
    kept, single = Path("results/evaluation/small-strong"), Path("data/benchmark/inside")
    others = [kept.with_name(name) for name in ("base-weak", "smollm2-strong", "base-weak.tmp-1")]
    own = Path("data/difficulty/small-before")
    for folder in (kept, single, *others, own):
        folder.mkdir(parents=True)
    with pytest.raises(ArtifactError, match=r"small-before: given no stage's output, expected"):
        remove_others(stages)
    assert own.is_dir() and all(folder.is_dir() for folder in others)
    own.rmdir()
    remove_others(stages)
    assert kept.is_dir() and single.is_dir() and not any(folder.exists() for folder in others)


@pytest.mark.parametrize("at_work", ["server", "experiment", "dvc"])
def test_clean_removes_nothing_from_what_is_at_work(parameters: Path, at_work: str) -> None:
    """A server, an experiment in its copy, or DVC, which makes the copy first."""
    output, copy = parameters / "data" / "benchmark", parameters / ".dvc/tmp/exps/standalone/tmp"
    output.mkdir(parents=True)
    copy.mkdir(parents=True)
    if at_work == "server":
        with server_at_work(), pytest.raises(ProtocolError, match="a Prefect server is at work"):
            clean()
    else:
        program = parameters / at_work
        program.write_text("print(flush=True); input()")
        with subprocess.Popen(
            [sys.executable, program],
            cwd=copy if at_work == "experiment" else parameters,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None and process.stdout.readline()
            with pytest.raises(ProtocolError, match=f"process {process.pid} runs DVC or an exp"):
                clean()
            process.communicate(b"\n")
    assert output.is_dir() and copy.is_dir()
    clean()
    assert not output.exists() and not copy.exists()


def test_a_check_of_parameters_names_the_models_that_are_not_trained_here(parameters: Path) -> None:
    """Under plain DVC it runs first: stages would else run with the model as it was."""
    apply_profile("served")
    check_parameters()
    folder = Path("models/math-served")
    named = read_generator_source(folder)
    set_params(parameters, {"generator.math.served.url": "http://127.0.0.1:9000/v1"})
    check_parameters()
    assert read_generator_source(folder) == named.model_copy(
        update={"url": "http://127.0.0.1:9000/v1"}
    )


def test_curves_are_read_one_a_method_and_fold(tmp_path: Path) -> None:
    """The nominal budget n is the step, and empty cells are left out."""
    path = tmp_path / "curves.csv"
    path.write_text("method,fold,n,accuracy,calls\nfull,0,2,0.5,1\nfull,0,4,0.6,\nfull,1,2,0.4,1\n")
    assert read_curves(path) == (
        Curve(
            {"method": "full", "fold": "0"},
            (("accuracy", 0.5, 2), ("calls", 1.0, 2), ("accuracy", 0.6, 4)),
        ),
        Curve({"method": "full", "fold": "1"}, (("accuracy", 0.4, 2), ("calls", 1.0, 2))),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method,fold\nfull,2\n", "'n' is not in list, expected a column 'n'"),
        ("method,fold,n,a\nfull,0,2,x\n", "could not convert string to float: 'x', expected"),
        ("method,fold,n,a\nfull,0,two,1\n", "invalid literal .* 'two', expected"),
    ],
)
def test_a_broken_curve_is_named(tmp_path: Path, text: str, message: str) -> None:
    """A missing column or a cell that is no number is a SchemaError."""
    path = tmp_path / "curves.csv"
    path.write_text(text)
    with pytest.raises(SchemaError, match=message):
        read_curves(path)


def test_the_environment_is_set_and_a_given_value_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telemetry is off, homes are in the project, and ``python`` is this interpreter."""
    for name in environment.settings(tmp_path):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv("PATH", "/nowhere")
    environment.load(tmp_path)
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert os.environ["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/nowhere"]
    assert os.environ["PREFECT_HOME"] == str(tmp_path.resolve() / ".prefect")
    assert os.environ["MLFLOW_TRACKING_URI"].startswith("sqlite:////")
    off = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DVC_NO_ANALYTICS": "1"}
    off |= {"DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    off |= {"HF_HUB_DISABLE_TELEMETRY": "1"}
    assert {name: os.environ[name] for name in off} == off


def test_importing_the_package_loads_the_environment() -> None:
    """No tool can be imported by a flow before its telemetry is off."""
    assert environment.settings(Path.cwd()).keys() <= os.environ.keys()
