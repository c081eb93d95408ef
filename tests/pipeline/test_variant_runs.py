"""``make variants``: what each run changes, and that the parameters come back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import variants
from variants import PAPER, Report, grid, main, parts

from flows.profiles import apply_profile
from selverify.errors import ParamsError
from selverify.params import Params, load_params

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Params]:
    """The parameters of every run, in a folder whose commit has the project's."""
    for name in ("params.yaml", "dvc.yaml", "profiles", "docs/results-paper.md"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    monkeypatch.chdir(tmp_path)
    found: list[Params] = []
    monkeypatch.setattr(variants, "run", lambda: found.append(load_params(Path("params.yaml"))))
    committed = (ROOT / "params.yaml").read_text("utf-8")
    monkeypatch.setattr("flows.origin.git", lambda *_: committed)
    monkeypatch.setattr("sys.argv", ["variants.py"])
    return found


def test_each_variant_changes_the_papers_scale_alone(
    ran: list[Params], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the one before nothing is left, and after the last the parameters are as before."""
    apply_profile("paper")
    before = Path("params.yaml").read_text("utf-8")
    monkeypatch.setattr(Report, "of_the_last_run", lambda: Report("", "Measured."))
    tables = {
        name: (lambda *_: "a table", changes) for name, (_, changes) in variants.VARIANTS.items()
    }
    monkeypatch.setattr(variants, "VARIANTS", tables)
    main()
    assert Path("params.yaml").read_text("utf-8") == before
    assert [one.evaluation.leave_one_out for one in ran] == [True, False, False]
    assert [len(one.evaluation.grid.beta) for one in ran] == [1, 3, 1]
    assert [one.strengths for one in ran][:2] == [("strong",)] * 2
    assert ran[2].strengths == ("strong", "fifth", "twentieth", "weak")
    assert {(one.backbones, one.evaluation.problems) for one in ran} == {(("small",), 500)}
    assert Path("docs/results-paper.md").read_text("utf-8").count("a table") == 3


def test_other_parameters_are_refused(ran: list[Params]) -> None:
    """The last run has to be that of the paper's scale."""
    with pytest.raises(ParamsError, match=f"given no changes, expected {PAPER}"):
        main()
    assert not ran


def test_the_tables_are_those_of_the_report() -> None:
    """Cells of the pages as they stand."""
    paper = Report((ROOT / "docs/results-paper.md").read_text("utf-8"), "")
    by_calls = grid(paper, paper).splitlines()
    assert by_calls[2].replace("| 32 |", "| 216 |") == by_calls[3]
    gains = paper.rows(variants.GAINS)[variants.FULL]
    assert gains["B = 1"] in by_calls[2]
    one_seed = Report((ROOT / "docs/results.md").read_text("utf-8"), "")
    assert parts(one_seed, one_seed).count("\n") > 15
