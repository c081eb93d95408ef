"""Every method on the same problems, budgets and seeds: who is run, with which settings.

Knows: the names of methods and what each is made of, the grid of settings, how an outcome becomes a
row. Does not know: which setting is chosen (``selection``), files, figures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.domains.base import Domain, knows_truth
from selverify.errors import BudgetError, ParamsError
from selverify.params import Params
from selverify.search.backend import Backend
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.cot import chain_of_thought
from selverify.search.driver import Result, Search, run_lockstep
from selverify.search.dvts import dvts
from selverify.search.gated import gated_competition
from selverify.search.gates import GATES, STRUCTURAL
from selverify.search.ledger import Ledger
from selverify.search.majority import majority_vote
from selverify.search.oracle import oracle
from selverify.search.protocol import Asking
from selverify.search.rules import Decisions, GatedSettings
from selverify.types import Outcome

UNBUDGETED = frozenset({"cot"})


@dataclass(frozen=True, slots=True)
class Rules:
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


Builder = Callable[[Domain, Task, int, Setting, Rules], Asking[Outcome]]


def gated_settings(setting: Setting, rules: Rules, n: int, **changes: Any) -> GatedSettings:
    """The full method's rules under ``setting`` at budget ``n``, with ``changes`` for ablations."""
    search = rules.params.search
    full = GatedSettings(
        proposals=min(n, setting.proposals),
        k_base=setting.k_base,
        beta=setting.beta,
        k_min=search.k_min,
        k_max=search.k_max,
        tau=setting.tau,
        skip_below=setting.skip_below,
        max_retries=search.max_retries,
        max_moves=rules.max_moves,
        scorer="hybrid",
        allocation="adaptive",
        reference_dispersion=rules.dispersion["hybrid"],
        gates=GATES,
        patterns=rules.patterns if search.retrieval else (),
        commit=search.commit,
        rank_weight=search.rank_weight,
        fallback=search.fallback,
    )
    changed = replace(full, **changes)
    return replace(changed, reference_dispersion=rules.dispersion.get(changed.scorer, 0.0))


@dataclass(frozen=True, slots=True)
class _Gated:
    """A method that is gated competition with some settings of its own."""

    changes: Mapping[str, Any]

    def settings(self, setting: Setting, rules: Rules, n: int) -> GatedSettings:
        chosen = dict(self.changes)
        if chosen.pop("retrieve", False):
            chosen["patterns"] = rules.patterns
        if chosen.pop("negate_beta", False):
            chosen["beta"] = -setting.beta
        return gated_settings(setting, rules, n, **chosen)

    def __call__(
        self, domain: Domain, task: Task, n: int, setting: Setting, rules: Rules
    ) -> Asking[Outcome]:
        return self.recorded(domain, task, n, Decisions(self.settings(setting, rules, n)), rules)

    def recorded(
        self, domain: Domain, task: Task, n: int, decisions: Decisions, rules: Rules
    ) -> Asking[Outcome]:
        return gated_competition(
            domain,
            task.problem,
            settings=decisions.settings,
            budget=n,
            generation_cap=rules.generation_cap(n),
            decisions=decisions,
        )


def _gated(**changes: Any) -> _Gated:
    return _Gated(changes)


def _best_of_n(gates: bool) -> Builder:
    def build(domain: Domain, task: Task, n: int, _: Setting, rules: Rules) -> Asking[Outcome]:
        how = rules.params.evaluation.aggregation
        return best_of_n(domain, task.problem, n=n, gates=gates, aggregation=how)

    return build


def _majority(gates: bool) -> Builder:
    return lambda domain, task, n, _, __: majority_vote(domain, task.problem, n=n, gates=gates)


