import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import selverify

PACKAGE = Path(selverify.__file__).parent
# Each row may import the rows above it and itself.
ROWS = (
    "types errors params storage",
    "domains",
    "search",
    "data",
    "models",
    "training",
    "experiment",
    "policy",
    "report",
    "audit",
    "ranker",
    "solving",
    "serving",
    "installation",
    "cli",
    "__main__",
)
RANK = {part: rank for rank, row in enumerate(ROWS) for part in row.split()}
FACADE = "selverify"  # selverify/__init__.py offers what policy, ranker and solving give
PIPELINE = frozenset({"prefect", "dvc", "mlflow", "flows", "tasks"})
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """The file or folder directly below ``selverify`` that holds ``module``."""
    return module.split(".")[1] if "." in module else FACADE


def rank_of(module: str) -> int:
    part = part_of(module)
    return RANK["solving"] if part == FACADE else RANK[part]


def imported(source: str) -> Iterator[str]:
    """Every module that the source imports, wherever in it; submodules by their full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            pytest.fail(f"line {node.lineno}: relative import; write the full module name")
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(module: str, source: str) -> list[str]:
    """The imports of ``module`` that point to a later row or out of the library."""
    wrong = []
    for target in imported(source):
        package = target.split(".")[0]
        inside = package == "selverify"
        if target.startswith("selverify.") and part_of(target) not in RANK:
            target = FACADE  # noqa: PLW2901 (a name of the facade, not a module)
        if package in PIPELINE or (inside and rank_of(target) > rank_of(module)):
            wrong.append(f"{module} imports {target}")
    return wrong


def module_name(path: Path) -> str:
    parts = ("selverify", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def test_every_part_has_its_row() -> None:
    """The library holds the folders and files of the table, and no others."""
    parts = {part_of(module_name(path)) for path in FILES} - {FACADE}
    assert parts == set(RANK)


def test_a_part_imports_only_rows_above_its_own() -> None:
    """So there is no cycle between folders, and the library knows no tool of the pipeline."""
    found = {path: violations(module_name(path), path.read_text("utf-8")) for path in FILES}
    assert [line for lines in found.values() for line in lines] == []


@pytest.mark.parametrize(
    "source",
    [
        "import mlflow",
        "from prefect.states import State",
        "def f():\n    import dvc.api",
        "import tasks.evaluation",
        "import selverify.models.assembly",
        "from selverify import models",
        "from selverify import load_policy",
        "import selverify",
    ],
)
def test_the_check_sees_what_is_forbidden(source: str) -> None:
    """Each way to import a later row or a tool of the pipeline is reported."""
    assert len(violations("selverify.search.gates", source)) == 1


def test_the_check_allows_the_rest() -> None:
    """Other packages, rows above and the own row are free."""
    sources = ("import json, torch", "import taskset", "from selverify import types, errors")
    sources += ("from selverify.domains.base import Domain", "import selverify.search.ledger")
    assert [violations("selverify.search.gates", source) for source in sources] == [[]] * 5
