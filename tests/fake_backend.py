"""A deterministic backend without a model, for tests of everything above it.

Every reply is a hash of (seed, problem id, derivation, move or sample index), so it depends on
the item alone. Knows: how to walk a domain. Does not know: the truth of any problem.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

from selverify.domains.base import Domain
from selverify.errors import ProtocolError
from selverify.search.backend import Backend
from selverify.search.compute import Sizes
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Rank,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.types import Move, Sample, State, Verdict

Proposer = Callable[[State, random.Random], str]


def pool_proposer(texts: Sequence[str]) -> Proposer:
    """A proposer that draws uniformly from ``texts`` whatever the state is."""
    return lambda state, rng: rng.choice(texts)


class FakeBackend:
    """Samples from ``proposer``; scores and ranks are uniform in [0, 1) by hash."""

    def __init__(
        self, domain: Domain, proposer: Proposer, *, name: str, seed: int, max_moves: int
    ) -> None:
        """``name`` stands for the proposer in the identity; solutions end at ``max_moves``."""
        self._identity = f"fake:{domain.name}:{name}:{seed}:{max_moves}"
        self._domain = domain
        self._proposer = proposer
        self._seed = seed
        self._max_moves = max_moves

    def concurrency(self, kind: str) -> int:
        """It computes its replies."""
        return 0

    def identity(self, kind: str) -> str:
        """The same for every kind: one seed and one proposer make all replies."""
        return self._identity

    def tokens(self, text: str) -> int:
        """A token a word."""
        return len(text.split())

    def sizes(self) -> Sizes:
        """Round numbers, so that operations can be counted by hand."""
        return Sizes(100, 10, 1)

    def answer(self, request: Request) -> Reply:
        """Reply item by item.

        Raises:
            ProtocolError: the request is a ``Note``.
        """
        if isinstance(request, Propose):
            return tuple(self._moves(item) for item in request.items)
        if isinstance(request, Complete):
            return tuple(self._solutions(item) for item in request.items)
        if isinstance(request, Rank):
            return tuple(self._scores(item) for item in request.items)
        if isinstance(request, Verify):
            return tuple(self._verdict(item) for item in request.items)
        raise ProtocolError(f"a backend was given a {request.kind!r}, expected a request")

    def _moves(self, item: ProposeItem) -> tuple[Sample, ...]:
        return tuple(
            _sample(self._proposer(item.state, self._rng("propose", item.state, index)))
            for index in range(item.start, item.start + item.count)
        )

    def _solutions(self, item: CompleteItem) -> tuple[Sample, ...]:
        indices = range(item.start, item.start + item.count)
        kind = "greedy" if item.temperature == 0.0 else "complete"
        return tuple(self._solution(item.state, kind, index) for index in indices)

    def _solution(self, state: State, kind: str, index: int) -> Sample:
        rng = self._rng(kind, state, index)
        texts: list[str] = []
        while len(texts) < self._max_moves and not self._domain.is_final(state):
            texts.append(self._proposer(state, rng))
            move = self._domain.parse(texts[-1])
            if isinstance(move, Move):
                state = self._domain.apply(state, move)
        return _sample(" ".join(texts))

    def _scores(self, item: RankItem) -> tuple[float, ...]:
        return tuple(
            self._unit("rank", item.scorer, item.state.problem.problem_id, item.state.trace, m.text)
            for m in item.moves
        )

    def _verdict(self, item: VerifyItem) -> Verdict:
        prefix = [move.text for move in item.state.derivation]
        scores = []
        for move in item.steps:
            prefix.append(move.text)
            scores.append(self._unit("verify", item.state.problem.problem_id, " ".join(prefix)))
        return Verdict(scores[-1], tuple(scores))

    def _unit(self, *parts: object) -> float:
        return _digest(self._seed, *parts) / 2**64

    def _rng(self, kind: str, state: State, index: int) -> random.Random:
        return random.Random(
            _digest(self._seed, kind, state.problem.problem_id, state.trace, index)
        )


class PassingBackend:
    """Passes every request on to another backend, and keeps it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.requests: list[Request] = []

    def concurrency(self, kind: str) -> int:
        """As of a model in this process."""
        return 0

    def identity(self, kind: str) -> str:
        """That of the other."""
        return self.backend.identity(kind)

    def tokens(self, text: str) -> int:
        """As the other counts them."""
        return self.backend.tokens(text)

    def sizes(self) -> Sizes:
        """Those of the other."""
        return self.backend.sizes()

    def answer(self, request: Request) -> Reply:
        """The other's reply."""
        self.requests.append(request)
        return self.backend.answer(request)


def _digest(*parts: object) -> int:
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _sample(text: str) -> Sample:
    """One token a word, at an even chance each, so that longer texts are less likely."""
    tokens = len(text.split())
    return Sample(text, tokens, -0.5 * tokens)
