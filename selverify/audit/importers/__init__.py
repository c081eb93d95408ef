"""Files of other projects as entries of a log, one module a format.

``IMPORTERS[name](path)`` gives the entries of a file or a folder one by one; an ``Imported`` beside
it counts what was left out, and why. ``import_log`` is ``selverify import``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from selverify.audit.importers.base import JSON_FILES, Imported, Importer
from selverify.audit.importers.omegaprm import read_omegaprm
from selverify.audit.importers.prm800k import read_prm800k
from selverify.audit.importers.sample_rows import read_sample_rows
from selverify.audit.importers.search_and_learn import read_search_and_learn
from selverify.audit.importers.tree_of_thought import read_tree_of_thought
from selverify.audit.log import Placed, is_entry, write_placed
from selverify.audit.records import PARQUET, first_value
from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.storage import check_place

IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "prm800k": Importer(
            "steps rated by people (OpenAI), lists with labels",
            read_prm800k,
            ({"question", "label"}, {"state_id", "problem", "candidates"}),
        ),
        "omegaprm": Importer(
            "OpenR's trees, lists with Monte-Carlo values",
            read_omegaprm,
            (
                {"question", "reasoning_steps"},
                {"tree", "question", "candidates"},
            ),
        ),
        "tree_of_thought": Importer(
            "breadth-first logs of tree-of-thought-llm, lists with values",
            read_tree_of_thought,
            (
                {"idx", "steps"},
                {"idx", "ys"},
                {"puzzle_idx", "depth", "candidates"},
            ),
        ),
        "search_and_learn": Importer(
            "completions of Hugging Face's search-and-learn (JSON lines, Parquet)",
            read_search_and_learn,
            ({"problem", "completions"},),
            (*JSON_FILES, PARQUET),
        ),
        "sample_rows": Importer(
            "one solution a row, with step scores",
            read_sample_rows,
            ({"cand", "steps"}, {"cand", "text"}),
        ),
    }
)


def format_of(record: object) -> str | None:
    """The name of the importer whose fields ``record`` has, if any."""
    return next((name for name, one in IMPORTERS.items() if one.describes(record)), None)


def import_log(form: str, source: Path, target: Path) -> Iterator[str]:
    """Write ``source`` as a log, and say what was left out and why.

    Raises:
        ParamsError: ``form`` is no importer's name.
        ArtifactError, SchemaError: as the importer and :func:`write_log` do, or nothing to import.
    """
    if form not in IMPORTERS:
        raise ParamsError(f"FORMAT: given {form!r}, expected among {', '.join(IMPORTERS)}")
    check_place(target)
    if not source.exists():
        raise ArtifactError(f"{source}: no such file; expected one to import, or a folder")
    if target.resolve().is_relative_to(source.resolve()):
        raise ParamsError(
            f"target: given {target}, which is {source} or below it, expected a path outside; the "
            "next import would read its own log"
        )
    if target.exists() and target.stat().st_size and not is_entry(first_value(target)):
        raise ParamsError(
            f"target: given {target}, which is there and no log, expected the log to write; remove "
            "it, or name another"
        )
    imported = Imported()
    write_placed(_some(IMPORTERS[form].placed(source, imported), source, form), target)
    yield from imported.sentences()
    yield f"Written to {target}; ask it: selverify audit {target}"


def _some(entries: Iterator[Placed], source: Path, form: str) -> Iterator[Placed]:
    nothing = True
    for entry in entries:
        nothing = False
        yield entry
    if nothing:
        raise SchemaError(f"{source}: given nothing that {form!r} can import, expected some")


__all__ = ["IMPORTERS", "Imported", "Importer", "format_of", "import_log"]
