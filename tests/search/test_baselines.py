"""Hand-computed cases of the baselines and the oracle on the toy domain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import ScriptedBackend, ToyDomain, alone, move, toy_problem, toy_search, toy_truth

from selverify.domains.base import close_move, split_moves
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.candidates import checked
from selverify.search.cot import chain_of_thought
from selverify.search.dvts import dvts
from selverify.search.ledger import Ledger
from selverify.search.majority import majority_vote
from selverify.search.oracle import oracle
from selverify.search.solutions import read_solution
from selverify.types import Outcome

DOMAIN = ToyDomain()
CHECKING = ToyDomain(checks=True)
PROBLEM = toy_problem(3)
RIGHT = "add 1 ; add 2 ; say 3 ;"
WRONG = "add 2 ; say 2 ;"
ILLEGAL = "add 1 ; say 4 ;"
OPEN = "add 1 ; add"
NOISE = "add 1 ; what ; say 1 ;"


def texts(outcome: Outcome) -> list[str]:
    return [step.text for step in outcome.derivation or ()]


def test_steps_of_text_are_set_apart_by_empty_lines() -> None:
    assert list(split_moves("a\nb\n\n  \n c \n \nd\n", "\n\n")) == ["a\nb", "c", "d"]
    assert list(split_moves('{"op": 1}\n\n{"op": 2}', "\n")) == ['{"op": 1}', '{"op": 2}']


@given(st.text(alphabet="a \n\t\r\x0b\x85", max_size=20), st.integers(0, 3))
def test_moves_are_the_runs_of_lines_between_blank_ones(text: str, lines: int) -> None:
    """As found line by line; one line a move, or a move up to so many ends of lines in a row."""
    moves = [""]
    ends = 0
    for sign in text:
        ends = ends + (sign == "\n") if sign.isspace() else 0
        parts = ends == lines if lines else sign.isspace()
        moves[-1] += sign
        if parts:
            moves.append("")
    whole = [move.strip() for move in moves if move.strip()]
    assert list(split_moves(text, "\n" * lines or " ")) == whole


def test_a_move_is_closed_as_its_domain_writes_it() -> None:
    assert close_move("add  1", ";") == "add 1 ;"
    assert close_move(" So 6 * 7 = 42. ", "\n\n") == "So 6 * 7 = 42."


def test_split_moves_cuts_at_the_closing_word_and_drops_an_open_tail() -> None:
    """Only pieces that end with the closing word are moves."""
    assert list(split_moves("add 1 ;  say 1 ; add", ";")) == ["add 1 ;", "say 1 ;"]


def test_a_solution_is_read_alike_for_every_budget_and_from_where_it_begins() -> None:
    """What was read before for another budget has this one's; later states are no start."""
    begun = DOMAIN.initial_state(PROBLEM, budget=5)
    later = DOMAIN.apply(begun, move("add 1 ;"))
    for start, text, said in (
        (begun, RIGHT, 3),
        (begun.with_budget(9), RIGHT, 3),
        (later, "add 2 ; say 3 ;", 3),
        (begun, "add 2 ; say 3 ;", 2),
        (begun, RIGHT + " add 1 ;" * 5_000, 3),
    ):
        for _ in range(2):
            found = read_solution(DOMAIN, start, text=text, count=4)
            assert found is not None and found.count == 4
            assert found.state.budget == start.budget
            assert len(found.state.derivation) == said
    assert read_solution(DOMAIN, begun, text=OPEN, count=1) is None


def test_chain_of_thought_takes_the_greedy_solution() -> None:
    """One greedy sample, its answer, three moves, nine tokens after three read, no call."""
    result = alone(chain_of_thought(DOMAIN, PROBLEM), ScriptedBackend(solutions=[RIGHT]))
    assert result.outcome.answer == "3"
    assert texts(result.outcome) == ["add 1 ;", "add 2 ;", "say 3 ;"]
    assert result.ledger == Ledger(0, 0, 3, 9, 0, 3)


