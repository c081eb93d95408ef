"""The report as one self-contained HTML page, with the trace explorer.

Knows: the template ``page.html`` beside this file. Does not know: what is in the sections.

Texts of models and problems are hostile: the template escapes them, and the explorer's data is JSON
whose ``<`` are escaped, put into the page by a script that sets text and never markup.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from selverify.errors import ArtifactError
from selverify.report.names import FULL, method_name
from selverify.report.sections import Report, sections, title
from selverify.report.trace_text import LEGEND

FIGURE = ".svg"
MARKDOWN = str.maketrans("", "", "*`")
"""Marks of emphasis in notes, which are Markdown."""


def render_html(report: Report, figures: Path, searches: Sequence[Mapping[str, Any]]) -> str:
    """The whole page; figures are read from ``figures`` and put in.

    Args:
        searches: as ``explorer_data`` gives; without any the page has no explorer.

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
    shown = [
        {
            "title": section.title,
            "header": section.header,
            "rows": section.rows,
            "note": section.note.translate(MARKDOWN),
            "figure": _figure(figures, section.figure) if section.figure else "",
        }
        for section in sections(report)
    ]
    return environment.get_template("page.html").render(
        title=title(report),
        sections=shown,
        full=method_name(FULL),
        legend=LEGEND,
        searches=bool(searches),
        data=json.dumps(searches, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _figure(folder: Path, stem: str) -> str:
    """A figure as a data URL: its styles and identifiers stay its own."""
    path = folder / f"{stem}{FIGURE}"
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected a figure of the report")
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
