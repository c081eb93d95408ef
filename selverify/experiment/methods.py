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
from selverify.search.adaptive_consistency import adaptive_consistency
from selverify.search.allocation import STOPPING
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.cot import chain_of_thought
from selverify.search.dvts import dvts
from selverify.search.early_stopping import early_stopping
from selverify.search.gated import REJECT_PROBABILITY, Rules, gated_competition
from selverify.search.gates import GATES, STRUCTURAL
from selverify.search.majority import majority_vote
from selverify.search.oracle import oracle
from selverify.search.protocol import Asking
from selverify.search.rules import GatedSettings
from selverify.search.selective_vote import selective_vote
from selverify.types import Outcome

FULL_SCORER = "hybrid"
OTHER_COLOUR = "#999999"
_GATED = ("k_base", "beta", "tau", "skip_below", "proposals")
_CALLED = ("k_base", "beta", "tau", "proposals")
_CAPPED = ("proposals", "width", "expansion")
"""Axes that mean the same at any value of N or more."""
_Search = Callable[..., Asking[Outcome]]
Kind = Literal["greedy", "baseline", "vote", "gated", "part", "bound"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all methods of an evaluation share.

    ``dispersion`` is sigma-bar of each scorer; ``patterns`` is the retrieval store.
    """

    params: Params
    dispersion: Mapping[str, float]
    patterns: tuple[str, ...]

    @property
    def aggregation(self) -> str:
        """How the scores of a state's moves make its score, for searches that rank states."""
        return self.params.verifier.aggregation[self.params.domain]

    @property
    def max_moves(self) -> int:
        """How deep a step-level search goes in the domain."""
        return self.params.sampling[self.params.domain].max_moves


Point = tuple[tuple[str, Any], ...]
"""A point of a method's grid: the value of each of its axes."""


def setting_name(point: Point) -> str:
    """Its identifier in tables; "" without axes."""
    return " ".join(
        f"{axis}={value:.4g}" if isinstance(value, float) else f"{axis}={value}"
        for axis, value in point
        if value is not None
    )


def capped(point: Point, n: int) -> Point:
    """What ``point`` comes to at nominal budget ``n``: points that come to the same are one."""
    return tuple((axis, min(n, one) if axis in _CAPPED else one) for axis, one in point)


@dataclass(frozen=True, slots=True)
class Trial:
    """One search: a point of the method's grid on one problem at nominal budget ``n``."""

    domain: Domain
    task: Task
    n: int
    point: Point
    conditions: Conditions

    @property
    def key(self) -> tuple[Point, int, str]:
        """What tells searches of one method apart but for their limits."""
        return self.point, self.value("proposals"), self.task.problem.problem_id

    @property
    def values(self) -> dict[str, Any]:
        """The value of each axis of the grid."""
        return {axis: self.value(axis) for axis, _ in self.point}

    def value(self, axis: str) -> Any:
        """The point's value on ``axis``; that of ``search`` where the grid of the method has none.

        Of samples, beams and children never more than the budget.
        """
        found = dict(self.point)
        value = found[axis] if axis in found else getattr(self.conditions.params.search, axis)
        return min(self.n, value) if axis in _CAPPED else value

    @property
    def generation_cap(self) -> int:
        """Moves that a step-level search may sample in all."""
        return self.n * self.conditions.max_moves


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table of methods.

    ``kind``: ``greedy`` has no budget; ``baseline``; ``vote`` is ours over whole solutions, and
    ``gated`` is gated competition, both with at most N verifier calls; a ``part`` is the full
    method with one part taken out, turned round or added; a ``bound`` knows the truth. ``grid``
    names the axes between whose points cross-validation chooses. ``drawn``: whether figures show
    it; they show no part.
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

    def depends_on(self, conditions: Conditions) -> str:
        """All that its outcomes follow from, beside code, models, problems and grading.

        ``search`` is no part of it for methods over whole solutions and for the beams: what they
        take is on their grids.
        """
        params = conditions.params
        named = {
            "method": self.name,
            "points": points_of(self, params),
            "budgets": params.evaluation.budgets,
            "sampling": params.sampling[params.domain],
            "aggregation": conditions.aggregation,
        }
        if self.stepwise:
            own = (params.search, sorted(conditions.dispersion.items()), conditions.patterns)
            named["search"] = own
        return repr(named)


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
        reference_dispersion=reference_dispersion,
        gates=GATES,
        patterns=patterns if search.retrieval else (),
    )


