"""Files of other projects as entries of a log, one module a format.

``IMPORTERS[name](path)`` gives the entries of a file or a folder one by one; an ``Imported`` beside
it counts what was left out, and why. ``import_log`` is ``selverify import``; ``read_any`` takes a
log or files of others, whichever a path leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from selverify.audit.importers.base import JSON_FILES, Imported, Importer, files_below
from selverify.audit.importers.omegaprm import read_omegaprm
from selverify.audit.importers.prm800k import read_prm800k
from selverify.audit.importers.sample_rows import read_sample_rows
from selverify.audit.importers.search_and_learn import read_search_and_learn
from selverify.audit.importers.tree_of_thought import read_tree_of_thought
from selverify.audit.log import Log, Placed, accepted_log, is_entry, read_log, write_placed
from selverify.audit.records import PARQUET, first_value, suffix_of
from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.storage import check_place

SEARCH_AND_LEARN = "search_and_learn"
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
        SEARCH_AND_LEARN: Importer(
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


def read_any(path: Path) -> tuple[Log, list[str]]:
    """The log at ``path``, or that of the runs of others there; and what was left out, and why.

    Raises:
        ArtifactError: no such file or folder.
        SchemaError: it is neither, or as :func:`read_log` and the importer do.
    """
    if not path.exists():
        raise ArtifactError(f"{path}: no such file; expected a log, or runs of others")
    form = _form(path)
    if form is not None:
        imported = Imported()
        log = accepted_log(IMPORTERS[form].placed(path, imported))
        told = list(imported.sentences())
        if not imported.entries:
            raise SchemaError(f"{_nothing(path, form)} ({'; '.join(told)})")
        return log, told
    try:
        return read_log(path), []
    except SchemaError as error:
        record = first_value(path)
        if not isinstance(record, dict) or "kind" in record:
            raise
        raise SchemaError(f"{error}; or runs of others: {', '.join(IMPORTERS)}") from error


def _form(path: Path) -> str | None:
    """Whose format it is; None for our own."""
    faults: list[str] = []
    for file in sorted(files_below(path, faults)) if path.is_dir() else [path]:
        if suffix_of(file) == PARQUET:
            return SEARCH_AND_LEARN
        record = first_value(file)
        if not is_entry(record) and (form := format_of(record)) is not None:
            return form
    if not path.is_dir():
        return None
    unread = f" ({faults[0]})" if faults else ""
    raise SchemaError(
        f"{path}: given a folder of no known format{unread}, expected a log, or files of one of "
        f"{', '.join(IMPORTERS)}"
    )


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
        raise SchemaError(_nothing(source, form))


def _nothing(source: Path, form: str) -> str:
    return f"{source}: given nothing that {form!r} can import, expected some"


__all__ = ["IMPORTERS", "Imported", "Importer", "format_of", "import_log", "read_any"]
