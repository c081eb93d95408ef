"""Game of 24 as GPT-4 and GPT-3.5 played it: gates, rankers and searches against the records."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from game24_notation import MAX_TEXT, MOST_DIGITS, UNREAD, Game24, made
from game24_ranking import (
    FULL,
    SETTINGS,
    Ranked,
    by_exact_label,
    cross_fitted,
    threshold,
    transferred,
    while_hopeful,
)
from game24_ranking import asked as judged
from game24_states import (
    PASSED,
    UNSAID,
    countdown_counts,
    different_tables,
    gate_counts,
    refused_right_moves,
    visited,
)
from game24_trees import (
    BLANK,
    RecordedRanks,
    Tree,
    ended,
    gated,
    mean_calls,
    original,
    reproduced,
    rules,
    solved_rates,
    trees,
)
from recorded_game24 import SOME_CHANCE, TREE_OF_THOUGHTS, by_source

from selverify.audit.counterfactual import first_k, one_by_one, verify_all
from selverify.audit.judged_lists import by_label
from selverify.domains.countdown import Countdown
from selverify.errors import SchemaError
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.search.gates import reject
from selverify.types import Malformed, Move

QUICK = SETTINGS.model_copy(update={"epochs": 4})
DOMAIN = Game24(checks=False)


@cache
def ranked() -> Ranked:
    """The states of tree-of-thought-llm's log, each half ranked by the other half's puzzles."""
    return cross_fitted(by_source(TREE_OF_THOUGHTS), by_exact_label, folds=2, settings=QUICK)


def widest() -> Tree:
    """The tree of tree-of-thought-llm's log, which keeps five states."""
    return max(trees(), key=lambda tree: tree.width)


def test_every_recorded_gate_reason_is_reproduced() -> None:
    """21,714 of 21,714, and the table after every prefix is the recorded one."""
    counts = gate_counts()
    assert counts.total() == 21_714
    assert {theirs for theirs, own in counts if theirs != own} == set()
    assert different_tables() == []


def test_no_move_of_label_1_is_refused() -> None:
    assert refused_right_moves() == []
    assert any(c["label"] for one in visited() for c in one.row["candidates"])


def test_countdown_agrees_wherever_it_has_the_words() -> None:
    """It never refuses what passes nor passes what is refused; rounded results it cannot say."""
    said = {key: times for key, times in countdown_counts().items() if key[1] != UNSAID}
    assert {theirs for theirs, own in said if theirs != own} == set()
    assert {theirs for theirs, _ in said} == {"ok", "left", "scope", "arith"}
    assert said["ok", "ok"] > 14_000


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("4 + 5 = 9 (left: 6 9 10)", "add"),
        ("8  /  3 = 2.67 (left: 2.67 10)", "divide"),
        ("2 / 3 = 0.666... (left:0.666...)", "divide"),
        ("16 + 8 = 24 (left: )", "add"),
        ("-1 * 2/3 = -2/3 (left: -2/3, 5)", "multiply"),
        ("2 * 12 = 24", UNREAD),
        ("9 - (5/3) = 22/3 (left: 22/3)", UNREAD),
        ("1 + 2 = 3 (left: 3) (all used)", UNREAD),
        ("3/0 + 1 = 2 (left: 2)", UNREAD),
        ("__import__('os') + 1 = 2 (left: 2)", UNREAD),
        (f"1{'0' * MOST_DIGITS} + 1 = 2 (left: 2)", UNREAD),
        ("٣ + 1 = 4 (left: 4)", UNREAD),
    ],
)
def test_the_notation_takes_what_it_lists_and_nothing_else(text: str, op: str) -> None:
    move = DOMAIN.parse(text)
    assert isinstance(move, Move)
    assert (move.op, move.text) == (op, " ".join(text.split()))


