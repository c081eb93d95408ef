"""The driver: merging, counting, budgets, broken protocols."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from toy import Fixed, ScriptedBackend, ToyDomain, alone, move, toy_problem

from selverify.errors import BudgetError, ProtocolError
from selverify.search.driver import Result, Search, run_searches
from selverify.search.ledger import Ledger
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Note,
    Propose,
    ProposeItem,
    Rank,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.types import State, Verdict

START = ToyDomain().initial_state(toy_problem(), budget=9)
STEP = move("add 1 ;")


def ask(*requests: Request) -> Generator[Request, Reply, list[Reply]]:
    replies = []
    for request in requests:
        replies.append((yield request))
    return replies


def verify(calls: int) -> Verify:
    return Verify((VerifyItem(START, (STEP, STEP)),) * calls)


def test_every_kind_is_counted_by_its_own_rule() -> None:
    """Calls, step scores, moves alone and inside solutions, tokens, ranked moves."""
    backend = ScriptedBackend(moves={"": ["add 1 ;", "x"]}, solutions=["add 1 ; say 1 ; add"])
    search = ask(
        Note("hello", START),
        Propose((ProposeItem(START, 0, 2),)),
        Complete((CompleteItem(START, 0, 1),)),
        Rank((RankItem(START, (STEP, STEP, STEP), "any"),)),
        verify(2),
    )
    result = alone(search, backend)
    assert result.ledger == Ledger(
        verifier_calls=2,
        verifier_steps=4,
        generated_moves=4,
        generated_tokens=11,
        rank_items=3,
        read_tokens=4,
        verified_tokens=9,
    )
    assert result.outcome[0] is None
    assert result.events == ()


def test_searches_in_step_share_their_requests_and_get_their_own_replies() -> None:
    """Two searches of a propose and a verify make two backend calls in all."""
    backend = ScriptedBackend(moves={"": ["add 1 ;", "add 2 ;", "add 3 ;"]})
    searches = {
        key: Search(ask(Propose((ProposeItem(START, key, 1),)), verify(key + 1)), 9)
        for key in (2, 0)
    }
    results = run_searches(searches, backend, end_of_move=";")
    assert [request.kind for request in backend.asked] == ["propose", "verify"]
    assert list(results) == [2, 0]
    assert results[2].outcome[0][0][0].text == "add 3 ;"
    assert results[0].outcome[0][0][0].text == "add 1 ;"
    assert [results[key].ledger.verifier_calls for key in (2, 0)] == [3, 1]


def test_an_answered_search_joins_the_next_kind_of_the_same_round() -> None:
    """A search that starts with a rank catches up with one that proposes first."""
    backend = ScriptedBackend(moves={"": ["add 1 ;"]})
    ranking = Rank((RankItem(START, (STEP,), "any"),))
    searches = {
        "early": Search(ask(ranking), None),
        "late": Search(ask(Propose((ProposeItem(START, 0, 1),)), ranking), None),
    }
    run_searches(searches, backend, end_of_move=";")
    assert [len(request.items) for request in backend.asked] == [1, 2]


def test_an_empty_request_is_answered_without_the_backend() -> None:
    """Nothing to verify is no call."""
    backend = ScriptedBackend()
    result = alone(ask(Verify(())), backend, budget=1)
    assert result.outcome == [()]
    assert backend.asked == []


def test_no_searches_is_no_results() -> None:
    """An empty mapping runs to its end at once."""
    assert run_searches({}, ScriptedBackend(), end_of_move=";") == {}


def test_what_follows_a_search_joins_those_under_way() -> None:
    """It is asked with them, has a ledger and a budget of its own, and may be followed, too."""
    backend = ScriptedBackend()
    ended: list[str] = []

    def then(key: str, result: Result[list[Reply]]) -> dict[str, Search[list[Reply]]]:
        ended.append(key)
        assert result.ledger.verifier_calls == {"a": 1, "b": 3, "c": 2, "d": 0}[key]
        after = {"a": {"c": Search(ask(verify(2)), 2)}, "c": {"d": Search(ask(), None)}}
        return after.get(key, {})

    searches = {"b": Search(ask(verify(1), verify(2)), None), "a": Search(ask(verify(1)), 1)}
    results = run_searches(searches, backend, end_of_move=";", then=then)
    assert ended == ["a", "b", "c", "d"] and list(results) == ["b", "a", "c", "d"]
    assert [len(request.items) for request in backend.asked] == [2, 4]
    with pytest.raises(ProtocolError, match="search 'a': begun twice"):
        run_searches(
            {"a": Search(ask(), None)},
            backend,
            end_of_move=";",
            then=lambda _key, _result: {"a": Search(ask(), None)},
        )


def test_a_search_that_asks_for_more_calls_than_it_has_left_is_stopped() -> None:
    """The sentence names the search, what it asked for, what was left, and its budget."""
    backend = ScriptedBackend()
    with pytest.raises(BudgetError) as caught:
        run_searches({"p1": Search(ask(verify(2), verify(2)), 3)}, backend, end_of_move=";")
    assert str(caught.value) == (
        "search 'p1': asks for 2 verifier calls, "
        "expected at most 1 (its budget of 3 less what it spent)"
    )
    assert len(backend.asked) == 1


def test_a_budget_below_one_is_refused_before_anything_runs() -> None:
    """Zero is no budget; None is the way to say unlimited."""
    backend = ScriptedBackend()
    searches = {"a": Search(ask(verify(1)), 1), "b": Search(ask(), 0)}
    with pytest.raises(BudgetError, match="search 'b': budget is 0, expected at least 1"):
        run_searches(searches, backend, end_of_move=";")
    assert backend.asked == []


@pytest.mark.parametrize(
    ("request_", "reply", "message"),
    [
        (verify(2), (Verdict(0.5, (0.5, 0.5)),), "verify: reply of length 1, expected 2"),
        (verify(1), None, "verify: reply of length NoneType, expected 1"),
        (verify(1), (Verdict(0.5, (0.5,)),), "verify: an item's reply has 1 entries, expected 2"),
        (
            Rank((RankItem(START, (STEP,), "any"),)),
            ((),),
            "rank: an item's reply has 0 entries, expected 1",
        ),
        (
            Propose((ProposeItem(START, 0, 1),)),
            ((),),
            "propose: an item's reply has 0 entries, expected 1",
        ),
    ],
)
def test_a_reply_of_wrong_length_is_a_protocol_error(
    request_: Request, reply: object, message: str
) -> None:
    """Both the number of items and the entries of each are checked."""
    with pytest.raises(ProtocolError) as caught:
        alone(ask(request_), Fixed(reply=reply))
    assert str(caught.value) == message


def test_a_search_that_yields_no_request_is_a_protocol_error() -> None:
    """The message names the search and what it yielded."""
    with pytest.raises(ProtocolError, match="search 0: yielded 'hello', expected a request"):
        alone(ask("hello"), ScriptedBackend())  # type: ignore[arg-type]


def test_events_are_one_an_item_and_notes_cost_nothing() -> None:
    """A traced run keeps each item with its share of the cost, and each note as it stands."""
    backend = ScriptedBackend(scores={"add 1 ; add 1 ;": 0.25})
    search = ask(Note("hello", START, (("k", 2),)), verify(2))
    events = alone(search, backend, traced=True).events
    assert [(e.index, e.event, e.ledger, e.data) for e in events] == [
        (0, "hello", Ledger(), (("k", 2),)),
        *(
            (i, "verify", ledger, (("steps", ["add 1 ;", "add 1 ;"]), ("score", 0.25)))
            for i, ledger in ((1, Ledger(1, 2, verified_tokens=9)), (2, Ledger(1, 2)))
        ),
    ]
    assert all(isinstance(event.state, State) for event in events)
