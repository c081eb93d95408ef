"""What a search's models read, and the operations of its ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from strategies import BACKEND, Runs, mixed_runs, searches
from toy import ScriptedBackend, ToyDomain, alone, move, toy_problem, toy_search

from selverify.domains.base import split_moves
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.compute import Sizes
from selverify.search.driver import run_searches
from selverify.search.ledger import Ledger
from selverify.search.protocol import Asking, complete, propose, rank, verify
from selverify.search.requests import CompleteItem, ProposeItem, RankItem, VerifyItem
from selverify.search.traces import Event

DOMAIN, PROBLEM = ToyDomain(), toy_problem()
START = DOMAIN.initial_state(PROBLEM, budget=9)
ONE, TWO = move("add 1 ;"), move("add 2 ;")
AFTER_ONE = DOMAIN.apply(START, ONE)
STATED = len(PROBLEM.text.split())
SAID = 3
"""Tokens of every move."""


def read_and_verified(search: Asking[object], backend: ScriptedBackend) -> tuple[int, int]:
    ledger = alone(search, backend).ledger
    return ledger.read_tokens, ledger.verified_tokens


def recount(events: Sequence[Event]) -> tuple[int, int]:
    """Tokens read and verified, by looking through lists of all that was known before."""
    heard: list[list[str]] = []
    judged: list[list[str]] = []
    goal_heard = False

    def read(known: list[list[str]], texts: list[str]) -> int:
        new = [texts[: k + 1] for k in range(len(texts)) if texts[: k + 1] not in known]
        known += new
        return sum(len(prefix[-1].split()) for prefix in new)

    tokens = verified = 0
    for event in events:
        data, problem = dict(event.data), event.state.problem
        line = [problem.text, *event.state.said]
        if event.event == "verify":
            verified += read(judged, [*line, *data["steps"]])
        elif event.event in ("propose", "complete") and "texts" in data:
            tokens += read(heard, line)
            for text in data["texts"]:
                moves = split_moves(text, ";") if event.event == "complete" else [text]
                read(heard, [*line, *moves])  # written, not read
        elif event.event == "rank":
            tokens += 0 if goal_heard else len(problem.goal.split())
            goal_heard = True
            tokens += read(heard, line) + sum(read(heard, [*line, one]) for one in data["moves"])
    return tokens, verified


@settings(max_examples=60, deadline=None)
@given(mixed_runs)
def test_every_search_reads_what_a_slow_recount_of_its_events_says(runs: Runs) -> None:
    """Gated searches with retrieval, beams and whole solutions; events sum to the ledger."""
    results = run_searches(searches(runs), BACKEND, end_of_move=";", traced=True)
    for result in results.values():
        ledger = result.ledger
        assert (ledger.read_tokens, ledger.verified_tokens) == recount(result.events)
        assert sum((event.ledger for event in result.events), start=Ledger()) == ledger


def test_a_beam_by_hand() -> None:
    """Two states of two moves: the generator reads the problem, the verifier each distinct step.

    At the start "add 1 ;" and "add 2 ;" are verified, then "add 2 ;" and "say 3 ;" at the one and
    "say 2 ;" at the other, sampled twice: 3 + 5 * 3 tokens.
    """
    backend = ScriptedBackend(
        moves={
            "": ["add 1 ;", "add 2 ;", "add 1 ;", "add 1 ;"],
            "add 1 ;": ["add 2 ;", "say 3 ;"],
            "add 2 ;": ["say 2 ;", "say 2 ;"],
        }
    )
    search = toy_search(beam_search, width=2, max_moves=2)
    result = alone(search, backend)
    assert result.ledger == Ledger(5, 5, 8, 24, 0, STATED, STATED + 5 * SAID)
    # 100 parameters for 24 tokens written and 3 read, 10 for 18 verified, two operations each.
    assert Sizes(100, 10, 1).operations(result.ledger) == 2 * (100 * 27 + 10 * 18)


def test_the_same_pair_is_verified_twice_and_read_once() -> None:
    """Two calls, in one request or in two; the same step after another prefix is read again."""

    def search() -> Asking[None]:
        yield from verify(VerifyItem(START, (ONE,)), VerifyItem(START, (ONE,)))
        yield from verify(VerifyItem(START, (ONE,)))
        yield from verify(VerifyItem(AFTER_ONE, (ONE,)))

    result = alone(search(), ScriptedBackend(), traced=True)
    assert result.ledger.verifier_calls == 4
    assert [one.ledger.verified_tokens for one in result.events] == [STATED + SAID, 0, 0, SAID]


def test_a_step_committed_without_a_call_is_read_when_the_next_is_judged() -> None:
    """The verifier judges the second move first, and so reads the first one too."""
    search = verify(VerifyItem(AFTER_ONE, (TWO,)))
    assert read_and_verified(search, ScriptedBackend()) == (0, STATED + 2 * SAID)


def test_ranking_reads_the_question_once_and_only_moves_that_were_not_sampled() -> None:
    """The first move was sampled; the second, a retrieved one, is read once for all ranks."""

    def search() -> Asking[None]:
        yield from propose(ProposeItem(START, 0, 1))
        for scorer in ("hybrid", "reject_probability"):
            yield from rank(RankItem(START, (ONE, TWO), scorer))

    result = alone(search(), ScriptedBackend(moves={"": [ONE.text]}), traced=True)
    question = len(PROBLEM.goal.split())
    assert [one.ledger.read_tokens for one in result.events] == [STATED, question + SAID, 0]
    assert result.ledger.rank_items == 4


@pytest.mark.parametrize(("proposed", "read"), [(ONE.text, STATED), ("add 2 ;", STATED + SAID)])
def test_going_on_from_a_move_reads_it_unless_it_was_sampled(proposed: str, read: int) -> None:
    """A generator goes on from its own words without reading them."""

    def search() -> Asking[None]:
        yield from propose(ProposeItem(START, 0, 1))
        yield from propose(ProposeItem(AFTER_ONE, 0, 1))

    backend = ScriptedBackend(moves={"": [proposed], ONE.text: ["say 1 ;"]})
    assert read_and_verified(search(), backend) == (read, 0)


@pytest.mark.parametrize(
    ("solution", "read"), [("add 1 ; say 1 ;", STATED), ("add 1", STATED + SAID)]
)
def test_the_moves_of_a_sampled_solution_were_written(solution: str, read: int) -> None:
    """As far as the solution falls into moves: an open one is no move yet."""

    def search() -> Asking[None]:
        yield from complete(CompleteItem(START, 0, 1))
        yield from propose(ProposeItem(AFTER_ONE, 0, 1))

    backend = ScriptedBackend(moves={ONE.text: ["say 1 ;"]}, solutions=[solution])
    assert read_and_verified(search(), backend) == (read, 0)


@pytest.mark.parametrize("n", [1, 4])
def test_best_of_n_identical_solutions_is_read_once(n: int) -> None:
    """N samples of one solution cost the verifier what one costs."""
    backend = ScriptedBackend(solutions=["add 1 ; add 2 ; say 3 ;"] * n)
    search = toy_search(best_of_n, n=n, gates=True)
    assert read_and_verified(search, backend) == (STATED, STATED + 3 * SAID)


@settings(max_examples=20, deadline=None)
@given(mixed_runs)
def test_a_search_that_ran_before_or_beside_another_costs_the_same(runs: Runs) -> None:
    """The same search twice in lock-step, and once more alone: nothing is shared."""
    twice = {(copy, key): one for copy in (0, 1) for key, one in searches(runs).items()}
    together = run_searches(twice, BACKEND, end_of_move=";")
    for key, search in searches(runs).items():
        own = run_searches({key: search}, BACKEND, end_of_move=";")[key]
        assert together[0, key].ledger == together[1, key].ledger == own.ledger


def test_operations_are_two_a_parameter_and_token() -> None:
    """Tokens written and read by the generator, read by the verifier, moves by the ranker."""
    ledger = Ledger(generated_tokens=3, read_tokens=4, verified_tokens=5, rank_items=6)
    assert Sizes(1000, 100, 10).operations(ledger) == 2 * (1000 * 7 + 100 * 5 + 10 * 6)


@pytest.mark.parametrize("sizes", [Sizes(None, 1, 1), Sizes(1, None, 1), Sizes(1, 1, None)])
def test_operations_of_an_unknown_size_are_no_number(sizes: Sizes) -> None:
    """Also where the part was not used: a column is a number for all methods or for none."""
    assert math.isnan(sizes.operations(Ledger()))
