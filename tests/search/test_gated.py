"""Hand-computed cases of gated competition, its fallbacks and exploration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy import SETTINGS, ScriptedBackend, ToyDomain, alone, told, toy_problem

from selverify.errors import BudgetError, ParamsError
from selverify.report.trace_text import outcome_text
from selverify.search.driver import Result
from selverify.search.exploration import explore
from selverify.search.gated import gated_competition
from selverify.search.ledger import Ledger
from selverify.search.rules import GatedSettings
from selverify.types import Outcome

DOMAIN = ToyDomain()
PROBLEM = toy_problem(3)
# At the root both moves are accepted; under "add 2 ;" a round and a retry fail, so the search
# comes back to "add 1 ;".
BACKTRACKING = {
    "moves": {
        "": ["add 1 ;", "add 2 ;"],
        "add 2 ;": ["add 2 ;", "add 9 ;", "add 2 ;", "say 2 ;"],
        "add 1 ;": ["add 2 ;", "add 2 ;", "add 2 ;", "add 2 ;"],
        "add 1 ; add 2 ;": ["say 3 ;", "noise"],
    },
    "scores": {
        "add 1 ;": 0.6,
        "add 2 ;": 0.7,
        "add 2 ; add 2 ;": 0.1,
        "add 2 ; say 2 ;": 0.2,
        "add 1 ; add 2 ;": 0.9,
        "add 1 ; add 2 ; say 3 ;": 0.95,
    },
    "ranks": {"add 1 ;": 0.2, "add 2 ;": 0.1},
}


def run(
    backend: ScriptedBackend,
    settings: GatedSettings = SETTINGS,
    *,
    budget: int = 10,
    cap: int = 100,
    domain: ToyDomain = DOMAIN,
) -> Result[Outcome]:
    search = gated_competition(
        domain, PROBLEM, rules=settings.rules(domain), budget=budget, generation_cap=cap
    )
    return alone(search, backend, budget=budget, traced=True)


def test_golden_trace_with_retry_and_backtrack() -> None:
    """Every event of one search, with where it stood and the calls it had left."""
    result = run(ScriptedBackend(**BACKTRACKING))
    assert result.outcome.answer == "3"
    assert result.outcome.reason == "answered"
    assert result.ledger == Ledger(6, 6, 10, 28, 2, 4, 21)
    golden = [
        ("propose", "", 10),
        ("propose", "", 10),
        ("rank", "", 10),
        ("allocate", "", 10),
        ("verify", "", 10),
        ("verify", "", 10),
        ("commit", "", 8),
        ("propose", "add 2 ;", 8),
        ("propose", "add 2 ;", 8),
        ("allocate", "add 2 ;", 8),
        ("verify", "add 2 ;", 8),
        ("retry", "add 2 ;", 7),
        ("propose", "add 2 ;", 7),
        ("propose", "add 2 ;", 7),
        ("allocate", "add 2 ;", 7),
        ("verify", "add 2 ;", 7),
        ("backtrack", "add 2 ;", 6),
        ("commit", "", 6),
        ("propose", "add 1 ;", 6),
        ("propose", "add 1 ;", 6),
        ("allocate", "add 1 ;", 6),
        ("verify", "add 1 ;", 6),
        ("commit", "add 1 ;", 5),
        ("propose", "add 1 ; add 2 ;", 5),
        ("propose", "add 1 ; add 2 ;", 5),
        ("allocate", "add 1 ; add 2 ;", 5),
        ("verify", "add 1 ; add 2 ;", 5),
        ("commit", "add 1 ; add 2 ;", 4),
        ("end", "add 1 ; add 2 ; say 3 ;", 4),
    ]
    assert [(e.event, e.state.trace, e.state.budget) for e in result.events] == golden
    notes = [dict(event.data) for event in result.events if event.event == "propose"]
    assert notes[3] == {
        "survivors": ["add 2 ;"],
        "refused": {"structural: amount above 3": 1},
    }


def test_going_back_verifies_what_an_ancestor_left_unverified() -> None:
    """With k = 1 the root's second move was never asked about; it is when its turn comes."""
    settings = replace(SETTINGS, k_base=1.0)
    result = run(ScriptedBackend(**BACKTRACKING), settings)
    assert result.outcome.answer == "3"
    seen = [(event.event, event.state.trace) for event in result.events]
    reopened = seen.index(("reopen", ""))
    assert seen[reopened - 1] == ("verify", "add 2 ;")
    assert [event for event, _ in seen[reopened:]][:5] == [
        "reopen",
        "allocate",
        "verify",
        "backtrack",
        "commit",
    ]
    starved = run(ScriptedBackend(**BACKTRACKING), settings, budget=3)
    assert starved.outcome.reason == "budget"


