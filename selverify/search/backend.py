"""What answers requests: a generator, a ranker and a verifier behind one method.

Knows: the shape of the calls, and which part answers which kind. Does not know: budgets, counting,
caching, or any search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, cast

from selverify.errors import ProtocolError
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
from selverify.types import Sample, State, Verdict

NOTHING = Sample("", 0, 0.0)
"""What is sampled where the prompt leaves no room: no move, so it is refused and costs nothing."""


class Backend(Protocol):
    """A pure function of each item: neither its place in a batch nor its state's budget matters."""

    def identity(self, kind: str) -> str:
        """Content id of all that replies to requests of ``kind`` depend on beside the item.

        Equal ids give equal replies. A new ranker leaves the ids of the generator and of the
        verifier as they were, so what they said is not paid for again.
        """
        ...

    def answer(self, request: Request) -> Reply:
        """Reply to a Propose, Complete, Rank or Verify, one entry an item and in their order.

        A ``Note`` never arrives here.
        """
        ...

    def concurrency(self, kind: str) -> int:
        """How many requests of ``kind`` to make at once, each in a thread of its own.

        0: it computes the replies itself, best in one large request.
        """
        ...

    def tokens(self, text: str) -> int:
        """How many tokens ``text`` has; the generator's count is also taken for the verifier."""
        ...

    def sizes(self) -> Sizes:
        """The parameters of generator, verifier and ranker."""
        ...


class Proposer(Protocol):
    """A generator: any causal language model, here or behind a server."""

    def identity(self) -> str:
        """Content id of the model and of all settings that its samples depend on."""
        ...

    def propose(self, items: Sequence[ProposeItem]) -> tuple[tuple[Sample, ...], ...]:
        """For each item ``count`` samples, each the text of one move."""
        ...

    def complete(self, items: Sequence[CompleteItem]) -> tuple[tuple[Sample, ...], ...]:
        """For each item ``count`` samples, each a whole continuation to the end."""
        ...

    def tokens(self, text: str) -> int:
        """How many tokens it takes to read ``text``: one move, a problem or a question."""
        ...

    def parameters(self) -> int | None:
        """Parameters of the model, embeddings among them; None where that is unknown."""
        ...


class Ranker(Protocol):
    """What orders the survivors of the gates without a verifier call."""

    def identity(self) -> str:
        """Content id of all that its scores depend on."""
        ...

    def rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        """For each item one score a move, lower first."""
        ...

    def parameters(self) -> int | None:
        """Parameters that it adds to the generator's, whose states it reads."""
        ...


class Verifier(Protocol):
    """A process reward model, a judge or a tool. A new one is one class in one file."""

    def identity(self) -> str:
        """Content id of all that its verdicts depend on."""
        ...

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """For each item one verdict: a score in [0, 1] for each of its steps."""
        ...

    def parameters(self) -> int | None:
        """Parameters that a verified token passes; None where that is unknown, 0 for a tool."""
        ...


class ComposedBackend:
    """A backend of parts; a kind of request whose part is missing is refused."""

    def __init__(
        self,
        proposer: Proposer,
        *,
        ranker: Ranker | None = None,
        verifier: Verifier | None = None,
        concurrency: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``concurrency``: by kind of request, of the parts that are behind a server."""
        self._concurrency = concurrency
        self._proposer = proposer
        self._ranker = ranker
        self._verifier = verifier

    def identity(self, kind: str) -> str:
        """That of the part which answers requests of ``kind``."""
        part: Proposer | Ranker | Verifier | None = self._proposer
        if kind in (Rank.kind, Verify.kind):
            part = self._ranker if kind == Rank.kind else self._verifier
        return "none" if part is None else part.identity()

    def answer(self, request: Request) -> Reply:
        """The reply of the part that the request is for.

        Raises:
            ProtocolError: there is no such part.
        """
        if isinstance(request, Propose):
            return self._proposer.propose(request.items)
        if isinstance(request, Complete):
            return self._proposer.complete(request.items)
        if isinstance(request, Rank) and self._ranker is not None:
            return self._ranker.rank(request.items)
        if isinstance(request, Verify) and self._verifier is not None:
            return self._verifier.verify(request.items)
        parts = (self._proposer, self._ranker, self._verifier)
        raise ProtocolError(
            f"given a {type(request).__name__}, expected a request that one of these answers: "
            f"{', '.join(type(one).__name__ for one in parts if one is not None)}"
        )

    def concurrency(self, kind: str) -> int:
        """As given."""
        return self._concurrency.get(kind, 0)

    def tokens(self, text: str) -> int:
        """The generator's count."""
        return self._proposer.tokens(text)

    def sizes(self) -> Sizes:
        """Of the parts; 0 for one that is missing."""
        generator, verifier, ranker = (
            0 if part is None else part.parameters()
            for part in (self._proposer, self._verifier, self._ranker)
        )
        return Sizes(generator, verifier, ranker)


def sample_completions(
    backend: Backend, states: Sequence[State], *, count: int
) -> tuple[tuple[Sample, ...], ...]:
    """``count`` samples of the rest of a solution from each state."""
    request = Complete(tuple(CompleteItem(state, 0, count) for state in states))
    return cast(tuple[tuple[Sample, ...], ...], backend.answer(request))


def sample_moves(
    backend: Backend, states: Sequence[State], *, start: int, count: int
) -> tuple[tuple[Sample, ...], ...]:
    """``count`` samples of the next move at each state, behind the first ``start``."""
    request = Propose(tuple(ProposeItem(state, start, count) for state in states))
    return cast(tuple[tuple[Sample, ...], ...], backend.answer(request))
