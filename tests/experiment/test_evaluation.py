"""All methods on one table, against the deterministic fake backend."""

import json
import random
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pandas as pd
import pytest
from fake_backend import FakeBackend, PassingBackend

from selverify.data.benchmark import build
from selverify.data.grading import Grader
from selverify.domains import domain_by_name
from selverify.errors import ParamsError
from selverify.experiment import evaluation
from selverify.experiment.evaluation import Row, evaluate
from selverify.experiment.inspection import inspect_samples
from selverify.experiment.methods import METHODS, Conditions, Gated, Method, Trial, points_of
from selverify.experiment.reuse import same_with_less
from selverify.models.reply_cache import CachedBackend
from selverify.models.threshold import with_tau
from selverify.params import Benchmark, Evaluation, Split, load_params
from selverify.report import names
from selverify.search.driver import Search, run_searches
from selverify.search.exploration import explore
from selverify.search.ledger import Ledger
from selverify.training.exploration import exploration_rows, state_of
from selverify.types import State
from tasks.evaluation import _remember

PARAMS = with_tau(load_params(Path("params.yaml")), 0.4)
DOMAIN = domain_by_name("word_problems")
SPLITS = {name: Split(problems=6, seed=s) for s, name in enumerate(("train", "validation", "test"))}
TASKS = [
    t
    for t in build(DOMAIN, Benchmark(minimum=4, maximum=5, hard=0.3, **SPLITS))
    if t.split == "test"
]
GATED = [name for name, method in METHODS.items() if isinstance(method.build, Gated)]
TRUTHS = {task.problem.problem_id: task.truth for task in TASKS}


@cache
def right_moves(problem_id: str) -> tuple[str, ...]:
    """Of one solution."""
    (problem,) = (task.problem for task in TASKS if task.problem.problem_id == problem_id)
    found = DOMAIN.solution(problem, TRUTHS[problem_id], random.Random(3))
    return tuple(move.text for move in found)


def propose(state: State, rng: random.Random) -> str:
    """Mostly a right next move, else a misread number, wrong arithmetic or nonsense."""
    draw, facts = rng.random(), json.loads(TRUTHS[state.problem.problem_id].facts)
    said = [move.text for move in state.derivation]
    rest = [text for text in right_moves(state.problem.problem_id) if text not in said]
    if draw < 0.7 and rest:
        return rest[0]
    if draw < 0.85:
        return f"{rng.choice(sorted(facts['relations']))} {rng.randrange(23)} ;"
    return "= = ;" if draw < 0.9 else f"answer {rng.randrange(23)} ;"


@pytest.fixture(scope="module")
def conditions() -> Conditions:
    grid = PARAMS.evaluation.grid.model_copy(update={"tau": (0.4,), "skip_below": (0.0, 0.3, 0.8)})
    evaluation = PARAMS.evaluation.model_copy(
        update={"budgets": (2, 8), "headline_budget": 8, "grid": grid}
    )
    params = PARAMS.model_copy(update={"evaluation": evaluation})
    sigmas = {"hybrid": 0.3, "distance": 0.3}
    return Conditions(params=params, dispersion=sigmas, patterns=("answer",))


@pytest.fixture(scope="module")
def backend() -> FakeBackend:
    return FakeBackend(DOMAIN, propose, name="mostly-right", seed=5, max_moves=12)


def asked_of(
    backend: FakeBackend, conditions: Conditions, evaluation: Evaluation, method: str
) -> tuple[list[Row], int]:
    """The rows of one method under other settings, and how many items were asked for."""
    counted = PassingBackend(backend)
    changed = replace(
        conditions, params=conditions.params.model_copy(update={"evaluation": evaluation})
    )
    rows = evaluate(DOMAIN, counted, TASKS, changed, methods=(method,), report=lambda *_: None)
    return rows, sum(len(request.items) for request in counted.requests)


