"""Fuzz target: texts of problems, read by every domain."""

from selverify.domains import DOMAINS
from selverify.errors import SchemaError
from selverify.types import Problem

BETWEEN = " "
WORDS = tuple(
    """
    e1 e2 e3 : : + + - = / * ( ) . . . find is x y z xx yy positive negative even odd above below
    not 0 1 2 3 4 5 -1 -2 8 200 201 use to make 24 how many apples pears ? find apples ? of are
    there plus minus times equal [asy] [/asy] $AB=5$ \\boxed{ #1. base if 12_5 a*b A_1 \n \x00
    \ud800 \u200f \uff11
    """.split()  # noqa: SIM905
)


def start() -> None:
    """There is no state."""


def feed(state: None, text: str) -> None:
    """A problem with a first state that can be written down, or the one error that is told."""
    for name, domain in DOMAINS.items():
        try:
            problem = domain.read(text, problem_id="p")
            assert (problem.text + problem.goal).encode()
            domain.initial_state(problem, budget=1)
        except (SchemaError, UnicodeEncodeError) as error:
            # Such a text is stopped where a file is read; a domain need not look for it.
            assert isinstance(error, SchemaError) or name not in ("math", "math_structured")
        try:
            domain.initial_state(Problem("p", name, text, ""), budget=1)
        except SchemaError:
            continue
