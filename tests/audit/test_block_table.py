"""A table that is too wide for the terminal is broken into blocks, and nothing of it is cut."""

from __future__ import annotations

import re
from io import StringIO

from rich.console import Console

from selverify.audit.block_table import BlockTable

NAMES = ("pass@N", "weighted vote, prod")


def printed(table: BlockTable, width: int) -> list[str]:
    text = StringIO()
    Console(file=text, width=width).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def numbered(*, narrowest: int | None = None) -> BlockTable:
    """Ten columns of eight characters, each cell with another number."""
    table = BlockTable("Method", *(f"N = {1000 + n}" for n in range(10)), narrowest=narrowest)
    for place, name in enumerate(NAMES):
        table.add_row(name, *(f"{100 * place + n}.5 [m]" for n in range(10)))
    return table


def test_every_cell_is_printed_once_at_any_width() -> None:
    """Brackets are no markup; the names are repeated in every block."""
    cells = sorted(f"{100 * place + n}.5 [m]" for place in range(2) for n in range(10))
    for width in range(31, 160, 7):
        lines = printed(numbered(), width)
        assert max(map(len, lines)) <= width
        assert sorted(re.findall(r"\S+ \[m\]", "\n".join(lines))) == cells
        blocks = sum(line.startswith("Method") for line in lines)
        assert [sum(line.startswith(name) for line in lines) for name in NAMES] == [blocks] * 2
    assert (len(printed(numbered(), 150)), len(printed(numbered(), 31))) == (4, 49)


def test_names_are_broken_where_the_table_fits_then() -> None:
    """Else they are not, for blocks are needed anyway."""
    assert "weighted vote," in printed(numbered(narrowest=14), 135)[3]
    assert printed(numbered(narrowest=14), 135)[4] == "prod"
    assert printed(numbered(narrowest=14), 80) == printed(numbered(), 80)


def test_where_no_column_fits_beside_the_names_cells_are_wrapped() -> None:
    """No character is lost."""
    cells = [f"{100 * place + n}.5[m]" for place in range(2) for n in range(10)]
    for width in (12, 20):
        table = numbered()
        table.heads = ("",) * 11
        found = "".join(printed(table, width)).replace("─", "").replace(" ", "")
        blocks = 10
        expected = "".join([*NAMES * blocks, *cells]).replace(" ", "")
        assert sorted(found) == sorted(expected)