def gated_settings(trial: Trial, **changes: Any) -> GatedSettings:
    """The full method's settings with those of ``trial``, and ``changes`` for the other rows."""
    conditions = trial.conditions
    full = full_settings(
        conditions.params.search,
        budget=trial.n,
        max_moves=conditions.max_moves,
        reference_dispersion=0.0,
        patterns=conditions.patterns,
    )
    own = {axis: trial.value(axis) for axis in _GATED}
    changed = replace(full, **{**own, **changes})
    return replace(changed, reference_dispersion=conditions.dispersion.get(changed.scorer, 0.0))


def _cot(trial: Trial) -> Asking[Outcome]:
    return chain_of_thought(trial.domain, trial.task.problem)


def _solutions(trial: Trial, *, search: _Search, gates: bool) -> Asking[Outcome]:
    """A search over whole solutions; its other arguments are the axes of its grid."""
    return search(trial.domain, trial.task.problem, n=trial.n, gates=gates, **trial.values)


def _steps(trial: Trial, *, search: _Search, gates: bool, **own: Any) -> Asking[Outcome]:
    """A search over states; its further arguments are ``own``, or the axes of its grid."""
    conditions = trial.conditions
    return search(
        trial.domain,
        trial.task.problem,
        n=trial.n,
        gates=gates,
        max_moves=conditions.max_moves,
        aggregation=conditions.aggregation,
        **(own or trial.values),
    )


