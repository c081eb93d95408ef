"""The report as Markdown, LaTeX, HTML, CSV and for a terminal.

Knows: how sections are laid out, the template ``page.html`` beside this file. Does not know: what
is in the sections.

Texts of models and problems are hostile: the template escapes them, and the explorer's data is
packed, and put into the page by a script that sets text and never markup.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from selverify.errors import ArtifactError
from selverify.report.names import DESCRIPTIONS, FULL_METHOD, method_name
from selverify.report.sections import ReportData, glance_table, sections, terminal_table
from selverify.report.trace_text import LEGEND
from selverify.storage import atomic_path

ORIGIN = "<!-- origin -->"
"""Where the pipeline puts, into a copy, which commit, machine and models the numbers are of."""
MOST_COLUMNS = 1000
_TAG = re.compile(r"<(?=[a-zA-Z/!?])")
_EMPHASIS = str.maketrans("", "", "*`")
"""Marks of emphasis in notes, which are Markdown."""


def to_markdown(report: ReportData) -> str:
    """The whole report as Markdown."""
    parts = [f"# Report: {report.title}", report.verdict]
    for section in sections(report):
        header = section.header
        lines = [header, ["---", *["---:"] * (len(header) - 1)], *section.rows]
        rows = (" | ".join(map(_cell, line)) for line in lines)
        parts += [f"## {section.title}", "\n".join(f"| {row} |" for row in rows)]
        parts += [section.note] if section.note else []
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """One line of a table, in which no tag and no comment begins."""
    return " ".join(_TAG.sub("&lt;", text).replace("|", "\\|").split())


def to_latex(report: ReportData) -> str:
    """Every table of the report for LaTeX with booktabs, one ``table`` a section."""
    return "\n".join(
        pd.DataFrame(section.rows, columns=section.header).to_latex(
            index=False,
            escape=True,
            caption=section.title.replace("%", r"\%").replace("_", r"\_"),
            column_format="l" + "r" * (len(section.header) - 1),
            position="htbp",
        )
        for section in sections(report)
    )


def to_terminal(report: ReportData, *, width: int) -> str:
    """Accuracy at equal calls for a terminal of ``width`` columns, and what it says.

    A table with many levels is wider: no number is cut.
    """
    shown = terminal_table(report)
    table = Table(title=escape(shown.title), box=box.SIMPLE_HEAD, padding=0)
    for place, name in enumerate(shown.header):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    for row in shown.rows:
        table.add_row(*map(escape, row))
    text = io.StringIO()
    whole = Console(file=text, width=MOST_COLUMNS)
    needed = Measurement.get(whole, whole.options, table).maximum
    Console(file=text, width=max(width, needed)).print(table)
    Console(file=text, width=width).print(escape(report.verdict), highlight=False)
    return text.getvalue()


def to_html(
    report: ReportData, figures: Path, searches: Sequence[Mapping[str, Any]], *, remark: str = ""
) -> str:
    """One self-contained page with the trace explorer; figures are read from ``figures``.

    Args:
        searches: as ``explorer_data`` gives; without any the page has no explorer.
        remark: what is to be known to read a move.

    Raises:
        ArtifactError: a section's figure is missing.
    """
    environment = Environment(
        loader=PackageLoader("selverify.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=report.title,
        verdict=report.verdict,
        glance=glance_table(report),
        sections=sections(report),
        emphasis=_EMPHASIS,
        figure=lambda stem: _data_url(figures / f"{stem}.svg"),
        described=DESCRIPTIONS,
        full=method_name(FULL_METHOD),
        legend=LEGEND,
        remark=remark,
        origin=ORIGIN,
        searches=bool(searches),
        data=_packed(searches),
    )


def write_text(text: str, path: Path) -> None:
    """Write ``text`` to ``path``, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, whole or not at all; missing values are empty cells."""
    with atomic_path(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


def _packed(searches: Sequence[Mapping[str, Any]]) -> str:
    """JSON in gzip in base64, an eighth as long, which the page unpacks."""
    text = json.dumps(searches, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, mtime=0)).decode("ascii")


def _data_url(figure: Path) -> str:
    """A figure in the page's text: its styles and identifiers stay its own."""
    if not figure.is_file():
        raise ArtifactError(f"{figure}: no such file; expected a figure of the report")
    return "data:image/svg+xml;base64," + base64.b64encode(figure.read_bytes()).decode("ascii")