def test_a_move_rejected_once_is_not_verified_again_at_its_state() -> None:
    """The second "add 2 ;" under "add 2 ;" costs nothing."""
    backend = ScriptedBackend(**BACKTRACKING)
    run(backend)
    assert backend.verified().count("add 2 ; add 2 ;") == 1


def test_lower_h_is_verified_first_and_ties_keep_proposal_order() -> None:
    """With one call a round, the lowest h goes first; equal ones in the order proposed."""
    script = {"": ["add 1 ;", "add 2 ;", "add 3 ;"]}
    settings = replace(SETTINGS, proposals=3, k_base=1.0, max_retries=0)
    backend = ScriptedBackend(moves=script, ranks={"add 1 ;": 0.5})
    run(backend, settings)
    assert backend.verified() == ["add 2 ;"]


def test_a_retry_goes_on_with_old_unverified_survivors() -> None:
    """The pool of a retry is what was left unverified and what is new."""
    script = {"": ["add 1 ;", "add 2 ;", "add 1 ;", "add 3 ;"]}
    settings = replace(SETTINGS, k_base=1.0)
    backend = ScriptedBackend(moves=script, ranks={"add 1 ;": 0.1, "add 2 ;": 0.2, "add 3 ;": 0.3})
    result = run(backend, settings)
    assert backend.verified() == ["add 1 ;", "add 2 ;"]
    assert (result.outcome.answer, result.outcome.reason) == (None, "exhausted")


def test_frequency_ranks_the_most_proposed_first_without_a_rank_request() -> None:
    """Counts order the pool; nothing is ranked by the backend."""
    script = {"": ["add 1 ;", "add 2 ;", "add 2 ;"]}
    settings = replace(SETTINGS, proposals=3, k_base=1.0, max_retries=0, scorer="frequency")
    backend = ScriptedBackend(moves=script)
    result = run(backend, settings)
    assert backend.verified() == ["add 2 ;"]
    assert result.ledger.rank_items == 0


TWO_STEPS = {
    "": ["add 1 ;", "add 2 ;"],
    "add 1 ;": ["add 2 ;", "add 2 ;"],
    "add 2 ;": ["add 1 ;", "add 1 ;"],
    "add 1 ; add 2 ;": ["say 3 ;", "say 3 ;"],
    "add 2 ; add 1 ;": ["say 3 ;", "say 3 ;"],
}


def test_a_trusted_move_costs_no_call_and_is_verified_with_the_next() -> None:
    """Risks of 0.1 and 0.4 are 0.46 together: the call is on both moves, the last needs none."""
    backend = ScriptedBackend(
        moves=TWO_STEPS,
        scores={"add 1 ;": 0.7, "add 1 ; add 2 ;": 0.9},
        ranks={
            "add 1 ;": 0.1,
            "add 2 ;": 0.4,
            "add 1 ; add 2 ;": 0.4,
            "add 1 ; add 2 ; say 3 ;": 0.44,
        },
    )
    result = run(backend, replace(SETTINGS, skip_below=0.45))
    assert result.outcome.answer == "3"
    assert backend.verified() == ["add 1 ; add 2 ;"]
    assert told(result, "trust", "move") == ["add 1 ;", "say 3 ;"]
    assert told(result, "trust", "risk") == pytest.approx([0.1, 0.44])
    assert (result.ledger.verifier_calls, result.ledger.verifier_steps) == (1, 2)
    assert told(result, "rank", "scorer") == [
        "distance",
        "reject_probability",
        "reject_probability",
        "reject_probability",
    ]  # one move alone needs no h


