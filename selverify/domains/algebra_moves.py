"""The operators of algebra, their arguments and their canonical text.

Knows: how a move is written and read. Does not know: states, gates, what follows from what.

Seven operators claim a new equation. Its last number is the result of one operation on two
numbers, which the text spells out; each operator has its own operation::

    expand e1 as e2 : 5 x + 4 = 3 x + 3 * 6 = 18 ;          multiply brackets or denominators out
    collect e2 as e3 : 2 x = 18 - 4 = 14 ;                  gather terms on one side
    scale e1 by 3 as e3 : 6 x + 9 y = 3 * 9 = 27 ;          multiply both sides
    divide e2 by 2 as e3 : 1 xx + -2 x = 6 / 2 = 3 ;        divide both sides
    add e3 e2 as e4 : 5 x = 27 + -8 = 19 ;                  add equations; subtract: -
    put x in e1 as e5 : 23 = 3 y + 4 * 5 = 20 ;             put the value of an unknown in

The others bind unknowns and answer::

    solve e3 : x = 14 / 2 = 7 ;
    roots e3 : sum 2 product -3 so -1 or 3 ;
    drop 3 : x is not 3 ;                                   a root, by the constraint it violates
    x = -1 ;                                                choose the root that is left
    answer -1 ;
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from selverify.domains.algebra_equations import (
    CONSTANT,
    HIGHEST,
    LABELS,
    NUMBERS,
    UNKNOWNS,
    Constraint,
    Equation,
    Sum,
    compute,
    make_sum,
    read_constraint,
    read_sum,
    valid,
)
from selverify.types import Arguments, Candidate, Malformed, Move

MAX_MOVE = 200
END = ";"
SIGNS: Mapping[str, str] = MappingProxyType(
    {
        "expand": "*",
        "collect": "-",
        "scale": "*",
        "divide": "/",
        "add": "+",
        "subtract": "-",
        "put": "*",
    }
)
"""The operation that the operators which claim an equation spell out."""

Number = Annotated[int, Field(ge=-HIGHEST, le=HIGHEST)]
Terms = tuple[tuple[str, Number], ...]


class Claim(Arguments):
    """Equation ``label``: left = right + result, where result = first (operation) second."""

    label: str
    left: Terms
    right: Terms
    first: Number
    second: Number
    result: Number

    @property
    def equation(self) -> Equation:
        """The equation that is claimed."""
        return _claimed(Sum(self.left), Sum(self.right), self.result)

    @property
    def sources(self) -> tuple[str, ...]:
        """The labels of the equations that it is claimed to come from."""
        return ()


class FromOne(Claim):
    """Expand or collect one equation."""

    source: str

    @property
    def sources(self) -> tuple[str, ...]:
        """The one equation."""
        return (self.source,)


class ByNumber(FromOne):
    """Multiply or divide both sides of an equation by a number."""

    number: Number


class Put(FromOne):
    """Put the value of an unknown in an equation."""

    unknown: str


class FromTwo(Claim):
    """Add two equations, or subtract the other one from the first."""

    source: str
    other: str

    @property
    def sources(self) -> tuple[str, ...]:
        """Both equations."""
        return (self.source, self.other)


class Solve(Arguments):
    """The unknown of an equation has the value result = first / second."""

    source: str
    unknown: str
    first: Number
    second: Number
    result: Number


class Roots(Arguments):
    """The roots of a quadratic equation, low <= high, with their sum and product."""

    source: str
    total: Number
    product: Number
    low: Number
    high: Number


class Drop(Arguments):
    """A root is none of the answer's, because it violates a constraint."""

    value: Number
    unknown: str
    kind: str
    bound: Number

    @property
    def constraint(self) -> Constraint:
        """The constraint that is named."""
        return Constraint(self.unknown, self.kind, self.bound)


class Choose(Arguments):
    """The unknown has the value of the root that is left."""

    unknown: str
    value: Number


class Answer(Arguments):
    """The value of what is asked."""

    value: Number


OPERATORS: Mapping[str, type[Arguments]] = MappingProxyType(
    {
        "expand": FromOne,
        "collect": FromOne,
        "scale": ByNumber,
        "divide": ByNumber,
        "add": FromTwo,
        "subtract": FromTwo,
        "put": Put,
        "solve": Solve,
        "roots": Roots,
        "drop": Drop,
        "choose": Choose,
        "answer": Answer,
    }
)


def _claimed(left: Sum, right: Sum, number: int) -> Equation:
    """left = right + number."""
    return Equation(left, right.plus(make_sum({CONSTANT: number}), 1))


def make_move(op: str, **fields: Any) -> Move:
    """The move of operator ``op`` with these arguments, and its canonical text."""
    args = OPERATORS[op](**fields)
    return Move(op, args, f"{_say(op, args)} {END}")


def computes(move: Move) -> bool:
    """Whether the arithmetic that the move spells out holds."""
    match move.args:
        case Claim() as args:
            return compute(SIGNS[move.op], args.first, args.second) == args.result
        case Solve() as args:
            return compute("/", args.first, args.second) == args.result
        case Roots() as args:
            sums = compute("+", args.low, args.high), compute("*", args.low, args.high)
            return sums == (args.total, args.product)
    return True


def content(move: Move) -> str:
    """What the move says: its text, less the label that it gives to a new equation."""
    head, _, rest = move.text.partition(" as ")
    return f"{head} {rest.partition(' ')[2]}"


