"""A sample of ``make published``: the first table of each page follows from the rows kept."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from itertools import product
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from pandas import isna
from spread import as_table

from flows.folded_rows import fold, unfold
from flows.published import MANIFEST, ROWS, Manifest, _equal, _laid_over
from flows.readme import MAIN_SECTION, SPREAD
from flows.stages import load_stages
from selverify.errors import SchemaError
from selverify.experiment.equal_cost import equal_cost, equal_cost_table
from selverify.experiment.statistics import Bootstrap
from selverify.params import check_params
from selverify.report.names import baseline_methods, method_name, our_whole_methods
from selverify.storage import digest
from tasks.artifacts import write_rows
from tasks.report import _points_of, _variant

ROOT = Path(__file__).parents[2]
PAGES = sorted(manifest.parent for manifest in (ROOT / ROWS).glob(f"*/{MANIFEST}"))
MOST_BYTES = 12 << 20
SAMPLE = "results-countdown"
"""The page that is always computed again; `make published` does all of them."""


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.soak] * (page.name != SAMPLE))
        for page in PAGES
    ],
)
def test_the_first_table_follows_from_the_rows(folder: Path, tmp_path: Path) -> None:
    """Every accuracy of it, to the digit; the rows are those that the manifest names."""
    work = tmp_path / "rows"
    shutil.copytree(folder, work)
    unfold(work)
    manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    present = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params = check_params(_laid_over(present, manifest.params), folder / MANIFEST)
    main = f"{params.backbones[0]}-{params.strengths[0]}"
    whole = ("data/difficulty", f"results/evaluation/{main}")  # nothing was left out
    of_rows = {path: told for path, told in manifest.data.items() if path.startswith(whole)}
    assert len(of_rows) > len(params.backbones)
    assert manifest.clean and manifest.command.startswith(("make run PROFILE=", "dvc exp run -S "))
    assert {path: digest(work / path) for path in of_rows} == of_rows
    with chdir(work):
        inputs = load_stages(params, ROOT / "dvc.yaml")["report"].inputs
        cross = _variant(params, inputs, params.backbones[0], params.strengths[0]).cross
    entries = equal_cost(
        _points_of(cross),
        cross.folds,
        cost="verifier_calls",
        levels=params.evaluation.calls,
        baselines=baseline_methods(),
        ours=our_whole_methods(),
    )
    page = (ROOT / "docs" / f"{folder.name}.md").read_text(encoding="utf-8")
    shown = page.partition(f"## {MAIN_SECTION}\n")[2].partition("\n## ")[0]
    told = {
        name: [cell.partition(" ")[0] for cell in cells.split(" | ")]
        for name, cells in re.findall(r"^\| (.+?) \| (.+) \|$", shown, re.MULTILINE)
    }
    found = equal_cost_table(entries, Bootstrap(10, 0)).groupby("method")["accuracy"]
    assert len(found) > 5
    for method, accuracies in found:
        row = ["-" if isna(one) else f"{100 * one:.1f}" for one in accuracies]
        assert told[method_name(str(method))] == row, method


def test_the_table_of_trainings_follows_from_their_rows() -> None:
    """What `make spread` prints, as it stands on the page."""
    told = as_table(pd.read_csv(ROOT / SPREAD))
    assert f"\n\n{told}\n\n" in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


@pytest.mark.soak
def test_the_votes_on_gsm8k_follow_from_the_rows() -> None:
    """The table that a command prints for the page, as it stands there."""
    command = [sys.executable, "tests/votes_by_n.py", "docs/results/results-gsm8k"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert told.count("\n") == 6
    assert f"\n\n{told}\n" in (ROOT / "docs" / "results-gsm8k.md").read_text(encoding="utf-8")


def test_rows_are_the_same_when_they_have_been_folded(tmp_path: Path) -> None:
    """Every outcome of a problem and a seed is kept once, empty answers too."""
    draw = random.Random(4)
    rows = [
        {
            "sampling_seed": seed,
            "method": method,
            "setting": setting,
            "n": n,
            "problem_id": problem,
            "answer": draw.choice(["1", "2", None]),
            "correct": draw.random() < 0.5,
            "verifier_calls": draw.randrange(3),
        }
        for problem, seed, method, setting, n in product(
            "ab", (7, 8), ("cot", "full"), ("", "k=1", "k=2"), (2, 16)
        )
    ]
    for name in ("outcomes", "transfer"):
        write_rows(tmp_path, "evaluation", name, rows if name == "outcomes" else [])
    path = tmp_path / "outcomes.parquet"
    before = path.read_bytes()
    fold(tmp_path)
    kept = pq.read_metadata(path)
    assert kept.num_rows < len(rows)
    assert "BYTE_STREAM_SPLIT" in kept.row_group(0).column(0).encodings
    unfold(tmp_path)
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"outcomes.parquet", "transfer.parquet"}


@pytest.mark.parametrize("other", [{"answers": "12"}, {"problems": "abc"}])
def test_searches_of_another_evaluation_are_refused(tmp_path: Path, other: dict[str, str]) -> None:
    """They would point at rows that are not there."""
    for folder, given in (("one", {}), ("other", other)):
        told = {"answers": "1", "problems": "ab", **given}
        rows = [
            {"sampling_seed": 1, "method": f"m{answer}", "setting": "", "n": 2}
            | {"problem_id": problem, "answer": answer, "correct": True}
            for problem, answer in product(told["problems"], told["answers"])
        ]
        for name in ("outcomes", "transfer"):
            write_rows(tmp_path / folder, "evaluation", name, rows if name == "outcomes" else [])
        fold(tmp_path / folder)
    name = "outcomes-searches.parquet"
    shutil.copy(tmp_path / "other" / name, tmp_path / "one" / name)
    with pytest.raises(SchemaError, match=f"{name}: searches of other outcomes than"):
        unfold(tmp_path / "one")


def test_all_rows_together_are_small() -> None:
    """They are kept in git."""
    assert PAGES
    files = [one for one in (ROOT / ROWS).rglob("*") if one.is_file()]
    assert sum(one.stat().st_size for one in files) <= MOST_BYTES


@pytest.mark.parametrize(
    ("name", "computed", "equal"),
    [
        ("drawn.csv", "method,accuracy\nhull,0.7147776640360349\n", True),
        ("drawn.csv", "method,accuracy\nhull,0.714778\n", False),
        ("drawn.csv", "method,accuracy\nfull,0.714777664036035\n", False),
        ("drawn.csv", "method,accuracy\n", False),
        ("drawn.svg", "method,accuracy\nhull,0.7147776640360349\n", False),
    ],
)
def test_numbers_of_a_drawn_table_may_differ_in_their_last_digit(
    tmp_path: Path, name: str, computed: str, equal: bool
) -> None:
    """A page measured on one processor is checked on another."""
    here, there = tmp_path / name, tmp_path / f"computed-{name}"
    here.write_text("method,accuracy\nhull,0.714777664036035\n", encoding="utf-8")
    there.write_text(computed, encoding="utf-8")
    assert _equal(here, there) is equal