def test_a_trusted_move_that_is_rejected_is_gone_back_to() -> None:
    """The call on both rejects the first; the survivor left at its state is verified instead."""
    backend = ScriptedBackend(
        moves=TWO_STEPS,
        scores={"add 1 ;": 0.2, "add 1 ; add 2 ;": 0.9, "add 2 ;": 0.8},
        ranks={"add 1 ;": 0.1, "add 2 ;": 0.4, "add 1 ; add 2 ;": 0.5},
    )
    result = run(backend, replace(SETTINGS, skip_below=0.3))
    assert [move.text for move in result.outcome.derivation] == ["add 2 ;", "add 1 ;", "say 3 ;"]
    assert backend.verified() == ["add 1 ; add 2 ;", "add 2 ;"]
    assert told(result, "retract", "to") == [0]


STOPPING = replace(SETTINGS, allocation="stopping", scorer="reject_probability", skip_below=0.2)


def test_optimal_stopping_verifies_one_by_one_while_a_call_is_worth_its_price() -> None:
    """Accepted with 0.7, 0.6 and 0.1 at a price of 0.2: the first two are verified, not the third.

    The second is accepted, and nothing more is drawn for it.
    """
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 2 ;", "add 3 ;"], "add 2 ;": ["add 1 ;"] * 3}
        | {"add 2 ; add 1 ;": ["say 3 ;"] * 3},
        scores={"add 1 ;": 0.1, "add 2 ;": 0.9},
        ranks={"add 1 ;": 0.3, "add 2 ;": 0.4, "add 3 ;": 0.9},
    )
    result = run(backend, replace(STOPPING, proposals=3))
    assert [move.text for move in result.outcome.derivation] == ["add 2 ;", "add 1 ;", "say 3 ;"]
    assert backend.verified() == ["add 1 ;", "add 2 ;"]


def test_a_call_that_is_not_worth_its_price_is_not_made() -> None:
    """Accepted with 0.1 at a price of 0.2: no call, however often samples are drawn."""
    backend = ScriptedBackend(moves={"": ["add 1 ;"] * 30}, ranks={"add 1 ;": 0.9})
    result = run(backend, replace(STOPPING, skip_below=0.2))
    assert (result.outcome.answer, result.ledger.verifier_calls) == (None, 0)


def test_verified_moves_are_not_verified_again() -> None:
    """After a call that accepted both, the next risk begins at 0, and its call is on one move."""
    backend = ScriptedBackend(
        moves=TWO_STEPS,
        scores={"add 1 ;": 0.7, "add 1 ; add 2 ;": 0.9, "add 1 ; add 2 ; say 3 ;": 0.9},
        ranks={
            "add 1 ;": 0.1,
            "add 2 ;": 0.4,
            "add 1 ; add 2 ;": 0.4,
            "add 1 ; add 2 ; say 3 ;": 0.5,
        },
    )
    result = run(backend, replace(SETTINGS, skip_below=0.45))
    assert backend.verified() == ["add 1 ; add 2 ;", "add 1 ; add 2 ; say 3 ;"]
    assert (result.ledger.verifier_calls, result.ledger.verifier_steps) == (2, 3)


def test_a_round_without_survivors_does_not_end_trust() -> None:
    """Nothing was verified at the root when the retry finds a move that is hardly doubted."""
    backend = ScriptedBackend(moves={"": ["noise", "noise", "add 3 ;", "add 3 ;"]})
    result = run(backend, replace(SETTINGS, skip_below=0.3, max_moves=1))
    assert backend.verified() == []
    assert [event.event for event in result.events if event.event in ("retry", "trust")] == [
        "retry",
        "trust",
    ]


def test_what_was_verified_in_vain_is_not_trusted_afterwards() -> None:
    """Trust is for a state where nothing was verified; after a rejection all else is asked."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 1 ;", "add 2 ;", "add 2 ;"]},
        ranks={"add 1 ;": 0.5, "add 2 ;": 0.1},
    )
    run(backend, replace(SETTINGS, skip_below=0.3))
    assert backend.verified() == ["add 1 ;", "add 2 ;"]


@pytest.mark.parametrize(
    ("commit", "first"),
    [("verifier", "add 2 ;"), ("heuristic", "add 1 ;"), ("joint", "add 1 ;")],
)
def test_commit_takes_the_best_score_the_lowest_h_or_both(commit: str, first: str) -> None:
    """Both moves are accepted; the rule of ``commit`` decides between them."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 2 ;"], first: ["noise"] * 4},
        scores={"add 1 ;": 0.6, "add 2 ;": 0.7},
        ranks={"add 1 ;": -1.0, "add 2 ;": 0.2},
    )
    result = run(backend, replace(SETTINGS, commit=commit, max_moves=1))
    assert told(result, "commit", "move")[0] == first


