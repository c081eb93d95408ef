"""A ranker trained on some recorded lists and asked about others, so that none scores itself.

Knows: judged lists, their embeddings, folds, the training. Does not know: logs, how texts become
numbers, figures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch

from selverify.audit.lists.counterfactual import Ranking, rank, split_problems
from selverify.audit.lists.judging import JudgedList
from selverify.audit.lists.rankers import LIKELIHOOD
from selverify.audit.schema import RecordedList
from selverify.errors import LeakError, ParamsError, SchemaError
from selverify.experiment.statistics import FloatArray
from selverify.models.heuristic.embedding import Embeddings, concatenate
from selverify.models.heuristic.hybrid import Scorer, scorers
from selverify.params import Residual
from selverify.search.allocation import dispersion
from selverify.training.fit import Epoch
from selverify.training.policy import LabelledList, split_lists, train_policy

DIGITS = 6
"""Of a score. Equal moves differ in the last bits by where they stand in a batch, and that must not
decide their order."""


class Embeds(Protocol):
    """What turns recorded lists into embeddings (``recorded.encoders.Embedder``)."""

    def embed(self, lists: Sequence[RecordedList]) -> list[Embeddings]:
        """One row a candidate of each list."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """What a heuristic that did not see a list's problem says of its moves.

    Attributes:
        scores: [move] by name of scorer, lower first, in ``DIGITS`` significant digits: those of
            ``heuristic.hybrid.scorers``, and ``reject_probability``, the chance in [0, 1] that
            the verifier rejects the move.
        dispersion: sigma-bar by the same names, for k(w): the mean of sigma(w) over the lists of at
            least two moves that were trained on. One move has no spread, and where logs hold mostly
            such lists, all others would seem spread and be given too many calls.
    """

    scores: Mapping[str, FloatArray]
    dispersion: Mapping[str, float]


def cross_fit(
    lists: Sequence[LabelledList],
    folds: Sequence[int],
    settings: Residual,
    *,
    report: Callable[[int, Epoch], None],
) -> list[Scored]:
    """Each list scored by a heuristic that was trained on the other folds.

    Args:
        lists: with their labels.
        folds: the fold of each list; lists of one problem are in one fold.
        settings: of the training, which splits off its own held-out problems.
        report: is given the fold that is left out, and every epoch of the training.

    Returns:
        One a list, in their order.

    Raises:
        ParamsError: not one fold a list, or fewer than two folds.
        LeakError: a problem's lists are in two folds.
        SchemaError: a fold's training lists cannot teach an order (``fit_on``).
    """
    _check_folds(lists, folds)
    found: dict[int, Scored] = {}
    for fold in sorted(set(folds)):
        held = [place for place, own in enumerate(folds) if own == fold]
        train = [item for item, own in zip(lists, folds, strict=True) if own != fold]
        others = [lists[place] for place in held]
        scored = fit_on(train, others, settings, report=partial(report, fold))
        found |= dict(zip(held, scored, strict=True))
    return [found[place] for place in range(len(lists))]


def fit_on(
    train: Sequence[LabelledList],
    others: Sequence[LabelledList],
    settings: Residual,
    *,
    report: Callable[[Epoch], None],
) -> list[Scored]:
    """The lists ``others``, in their order, scored by a heuristic trained on ``train``.

    Raises:
        LeakError: a problem stands on both sides.
        SchemaError: where the training splits ``train``, one of the two parts holds no list with
            both an accepted and a rejected move.
    """
    both = {item.problem_id for item in train} & {item.problem_id for item in others}
    if both:
        raise LeakError(
            f"recorded lists: problem {min(both)!r} is trained on and scored, expected each "
            "problem on one side"
        )
    _check_contrast(train, settings)
    heuristic, _ = train_policy(train, settings, report=report)
    named: dict[str, Scorer] = {
        **scorers(heuristic),
        "reject_probability": heuristic.reject_probabilities,
    }
    several = [item for item in train if len(item.labels) > 1]
    references = {
        name: _mean_dispersion(_scores(scorer, several)) for name, scorer in named.items()
    }
    columns = [_scores(scorer, others) for scorer in named.values()]
    return [
        Scored(dict(zip(named, scores, strict=True)), references)
        for scores in zip(*columns, strict=True)
    ]


def learned_rankings(
    states: Sequence[JudgedList],
    embedder: Embeds,
    settings: Residual,
    *,
    folds: int,
    seed: int,
    report: Callable[[int, Epoch], None],
) -> dict[str, Ranking]:
    """The states in the order of every learned scorer, none of which saw the state's problem.

    Args:
        folds: how many parts the problems are dealt into, by ``seed``.

    Returns:
        By name of scorer; k(w) is measured against sigma-bar of the lists that were trained on.

    Raises:
        SchemaError: a candidate without a verdict, fewer problems than folds, or a fold whose
            training lists cannot teach an order.
    """
    splits = split_problems(states, folds=folds, repetitions=1, seed=seed)
    scored = cross_fit(labelled(states, embedder), splits[0], settings, report=report)
    return {name: ranking(states, scored, name) for name in scored[0].scores if name != LIKELIHOOD}


def ranking(states: Sequence[JudgedList], scored: Sequence[Scored], scorer: str) -> Ranking:
    """The states in the order of one scorer, with sigma-bar of each state's own training."""
    return rank(
        states,
        [one.scores[scorer] for one in scored],
        references=[one.dispersion[scorer] for one in scored],
    )