def _beam(variant: str, gates: bool) -> Builder:
    def build(domain: Domain, task: Task, n: int, _: Setting, rules: Rules) -> Asking[Outcome]:
        evaluation = rules.params.evaluation
        return beam_search(
            domain,
            task.problem,
            n=n,
            variant=variant,
            width=evaluation.beam_width,
            expansion=evaluation.beam_expansion,
            gates=gates,
            max_moves=rules.max_moves,
        )

    return build


def _dvts(gates: bool) -> Builder:
    def build(domain: Domain, task: Task, n: int, _: Setting, rules: Rules) -> Asking[Outcome]:
        expansion = rules.params.evaluation.beam_expansion
        return dvts(
            domain, task.problem, n=n, expansion=expansion, gates=gates, max_moves=rules.max_moves
        )

    return build


def _oracle(selective: bool) -> Builder:
    def build(
        domain: Domain, task: Task, n: int, setting: Setting, rules: Rules
    ) -> Asking[Outcome]:
        if not knows_truth(domain):
            raise ParamsError(
                f"evaluation.methods: given an oracle, expected none: nobody knows which steps of "
                f"{domain.name} are right"
            )
        return oracle(
            domain,
            task.problem,
            task.truth,
            proposals=min(n, setting.proposals),
            max_moves=rules.max_moves,
            generation_cap=rules.generation_cap(n),
            selective=selective,
        )

    return build


ALL = {"allocation": "all", "scorer": "none", "skip_below": 0.0, "commit": "verifier"}
METHODS: Mapping[str, Builder] = MappingProxyType(
    {
        "cot": lambda domain, task, n, _, __: chain_of_thought(domain, task.problem),
        "majority": _majority(gates=False),
        "majority_gated": _majority(gates=True),
        "best_of_n": _best_of_n(gates=False),
        "best_of_n_gated": _best_of_n(gates=True),
        "beam_keep_b": _beam("keep_b", gates=False),
        "beam_keep_b_gated": _beam("keep_b", gates=True),
        "beam_snell": _beam("snell", gates=False),
        "beam_snell_gated": _beam("snell", gates=True),
        "dvts": _dvts(gates=False),
        "dvts_gated": _dvts(gates=True),
        "verify_all": _gated(gates=(), **ALL),
        "gates_only": _gated(**ALL),
        "gates_distance": _gated(
            scorer="distance", allocation="fixed", skip_below=0.0, commit="verifier"
        ),
        "full": _gated(),
        "full_always_asks": _gated(skip_below=0.0),
        "ranker_only": _gated(skip_below=math.inf),
        "full_retrieval": _gated(retrieve=True),
        "without_gates": _gated(gates=()),
        "without_context_gate": _gated(gates=(STRUCTURAL,)),
        "without_distance": _gated(scorer="residual"),
        "without_residual": _gated(scorer="distance"),
        "without_trajectory": _gated(scorer="hybrid_without_trajectory"),
        "without_adaptive_k": _gated(allocation="fixed"),
        "without_joint_commit": _gated(commit="verifier"),
        "negative_beta": _gated(negate_beta=True),
        "margin": _gated(allocation="margin"),
        "oracle": _oracle(selective=False),
        "oracle_selective": _oracle(selective=True),
    }
)
"""Every method by its name in tables."""

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

GRID_AXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "verify_all": ("tau", "proposals"),
        "gates_only": ("tau", "proposals"),
        "gates_distance": ("k_base", "tau", "proposals"),
        "full": ("k_base", "beta", "tau", "skip_below", "proposals"),
        "full_always_asks": ("k_base", "tau", "proposals"),
        **dict.fromkeys(LEAVE_ONE_OUT, ("k_base", "beta", "tau", "skip_below", "proposals")),
        "full_retrieval": ("k_base", "tau"),
        "ranker_only": ("tau", "proposals"),
    }
)
"""What cross-validation chooses for a method; other methods have nothing to choose."""

STEPWISE = frozenset(GRID_AXES) | {"oracle", "oracle_selective"}
"""Methods that draw at most ``proposals`` moves a round; see :func:`same_with_less`."""


