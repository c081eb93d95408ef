"""Which project files a module needs: imports followed without executing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGES = ("selverify", "tasks")


def closure(root: Path, start: Path) -> frozenset[Path]:
    """``start`` and every file of PACKAGES that it imports, directly or not, relative to root."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(root, file)
    return frozenset(found)


@cache
def _imported(root: Path, file: Path) -> tuple[Path, ...]:
    tree = ast.parse((root / file).read_text(encoding="utf-8"))
    names = {name for node in ast.walk(tree) for name in _names(node)}
    ours = (name.split(".") for name in names if name.split(".")[0] in PACKAGES)
    return tuple(found for parts in ours for found in _files(root, Path(*parts)))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files(root: Path, module: Path) -> Iterator[Path]:
    for file in (module.with_suffix(".py"), module / "__init__.py"):
        if (root / file).is_file():
            yield file