@pytest.mark.parametrize("text", ["", "  ", BLANK.text, "1" * (MAX_TEXT + 1), "(" * 10**6])
def test_nothing_and_too_much_is_malformed(text: str) -> None:
    assert isinstance(DOMAIN.parse(text), Malformed)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("8 / 3 = 2.67 (left: 2.67 3 8)", None),
        ("8 / 3 = 2.7 (left: 2.7 3 8)", "arithmetic"),
        ("8 / 3 = 2 (left: 2 3 8)", "arithmetic"),
        ("3 * 8 = 23.99 (left: 3 8 23.99)", "arithmetic"),
        ("3 - 3 = 0 (left: 0 8 8)", None),
        ("8 / 3 = 2.67 (left: 3 8)", "remaining list"),
        ("8 + 3 = 11 (left: 3 8 12)", "remaining list"),
        ("8 + 2.99 = 10.99 (left: 10.99 3 8)", "operand not available"),
        ("3 + 3 = 6 (left: 6 8 8)", None),
        ("8 * 8 = 64 (left: 3 3 64.0)", None),
        ("3 * 8 = 24", "not read"),
    ],
)
def test_a_decimal_stands_for_a_value_near_it_but_for_no_whole_number(
    text: str, refused: str | None
) -> None:
    state = DOMAIN.initial_state(DOMAIN.read("3 3 8 8", problem_id="p"), budget=1)
    found = reject(DOMAIN, state, candidate=DOMAIN.parse(text))
    assert (found.reason if found else None) == refused


def test_a_rounded_number_is_worked_on_exactly() -> None:
    """8 / (3 - 8 / 3) is 24, though 8 / 0.33 is not; a free check accepts it."""
    domain = Game24(checks=True)
    state = domain.initial_state(domain.read("8 3 8 3", problem_id="p"), budget=1)
    for text in ("8 / 3 = 2.67 (left: 3 8 2.67)", "3 - 2.67 = 0.33 (left: 8 0.33)"):
        move = domain.parse(text)
        assert isinstance(move, Move)
        assert reject(domain, state, candidate=move) is None
        state = domain.apply(state, move)
    right = domain.parse("8 / 0.33 = 24 (left: 24)")
    wrong = domain.parse("8 * 0.33 = 2.67 (left: 2.67)")
    assert isinstance(right, Move)
    assert made(state.context.numbers, right).after == (Fraction(24),)  # type: ignore[attr-defined]
    assert reject(domain, state, candidate=right) is None
    assert domain.answer(domain.apply(state, right)) == "24"
    found = reject(domain, state, candidate=wrong)
    assert found is not None
    assert found.reason == "result is not the target"


def test_a_puzzle_is_numbers() -> None:
    with pytest.raises(SchemaError, match="expected numbers"):
        DOMAIN.read("use 4 7 8 8 to make 24 .", problem_id="p")
    assert Countdown().read("use 4 7 8 8 to make 24 .", problem_id="p").goal == "reach 24"


@pytest.mark.soak
def test_no_ranker_is_asked_about_a_puzzle_that_it_learned_from() -> None:
    """Every puzzle is in one fold, and every state has a score for each survivor."""
    found = ranked()
    folds: dict[str, set[int]] = {}
    for one, fold in zip(found.asked, found.folds, strict=True):
        folds.setdefault(one.visited.hand, set()).add(fold)
    assert {len(own) for own in folds.values()} == {1}
    assert all(
        len(own.scores[FULL]) == len(one.accepted)
        for own, one in zip(found.scored, found.states, strict=True)
    )


@pytest.mark.soak
def test_the_ranker_finds_a_right_move_with_half_of_the_calls_of_random_order() -> None:
    """On puzzles that it did not learn from; the oracle needs one."""
    orders = {name: ranked().ranking(name) for name in (RANDOM, FULL, ORACLE)}
    calls = {name: float(np.nanmean(order.to_first)) for name, order in orders.items()}
    assert calls[ORACLE] == 1.0
    assert calls[FULL] - 1.0 < (calls[RANDOM] - 1.0) / 2


@pytest.mark.soak
def test_the_target_is_met_where_verify_all_finds_a_right_move() -> None:
    """98 % found with at most half of the calls, by three rounds of two."""
    order = ranked().ranking(FULL)
    own, every = order.outcomes(first_k(2, retries=2)), order.outcomes(verify_all())
    there = ~np.isnan(own.found)
    assert np.nanmean(own.found) >= 0.98
    assert own.calls[there].sum() <= 0.5 * every.calls[there].sum()