@pytest.mark.parametrize("solution", [OPEN, NOISE, ""])
def test_chain_of_thought_without_a_readable_answer_is_no_answer(solution: str) -> None:
    """A malformed or open solution ends without an answer, not with an exception."""
    outcome = alone(
        chain_of_thought(DOMAIN, PROBLEM), ScriptedBackend(solutions=[solution])
    ).outcome
    assert outcome == Outcome(None, None, "no answer")


@pytest.mark.parametrize(
    ("solutions", "gates", "answer"),
    [
        ([WRONG, RIGHT, RIGHT], False, "3"),
        ([WRONG, RIGHT], False, "2"),
        ([ILLEGAL, ILLEGAL, RIGHT], False, "4"),
        ([ILLEGAL, ILLEGAL, RIGHT], True, "3"),
        ([NOISE, ILLEGAL, OPEN], True, "4"),
        ([NOISE, OPEN], True, None),
    ],
)
def test_majority_vote(solutions: list[str], gates: bool, answer: str | None) -> None:
    """Most frequent first, ties to the first seen; gates keep the legal, or all if none is."""
    backend = ScriptedBackend(solutions=solutions)
    result = alone(toy_search(majority_vote, n=len(solutions), gates=gates), backend)
    assert result.outcome.answer == answer
    assert result.ledger.verifier_calls == 0


@pytest.mark.parametrize("gates", [False, True])
def test_a_solution_that_checks_for_free_wins_without_votes_or_calls(gates: bool) -> None:
    """Where answers check, one right solution beats any number of wrong ones, with no call."""
    solutions = [WRONG, WRONG, ILLEGAL, RIGHT]
    majority = toy_search(majority_vote, CHECKING, gates=gates)
    assert alone(majority, ScriptedBackend(solutions=solutions)).outcome.answer == "3"
    best = toy_search(best_of_n, CHECKING, gates=gates)
    result = alone(best, ScriptedBackend(solutions=solutions))
    assert (result.outcome.answer, result.ledger.verifier_calls) == ("3", 0)


def test_checked_needs_a_final_legal_state_and_a_checking_domain() -> None:
    """True only for a finished right answer where the domain checks answers."""
    for domain, steps, expected in [
        (CHECKING, ["add 3 ;", "say 3 ;"], True),
        (CHECKING, ["add 2 ;", "say 2 ;"], False),
        (CHECKING, ["add 3 ;"], False),
        (DOMAIN, ["add 3 ;", "say 3 ;"], False),
    ]:
        state = domain.initial_state(PROBLEM, budget=1)
        for step in steps:
            state = domain.apply(state, move(step))
        assert checked(domain, state) is expected


@pytest.mark.parametrize(
    ("aggregation", "answer"),
    # last: 2 x 0.4 for "3" against 0.7; min: 2 x 0.2 against 0.5; prod: 2 x 0.04 against 0.35.
    [("last", "3"), ("min", "2"), ("prod", "2")],
)
def test_best_of_n_weighs_answers_by_summed_scores(aggregation: str, answer: str) -> None:
    """Identical solutions share a call and count twice; the readable ones alone are verified."""
    scores = {
        "add 1 ;": 0.5,
        "add 1 ; add 2 ;": 0.2,
        RIGHT: 0.4,
        "add 2 ;": 0.5,
        WRONG: 0.7,
    }
    backend = ScriptedBackend(solutions=[NOISE, WRONG, RIGHT, f"{RIGHT} add"], scores=scores)
    search = toy_search(best_of_n, aggregation=aggregation)
    result = alone(search, backend)
    assert result.outcome.answer == answer
    assert backend.verified() == [WRONG, RIGHT]
    assert (result.ledger.verifier_calls, result.ledger.verifier_steps) == (2, 5)


def test_best_of_n_with_gates_verifies_only_legal_solutions() -> None:
    """An illegal solution is neither verified nor counted, however good its score."""
    backend = ScriptedBackend(solutions=[ILLEGAL, WRONG], scores={ILLEGAL: 0.9, WRONG: 0.1})
    search = toy_search(best_of_n, n=2, gates=True)
    assert alone(search, backend).outcome.answer == "2"
    assert backend.verified() == [WRONG]