@pytest.fixture(scope="module")
def outcomes(conditions: Conditions, backend: FakeBackend) -> pd.DataFrame:
    rows = evaluate(
        DOMAIN, backend, TASKS, conditions, methods=tuple(METHODS), report=lambda *_: None
    )
    return pd.DataFrame(rows)


def test_every_method_has_every_problem_setting_and_budget(outcomes, conditions):
    """The table is complete and has no row twice."""
    key = ["method", "setting", "n", "problem_id"]
    assert not outcomes.duplicated(key).any()
    sizes = Counter(outcomes["method"])
    for name, method in METHODS.items():
        budgets = 1 if method.kind == "greedy" else 2
        assert sizes[name] == budgets * len(points_of(method, conditions.params)) * len(TASKS)


def test_what_a_method_depends_on_is_all_that_moves_its_rows(outcomes, conditions, backend):
    """Under other settings of ``search`` the rows of a method whose key stays are the same."""
    search = conditions.params.search.model_copy(
        update={"max_retries": 0, "proposals": 3, "k_max": 1, "fallback": False, "skip_below": 0.9}
    )
    other = replace(conditions, params=conditions.params.model_copy(update={"search": search}))
    same = [
        name
        for name, method in METHODS.items()
        if method.depends_on(conditions) == method.depends_on(other)
    ]
    kinds = {METHODS[name].kind for name in same}
    assert kinds == {"greedy", "baseline", "vote"}
    assert "full" not in same and len({METHODS[name].depends_on(other) for name in same}) == len(
        same
    )
    rows = evaluate(DOMAIN, backend, TASKS, other, methods=same, report=lambda *_: None)
    before = outcomes[outcomes["method"].isin(same)].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.DataFrame(rows), before)


@pytest.mark.parametrize("part", ["grid", "budgets", "sampling", "aggregation", "search"])
def test_each_thing_that_moves_the_full_method_is_in_its_key(conditions, part):
    """What its grid, limits and settings are; beside them sigma-bar and the patterns."""
    params = conditions.params
    evaluation, verifier = params.evaluation, params.verifier
    grid = evaluation.grid.model_copy(update={"tau": (0.7,)})
    sampling = params.sampling[params.domain].model_copy(update={"max_moves": 3})
    changed = {
        "grid": {"evaluation": evaluation.model_copy(update={"grid": grid})},
        "budgets": {"evaluation": evaluation.model_copy(update={"budgets": (8,)})},
        "sampling": {"sampling": {**params.sampling, params.domain: sampling}},
        "aggregation": {
            "verifier": verifier.model_copy(
                update={"aggregation": {**verifier.aggregation, params.domain: "min"}}
            )
        },
        "search": {"search": params.search.model_copy(update={"rank_weight": 0.1})},
    }[part]
    full, before = METHODS["full"], METHODS["full"].depends_on(conditions)
    assert full.depends_on(replace(conditions, params=params.model_copy(update=changed))) != before
    assert full.depends_on(replace(conditions, dispersion={"hybrid": 0.4})) != before
    assert full.depends_on(replace(conditions, patterns=())) != before
    assert full.depends_on(replace(conditions)) == before


def test_another_setting_on_known_rows_gives_what_it_gives_alone(conditions, backend, tmp_path):
    """A filled cache, then ``search`` and the grid changed: the same rows as without any."""
    methods = ("cot", "best_of_n_gated", "beam_keep_b", "ranked_vote", "full", "oracle")
    grid = conditions.params.evaluation.grid.model_copy(update={"k_base": (1.0,)})
    evaluation = conditions.params.evaluation.model_copy(update={"grid": grid})
    search = conditions.params.search.model_copy(update={"max_retries": 0, "proposals": 3})
    update = {"search": search, "evaluation": evaluation}
    other = replace(conditions, params=conditions.params.model_copy(update=update))
    options = {"methods": methods, "report": lambda *_: None}

    def rows(conditions, path):
        cache = CachedBackend(backend, path)
        found = evaluate(
            DOMAIN,
            cache,
            TASKS,
            conditions,
            recall=lambda own: cache.recall(f"code and models {own}"),
            remember=partial(_remember, cache, "code and models"),
            **options,
        )
        cache.write()
        cache.close()
        return found

    first = rows(conditions, tmp_path / "filled.sqlite")
    assert rows(conditions, tmp_path / "filled.sqlite") == first
    changed = rows(other, tmp_path / "filled.sqlite")
    assert changed == rows(other, tmp_path / "empty.sqlite") != first
    assert changed == evaluate(DOMAIN, backend, TASKS, other, **options)


