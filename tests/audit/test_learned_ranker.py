"""A ranker learns from recorded lists, and scores only problems that it has not seen."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from recorded_lists import recorded_list

from selverify.audit.counterfactual import split_problems
from selverify.audit.encoders import Embedder
from selverify.audit.judged_lists import JudgedList, by_label, judge
from selverify.audit.learned_orders import (
    HeldOutScores,
    cross_fit,
    fit_on,
    labelled,
    learned_ranking,
)
from selverify.audit.log import RecordedCandidate, RecordedList
from selverify.errors import LeakError, SchemaError
from selverify.experiment.audits import pairwise_accuracy
from selverify.models.heuristic.embedding import Embeddings, concatenate
from selverify.params import Residual
from selverify.search.allocation import dispersion
from selverify.training.fit import Epoch
from selverify.training.policy import PLAIN, LabelledList

SETTINGS = Residual(
    hidden=8,
    epochs=20,
    rate=1e-2,
    weight_decay=0.0,
    pairs_per_state=6,
    trajectory_weight=0.0,
    trajectory_scale=0.2,
    rank_on="hybrid",
    validation_fraction=0.25,
    familiar=0.99,
    retrieval_patterns=0,
    seed=3,
)
QUICK = SETTINGS.model_copy(update={"epochs": 2})
"""Where it does not matter how well an order is learned."""
PROBLEMS, STATES, MOVES = 30, 3, 6
FOLDS = [number // STATES % 3 for number in range(PROBLEMS * STATES)]


def planted(*, shuffled: bool = False) -> list[LabelledList]:
    """Lists whose labels are the sign of one coordinate of the move, or the same labels mixed."""
    generator = torch.Generator().manual_seed(7)
    moves = torch.randn(PROBLEMS * STATES, MOVES, 4, generator=generator)
    labels = (moves[:, :, 0] > 0).flatten().tolist()
    if shuffled:
        random.Random(1).shuffle(labels)
    zeros = torch.zeros(MOVES, 4)
    return [
        LabelledList(
            f"p{number // STATES}",
            Embeddings(zeros, move, move, zeros, zeros[:, :1], zeros[:, 0]),
            tuple(labels[number * MOVES : (number + 1) * MOVES]),
            None,
            None,
        )
        for number, move in enumerate(moves)
    ]


def accuracy(lists: Sequence[LabelledList], scored: Sequence[HeldOutScores], scorer: str) -> float:
    """The mean share of pairs in order, over the lists where an order matters."""
    shares = [
        pairwise_accuracy(found.scores[scorer], item.labels)
        for item, found in zip(lists, scored, strict=True)
    ]
    return float(np.mean([share for share in shares if share is not None]))


def quiet(*_: object) -> None:
    """No report."""


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_planted_signal_is_found_out_of_fold_and_nothing_where_there_is_none(
    shuffled: bool,
) -> None:
    """Shuffled labels are learned by heart, and help on no other problem."""
    lists = planted(shuffled=shuffled)
    scored = cross_fit(lists, FOLDS, SETTINGS, report=quiet)
    assert len(scored) == len(lists)
    for scorer in ("hybrid", "residual", "reject_probability"):
        found = accuracy(lists, scored, scorer)
        assert 0.42 < found < 0.58 if shuffled else found > 0.9


def test_the_labels_of_a_fold_do_not_touch_its_own_scores() -> None:
    """With its labels turned round a fold is scored the same, bit for bit; the others are not."""
    lists = planted()
    turned = [
        LabelledList(one.problem_id, one.rows, tuple(not label for label in one.labels), None, None)
        if fold == 0
        else one
        for one, fold in zip(lists, FOLDS, strict=True)
    ]
    before, after = (cross_fit(one, FOLDS, QUICK, report=quiet) for one in (lists, turned))
    for fold, one, other in zip(FOLDS, before, after, strict=True):
        same = np.array_equal(one.scores["hybrid"], other.scores["hybrid"])
        assert same == (fold == 0)


def test_sigma_bar_is_the_mean_spread_of_the_lists_with_a_choice_that_were_trained_on() -> None:
    """Of all scorers, and however many lists of one move there are."""
    lists = planted()
    train = [one for one, fold in zip(lists, FOLDS, strict=True) if fold != 1]
    single = [
        LabelledList(one.problem_id, one.rows.take(torch.tensor([0])), one.labels[:1], None, None)
        for one in train
    ]
    # The same training, asked about its own lists under other names.
    copies = [
        LabelledList(f"{one.problem_id} again", one.rows, one.labels, None, None) for one in train
    ]
    scored = fit_on([*train, *single], copies, QUICK, report=quiet)
    for name in ("reject_probability", "hybrid"):
        mean = np.mean([dispersion(one.scores[name].tolist()) for one in scored])
        assert scored[0].dispersion[name] == pytest.approx(mean, rel=1e-4)


def test_equal_moves_get_equal_scores_wherever_they_stand() -> None:
    """Sums over a batch differ in their last bits by place, and that decides no order."""
    lists = planted()
    row = lists[0].rows.take(torch.tensor([0]))
    many = concatenate([row, *(one.rows for one in lists), row] * 3)
    others = [LabelledList("q", many, (True,) * many.move.shape[0], None, None)]
    (scored,) = fit_on(lists, others, QUICK, report=quiet)
    at = np.flatnonzero((many.move == row.move).all(dim=1).numpy())
    assert len(at) > 6
    for name, scores in scored.scores.items():
        assert len(set(scores[at].tolist())) == 1, name
        assert all(float(f"{score:.6g}") == score for score in scores.tolist())


def test_residuals_for_comparison_are_scored_where_they_are_trained_alone() -> None:
    """And what is asked for beside the others does not change them."""
    lists = planted()
    plain, compared = (
        fit_on(lists[:30], lists[30:], QUICK, report=quiet, also=also) for also in ((), (PLAIN,))
    )
    for one, other in zip(plain, compared, strict=True):
        assert other.scores.keys() - one.scores.keys() == {"hybrid_without_trajectory"}
        assert one.dispersion.keys() == one.scores.keys()
        assert all(np.array_equal(one.scores[name], other.scores[name]) for name in one.scores)


def test_every_epoch_is_reported_with_its_fold() -> None:
    """So that what a training held out can be told from the next one's."""
    told: list[tuple[int, Epoch]] = []
    cross_fit(planted(), FOLDS, QUICK, report=lambda fold, epoch: told.append((fold, epoch)))
    assert [fold for fold, _ in told] == sorted(fold for fold, _ in told)
    kept = {fold: sum(one.part == "residual" for f, one in told if f == fold) for fold in range(3)}
    assert set(kept.values()) == {QUICK.epochs}


