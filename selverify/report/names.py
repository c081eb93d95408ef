"""Methods as the report shows them: display name, order and colour, from the table of methods.

Knows: the order of tables. Does not know: how a method works, tables, figures.
"""

from __future__ import annotations

from collections.abc import Iterable

from selverify.experiment.equal_cost import HULL
from selverify.experiment.methods import METHODS, OTHER_COLOUR

FULL_METHOD = "full"
PAPER_METHOD = "paper"
GATES_ONLY = "gates_only"
STRATEGY, STRATEGY_BY_BIN = "strategy", "strategy_by_bin"
"""The baseline with gates chosen by cross-validation, like a setting.

Once for all problems, and for each difficulty bin, as in compute-optimal scaling.
"""
STEP, PRODUCT = "the step", "all steps so far"
"""What a score of the verifier is of: one step, or the product over a solution's beginning."""
PART_SETS = {
    "verify_all": "none of them",
    "gates_only": "gates",
    "h_only": "h",
    "gates_h": "gates, h",
    "full_always_asks": "gates, h, k(w)",
    "without_adaptive_k": "gates, h, skip",
    "without_gates": "h, k(w), skip",
    "full": "gates, h, k(w), skip",
}
"""Which of gates, ranking h, k(w) and the skip rule each of these methods has."""
_TOGETHER = {
    STRATEGY: "Baseline chosen on the other fold",
    STRATEGY_BY_BIN: "Baseline chosen in each bin",
    HULL: "Hull of all baselines",
}
"""What is made of all baselines together."""
_HULL_COLOUR = "#222222"
ORACLES = tuple(name for name, method in METHODS.items() if method.kind == "bound")
"""They know the truth, and no method is compared with them on equal terms."""
BUDGET_FREE = tuple(name for name, method in METHODS.items() if method.kind == "greedy")
"""Methods that have no budget and appear in every table."""
GATED = "_gated"
"""How the name of a baseline with the same free checks ends."""
SHORT_LIST = (
    "cot",
    "best_of_n_gated",
    "dvts_gated",
    HULL,
    "selective_vote",
    "ranked_vote",
    GATES_ONLY,
    PAPER_METHOD,
    FULL_METHOD,
    "oracle",
)
"""The methods where there is room for ten: the README, a terminal, the figure at equal cost."""


def baseline_methods() -> tuple[str, ...]:
    """What the hull is made of."""
    return tuple(name for name, one in METHODS.items() if one.kind in ("greedy", "baseline"))


def our_methods() -> tuple[str, ...]:
    """What is compared with the hull."""
    return tuple(name for name, one in METHODS.items() if one.kind in ("vote", "gated", "part"))


def figure_methods() -> tuple[str, ...]:
    """Methods in the figures; the tables have all of them."""
    return tuple(name for name, method in METHODS.items() if method.drawn and method.kind != "part")


def method_name(method: str) -> str:
    """The display name of a method; one that is not in the table shows its own name."""
    return _labels().get(method, method)


def method_colour(method: str) -> str:
    """The colour of a method's family."""
    if method == HULL:
        return _HULL_COLOUR
    return METHODS[method].colour if method in METHODS else OTHER_COLOUR


def ordered_methods(methods: Iterable[str]) -> list[str]:
    """Distinct methods in the order of the table of methods, others after them by name."""
    rank = {name: place for place, name in enumerate(_labels())}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(rank)), method))


def _labels() -> dict[str, str]:
    """Display names in the order of every table; after the baselines what is made of them all."""
    labels = {name: method.label for name, method in METHODS.items()}
    return {**{name: labels[name] for name in baseline_methods()}, **_TOGETHER, **labels}
