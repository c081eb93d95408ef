"""``dvc.yaml``, ``params.yaml``, the stage modules and the files of the repository agree."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo
from dvc.repo.reproduce import plan_repro
from import_closure import closure

from flows.stages import (
    CHECK,
    PARAMS_FILE,
    Stage,
    find_stage,
    load_stages,
    used_params,
)
from selverify.errors import ParamsError
from selverify.params import Params, load_params
from tasks import find_run

ROOT = Path(__file__).parents[2]
PARAMS: Params = load_params(ROOT / "params.yaml")
STAGES = load_stages(PARAMS, ROOT / "dvc.yaml")
EVERYTHING = PARAMS.model_copy(
    update={"backbones": ("small", "base"), "strengths": ("strong", "weak")}
)
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
NEUTRAL_SECTIONS = {"tracking", "yaml", "model_copy"}

every_stage = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())


def test_the_stages_are_those_of_the_design() -> None:
    """Each has its name once, and producers stand before consumers."""
    assert {stage.task for stage in STAGES.values()} == set(ORDER)
    assert len(STAGES) == len(ORDER), "one backbone and one strength by default"
    names = list(STAGES)
    for stage in STAGES.values():
        for _, producer in stage.needed:
            assert names.index(producer) < names.index(stage.name)


@every_stage
def test_every_stage_has_a_module(stage: Stage) -> None:
    """``tasks/<stage>.py`` exposes ``run``."""
    assert callable(find_run(stage.task))


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
    needed = closure(ROOT, Path("tasks") / f"{stage.task}.py")
    covered = {path for path in needed if set(stage.sources) & {path, *path.parents}}
    missing = {path.as_posix() for path in needed - covered} - NEUTRAL - {NEUTRAL_TASKS}
    assert sorted(missing) == []


@every_stage
def test_every_parameter_section_a_stage_reads_is_declared(stage: Stage) -> None:
    """A changed parameter never leaves a stale result."""
    text = (ROOT / "tasks" / f"{stage.task}.py").read_text(encoding="utf-8")
    dotted = set(re.findall(r"\bparams\.(\w+)(?:\.(\w+))?", text))
    if "Conditions(" in text:
        methods = (ROOT / "selverify/experiment/methods.py").read_text(encoding="utf-8")
        dotted |= set(re.findall(r"\bparams\.(\w+)(?:\.(\w+))?", methods))
    read = {section for section, _ in dotted} - NEUTRAL_SECTIONS
    if "leaves_tau(" in text:
        read |= {"exploration", "search", "evaluation"}
    if "open_models(" in text:
        read |= {"domain", "sampling"}
    if "open_grader(" in text:
        read |= {"evaluation"}
    axes = {f"{axis}s" for axis in stage.item}  # params are narrowed to the combination
    assert read - axes <= {name.split(".")[0] for name in stage.params}
    declared = {tuple(name.split(".")[:2]) for name in stage.params}
    named = {pair for pair in dotted if pair[0] in read - axes and pair[1]}
    assert not {pair for pair in named if (pair[0],) not in declared} - declared


@every_stage
def test_every_artifact_a_stage_names_is_declared(stage: Stage) -> None:
    """Keys of ``inputs`` and ``outputs`` in the module stand in ``dvc.yaml``."""
    text = (ROOT / "tasks" / f"{stage.task}.py").read_text(encoding="utf-8")
    assert set(re.findall(r'\binputs\["(\w+)"\]', text)) <= set(stage.inputs)
    assert set(re.findall(r'\boutputs\["(\w+)"\]', text)) <= set(stage.outputs) | set(stage.inputs)


def test_only_the_generator_is_frozen() -> None:
    """Its output is the one that git keeps."""
    assert [stage.task for stage in STAGES.values() if stage.frozen] == ["generator"]


def test_every_output_but_those_in_git_is_ignored_by_git() -> None:
    """Otherwise DVC would write ignore files of its own into a fresh clone."""
    for stage in load_stages(EVERYTHING, ROOT / "dvc.yaml").values():
        for path in stage.outputs.values():
            kept = stage.frozen or path == stage.metrics
            folder = str(path) if path.suffix else f"{path}/"
            found = subprocess.run(["git", "check-ignore", "-q", folder], cwd=ROOT, check=False)
            assert found.returncode == int(kept), path


def test_stages_are_those_that_dvc_reads(tmp_path: Path) -> None:
    """Names, dependencies and outputs of every combination, with two of each axis."""
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    for name, values in (("backbones", "[small, base]"), ("strengths", "[strong, weak]")):
        text = re.sub(rf"(?m)^{name}: \[\w+\]", f"{name}: {values}", text)
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
    with Repo(tmp_path) as repo:
        by_dvc = {
            stage.addressing.rpartition(":")[2]: (
                {str(one) for one in stage.deps if "params" not in type(one).__name__.lower()},
                {str(one) for one in stage.outs},
                {name for one in stage.deps for name in getattr(one, "params", ())},
                stage.cmd,
            )
            for stage in repo.index.stages
            if stage.outs
        }
    ours = load_stages(load_params(tmp_path / "params.yaml"), tmp_path / "dvc.yaml")
    assert set(ours) == set(by_dvc)
    assert len([name for name in ours if name.startswith("evaluation@")]) == 4
    for name, stage in ours.items():
        needed = {str(path) for path in (*stage.inputs.values(), *stage.sources)}
        assert needed == by_dvc[name][0]
        assert {str(path) for path in stage.outputs.values()} == by_dvc[name][1]
        assert set(stage.params) == by_dvc[name][2]
        assert by_dvc[name][3] == f"python -m flows {name}"


def test_parameters_are_checked_before_any_stage(tmp_path: Path) -> None:
    """Whatever DVC runs after it has lost its outputs by then."""
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
    with Repo(tmp_path) as repo:
        first, *others = plan_repro(repo.index.graph)
    assert (first.name, first.cmd) == (CHECK, f"python -m flows {CHECK}")
    assert [str(one) for one in first.deps] == [PARAMS_FILE.as_posix()] and not first.outs
    assert others and all(one.outs for one in others)


def test_what_a_killed_stage_leaves_is_no_dependency(tmp_path: Path) -> None:
    """The report reads a folder of outputs as a whole, also under plain DVC."""
    shutil.copy(ROOT / ".dvcignore", tmp_path)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text("[core]\n    no_scm = true\n")
    folder = tmp_path / "results" / "evaluation"
    for name in ("small-strong", "small-strong.tmp-123", "small-strong.old-123"):
        (folder / name).mkdir(parents=True)
    with Repo(tmp_path) as repo:
        _, names, _ = next(repo.dvcignore.walk(repo.fs, str(folder)))
    assert names == ["small-strong"]


def test_a_stage_of_a_matrix_sees_its_own_combination() -> None:
    """The parameters are narrowed to it, and MLflow is told which it was."""
    stages = load_stages(EVERYTHING, ROOT / "dvc.yaml")
    stage = find_stage(stages, "verifier@base-weak")
    narrowed = EVERYTHING.narrowed(**stage.item)
    assert (narrowed.backbones, narrowed.strengths) == (("base",), ("weak",))
    assert used_params(stage, narrowed)["backbone"] == "base"
    assert stage.inputs["rollouts"] == Path("data/rollouts/base")
    report = find_stage(stages, "report")
    assert EVERYTHING.narrowed(**report.item) == EVERYTHING
    assert report.inputs["evaluation"] == Path("results/evaluation")
    assert len([one for one in report.needed if one[1].startswith("evaluation@")]) == 4
    assert report.inputs["residual"] == Path("models/small-strong/policy")


def test_the_name_of_a_matrix_will_do_where_it_has_one_combination() -> None:
    """With several, they are listed."""
    assert find_stage(STAGES, "verifier").name == "verifier@small-strong"
    several = load_stages(EVERYTHING, ROOT / "dvc.yaml")
    with pytest.raises(
        ParamsError, match=r"several stages 'rollouts'; .* rollouts@base, rollouts@"
    ):
        find_stage(several, "rollouts")


def test_a_parameter_that_is_not_there_is_named() -> None:
    """A dotted name in ``dvc.yaml`` without a value in ``params.yaml`` is a mistake."""
    stage = Stage("a", "a", {}, {}, {}, (), ("search.depth",), (), frozen=False)
    with pytest.raises(ParamsError, match=r"stage 'a': no parameter 'search\.depth'"):
        used_params(stage, PARAMS)
