"""What the models of one search read, and the operations that its ledger comes to.

Knows: which texts of a search a model has read or written before, so that it finds them in its
cache of keys and values or among the hidden states that decoding left. Does not know: who charges
it, how a model works, other searches: nothing is shared with them, so a search costs the same
beside any neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from selverify.domains.base import split_moves
from selverify.search.requests import CompleteItem, ProposeItem, RankItem, VerifyItem
from selverify.types import Problem

_Prefix = tuple[str, ...]
"""The texts of the moves after the problem's text; () is the problem's text alone."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parameters that a token passes in generator and verifier, and a ranked move in the ranker.

    0 where there is no such model, None where its size is unknown, as behind a server.
    """

    generator: int | None
    verifier: int | None
    ranker: int | None

    def operations(self, counts: Any) -> Any:
        """``compute`` (protocol, "Cost"): two operations a parameter and token.

        Attention to earlier tokens is left out (Kaplan et al. 2020, arXiv 2001.08361, section 2.1).
        NaN where a size is unknown.

        Args:
            counts: a ledger, or a frame with its numbers as columns, which gives a column.
        """
        generator, verifier, ranker = self.generator, self.verifier, self.ranker
        if generator is None or verifier is None or ranker is None:
            return math.nan
        tokens = counts.generated_tokens + counts.read_tokens
        passed = generator * tokens + verifier * counts.verified_tokens
        return 2.0 * (passed + ranker * counts.rank_items)


class Reading:
    """What generator and verifier have read or written in one search, about one problem."""

    __slots__ = ("_end", "_generator", "_goal", "_solutions", "_tokens", "_verifier")

    def __init__(self, tokens: Callable[[str], int], *, end_of_move: str) -> None:
        """``tokens`` counts those of a text; ``end_of_move`` sets the moves of a solution apart."""
        self._tokens = tokens
        self._end = end_of_move
        self._generator: set[_Prefix] = set()
        self._verifier: set[_Prefix] = set()
        self._goal = False
        self._solutions: list[tuple[_Prefix, str]] = []

    def of(self, item: Any, entry: Any) -> int:
        """Tokens newly read to answer ``item`` with ``entry``: by the verifier if it is to verify.

        Otherwise by the generator, which then knows what it wrote, and the ranker on its states.
        """
        problem, said = item.state.problem, item.state.said
        if isinstance(item, VerifyItem):
            said = (*said, *[move.text for move in item.steps])
            return self._read(self._verifier, problem, said)
        self._split_solutions()
        new = self._read(self._generator, problem, said)
        if isinstance(item, RankItem):
            return new + self._ranked(item, said)
        if isinstance(item, ProposeItem):
            self._generator.update([(*said, text) for text in {sample.text for sample in entry}])
        elif isinstance(item, CompleteItem):
            self._solutions += [(said, sample.text) for sample in entry]
        return new

    def _ranked(self, item: RankItem, said: _Prefix) -> int:
        """Moves that were not written at the state, and the question alone once (z_w*)."""
        problem, known = item.state.problem, self._generator
        new = 0 if self._goal else self._tokens(problem.goal)
        self._goal = True
        return new + sum([self._read(known, problem, (*said, one.text)) for one in item.moves])

    def _split_solutions(self) -> None:
        """The moves of sampled solutions were written too; seldom does a search go on from them."""
        for said, solution in self._solutions:
            prefix = said
            for text in split_moves(solution, self._end):
                prefix = (*prefix, text)
                self._generator.add(prefix)
        self._solutions.clear()

    def _read(self, known: set[_Prefix], problem: Problem, said: _Prefix) -> int:
        """Tokens of what follows the longest known prefix of ``said``; it is known from now on."""
        new, prefix = 0, said
        while prefix not in known:
            known.add(prefix)
            new += self._tokens(prefix[-1] if prefix else problem.text)
            prefix = prefix[:-1]
        return new
