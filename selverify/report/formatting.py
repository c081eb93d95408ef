"""How a table of the report is written: columns, each with the text of its cells.

Knows: what a value looks like, in which digits. Does not know: which tables there are, Markdown,
HTML, files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from selverify.report.names import method_name

TableRow = Mapping[Any, Any] | pd.Series


class Column(NamedTuple):
    """A column: its heading, the name of its value in a record, and how that is written."""

    heading: str
    name: str
    write: Callable[[TableRow, str], str]


@dataclass(frozen=True, slots=True, eq=False)
class ReportTable:
    """Records under a title, as text; with a note and the stem of a figure, "" where none is."""

    title: str
    columns: Sequence[Column]
    records: pd.DataFrame | Sequence[TableRow]
    note: str = ""
    figure: str = ""

    @property
    def header(self) -> list[str]:
        """The headings."""
        return [column.heading for column in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        """The text of every cell, a list a record."""
        found = self.records
        records = found.to_dict("records") if isinstance(found, pd.DataFrame) else found
        return [[column.write(one, column.name) for column in self.columns] for one in records]


def wide(table: pd.DataFrame, row: str, column: str) -> list[dict[str, Any]]:
    """One record a value of ``row``; the other values are named ``<value of column>.<name>``."""
    records: dict[object, dict[str, Any]] = {}
    for found in table.to_dict("records"):
        record = records.setdefault(found[row], {row: found[row]})
        record |= {f"{found[column]}.{name}": value for name, value in found.items()}
    return list(records.values())


def verbatim(record: TableRow, name: str) -> str:
    """The value as it is."""
    return str(record[name])


def words(record: TableRow, name: str) -> str:
    """The value with spaces for underscores."""
    return str(record[name]).replace("_", " ")


def labelled_method(record: TableRow, name: str) -> str:
    """The display name of a method."""
    return method_name(str(record[name]))


def number(
    record: TableRow,
    name: str,
    *,
    scale: float = 1,
    digits: int = 1,
    signed: bool = False,
) -> str:
    """A value times ``scale``; "-" where there is none."""
    value = record.get(name)
    if pd.isna(value):
        return "-"
    text = f"{scale * value:{'+' if signed else ''}.{digits}f}"
    return text if float(text) != 0 else text.lstrip("+-")


def ranged(
    record: TableRow | None,
    name: str,
    *,
    scale: float = 1,
    digits: int = 1,
    signed: bool = False,
    missing: str = "-",
) -> str:
    """A value with its interval in brackets; ``missing`` where there is no value.

    The ends are ``<name>_low`` and ``<name>_high``, or ``low`` and ``high`` beside ``value``.
    """
    if record is None or pd.isna(record.get(name)):
        return missing
    stem = name.removesuffix("value") if name.endswith("value") else f"{name}_"
    value, low, high = (
        number(record, one, scale=scale, digits=digits, signed=signed)
        for one in (name, f"{stem}low", f"{stem}high")
    )
    return value if low == "-" else f"{value} [{low}, {high}]"


def with_deviation(record: TableRow, name: str, *, scale: float = 1, digits: int = 1) -> str:
    """A mean, and in brackets its standard deviation (``<name>_sd``)."""
    mean = number(record, name, scale=scale, digits=digits)
    deviation = f"{name.removesuffix('_mean')}_sd"
    if mean == "-":
        return mean
    return f"{mean} (sd {number(record, deviation, scale=scale, digits=digits)})"


def p_value(record: TableRow, name: str) -> str:
    """A probability in three digits."""
    p = record[name]
    return "-" if pd.isna(p) else "<0.001" if p < 0.001 else f"{p:.3f}"
