"""The numbers in sentences that people write, held to the table cells that they are of.

Knows: Markdown tables, CSV files, a file of sentences for each page. Does not know: how a number
was measured.

A sentence is a piece of a page's text in which a number is replaced by what it has to be:
``{table; row; column}``, the first number of that cell, or with ``; n`` the n-th. The row is named
by a cell of it, or by several (``a & b``); an empty first cell counts as the one above. What is
made of the number follows after bars, from left to right: ``negated``, ``percent`` (times 100),
``complement`` (1 minus it), or, with a second cell after one more bar, ``minus``, ``over``, and
``below`` (by how many percent the first is below the second).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from selverify.errors import SchemaError
from selverify.params import validation_sentence

SENTENCES = Path("docs/results/sentences")
"""A file for each page, by its stem."""
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
WRITTEN = re.compile(
    rf"<!-- (\w+):begin -->.*?<!-- \1:end -->|{FENCED.pattern}", re.DOTALL | re.MULTILINE
)
"""What a command writes into a page, and code."""
NUMBER = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?"
CELL = rf"{NUMBER}(?:e[-+]\d+)?"
MEASURED = re.compile(
    r"`[^`]*`|(?<![\w.,+-])([-+]?\d+(?:,\d{3})*"
    r"(?:\.\d+(?![\w.]*\w)|(?=(?: (?:to|and|or) [\d.,]+|, [\d.,]+)* %)))"
)
"""Its group: a number with a point, or of those before a percent sign; outside code.

Other whole numbers need not be accounted for.
"""
TABLE = re.compile(r"(?:^\|.*(?:\n|\Z))+", re.MULTILINE)
WHOLE = Fraction(1, 2)
"""Half a unit of a whole number."""
NEARLY = Fraction(1, 10**6)
"""For what is made of two cells: one that lies in the middle may be rounded up or down."""
Row = dict[str, str]


class Page(BaseModel):
    """What is known of the numbers in one page's sentences.

    ``tables`` by the name that sentences give them: page, heading, and which of several below it
    (the first is 1), or a CSV file. ``elsewhere`` are pieces of text whose numbers are in no
    table, by what measured them. ``cells``: only what ``sentences`` say is checked, no number has
    to be accounted for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: dict[str, tuple[str] | tuple[str, str] | tuple[str, str, Annotated[int, Field(ge=1)]]]
    sentences: tuple[str, ...]
    elsewhere: dict[str, tuple[str, ...]] = {}
    cells: bool = False


@dataclass(frozen=True)
class Rounded:
    """A number known up to rounding: what it says, and half a unit of its last digit."""

    value: Fraction
    half: Fraction

    @classmethod
    def read(cls, text: str) -> Rounded:
        """Of a number as it is printed, also as 1.2e+04."""
        number = Decimal(text.replace(",", ""))
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int), "NUMBER matches no infinity"
        return cls(Fraction(number), Fraction(10) ** exponent / 2)

    def times(self, factor: int) -> Rounded:
        """Of ``factor`` times the number."""
        return Rounded(self.value * factor, self.half * abs(factor))

    def agrees(self, other: Rounded) -> bool:
        """Whether one number can have been rounded to both."""
        return abs(self.value - other.value) < self.half + other.half

    def states(self, known: Rounded) -> bool:
        """Whether this may be printed for ``known``: it agrees, and claims no more digits.

        A whole number may be printed to its last digit where ``known`` has a power of ten.
        """
        whole = self.value == known.value and self.half == WHOLE
        return known.agrees(self) and (self.half >= known.half or whole)


ALONE: Mapping[str, Callable[[Rounded], Rounded]] = {
    "negated": lambda one: one.times(-1),
    "percent": lambda one: one.times(100),
    "complement": lambda one: Rounded(1 - one.value, one.half),
}
TOGETHER: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "minus": lambda first, second: first - second,
    "over": lambda first, second: first / second,
    "below": lambda first, second: 100 * (1 - first / second),
}


