"""The laws of the search core as properties on the fake backend."""

from __future__ import annotations

import random
import time
from dataclasses import replace

from fake_backend import PassingBackend
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BACKEND, DOMAIN, Runs, gated_runs, mixed_runs, searches
from toy import toy_problem

from selverify.search.driver import run_searches
from selverify.search.gates import GATES, passes_every_gate, reject
from selverify.search.majority import majority_vote
from selverify.search.requests import Reply, Request

quick = settings(max_examples=60, deadline=None)


class Chunked(PassingBackend):
    """Answers ``size`` items at a time, in reversed order of chunks."""

    def __init__(self, size: int) -> None:
        super().__init__(BACKEND)
        self.size = size

    def answer(self, request: Request) -> Reply:
        """The same reply as in one piece, if no reply depends on its batch."""
        kind, items = type(request), request.items
        starts = range(0, len(items), self.size)
        parts = [BACKEND.answer(kind(items[i : i + self.size])) for i in reversed(starts)]
        return tuple(entry for part in reversed(parts) for entry in part)


class Waiting(PassingBackend):
    """Answers as a server does: each request by itself, several at once, in any order."""

    def __init__(self, most: int) -> None:
        super().__init__(BACKEND)
        self.most = most

    def concurrency(self, kind: str) -> int:
        return self.most if kind != "rank" else 0

    def answer(self, request: Request) -> Reply:
        """The fake's reply, a little later."""
        time.sleep(random.uniform(0.0, 0.002))
        return super().answer(request)


@quick
@given(mixed_runs)
def test_lockstep_equals_one_at_a_time(runs: Runs) -> None:
    """Outcome, ledger and events of every search are those it has alone."""
    together = run_searches(searches(runs), BACKEND, end_of_move=";", traced=True)
    for key, search in searches(runs).items():
        alone = run_searches({key: search}, BACKEND, end_of_move=";", traced=True)
        assert alone[key] == together[key]


@quick
@given(mixed_runs, st.integers(1, 4), st.randoms())
def test_chunking_and_mixing_change_nothing(runs: Runs, size: int, rng: object) -> None:
    """Any chunk size and any order of the searches give the same results."""
    plain = run_searches(searches(runs), BACKEND, end_of_move=";")
    shuffled = list(searches(runs).items())
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert run_searches(dict(shuffled), Chunked(size), end_of_move=";") == plain


@settings(max_examples=25, deadline=None)
@given(mixed_runs, st.integers(1, 9))
def test_searches_that_wait_for_a_server_end_as_in_lockstep(runs: Runs, most: int) -> None:
    """Outcome, ledger and events, in whatever order the replies arrive."""
    plain = run_searches(searches(runs), BACKEND, end_of_move=";", traced=True)
    assert run_searches(searches(runs), Waiting(most), end_of_move=";", traced=True) == plain


@quick
@given(gated_runs)
def test_a_gated_search_never_verifies_a_non_survivor(runs: list[dict[str, object]]) -> None:
    """Every verified move passes both gates where it is made, one made without a call too."""
    gated = [run | {"settings": replace(run["settings"], gates=GATES)} for run in runs]
    spy = PassingBackend(BACKEND)
    run_searches(searches((gated, [])), spy, end_of_move=";")
    for request in spy.requests:
        if request.kind == "verify":
            for item in request.items:
                assert passes_every_gate(DOMAIN, item.state, moves=item.steps) is not None


@quick
@given(gated_runs)
def test_no_move_is_verified_twice_at_a_state(runs: list[dict[str, object]]) -> None:
    """Within one search a (state, move) pair is one call at most."""
    for run in runs:
        spy = PassingBackend(BACKEND)
        run_searches(searches(([run], [])), spy, end_of_move=";")
        pairs = [
            (item.state.trace, item.steps)
            for request in spy.requests
            if request.kind == "verify"
            for item in request.items
        ]
        assert len(pairs) == len(set(pairs))


@quick
@given(gated_runs)
def test_calls_are_what_the_budget_lost(runs: list[dict[str, object]]) -> None:
    """C_ver = B - r at the end, never above B; every allocation lies in its bounds.

    At each event the state has as many calls left as the events before it leave; those of one
    request are verified together.
    """
    results = run_searches(searches((runs, [])), BACKEND, end_of_move=";", traced=True)
    for run, result in zip(runs, results.values(), strict=True):
        end = result.events[-1]
        assert end.event == "end"
        assert result.ledger.verifier_calls == run["budget"] - end.state.budget
        assert end.state.budget >= 0
        assert result.ledger.generated_moves <= run["generation_cap"]
        rules = run["settings"]
        left = before = run["budget"]
        for last, event in zip((None, *result.events), result.events, strict=False):
            if event.event != "verify" or last is None or last.event != "verify":
                before = left
            assert event.state.budget == before
            left -= event.ledger.verifier_calls
            if event.event == "allocate" and rules.allocation not in ("all", "stopping"):
                assert rules.k_min <= dict(event.data)["k"] <= rules.k_max


@quick
@given(gated_runs)
def test_an_answer_is_what_its_derivation_says(runs: list[dict[str, object]]) -> None:
    """Replaying the derivation reaches the answer, and with gates every move passes them."""
    results = run_searches(searches((runs, [])), BACKEND, end_of_move=";")
    for run, result in zip(runs, results.values(), strict=True):
        state = DOMAIN.initial_state(run["problem"], budget=1)
        for step in result.outcome.derivation:
            refusal = reject(DOMAIN, state, candidate=step)
            assert refusal is None or refusal.gate not in run["settings"].gates
            state = DOMAIN.apply(state, step)
        assert result.outcome.answer == DOMAIN.answer(state)
        assert (result.outcome.reason == "answered") == (result.outcome.answer is not None)


@quick
@given(mixed_runs)
def test_tracing_changes_no_outcome(runs: Runs) -> None:
    """Notes are only recorded, never acted on."""
    silent = run_searches(searches(runs), BACKEND, end_of_move=";")
    traced = run_searches(searches(runs), BACKEND, end_of_move=";", traced=True)
    for key, result in silent.items():
        assert result == replace(traced[key], events=())


def test_the_fake_depends_on_the_problem_but_not_on_the_budget() -> None:
    """Two ids draw different samples; two budgets the same."""
    runs = [
        majority_vote(DOMAIN, toy_problem(3, problem_id), n=n, gates=False, temperature=None)
        for problem_id, n in [("p0", 8), ("p1", 8)]
    ]
    requests = [next(run) for run in runs]
    first, second = (BACKEND.answer(request) for request in requests)
    assert first != second
    item = requests[0].items[0]
    other = replace(item, state=replace(item.state, budget=99))
    assert BACKEND.answer(type(requests[0])((other,))) == first
