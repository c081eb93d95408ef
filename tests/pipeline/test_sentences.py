"""The numbers in sentences of pages are those of the tables; one that is not is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flows.sentences import SENTENCES, check_sentences
from selverify.errors import SchemaError

ROOT = Path(__file__).parents[2]
RESULTS = tuple(f"results{name}" for name in ("", "-paper", "-long", "-gsm8k", "-countdown"))
ACCOUNTED = ("README", "report", *RESULTS)
"""Pages on which each measured number is one of a table, or named as measured elsewhere."""
TABLES = """# Page

## Right

| Method | Part | B = 1 | B = 2 | B = 2 |
| --- | --- | ---: | ---: | ---: |
| full | all | 73.6 (+11.0 [7.3, 14.8]) | 1,204 | 64 |
| | gates | 40.26 (-3.5) | 0.144 | 1.437e+04 |
| none | none | 0.0 | - | - |

## Broken

| Method | B = 1 |
| --- | ---: |
| full | 1 | 2 |

## Twice

## Twice
"""
KNOWN = {
    name: ["docs/page.md", name.capitalize()] for name in ("right", "broken", "twice", "nowhere")
} | {
    "drawn": ["docs/drawn.csv"],
    "missing": ["docs/missing.csv"],
    "second": ["docs/page.md", "Right", 2],
}


def test_the_numbers_in_sentences_are_those_of_tables() -> None:
    """Most pages account for every number."""
    found = dict(check_sentences(ROOT))
    assert [line for lines in found.values() for line in lines] == []
    pages = [Path(said.partition(":")[0]).stem for said in found]
    assert sorted(pages) == sorted((*ACCOUNTED, "targets"))
    for stem in ACCOUNTED:
        known = yaml.safe_load((ROOT / SENTENCES / f"{stem}.yaml").read_text(encoding="utf-8"))
        assert not known.get("cells")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A page with tables, a CSV file, and no sentences."""
    (tmp_path / SENTENCES).mkdir(parents=True)
    (tmp_path / "docs" / "page.md").write_text(TABLES, encoding="utf-8")
    rows = "method,level,right,low\nfull,1,0.736,0.662\n"
    (tmp_path / "docs" / "drawn.csv").write_text(rows, encoding="utf-8")
    return tmp_path


def checked(project: Path, text: str, *sentences: str, **more: object) -> tuple[str, list[str]]:
    """What is said of ``text`` as the README, and what is wrong with it."""
    tables = {name: KNOWN[name] for name in KNOWN if any(f"{name};" in one for one in sentences)}
    known = {"tables": tables, "sentences": [*sentences], **more}
    file = project / SENTENCES / "README.yaml"
    file.write_text(yaml.safe_dump(known), encoding="utf-8")
    (project / "README.md").write_text(text, encoding="utf-8")
    (found,) = check_sentences(project)
    return found


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("It solves 73.6 % with one call.", "solves {right; all; B = 1} %"),
        ("It solves\n73.6 % with one call.", "solves {right; full & all; B = 1} % with"),
        ("(7.3 to 14.8)", "({right; all; B = 1; 3} to {right; all; B = 1; 4})"),
        ("3.5 points below", "{right; full & gates; B = 1; 2 | negated} points"),
        ("accepts 14.4 %", "accepts {right; gates; B = 2 | percent} %"),
        ("accepts 14 %", "accepts {right; gates; B = 2 | percent} %"),
        ("rejects 86 %", "rejects {right; gates; B = 2 | complement | percent} %"),
        ("with 1,204 tokens, 40.3 %", "with {right; all; B = 2} tokens, {right; gates; B = 1} %"),
        ("14,370 steps", "{right; gates; B = 2 2} steps"),
        ("33.3 points more", "{right; all; B = 1 | minus | right; gates; B = 1} points"),
        ("45 % fewer", "{right; gates; B = 1 | below | right; all; B = 1} % fewer"),
        ("1.83 times", "{right; all; B = 1 | over | right; gates; B = 1} times"),
        ("7.4 more", "{drawn; full & 1; right | minus | drawn; full & 1; low | percent} more"),
        ("73.6 % in the drawing", "{drawn; full & 1; right | percent} %"),
        ("| a cell | 73.6 |", "cell | {right; all; B = 1} |"),
    ],
)  # fmt: skip
def test_a_number_is_compared_with_its_cell(project: Path, text: str, sentence: str) -> None:
    """As it stands, made into another, of two cells, rounded further; another digit is told."""
    assert checked(project, text, sentence)[1] == []
    place = max(place for place, one in enumerate(text) if one.isdigit())
    for other in (digit for digit in "0123456789" if digit != text[place]):
        changed = text[:place] + other + text[place + 1 :]
        (line,) = checked(project, changed, sentence)[1]
        assert line.startswith("README.md: '") and ", expected " in line


