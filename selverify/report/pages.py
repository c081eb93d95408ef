"""The report as Markdown, for LaTeX, for a terminal, and as files.

Knows: how sections are laid out. Does not know: what is in them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from selverify.report.formatting import ranged
from selverify.report.names import method_name
from selverify.report.sections import Report, sections, title
from selverify.storage import atomic_path


def render(report: Report) -> str:
    """The whole report as Markdown."""
    parts = [f"# Report: {title(report)}"]
    for section in sections(report):
        parts += [f"## {section.title}", _markdown(section.header, section.rows)]
        parts += [section.note] if section.note else []
    return "\n\n".join(parts) + "\n"


def latex(report: Report) -> str:
    """Every table of the report for LaTeX with booktabs, one ``table`` a section."""
    return "\n".join(
        pd.DataFrame(section.rows, columns=list(section.header)).to_latex(
            index=False,
            escape=True,
            caption=section.title.replace("%", r"\%").replace("_", r"\_"),
            column_format="l" + "r" * (len(section.header) - 1),
            position="htbp",
        )
        for section in sections(report)
    )


def main_table_text(main: pd.DataFrame, *, budget: int, width: int) -> str:
    """The main table for a terminal of ``width`` columns: accuracy, calls, tokens, difference."""
    heading = f"N = {budget}, {int(main['problems'].max())} problems, [95 % intervals]"
    table = Table(title=escape(heading), box=box.SIMPLE_HEAD)
    header = ("Method", "Accuracy, %", "Verifier calls", "Tokens", "Difference to full, points")
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    for _, r in main.iterrows():
        cells = (
            method_name(str(r["method"])),
            ranged(r, "accuracy", scale=100),
            f"{r['verifier_calls']:.1f}",
            f"{r['generated_tokens']:.0f}",
            ranged(r, "difference", scale=100, signed=True),
        )
        table.add_row(*(escape(cell) for cell in cells))
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return text.getvalue()


def write_text(text: str, path: Path) -> None:
    """Write ``text`` to ``path``, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, whole or not at all; missing values are empty cells."""
    with atomic_path(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *body]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