def test_best_of_n_with_gates_falls_back_to_the_majority() -> None:
    """If no solution is legal, the majority decides and nothing is verified."""
    backend = ScriptedBackend(solutions=["say 7 ;", ILLEGAL, ILLEGAL])
    search = toy_search(best_of_n, n=3, gates=True)
    result = alone(search, backend)
    assert (result.outcome.answer, result.ledger.verifier_calls) == ("4", 0)


def test_beam_keep_b_keeps_the_top_states_and_votes_by_last_score() -> None:
    """Two of three states survive; four proposals fall two to each; a repeat is one call."""
    backend = ScriptedBackend(
        moves={
            "": ["add 1 ;", "add 2 ;", "add 3 ;", "add 1 ;"],
            "add 1 ;": ["add 2 ;", "say 1 ;"],
            "add 3 ;": ["say 3 ;", "noise"],
            "add 1 ; add 2 ;": ["say 3 ;", "say 2 ;", "add 1 ;", "add 1 ;"],
        },
        scores={
            "add 1 ;": 0.5,
            "add 2 ;": 0.1,
            "add 3 ;": 0.9,
            "add 1 ; add 2 ;": 0.6,
            "add 1 ; say 1 ;": 0.2,
            "add 3 ; say 3 ;": 0.8,
            RIGHT: 0.3,
            "add 1 ; add 2 ; add 1 ;": 0.1,
        },
    )
    search = toy_search(beam_search, width=2, gates=True)
    result = alone(search, backend)
    assert result.outcome.answer == "3"
    # 3 distinct first moves, then 2 + 1, then one beam of 4 proposals: 2 legal distinct ones.
    assert result.ledger.verifier_calls == 8
    assert result.ledger.generated_moves == 12
    assert texts(result.outcome) == ["add 3 ;", "say 3 ;"]


def test_beam_shares_go_to_the_first_beams() -> None:
    """Five proposals over three beams are 2, 2 and 1."""
    first = {"": ["add 1 ;", "add 2 ;", "add 3 ;", "noise", "noise"]}
    later = {trace: ["noise", "noise"] for trace in ("add 1 ;", "add 2 ;", "add 3 ;")}
    backend = ScriptedBackend(
        moves=first | later, scores={"add 1 ;": 0.9, "add 2 ;": 0.8, "add 3 ;": 0.7}
    )
    search = toy_search(beam_search, n=5, width=4, gates=True, max_moves=3)
    result = alone(search, backend)
    assert [item.count for item in backend.asked[2].items] == [2, 2, 1]  # type: ignore[union-attr]
    assert result.outcome == Outcome(None, None, "no answer")


def test_all_proposals_go_to_the_beams_that_are_left() -> None:
    """Of three places one beam is left: it gets all N proposals, as in Snell et al.'s code."""
    backend = ScriptedBackend(moves={"": ["add 1 ;", "add 1 ;", "noise"], "add 1 ;": ["noise"] * 3})
    search = toy_search(beam_search, n=3, width=3, gates=True, max_moves=2)
    alone(search, backend)
    assert [item.count for item in backend.asked[2].items] == [3]  # type: ignore[union-attr]


def test_beam_without_gates_follows_illegal_moves_and_stops_at_max_moves() -> None:
    """Only parsing filters; after max_moves moves without an answer there is none."""
    backend = ScriptedBackend(
        moves={"": ["add 9 ;"], "add 9 ;": ["add 8 ;"]}, scores={"add 9 ;": 0.5}
    )
    search = toy_search(beam_search, n=1, width=4, max_moves=2)
    result = alone(search, backend)
    assert result.outcome.answer is None
    assert backend.verified() == ["add 9 ;", "add 9 ; add 8 ;"]


def test_subtrees_keep_their_own_best_and_draw_different_samples() -> None:
    """A beam of two would keep add 3 and add 2; the second subtree never sees them.

    At the start the subtrees draw samples 0, 1 and 2, 3; add 1, which both hold, is one call.
    """
    backend = ScriptedBackend(
        moves={
            "": ["add 3 ;", "add 1 ;", "add 1 ;", "noise"],
            "add 3 ;": ["say 3 ;", "noise"],
            "add 1 ;": ["add 2 ;", "noise"],
            "add 1 ; add 2 ;": ["say 3 ;", "say 2 ;"],
        },
        scores={
            "add 3 ;": 0.9,
            "add 1 ;": 0.4,
            "add 3 ; say 3 ;": 0.2,
            "add 1 ; add 2 ;": 0.5,
            "add 1 ; add 2 ; say 3 ;": 0.3,
        },
    )
    result = alone(toy_search(dvts, expansion=2, gates=True), backend)
    assert backend.verified() == [
        "add 3 ;",
        "add 1 ;",
        "add 3 ; say 3 ;",
        "add 1 ; add 2 ;",
        "add 1 ; add 2 ; say 3 ;",
    ]
    assert result.outcome.answer == "3"
    assert result.ledger.generated_moves == 4 + 4 + 2


