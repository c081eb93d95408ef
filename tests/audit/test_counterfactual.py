"""Recorded lists asked again: any order, any allocation, by hand and against every tie-break."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_lists import recorded_list

from selverify.audit.counterfactual import (
    Allocator,
    Outcomes,
    choose_allocation,
    differences,
    first_k,
    found_curves,
    one_by_one,
    rank_states,
    split_problems,
    summarise,
    verify_all,
)
from selverify.audit.judged_lists import JudgedList, by_label, by_score, judge, merge_repeats
from selverify.audit.log import RecordedCandidate
from selverify.audit.orders import UNLEARNED, oracle_order, orders_for, rankers_in_order
from selverify.errors import ParamsError, SchemaError
from selverify.experiment.statistics import Bootstrap
from selverify.search.allocation import calls_at

BOOTSTRAP = Bootstrap(resamples=200, seed=0)


def state(labels: Sequence[bool | None], *, problem: str = "p") -> JudgedList:
    """A state whose candidates are 0, 1, ... with these labels, of which one at least is known."""
    moves = [RecordedCandidate(text=str(place), label=label) for place, label in enumerate(labels)]
    (judged,), _ = judge([recorded_list(moves, problem=problem)], by_label, complete=False)
    return judged


def outcome(
    labels: Sequence[bool], scores: Sequence[float], allocator: Allocator, reference: float = 1.0
) -> tuple[float, float]:
    """Calls and finds at one state."""
    found = rank_states([state(labels)], [scores], references=[reference]).outcomes(allocator)
    return float(found.calls[0]), float(found.found[0])


LATE, NONE, TIED = [False, False, True, False, False], [False, False], [True, False, False, False]


@pytest.mark.parametrize(
    ("labels", "scores", "allocator", "calls", "found"),
    [
        (LATE, range(5), one_by_one(), 3, 1),
        (NONE, range(2), one_by_one(), 2, np.nan),
        (LATE, range(5), first_k(2), 2, 0),
        (LATE, range(5), first_k(2, retries=1), 4, 1),
        (LATE, range(5), first_k(3, retries=1), 3, 1),
        (LATE, range(5), first_k(9), 5, 1),
        (TIED, [0] * 4, first_k(2), 2, 0.5),
        (TIED, [0] * 4, first_k(2, retries=1), 3, 1),
        (TIED, [0] * 4, one_by_one(), 2.5, 1),
    ],
)
def test_calls_and_finds_by_hand(
    labels: Sequence[bool],
    scores: Sequence[float],
    allocator: Allocator,
    calls: float,
    found: float,
) -> None:
    """The accepted move is third, or there is none, or it is one of four alike."""
    expected = pytest.approx((calls, found), nan_ok=True)
    assert outcome(labels, list(scores), allocator) == expected


def test_adaptive_batches_look_at_what_is_left() -> None:
    """Spread scores get three calls, the close rest one at a time (Eq. kw on the pool)."""
    rules = Allocator("adaptive", k_base=1.0, beta=2.0, k_max=3, retries=1)
    scores = [0.0, 4.0, 8.0, 8.1, 8.2]
    labels = [False, False, False, False, True]
    assert outcome(labels, scores, rules, reference=1.0) == (4, 0)
    assert outcome(labels, scores, rules, reference=100.0) == (2, 0)


def test_sigma_bar_is_the_mean_over_the_states_where_none_is_given() -> None:
    """Standard deviations of 0.5 and 1.5: a mean of 1.

    States of one move leave it alone, however many there are; with nothing else it is 0, which k(w)
    takes for unknown.
    """
    found = rank_states([state([True, False]), state([False, True])], [[0, 1], [0, 3]])
    assert found.references == (1.0, 1.0)
    single = state([True])
    found = rank_states([state([True, False]), *[single] * 5], [[0, 1], *[[7.0]] * 5])
    assert set(found.references) == {0.5}
    assert rank_states([single], [[7.0]]).references == (0.0,)


def test_long_lists_are_counted_in_linear_time() -> None:
    """Two hundred thousand moves, alike or not: (n + 1)/2 calls to the one that is right."""
    size = 200_000
    accepted = np.arange(size) == size - 1
    one = JudgedList(state([True]).recorded, accepted, np.ones(size, dtype=np.bool_))
    ranking = rank_states([one, one], [np.zeros(size), np.arange(size)])
    calls, found, _ = ranking.outcomes(one_by_one())
    assert calls == pytest.approx([(size + 1) / 2, size])
    assert found == pytest.approx([1, 1])


def asked(
    order: Sequence[int], labels: Sequence[bool], scores: Sequence[float], allocator: Allocator
) -> tuple[int, bool]:
    """The slow obvious way: batch after batch in one given order."""
    left, calls, batches = list(order), 0, 0
    while left and (allocator.retries is None or batches <= allocator.retries):
        k = calls_at(
            [scores[place] for place in left],
            allocation=allocator.allocation,
            reference=1.0,
            k_base=allocator.k_base,
            beta=allocator.beta,
            k_min=1,
            k_max=allocator.k_max,
        )
        batch, left = left[:k], left[k:]
        calls, batches = calls + len(batch), batches + 1
        if any(labels[place] for place in batch):
            return calls, True
    return calls, False


MOVES = st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=6)
RETRIES = st.one_of(st.none(), st.integers(0, 3))
ALLOCATORS = st.one_of(
    st.builds(first_k, st.integers(1, 5), retries=RETRIES),
    st.just(verify_all()),
    st.builds(
        Allocator,
        st.sampled_from(["adaptive", "margin"]),
        st.floats(0.5, 4.0),
        st.floats(-2.0, 2.0),
        st.integers(1, 6),
        RETRIES,
    ),
)


@settings(max_examples=150, deadline=None)
@given(MOVES, ALLOCATORS)
def test_expectations_equal_the_mean_over_every_order_of_tied_moves(
    moves: list[tuple[bool, int]], allocator: Allocator
) -> None:
    """Calls and finds are exact for every allocation, with and without retries."""
    labels, scores = [label for label, _ in moves], [score for _, score in moves]
    orders = [
        order
        for order in permutations(range(len(moves)))
        if [scores[place] for place in order] == sorted(scores)
    ]
    calls, found = np.mean([asked(order, labels, scores, allocator) for order in orders], axis=0)
    expected = (calls, found if any(labels) else np.nan)
    assert outcome(labels, scores, allocator) == pytest.approx(expected, nan_ok=True)


@settings(max_examples=100, deadline=None)
@given(MOVES, RETRIES)
def test_laws(moves: list[tuple[bool, int]], retries: int | None) -> None:
    """Verify-all and one by one find everything; a larger k finds no less; no order beats the
    oracle's."""
    labels, scores = [label for label, _ in moves], [score for _, score in moves]
    best = [0.0 if label else 1.0 for label in labels]
    shares = [outcome(labels, scores, first_k(k))[1] for k in range(1, len(moves) + 1)]
    if any(labels):
        assert outcome(labels, scores, verify_all()) == (len(moves), 1)
        assert outcome(labels, scores, one_by_one())[1] == shares[-1] == 1
        assert shares == sorted(shares)
    for allocator in (one_by_one(), first_k(2, retries=retries)):
        calls, found = outcome(labels, scores, allocator)
        least, most = outcome(labels, best, allocator)
        assert least <= calls <= len(moves)
        assert not any(labels) or found <= most