def test_rows_that_are_known_are_not_made(outcomes, conditions, backend):
    """What is handed in is taken for the method's rows, in its place."""
    made, reported = {}, []
    rows = evaluate(
        DOMAIN,
        backend,
        TASKS,
        conditions,
        methods=("cot", "best_of_n", "full"),
        report=lambda *done: reported.append(done),
        recall=lambda own: None if "'best_of_n'" in own else [],
        remember=made.__setitem__,
    )
    own = outcomes[outcomes["method"] == "best_of_n"].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.DataFrame(rows), own)
    assert list(made.values()) == [rows]
    assert reported == [("cot", 1, 3), ("full", 2, 3), ("best_of_n", 3, 3)]


def test_each_method_alone_gives_the_rows_that_it_has_beside_the_others(
    outcomes, conditions, backend, monkeypatch
):
    """That all searches advance together changes none, however many have to wait."""
    options = {"report": lambda *_: None}
    alone = [
        row
        for name in METHODS
        for task in TASKS
        for row in evaluate(DOMAIN, backend, [task], conditions, methods=(name,), **options)
    ]
    pd.testing.assert_frame_equal(pd.DataFrame(alone), outcomes)
    monkeypatch.setattr(evaluation, "MOST_UNDER_WAY", 3)
    options = {"methods": tuple(METHODS), "report": lambda *_: None}
    some = evaluate(DOMAIN, backend, TASKS, conditions, **options)
    pd.testing.assert_frame_equal(pd.DataFrame(some), outcomes)


def test_costs_follow_from_what_a_method_is(outcomes):
    """Voting is free of calls, gated searches keep to N, nobody pays for more than N solutions."""
    calls = outcomes.groupby("method")["verifier_calls"].max()
    assert calls["cot"] == calls["majority"] == calls["majority_gated"] == 0
    assert calls["adaptive_consistency"] == calls["adaptive_consistency_gated"] == 0
    for method in [*GATED, "best_of_n", "best_of_n_gated", "early_stopping"]:
        own = outcomes[outcomes["method"] == method]
        assert (own["verifier_calls"] <= own["n"]).all()
        assert own["verifier_calls"].max() > 0
    assert (outcomes["verifier_steps"] >= outcomes["verifier_calls"]).all()


def test_compute_is_two_operations_a_parameter_and_token(outcomes, backend):
    """By the sizes of the backend; voting reads nothing but the problem and verifies nothing."""
    sizes = backend.sizes()
    tokens = outcomes["generated_tokens"] + outcomes["read_tokens"]
    models = sizes.generator * tokens + sizes.verifier * outcomes["verified_tokens"]
    ranked = sizes.operations(outcomes) - 2 * models
    assert (ranked >= 0).all() and ranked[outcomes["method"] == "full"].max() > 0
    assert (ranked[~outcomes["method"].isin(GATED)] == 0).all()
    words = {task.problem.problem_id: len(task.problem.text.split()) for task in TASKS}
    voting = outcomes[outcomes["method"].isin(["cot", "majority", "majority_gated"])]
    assert (voting["read_tokens"] == voting["problem_id"].map(words)).all()
    assert (voting["verified_tokens"] == 0).all()
    called = outcomes[outcomes["verifier_calls"] > 0]
    assert (called["verified_tokens"] > called["problem_id"].map(words)).all()


