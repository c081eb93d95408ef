"""Problems of one domain, derivations that pass its gates, and why another move does not."""

from __future__ import annotations

from dataclasses import dataclass

from selverify.domains.base import Domain
from selverify.search.gates import passes_every_gate, reject
from selverify.types import State


@dataclass(frozen=True)
class GatedWalks:
    """``text``: the problem where none is given."""

    domain: Domain
    text: str

    def start(self, text: str | None = None) -> State:
        """The first state of a problem."""
        problem = self.domain.read(self.text if text is None else text, problem_id="p")
        return self.domain.initial_state(problem, budget=4)

    def after(self, *texts: str) -> State:
        """The state after these moves, which pass every gate."""
        moves = map(self.domain.parse, texts)
        state = passes_every_gate(self.domain, self.start(), moves=moves)
        assert state is not None
        return state

    def why(self, state: State, text: str) -> str | None:
        """The reason of the gate that refuses ``text``."""
        refused = reject(self.domain, state, candidate=self.domain.parse(text))
        return None if refused is None else f"{refused.gate}: {refused.reason}"
