"""What a search has asked for, counted (protocol, "Cost").

Knows: what one request costs. Does not know: who asks, or whether a cache served the reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import cast

from selverify.domains.base import split_moves
from selverify.search.requests import Complete, Propose, Rank, Reply, Request, Verify
from selverify.types import Sample


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counters of one search. ``verifier_calls`` is C_ver; a cached reply counts as any other.

    ``verifier_steps``: step scores computed for those calls. ``generated_moves``: moves sampled,
    alone or inside a solution. ``generated_tokens``: their tokens. ``rank_items``: moves ranked.
    ``read_tokens``: tokens that the generator, and the ranker on its states, read beyond those.
    ``verified_tokens``: tokens that the verifier read. Neither counts anything twice in a search.
    """

    verifier_calls: int = 0
    verifier_steps: int = 0
    generated_moves: int = 0
    generated_tokens: int = 0
    rank_items: int = 0
    read_tokens: int = 0
    verified_tokens: int = 0

    def __add__(self, other: Ledger) -> Ledger:
        """The counters side by side summed."""
        return Ledger(
            self.verifier_calls + other.verifier_calls,
            self.verifier_steps + other.verifier_steps,
            self.generated_moves + other.generated_moves,
            self.generated_tokens + other.generated_tokens,
            self.rank_items + other.rank_items,
            self.read_tokens + other.read_tokens,
            self.verified_tokens + other.verified_tokens,
        )


def cost(request: Request, reply: Reply, *, read: int, end_of_move: str) -> Ledger:
    """What ``request`` and its ``reply`` add to a ledger, with ``read`` tokens read for it.

    A sample of a Propose is one move; one of a Complete has as many as ``end_of_move`` sets apart.
    A Note costs nothing.
    """
    if isinstance(request, Verify):
        steps = sum(len(item.steps) for item in request.items)
        return Ledger(verifier_calls=len(request.items), verifier_steps=steps, verified_tokens=read)
    if isinstance(request, Rank):
        ranked = sum(len(item.moves) for item in request.items)
        return Ledger(rank_items=ranked, read_tokens=read)
    if isinstance(request, Propose | Complete):
        samples = list(chain.from_iterable(cast(tuple[tuple[Sample, ...], ...], reply)))
        moves = len(samples)
        if isinstance(request, Complete):
            moves = sum(len(split_moves(sample.text, end_of_move)) for sample in samples)
        tokens = sum(sample.tokens for sample in samples)
        return Ledger(generated_moves=moves, generated_tokens=tokens, read_tokens=read)
    return Ledger()
