"""What is tracked while algebra is done, and what the two gates read off it.

Knows: which equations there are, what they are made of, constraints, roots, values of unknowns.
Does not know: any coefficient of an equation, so no gate can tell whether a claim follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from selverify.domains.algebra_equations import (
    LABELS,
    PLAIN,
    Constraint,
    Equation,
    Told,
    asked_unknowns,
    asked_value,
)
from selverify.domains.algebra_moves import (
    Answer,
    ByNumber,
    Choose,
    Claim,
    Drop,
    Put,
    Roots,
    Solve,
    computes,
)
from selverify.types import Move

SUBJECTS: Mapping[str, str] = MappingProxyType(
    {
        "positive": "sign",
        "negative": "sign",
        "even": "parity",
        "odd": "parity",
        "above": "bound",
        "below": "bound",
        "not": "denominator",
    }
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the gates know of an equation. ``plain``: without brackets or a denominator."""

    label: str
    unknowns: frozenset[str]
    squared: bool
    plain: bool


@dataclass(frozen=True, slots=True)
class Context:
    """The tracked constraints l; values and roots in the order in which they were stated."""

    shapes: tuple[Shape, ...]
    constraints: tuple[Constraint, ...]
    asked: tuple[str, ...]
    values: tuple[tuple[str, int], ...] = ()
    roots: tuple[tuple[str, tuple[int, ...]], ...] = ()
    answer: int | None = None

    @property
    def next_label(self) -> str | None:
        """The first label that no equation has, or None when all are used up."""
        used = {shape.label for shape in self.shapes}
        return next((label for label in LABELS if label not in used), None)

    @property
    def asked_value(self) -> int | None:
        """What is asked for, once all of it has a value."""
        return asked_value(self.asked, dict(self.values))

    def shape(self, label: str) -> Shape | None:
        """What the equation ``label`` is made of, or None where there is none."""
        return next((shape for shape in self.shapes if shape.label == label), None)

    def unknowns(self, label: str) -> frozenset[str]:
        """The unknowns of the equation ``label``; none where it is not there."""
        shape = self.shape(label)
        return frozenset() if shape is None else shape.unknowns

    def value(self, unknown: str) -> int | None:
        """The value that ``unknown`` has, or None."""
        return dict(self.values).get(unknown)

    def roots_left(self, unknown: str) -> tuple[int, ...]:
        """The roots stated for ``unknown`` that are not dropped; empty before any are stated."""
        return dict(self.roots).get(unknown, ())

    def allows(self, unknown: str, value: int) -> bool:
        """Whether every constraint lets ``unknown`` have ``value``."""
        return not self.violated(unknown, value)

    def violated(self, unknown: str, value: int) -> tuple[Constraint, ...]:
        """The constraints that ``value`` violates."""
        spoken = (one for one in self.constraints if one.unknown == unknown)
        return tuple(one for one in spoken if not one.allows(value))


def start(told: Told) -> Context:
    """The context before the first move."""
    shapes = map(_shape, LABELS, told.equations)
    return Context(tuple(shapes), told.constraints, told.asked)


def _shape(label: str, equation: Equation) -> Shape:
    return Shape(label, equation.unknowns, equation.squared, equation.form == PLAIN)


def advance(context: Context, move: Move) -> Context:
    """The context after ``move``; total on parsed moves, a later statement replaces an earlier."""
    match move.args:
        case Claim() as args:
            others = tuple(one for one in context.shapes if one.label != args.label)
            context = replace(context, shapes=(*others, _shape(args.label, args.equation)))
        case Solve() as args:
            context = _bind(context, args.unknown, args.result)
        case Choose() as args:
            context = _bind(context, args.unknown, args.value)
        case Roots() as args:
            context = _set_roots(context, context.unknowns(args.source), {args.low, args.high})
        case Drop() as args:
            left = {*context.roots_left(args.unknown)} - {args.value}
            context = _set_roots(context, {args.unknown}, left)
        case Answer() as args:
            context = replace(context, answer=args.value)
    return context


def _bind(context: Context, unknown: str, value: int) -> Context:
    others = tuple(pair for pair in context.values if pair[0] != unknown)
    return replace(context, values=(*others, (unknown, value)))


def _set_roots(context: Context, unknowns: Iterable[str], roots: set[int]) -> Context:
    kept = {**dict(context.roots), **dict.fromkeys(sorted(unknowns), tuple(sorted(roots)))}
    return replace(context, roots=tuple(kept.items()))


