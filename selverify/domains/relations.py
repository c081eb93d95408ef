"""Relations between quantities: how they are drawn, told in sentences, and read back.

Knows: dependency graphs, phrases, words. Does not know: moves, states, what is asked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from selverify.domains.base import MAX_MOVE_TEXT
from selverify.errors import SchemaError

PRIME = 23
# fmt: off
NAMES = (
    "apples", "pears", "plums", "figs", "limes", "nuts", "dates", "beans", "peas", "corns", "cups",
    "pens", "books", "coins", "cards", "balls", "kites", "drums", "boats", "carts", "ducks",
    "hens", "goats", "foxes", "bears", "wolves", "crows", "moths", "frogs", "snails",
)
# fmt: on
FACTORS = (2, 3, 4, 5)
PHRASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "given": ("of {x} {v} are there .", "we count {x} {v} .", "someone brings {x} {v} ."),
        "add": (
            "{x} equal {a} plus {b} .",
            "{x} are {a} and {b} together .",
            "{x} number as many as {a} with {b} .",
        ),
        "subtract": (
            "{x} equal {a} minus {b} .",
            "{x} are {a} less {b} .",
            "{x} remain when {b} leave {a} .",
        ),
        "scale": (
            "{x} equal {v} times {a} .",
            "{x} are {a} taken {v} times .",
            "{x} come {v} for each of {a} .",
        ),
    }
)
SUMS = frozenset({"add", "subtract"})
_NAME_SLOTS = frozenset({"x", "a", "b", "quantity", "left", "right", "operand"})
"""Of the phrases and the moves; the other slots hold numbers."""
NUMBERS = MappingProxyType({str(value): value for value in range(PRIME)})
NAME_SET = frozenset(NAMES)


@dataclass(frozen=True, slots=True)
class Relation:
    """How the text defines one quantity: ``number`` is a given value or a factor."""

    op: str
    operands: tuple[str, ...]
    number: int


def pattern_of(form: str) -> re.Pattern[str]:
    """The texts that ``form`` spells, a group a slot; a slot that stands twice is said alike."""
    parts: list[str] = []
    slots: set[str] = set()
    for word in form.removesuffix(" .").split():
        slot = word.strip("{}")
        if slot == word:
            parts.append(re.escape(word))
        elif slot in slots:
            parts.append(f"(?P={slot})")
        else:
            slots.add(slot)
            parts.append(f"(?P<{slot}>{'[a-z]+' if slot in _NAME_SLOTS else '[0-9]+'})")
    return re.compile(" ".join(parts))


def said_in(pattern: re.Pattern[str], text: str) -> dict[str, str] | None:
    """What stands in the slots of ``pattern``; None where ``text`` is none of its texts."""
    found = pattern.fullmatch(text)
    if found is None:
        return None
    said = found.groupdict()
    for slot, word in said.items():
        if word not in (NAME_SET if slot in _NAME_SLOTS else NUMBERS):
            return None
    return said


_PHRASE_PATTERNS = tuple(
    (op, pattern_of(phrase)) for op, phrases in PHRASES.items() for phrase in phrases
)


def draw_relations(rng: random.Random, size: int) -> dict[str, Relation]:
    """Quantities in an order in which each depends on earlier ones only."""
    names = rng.sample(NAMES, size)
    givens = rng.randint(2, max(2, size // 2))
    relations = {name: Relation("given", (), rng.randrange(PRIME)) for name in names[:givens]}
    for index in range(givens, size):
        relations[names[index]] = draw_relation(rng, names[:index])
    return relations


def draw_relation(rng: random.Random, earlier: Sequence[str]) -> Relation:
    """A sum, a difference or a multiple of ``earlier`` quantities, two or more."""
    op = rng.choice(("add", "subtract", "scale", "add", "subtract"))
    if op == "scale":
        return Relation(op, (rng.choice(earlier),), rng.choice(FACTORS))
    return Relation(op, tuple(rng.sample(earlier, 2)), 0)


def needed_by_each(relations: Mapping[str, Relation]) -> dict[str, frozenset[str]]:
    """For each quantity the quantities (itself too) that its value depends on."""
    needed: dict[str, frozenset[str]] = {}
    for name, relation in relations.items():
        needed[name] = frozenset({name}).union(*(needed[operand] for operand in relation.operands))
    return needed


def misread_as(rng: random.Random, relation: Relation, values: Mapping[str, int]) -> Relation:
    """How a careless reader takes a sum or a difference; other relations stay as they are."""
    if relation.op not in SUMS:
        return relation
    left, right = relation.operands
    others = [name for name in values if name not in relation.operands]
    kinds = ["sign"] * 3 + ["order"] * 2 * (relation.op == "subtract") + ["operand"] * bool(others)
    kind = rng.choice(kinds)
    if kind == "sign":
        return replace(relation, op="add" if relation.op == "subtract" else "subtract")
    if kind == "order":
        return replace(relation, operands=(right, left))
    other = rng.choice(others)
    return replace(relation, operands=rng.choice([(left, other), (other, right)]))


def tell(rng: random.Random, relations: Mapping[str, Relation], hard: Collection[str]) -> str:
    """Shuffled sentences, those of ``hard`` quantities in the last phrasing of their kind."""
    sentences = []
    for name, relation in relations.items():
        slots = dict(zip("ab", relation.operands, strict=False))
        phrases = PHRASES[relation.op]
        phrase = phrases[-1] if name in hard else rng.choice(phrases[:-1])
        sentences.append(phrase.format(x=name, v=relation.number, **slots))
    rng.shuffle(sentences)
    return " ".join(sentences)


def read_statements(sentences: Sequence[str], problem_id: str) -> dict[str, Relation]:
    """The relation that each sentence tells, by the quantity that it defines."""
    relations: dict[str, Relation] = {}
    for sentence in sentences:
        read = _read_statement(sentence)
        if read is None:
            example = PHRASES["given"][1].format(x=NAMES[0], v=7)
            raise SchemaError(
                f"{problem_id}: given the sentence {sentence[:MAX_MOVE_TEXT]!r}, expected a "
                f"statement like {example!r} before the question"
            )
        name, relation = read
        if name in relations:
            raise SchemaError(f"{problem_id}: given {name} again, expected each quantity told once")
        relations[name] = relation
    return relations


def _read_statement(sentence: str) -> tuple[str, Relation] | None:
    """The quantity that a sentence defines, and how; None where it is no statement."""
    text = " ".join(sentence.split())
    for op, pattern in _PHRASE_PATTERNS:
        if said := said_in(pattern, text):
            operands = tuple(said[slot] for slot in "ab" if slot in said)
            return said["x"], Relation(op, operands, NUMBERS[said.get("v", "0")])
    return None


def require_derivable(relations: Mapping[str, Relation], problem_id: str) -> None:
    """Raise SchemaError unless every quantity follows from given ones."""
    for name, relation in relations.items():
        for operand in relation.operands:
            if operand not in relations:
                raise SchemaError(
                    f"{problem_id}: given {name} by {operand}, which no statement tells, expected "
                    "a statement of each quantity"
                )
    derived: set[str] = set()
    rest = set(relations)
    while ready := {name for name in rest if derived >= set(relations[name].operands)}:
        derived |= ready
        rest -= ready
    if rest:
        raise SchemaError(
            f"{problem_id}: given {', '.join(sorted(rest))} by each other in a circle, expected "
            "quantities that follow from given numbers"
        )
