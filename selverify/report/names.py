"""Methods as the report shows them: display name, order and colour, from the table of methods.

Knows: the order of tables. Does not know: how a method works, tables, figures.
"""

from __future__ import annotations

from collections.abc import Iterable

from selverify.experiment.equal_cost import HULL, OURS
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
_OURS_TOGETHER = {OURS: "Hull of all of ours"}
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
    "ranked_vote",
    GATES_ONLY,
    PAPER_METHOD,
    FULL_METHOD,
    OURS,
    "oracle",
)
"""The methods where there is room for ten: a terminal, the figure at equal cost."""
AT_A_GLANCE = tuple(method for method in SHORT_LIST if method not in ("cot", "oracle"))
"""The methods that the page opens with."""

DESCRIPTIONS = {
    "equal_calls": "Lines of accuracy in percent for a mean of at most B verifier calls a problem, "
    "B from 1 up on a logarithmic axis, one line a method; the hull has a band of 95 %.",
    "gains": "Accuracy of full minus that of the hull in points, with bars of 95 %, for three "
    "values of B, against pass@1 of a quarter of the problems and against their length.",
    "accuracy_calls": "Accuracy in percent against the verifier calls that were made, one point a "
    "method and budget N, points of a method joined.",
    "accuracy_n": "Accuracy in percent against the budget N, one line a method with bars of 95 %.",
    "accuracy_tokens": "Accuracy in percent against the tokens that were generated, one line a "
    "method.",
    "by_bin": "Accuracy in percent by difficulty bin, from the easiest to the hardest, one point "
    "a method with a bar of 95 %.",
    "backbones": "Accuracy in percent against N, one panel a backbone.",
    "gates": "Bars of the share of sampled moves that each gate refuses, by reason.",
    "rankers": "Share of states whose first k moves hold the best accepted one, against k, one "
    "line a ranker.",
    "reliability": "Share of steps that are right against the verifier's score, beside the "
    "diagonal of a calibrated one; below it how many steps have each score.",
    "within": "Two panels along the moves of a solution: the shares of states without a call and "
    "of accepted moves, and k(w).",
}
"""What each figure of the page shows, by its stem, for those who do not see it."""


def baseline_methods() -> tuple[str, ...]:
    """What the hull is made of."""
    return tuple(name for name, one in METHODS.items() if one.kind in ("greedy", "baseline"))


def our_methods() -> tuple[str, ...]:
    """What is compared with the hull."""
    parts = (name for name, one in METHODS.items() if one.kind == "part")
    return (*our_whole_methods(), *parts, OURS)


def our_whole_methods() -> tuple[str, ...]:
    """What the hull of ours is made of: methods, without those that lack a part."""
    return tuple(name for name, one in METHODS.items() if one.kind in ("vote", "gated"))


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
    if method == OURS:
        return METHODS[FULL_METHOD].colour
    return METHODS[method].colour if method in METHODS else OTHER_COLOUR


def ordered_methods(methods: Iterable[str]) -> list[str]:
    """Distinct methods in the order of the table of methods, others after them by name."""
    rank = {name: place for place, name in enumerate(_labels())}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(rank)), method))


def _labels() -> dict[str, str]:
    """Display names in the order of every table; after baselines, and ours, what all come to."""
    labels = {name: method.label for name, method in METHODS.items()}
    return {
        **{name: labels[name] for name in baseline_methods()},
        **_TOGETHER,
        **{name: labels[name] for name in our_whole_methods()},
        **_OURS_TOGETHER,
        **labels,
    }
