"""Logs of tree-of-thought-llm's breadth-first search, as candidate lists.

Knows: its JSON list of records with ``steps``, and the states of such logs as rows. Does not know:
the game, or whether a move is right: of the original logs no label comes, only the model's value.

A partial solution is a state; what was appended to it are the candidates, a move as long as it was
written, without the line's end. The value is the score. The original gives a repeated proposal
the value 0 when it values one by one, and votes of its own when it votes: repetitions are merged,
values added, ``times`` counted. ``committed`` is set where exactly one candidate was selected.

A search that was stopped lacks the last of these, or has null in their place: it is read as far as
it goes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from selverify.audit.importers.base import (
    NOT_RECORDED,
    Foreign,
    Imported,
    Label,
    SourceFile,
    as_label,
    as_name,
)
from selverify.audit.log import Name, Placed, RecordedList, Score, Text
from selverify.audit.records import Record, read_records, validated
from selverify.errors import SchemaError

_MODEL = re.compile(r"(?P<model>.+?)_\d+(?:\.\d+)?_")
"""The beginning of the original's file names: model, temperature."""
_MOST_STATES = 200
"""Of one step of a search: each proposal is compared with as many."""
_Moves = tuple[str, ...]


class _Level(Foreign):
    """One step of the search: partial solutions ``ys``, and ``new_ys`` that continue them."""

    x: Text
    ys: Annotated[list[Text], Field(max_length=_MOST_STATES)]
    new_ys: list[Text] | None = None
    values: list[Score] | None = None
    select_new_ys: list[Text] | None = None


class _Record(Foreign):
    idx: int
    steps: list[_Level] | None


class _Proposal(Foreign):
    text: Text
    value: Score | None = None
    label: Label | None = None
    selected: bool = False


class _Row(Foreign):
    """A state by itself; ``start`` are the puzzle's numbers."""

    log: Name
    model: Name
    puzzle_idx: int
    depth: int
    start: list[Text]
    prefix: list[Text]
    candidates: list[_Proposal]


def read_tree_of_thought(_: Path, source: SourceFile, imported: Imported) -> Iterator[Placed]:
    """A list a visited state."""
    visited: Counter[tuple[str, int, int]] = Counter()
    for record in read_records(source.file):
        value = record.value
        if isinstance(value, dict) and "candidates" in value:
            yield from _of_row(record, visited, imported)
        elif isinstance(value, dict) and "ys" in value and "steps" not in value:
            imported.remark("records left out: samples without a search")
        else:
            yield from _of_record(record, source.run, imported)


def _of_record(record: Record, run: str, imported: Imported) -> Iterator[Placed]:
    found = validated(_Record, record.value, record.where)
    model = _MODEL.match(run.rpartition("/")[2])
    written: dict[str, _Moves] = {"": ()}
    imported.remark("records left out: stopped before the first step", int(not found.steps))
    for depth, level in enumerate(found.steps or ()):
        where = f"{record.where}, step {depth}"
        proposals = _by_state(level, written, where, imported)
        states = list(dict.fromkeys(level.ys))
        for place, state in enumerate(states):
            if state in proposals:
                yield (
                    where,
                    _list(
                        where,
                        proposals[state],
                        imported,
                        problem_id=as_name(level.x),
                        state_id=f"{found.idx}-{depth}-{place}",
                        run=run,
                        model=model["model"] if model else NOT_RECORDED,
                        question=level.x,
                        prefix=written[state],
                    ),
                )


def _by_state(
    level: _Level, written: dict[str, _Moves], where: str, imported: Imported
) -> dict[str, list[_Proposal]]:
    """What was proposed at each state; ``written`` learns the moves of each continuation."""
    proposed, values = _valued(level, where, imported)
    selected = set(level.select_new_ys or ())
    known = {state for state in level.ys if state in written}
    lengths = sorted({len(state) for state in known}, reverse=True)
    proposals: dict[str, list[_Proposal]] = {}
    for new, value in zip(proposed, values, strict=True):
        # The longest that it continues: one state may begin with another.
        begun = (new[:length] for length in lengths if length < len(new))
        state = next((one for one in begun if one in known), None)
        if state is None:
            imported.remark("proposals left out: they continue no known state")
            continue
        text = new[len(state) :].removesuffix("\n")
        written[new] = (*written[state], text)
        proposal = _Proposal(text=text, value=value, selected=new in selected)
        proposals.setdefault(state, []).append(proposal)
    return proposals


def _valued(
    level: _Level, where: str, imported: Imported
) -> tuple[Sequence[str], Sequence[float | None]]:
    """The proposals and a value for each, as far as the search went."""
    if level.new_ys is None:
        imported.remark("steps left out: stopped before their proposals")
        return (), ()
    if level.values is None:
        imported.remark("steps stopped before their values: no scores")
        return level.new_ys, [None] * len(level.new_ys)
    if len(level.values) != len(level.new_ys):
        raise SchemaError(
            f"{where}: values: given {len(level.values)}, expected one for each of "
            f"{len(level.new_ys)} new_ys"
        )
    imported.remark("steps stopped before their selection", int(level.select_new_ys is None))
    return level.new_ys, level.values


def _of_row(
    record: Record, visited: Counter[tuple[str, int, int]], imported: Imported
) -> Iterator[Placed]:
    row = validated(_Row, record.value, record.where)
    if not row.candidates:
        imported.remark("states left out: no proposal")
        return
    place = (row.log, row.puzzle_idx, row.depth)
    puzzle = " ".join(row.start)
    yield (
        record.where,
        _list(
            record.where,
            row.candidates,
            imported,
            problem_id=as_name(puzzle),
            state_id=f"{row.puzzle_idx}-{row.depth}-{visited[place]}",
            run=row.log,
            model=row.model,
            question=puzzle,
            prefix=row.prefix,
        ),
    )
    visited[place] += 1


def _list(
    where: str, proposals: Sequence[_Proposal], imported: Imported, **names: Any
) -> RecordedList:
    """The list of the merged proposals."""
    merged: dict[str, list[_Proposal]] = {}
    for one in proposals:
        merged.setdefault(one.text, []).append(one)
    imported.remark("repeated proposals merged", len(proposals) - len(merged))
    chosen = [
        place for place, same in enumerate(merged.values()) if any(one.selected for one in same)
    ]
    imported.remark("states with several selected moves: none is committed", int(len(chosen) > 1))
    fields = names | {
        "candidates": [_candidate(text, same) for text, same in merged.items()],
        "committed": chosen[0] if len(chosen) == 1 else None,
    }
    return validated(RecordedList, fields, where)


def _candidate(text: str, same: Sequence[_Proposal]) -> Mapping[str, object]:
    """Equal proposals as one; the first one's label counts."""
    values = [one.value for one in same if one.value is not None]
    return {
        "text": text,
        "score": sum(values) if values else None,
        "label": as_label(same[0].label),
        "times": len(same),
    }
