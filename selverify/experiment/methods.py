"""The methods that are compared: one row each, and what a row needs to start a search.

Knows: every method's name, label, colour, search and grid of settings. Does not know: which setting
is chosen (``selection``), backends, files.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from selverify.data.benchmark import Task
from selverify.domains.base import Domain, knows_truth
from selverify.errors import ParamsError
from selverify.params import Params, SearchParams
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.cot import chain_of_thought
from selverify.search.dvts import dvts
from selverify.search.gated import Rules, gated_competition
from selverify.search.gates import GATES, STRUCTURAL
from selverify.search.majority import majority_vote
from selverify.search.oracle import oracle
from selverify.search.protocol import Asking
from selverify.search.rules import GatedSettings
from selverify.types import Outcome

FULL_SCORER = "hybrid"
_AXES = ("k_base", "beta", "tau", "skip_below", "proposals")
Kind = Literal["greedy", "baseline", "gated", "part", "bound"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all methods of an evaluation share.

    ``dispersion`` is sigma-bar of each scorer; ``patterns`` is the retrieval store.
    """

    params: Params
    dispersion: Mapping[str, float]
    patterns: tuple[str, ...]

    @property
    def max_moves(self) -> int:
        """How deep a step-level search goes in the domain."""
        return self.params.sampling[self.params.domain].max_moves

    def generation_cap(self, n: int) -> int:
        """Sampled moves that a step-level search may draw at nominal budget ``n``, in all."""
        return n * self.max_moves


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of the grid; ``name`` is its identifier in tables ("" where there is one only)."""

    name: str
    k_base: float
    beta: float
    tau: float
    skip_below: float
    proposals: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One search: a setting on one problem at nominal budget ``n``."""

    domain: Domain
    task: Task
    n: int
    setting: Setting
    conditions: Conditions

    @property
    def key(self) -> tuple[Setting, str]:
        """What tells the searches of one method at one budget apart."""
        return self.setting, self.task.problem.problem_id

    @property
    def proposals(self) -> int:
        """Samples a round at a state: never more than the budget."""
        return min(self.n, self.setting.proposals)

    @property
    def generation_cap(self) -> int:
        """Moves that a step-level search may sample in all."""
        return self.conditions.generation_cap(self.n)


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table of methods.

    ``kind``: ``greedy`` has no budget; a ``baseline`` is run once at each budget; ``gated`` is
    gated competition with at most N verifier calls; a ``part`` is the full method with one part
    taken out, turned round or added, run at the headline budget; a ``bound`` knows the truth.
    ``grid`` names the settings that cross-validation chooses. ``drawn``: whether figures show it;
    they show no part.
    """

    name: str
    label: str
    colour: str
    build: Callable[[Trial], Asking[Outcome]]
    grid: tuple[str, ...] = ()
    kind: Kind = "baseline"
    drawn: bool = True

    @property
    def stepwise(self) -> bool:
        """Whether it draws at most ``proposals`` moves a round, within a cap on all of them."""
        return self.kind in ("gated", "part", "bound")


@dataclass(frozen=True, slots=True)
class Gated:
    """Builds gated competition with some settings of its own; ``chosen`` makes them."""

    chosen: Callable[[Trial], Mapping[str, Any]]

    def settings(self, trial: Trial) -> GatedSettings:
        """The settings of the search."""
        return gated_settings(trial, **self.chosen(trial))

    def search(self, trial: Trial, rules: Rules) -> Asking[Outcome]:
        """The search under ``rules``, which are those of its settings."""
        return gated_competition(
            trial.domain,
            trial.task.problem,
            rules=rules,
            budget=trial.n,
            generation_cap=trial.generation_cap,
        )

    def __call__(self, trial: Trial) -> Asking[Outcome]:
        """The search under the rules of its settings."""
        return self.search(trial, self.settings(trial).rules(trial.domain))


def full_settings(
    search: SearchParams,
    *,
    budget: int,
    max_moves: int,
    reference_dispersion: float,
    patterns: tuple[str, ...],
) -> GatedSettings:
    """The full method's settings under ``search`` at a nominal budget."""
    return GatedSettings(
        **search.model_dump(exclude={"proposals", "retrieval"}),
        proposals=min(budget, search.proposals),
        max_moves=max_moves,
        scorer=FULL_SCORER,
        allocation="adaptive",
        reference_dispersion=reference_dispersion,
        gates=GATES,
        patterns=patterns if search.retrieval else (),
    )