def two_problems() -> tuple[list[JudgedList], dict[tuple[str, str], Outcomes]]:
    """Four candidates with the third right, two with none right, two with the first right."""
    states = [
        state([False, False, True, False], problem="p"),
        state([False, False], problem="p"),
        state([True, False], problem="q"),
    ]
    scores = {
        "recorded": [np.arange(len(one.accepted)) for one in states],
        "random": [np.zeros(len(one.accepted)) for one in states],
    }
    rules = {"verify-all": verify_all(), "one by one": one_by_one(), "first 1": first_k(1)}
    return states, {
        (name, rule): rank_states(states, own).outcomes(allocator)
        for name, own in scores.items()
        for rule, allocator in rules.items()
    }


def test_the_table_by_hand() -> None:
    """Calls are over all states, finds over those that hold an accepted move."""
    states, outcomes = two_problems()
    table = summarise(states, outcomes, bootstrap=BOOTSTRAP).set_index(["ranker", "allocator"])
    assert (table["states"] == 3).all()
    assert (table["reachable"] == 2).all()
    every, single = table.loc[("recorded", "verify-all")], table.loc[("recorded", "one by one")]
    assert (every["calls"], every["calls_ratio"], every["found"]) == pytest.approx((8 / 3, 1, 1))
    assert (single["calls"], single["calls_ratio"]) == pytest.approx((6 / 3, 6 / 8))
    assert (single["calls_where_reachable"], single["to_first"]) == pytest.approx((2, 2))
    first = table.loc[("random", "first 1")]
    assert first["calls"] == 1
    assert first["found"] == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert first["to_first"] == pytest.approx((2.5 + 1.5) / 2)
    # The two problems make 6 of 8 and 1 of 2 calls in rank order, so that is how far it reaches.
    assert (single["calls_ratio_low"], single["calls_ratio_high"]) == pytest.approx((1 / 2, 5 / 6))


