"""Files of other projects as entries of a log, one module a format.

``IMPORTERS[name](path)`` gives the entries of a file or a folder one by one; an ``Imported`` beside
it counts what was left out, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selverify.recorded.importers.base import Imported, Importer
from selverify.recorded.importers.omegaprm import read_omegaprm
from selverify.recorded.importers.prm800k import read_prm800k
from selverify.recorded.importers.sample_rows import read_sample_rows
from selverify.recorded.importers.search_and_learn import read_search_and_learn
from selverify.recorded.importers.tree_of_thought import read_tree_of_thought

IMPORTERS: Mapping[str, Importer] = MappingProxyType(
    {
        "prm800k": Importer("steps rated by people (OpenAI), lists with labels", read_prm800k),
        "omegaprm": Importer("OpenR's trees, lists with Monte-Carlo values", read_omegaprm),
        "tree_of_thought": Importer(
            "breadth-first logs of tree-of-thought-llm, lists with values", read_tree_of_thought
        ),
        "search_and_learn": Importer(
            "completions of Hugging Face's search-and-learn (JSON lines, Parquet)",
            read_search_and_learn,
        ),
        "sample_rows": Importer("one solution a row, with step scores", read_sample_rows),
    }
)

__all__ = ["IMPORTERS", "Imported", "Importer"]