def settings_of(method: str, params: Params) -> tuple[Setting, ...]:
    """The settings of ``method``: the product of its axes of the grid, the rest from ``search``."""
    search, grid = params.search, params.evaluation.grid
    axes = GRID_AXES.get(method, ())
    default = {
        axis: getattr(search, axis) for axis in ("k_base", "beta", "tau", "skip_below", "proposals")
    }
    found = []
    for point in itertools.product(*(getattr(grid, axis) for axis in axes)):
        values = dict(zip(axes, point, strict=True))
        name = " ".join(f"{axis}={value:.4g}" for axis, value in values.items())
        found.append(Setting(name, **{**default, **values}))
    return tuple(found)


def evaluate(
    domain: Domain,
    backend: Backend,
    tasks: Sequence[Task],
    rules: Rules,
    *,
    methods: Sequence[str],
    report: Callable[[str, int, int], None],
) -> list[dict[str, Any]]:
    """One row for each (method, setting, budget, problem): the table ``outcomes``.

    All searches of a method advance together, and methods share the backend's reply cache.

    Args:
        report: called with the method, its number and how many methods there are, before each.

    Raises:
        ParamsError: a method that does not exist.
        BudgetError: a budget below 1.
    """
    budgets = rules.params.evaluation.budgets
    for n in budgets:
        if n < 1:
            raise BudgetError(f"evaluation.budgets: given {n}, expected at least 1")
    rows: list[dict[str, Any]] = []
    with Grader(seconds=rules.params.evaluation.grading_seconds, workers=1) as grader:
        for number, method in enumerate(methods, start=1):
            if method not in METHODS:
                known = ", ".join(METHODS)
                raise ParamsError(f"evaluation.methods: given {method!r}, expected among {known}")
            report(method, number, len(methods))
            rows += _run_method(domain, backend, tasks, rules, method=method, grader=grader)
    return rows


def _run_method(
    domain: Domain,
    backend: Backend,
    tasks: Sequence[Task],
    rules: Rules,
    *,
    method: str,
    grader: Grader,
) -> Iterator[dict[str, Any]]:
    gold = {task.problem.problem_id: task.truth.answer for task in tasks}
    evaluation = rules.params.evaluation
    budgets = (1,) if method in UNBUDGETED else evaluation.budgets
    if method in LEAVE_ONE_OUT:
        budgets = (evaluation.headline_budget,)
    walks = _Walks(domain, backend, tasks, rules, method=method)
    settings = settings_of(method, rules.params)
    for n in sorted(budgets, reverse=True):
        points = {setting.name: _as_run(method, setting, n) for setting in settings}
        results = walks.at(n, tuple(dict.fromkeys(points.values())))
        for setting_name, point in points.items():
            for problem_id, answer in gold.items():
                row = _row(results[point, problem_id], answer, grader)
                which = {"setting": setting_name, "n": n, "problem_id": problem_id}
                yield {"method": method, **which, **row}