def test_differences_are_of_the_same_states() -> None:
    """In recorded order three and one calls, at random two and a half and one and a half."""
    states, outcomes = two_problems()
    table = differences(states, outcomes, against=("random", "recorded"), bootstrap=BOOTSTRAP)
    rows = table.set_index(["ranker", "allocator", "against"])
    assert rows.loc[("recorded", "one by one", "random"), "calls"] == pytest.approx(0.0)
    gap = rows.loc[("recorded", "first 1", "random")]
    assert (gap["calls"], gap["found"]) == pytest.approx((0, (-1 / 4 + 1 / 2) / 2))
    assert (gap["found_low"], gap["found_high"]) == pytest.approx((-1 / 4, 1 / 2))
    assert not any(ranker == other for ranker, _, other in rows.index)


def test_curves_hold_every_setting() -> None:
    """Found and calls rise with k."""
    states, _ = two_problems()
    ranking = rank_states(states, [np.arange(len(one.accepted)) for one in states])
    outcomes = {("recorded", "first k", float(k)): ranking.outcomes(first_k(k)) for k in (1, 2, 3)}
    table = found_curves(states, outcomes, bootstrap=BOOTSTRAP)
    assert table["setting"].tolist() == [1.0, 2.0, 3.0]
    assert table["found"].tolist() == [0.5, 0.5, 1.0]
    assert table["calls_ratio"].tolist() == pytest.approx([3 / 8, 6 / 8, 7 / 8])


