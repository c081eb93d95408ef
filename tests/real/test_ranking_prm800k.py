"""PRM800K's candidate lists on MATH-500: what is there, and what each order makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import recorded_prm800k as measured
from recorded import records

from selverify.audit.learned_orders import cross_fit


@pytest.fixture(autouse=True)
def one_small_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One repetition, and only the features that need no encoder."""
    monkeypatch.setattr(measured, "REPETITIONS", 1)
    monkeypatch.setattr(measured, "EMBEDDERS", ("free",))


def test_states_with_a_known_prefix_are_used_and_the_others_counted() -> None:
    """Every one of them, with as many right candidates as the records say."""
    rows = [row for row in records(measured.FILE) if row["prefix"] is not None]
    held = measured.lists()
    assert len(held.states) == len(rows) == 889
    assert sum(held.imported.remarks.values()) > len(records(measured.FILE)) - len(rows) == 34
    assert [int(state.accepted.sum()) for state in held.states] == [row["n_pos"] for row in rows]
    mixed = [at for at, row in enumerate(rows) if 0 < row["n_pos"] < row["n"]]
    assert list(measured.mixed()) == mixed
    assert len(mixed) == 117


def test_the_random_and_the_oracle_order_are_what_counting_says() -> None:
    """(n + 1)/(right + 1) calls on average, and one."""
    expected = [
        (len(state.accepted) + 1) / (int(state.accepted.sum()) + 1)
        for state in (measured.lists().states[at] for at in measured.mixed())
    ]
    np.testing.assert_allclose(measured.measured(measured.RANDOM_ORDER).calls, expected)
    assert set(measured.measured("oracle").calls) == {1.0}


def test_the_recorded_order_is_worse_than_chance() -> None:
    """Alternatives were shown where the first candidate had failed, so it is no baseline."""
    pairs = measured.on_mixed(measured.measured("recorded").pairs)
    assert pairs.high < 0.5


def test_a_short_step_is_more_often_right() -> None:
    """The one order without training that beats the random one."""
    gap = measured.measured(measured.SHORTEST_FIRST).calls
    assert measured.on_mixed(gap - measured.measured(measured.RANDOM_ORDER).calls).high < 0


def test_every_problem_is_scored_by_a_ranker_that_did_not_see_it() -> None:
    """With the labels of a fold turned round its own scores are the same, and the others' not."""
    lists, settings = (
        measured.embedded("free"),
        measured.RANKER_SETTINGS.model_copy(update={"epochs": 2}),
    )
    folds = [min(fold, 1) for fold in measured.splits()[0]]
    turned = [
        replace(one, labels=tuple(not label for label in one.labels)) if fold == 0 else one
        for one, fold in zip(lists, folds, strict=True)
    ]
    before, after = (
        cross_fit(one, folds, settings, report=lambda *_: None) for one in (lists, turned)
    )
    same = [
        np.array_equal(one.scores["hybrid"], other.scores["hybrid"])
        for one, other in zip(before, after, strict=True)
    ]
    assert all(own for own, fold in zip(same, folds, strict=True) if fold == 0)
    assert not any(own for own, fold in zip(same, folds, strict=True) if fold == 1)


def test_what_is_refused_is_wrong_by_people_too_but_once() -> None:
    """And that once the arithmetic is wrong all the same."""
    found = measured.refusals()
    assert [one.kind for one in found] == ["arithmetic"] * 12
    (disputed,) = [one for one in found if one.right]
    assert measured.lists().states[disputed.state].recorded.state_id == "p1test-028-29"