def test_a_problem_on_both_sides_is_refused() -> None:
    """Whether by folds or by a given split."""
    lists = planted()
    with pytest.raises(LeakError, match="'p0' is trained on and scored"):
        cross_fit(lists, [0, 1, *FOLDS[2:]], SETTINGS, report=quiet)
    with pytest.raises(LeakError, match="'p3' is trained on and scored"):
        fit_on(lists[:10], lists[10:], SETTINGS, report=quiet)


def test_training_lists_without_a_contrast_are_refused_in_one_sentence() -> None:
    """A fold whose other folds hold no mixed list is said to be so, and so is one problem alone."""
    lists = planted()
    alike = [
        one if fold == 0 else LabelledList(one.problem_id, one.rows, (True,) * MOVES, None, None)
        for one, fold in zip(lists, FOLDS, strict=True)
    ]
    with pytest.raises(SchemaError, match="of 60 lists for training, none of the 45 trained on"):
        cross_fit(alike, FOLDS, SETTINGS, report=quiet)
    with pytest.raises(SchemaError, match="of 3 lists for training, none of the 0 trained on"):
        fit_on(lists[:3], lists[3:], SETTINGS, report=quiet)


def recorded(problem: int, steps: int) -> list[RecordedList]:
    """A run of some steps: the short move is right and is committed, the long ones are not."""
    prefix: tuple[str, ...] = ()
    found = []
    for step in range(steps):
        right = f"We add {problem + step}."
        wrong = [f"{right} So it is far more than anybody would think, {i}" for i in range(3)]
        moves = [RecordedCandidate(text=text, label=text == right) for text in (*wrong, right)]
        found.append(
            recorded_list(
                moves,
                problem=f"p{problem}",
                state=f"p{problem}-{step}",
                question=f"How much is {problem} more?",
                prefix=prefix,
                committed=3,
            )
        )
        prefix = (*prefix, right)
    return found


def judged(lists: Sequence[RecordedList]) -> tuple[JudgedList, ...]:
    return judge(lists, by_label, complete=False)[0]


FREE = Embedder(None, free=True)


def test_recorded_lists_are_learned_from_and_ranked() -> None:
    """Lengths tell right from wrong here, and on unseen problems the right move comes first."""
    states = judged([one for problem in range(20) for one in recorded(problem, 3)])
    (folds,) = split_problems(states, folds=4, repetitions=1, seed=0)
    scored = cross_fit(labelled(states, FREE), folds, SETTINGS, report=quiet)
    ranking = learned_ranking(states, scored, "hybrid")
    assert ranking.to_first.mean() == pytest.approx(1.0)
    assert min(ranking.references) > 0.0


def test_remaining_moves_are_counted_along_the_run() -> None:
    """To its end if that is right, through steps of which no list was recorded too."""
    run = recorded(1, 4)
    lists = labelled(judged(run), FREE)
    assert [one.remaining for one in lists] == [4, 3, 2, 1]
    assert [one.committed for one in lists] == [3] * 4
    assert lists[0].labels == (False, False, False, True)
    without_third = labelled(judged([*run[:2], run[3]]), FREE)
    assert [one.remaining for one in without_third] == [4, 3, 1]


def test_a_run_that_ends_wrong_has_no_remaining_moves() -> None:
    """Nor has a state from which nothing is known to have been committed, or another run's."""
    run = recorded(1, 3)
    wrong = run[2].model_copy(update={"committed": 0})
    assert [one.remaining for one in labelled(judged([*run[:2], wrong]), FREE)] == [None] * 3
    unknown = run[1].model_copy(update={"committed": None})
    found = labelled(judged([run[0], unknown, run[2]]), FREE)
    assert [one.remaining for one in found] == [3, None, 1]
    elsewhere = run[2].model_copy(update={"run": "two"})
    assert [one.remaining for one in labelled(judged([*run[:2], elsewhere]), FREE)] == [2, 1, 1]