def test_step_searches_keep_to_the_generation_cap(outcomes, conditions):
    """Gated searches and the oracle sample at most N times ``max_moves`` moves."""
    for method in [*GATED, "oracle"]:
        own = outcomes[outcomes["method"] == method]
        cap = own["n"] * conditions.max_moves
        assert (own["generated_moves"] <= cap).all()


def test_the_oracle_is_right_and_pays_one_call_a_move(outcomes):
    """With enough samples the oracle solves everything and asks once for each committed move."""
    own = outcomes[(outcomes["method"] == "oracle") & (outcomes["n"] == 8)]
    assert own["correct"].mean() > 0.8
    assert own["verifier_calls"].max() <= 7


@pytest.mark.parametrize(
    ("calls", "moves", "same"),
    [(7, 95, True), (8, 95, False), (7, 96, False), (9, 10, False), (1, 97, False)],
)
def test_only_what_left_both_limits_unused_is_the_same(calls, moves, same):
    """A search that used up its calls or its samples may have been stopped by them."""
    spent = Ledger(verifier_calls=calls, generated_moves=moves)
    assert same_with_less(spent, budget=8, generation_cap=96) == same


@pytest.mark.parametrize(
    "method",
    [
        "full",
        "oracle",
        *(pytest.param(one, marks=pytest.mark.soak) for one in ("gates_only", "ranker_only")),
    ],
)
def test_what_is_not_run_again_would_go_the_same_way(conditions, backend, monkeypatch, method):
    """Searches that leave their limits unused are taken from a larger budget, row for row."""
    given = conditions.params.evaluation.grid
    axes = {"k_base": (2.0, 3.0), "skip_below": (0.2,), "proposals": (4, 8)}
    grid = given.model_copy(update={**axes, "tau": given.tau[:1]})
    evaluation = conditions.params.evaluation.model_copy(
        update={"budgets": (1, 2, 3, 5, 24, 32), "headline_budget": 32, "grid": grid}
    )
    quick, few = asked_of(backend, conditions, evaluation, method)
    monkeypatch.setattr("selverify.experiment.reuse.same_with_less", lambda *_, **__: False)
    monkeypatch.setattr("selverify.experiment.evaluation.capped", lambda point, n: point)
    slow, many = asked_of(backend, conditions, evaluation, method)
    assert quick == slow
    assert few < 0.9 * many


@pytest.mark.parametrize(
    "method",
    [
        "full",
        "gates_distance",
        *(pytest.param(one, marks=pytest.mark.soak) for one in ("negative_beta", "equation")),
    ],
)
def test_settings_that_decide_alike_are_walked_once(conditions, backend, monkeypatch, method):
    """A large grid gives the same rows as walking every setting, for a fraction of the asking."""
    grid = conditions.params.evaluation.grid.model_copy(
        update={
            "k_base": (2.0, 3.0),
            "beta": (0.25, 0.5),
            "tau": (0.3, 0.4),
            "skip_below": (0.05, 0.2),
            "proposals": (8,),
        }
    )
    evaluation = conditions.params.evaluation.model_copy(update={"grid": grid})
    quick, few = asked_of(backend, conditions, evaluation, method)
    monkeypatch.setattr("selverify.experiment.reuse.Decisions.same_under", lambda *_: False)
    slow, many = asked_of(backend, conditions, evaluation, method)
    assert quick == slow
    assert few < 0.8 * many


def test_the_allocation_is_a_parameter_of_ours_and_not_of_the_papers_method(conditions):
    """Whatever ``search.allocation`` says, the paper's method follows the equation."""
    for allocation in ("margin", "adaptive", "fixed"):
        search = conditions.params.search.model_copy(update={"allocation": allocation})
        params = conditions.params.model_copy(update={"search": search})
        trial = Trial(DOMAIN, TASKS[0], 8, (), replace(conditions, params=params))
        found = {name: METHODS[name].build.settings(trial).allocation for name in GATED}
        assert (found["full"], found["paper"], found["equation"]) == (
            allocation,
            "adaptive",
            "adaptive",
        )


