"""Trees of OmegaPRM as OpenR writes them: children with Monte-Carlo values, as candidate lists.

Knows: OpenR's tree (``question``, ``reasoning_steps`` with ``text``, ``mc_value``, ``children``), a
record a line or a file a question, and the same trees as rows, one state each. Does not know:
rollouts.

A node with children is a state; its children are the candidates, and the share of rollouts from a
child that end right is its score. It is no label: a wrong step can be followed by a right answer.
OpenR also hangs every rollout that ended right, and none that ended wrong, below its state, with
the value 1 and no children: these are no candidates, since whoever is one is right. OpenR's other
layouts, solution prefixes and rollouts by state, hold no tree and are left out.
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

ROLLOUTS = "whole solutions left out: they are in the tree because they are right"


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
    with_children: frozenset[int] | None = None
    for record in read_records(source.file):
        value = record.value
        if isinstance(value, dict) and _holds_no_tree(value):
            imported.remark("records left out: prefixes or rollouts, no tree")
        elif isinstance(value, dict) and "candidates" in value:
            row = validated(_Row, value, record.where)
            if with_children is None:
                with_children = _states_of_rows(source.file)
            states[row.tree] += 1
            kept = [
                one
                for one in row.candidates
                if one.mc_value != 1.0 or hash((row.tree, *row.prefix, one.text)) in with_children
            ]
            imported.remark(ROLLOUTS, len(row.candidates) - len(kept))
            state_id = f"{name}{row.tree}-{states[row.tree]}"
            place = {"run": run, "state_id": state_id, "prefix": row.prefix}
            yield from _lists(record, row.question, kept, place, imported)
        else:
            yield from _of_tree(record, run, f"{name}{record.number}", imported)


def _holds_no_tree(value: dict[str, object]) -> bool:
    return "states" in value or isinstance(value.get("reasoning_steps"), list)


def _states_of_rows(file: Path) -> frozenset[int]:
    """Hashes of the states that have rows with candidates."""
    rows = (record.value for record in read_records(file))
    return frozenset(
        hash((one["tree"], *map(str, one["prefix"])))
        for one in rows
        if isinstance(one, dict)
        and one.get("candidates")
        and isinstance(one.get("tree"), int)
        and isinstance(one.get("prefix"), list)
    )


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
        kept = [one for one in node.children if one.mc_value != 1.0 or one.children]
        imported.remark(ROLLOUTS, len(node.children) - len(kept))
        yield from _lists(record, tree.question, kept, place, imported)
        below = [
            (child, (*prefix, child.text), f"{state_id}.{number}")
            for number, child in enumerate(node.children)
        ]
        waiting.extend(reversed(below))


def _lists(
    record: Record,
    question: str,
    children: Sequence[_Child],
    place: Mapping[str, object],
    imported: Imported,
) -> Iterator[Placed]:
    """``place``: run, state_id and prefix of the state."""
    if not children:
        imported.remark("states left out: no candidate")
        return
    fields = {
        **place,
        "problem_id": text_id(question),
        "model": NOT_RECORDED,
        "question": question,
        "candidates": [{"text": child.text, "score": child.mc_value} for child in children],
    }
    yield record.where, validated(RecordedList, fields, record.where)
