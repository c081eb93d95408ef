import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import selverify

PACKAGE = Path(selverify.__file__).parent
ROWS = (
    "types errors params storage solver sources threshold answers quantities",
    "domains requests tokenizer prompting prompts",
    "equivalence gates allocation grading retrieval heuristic",
    "search",
    "scheduler ledger traces reply_cache backends verifiers",
    "benchmark text_benchmarks inspection rollouts assembly "
    "difficulty exploration training evaluation selection statistics audits "
    "plots reporting recorded policy trace_text installation",
    "cli",
)
LAYERS = {module: layer for layer, row in enumerate(ROWS) for module in row.split()}
FACADE = len(ROWS)  # selverify/__init__.py offers what the rows below it give
PIPELINE = frozenset({"prefect", "dvc", "mlflow", "flows", "tasks"})
FILES = sorted(PACKAGE.rglob("*.py"))


def layer_of(module: str) -> int:
    """The row of ``selverify.<part>...``; the bare package is the facade."""
    parts = module.split(".")
    if len(parts) == 1:
        return FACADE
    if parts[1] not in LAYERS:
        pytest.fail(f"{module} stands in no layer: add {parts[1]!r} to ROWS in {__file__}")
    return LAYERS[parts[1]]


def imported(source: str) -> Iterator[str]:
    """Every module that the source imports, wherever in it; submodules by their full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            pytest.fail(f"line {node.lineno}: relative import; write the full module name")
        elif isinstance(node, ast.ImportFrom) and node.module == "selverify":
            yield from (
                f"selverify.{alias.name}" if alias.name in LAYERS else "selverify"
                for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def violations(module: str, source: str) -> list[str]:
    """The imports of ``module`` that point upwards or out of the library."""
    own = layer_of(module)
    return [
        f"{module} (layer {own}) imports {target}"
        for target in imported(source)
        if target.split(".")[0] in PIPELINE
        or (target.split(".")[0] == "selverify" and layer_of(target) > own)
    ]


def module_name(path: Path) -> str:
    parts = ("selverify", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_module_imports_only_its_own_layer_and_below(path: Path) -> None:
    """Lower rows of the design's table never import higher ones, nor the pipeline's tools."""
    assert violations(module_name(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import mlflow",
        "from prefect.states import State",
        "def f():\n    import dvc.api",
        "import tasks.search",
        "import selverify.search.gated",
        "from selverify.search import gated",
        "from selverify import scheduler",
        "from selverify import load_policy",
        "import selverify",
    ],
)
def test_the_check_sees_what_is_forbidden(source: str) -> None:
    """Each way to import upwards or outwards from a gate is reported."""
    assert len(violations("selverify.gates", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import json, torch",
        "import taskset",
        "from selverify.domains.base import Domain",
        "from selverify import types, errors",
        "from selverify.allocation import allocate",
    ],
)
def test_the_check_allows_the_rest(source: str) -> None:
    """Other packages, lower rows and the own row are free."""
    assert violations("selverify.gates", source) == []


def test_a_module_without_a_layer_fails() -> None:
    """A new module must be given its place in the table."""
    with pytest.raises(pytest.fail.Exception, match=r"selverify\.novelty stands in no layer"):
        violations("selverify.gates", "import selverify.novelty")


def test_every_file_is_looked_at() -> None:
    """The search for files finds the modules that every version has."""
    assert {"selverify", "selverify.types", "selverify.domains.base"} <= {
        module_name(path) for path in FILES
    }
