"""Whether a step of algebra follows from what was stated before it.

Knows: every equation with its coefficients, from the problem's text and the moves so far. Does not
know: the gates (their refusals are not asked here), or which values a problem was made from.
"""

from __future__ import annotations

from collections.abc import Mapping

from selverify.domains.algebra_context import Context
from selverify.domains.algebra_equations import LABELS, PLAIN, Equation, Told
from selverify.domains.algebra_logic import Logic, binding
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

Equations = Mapping[str, Equation]


def stated_equations(told: Told, derivation: tuple[Move, ...]) -> Equations:
    """Every equation by its label: the problem's, then those that the moves claim."""
    found = dict(zip(LABELS, told.equations, strict=False))
    for move in derivation:
        if isinstance(move.args, Claim):
            found[move.args.label] = move.args.equation
    return found


def step_follows(context: Context, equations: Equations, move: Move, logic: Logic) -> bool:
    """Whether the step is a consequence of what it cites, rightly computed and new.

    A claimed equation follows from its sources, a value from its equation or as the only root left,
    roots are exactly those of their equation, a dropped root violates what the problem says, an
    answer is what the values give.
    """
    open_and_computed = context.answer is None and computes(move)
    return open_and_computed and _follows(context, equations, move, logic)


def _follows(context: Context, equations: Equations, move: Move, logic: Logic) -> bool:
    match move.args:
        case Claim() as args:
            return _claim_follows(context, equations, move.op, args, logic)
        case Solve() as args:
            return _value_follows(context, equations, args, logic)
        case Roots() as args:
            return _roots_follow(context, equations, args, logic)
        case Drop() as args:
            return _drop_follows(context, args)
        case Choose() as args:
            only = context.roots_left(args.unknown) == (args.value,)
            return only and _is_free(context, args.unknown, args.value)
    return isinstance(move.args, Answer) and move.args.value == context.asked_value


def _claim_follows(
    context: Context, equations: Equations, op: str, args: Claim, logic: Logic
) -> bool:
    sources = [equations[label] for label in args.sources if label in equations]
    expands = op == "expand"
    if len(sources) < len(args.sources) or args.label != context.next_label:
        return False
    if any((one.form == PLAIN) == expands for one in sources):
        return False
    if isinstance(args, ByNumber) and args.number != (args.first if op == "scale" else args.second):
        return False
    held = frozenset[str]().union(*(one.unknowns for one in sources))
    if isinstance(args, Put):
        if args.unknown not in held or context.value(args.unknown) != args.second:
            return False
        held -= {args.unknown}
        sources.append(binding(args.unknown, args.second))
    return args.equation.unknowns <= held and logic.implied(tuple(sources), args.equation)


def _value_follows(context: Context, equations: Equations, args: Solve, logic: Logic) -> bool:
    source = equations.get(args.source)
    if source is None or source.form != PLAIN or source.squared:
        return False
    if source.unknowns != {args.unknown} or not _is_free(context, args.unknown, args.result):
        return False
    return logic.implied((source,), binding(args.unknown, args.result))


def _roots_follow(context: Context, equations: Equations, args: Roots, logic: Logic) -> bool:
    source = equations.get(args.source)
    if source is None or source.form != PLAIN or not source.squared:
        return False
    (name,) = source.unknowns
    if context.value(name) is not None or name in dict(context.roots):
        return False
    return logic.rooted(source, frozenset({args.low, args.high}))


def _drop_follows(context: Context, args: Drop) -> bool:
    told = args.constraint in context.constraints
    stated = args.value in context.roots_left(args.unknown)
    return told and stated and not args.constraint.allows(args.value)


def _is_free(context: Context, unknown: str, value: int) -> bool:
    """Whether ``unknown`` has no value yet and may have this one."""
    return context.value(unknown) is None and context.allows(unknown, value)