@pytest.mark.parametrize(
    ("text", "sentence", "said"),
    [
        ("solves 73.60 %", "solves {right; all; B = 1} %", "given 73.60, expected 73.6"),
        ("it is 3.5 points", "is {right; gates; B = 1; 2} points", "given 3.5, expected -3.5"),
        ("loses -11.0 points", "loses {right; all; B = 1; 2} points", "given -11.0, expected 11"),
        ("65 calls", "{right; all; B = 2 2} calls", "given 65, expected 64"),
        ("14,371 steps", "{right; gates; B = 2 2} steps", "given 14,371, expected 14370"),
        ("173.6 %", "3.6 % by {right; all; B = 1}", "0 times on the page, expected one"),
        ("73.6 % of 73.65 %", "{right; all; B = 1} % of 73.6", "0 times on the page"),
        ("73.6 % and 73.6 %", "{right; all; B = 1} %", "2 times on the page, expected one"),
        ("73.6 points", "{right; all; B = 1} %", "0 times on the page, expected one"),
        ("a share of 9.9 %", "", "README.md: given 9.9 in 'a share of 9.9 % ', expected it in"),
        ("a share of 9 %", "", "given 9 in"),
        ("from 7 to 9 %", "", "given 7 in"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(project: Path, text: str, sentence: str, said: str) -> None:
    """More digits than the cell has, a sign, a text that is gone or there twice, no cell."""
    lines = checked(project, text, *[sentence] * bool(sentence))[1]
    assert any(said in line for line in lines), lines


def test_numbers_in_no_table_are_named(project: Path) -> None:
    """By what measured them; those in code, tables and what commands write are not counted."""
    marked = "<!-- results:begin -->\n7.7 %\n<!-- results:end -->"
    text = f"In 0.5 s. `9.9 %`\n\n```\n8.8\n```\n\n{marked}\n\n| 6.6 |"
    assert len(checked(project, text)[1]) == 1
    named = {"a clock": ["In 0.5 s"]}
    said = "README.md: 0 numbers compared with tables"
    assert checked(project, text, elsewhere=named) == (f"{said}, 1 named as measured elsewhere", [])
    assert checked(project, text, cells=True) == (said, [])
    for other, times in (("none", 0), ("In 0.55 s", 0), ("In 0.5 s, In 0.5 s", 2)):
        told = f"README.yaml: 'In 0.5 s': {times} times on the page, expected one"
        assert told in checked(project, other, elsewhere=named)[1]
    unused = {"tables": {"right": KNOWN["right"]}}
    assert checked(project, "none", **unused)[1] == ["README.yaml: 'right' is in no sentence"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("left; all; B = 1", "expected a table of "),
        ("right; absent; B = 1", "has 0 such rows"),
        ("right; full; B = 1", "has 2 such rows"),
        ("right; all; B = 3", "and 0 numbers there"),
        ("right; all; B = 1; 5", "and 4 numbers there"),
        ("right; all; B = 1; 0", "and 4 numbers there"),
        ("right; all; B = 1; two", "and 4 numbers there"),
        ("right; all; B = 1 | doubled", "expected one of negated, percent, complement, minus"),
        ("right; all", "expected a table, a row and a column"),
        ("right; all; B = 1 | minus", "expected a table, a row and a column"),
        ("right; all; B = 1 | over | right; none; B = 1", "expected a second number above 0"),
        ("nowhere; all; B = 1", "given 0 headings 'Nowhere' and 0 tables below"),
        ("twice; all; B = 1", "given 2 headings 'Twice' and 0 tables below"),
        ("second; all; B = 1", "1 tables below, expected one and table 2"),
        ("broken; full; B = 1", "docs/page.md: expected table 1 below 'Broken'"),
        ("missing; full; B = 1", "docs/missing.csv: expected"),
    ],
)  # fmt: skip
def test_a_reference_without_a_number_is_an_error(project: Path, reference: str, said: str) -> None:
    """One line that says what was looked for."""
    (line,) = checked(project, "solves 73.6 %", f"solves {{{reference}}} %")[1]
    assert said in line


def test_a_table_that_changed_is_read_again(project: Path) -> None:
    """Of the same path."""
    sentence = "solves {right; all; B = 1} %"
    assert checked(project, "solves 73.6 %", sentence)[1] == []
    page = project / "docs" / "page.md"
    page.write_text(TABLES.replace("73.6", "73.7"), encoding="utf-8")
    assert len(checked(project, "solves 73.6 %", sentence)[1]) == 1


def test_a_damaged_file_is_an_error(project: Path) -> None:
    """No text, no YAML, an unknown key, no first table, a page that is not there."""
    (project / "README.md").write_text("none", encoding="utf-8")
    file = project / SENTENCES / "README.yaml"
    for damaged in (
        *(b"\xff", b"a: [", b"tables: {}\nsentences: []\nother: 1\n"),
        b"tables: {a: [docs/page.md, Right, 0]}\nsentences: []\n",
    ):
        file.write_bytes(damaged)
        with pytest.raises(SchemaError, match=r"README\.yaml: "):
            [*check_sentences(project)]
    file.rename(file.with_stem("nowhere"))
    with pytest.raises(SchemaError, match=r"nowhere\.yaml: expected the name of a page"):
        [*check_sentences(project)]
