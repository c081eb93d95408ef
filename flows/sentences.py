"""The numbers in sentences that people write, held to the table cells that they are of.

Knows: Markdown tables, a file of sentences for each page. Does not know: how a number was measured.

A sentence is a piece of a page's text in which a number is replaced by what it has to be:
``{table; row; column}``, the first number of that cell, or with ``; 2`` the second. The row is
named by a cell of it, or by several (``a & b``); an empty first cell counts as the one above. After
bars follows what is made of it, from left to right: ``negated``, ``percent`` (times 100), or, with
a second cell after one more bar, ``minus``, ``over``, and ``below`` (by how many percent).
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

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from selverify.errors import SchemaError
from selverify.params import validation_sentence

SENTENCES = Path("docs/results/sentences")
"""A file for each page, by its stem."""
WRITTEN = re.compile(
    r"<!-- (\w+):begin -->.*?<!-- \1:end -->|^```.*?^```", re.DOTALL | re.MULTILINE
)
"""What a command writes into a page, and code."""
NUMBER = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?"
CELL = rf"{NUMBER}(?:e[-+]\d+)?"
MEASURED = re.compile(r"`[^`]*`|(?<![\w.,+-])([-+]?\d+(?:,\d{3})*(?:\.\d+(?![\w.]*\w)|(?= %)))")
"""Its group: a number with a point or before a percent sign, outside code."""
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
WHOLE = Fraction(1, 2)
"""Half a unit of a whole number."""
Row = dict[str, str]


class Page(BaseModel):
    """What is known of the numbers in one page's sentences.

    ``tables`` by the name that sentences give them: page, heading, and which of several below it
    (the first is 1), or a CSV file. ``elsewhere`` are pieces of text whose numbers are in no
    table, by what measured them. ``cells``: the page's tables are written by people, too, and only
    what ``sentences`` say of them is checked.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: dict[str, tuple[str] | tuple[str, str] | tuple[str, str, int]]
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


def _between(
    first: Rounded, second: Rounded, made: Callable[[Fraction, Fraction], Fraction]
) -> Rounded:
    """What is made of two numbers, monotonic in each."""
    ends = [
        made(first.value + one * first.half, second.value + two * second.half)
        for one in (-1, 1)
        for two in (-1, 1)
    ]
    return Rounded((max(ends) + min(ends)) / 2, (max(ends) - min(ends)) / 2)


ALONE: Mapping[str, int] = {"negated": -1, "percent": 100}
TOGETHER: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "minus": lambda first, second: first - second,
    "over": lambda first, second: first / second,
    "below": lambda first, second: 100 * (1 - first / second),
}


def check_sentences(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Of each page with a file of sentences: a line that counts its numbers, and what is wrong.

    Raises:
        SchemaError: a file, or what it says of a number, cannot be read.
    """
    for file in sorted((root / SENTENCES).glob("*.yaml")):
        pages = [root / "README.md", *(root / "docs").glob("*.md")]
        page = next((one for one in pages if one.stem == file.stem), None)
        if page is None:
            raise SchemaError(f"{file}: expected the name of a page")
        wrong, held, elsewhere = _checked(page, _read(file), file)
        said = (
            f"{page.name}: {held} numbers in sentences are those of tables, {elsewhere} are in none"
        )
        yield said, wrong


def _read(file: Path) -> Page:
    try:
        return Page.model_validate(yaml.safe_load(file.read_text("utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        said = validation_sentence(error) if isinstance(error, ValidationError) else str(error)
        raise SchemaError(f"{file}: {said}") from error


def _checked(page: Path, known: Page, file: Path) -> tuple[list[str], int, int]:
    """What is wrong, how many numbers are those of tables, and how many are measured elsewhere."""
    text = WRITTEN.sub("", page.read_text("utf-8"))
    text = " ".join((text if known.cells else TABLE.sub("", text)).split())
    wrong: list[str] = []
    held, elsewhere = set[int](), set[int]()
    for sentence in known.sentences:
        literal, references = _split(sentence)
        pattern = f"({NUMBER})".join(re.escape(part) for part in literal)
        found = [*re.finditer(rf"(?<![\w.+-]){pattern}(?!\.?\w)", text)]
        if len(found) != 1:
            wrong.append(
                f"{file.name}: '{sentence}' is {len(found)} times on the page, expected once"
            )
            continue
        for place, reference in enumerate(references, 1):
            held.add(found[0].start(place))
            printed = Rounded.read(found[0][place])
            try:
                expected = _value(reference, known, file)
            except SchemaError as error:
                wrong.append(str(error))
                continue
            finer = printed.half < min(expected.half, WHOLE) and not {*TOGETHER} & {
                *reference.split(" | ")
            }
            if finer or not expected.agrees(printed):
                stated = f"{float(expected.value):.6g} ({reference})"
                wrong.append(
                    f"{page.name}: '{found[0][0]}': given {found[0][place]}, expected {stated}"
                )
    for piece in (piece for pieces in known.elsewhere.values() for piece in pieces):
        at = [*re.finditer(rf"(?<![\w.]){re.escape(' '.join(piece.split()))}(?!\.?\d)", text)]
        if len(at) != 1:
            wrong.append(f"{file.name}: '{piece}' is {len(at)} times on the page, expected once")
        elsewhere |= {place for one in at for place in range(*one.span())}
    counted = [one for one in MEASURED.finditer(text) if one[1]]
    if not known.cells:
        wrong += [
            f"{page.name}: '{text[max(0, one.start() - 60) : one.end() + 20]}': {file.name} does "
            "not say what this number is of"
            for one in counted
            if one.start(1) not in held | elsewhere
        ]
    return wrong, len(held), sum(one.start(1) in elsewhere - held for one in counted)


def _split(sentence: str) -> tuple[list[str], list[str]]:
    """The text around the references, and these."""
    parts = re.split(r"\{(.*?)\}", " ".join(sentence.split()))
    return parts[::2], parts[1::2]


def _value(reference: str, known: Page, file: Path) -> Rounded:
    first, *then = [part.strip() for part in reference.split("|")]
    value, words = _cell(first, known, file), iter(then)
    for word in words:
        if word in ALONE:
            value = value.times(ALONE[word])
        elif word in TOGETHER:
            second = _cell(next(words, ""), known, file)
            if word != "minus" and abs(second.value) <= second.half:
                raise SchemaError(f"{file.name}: '{reference}': expected a second number above 0")
            value = _between(value, second, TOGETHER[word])
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
    """The rows of a table by column, the second ``calls`` as ``calls 2``.

    An empty first cell is that of the row above.
    """
    if page.endswith(".csv"):
        return [
            {
                str(name): f"{cell:.9f}" if isinstance(cell, float) else str(cell)
                for name, cell in row.items()
            }
            for row in pd.read_csv(root / page).to_dict("records")
        ]
    text = (root / page).read_text("utf-8")
    sections = re.split(r"^#+ ", text, flags=re.MULTILINE)
    tables = [
        table for one in sections if one.startswith(f"{heading}\n") for table in TABLE.findall(one)
    ]
    if len(tables) < place:
        raise SchemaError(f"{page}: no table {place} below '{heading}'")
    columns, _, *rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        for line in tables[place - 1].splitlines()
    ]
    for above, row in pairwise(rows):
        row[0] = row[0] or above[0]
    before = [columns[:place].count(name) for place, name in enumerate(columns)]
    names = [
        f"{name} {count + 1}" if count else name
        for name, count in zip(columns, before, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in rows]