def gated_settings(trial: Trial, **changes: Any) -> GatedSettings:
    """The full method's settings with those of ``trial``, and ``changes`` for the other rows."""
    conditions, setting = trial.conditions, trial.setting
    full = full_settings(
        conditions.params.search,
        budget=trial.n,
        max_moves=conditions.max_moves,
        reference_dispersion=0.0,
        patterns=conditions.patterns,
    )
    own = {axis: getattr(setting, axis) for axis in _AXES} | {"proposals": trial.proposals}
    changed = replace(full, **{**own, **changes})
    return replace(changed, reference_dispersion=conditions.dispersion.get(changed.scorer, 0.0))


def _cot(trial: Trial) -> Asking[Outcome]:
    return chain_of_thought(trial.domain, trial.task.problem)


def _majority(trial: Trial, *, gates: bool) -> Asking[Outcome]:
    return majority_vote(trial.domain, trial.task.problem, n=trial.n, gates=gates)


def _best_of_n(trial: Trial, *, gates: bool) -> Asking[Outcome]:
    how = trial.conditions.params.evaluation.aggregation
    return best_of_n(trial.domain, trial.task.problem, n=trial.n, gates=gates, aggregation=how)


def _beam(trial: Trial, *, variant: str, gates: bool) -> Asking[Outcome]:
    evaluation = trial.conditions.params.evaluation
    return beam_search(
        trial.domain,
        trial.task.problem,
        n=trial.n,
        variant=variant,
        width=evaluation.beam_width,
        expansion=evaluation.beam_expansion,
        gates=gates,
        max_moves=trial.conditions.max_moves,
    )


def _dvts(trial: Trial, *, gates: bool) -> Asking[Outcome]:
    return dvts(
        trial.domain,
        trial.task.problem,
        n=trial.n,
        expansion=trial.conditions.params.evaluation.beam_expansion,
        gates=gates,
        max_moves=trial.conditions.max_moves,
    )


def _oracle(trial: Trial, *, selective: bool) -> Asking[Outcome]:
    if not knows_truth(trial.domain):
        raise ParamsError(
            f"evaluation.methods: given an oracle, expected none: the right steps of "
            f"{trial.domain.name} are not known"
        )
    return oracle(
        trial.domain,
        trial.task.problem,
        truth=trial.task.truth,
        proposals=trial.proposals,
        max_moves=trial.conditions.max_moves,
        generation_cap=trial.generation_cap,
        selective=selective,
    )


def _with(**changes: Any) -> Gated:
    return Gated(lambda trial: changes)


_VERIFY_ALL = {"allocation": "all", "scorer": "none", "skip_below": 0.0, "commit": "verifier"}
_DISTANCE = {"scorer": "distance", "allocation": "fixed", "skip_below": 0.0, "commit": "verifier"}
_RETRIEVAL = Gated(lambda trial: {"patterns": trial.conditions.patterns})
_NEGATIVE_BETA = Gated(lambda trial: {"beta": -trial.setting.beta})
OTHER_COLOUR = "#999999"

