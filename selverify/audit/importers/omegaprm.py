"""Trees of OmegaPRM as OpenR writes them: children with Monte-Carlo values, as candidate lists.

Knows: OpenR's tree (``question``, ``reasoning_steps`` with ``text``, ``mc_value``, ``children``), a
record a line or a file a question, and the same trees as rows, one state each. Does not know:
rollouts.

A node with children is a state; its children are the candidates, and the share of rollouts from a
child that end right is its score. It is no label: a wrong step can be followed by a right answer.
OpenR's other layouts, solution prefixes and rollouts by state, hold no tree and are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from selverify.audit.importers.base import (
    NOT_RECORDED,
    Foreign,
    Imported,
    Source,
    made,
    stem,
    text_id,
)
from selverify.audit.lines import Record, checked, read_records
from selverify.audit.log import Entry
from selverify.audit.schema import RecordedList, Score, Text


class _Node(Foreign):
    text: Text
    mc_value: Score | None
    children: list[_Node]


class _Tree(Foreign):
    question: Text
    reasoning_steps: _Node


class _RowCandidate(Foreign):
    text: Text
    mc_value: Score | None


class _Row(Foreign):
    """A state of the tree with the number ``tree``."""

    tree: int
    question: Text
    prefix: list[Text]
    candidates: list[_RowCandidate]


def read_omegaprm(path: Path, source: Source, imported: Imported) -> Iterator[Entry]:
    """A list a node that has children; the files of a folder are one run."""
    run = stem(path)
    states: Counter[int] = Counter()
    for record in read_records(source.file):
        value = record.value
        if isinstance(value, dict) and _holds_no_tree(value):
            imported.remark("records left out: prefixes or rollouts, no tree")
        elif isinstance(value, dict) and "candidates" in value:
            row = checked(_Row, value, record.where)
            states[row.tree] += 1
            name = f"{row.tree}-{states[row.tree]}"
            yield from _of_row(row, record, run, _named(path, source, name), imported)
        else:
            name = _named(path, source, str(record.number))
            yield from _of_tree(record, run, name, imported)


def _holds_no_tree(value: dict[str, object]) -> bool:
    return "states" in value or isinstance(value.get("reasoning_steps"), list)


def _named(path: Path, source: Source, name: str) -> str:
    return f"{source.run}-{name}" if path.is_dir() else name


def _of_tree(record: Record, run: str, name: str, imported: Imported) -> Iterator[Entry]:
    tree = checked(_Tree, record.value, record.where)
    waiting: list[tuple[_Node, tuple[str, ...], str]] = [(tree.reasoning_steps, (), name)]
    if not tree.reasoning_steps.children:
        imported.remark("trees left out: nothing but a root")
    while waiting:
        node, prefix, state_id = waiting.pop()
        if not node.children:
            continue
        yield _list(
            record.where,
            node.children,
            run=run,
            state_id=state_id,
            question=tree.question,
            prefix=prefix,
        )
        below = [
            (child, (*prefix, child.text), f"{state_id}.{place}")
            for place, child in enumerate(node.children)
        ]
        waiting.extend(reversed(below))


def _of_row(
    row: _Row, record: Record, run: str, state_id: str, imported: Imported
) -> Iterator[Entry]:
    if not row.candidates:
        imported.remark("states left out: no candidate")
        return
    yield _list(
        record.where,
        row.candidates,
        run=run,
        state_id=state_id,
        question=row.question,
        prefix=row.prefix,
    )


def _list(
    where: str,
    children: list[_Node] | list[_RowCandidate],
    *,
    run: str,
    state_id: str,
    question: str,
    prefix: Sequence[str],
) -> RecordedList:
    return made(
        RecordedList,
        where,
        problem_id=text_id(question),
        state_id=state_id,
        run=run,
        model=NOT_RECORDED,
        question=question,
        prefix=prefix,
        candidates=[{"text": child.text, "score": child.mc_value} for child in children],
    )