def _snell(trial: Trial, *, gates: bool, every: int | None) -> Asking[Outcome]:
    """Snell et al.'s beam, or where ``every`` is None one verified as often as the grid says."""
    return _steps(
        trial,
        search=beam_search,
        gates=gates,
        width=max(1, trial.n // trial.value("expansion")),
        every=trial.value("every") if every is None else every,
        temperature=trial.value("temperature"),
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
        proposals=trial.value("proposals"),
        max_moves=trial.conditions.max_moves,
        generation_cap=trial.generation_cap,
        selective=selective,
    )


def _with(**changes: Any) -> Gated:
    return Gated(lambda trial: changes)


def _baseline(
    name: str,
    label: str,
    colour: str,
    build: Callable[..., Asking[Outcome]],
    grid: tuple[str, ...],
    *,
    drawn: bool = True,
) -> tuple[Method, Method]:
    """A baseline, and the same with the checks that cost no call; ``drawn`` is of the first."""
    with_gates = Method(
        f"{name}_gated", f"{label} + gates", colour, partial(build, gates=True), grid
    )
    return Method(name, label, colour, partial(build, gates=False), grid, drawn=drawn), with_gates


def _vote(name: str, label: str, colour: str, *, ranked: bool) -> Method:
    """Ours over whole solutions, with gates."""
    search = partial(selective_vote, ranked=ranked, temperature=None)
    axes = ("aggregation", "rule", "confidence")
    return Method(name, label, colour, partial(_solutions, search=search, gates=True), axes, "vote")


def _part(name: str, label: str, **changes: Any) -> Method:
    """Our method with ``changes`` to its settings."""
    return Method(name, label, OTHER_COLOUR, _with(**changes), _GATED, "part")


def _ranking(name: str, label: str, **changes: Any) -> Method:
    """What our ranking gains by itself: a fixed k at every state, and ``changes``."""
    build = _with(allocation="fixed", skip_below=0.0, **changes)
    return Method(name, label, OTHER_COLOUR, build, ("k_base", "tau", "proposals"), "part")


_VERIFY_ALL = {"allocation": "all", "scorer": "none", "skip_below": 0.0, "commit": "verifier"}
_DISTANCE = {"scorer": "distance", "allocation": "fixed", "skip_below": 0.0, "commit": "verifier"}
_PAPER = {
    "scorer": "printed",
    "allocation": "adaptive",
    "skip_below": 0.0,
    "commit": "verifier",
    "fallback": False,
}
_RETRIEVAL = Gated(lambda trial: {"patterns": trial.conditions.patterns})
_NEGATIVE_BETA = Gated(lambda trial: {"allocation": "adaptive", "beta": -trial.value("beta")})
# Okabe and Ito's colours, which readers with any colour vision can tell apart.
_ROWS: tuple[Method, ...] = (
    Method("cot", "0-shot CoT", "#8c8c8c", _cot, kind="greedy"),
    *_baseline(
        "majority",
        "Majority vote",
        "#e69f00",
        partial(_solutions, search=majority_vote),
        ("temperature",),
        drawn=False,
    ),
    *_baseline(
        "best_of_n",
        "Best-of-N weighted",
        "#0072b2",
        partial(_solutions, search=best_of_n),
        ("temperature", "aggregation"),
    ),
    *_baseline(
        "early_stopping",
        "Best-of-N, stopping early",
        "#332288",
        partial(_solutions, search=partial(early_stopping, temperature=None)),
        ("aggregation", "threshold"),
        drawn=False,
    ),
    *_baseline(
        "adaptive_consistency",
        "Adaptive consistency",
        "#ddcc77",
        partial(_solutions, search=partial(adaptive_consistency, temperature=None)),
        ("rule", "confidence"),
        drawn=False,
    ),
    *_baseline(
        "beam_keep_b",
        "Beam (keep b)",
        "#009e73",
        partial(_steps, search=partial(beam_search, every=1)),
        ("temperature", "width"),
    ),
    *_baseline(
        "beam_snell",
        "Beam (Snell)",
        "#cc79a7",
        partial(_snell, every=1),
        ("temperature", "expansion"),
        drawn=False,
    ),
    *_baseline(
        "granularity",
        "Granularity search",
        "#117733",
        partial(_snell, every=None),
        ("temperature", "expansion", "every"),
        drawn=False,
    ),
    *_baseline(
        "dvts",
        "DVTS",
        "#7a5195",
        partial(_steps, search=dvts),
        ("temperature", "expansion"),
        drawn=False,
    ),
    _vote("selective_vote", "Ours, selective vote", "#44aa99", ranked=False),
    _vote("ranked_vote", "Ours, ranked vote", "#117777", ranked=True),
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
    Method("paper", "The paper's method", "#b2182b", _with(**_PAPER), _CALLED, "gated"),
    Method("full", "Ours (full)", "#d55e00", _with(), _GATED, "gated"),
    Method(
        "stopping",
        "Ours, optimal stopping",
        OTHER_COLOUR,
        _with(allocation=STOPPING, scorer=REJECT_PROBABILITY, commit="verifier"),
        ("tau", "skip_below", "proposals"),
        "gated",
        drawn=False,
    ),
    Method(
        "full_always_asks",
        "Ours, a call at every state",
        OTHER_COLOUR,
        _with(skip_below=0.0),
        _CALLED,
        "gated",
        drawn=False,
    ),
    Method(
        "ranker_only",
        "Ours, no call but at dead ends",
        OTHER_COLOUR,
        _with(skip_below=math.inf),
        ("tau", "proposals"),
        "gated",
        drawn=False,
    ),
    _ranking("h_only", "h alone (fixed k, no gates, no skip)", gates=()),
    _ranking("gates_h", "Gates and h (fixed k, no skip)"),
    _part("without_gates", "Ours without gates", gates=()),
    _part("without_context_gate", "Ours without the context gate", gates=(STRUCTURAL,)),
    _part("without_distance", "Ours without D_type", scorer="residual"),
    _part("without_residual", "Ours without the residual", scorer="distance"),
    _part(
        "without_trajectory",
        "Ours without the trajectory term",
        scorer="hybrid_without_trajectory",
    ),
    _part(
        "without_token_logprobs",
        "Ours without token log probabilities in the residual",
        scorer="hybrid_without_token_logprobs",
    ),
    _part("without_adaptive_k", "Ours with fixed k", allocation="fixed"),
    _part("equation", "Ours, k(w) by the equation", allocation="adaptive"),
    Method(
        "negative_beta",
        "Ours, k(w) by the equation with negative beta",
        OTHER_COLOUR,
        _NEGATIVE_BETA,
        _GATED,
        "part",
    ),
    _part("without_joint_commit", "Ours, commit by the verifier alone", commit="verifier"),
    _part("without_fallback", "Ours without the fallback", fallback=False),
    Method(
        "full_retrieval", "Ours with retrieval", OTHER_COLOUR, _RETRIEVAL, ("k_base", "tau"), "part"
    ),
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


def points_of(method: Method, params: Params) -> tuple[Point, ...]:
    """The grid of ``method``: the product of its axes; points of one name are one."""
    grid = params.evaluation.grid
    values = (tuple((axis, one) for one in getattr(grid, axis)) for axis in method.grid)
    return tuple({setting_name(point): point for point in itertools.product(*values)}.values())