@pytest.mark.soak
def test_doubt_tells_when_to_stop() -> None:
    """It finds more than three calls a state do, with fewer; an oracle's order needs half of all.

    A random order that stops as early finds less with more calls.

    Over four seeds of the training 94 to 98 % are found with 39 to 40 % of the calls.
    """
    found = ranked()
    every = found.ranking(FULL).outcomes(verify_all()).calls.sum()
    hopeful = while_hopeful(found, 0.97)
    three = found.ranking(FULL).outcomes(first_k(1, retries=2))
    assert np.nanmean(hopeful.found) >= 0.9
    assert np.nanmean(hopeful.found) > np.nanmean(three.found)
    assert hopeful.calls.sum() < three.calls.sum() <= 0.5 * every
    at_random = while_hopeful(found, 0.97, RANDOM)
    assert hopeful.calls.sum() < at_random.calls.sum()
    assert np.nanmean(hopeful.found) > np.nanmean(at_random.found)
    assert found.ranking(ORACLE).outcomes(one_by_one()).calls.sum() > 0.5 * every


def test_a_threshold_is_a_recorded_value_that_tells_right_from_wrong() -> None:
    """GPT-4's is well above impossible, and it accepts right moves far more often than wrong."""
    found = by_source(TREE_OF_THOUGHTS)
    tau = threshold(found)
    moves = [c for one in found if one.survivors for c in one.survivors.candidates]
    accepted = {
        label: np.mean([c.score >= tau for c in moves if bool(c.label) is label])
        for label in (True, False)
    }
    assert tau > 0.5
    assert any(c.score == tau for c in moves)
    assert accepted[True] - accepted[False] > 0.7


def test_a_transfer_leaves_out_the_puzzles_of_the_test_side() -> None:
    """Of a log on itself nothing would be left to learn from."""
    tot = judged(by_source(TREE_OF_THOUGHTS), by_label)
    with pytest.raises(SchemaError, match="0 lists for training"):
        transferred(tot, tot)


@pytest.mark.parametrize(
    ("width", "model", "solved"), [(5, "gpt-4", 73), (3, "gpt-4", 69), (3, "gpt-35", 14)]
)
def test_tree_of_thoughts_search_keeps_what_the_log_kept(
    width: int, model: str, solved: int
) -> None:
    """The same states after every move of every puzzle, so the same success."""
    (tree,) = [one for one in trees() if one.width == width and one.model.startswith(model)]
    again = reproduced(tree)
    assert (again.same, again.tied) == (again.puzzles, 0)
    assert again.solved == again.solved_in_log == solved


def test_where_one_state_is_kept_only_ties_differ() -> None:
    """These logs broke ties at random."""
    for tree in trees():
        if tree.width == 1:
            again = reproduced(tree)
            assert again.same + again.tied == again.puzzles
            assert again.same > 0


@pytest.mark.soak
def test_gated_competition_solves_as_many_with_a_third_of_the_calls() -> None:
    """As they end on the recorded tree; touched by misses, so the rate has two bounds."""
    tree = widest()
    settings = rules(SOME_CHANCE, allocation="fixed", k_base=2.0, max_retries=2, scorer=FULL)
    own = gated(tree, settings, RecordedRanks(ranked()))
    bfs = ended(*original(tree, gates=False, checks=False), any_kept=True)
    low, end, high = solved_rates(own.values())
    assert end >= solved_rates(bfs.values())[1] - 0.02
    assert mean_calls(own.values()) <= mean_calls(bfs.values()) / 3
    assert low < end < high
    assert not any(one.touched for one in bfs.values())


def test_free_checks_cost_breadth_first_no_success() -> None:
    """With gates and a check of the end it solves as many with fewer calls."""
    tree = widest()
    plain = ended(*original(tree, gates=False, checks=False), any_kept=True)
    free = ended(*original(tree, gates=True, checks=True))
    assert solved_rates(free.values())[1] >= solved_rates(plain.values())[1]
    assert mean_calls(free.values()) < 0.7 * mean_calls(plain.values())


def test_what_passes_the_gates_is_what_the_records_pass() -> None:
    for one in visited():
        texts = {c["text"] for c in one.row["candidates"] if c["gate"] in PASSED}
        kept = {c.text for c in one.survivors.candidates} if one.survivors else set()
        assert kept == texts