@pytest.mark.parametrize(("weight", "first"), [(0.1, "add 2 ;"), (10.0, "add 1 ;")])
def test_a_joint_commit_weighs_the_score_against_h(weight: float, first: str) -> None:
    """log(0.95 / 0.05) is 2.5 more than log(0.6 / 0.4), and h 1.2 more: the weight decides."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 2 ;"], first: ["noise"] * 4},
        scores={"add 1 ;": 0.6, "add 2 ;": 0.95},
        ranks={"add 1 ;": -1.0, "add 2 ;": 0.2},
    )
    settings = replace(SETTINGS, commit="joint", rank_weight=weight, max_moves=1)
    assert told(run(backend, settings), "commit", "move")[0] == first


def test_tau_itself_is_accepted() -> None:
    """V = 1 when the score is at least tau."""
    backend = ScriptedBackend(moves={"": ["add 3 ;", "noise"]}, scores={"add 3 ;": 0.5})
    result = run(backend, replace(SETTINGS, max_moves=1))
    assert [step.text for step in result.outcome.derivation or ()] == ["add 3 ;"]


def test_retrieved_moves_join_the_generated_ones_once() -> None:
    """Ret(w) adds what was not generated, gated like the rest, and after it in order."""
    script = {"": ["add 1 ;", "noise"]}
    settings = replace(SETTINGS, patterns=("add 2 ;", "add 9 ;", "add 1 ;"), max_retries=0)
    backend = ScriptedBackend(moves=script)
    result = run(backend, settings)
    assert backend.verified() == ["add 1 ;", "add 2 ;"]
    assert result.ledger.generated_moves == 2


def test_out_of_calls_without_fallback_ends_the_search() -> None:
    """The last call's accepted move is committed; the next state cannot be verified."""
    result = run(ScriptedBackend(**BACKTRACKING), budget=2)
    assert (result.outcome.answer, result.outcome.reason) == (None, "budget")
    assert [step.text for step in result.outcome.derivation or ()] == ["add 2 ;"]
    assert result.ledger.verifier_calls == 2


def test_out_of_calls_with_fallback_finishes_by_rank() -> None:
    """Without calls the top-ranked survivor is committed at each state."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 3 ;"], "add 3 ;": ["add 1 ;", "say 3 ;"]},
        scores={"add 3 ;": 0.9},
        ranks={"add 1 ;": 1.0, "add 3 ; add 1 ;": 1.0},
    )
    result = run(backend, replace(SETTINGS, fallback=True), budget=1)
    assert (result.outcome.answer, result.outcome.reason) == ("3", "answered")
    assert backend.verified() == ["add 3 ;"]


def test_calls_that_end_within_a_state_leave_its_pool_to_the_fallback() -> None:
    """The rejected move is left behind; the unverified one is committed without a new sample."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 3 ;"], "add 3 ;": ["say 3 ;", "say 3 ;"]},
        ranks={"add 3 ;": 1.0},
    )
    result = run(backend, replace(SETTINGS, k_base=1.0, fallback=True), budget=1)
    assert result.outcome.answer == "3"
    assert result.ledger == Ledger(1, 1, 4, 12, 2, 4, 6)


def test_nothing_left_with_fallback_commits_the_best_rejected_move() -> None:
    """At the deepest visited state the rejected move of highest score goes on, once a state."""
    backend = ScriptedBackend(
        moves={
            "": ["add 2 ;", "noise"],
            "add 2 ;": ["add 1 ;", "add 2 ;"],
            "add 2 ; add 1 ;": ["say 3 ;", "noise"],
        },
        scores={
            "add 2 ;": 0.8,
            "add 2 ; add 1 ;": 0.4,
            "add 2 ; add 2 ;": 0.3,
            "add 2 ; add 1 ; say 3 ;": 0.9,
        },
    )
    result = run(backend, replace(SETTINGS, max_retries=0, fallback=True))
    assert result.outcome.answer == "3"
    assert told(result, "fallback", "rule") == ["rejected"]


