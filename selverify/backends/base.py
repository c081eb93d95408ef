"""What answers requests: a generator, a ranker and a verifier behind one method.

Knows: the shape of the call. Does not know: budgets, counting, caching, or any search.
"""

from __future__ import annotations

from typing import Protocol

from selverify.requests import Reply, Request


class Backend(Protocol):
    """A pure function of each item: neither its place in a batch nor its state's budget matters."""

    @property
    def identity(self) -> str:
        """Content id of the weights, settings and seed; equal ids give equal replies."""
        ...

    def answer(self, request: Request) -> Reply:
        """Reply to a Propose, Complete, Rank or Verify, one entry an item and in their order.

        A ``Note`` never arrives here.
        """
        ...
