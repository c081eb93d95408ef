"""What answers requests: a generator, a ranker and a verifier behind one method.

Knows: the shape of the call. Does not know: budgets, counting, caching, or any search.
"""

from __future__ import annotations

from typing import Protocol

from selverify.requests import Reply, Request


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