def test_a_state_is_forced_once() -> None:
    """After its best rejected move led nowhere, its second-best is not tried."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 2 ;"], "add 1 ;": ["noise", "noise"]},
        scores={"add 1 ;": 0.4, "add 2 ;": 0.3},
    )
    result = run(backend, replace(SETTINGS, max_retries=0, fallback=True), cap=4)
    assert [step.text for step in result.outcome.derivation or ()] == ["add 1 ;"]
    assert (result.outcome.answer, result.outcome.reason) == (None, "generation")


def test_with_nothing_left_to_try_more_samples_are_drawn_from_the_first_state_on() -> None:
    """One round at each visited state in turn, until one brings an accepted move.

    A move that was committed there before is not taken again; a state where nothing ever survived
    is left out.
    """
    backend = ScriptedBackend(
        moves={
            "": ["add 1 ;", "noise", "add 1 ;", "noise"],
            "add 1 ;": ["add 1 ;", "noise", "add 2 ;", "noise"],
            "add 1 ; add 1 ;": ["noise", "noise"],
            "add 1 ; add 2 ;": ["say 3 ;", "noise"],
        },
        scores={"add 1 ;": 0.9, "add 1 ; add 2 ;": 0.9, "add 1 ; add 2 ; say 3 ;": 0.9},
    )
    settings = replace(SETTINGS, max_retries=0, fallback=True)
    result = run(backend, settings)
    assert result.outcome.answer == "3"
    resampled = [event.state.trace for event in result.events if event.event == "resample"]
    assert resampled == ["", "add 1 ;"]
    assert run(backend, replace(settings, fallback=False)).outcome.reason == "exhausted"


def test_a_trusted_move_is_not_taken_again() -> None:
    """It was never verified, and what comes after it is known."""
    backend = ScriptedBackend(
        moves={
            "": ["add 1 ;", "noise", "add 1 ;", "add 3 ;"],
            "add 1 ;": ["noise", "noise"],
            "add 3 ;": ["say 3 ;", "noise"],
        },
        scores={"add 3 ;": 0.9, "add 3 ; say 3 ;": 0.9},
        ranks={"add 1 ;": 0.0, "add 3 ;": 0.5},
    )
    settings = replace(SETTINGS, max_retries=0, fallback=True, skip_below=0.3)
    result = run(backend, settings)
    assert result.outcome.answer == "3"
    assert "add 1 ;" not in backend.verified()


def test_survivors_are_verified_when_no_samples_are_left() -> None:
    """What was left unverified at an earlier state still gets its calls."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "add 3 ;"], "add 1 ;": ["noise", "noise"]},
        scores={"add 1 ;": 0.1, "add 3 ;": 0.9},
    )
    settings = replace(SETTINGS, k_base=1.0, k_max=1, max_retries=0, fallback=True)
    result = run(backend, settings, cap=4)
    assert backend.verified() == ["add 1 ;", "add 3 ;"]
    assert [step.text for step in result.outcome.derivation or ()] == ["add 3 ;"]
    assert result.outcome.reason == "generation"


def test_calls_spent_while_sampling_again_do_not_end_the_search() -> None:
    """It goes on unverified, as it would anywhere else."""
    backend = ScriptedBackend(
        moves={
            "": ["add 1 ;", "noise", "add 2 ;", "noise"],
            "add 1 ;": ["noise", "noise", "noise", "noise"],
            "add 2 ;": ["add 1 ;", "noise"],
            "add 2 ; add 1 ;": ["say 3 ;", "noise"],
        },
        scores={"add 1 ;": 0.1, "add 2 ;": 0.1},
    )
    settings = replace(SETTINGS, max_retries=0, fallback=True)
    result = run(backend, settings, budget=2)
    assert result.ledger.verifier_calls == 2
    assert result.outcome.answer == "3"