def labelled(states: Sequence[JudgedList], embedder: Embeds) -> list[LabelledList]:
    """The states with their embeddings, verdicts and what became of them, in their order.

    g(w) is counted along the run: a run that ends with an accepted move is taken for one that came
    to a right answer, and the moves from the state to its end are those that remain.

    Raises:
        SchemaError: a candidate has no verdict; a ranker must not learn one that was invented.
    """
    for state in states:
        if not state.known.all():
            raise SchemaError(
                f"state {state.recorded.state_id!r} of {state.problem_id!r}: "
                f"{int(state.known.sum())} of {len(state.known)} candidates have a verdict, "
                "expected all: a ranker learns from complete lists only"
            )
    rows = embedder.embed([state.recorded for state in states])
    ends = _ends(states)
    return [
        LabelledList(
            state.problem_id,
            own,
            tuple(state.accepted.tolist()),
            state.recorded.committed,
            _remaining(state, ends),
        )
        for state, own in zip(states, rows, strict=True)
    ]


def is_mixed(item: LabelledList) -> bool:
    """Whether the list holds both an accepted and a rejected move, so that an order matters."""
    return any(item.labels) and not all(item.labels)


@torch.inference_mode()
def _scores(scorer: Scorer, lists: Sequence[LabelledList]) -> list[FloatArray]:
    """Of every list, in ``DIGITS`` digits; all rows at once, because most lists are short."""
    if not lists:
        return []
    scores = scorer(concatenate([item.rows for item in lists])).tolist()
    rounded = np.array([float(f"{score:.{DIGITS}g}") for score in scores])
    ends = np.cumsum([len(item.labels) for item in lists])
    return np.split(rounded, ends[:-1])


def _mean_dispersion(scores: Sequence[FloatArray]) -> float:
    return sum(dispersion(one.tolist()) for one in scores) / len(scores)


def _ends(states: Sequence[JudgedList]) -> dict[bytes, tuple[int, bool]]:
    """For each beginning of a run: moves of its longest continuation, and if the last is right."""
    ends: dict[bytes, tuple[int, bool]] = {}
    for state in states:
        for key in _beginnings(state.recorded):
            ends[key] = max(ends.get(key, _end(state)), _end(state))
    return ends


def _end(state: JudgedList) -> tuple[int, bool]:
    """How long the run is after this state, and whether what it went on with was accepted.

    Where that is not known, because a person wrote it, an accepted candidate will do.
    """
    committed = state.recorded.committed
    went_on = state.accepted if committed is None else state.accepted[committed]
    return len(state.recorded.prefix) + 1, bool(np.any(went_on))


def _remaining(state: JudgedList, ends: Mapping[bytes, tuple[int, bool]]) -> int | None:
    """g(w) along the state's run, the committed move included; None where it did not end right."""
    item = state.recorded
    if item.committed is None:
        return None
    *_, here = _beginnings(item)
    after = _key(here, item.candidates[item.committed].text)
    moves, right = ends.get(after, _end(state))
    return moves - len(item.prefix) if right else None


def _beginnings(item: RecordedList) -> Iterator[bytes]:
    """A key for each beginning of the state's run, the empty one first, its whole prefix last."""
    key = _key(b"", repr((item.problem_id, item.run)))
    yield key
    for text in item.prefix:
        key = _key(key, text)
        yield key


def _key(before: bytes, text: str) -> bytes:
    return hashlib.blake2b(before + text.encode("utf-8", "surrogatepass")).digest()


def _check_folds(lists: Sequence[LabelledList], folds: Sequence[int]) -> None:
    if len(folds) != len(lists) or len(set(folds)) < 2:
        raise ParamsError(
            f"folds: given {len(folds)} of {len(set(folds))} kinds for {len(lists)} lists, "
            "expected one a list, and at least two kinds"
        )
    fold_of: dict[str, int] = {}
    for item, fold in zip(lists, folds, strict=True):
        if fold_of.setdefault(item.problem_id, fold) != fold:
            raise LeakError(
                f"folds: lists of problem {item.problem_id!r} are in folds "
                f"{fold_of[item.problem_id]} and {fold}, expected a problem in one fold"
            )


def _check_contrast(train: Sequence[LabelledList], settings: Residual) -> None:
    for name, part in zip(("trained on", "held out"), split_lists(train, settings), strict=True):
        if not any(is_mixed(item) for item in part):
            raise SchemaError(
                f"recorded lists: of {len(train)} lists for training, none of the {len(part)} "
                f"{name} holds both an accepted and a rejected move; expected at least one"
            )
