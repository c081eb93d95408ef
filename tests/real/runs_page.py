"""``make real``: what recorded runs of others say of the method, as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterator

import recorded_game24
import recorded_prm800k
import recorded_samples
from recorded import ROOT

from selverify.report.pages import write_text

PAGE = ROOT / "docs" / "recorded-runs.md"
FIGURES = ROOT / "docs" / "figures" / "recorded"
HEADING = """# Recorded runs of language models

Written by `make real` at commit `{commit}`. The savings of selective verification on runs that
others made and recorded: the order and the number of verifier calls are ours; the moves, the
samples and the verdicts are theirs. Each part names the records it used and how many were left
out. [recorded-log.md](recorded-log.md) does the same for your own logs.
Intervals are at 95 % and resample problems, because the states of one problem are not independent.

"""


def write(commit: str) -> None:
    """Measure everything, and write the figures and the page."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    parts = [
        *recorded_game24.section(),
        "",
        *recorded_prm800k.section(),
        "",
        *recorded_samples.section(),
        "",
        *_drawn(),
        *_sources(),
    ]
    write_text(HEADING.format(commit=commit) + "\n".join(parts) + "\n", PAGE)
    print(f"{PAGE.relative_to(ROOT)} written")


def _drawn() -> Iterator[str]:
    yield "## Figures\n"
    for path in recorded_samples.figures(FIGURES):
        if path.suffix == ".svg":
            yield f"![{path.stem.replace('_', ' ')}]({path.relative_to(PAGE.parent)})\n"


def _sources() -> Iterator[str]:
    yield "## Records\n"
    yield from (
        "- Game of 24: princeton-nlp/tree-of-thought-llm, "
        "microsoft/Everything-of-Thoughts-XoT (MIT)",
        "- PRM800K, phase 1 test (MIT), its prefixes from PRMBench (Apache-2.0): about half of it",
        "- MATH-500 x 32: staged-benchmark-2026/StrictPRMBench (CC-BY-4.0)",
        "- Llama 3.2 1B and 3B: mert-cemri/search-and-learn and three other forks (Apache-2.0), "
        "about 60 % of the problems",
    )