def test_of_equally_deep_states_the_latest_is_forced() -> None:
    """Two abandoned states at depth one: the second visited goes on."""
    backend = ScriptedBackend(
        moves={
            "": ["add 1 ;", "add 2 ;"],
            "add 1 ;": ["add 1 ;", "noise"],
            "add 2 ;": ["add 1 ;", "noise"],
            "add 2 ; add 1 ;": ["say 3 ;", "noise"],
        },
        scores={"add 1 ;": 0.9, "add 2 ;": 0.8, "add 2 ; add 1 ; say 3 ;": 0.9},
    )
    result = run(backend, replace(SETTINGS, max_retries=0, fallback=True))
    assert result.outcome.answer == "3"


def test_the_generation_cap_is_kept_and_named() -> None:
    """Proposals stop at the cap, and the reason says so."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;", "noise"], "add 1 ;": ["add 1 ;", "noise"]},
        scores={"add 1 ;": 0.9},
    )
    result = run(backend, cap=3)
    assert result.ledger.generated_moves == 3
    assert (result.outcome.answer, result.outcome.reason) == (None, "generation")


def test_without_gates_every_well_formed_move_is_verified() -> None:
    """Verify-all: no gates, no ranking, every distinct parsed move is a call."""
    script = {"": ["add 9 ;", "say 8 ;", "add 9 ;", "noise"]}
    settings = replace(
        SETTINGS, proposals=4, gates=(), allocation="all", scorer="none", max_retries=0
    )
    backend = ScriptedBackend(moves=script)
    run(backend, settings)
    assert backend.verified() == ["add 9 ;", "say 8 ;"]


def test_without_gates_a_wrong_answer_is_still_refused_where_answers_check() -> None:
    """The free check of a finished answer is every method's."""
    script = {"": ["add 2 ;", "say 8 ;"]}
    settings = replace(SETTINGS, gates=(), allocation="all", scorer="none", max_retries=0)
    backend = ScriptedBackend(moves=script)
    run(backend, settings, domain=ToyDomain(checks=True))
    assert backend.verified() == ["add 2 ;"]


@pytest.mark.parametrize(("budget", "score"), [(4, 0.9), (4, 0.1), (1, 0.9)])
def test_an_answer_that_checks_costs_no_call(budget: int, score: float) -> None:
    """It is committed whatever its score would be, and with no call left, as by best-of-N."""
    script = {"": ["add 3 ;", "add 1 ;"], "add 3 ;": ["add 1 ;", "say 3 ;"]}
    scores = {"add 3 ;": 0.9, "add 1 ;": 0.1, "add 3 ; say 3 ;": score}
    settings = replace(SETTINGS, scorer="none", proposals=2, k_max=1, max_retries=0, fallback=False)
    backend = ScriptedBackend(moves=script, scores=scores)
    result = run(backend, settings, budget=budget, domain=ToyDomain(checks=True))
    assert (result.outcome.answer, result.ledger.verifier_calls) == ("3", 1)
    assert backend.verified() == ["add 3 ;"]
    (event,) = (one for one in result.events if one.event == "check")
    assert outcome_text(event) == "The answer checks without a call: say 3 ;"


def test_exploration_verifies_an_answer_that_checks() -> None:
    """It is a candidate to learn from."""
    script = {"": ["add 3 ;"], "add 3 ;": ["say 3 ;"]}
    backend = ScriptedBackend(moves=script, scores={"add 3 ;": 0.9, "add 3 ; say 3 ;": 0.8})
    search = explore(
        ToyDomain(checks=True), PROBLEM, proposals=1, tau=0.5, max_retries=0, max_moves=4
    )
    found = alone(search, backend).outcome
    assert [one.scores for one in found.lists] == [(0.9,), (0.8,)] and found.answered


def test_a_state_at_max_moves_has_no_survivors() -> None:
    """Nothing is sampled there."""
    backend = ScriptedBackend(moves={"": ["add 1 ;", "noise"]}, scores={"add 1 ;": 0.9})
    result = run(backend, replace(SETTINGS, max_moves=1))
    assert result.ledger.generated_moves == 2
    assert result.outcome.reason == "exhausted"


@pytest.mark.parametrize(("budget", "cap"), [(0, 1), (1, 0)])
def test_a_budget_below_one_is_refused(budget: int, cap: int) -> None:
    """Neither calls nor samples may start at 0."""
    search = gated_competition(
        DOMAIN, PROBLEM, rules=SETTINGS.rules(DOMAIN), budget=budget, generation_cap=cap
    )
    with pytest.raises(BudgetError, match=r"given 0 .*expected at least 1"):
        next(search)