# Okabe and Ito's colours, which readers with any colour vision can tell apart. A row with gates is
# the baseline above it with the same free checks.
_ROWS: tuple[Method, ...] = (
    Method("cot", "0-shot CoT", "#8c8c8c", _cot, kind="greedy"),
    Method("majority", "Majority vote", "#e69f00", partial(_majority, gates=False), drawn=False),
    Method("majority_gated", "Majority vote + gates", "#e69f00", partial(_majority, gates=True)),
    Method("best_of_n", "Best-of-N weighted", "#0072b2", partial(_best_of_n, gates=False)),
    Method(
        "best_of_n_gated", "Best-of-N weighted + gates", "#0072b2", partial(_best_of_n, gates=True)
    ),
    Method(
        "beam_keep_b", "Beam (keep b)", "#009e73", partial(_beam, variant="keep_b", gates=False)
    ),
    Method(
        "beam_keep_b_gated",
        "Beam (keep b) + gates",
        "#009e73",
        partial(_beam, variant="keep_b", gates=True),
    ),
    Method(
        "beam_snell",
        "Beam (Snell)",
        "#cc79a7",
        partial(_beam, variant="snell", gates=False),
        drawn=False,
    ),
    Method(
        "beam_snell_gated",
        "Beam (Snell) + gates",
        "#cc79a7",
        partial(_beam, variant="snell", gates=True),
    ),
    Method("dvts", "DVTS", "#7a5195", partial(_dvts, gates=False), drawn=False),
    Method("dvts_gated", "DVTS + gates", "#7a5195", partial(_dvts, gates=True)),
    Method(
        "verify_all",
        "Verify-all (no gates)",
        "#56b4e9",
        _with(gates=(), **_VERIFY_ALL),
        ("tau", "proposals"),
        "gated",
        drawn=False,
    ),
    Method(
        "gates_only", "Gates-only", "#6a3d9a", _with(**_VERIFY_ALL), ("tau", "proposals"), "gated"
    ),
    Method(
        "gates_distance",
        "Gates + D_type (fixed k)",
        "#a65628",
        _with(**_DISTANCE),
        ("k_base", "tau", "proposals"),
        "gated",
        drawn=False,
    ),
    Method("full", "Full (gates + hybrid + k(w))", "#d55e00", _with(), _AXES, "gated"),
    Method(
        "full_always_asks",
        "Full, a call at every state",
        OTHER_COLOUR,
        _with(skip_below=0.0),
        ("k_base", "tau", "proposals"),
        "gated",
        drawn=False,
    ),
    Method(
        "ranker_only",
        "Full, every first move trusted",
        OTHER_COLOUR,
        _with(skip_below=math.inf),
        ("tau", "proposals"),
        "gated",
        drawn=False,
    ),
    Method("without_gates", "Full without gates", OTHER_COLOUR, _with(gates=()), _AXES, "part"),
    Method(
        "without_context_gate",
        "Full without the context gate",
        OTHER_COLOUR,
        _with(gates=(STRUCTURAL,)),
        _AXES,
        "part",
    ),
    Method(
        "without_distance",
        "Full without D_type",
        OTHER_COLOUR,
        _with(scorer="residual"),
        _AXES,
        "part",
    ),
    Method(
        "without_residual",
        "Full without the residual",
        OTHER_COLOUR,
        _with(scorer="distance"),
        _AXES,
        "part",
    ),
    Method(
        "without_trajectory",
        "Full without the trajectory term",
        OTHER_COLOUR,
        _with(scorer="hybrid_without_trajectory"),
        _AXES,
        "part",
    ),
    Method(
        "without_adaptive_k",
        "Full with fixed k",
        OTHER_COLOUR,
        _with(allocation="fixed"),
        _AXES,
        "part",
    ),
    Method(
        "without_joint_commit",
        "Full, commit by the verifier alone",
        OTHER_COLOUR,
        _with(commit="verifier"),
        _AXES,
        "part",
    ),
    Method("negative_beta", "Full with negative beta", OTHER_COLOUR, _NEGATIVE_BETA, _AXES, "part"),
    Method(
        "margin",
        "Full with the margin in place of sigma",
        OTHER_COLOUR,
        _with(allocation="margin"),
        _AXES,
        "part",
    ),
    Method("full_retrieval", "Full + retrieval", "#b8860b", _RETRIEVAL, ("k_base", "tau"), "part"),
    Method("oracle", "Oracle", "#222222", partial(_oracle, selective=False), kind="bound"),
    Method(
        "oracle_selective",
        "Oracle, only where needed",
        OTHER_COLOUR,
        partial(_oracle, selective=True),
        kind="bound",
        drawn=False,
    ),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ROWS}
"""Every method by its name, in the order of every table."""
PARTS = tuple(method.name for method in _ROWS if method.kind == "part")
"""The full method with one part taken out, turned round or added."""


def settings_of(method: Method | None, params: Params) -> tuple[Setting, ...]:
    """The settings of ``method``: the product of its axes of the grid, the rest from ``search``.

    None gives the settings of ``search`` alone.
    """
    search, grid = params.search, params.evaluation.grid
    axes = method.grid if method else ()
    default = {axis: getattr(search, axis) for axis in _AXES}
    found: dict[str, Setting] = {}  # points whose names are equal to four digits are one
    for point in itertools.product(*(getattr(grid, axis) for axis in axes)):
        values = dict(zip(axes, point, strict=True))
        name = " ".join(f"{axis}={value:.4g}" for axis, value in values.items())
        found[name] = Setting(name, **{**default, **values})
    return tuple(found.values())