@pytest.mark.parametrize("name", names.PART_SETS)
def test_sets_of_parts_are_those_of_the_settings(conditions, name):
    """What the table of parts says of a method is what it searches with."""
    trial = Trial(DOMAIN, TASKS[0], 8, (("skip_below", 0.2),), conditions)
    settings = METHODS[name].build.settings(trial)
    has = {
        "gates": settings.gates != (),
        "h": settings.scorer == "hybrid" and settings.commit == "joint",
        "k(w)": settings.allocation == conditions.params.search.allocation,
        "skip": settings.skip_below > 0,
    }
    found = ", ".join(part for part, there in has.items() if there)
    assert (found or "none of them") == names.PART_SETS[name]


def test_unknown_method_is_named(conditions, backend):
    """A misspelt method is refused with the list of those that exist."""
    with pytest.raises(ParamsError, match="given 'beem', expected among cot"):
        evaluate(DOMAIN, backend, TASKS, conditions, methods=("beem",), report=lambda *_: None)


def test_inspection_counts_no_false_reject(backend):
    """Of sampled moves the gates refuse some, and never one that was right."""
    with Grader(seconds=5.0, workers=1) as grader:
        rows = inspect_samples(DOMAIN, backend, TASKS, samples=4, grader=grader)
    refused = [row for row in rows if row["gate"]]
    assert refused
    assert not any(row["right"] for row in refused)
    assert any(row["right"] for row in rows)
    assert sum(row["score"] is not None for row in rows) == len(rows) - len(refused)


def test_candidate_lists_come_back_from_their_rows(backend):
    """A logged list gives back its state; steps remain only along a right trajectory."""
    found = 0
    for task in TASKS:
        search = Search(
            explore(DOMAIN, task.problem, proposals=6, tau=0.3, max_retries=1, max_moves=12), None
        )
        result = run_searches({0: search}, backend, end_of_move=DOMAIN.end_of_move)[0]
        for row, item in zip(
            exploration_rows(task, result.outcome, right=True), result.outcome.lists, strict=True
        ):
            assert state_of(DOMAIN, task, row).derivation == item.state.derivation
            if row["remaining"] is not None:
                found += 1
                final = result.outcome.outcome.derivation
                assert row["remaining"] == len(final) - len(item.state.derivation)
    assert found > 0


def test_what_is_left_out_changes_the_outcomes(outcomes):
    """Without gates more is verified; negative beta allots otherwise than its opposite."""
    key = ["setting", "problem_id"]
    pairs = {
        "without_gates": "full",
        "without_distance": "full",
        "without_residual": "full",
        "without_trajectory": "full",
        "equation": "full",
        "negative_beta": "equation",
        "h_only": "gates_h",
    }
    for method, other in pairs.items():
        at_most = outcomes[outcomes["n"] == outcomes["n"].max()]
        both = at_most[at_most["method"] == other].merge(
            at_most[at_most["method"] == method], on=key
        )
        costs = both["generated_moves_x"] != both["generated_moves_y"]
        assert (costs | (both["verifier_calls_x"] != both["verifier_calls_y"])).any(), method


def test_one_row_adds_a_method(conditions, backend, monkeypatch):
    """It is run, and tables and figures show it with its label and colour."""
    row = Method("new", "A new one", "#123456", METHODS["majority_gated"].build, ("temperature",))
    monkeypatch.setitem(METHODS, row.name, row)
    rows = evaluate(DOMAIN, backend, TASKS, conditions, methods=(row.name,), report=lambda *_: None)
    points = len(points_of(row, conditions.params))
    assert len(rows) == points * len(conditions.params.evaluation.budgets) * len(TASKS)
    assert {row["method"] for row in rows} == {"new"}
    assert (names.method_name("new"), names.method_colour("new")) == ("A new one", "#123456")
    assert names.ordered_methods(["full", "new", "cot"]) == ["cot", "new", "full"]
    assert "new" in names.figure_methods()