@pytest.mark.parametrize(
    "changes", [{"allocation": "some"}, {"commit": "none"}, {"proposals": 0}], ids=str
)
def test_settings_refuse_what_they_do_not_know(changes: dict[str, object]) -> None:
    """The field and what was given stand in the message."""
    (name, value) = next(iter(changes.items()))
    with pytest.raises(ParamsError, match=f"{name}: given {value!r}"):
        replace(SETTINGS, **changes)


def test_exploration_labels_every_survivor_of_every_visited_state() -> None:
    """The lists of the backtracking search: all survivors, labels by tau, the last commit."""
    backend = ScriptedBackend(**BACKTRACKING)
    search = explore(DOMAIN, PROBLEM, proposals=2, tau=0.5, max_retries=1, max_moves=5)
    explored = alone(search, backend).outcome
    assert explored.answered
    assert [
        (one.state.trace, [m.text for m in one.moves], one.scores, one.labels, one.committed)
        for one in explored.lists
    ] == [
        ("", ["add 1 ;", "add 2 ;"], (0.6, 0.7), (True, True), 0),
        ("add 2 ;", ["add 2 ;", "say 2 ;"], (0.1, 0.2), (False, False), None),
        ("add 1 ;", ["add 2 ;"], (0.9,), (True,), 0),
        ("add 1 ; add 2 ;", ["say 3 ;"], (0.95,), (True,), 0),
    ]


def test_states_behind_a_rejected_move_are_not_tried_again() -> None:
    """The call rejects the first move; of what lies behind it nothing is forced, drawn or asked."""
    backend = ScriptedBackend(
        moves={"": ["add 1 ;"] * 8, "add 1 ;": ["add 2 ;"] * 8},
        scores={"add 1 ;": 0.2, "add 1 ; add 2 ;": 0.4},
        ranks={"add 1 ;": 0.1, "add 1 ; add 2 ;": 0.5},
    )
    settings = replace(SETTINGS, skip_below=0.3, fallback=True, max_retries=0)
    result = run(backend, settings, budget=4, cap=8)
    assert backend.verified() == ["add 1 ; add 2 ;"]
    assert result.outcome.answer is None


def test_at_an_unfamiliar_state_optimal_stopping_makes_a_call() -> None:
    """There every move counts as rejected for sure, which says nothing."""
    backend = ScriptedBackend(
        moves={"": ["add 3 ;"] * 3, "add 3 ;": ["say 3 ;"] * 3},
        scores={"add 3 ;": 0.9},
        ranks={"add 3 ;": 1.0},
    )
    result = run(backend, replace(STOPPING, proposals=3))
    assert result.outcome.answer == "3"
    assert backend.verified() == ["add 3 ;"]


DOUBTFUL = {
    "moves": {"": ["add 3 ;"] * 30, "add 3 ;": ["say 3 ;"] * 30},
    "ranks": {"add 3 ;": 0.7, "add 3 ; say 3 ;": 0.1},
}
UNWORTHY = replace(STOPPING, skip_below=0.6, fallback=True, max_retries=0)


def test_where_no_call_is_worth_its_price_the_fallback_commits_without_one() -> None:
    """Accepted with 0.3 at a price of 0.6: the best survivor is committed, no sample is wasted.

    Its risk of 0.7 counts at the next state, so the answer is not committed unverified, too: one
    call accepts both.
    """
    backend = ScriptedBackend(**DOUBTFUL, scores={"add 3 ;": 0.9, "add 3 ; say 3 ;": 0.9})
    result = run(backend, UNWORTHY)
    assert (result.outcome.answer, result.ledger.verifier_calls) == ("3", 1)
    assert backend.verified() == ["add 3 ; say 3 ;"]
    assert result.ledger.generated_moves <= 6


def test_a_doubtful_move_that_the_fallback_committed_is_found_by_the_next_call() -> None:
    """The call rejects it, and nothing behind it is tried again."""
    backend = ScriptedBackend(**DOUBTFUL, scores={"add 3 ;": 0.1, "add 3 ; say 3 ;": 0.9})
    result = run(backend, UNWORTHY, budget=1)
    assert backend.verified() == ["add 3 ; say 3 ;"]
    assert result.outcome.answer is None
