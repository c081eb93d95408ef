"""``dvc.yaml``, ``params.yaml``, the stage modules and the files of the repository agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from import_closure import closure

from flows.stages import Stage, check_inputs, find_stage, load_stages, used_params
from selverify.errors import ArtifactError, ParamsError
from selverify.params import Params, load_params
from tasks import find_run

ROOT = Path(__file__).parents[2]
PARAMS: Params = load_params(ROOT / "params.yaml")
STAGES = load_stages(PARAMS, ROOT / "dvc.yaml")
ORDER = (
    "benchmark",
    "generator",
    "rollouts",
    "verifier",
    "difficulty",
    "exploration",
    "residual",
    "evaluation",
    "report",
)
# Checks and messages change no result, nor do package files that hold a docstring only.
NEUTRAL = {"selverify/__init__.py", "selverify/errors.py", "selverify/params.py"}
NEUTRAL_TASKS = "tasks/__init__.py"
# Threads and the place of the reply cache are the machine's, not the result's.
NEUTRAL_SECTIONS = {"tracking", "yaml"}

every_stage = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())


def test_the_stages_are_those_of_the_design() -> None:
    """Each has its name once, and producers stand before consumers."""
    assert set(STAGES) == set(ORDER)
    names = list(STAGES)
    for stage in STAGES.values():
        for producer in stage.producers.values():
            assert names.index(producer) < names.index(stage.name)


@every_stage
def test_every_stage_has_a_module(stage: Stage) -> None:
    """``tasks/<stage>.py`` exposes ``run``."""
    assert callable(find_run(stage.name))


@every_stage
def test_every_source_dependency_stands_in_the_repository(stage: Stage) -> None:
    """A path that no stage writes must be a file or folder of the repository."""
    assert [path for path in stage.sources if not (ROOT / path).exists()] == []


@every_stage
def test_every_parameter_of_a_stage_exists(stage: Stage) -> None:
    """The dotted names of ``dvc.yaml`` are names of ``params.yaml``."""
    assert used_params(stage, PARAMS)


@every_stage
def test_every_imported_module_is_a_dependency(stage: Stage) -> None:
    """A changed helper never leaves a stale result."""
    needed = closure(ROOT, Path("tasks") / f"{stage.name}.py")
    covered = {path for path in needed if set(stage.sources) & {path, *path.parents}}
    missing = {path.as_posix() for path in needed - covered} - NEUTRAL - {NEUTRAL_TASKS}
    assert sorted(missing) == []


@every_stage
def test_every_parameter_section_a_stage_reads_is_declared(stage: Stage) -> None:
    """A changed parameter never leaves a stale result."""
    text = (ROOT / "tasks" / f"{stage.name}.py").read_text(encoding="utf-8")
    read = set(re.findall(r"\bparams\.(\w+)", text)) - NEUTRAL_SECTIONS
    if "local_backend(" in text:
        read |= {"domain", "sampling"}
    assert read <= {name.split(".")[0] for name in stage.params}


@every_stage
def test_every_artifact_a_stage_names_is_declared(stage: Stage) -> None:
    """Keys of ``inputs`` and ``outputs`` in the module stand in ``dvc.yaml``."""
    text = (ROOT / "tasks" / f"{stage.name}.py").read_text(encoding="utf-8")
    assert set(re.findall(r'\binputs\["(\w+)"\]', text)) <= set(stage.inputs)
    assert set(re.findall(r'\boutputs\["(\w+)"\]', text)) <= set(stage.outputs) | set(stage.inputs)


def test_only_the_generator_is_frozen() -> None:
    """Its output is the one that git keeps."""
    assert [stage.name for stage in STAGES.values() if stage.frozen] == ["generator"]


def test_every_output_but_those_in_git_is_ignored_by_git() -> None:
    """Otherwise DVC would write ignore files of its own into a fresh clone."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    ignored = {Path(line.strip("/")) for line in lines if line.startswith("/")}
    for stage in STAGES.values():
        for path in stage.outputs.values():
            kept = stage.frozen or path == stage.metrics
            assert bool(ignored & {path, *path.parents}) is not kept, path


def test_a_missing_input_names_the_file_and_the_stage_that_writes_it(tmp_path: Path) -> None:
    """The sentence says what to run."""
    stage = Stage(
        name="verifier",
        inputs={"rollouts": tmp_path / "absent"},
        outputs={"verifier": tmp_path / "out"},
        sources=(),
        params=(),
        producers={"rollouts": "rollouts"},
        frozen=False,
    )
    with pytest.raises(ArtifactError, match=r"absent: missing; .*stage 'rollouts' writes it"):
        check_inputs(stage)


def test_an_unknown_stage_is_refused_with_the_known_ones() -> None:
    """A misspelt stage name is answered with the list."""
    with pytest.raises(ParamsError, match="no stage 'raport'; expected one of benchmark, "):
        find_stage(STAGES, "raport")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages: {a: {cmd: x, outs: ['${model}']}}", "variable 'model'"),
        ("stages: {a: {deps: [y], outs: [x]}, b: {deps: [x], outs: [y]}}", "in a circle"),
    ],
)
def test_a_broken_dag_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Unknown variables and circles end as one sentence."""
    path = tmp_path / "dvc.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError, match=message):
        load_stages(PARAMS, path)


def test_a_parameter_that_is_not_there_is_named() -> None:
    """A dotted name in ``dvc.yaml`` without a value in ``params.yaml`` is a mistake."""
    stage = Stage("a", {}, {}, (), ("search.depth",), {}, frozen=False)
    with pytest.raises(ParamsError, match=r"stage 'a': no parameter 'search\.depth'"):
        used_params(stage, PARAMS)
