"""The rule of a ranker: enough is found where there is something to choose."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from recorded_lists import recorded_list

from selverify.audit.counterfactual import Outcomes, choose_allocation
from selverify.audit.judged_lists import JudgedList, by_label, judge
from selverify.audit.learned_orders import HeldOutScores
from selverify.audit.log import RecordedCandidate
from selverify.audit.ranking_rule import LEARNED, PLAN, Rule, Savings, choose_rule
from selverify.search.gated import REJECT_PROBABILITY

PROBLEMS, LONE, MOVES = 30, 40, 5


def states(lone: int) -> list[JudgedList]:
    """Of each problem ``lone`` states with one accepted move, and two with one among several."""
    rng = random.Random(3)
    lists = []
    for problem in range(PROBLEMS):
        for state in range(lone + 2):
            size = 1 if state < lone else MOVES
            right = rng.randrange(size)
            moves = (RecordedCandidate(text=f"m{one}", label=one == right) for one in range(size))
            lists.append(recorded_list(moves, problem=f"p{problem}", state=f"s{state}"))
    judged, _ = judge(lists, by_label, complete=True)
    return judged


def blind(judged: Sequence[JudgedList]) -> list[HeldOutScores]:
    """A ranker that knows nothing: the order of the log."""
    return [
        HeldOutScores(
            {
                "residual": np.arange(len(one.accepted), dtype=np.float64),
                REJECT_PROBABILITY: np.full(len(one.accepted), 0.9),
            },
            {"residual": 1.0, REJECT_PROBABILITY: 1.0},
        )
        for one in judged
    ]


def chosen(judged: Sequence[JudgedList]) -> tuple[Rule, Savings]:
    """With a blind ranker."""
    return choose_rule(
        judged,
        blind(judged),
        ["residual"],
        wanted=0.98,
        strange=np.zeros(len(judged), np.bool_),
        seed=0,
        resamples=100,
    )


@pytest.mark.parametrize("lone", [0, LONE])
def test_states_without_a_choice_do_not_count_as_found(lone: int) -> None:
    """However many there are, a blind ranker has all moves verified where there are several."""
    judged = states(lone)
    rule, savings = chosen(judged)
    assert rule.k_base > 1 and rule.skip_below is None
    table = savings.table.set_index(["ranker", "allocator"])
    assert table.loc[(LEARNED, PLAN), "found"] == 1.0
    # None of 30 problems failed: not more than a ninth of others will.
    assert table.loc[(LEARNED, PLAN), "found_low"] == pytest.approx(0.886, abs=0.001)
    assert (savings.contested, savings.won) == (2 * PROBLEMS, 1.0)


def test_where_there_is_nothing_to_choose_one_call_is_enough() -> None:
    """All states count then, and the table has a share of them."""
    judged = [one for one in states(LONE) if len(one.accepted) == 1]
    rule, savings = chosen(judged)
    assert rule.k_base == 1
    assert savings.table["found"].tolist() == [1.0] * 3 and savings.contested == 0


def test_a_fold_without_such_states_asks_for_nothing() -> None:
    """The fewest calls are enough where there is nothing to find."""
    found = np.array([1.0, 0.0, np.nan, np.nan])
    calls = np.array([1.0, 1.0, 1.0, 1.0])
    options = {
        "few": Outcomes(calls, found, found),
        "all": Outcomes(4 * calls, np.where(np.isnan(found), np.nan, 1.0), found),
    }
    choice = choose_allocation(options, [(0, 0, 1, 1)], wanted=0.9)
    assert choice.chosen == {"few": 1, "all": 1}
