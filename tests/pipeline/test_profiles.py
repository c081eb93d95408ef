"""Profiles: every one is valid, is written whole or not at all, and is named where results are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import load_yaml

from flows.__main__ import main
from flows.profiles import PROFILES, apply_profile, read_profile
from flows.stages import leaves
from selverify.errors import ParamsError
from selverify.params import load_params

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / PROFILES).glob("*.yaml"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's parameters and profiles in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / PROFILES, tmp_path / PROFILES)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_changes_what_it_says_and_nothing_else(project: Path, name: str) -> None:
    """Comments stay, and a second time there is nothing to change."""
    before = leaves("", yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8")))
    values = read_profile(PROFILES, name)
    assert values.keys() <= before.keys()
    changed = apply_profile(name)
    text = (project / "params.yaml").read_text(encoding="utf-8")
    assert leaves("", yaml.safe_load(text)) == {**before, **values}
    assert set(changed) == {key for key in values if before[key] != values[key]}
    assert "# the process reward model" in text
    load_params(Path("params.yaml"))
    assert apply_profile(name) == {}


@pytest.mark.parametrize("change", ["strengths=[strong, weak]", "search.tau=0.3", "domain=math"])
def test_one_parameter_changed_by_dvc_leaves_the_others(project: Path, change: str) -> None:
    """``dvc exp run -S`` writes the whole file anew, in a YAML of its own."""
    before = leaves("", yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8")))
    apply_overrides(project / "params.yaml", [change])
    after = leaves("", load_yaml(project / "params.yaml"))
    assert after == leaves("", yaml.safe_load((project / "params.yaml").read_text("utf-8")))
    name = change.partition("=")[0]
    assert {key for key in before if before[key] != after[key]} == {name}
    assert before.keys() == after.keys()


def test_a_wrong_profile_writes_nothing(project: Path) -> None:
    """A misspelt key is named with the profile's file; an unknown profile with those there are."""
    before = (project / "params.yaml").read_bytes()
    (project / PROFILES / "wrong.yaml").write_text("evaluation: {problem: 3}\n")
    with pytest.raises(ParamsError, match=r"wrong\.yaml: unknown key 'evaluation\.problem'"):
        apply_profile("wrong")
    with pytest.raises(ParamsError, match=r"no profile 'papr'; expected one of grid, .*wrong"):
        apply_profile("papr")
    assert (project / "params.yaml").read_bytes() == before


def test_only_run_takes_a_word_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Anything else is a mistake, not something to leave out of account."""
    assert main(["show", "paper"]) == 1
    assert "show: given 'paper' after it, expected nothing" in capsys.readouterr().err
