"""Methods by their names in tables: display names, order, and what kind each is."""

from __future__ import annotations

from collections.abc import Sequence

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

FULL = "full"
GATES_ONLY = "gates_only"
LEAVE_ONE_OUT = (
    "without_gates",
    "without_context_gate",
    "without_distance",
    "without_residual",
    "without_trajectory",
    "without_adaptive_k",
    "without_joint_commit",
    "negative_beta",
    "margin",
    "full_retrieval",
)
"""The full method with one part taken out, turned round or added."""
STRATEGY, STRATEGY_BY_BIN = "strategy", "strategy_by_bin"
"""The baseline with gates chosen by cross-validation, like a setting.

Once for all problems, and for each difficulty bin, as in compute-optimal scaling.
"""
ORACLE = "oracle"
ORACLES = (ORACLE, "oracle_selective")
"""They know the truth, and no method is compared with them on equal terms."""
BUDGET_FREE = ("cot",)
"""Methods that have no budget and stand in every table."""

GATED = "_gated"
"""How the name of a baseline with the same free checks ends."""


def method_name(method: str) -> str:
    """The display name of a method."""
    return METHOD_NAMES.get(method, method)


def in_order(methods: Sequence[str]) -> list[str]:
    """Distinct methods in the order of :data:`METHOD_NAMES`, others after them by name."""
    rank = {name: place for place, name in enumerate(METHOD_NAMES)}
    return sorted(set(methods), key=lambda method: (rank.get(method, len(rank)), method))
