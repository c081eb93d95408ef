"""What a domain gives: operators, parse, apply, serialise, goal, constraints; some, exact truth.

Does not know: models, gates' bookkeeping, search. Model text is hostile until ``parse`` took it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Protocol, TypeGuard, TypeVar

from selverify.errors import ProtocolError
from selverify.types import Arguments, Candidate, Move, Problem, State, Truth

MAX_SOLUTION = 200_000
MOST_MOVES = 4_096
TEXTS_KEPT, LONGEST_KEPT = 20_000, 10_000
"""How many texts are kept with their moves, and how long such a text may be."""
MAX_MOVE_TEXT = 200
"""Characters of a move in words; more are not read."""

Part = TypeVar("Part")


class Domain(Protocol):
    """One family of problems: all that a search needs. Instances are stateless and cheap.

    A subclass may leave out what has a body here.
    """

    name: str
    operators: Mapping[str, type[Arguments]]
    end_of_move: str
    """The word that closes a move's text, or the white space that stands between two moves."""
    remark: str = ""
    """What a reader of its moves has to know, in a sentence."""
    computed_after: str = ""
    """What a move's beginning ends with where ``forced`` may know the rest; empty: never."""

    def read(self, text: str, *, problem_id: str) -> Problem:
        """The problem that ``text`` states, words joined by one space; its goal is the question's.

        Raises:
            SchemaError: the text asks for nothing that this domain knows.
        """
        ...

    def initial_state(self, problem: Problem, *, budget: int) -> State:
        """w_0 = (B, s_0, l_0)."""
        ...

    def parse(self, text: str) -> Candidate:
        """A whitelist parse with caps on length; never evaluates."""
        ...

    def apply(self, state: State, move: Move) -> State:
        """w' = Apply(w, m); only for a move that passed both gates."""
        ...

    def structural_violation(self, state: State, move: Move) -> str | None:
        """Gate 1: the reason a well-formed move does not fit the state's symbols, or None.

        A kind, and behind a colon what differs between refusals of that kind: reports count kinds.
        """
        return None

    def context_violation(self, state: State, move: Move) -> str | None:
        """Gate 2: the reason a move contradicts the tracked constraints, or None; likewise."""
        return None

    def serialise(self, state: State) -> str:
        """Canonical text of a state: the problem, then the derivation."""
        between = " " if self.end_of_move.strip() else self.end_of_move
        return between.join((state.problem.text, *state.said))

    def is_final(self, state: State) -> bool:
        """True once an answer move was applied."""
        return self.answer(state) is not None

    def answer(self, state: State) -> str | None:
        """The final answer in a state, or None."""
        ...

    def checks_answers(self) -> bool:
        """True where a finished answer can be checked for free; else the verifier judges it."""
        return False

    def results(self, state: State) -> frozenset[Hashable]:
        """What the moves so far computed, equal where two computations agree; here nothing."""
        return frozenset()

    def forced(self, state: State, begun: str) -> str | None:
        """What must follow ``begun``, the beginning of a move's text at ``state``.

        Because it can be computed; None where anything may follow.
        """
        return None

    def pattern(self, state: State, move: Move) -> str | None:
        """An abstract, name-free key of a verified move, for retrieval; None if it has none."""
        return None

    def instantiate(self, state: State, pattern: str) -> tuple[Move, ...]:
        """The moves at ``state`` that a stored pattern stands for; its preconditions match."""
        return ()


class GeneratedDomain(Domain, Protocol):
    """A domain that draws its own problems and knows the exact truth about every state of them."""

    vocabulary: tuple[str, ...]
    """Every word a problem, a goal or a move can contain, in a fixed order."""

    def generate(
        self,
        rng: random.Random,
        *,
        problem_id: str,
        minimum: int,
        maximum: int,
        hard: float = 0.0,
    ) -> tuple[Problem, Truth]:
        """A fresh problem whose size (quantities, cards) lies in [minimum, maximum].

        ``hard`` is the share of statements in the phrasing that is easily misread; a domain with
        one phrasing ignores it.
        """
        ...

    def solution(
        self, problem: Problem, truth: Truth, rng: random.Random, *, misread: float = 0.0
    ) -> tuple[Move, ...]:
        """A right derivation, ending in an answer move, drawn from those that exist.

        ``misread`` is the share of hard statements that it takes wrongly, as a writer might.
        """
        ...

    def drill(self, rng: random.Random, *, recall: bool) -> tuple[str, str] | None:
        """A text, and moves over it that teach their form and, with ``recall``, looking up.

        None where the domain needs no such exercise.
        """
        ...

    def fingerprint(self, problem: Problem) -> str:
        """Equal for problems that count as the same one across splits."""
        ...

    def alive(self, state: State, truth: Truth) -> bool:
        """Exact truth, for audits only: can the right answer still be derived rightly?"""
        ...

    def right(self, state: State, move: Move, truth: Truth) -> bool:
        """Exact truth, for audits only: is this a right step here? No gate may refuse one."""
        ...


class NumberAnswer(Arguments):
    """The answer of a domain whose answers are whole numbers."""

    value: int


def context_of(state: State, kind: type[Part]) -> Part:
    """The tracked constraints l of ``state``.

    Raises:
        ProtocolError: it is a state of another domain.
    """
    if not isinstance(state.context, kind):
        raise ProtocolError(
            f"{state.problem.problem_id}: given a context {type(state.context).__name__}, "
            f"expected {kind.__name__}"
        )
    return state.context


def arguments_of(move: Move, kind: type[Part]) -> Part:
    """The arguments of ``move``.

    Raises:
        ProtocolError: it is a move of another domain.
    """
    if not isinstance(move.args, kind):
        raise ProtocolError(
            f"given the move {move.text[:80]!r}, expected a move with the arguments {kind.__name__}"
        )
    return move.args


def knows_truth(domain: Domain) -> TypeGuard[GeneratedDomain]:
    """Whether the exact truth about every state of ``domain`` is known."""
    return hasattr(domain, "alive")


def split_moves(text: str, end_of_move: str) -> tuple[str, ...]:
    """The moves' texts in a solution's ``text``.

    Where a word ends a move, an open tail is dropped. Where white space separates moves, each part
    that is not blank is one. Of a longer text the first 200,000 characters are read, of more moves
    the first 4,096 are given: a state takes as much time as it has moves.
    """
    return (_split if len(text) > LONGEST_KEPT else _split_once)(text, end_of_move)


def _split(text: str, end_of_move: str) -> tuple[str, ...]:
    return tuple(islice(_moves(text[:MAX_SOLUTION], end_of_move), MOST_MOVES))


_split_once = lru_cache(maxsize=TEXTS_KEPT)(_split)
"""A search reads a sample's moves, and they are counted and charged: the text is split once."""


def _moves(text: str, end_of_move: str) -> Iterator[str]:
    if not end_of_move.strip():
        lines = end_of_move.count("\n")
        between = r"\n[^\S\n]*" * lines + r"\s*"  # with all that is blank behind it
        parts = re.split(between, text) if lines else text.split()
        yield from filter(None, map(str.strip, parts))
        return
    words: list[str] = []
    for word in text.split():
        words.append(word)
        if word == end_of_move:
            yield " ".join(words)
            words = []


def close_move(text: str, end_of_move: str) -> str:
    """One move's text as ``parse`` reads it, from what came before its end was generated."""
    return " ".join((*text.split(), end_of_move)) if end_of_move.strip() else text.strip()
