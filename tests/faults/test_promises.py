"""Each promise of the page names tests, and there are such tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from figures import Figure
from report import render

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "what-survives-what.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_promise_names_a_test_that_exists() -> None:
    """A row without one would be a wish."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and "---" not in line]
    promises = [row for row in rows if not row.startswith("| What happens")]
    assert len(promises) > 15
    for row in promises:
        named = NAMED.findall(row.rstrip("| ").rpartition("|")[2])
        assert named, row
        assert [one for one in named if one[1] not in functions(ROOT / one[0])] == []


def functions(path: Path) -> set[str]:
    """The names of the functions in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_page_of_figures_shows_each_with_its_origin() -> None:
    """What was measured on another commit or machine says so, and no cell breaks the table."""
    rows = [
        Figure(f"tests/a.py::test_{n}[x]", "fault", "a | b", n, "held", 1.26, f"c{n}", "m")
        for n in (1, 2)
    ]
    page = render(rows)
    assert "1. commit c1; m" in page and "2. commit c2; m" in page
    assert "| fault | a / b | 1 | held | 1 | 1 | test_1 |" in page
    assert "| fault | a / b | 2 | held | 1 | 2 | test_2 |" in page
