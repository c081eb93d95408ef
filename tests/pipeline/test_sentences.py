"""The numbers in sentences of pages are those of the tables; one that is not is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flows.sentences import SENTENCES, check_sentences
from selverify.errors import SchemaError

ROOT = Path(__file__).parents[2]
ACCOUNTED = {
    "README",
    "report",
    *(f"results{name}" for name in ("", "-paper", "-long", "-gsm8k", "-countdown")),
}
"""Pages on which each measured number is one of a table, or named as measured elsewhere."""
TABLES = """# Page

## Right

| Method | Part | B = 1 | B = 2 |
| --- | --- | ---: | ---: |
| full | all | 73.6 (+11.0 [7.3, 14.8]) | 1,204 |
| | gates | 40.25 (-3.5) | 0.144 |
"""
KNOWN = {"tables": {"right": ["docs/page.md", "Right"], "drawn": ["docs/drawn.csv"]}}


def test_the_numbers_in_sentences_are_those_of_tables() -> None:
    """On every page that has a file of sentences; most pages account for every number."""
    found = dict(check_sentences(ROOT))
    assert [line for lines in found.values() for line in lines] == []
    assert {Path(said.partition(":")[0]).stem for said in found} >= ACCOUNTED
    for stem in ACCOUNTED:
        assert not yaml.safe_load((ROOT / SENTENCES / f"{stem}.yaml").read_text("utf-8")).get(
            "cells"
        )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A page with a table, a CSV file, and no sentences."""
    (tmp_path / SENTENCES).mkdir(parents=True)
    (tmp_path / "docs" / "page.md").write_text(TABLES, encoding="utf-8")
    (tmp_path / "docs" / "drawn.csv").write_text(
        "method,level,right,low\nfull,1,0.736,0.662\n", encoding="utf-8"
    )
    return tmp_path


def wrong(project: Path, text: str, *sentences: str, **more: object) -> list[str]:
    """What is wrong with ``text`` as the README."""
    known = {**KNOWN, "sentences": sentences, **more}
    (project / SENTENCES / "README.yaml").write_text(
        yaml.safe_dump(known | {"sentences": [*sentences]})
    )
    (project / "README.md").write_text(text, encoding="utf-8")
    ((_, lines),) = check_sentences(project)
    return lines


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("It solves 73.6 % with one call.", "solves {right; all; B = 1} %"),
        ("It solves\n73.6 % with one call.", "solves {right; full & all; B = 1} % with"),
        ("(7.3 to 14.8)", "({right; all; B = 1; 3} to {right; all; B = 1; 4})"),
        ("3.5 points below", "{right; full & gates; B = 1; 2 | negated} points"),
        ("accepts 14.4 %", "accepts {right; gates; B = 2 | percent} %"),
        ("accepts 14 %", "accepts {right; gates; B = 2 | percent} %"),
        ("with 1,204 tokens, 40.3 %", "with {right; all; B = 2} tokens, {right; gates; B = 1} %"),
        ("33.4 points more", "{right; all; B = 1 | minus | right; gates; B = 1} points"),
        ("45 % fewer", "{right; gates; B = 1 | below | right; all; B = 1} % fewer"),
        ("1.83 times", "{right; all; B = 1 | over | right; gates; B = 1} times"),
        ("7.4 more", "{drawn; full & 1; right | minus | drawn; full & 1; low | percent} more"),
        ("73.6 % in the drawing", "{drawn; full & 1; right | percent} %"),
    ],
)  # fmt: skip
def test_a_number_is_compared_with_its_cell(project: Path, text: str, sentence: str) -> None:
    """As it stands, negated, as a share, of two cells, rounded further; another digit is told."""
    assert wrong(project, text, sentence) == []
    digit = next(one for one in reversed(text) if one.isdigit())
    place = text.rindex(digit)
    other = text[:place] + ("5" if digit in "01" else "1") + text[place + 1 :]
    (line,) = wrong(project, other, sentence)
    assert line.startswith("README.md: '") and ", expected " in line


@pytest.mark.parametrize(
    ("text", "sentence", "said"),
    [
        ("solves 73.60 %", "solves {right; all; B = 1} %", "given 73.60, expected 73.6"),
        ("it is 3.5 points", "is {right; gates; B = 1; 2} points", "given 3.5, expected -3.5"),
        ("loses -11.0 points", "loses {right; all; B = 1; 2} points", "given -11.0, expected 11"),
        ("73.6 % and 73.6 %", "{right; all; B = 1} %", "is 2 times on the page, expected once"),
        ("73.6 points", "{right; all; B = 1} %", "is 0 times on the page, expected once"),
        ("a share of 9.9 %", "", "README.yaml does not say what this number is of"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(project: Path, text: str, sentence: str, said: str) -> None:
    """More digits than the cell has, a sign, a text that is gone or there twice, no cell."""
    lines = wrong(project, text, *[sentence] * bool(sentence))
    assert any(said in line for line in lines), lines


def test_numbers_in_no_table_are_named(project: Path) -> None:
    """By what measured them; those in code, tables and what commands write are not counted."""
    marked = "<!-- results:begin -->\n7.7 %\n<!-- results:end -->"
    text = f"In 0.5 s. `9.9 %`\n\n```\n8.8\n```\n\n{marked}\n\n| 6.6 |\n"
    assert len(wrong(project, text)) == 1
    assert wrong(project, text, elsewhere={"a clock": ["In 0.5 s"]}) == []
    assert wrong(project, text, cells=True) == []
    (line,) = wrong(project, "none", elsewhere={"a clock": ["In 0.5 s"]})
    assert line == "README.yaml: 'In 0.5 s' is 0 times on the page, expected once"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("left; all; B = 1", "expected a table of drawn, right"),
        ("right; none; B = 1", "has 0 such rows"),
        ("right; full; B = 1", "has 2 such rows"),
        ("right; all; B = 3", "and 0 numbers there"),
        ("right; all; B = 1; 5", "and 4 numbers there"),
        ("right; all; B = 1; 0", "and 4 numbers there"),
        ("right; all; B = 1; two", "and 4 numbers there"),
        ("right; all; B = 1 | doubled", "expected one of negated, percent, minus, over, below"),
        ("right; all", "expected a table, a row and a column"),
        ("right; all; B = 1 | minus", "expected a table, a row and a column"),
    ],
)  # fmt: skip
def test_a_reference_without_a_number_is_an_error(project: Path, reference: str, said: str) -> None:
    """One line that names the file and the reference."""
    (line,) = wrong(project, "solves 73.6 %", f"solves {{{reference}}} %")
    assert line.startswith("README.yaml: '") and said in line


def test_a_damaged_file_is_an_error(project: Path) -> None:
    """No YAML, an unknown key, a page that is not there."""
    (project / "README.md").write_text("none", encoding="utf-8")
    file = project / SENTENCES / "README.yaml"
    for text in ("a: [", "tables: {}\nsentences: []\nother: 1\n"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(SchemaError, match=r"README\.yaml: "):
            [*check_sentences(project)]
    file.rename(file.with_stem("nowhere"))
    with pytest.raises(SchemaError, match=r"nowhere\.yaml: expected the name of a page"):
        [*check_sentences(project)]