def test_folds_keep_problems_together_and_each_holds_some_to_find() -> None:
    """Ten problems of which two have an accepted move: one in each fold, in every repetition."""
    states = [state([place // 2 < 2, False], problem=f"p{place // 2}") for place in range(20)]
    for split in split_problems(states, folds=2, repetitions=5, seed=0):
        assert len({(one.problem_id, fold) for one, fold in zip(states, split, strict=True)}) == 10
        assert set(split[:4]) == {0, 1}
        assert sorted(split).count(0) == 10
    with pytest.raises(SchemaError, match="given 2, expected at least 3"):
        split_problems(states, folds=3, repetitions=1, seed=0)


def fixed(calls: Sequence[float], found: Sequence[float]) -> Outcomes:
    columns = (np.array(one, dtype=np.float64) for one in (calls, found, calls))
    return Outcomes(*columns)


def test_a_setting_is_chosen_on_the_other_fold() -> None:
    """On the first fold one call is enough, on the second it takes three: each gets the other's."""
    options = {
        "one": fixed([1, 1, 1, 1], [1, np.nan, 0, 0]),
        "three": fixed([3, 3, 3, 3], [1, np.nan, 1, 1]),
    }
    choice = choose_allocation(options, [(0, 0, 1, 1)], wanted=1.0)
    assert choice.outcomes.calls.tolist() == [3, 3, 1, 1]
    assert choice.outcomes.found[2:].tolist() == [0, 0]
    assert np.isnan(choice.outcomes.found[1])
    assert choice.chosen == {"one": 1, "three": 1}
    again = choose_allocation(options, [(0, 0, 1, 1), (0, 1, 0, 1)], wanted=1.0)
    assert again.outcomes.calls.tolist() == [3, 3, 2, 2]


def test_where_no_setting_finds_enough_the_one_that_finds_most_is_chosen() -> None:
    """Half of the states are less than all of them, and more than none."""
    options = {"none": fixed([1, 1], [0, 0]), "some": fixed([2, 2], [0.5, 0.5])}
    choice = choose_allocation(options, [(0, 1)], wanted=1.0)
    assert choice.chosen == {"some": 2}
    with pytest.raises(ParamsError, match="wanted: given 2, expected a share"):
        choose_allocation(options, [(0, 1)], wanted=2.0)


def test_repeats_cost_no_second_call() -> None:
    """A text twice is one candidate at its first place, with the first verdict recorded."""
    item = recorded_list(
        [
            RecordedCandidate(text="a", score=0.1, times=2),
            RecordedCandidate(text="b", label=False, logprob=-3.0),
            RecordedCandidate(text="a", score=0.9, label=True),
            RecordedCandidate(text="b", label=True),
        ],
        committed=2,
    )
    merged = merge_repeats(item)
    assert merged.candidates == (
        RecordedCandidate(text="a", score=0.1, label=True, times=3),
        RecordedCandidate(text="b", label=False, times=2, logprob=-3.0),
    )
    assert merged.committed == 0
    (judged,), found = judge([item], by_label, complete=True)
    assert judged.accepted.tolist() == [True, False]
    assert (found.candidates, found.repeats, found.disagreeing) == (2, 3, 1)
    (judged,), found = judge([item], by_score(0.5), complete=False)
    assert judged.accepted.tolist() == [False, False]
    assert (found.misses, found.lists_with_misses, found.disagreeing) == (1, 1, 1)


def test_what_was_not_verified_is_counted_and_never_accepted() -> None:
    """It costs its call; a list without any verdict is left out, or any list with a miss."""
    lists = [
        recorded_list(
            [RecordedCandidate(text="a"), RecordedCandidate(text="b", label=True)], state="1"
        ),
        recorded_list([RecordedCandidate(text="a", label=True)], state="2", problem="q"),
        recorded_list(
            [RecordedCandidate(text="a"), RecordedCandidate(text="b", score=0.2)], state="3"
        ),
        recorded_list([RecordedCandidate(text="a", label=False)], state="4"),
    ]
    states, found = judge(lists, by_label, complete=False)
    assert [one.recorded.state_id for one in states] == ["1", "2", "4"]
    assert states[0].known.tolist() == [False, True]
    scores = [UNLEARNED["recorded"](one.recorded) for one in states]
    ranking = rank_states(states, scores)
    assert ranking.outcomes(one_by_one()).calls.tolist() == [2, 1, 1]
    assert (found.lists, found.used, found.left_out, found.misses) == (4, 3, 1, 1)
    assert (found.problems, found.reachable, found.decided_by_order) == (2, 2, 1)
    states, found = judge(lists, by_label, complete=True)
    assert [one.recorded.state_id for one in states] == ["2", "4"]
    assert (found.left_out, found.misses) == (2, 0)


def test_a_score_is_accepted_from_tau_on() -> None:
    """At tau itself too; a tau that is no number is refused."""
    verdict = by_score(0.5)
    assert [verdict(RecordedCandidate(text="a", score=x)) for x in (0.4, 0.5)] == [False, True]
    assert verdict(RecordedCandidate(text="a", label=True)) is None
    with pytest.raises(ParamsError, match="tau: given nan"):
        by_score(float("nan"))


def test_rankers_by_hand() -> None:
    """Each ranker's scores, lower first."""
    item = recorded_list(
        [
            RecordedCandidate(text="long", label=False, times=1, logprob=-1.0),
            RecordedCandidate(text="x", label=True, times=3, logprob=-2.5),
        ]
    )
    expected = {
        "random": [0, 0],
        "recorded": [0, 1],
        "frequency": [-1, -3],
        "likelihood": [1, 2.5],
        "shortest": [4, 1],
    }
    assert {name: order(item).tolist() for name, order in UNLEARNED.items()} == expected
    assert oracle_order(by_label)(item).tolist() == [1, 0]


def test_only_rankers_that_the_lists_can_serve_are_offered() -> None:
    """Counts where something was proposed twice, log probabilities where all have one."""
    bare = recorded_list([RecordedCandidate(text="a"), RecordedCandidate(text="b")])
    full = recorded_list([RecordedCandidate(text="a", times=2, logprob=-1.0)])
    assert list(orders_for([bare], by_label)) == ["random", "recorded", "shortest", "oracle"]
    assert list(orders_for([full], by_label)) == rankers_in_order(
        ["oracle", "likelihood", "frequency", "recorded", "random", "shortest"]
    )
    assert "likelihood" not in orders_for([bare, full], by_label)
    assert rankers_in_order(["oracle", "mine", "random", "mine"]) == ["random", "mine", "oracle"]
