"""Tau for a verifier, from scores and Monte-Carlo values."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.models import threshold
from selverify.models.threshold import (
    Threshold,
    known_tau,
    leaves_tau,
    load_threshold,
    median_threshold,
    resolve_tau,
    save_threshold,
)
from selverify.params import check_params
from selverify.storage import write_digests
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import relative

choose_threshold = partial(threshold.choose_threshold, solvable=0.5)


def test_the_hand_computed_case() -> None:
    """Right at 0.9, 0.8, 0.5, wrong at 0.6, 0.2: from 0.7 on 2/3 and 0, from 0.5 on 1 and 1/2."""
    found = choose_threshold([0.9, 0.8, 0.6, 0.5, 0.2], [1.0] * 5, [1.0, 0.5, 0.0, 0.25, 0.0])
    assert found.tau == pytest.approx(0.7)
    assert (found.right, found.wrong) == (3, 2)
    assert found.right_accepted == pytest.approx(2 / 3)
    assert found.wrong_accepted == 0.0
    assert found.auc == pytest.approx(5 / 6)


def test_of_equally_good_ones_tau_is_the_lowest() -> None:
    """From 0.7 and from 0.4 on the gain is 3/5, which differences of shares round differently."""
    scores = [0.9, 0.5, 0.4, 0.2, 0.8, 0.7, 0.9, 0.2, 0.7, 0.1]
    right = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    assert choose_threshold(scores, [1.0] * 10, right).tau == pytest.approx(0.3)


def test_a_few_right_moves_may_be_rejected() -> None:
    """Of forty right moves one is at 0.1: its rejection leaves 97.5 % accepted."""
    found = choose_threshold([0.9] * 39 + [0.1, 0.2], [1.0] * 41, [1.0] * 40 + [0.0])
    assert found.tau == pytest.approx(0.55)
    assert found.right_accepted == pytest.approx(0.975)


def test_labels_that_are_mistaken_at_random_do_not_move_tau() -> None:
    """A tenth of the right moves count as wrong and a fifth of the wrong ones as right."""
    right, wrong = [0.9] * 50 + [0.8] * 40 + [0.4] * 10, [0.7] * 5 + [0.5] * 20 + [0.1] * 25
    labels = [1.0] * 100 + [0.0] * 50
    sure = choose_threshold(right + wrong, [1.0] * 150, labels)
    mistaken = [*([1.0] * 9 + [0.0]) * 10, *([0.0] * 4 + [1.0]) * 10]
    noisy = choose_threshold(right + wrong, [1.0] * 150, mistaken)
    assert sure.tau == noisy.tau == pytest.approx(0.75)
    assert noisy.right_accepted < sure.right_accepted
    assert noisy.wrong_accepted > sure.wrong_accepted


def test_a_binary_verifier_gets_the_middle() -> None:
    """A tool says 0 or 1."""
    assert choose_threshold([1, 1, 0, 0], [1, 1, 1, 1], [1, 0.5, 0, 0]).tau == 0.5


def test_states_that_are_seldom_solved_do_not_count() -> None:
    """From there a right move is often followed by four failures."""
    sure = choose_threshold([0.9, 0.1], [1, 1], [1, 0])
    noisy = choose_threshold([0.9, 0.1, 0.95, 0.99], [1, 1, 0.25, 0.49], [1, 0, 0, 0])
    assert noisy == sure


def test_where_little_is_solved_rarely_solved_states_count() -> None:
    """But none that no continuation solves."""
    scores, before, after = [0.9, 0.1, 0.8, 0.2], [0.25, 0.25, 0.0, 0.0], [0.5, 0.0, 0.0, 0.25]
    for solvable in (0.0, 0.25):
        found = threshold.choose_threshold(scores, before, after, solvable=solvable)
        assert (found.right, found.wrong, found.tau) == (1, 1, 0.5)
    with pytest.raises(SchemaError, match=r"at states of value 0\.5 or more 0 moves"):
        threshold.choose_threshold(scores, before, after, solvable=0.5)


@pytest.mark.parametrize("after", [[0, 0], [1, 1]])
def test_without_both_kinds_the_number_must_be_given(after: list[float]) -> None:
    with pytest.raises(SchemaError, match="give the number as"):
        choose_threshold([0.2, 0.9], [1, 1], after)


def test_the_median_needs_nothing_right() -> None:
    """Of all moves, also of those at states from which nothing is reached."""
    nothing = median_threshold([0.1, 0.2, 0.4, 0.9], [0, 0, 0, 0], [0, 0, 0, 0], solvable=0.0)
    assert nothing == Threshold(pytest.approx(0.3), 0, 0, None, None, None)
    some = median_threshold(
        [0.1, 0.2, 0.4, 0.9, 0.3], [1, 1, 1, 1, 0], [0, 1, 0, 1, 0], solvable=0.5
    )
    assert some == Threshold(pytest.approx(0.25), 2, 2, 0.5, 0.5, 0.75)


@pytest.mark.parametrize(
    ("scores", "tau"),
    [([0, 0, 0, 0.5, 0.9], 0.25), ([0, 1, 1, 1], 0.5), ([0, 0.5, 0.5, 0.5, 1, 1], 0.75)],
)
def test_the_median_accepts_some_and_rejects_some(scores: list[float], tau: float) -> None:
    """Also of scores of which most are the lowest or the highest."""
    found = median_threshold(scores, [0] * len(scores), [0] * len(scores), solvable=0.0)
    assert found.tau == tau


@pytest.mark.parametrize("scores", [[], [0.5, 0.5]])
def test_without_two_scores_there_is_no_median(scores: list[float]) -> None:
    with pytest.raises(SchemaError, match=f"{len(scores)} moves .* expected two or more"):
        median_threshold(scores, scores, scores, solvable=0.0)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=60),
)
def test_no_other_tau_is_better(moves: list[tuple[int, bool]]) -> None:
    """Against every threshold there is, and the shares are those at tau."""
    scores = np.array([score / 20 for score, _ in moves])
    right = np.array([one for _, one in moves])
    assume(right.any() and not right.all())
    found = choose_threshold(scores, np.ones(len(moves)), right.astype(float))

    def shares(tau: float) -> tuple[float, float]:
        accepted = scores >= tau
        return float(accepted[right].mean()), float(accepted[~right].mean())

    own = found.right_accepted, found.wrong_accepted
    assert own == pytest.approx(shares(found.tau))
    every = [shares(score) for score in scores]
    assert own[0] - own[1] == pytest.approx(max(one - other for one, other in every))


def test_it_is_kept_beside_the_verifier(tmp_path) -> None:
    found = choose_threshold([0.9, 0.1], [1, 1], [1, 0])
    with pytest.raises(ArtifactError, match="no such file"):
        load_threshold(tmp_path)
    save_threshold(tmp_path, found)
    assert load_threshold(tmp_path) == found
    path = tmp_path / "threshold.json"
    whole = path.read_text()
    for spoilt in (whole.replace('"tau": ', '"tau": 1'), whole.replace("right", "sight"), "{"):
        path.write_text(spoilt)
        with pytest.raises(SchemaError, match=rf"{path}: damaged: digest"):
            load_threshold(tmp_path)
    for other in (whole.replace("right", "sight"), json.dumps({**json.loads(whole), "data": [1]})):
        path.write_text(other)
        write_digests(tmp_path)
        with pytest.raises(SchemaError, match=rf"{path}: given .*, expected the fields \['auc', "):
            load_threshold(tmp_path)


def solution(name: str, start: float, *values: float, count: int = 1) -> ValuedSolution:
    fresh = 0 if count else len(values) - 1
    return ValuedSolution(name, "", ("",) * len(values), values, count, start, fresh)


def test_a_relative_value_is_the_share_that_a_step_leaves() -> None:
    """A step after which more is solved leaves all; where nothing was solved before it, as of
    problems b and c, a wrong step could not be told from a right one."""
    several = [
        solution("a", 0.5, 0.25, 0.5, 1.0),
        solution("a", 0.5, 0.125, 0.0, 0.0),
        solution("b", 0.0, 0.25, 0.0, 0.0, 0.0),
        solution("c", 0.0, 0.0, 0.0),
    ]
    assert several[0].before == (0.5, 0.25, 0.5)
    explored = solution("a", 0.5, 0.25, 0.0625, count=0)
    found = relative([*several, explored])
    assert [(one.problem_id, one.values) for one in found] == [
        ("a", (0.5, 1.0, 1.0)),
        ("a", (0.25, 0.0)),
        ("a", (0.5, 0.25)),
    ]
    assert all(len(one.moves) == len(one.values) for one in found)
    kept = relative([replace(one, embedded=b"of every move") for one in several])
    assert {one.embedded for one in kept} == {b""}
    assert found[-1].fresh == 1
    hopeless = solution("c", 0.0, 0.0, 0.0, count=0)
    assert relative([*several, hopeless]) == found[:-1]


def test_tau_is_filled_in_only_where_it_was_left_open(tmp_path) -> None:
    """Given numbers stay, and equal points of the grid are one."""
    path = Path(__file__).parents[2] / "params.yaml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    raw["exploration"]["tau"], raw["search"]["tau"] = None, 0.3
    raw["evaluation"]["grid"]["tau"] = [None, 0.6, 0.2]
    params = check_params(raw, path)
    assert leaves_tau(params)
    save_threshold(tmp_path, choose_threshold([0.7, 0.5], [1, 1], [1, 0]))
    chosen = resolve_tau(params, tmp_path)
    assert (chosen.exploration.tau, chosen.search.tau) == (pytest.approx(0.6), 0.3)
    assert chosen.evaluation.grid.tau == (0.6, 0.2)
    assert not leaves_tau(chosen)
    assert resolve_tau(chosen, tmp_path / "none") is chosen
    assert known_tau(chosen.search.tau, "search.tau") == 0.3
    with pytest.raises(ParamsError, match=r"exploration\.tau: given null, expected the number"):
        known_tau(params.exploration.tau, "exploration.tau")
