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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from selverify.audit.importers.base import (
    NOT_RECORDED,
    Foreign,
    Imported,
    SourceFile,
    stem,
    text_id,
)
from selverify.audit.log import Placed, RecordedList, Score, Text
from selverify.audit.records import Record, read_records, validated


class _Child(Foreign):
    text: Text
    mc_value: Score | None


class _Node(_Child):
    children: list[_Node]


class _Tree(Foreign):
    question: Text
    reasoning_steps: _Node


class _Row(Foreign):
    """A state of the tree with the number ``tree``."""

    tree: int
    question: Text
    prefix: list[Text]
    candidates: list[_Child]


def read_omegaprm(path: Path, source: SourceFile, imported: Imported) -> Iterator[Placed]:
    """A list a node that has children; the files of a folder are one run."""
    run, name = stem(path), f"{source.run}-" if path.is_dir() else ""
    states: Counter[int] = Counter()
    for record in read_records(source.file):
        value = record.value
        if isinstance(value, dict) and _holds_no_tree(value):
            imported.remark("records left out: prefixes or rollouts, no tree")
        elif isinstance(value, dict) and "candidates" in value:
            row = validated(_Row, value, record.where)
            states[row.tree] += 1
            if row.candidates:
                state_id = f"{name}{row.tree}-{states[row.tree]}"
                place = {"run": run, "state_id": state_id, "prefix": row.prefix}
                yield record.where, _list(record, row.question, row.candidates, place)
            else:
                imported.remark("states left out: no candidate")
        else:
            yield from _of_tree(record, run, f"{name}{record.number}", imported)


def _holds_no_tree(value: dict[str, object]) -> bool:
    return "states" in value or isinstance(value.get("reasoning_steps"), list)


def _of_tree(record: Record, run: str, name: str, imported: Imported) -> Iterator[Placed]:
    tree = validated(_Tree, record.value, record.where)
    waiting: list[tuple[_Node, tuple[str, ...], str]] = [(tree.reasoning_steps, (), name)]
    if not tree.reasoning_steps.children:
        imported.remark("trees left out: nothing but a root")
    while waiting:
        node, prefix, state_id = waiting.pop()
        if not node.children:
            continue
        place = {"run": run, "state_id": state_id, "prefix": prefix}
        yield record.where, _list(record, tree.question, node.children, place)
        below = [
            (child, (*prefix, child.text), f"{state_id}.{number}")
            for number, child in enumerate(node.children)
        ]
        waiting.extend(reversed(below))


def _list(
    record: Record, question: str, children: Sequence[_Child], place: Mapping[str, object]
) -> RecordedList:
    """``place``: run, state_id and prefix of the state."""
    fields = {
        **place,
        "problem_id": text_id(question),
        "model": NOT_RECORDED,
        "question": question,
        "candidates": [{"text": child.text, "score": child.mc_value} for child in children],
    }
    return validated(RecordedList, fields, record.where)