def check_sentences(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Of each page with a file of sentences: a line that counts its numbers, and what is wrong.

    Raises:
        SchemaError: a file cannot be read, or is of no page.
    """
    _rows.cache_clear()
    for file in sorted((root / SENTENCES).glob("*.yaml")):
        pages = [root / "README.md", *(root / "docs").glob("*.md")]
        page = next((one for one in pages if one.stem == file.stem), None)
        if page is None:
            raise SchemaError(f"{file}: expected the name of a page")
        known = _read(file)
        wrong, held, elsewhere = _checked(page, known, file)
        measured = "" if known.cells else f", {elsewhere} named as measured elsewhere"
        yield f"{page.name}: {held} numbers compared with tables{measured}", wrong


def _read(file: Path) -> Page:
    try:
        return Page.model_validate(yaml.safe_load(file.read_text("utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        said = validation_sentence(error) if isinstance(error, ValidationError) else str(error)
        raise SchemaError(f"{file}: {said}") from error


def _text(page: Path) -> tuple[str, set[int]]:
    """The text of a page that people write, in one line, and the places that tables take in it."""
    text, of_tables = "", set[int]()
    written = WRITTEN.sub("", page.read_text("utf-8"))
    ends = [(one.start(), one.end()) for one in TABLE.finditer(written)]
    for start, end in pairwise([0, *(place for pair in ends for place in pair), len(written)]):
        before = len(text)
        text += " ".join(written[start:end].split()) + " "
        if (start, end) in ends:
            of_tables |= {*range(before, len(text))}
    return text, of_tables


def _checked(page: Path, known: Page, file: Path) -> tuple[list[str], int, int]:
    """What is wrong, how many numbers are those of tables, and how many are measured elsewhere."""
    text, of_tables = _text(page)
    wrong: list[str] = []
    held, elsewhere = set[int](), set[int]()
    for sentence in known.sentences:
        literal, references = _split(sentence)
        found = _found(f"({NUMBER})".join(map(re.escape, literal)), text)
        if len(found) != 1:
            wrong.append(f"{file.name}: '{sentence}': {len(found)} times on the page, expected one")
            continue
        for place, reference in enumerate(references, 1):
            held.add(found[0].start(place))
            try:
                expected = _value(reference, known, file)
            except SchemaError as error:
                wrong.append(str(error))
                continue
            if not Rounded.read(found[0][place]).states(expected):
                said = f"given {found[0][place]}, expected {float(expected.value):.6g}"
                wrong.append(f"{page.name}: '{found[0][0]}': {said} ({reference})")
    for piece in (" ".join(one.split()) for pieces in known.elsewhere.values() for one in pieces):
        at = _found(re.escape(piece), text)
        if len(at) != 1:
            wrong.append(f"{file.name}: '{piece}': {len(at)} times on the page, expected one")
        elsewhere |= {place for one in at for place in range(*one.span())}
    named = {
        part.partition(";")[0].strip()
        for sentence in known.sentences
        for reference in _split(sentence)[1]
        for part in reference.split("|")
    }
    wrong += [f"{file.name}: '{one}' is in no sentence" for one in known.tables if one not in named]
    counted = [one for one in MEASURED.finditer(text) if one[1] and one.start(1) not in of_tables]
    if not known.cells:
        wrong += [
            f"{page.name}: given {one[1]} in '{text[max(0, one.start() - 60) : one.end() + 20]}', "
            f"expected it in {file.name}"
            for one in counted
            if one.start(1) not in held | elsewhere
        ]
    return wrong, len(held), sum(one.start(1) in elsewhere - held for one in counted)


def _found(pattern: str, text: str) -> list[re.Match[str]]:
    """Where it is between ends of words and numbers."""
    return [*re.finditer(rf"(?<![\w.,+-]){pattern}(?!\.?\w)", text)]


def _split(sentence: str) -> tuple[list[str], list[str]]:
    """The text around the references, and these."""
    parts = re.split(r"\{(.*?)\}", " ".join(sentence.split()))
    return parts[::2], parts[1::2]


def _value(reference: str, known: Page, file: Path) -> Rounded:
    first, *then = [part.strip() for part in reference.split("|")]
    value, words = _cell(first, known, file), iter(then)
    for word in words:
        if word in ALONE:
            value = ALONE[word](value)
        elif word in TOGETHER:
            second = _cell(next(words, ""), known, file)
            if word != "minus" and second.value <= second.half:
                raise SchemaError(f"{file.name}: '{reference}': expected a second number above 0")
            value = Rounded(TOGETHER[word](value.value, second.value), NEARLY)
        else:
            expected = ", ".join((*ALONE, *TOGETHER))
            raise SchemaError(f"{file.name}: '{reference}': expected one of {expected} after a bar")
    return value


def _cell(reference: str, known: Page, file: Path) -> Rounded:
    parts = [part.strip() for part in reference.split(";")]
    if len(parts) not in {3, 4}:
        raise SchemaError(f"{file.name}: '{reference}': expected a table, a row and a column")
    name, row, column, which = [*parts, "1"][:4]
    if name not in known.tables:
        raise SchemaError(
            f"{file.name}: '{reference}': expected a table of {', '.join(known.tables)}"
        )
    rows = _rows(file.parents[3], *known.tables[name])
    found = [one for one in rows if {*row.split(" & ")} <= {*one.values()}]
    numbers = re.findall(CELL, found[0].get(column, "")) if len(found) == 1 else []
    if not (which.isdecimal() and 0 < int(which) <= len(numbers)):
        where = ", ".join(map(str, known.tables[name]))
        raise SchemaError(
            f"{file.name}: '{reference}': {where} has {len(found)} such rows, columns "
            f"{', '.join(next(iter(rows), {}))}, and {len(numbers)} numbers there"
        )
    return Rounded.read(numbers[int(which) - 1])


@cache
def _rows(root: Path, page: str, heading: str = "", place: int = 1) -> list[Row]:
    """The rows of a CSV file or of a table, by column.

    Raises:
        SchemaError: there is no such file, heading or table, or no whole one.
    """
    try:
        if page.endswith(".csv"):
            return [
                {
                    str(name): f"{cell:.9f}" if isinstance(cell, float) else str(cell)
                    for name, cell in row.items()
                }
                for row in pd.read_csv(root / page).to_dict("records")
            ]
        text = FENCED.sub("", (root / page).read_text("utf-8"))
        below = re.findall(rf"^#+ {re.escape(heading)}\n((?:(?!#+ ).*\n?)*)", text, re.MULTILINE)
        tables = [table for one in below for table in TABLE.findall(one)]
        if len(below) == 1 and len(tables) >= place:
            return _of_table(tables[place - 1])
    except (OSError, ValueError) as error:
        raise SchemaError(f"{page}: expected table {place} below '{heading}': {error}") from error
    raise SchemaError(
        f"{page}: given {len(below)} headings '{heading}' and {len(tables)} tables below, expected "
        f"one and table {place}"
    )


def _of_table(lines: str) -> list[Row]:
    """The second ``calls`` is ``calls 2``; an empty first cell is that of the row above."""
    columns, _, *rows = [
        [cell.strip() for cell in line.strip().split("|")[1:-1]] for line in lines.splitlines()
    ]
    for above, row in pairwise(rows):
        row[0] = row[0] or above[0]
    before = [columns[:place].count(name) for place, name in enumerate(columns)]
    names = [
        f"{name} {count + 1}" if count else name
        for name, count in zip(columns, before, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in rows]