def _say(op: str, args: Arguments) -> str:
    match args:
        case Claim():
            return f"{op} {_head(args)} as {args.label} : {_body(SIGNS[op], args)}"
        case Solve():
            division = f"{args.first} / {args.second} = {args.result}"
            return f"solve {args.source} : {args.unknown} = {division}"
        case Roots():
            read = f"sum {args.total} product {args.product}"
            return f"roots {args.source} : {read} so {args.low} or {args.high}"
        case Drop():
            return f"drop {args.value} : {args.constraint}"
        case Choose():
            return f"{args.unknown} = {args.value}"
    return f"answer {args.value}"  # type: ignore[attr-defined]


def _head(args: Claim) -> str:
    match args:
        case Put():
            return f"{args.unknown} in {args.source}"
        case ByNumber():
            return f"{args.source} by {args.number}"
    return " ".join(args.sources)


def _body(sign: str, args: Claim) -> str:
    spelled = f"{args.first} {sign} {args.second} = {args.result}"
    right = f"{Sum(args.right)} + " if args.right else ""
    return f"{Sum(args.left)} = {right}{spelled}"


def parse_move(text: str) -> Candidate:
    """Whitelist parse of one move; terms of a sum and the roots are put in order."""
    if len(text) > MAX_MOVE:
        return Malformed(text[:MAX_MOVE], "too long")
    words = text.split()
    if not words or words[-1] != END:
        return Malformed(text, "no end of move")
    op = "choose" if words[0] in UNKNOWNS else words[0]
    reader = _READERS.get(op)
    fields = reader(words[:-1]) if reader is not None else None
    if fields is None:
        return Malformed(text, "not an operator with its arguments")
    return make_move(op, **fields)


Fields = dict[str, Any]


def _read_claim(words: Sequence[str]) -> Fields | None:
    if "as" not in words:
        return None
    place = words.index("as")
    head = _read_head(words[:place])
    match words[place:]:
        case ["as", label, ":", *body] if head is not None and label in LABELS:
            claimed = _read_body(SIGNS[words[0]], body)
            return None if claimed is None else {"label": label, **head, **claimed}
    return None


def _read_head(words: Sequence[str]) -> Fields | None:
    """The operator and what it is applied to."""
    match words:
        case [("expand" | "collect"), source] if source in LABELS:
            return {"source": source}
        case [("scale" | "divide"), source, "by", number] if source in LABELS:
            return {"source": source, "number": NUMBERS[number]} if number in NUMBERS else None
        case [("add" | "subtract"), source, other] if {source, other} <= set(LABELS):
            return {"source": source, "other": other}
        case ["put", unknown, "in", source] if unknown in UNKNOWNS and source in LABELS:
            return {"unknown": unknown, "source": source}
    return None


def _read_body(sign: str, words: Sequence[str]) -> Fields | None:
    """``left = [right +] first sign second = result``, an equation with an unknown in it."""
    if list(words).count("=") != 2:
        return None
    place = list(words).index("=")
    match words[place + 1 :]:
        case [*right, first, said, second, "=", result] if said == sign:
            left, more = read_sum(words[:place]), _read_more(right)
            numbers = _numbers(first=first, second=second, result=result)
            if left is None or more is None or numbers is None:
                return None
            if valid(_claimed(left, more, numbers["result"])) is None:
                return None
            return {"left": left.terms, "right": more.terms, **numbers}
    return None


def _read_more(words: Sequence[str]) -> Sum | None:
    """Terms with unknowns, a plus after each; none at all is an empty sum."""
    if not words:
        return Sum(())
    terms = read_sum(words[:-1]) if words[-1] == "+" else None
    return terms if terms is not None and terms.terms and not terms[CONSTANT] else None


def _numbers(**words: str) -> dict[str, int] | None:
    """The number that each word is, or None where one is none."""
    if any(word not in NUMBERS for word in words.values()):
        return None
    return {name: NUMBERS[word] for name, word in words.items()}


def _read_solve(words: Sequence[str]) -> Fields | None:
    match words:
        case ["solve", source, ":", unknown, "=", first, "/", second, "=", result] if (
            source in LABELS and unknown in UNKNOWNS
        ):
            numbers = _numbers(first=first, second=second, result=result)
            return None if numbers is None else {"source": source, "unknown": unknown, **numbers}
    return None


def _read_roots(words: Sequence[str]) -> Fields | None:
    match words:
        case ["roots", source, ":", "sum", total, "product", product, "so", one, "or", other] if (
            source in LABELS
        ):
            numbers = _numbers(total=total, product=product, low=one, high=other)
            if numbers is None:
                return None
            low, high = sorted((numbers["low"], numbers["high"]))
            return {"source": source, **numbers, "low": low, "high": high}
    return None


def _read_drop(words: Sequence[str]) -> Fields | None:
    match words:
        case ["drop", value, ":", *rest] if value in NUMBERS:
            named = read_constraint(rest)
            if named is not None:
                told = {"unknown": named.unknown, "kind": named.kind, "bound": named.bound}
                return {"value": NUMBERS[value], **told}
    return None


def _read_choose(words: Sequence[str]) -> Fields | None:
    match words:
        case [unknown, "=", value] if unknown in UNKNOWNS and value in NUMBERS:
            return {"unknown": unknown, "value": NUMBERS[value]}
    return None


def _read_answer(words: Sequence[str]) -> Fields | None:
    match words:
        case ["answer", value] if value in NUMBERS:
            return {"value": NUMBERS[value]}
    return None


_READERS: Mapping[str, Callable[[Sequence[str]], Fields | None]] = MappingProxyType(
    {
        **dict.fromkeys(SIGNS, _read_claim),
        "solve": _read_solve,
        "roots": _read_roots,
        "drop": _read_drop,
        "choose": _read_choose,
        "answer": _read_answer,
    }
)