def test_every_sample_that_ends_a_subtree_votes() -> None:
    """Two that say 2 outvote the best one; where the kept move does not end it, none votes yet."""
    backend = ScriptedBackend(
        moves={
            "": ["add 2 ;", "noise", "noise"],
            "add 2 ;": ["say 2 ;", "add 1 ;", "say 2 ;"],
            "add 2 ; add 1 ;": ["say 3 ;", "say 2 ;", "say 2 ;"],
        },
        scores={
            "add 2 ;": 0.9,
            "add 2 ; say 2 ;": 0.3,
            "add 2 ; add 1 ;": 0.6,
            "add 2 ; add 1 ; say 3 ;": 0.5,
            "add 2 ; add 1 ; say 2 ;": 0.4,
        },
    )
    for gates, answer in ((False, "2"), (True, "3")):
        search = toy_search(dvts, n=3, expansion=3, gates=gates)
        assert alone(search, backend).outcome.answer == answer


def test_a_subtree_without_a_move_dies() -> None:
    """The other goes on; with none left there is no answer."""
    backend = ScriptedBackend(
        moves={"": ["noise", "add 3 ;"], "add 3 ;": ["noise"]}, scores={"add 3 ;": 0.9}
    )
    result = alone(toy_search(dvts, n=2, expansion=1, gates=True), backend)
    assert [item.count for item in backend.asked[0].items] == [1, 1]
    assert result.outcome == Outcome(None, None, "no answer")


@pytest.mark.parametrize("checks", [False, True])
def test_oracle_pays_one_call_a_right_move(checks: bool) -> None:
    """It resamples for free past the wrong moves and commits the first right one unscored.

    An answer that checks costs none.
    """
    backend = ScriptedBackend(
        moves={
            "": ["noise", "add 9 ;", "add 3 ;", "add 1 ;"],
            "add 3 ;": ["add 1 ;", "add 2 ;", "say 3 ;"],
        }
    )
    search = toy_search(
        oracle, ToyDomain(checks), truth=toy_truth(3), proposals=2, generation_cap=7
    )
    result = alone(search, backend)
    assert result.outcome.answer == "3"
    assert backend.verified() == ["add 3 ;", *([] if checks else ["add 3 ; say 3 ;"])]
    assert result.ledger.generated_moves == 7


@pytest.mark.parametrize(("selective", "asked"), [(False, 2), (True, 1)])
def test_a_selective_oracle_asks_only_where_a_list_holds_a_wrong_move(
    selective: bool, asked: int
) -> None:
    """At the root every move leads to 3; after it one of the two does not."""
    backend = ScriptedBackend(moves={"": ["add 3 ;", "add 3 ;"], "add 3 ;": ["say 3 ;", "add 1 ;"]})
    search = toy_search(
        oracle, truth=toy_truth(3), proposals=2, generation_cap=9, selective=selective
    )
    result = alone(search, backend)
    assert result.outcome.answer == "3"
    assert result.ledger.verifier_calls == asked
    assert backend.verified()[-1] == "add 3 ; say 3 ;"


def test_oracle_gives_up_after_its_samples() -> None:
    """Without a right move among all samples it ends without an answer."""
    backend = ScriptedBackend(moves={"": ["add 2 ;"], "add 2 ;": ["add 2 ;", "say 2 ;"]})
    search = toy_search(oracle, truth=toy_truth(3), proposals=1, generation_cap=3)
    result = alone(search, backend)
    assert (result.outcome.answer, result.outcome.reason) == (None, "generation")
    assert result.ledger.verifier_calls == 1
