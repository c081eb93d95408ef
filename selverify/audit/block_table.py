"""A table for a terminal: where it is too wide, it is broken into blocks of columns and never cut.

Knows: texts and how wide they are. Does not know: what they say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

GAP = 3
"""Characters between two columns: four columns with intervals fit into 80 without an edge."""


class BlockTable:
    """Rows under headings, printed by rich; every block repeats the first column, the names.

    Where not even one column fits beside the names, cells are wrapped.

    Args:
        narrowest: characters into which names may be broken if the table fits then; None: they
            are not broken.
    """

    def __init__(self, *heads: str, narrowest: int | None = None) -> None:
        self.heads = heads
        self.narrowest = narrowest
        self.rows: list[tuple[str, ...]] = []
        self.styles: list[str] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """Append a row; a cell may have several lines, and brackets in it are no markup."""
        self.rows.append(cells)
        self.styles.append(style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names, *values = [_width(column) for column in zip(self.heads, *self.rows, strict=True)]
        room = options.max_width - sum(GAP + width for width in values)
        if self.narrowest is not None and room >= self.narrowest:
            names = min(names, room)
        for number, block in enumerate(_blocks(names, values, options.max_width)):
            if number:
                yield ""
            yield self._table(names, block)

    def _table(self, names: int, block: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column(self.heads[0], max_width=names, overflow="fold")
        for place in block:
            table.add_column(self.heads[place], justify="right", overflow="fold")
        for row, style in zip(self.rows, self.styles, strict=True):
            table.add_row(*(Text(row[place]) for place in (0, *block)), style=style)
        return table


def _width(column: Sequence[str]) -> int:
    return max(cell_len(line) for text in column for line in text.split("\n"))


def _blocks(names: int, values: Sequence[int], room: int) -> Iterator[list[int]]:
    """The places of the columns of each block, from 1; as many as fit, and at least one."""
    block: list[int] = []
    used = names
    for place, width in enumerate(values, start=1):
        if block and used + GAP + width > room:
            yield block
            block, used = [], names
        block.append(place)
        used += GAP + width
    yield block