def misplaced(context: Context, move: Move) -> str | None:
    """The structural gate: a reason why the move names what is not there or does not apply."""
    return "after the answer" if context.answer is not None else _misplaced(context, move)


def _misplaced(context: Context, move: Move) -> str | None:
    match move.args:
        case Claim() as args:
            return _misplaced_claim(context, move.op, args)
        case Solve() as args:
            return _misplaced_solve(context, args)
        case Roots() as args:
            return _misplaced_roots(context, args)
        case Drop() as args:
            return _misplaced_drop(context, args)
        case Choose() as args:
            return _misplaced_choice(context, args)
    unbound = any(context.value(name) is None for name in asked_unknowns(context.asked))
    return "answer before derivation" if unbound else None


def _misplaced_claim(context: Context, op: str, args: Claim) -> str | None:
    shapes = [shape for label in args.sources if (shape := context.shape(label)) is not None]
    if len(shapes) < len(args.sources):
        return "no such equation"
    if args.label != context.next_label:
        return "not the next label"
    if op == "expand" and any(shape.plain for shape in shapes):
        return "nothing to expand"
    if op != "expand" and not all(shape.plain for shape in shapes):
        return "not expanded yet"
    held = frozenset[str]().union(*(shape.unknowns for shape in shapes))
    if isinstance(args, Put):
        if context.value(args.unknown) is None or args.unknown not in held:
            return "unknown has no value" if args.unknown in held else "unknown is not there"
        held -= {args.unknown}
    return None if args.equation.unknowns <= held else "unknown is not there"


def _misplaced_solve(context: Context, args: Solve) -> str | None:
    shape = context.shape(args.source)
    if shape is None:
        return "no such equation"
    if context.value(args.unknown) is not None:
        return "unknown has a value"
    if shape.unknowns != {args.unknown}:
        return "equation is not in this unknown alone"
    return None if shape.plain and not shape.squared else "equation is not linear"


def _misplaced_roots(context: Context, args: Roots) -> str | None:
    shape = context.shape(args.source)
    if shape is None:
        return "no such equation"
    if not shape.plain or not shape.squared:
        return "equation is not quadratic"
    stated = {*dict(context.roots), *dict(context.values)}
    return "roots are stated" if shape.unknowns & stated else None


def _misplaced_drop(context: Context, args: Drop) -> str | None:
    if args.value not in context.roots_left(args.unknown):
        return "no such root"
    return None if args.constraint in context.constraints else "no such constraint"


def _misplaced_choice(context: Context, args: Choose) -> str | None:
    left = context.roots_left(args.unknown)
    if context.value(args.unknown) is not None:
        return "unknown has a value"
    if args.value not in left:
        return "no such root"
    return None if len(left) == 1 else "another root is left"


def contradicts(context: Context, move: Move) -> str | None:
    """The context gate: false arithmetic, or a value that breaks a constraint or a binding."""
    reason = None if computes(move) else "arithmetic"
    match move.args:
        case Claim() as args:
            reason = reason or _other_number(context, move.op, args)
        case Solve() as args:
            reason = reason or _forbidden(context, args.unknown, args.result)
        case Roots() as args:
            reason = reason or _hopeless(context, args)
        case Choose() as args:
            reason = _forbidden(context, args.unknown, args.value)
        case Drop() as args if args.constraint.allows(args.value):
            reason = "root satisfies the constraint"
        case Answer() as args if args.value != context.asked_value:
            reason = "answer is not the value"
    return reason


def _other_number(context: Context, op: str, args: Claim) -> str | None:
    """The spelled operation must be on the number or the value that the head names."""
    if isinstance(args, Put) and args.second != context.value(args.unknown):
        return "value is not the binding"
    if isinstance(args, ByNumber):
        used = args.second if op == "divide" else args.first
        return None if used == args.number else "number is not the one named"
    return None


def _forbidden(context: Context, unknown: str, value: int) -> str | None:
    """What the first constraint that the value violates is about, as a reason."""
    violated = context.violated(unknown, value)
    return f"value breaks a constraint: {SUBJECTS[violated[0].kind]}" if violated else None


def _hopeless(context: Context, args: Roots) -> str | None:
    """One of the roots must be a value that the unknown may have."""
    names, roots = context.unknowns(args.source), (args.low, args.high)
    if any(context.allows(name, root) for name in names for root in roots):
        return None
    return "no root satisfies the constraints"