@dataclass(frozen=True, slots=True)
class _Walk:
    """One search that was made at budget ``n``; ``decisions`` if it is one of gated competition."""

    n: int
    decisions: Decisions | None
    result: Result[Outcome]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A search that is wanted; ``settings`` if it is one of gated competition."""

    point: Setting
    task: Task
    settings: GatedSettings | None

    @property
    def key(self) -> tuple[Setting, str]:
        return self.point, self.task.problem.problem_id

    def is_led_by(self, walk: _Walk) -> bool:
        """Whether the walk, of the same problem, decided as this search would."""
        if walk.decisions is None or self.settings is None:
            return False
        return walk.decisions.same_under(self.settings)


class _Walks:
    """The searches of one method, each made once: under other settings or limits that would have
    led it the same way it is not made again (docs/decisions/0026)."""

    def __init__(
        self,
        domain: Domain,
        backend: Backend,
        tasks: Sequence[Task],
        rules: Rules,
        *,
        method: str,
    ) -> None:
        self._domain, self._backend, self._tasks, self._rules = domain, backend, tasks, rules
        self._method = method
        self._known: dict[tuple[Setting, str], _Walk] = {}

    def at(self, n: int, points: Sequence[Setting]) -> dict[tuple[Setting, str], Result[Outcome]]:
        """The result of each problem under each of ``points`` at budget ``n``.

        Budgets come in falling order. A wave makes one search for each problem and number of
        proposals, those of one problem being likely to turn out the same; what it led is known.
        """
        wanted = self._wanted(n, points)
        while wanted:
            made = self._make(n, [several[0] for several in wanted])
            left = []
            for several, walk in zip(wanted, made, strict=True):
                self._known[several[0].key] = walk
                others = []
                for one in several[1:]:
                    if one.is_led_by(walk):
                        self._known[one.key] = walk
                    else:
                        others.append(one)
                if others:
                    left.append(others)
            wanted = left
        return {
            (point, task.problem.problem_id): self._known[point, task.problem.problem_id].result
            for point in points
            for task in self._tasks
        }

    def _wanted(self, n: int, points: Sequence[Setting]) -> list[list[_Wanted]]:
        """What no larger budget has answered, by problem and number of proposals."""
        builder = METHODS[self._method]
        groups: dict[tuple[str, int], list[_Wanted]] = {}
        for point in points:
            settings = (
                builder.settings(point, self._rules, n) if isinstance(builder, _Gated) else None
            )
            for task in self._tasks:
                one = _Wanted(point, task, settings)
                walk = self._known.get(one.key)
                if walk is None or not self._unlimited(walk, n):
                    groups.setdefault((one.key[1], point.proposals), []).append(one)
        return list(groups.values())

    def _unlimited(self, walk: _Walk, n: int) -> bool:
        return self._method in STEPWISE and same_with_less(
            walk.result.ledger, budget=n, generation_cap=self._rules.generation_cap(n)
        )

    def _make(self, n: int, wave: Sequence[_Wanted]) -> list[_Walk]:
        builder, domain, rules = METHODS[self._method], self._domain, self._rules
        searches, decided = {}, {}
        for one in wave:
            if isinstance(builder, _Gated) and one.settings is not None:
                decided[one.key] = Decisions(one.settings)
                search = builder.recorded(domain, one.task, n, decided[one.key], rules)
            else:
                search = builder(domain, one.task, n, one.point, rules)
            searches[one.key] = Search(search, budget=n if self._method in GRID_AXES else None)
        results = run_lockstep(searches, self._backend, end_of_move=domain.end_of_move)
        return [_Walk(n, decided.get(one.key), results[one.key]) for one in wave]


def same_with_less(spent: Ledger, *, budget: int, generation_cap: int) -> bool:
    """Whether a step-level search that spent this much would go the same way under these limits.

    It looks at its limits only where they cut a round of samples or calls short, or are used up.
    Strictly less than both was spent, so neither happens.
    """
    return spent.verifier_calls < budget and spent.generated_moves < generation_cap


def _as_run(method: str, setting: Setting, n: int) -> Setting:
    """What a setting comes to at budget ``n``; equal ones are run once."""
    if method not in STEPWISE:
        return setting
    return replace(setting, name="", proposals=min(n, setting.proposals))


def _row(result: Result[Outcome], gold: str, grader: Grader) -> dict[str, Any]:
    graded = grader.grade(gold, result.outcome.answer)
    ledger = result.ledger
    return {
        "answer": result.outcome.answer,
        "status": graded.status,
        "correct": graded.correct,
        "reason": result.outcome.reason,
        "verifier_calls": ledger.verifier_calls,
        "verifier_steps": ledger.verifier_steps,
        "generated_moves": ledger.generated_moves,
        "generated_tokens": ledger.generated_tokens,
    }
