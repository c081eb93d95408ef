"""Methods as the report shows them: display name, order, colour, and what kind each is.

Knows: names of methods. Does not know: how a method works, tables, figures.
"""

from __future__ import annotations

from collections.abc import Iterable

METHOD_NAMES = {
    "cot": "0-shot CoT",
    "majority": "Majority vote",
    "majority_gated": "Majority vote + gates",
    "best_of_n": "Best-of-N weighted",
    "best_of_n_gated": "Best-of-N weighted + gates",
    "beam_keep_b": "Beam (keep b)",
    "beam_keep_b_gated": "Beam (keep b) + gates",
    "beam_snell": "Beam (Snell)",
    "beam_snell_gated": "Beam (Snell) + gates",
    "dvts": "DVTS",
    "dvts_gated": "DVTS + gates",
    "strategy": "Baseline chosen on the other fold",
    "strategy_by_bin": "Baseline chosen in each bin",
    "verify_all": "Verify-all (no gates)",
    "gates_only": "Gates-only",
    "gates_distance": "Gates + D_type (fixed k)",
    "full": "Full (gates + hybrid + k(w))",
    "full_always_asks": "Full, a call at every state",
    "ranker_only": "Full, every first move trusted",
    "without_gates": "Full without gates",
    "without_context_gate": "Full without the context gate",
    "without_distance": "Full without D_type",
    "without_residual": "Full without the residual",
    "without_trajectory": "Full without the trajectory term",
    "without_adaptive_k": "Full with fixed k",
    "without_joint_commit": "Full, commit by the verifier alone",
    "negative_beta": "Full with negative beta",
    "margin": "Full with the margin in place of sigma",
    "full_retrieval": "Full + retrieval",
    "oracle": "Oracle",
    "oracle_selective": "Oracle, only where needed",
}
"""Display names, in the order of every table. A method that is not here shows its own name."""

FAMILY_COLOURS = {
    "cot": "#8c8c8c",
    "majority": "#e69f00",
    "best_of_n": "#0072b2",
    "beam_keep_b": "#009e73",
    "beam_snell": "#cc79a7",
    "dvts": "#7a5195",
    "verify_all": "#56b4e9",
    "gates_only": "#6a3d9a",
    "gates_distance": "#a65628",
    "full": "#d55e00",
    "full_retrieval": "#b8860b",
    "oracle": "#222222",
}
"""Okabe and Ito's colours and a few more, which readers with any colour vision distinguish.

A baseline with gates has the colour of the same baseline without them.
"""
OTHER_COLOUR = "#999999"

FIGURE_METHODS = (
    "cot",
    "majority_gated",
    "best_of_n",
    "best_of_n_gated",
    "beam_keep_b",
    "beam_keep_b_gated",
    "beam_snell_gated",
    "dvts_gated",
    "gates_only",
    "full",
    "oracle",
)
"""Methods in the figures; the tables have all of them."""
FULL_METHOD = "full"
GATES_ONLY = "gates_only"
STRATEGY, STRATEGY_BY_BIN = "strategy", "strategy_by_bin"
"""The baseline with gates chosen by cross-validation, like a setting.

Once for all problems, and for each difficulty bin, as in compute-optimal scaling.
"""
ORACLES = ("oracle", "oracle_selective")
"""They know the truth, and no method is compared with them on equal terms."""
BUDGET_FREE = ("cot",)
"""Methods that have no budget and appear in every table."""
GATED = "_gated"
"""How the name of a baseline with the same free checks ends."""


def method_name(method: str) -> str:
    """The display name of a method."""
    return METHOD_NAMES.get(method, method)


def method_colour(method: str) -> str:
    """The colour of a method's family."""
    return FAMILY_COLOURS.get(method.removesuffix(GATED), OTHER_COLOUR)


def ordered_methods(methods: Iterable[str]) -> list[str]:
    """Distinct methods in the order of :data:`METHOD_NAMES`, others after them by name."""
    rank = {name: place for place, name in enumerate(METHOD_NAMES)}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(rank)), method))
