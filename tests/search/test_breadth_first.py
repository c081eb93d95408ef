"""Hand-computed cases of breadth-first search on the toy domain, and its laws."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BACKEND, problems
from strategies import DOMAIN as PLAIN
from toy import ScriptedBackend, ToyDomain, toy_problem

from selverify.search import beam_search
from selverify.search.breadth_first import breadth_first
from selverify.search.driver import Result, Search, run_lockstep
from selverify.search.gates import reject
from selverify.types import Outcome, Problem

CHECKING = ToyDomain(checks=True)
PROBLEM = toy_problem(3)
TREE = {
    "": ["add 1 ;", "add 2 ;", "add 3 ;", "add 1 ;", "noise"],
    "add 1 ;": ["add 2 ;", "say 1 ;", "add 2 ;", "noise", "noise"],
    "add 3 ;": ["say 3 ;", "say 2 ;", "add 1 ;", "noise", "noise"],
    "add 1 ; add 2 ;": ["say 3 ;", "add 1 ;", "noise", "noise", "noise"],
}
SCORES = {
    "add 1 ;": 0.5,
    "add 2 ;": 0.1,
    "add 3 ;": 0.9,
    "add 1 ; add 2 ;": 0.6,
    "add 1 ; say 1 ;": 0.7,
    "add 3 ; say 3 ;": 0.4,
    "add 3 ; add 1 ;": 0.2,
    "add 1 ; add 2 ; say 3 ;": 0.8,
}


def run(
    backend: ScriptedBackend,
    *,
    domain: ToyDomain = PLAIN,
    problem: Problem = PROBLEM,
    width: int = 2,
    gates: bool = True,
    max_moves: int = 3,
) -> Result[Outcome]:
    search = breadth_first(
        domain, problem, proposals=5, width=width, gates=gates, max_moves=max_moves, traced=True
    )
    return run_lockstep({0: Search(search, None)}, backend, end_of_move=";", traced=True)[0]


def kept(result: Result[Outcome]) -> list[tuple[str, float]]:
    """The states that were kept, round by round, with their scores."""
    return [(e.state.trace, dict(e.data)["score"]) for e in result.events if e.event == "keep"]


def test_the_best_states_of_each_round_are_kept() -> None:
    """Of three moves two, of four two: one of them is final, so the last round has one state.

    A repeat is one call and a refused move none: 3, then 2 + 2, then 2 calls.
    """
    backend = ScriptedBackend(moves=TREE, scores=SCORES)
    result = run(backend)
    assert kept(result) == [
        ("add 3 ;", 0.9),
        ("add 1 ;", 0.5),
        ("add 1 ; say 1 ;", 0.7),
        ("add 1 ; add 2 ;", 0.6),
        ("add 1 ; add 2 ; say 3 ;", 0.8),
        ("add 1 ; add 2 ; add 1 ;", 0.0),
    ]
    assert result.ledger.verifier_calls == 9
    assert result.ledger.generated_moves == 5 + 10 + 5


def test_the_finished_state_of_the_highest_score_answers() -> None:
    """Without a vote: 3 by the last round's 0.8; a round earlier, 1 by 0.7."""
    for max_moves, answer, reason in [(3, "3", "answered"), (2, "1", "answered")]:
        outcome = run(ScriptedBackend(moves=TREE, scores=SCORES), max_moves=max_moves).outcome
        assert (outcome.answer, outcome.reason) == (answer, reason)
    assert [one.text for one in outcome.derivation or ()] == ["add 1 ;", "say 1 ;"]


def test_without_a_finished_state_there_is_no_answer() -> None:
    outcome = run(ScriptedBackend(moves=TREE, scores=SCORES), max_moves=1).outcome
    assert outcome == Outcome(None, None, "no answer")


def test_a_search_without_a_move_ends() -> None:
    """Nothing is verified, and no further round is asked for."""
    backend = ScriptedBackend(moves={"": ["noise"] * 5})
    assert run(backend).outcome == Outcome(None, None, "no answer")
    assert [request.kind for request in backend.asked] == ["propose"]


def test_ties_go_to_the_first_proposed() -> None:
    backend = ScriptedBackend(moves=TREE)
    assert [trace for trace, _ in kept(run(backend, max_moves=1))] == ["add 1 ;", "add 2 ;"]


def test_a_finished_state_that_checks_wins_before_the_scores() -> None:
    """Where answers check, say 1 is never verified, and 3 wins though it was scored lower."""
    backend = ScriptedBackend(moves=TREE, scores=SCORES)
    for gates in (True, False):
        outcome = run(backend, domain=CHECKING, gates=gates, max_moves=2).outcome
        assert outcome.answer == "3"
    assert "add 1 ; say 1 ;" not in backend.verified()


def test_without_gates_only_what_does_not_parse_is_left_out() -> None:
    backend = ScriptedBackend(moves={"": ["add 9 ;", "noise", "add 1 ;", "noise", "noise"]})
    run(backend, gates=False, max_moves=1)
    assert backend.verified() == ["add 9 ;", "add 1 ;"]


@settings(max_examples=60, deadline=None)
@given(problems, st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_it_never_pays_more_than_its_tree_holds(
    problem: Problem, proposals: int, width: int, gates: bool
) -> None:
    """At most ``width`` states a round, each with its own proposals; with gates no refused move."""
    search = breadth_first(
        PLAIN, problem, proposals=proposals, width=width, gates=gates, max_moves=3, traced=True
    )
    result = run_lockstep({0: Search(search, None)}, BACKEND, end_of_move=";", traced=True)[0]
    most = proposals * (1 + 2 * width)
    assert result.ledger.verifier_calls <= result.ledger.generated_moves <= most
    depths = [len(event.state.derivation) for event in result.events if event.event == "keep"]
    assert all(depths.count(depth) <= width for depth in (1, 2, 3))
    state = PLAIN.initial_state(problem, budget=1)
    for step in (result.outcome.derivation or ()) if gates else ():
        assert reject(PLAIN, state, step) is None
        state = PLAIN.apply(state, step)


@settings(max_examples=40, deadline=None)
@given(problems, st.integers(1, 6))
def test_of_width_one_it_is_the_beam_that_keeps_one(problem: Problem, proposals: int) -> None:
    """Both follow the best state with all proposals: same calls, same answer."""
    rules = {"gates": True, "max_moves": 4}
    found = run_lockstep(
        {
            "tree": Search(
                breadth_first(PLAIN, problem, proposals=proposals, width=1, **rules), None
            ),
            "beam": Search(
                beam_search(
                    PLAIN, problem, n=proposals, variant="keep_b", width=1, expansion=1, **rules
                ),
                None,
            ),
        },
        BACKEND,
        end_of_move=";",
    )
    assert found["tree"] == found["beam"]


def test_the_budget_holds_the_whole_tree() -> None:
    """The first state has as many calls left as the search can at most make."""
    search = breadth_first(PLAIN, PROBLEM, proposals=5, width=2, gates=True, max_moves=3)
    request = next(search)
    assert request.items[0].state.budget == 5 * 2 * 3  # type: ignore[union-attr]
