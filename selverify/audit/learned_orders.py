"""Orders learned from a log itself: trained on some recorded lists and scored on others.

Knows: judged lists, their embeddings, folds, the training, which learned scorers are worth a row.
Does not know: logs, how texts become numbers, how an audit goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch

from selverify.audit.counterfactual import Ranking, rank_states, split_problems
from selverify.audit.encoders import Embedder, open_embedder
from selverify.audit.judged_lists import JudgedList
from selverify.audit.list_audit import LearnedOrders
from selverify.audit.log import RecordedList
from selverify.errors import LeakError, ParamsError, SchemaError
from selverify.experiment.statistics import FloatArray
from selverify.models.heuristic.embedding import concatenate
from selverify.models.heuristic.hybrid import Heuristic, Scorer, scorers
from selverify.params import Residual
from selverify.search.allocation import dispersion
from selverify.search.gated import REJECT_PROBABILITY
from selverify.training.fit import Epoch
from selverify.training.policy import (
    PLAIN,
    PRINTED,
    WORDLESS,
    LabelledList,
    MappedLists,
    split_lists,
    train_policy,
)

FOLDS = 5
RANKER_SETTINGS = Residual(
    hidden=16,
    epochs=25,
    rate=1e-2,
    weight_decay=0.1,
    pairs_per_state=16,
    trajectory_weight=0.05,
    trajectory_scale=0.2,
    rank_on="hybrid",
    validation_fraction=0.2,
    familiar=0.99,
    retrieval_patterns=0,
    seed=0,
)
SCORE_DIGITS = 6
"""Of a score. Equal moves differ in the last bits by where they are in a batch, and that must not
decide their order."""
WITH_TRAJECTORIES = ("distance", "hybrid")
"""They are of use where texts are embedded, since else all distances are 0, and where the log says
which move each run went on with."""
ALWAYS = ("residual", REJECT_PROBABILITY)
OF_COMPARED = MappingProxyType(
    {
        "hybrid_without_trajectory": PLAIN,
        "hybrid_without_token_logprobs": WORDLESS,
        "printed": PRINTED,
    }
)
"""Scorers of residuals that are trained for comparison alone."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutScores:
    """The scores of a list's moves by a heuristic that did not see the list's problem.

    Attributes:
        scores: [move] by name of scorer, lower first, in ``SCORE_DIGITS`` significant digits: those
            of ``heuristic.hybrid.scorers`` that were trained, and ``reject_probability``, the
            chance in [0, 1] that the verifier rejects the move.
        dispersion: sigma-bar by the same names, for k(w): the mean of sigma(w) over the lists of at
            least two moves that were trained on. One move has no spread, and where logs hold mostly
            such lists, all others would seem spread and be given too many calls.
    """

    scores: Mapping[str, FloatArray]
    dispersion: Mapping[str, float]


def learned_orders(encoder: str, *, seed: int) -> LearnedOrders:
    """Orders by the embeddings of ``encoder`` (``encoders.open_embedder``), by cross-validation.

    Raises:
        ParamsError: no such encoder, or its package is not installed; later, a candidate without
            a verdict.
        SchemaError: later, too few problems, or a fold whose training lists cannot teach an order.
    """
    embedder = open_embedder(encoder)

    def orders(states: Sequence[JudgedList]) -> Mapping[str, Ranking]:
        if not all(state.known.all() for state in states):
            raise ParamsError(
                "encoder: given, but some candidates have no verdict to learn from; expected "
                "--complete, which leaves their states out"
            )
        held = held_out(states, embedder, RANKER_SETTINGS.model_copy(update={"seed": seed}))
        return {name: learned_ranking(states, held.scores, name) for name in held.scorers}

    return orders


class HeldOut(NamedTuple):
    """Lists with their folds and scores by rankers of the other folds; the scorers worth a row."""

    lists: list[LabelledList]
    folds: tuple[int, ...]
    scores: list[HeldOutScores]
    scorers: tuple[str, ...]


def held_out(states: Sequence[JudgedList], embedder: Embedder, settings: Residual) -> HeldOut:
    """The states scored by cross-validation in ``FOLDS`` folds of problems.

    Raises:
        SchemaError: too few problems, or a fold whose training lists cannot teach an order.
    """
    (folds,) = split_problems(states, folds=FOLDS, repetitions=1, seed=settings.seed)
    lists = labelled(states, embedder)
    scores = cross_fit(lists, folds, settings, report=lambda *_: None)
    with_runs = embedder.encoder is not None and any(
        state.recorded.committed is not None for state in states
    )
    return HeldOut(lists, folds, scores, ALWAYS + WITH_TRAJECTORIES * with_runs)


def learned_ranking(
    states: Sequence[JudgedList], scored: Sequence[HeldOutScores], scorer: str
) -> Ranking:
    """The states in the order of one scorer, with sigma-bar of each state's own training."""
    return rank_states(
        states,
        [one.scores[scorer] for one in scored],
        references=[one.dispersion[scorer] for one in scored],
    )


def cross_fit(
    lists: Sequence[LabelledList],
    folds: Sequence[int],
    settings: Residual,
    *,
    report: Callable[[int, Epoch], None],
    also: Collection[str] = (),
) -> list[HeldOutScores]:
    """Each list scored by a heuristic that was trained on the other folds.

    Args:
        lists: with their labels.
        folds: the fold of each list; lists of one problem are in one fold.
        settings: of the training, which splits off its own held-out problems.
        report: is given the fold that is left out, and every epoch of the training.
        also: as :func:`fit_on` takes it.

    Returns:
        One a list, in their order.

    Raises:
        LeakError, SchemaError: as :func:`fit_on`.
    """
    found: dict[int, HeldOutScores] = {}
    for fold in sorted(set(folds)):
        held = [place for place, own in enumerate(folds) if own == fold]
        train = [item for item, own in zip(lists, folds, strict=True) if own != fold]
        others = [lists[place] for place in held]
        scored = fit_on(train, others, settings, report=partial(report, fold), also=also)
        found |= dict(zip(held, scored, strict=True))
    return [found[place] for place in range(len(lists))]


def fit_on(
    train: Sequence[LabelledList],
    others: Sequence[LabelledList],
    settings: Residual,
    *,
    report: Callable[[Epoch], None],
    also: Collection[str] = (),
) -> list[HeldOutScores]:
    """The lists ``others``, in their order, scored by a heuristic trained on ``train``.

    ``also``: residuals for comparison, as ``train_policy`` takes them.

    Raises:
        LeakError: a problem is on both sides.
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
    heuristic, _ = train_policy(MappedLists(train), settings, report=report, also=also)
    named = {
        name: scorer
        for name, scorer in named_scorers(heuristic).items()
        if name not in OF_COMPARED or OF_COMPARED[name] in also
    }
    several = [item for item in train if len(item.labels) > 1]
    references = {name: mean_dispersion(scorer, several) for name, scorer in named.items()}
    columns = [_scores(scorer, others) for scorer in named.values()]
    return [
        HeldOutScores(dict(zip(named, scores, strict=True)), references)
        for scores in zip(*columns, strict=True)
    ]


def labelled(states: Sequence[JudgedList], embedder: Embedder) -> list[LabelledList]:
    """The states with their embeddings, verdicts and what became of them, in their order.

    Every candidate has a verdict: a ranker must not learn one that was invented. g(w) is counted
    along the run: a run that ends with an accepted move is taken for one that came to a right
    answer, and the moves from the state to its end are those that remain.
    """
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


@torch.inference_mode()
def _scores(scorer: Scorer, lists: Sequence[LabelledList]) -> list[FloatArray]:
    """Of every list, in ``SCORE_DIGITS`` digits; all rows at once, because most lists are short."""
    if not lists:
        return []
    scores = scorer(concatenate([item.rows for item in lists])).tolist()
    ends = np.cumsum([len(item.labels) for item in lists])
    return np.split(np.array(list(map(rounded, scores))), ends[:-1])


def named_scorers(heuristic: Heuristic) -> dict[str, Scorer]:
    """Every scorer of a heuristic, and the chance that the verifier rejects a move."""
    return {**scorers(heuristic), REJECT_PROBABILITY: heuristic.reject_probabilities}


def rounded(score: float) -> float:
    """In ``SCORE_DIGITS`` significant digits."""
    return float(f"{score:.{SCORE_DIGITS}g}")


def mean_dispersion(scorer: Scorer, lists: Sequence[LabelledList]) -> float:
    """sigma-bar: the mean of sigma(w) over lists of at least two moves."""
    return sum(dispersion(one.tolist()) for one in _scores(scorer, lists)) / len(lists)


def _ends(states: Sequence[JudgedList]) -> dict[bytes, tuple[int, bool]]:
    """For each beginning of a run: moves of its longest continuation, and if the last is right."""
    ends: dict[bytes, tuple[int, bool]] = {}
    for state in states:
        for key in _beginnings(state.recorded):
            ends[key] = max(ends.get(key, _end(state)), _end(state))
    return ends


def _end(state: JudgedList) -> tuple[int, bool]:
    """How long the run is after this state, and whether what it went on with was accepted.

    Where that is unknown, because a person wrote it, an accepted candidate will do.
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


def _check_contrast(train: Sequence[LabelledList], settings: Residual) -> None:
    for name, part in zip(("trained on", "held out"), split_lists(train, settings), strict=True):
        if not any(0 < sum(train[place].labels) < len(train[place].labels) for place in part):
            raise SchemaError(
                f"recorded lists: of {len(train)} lists for training, none of the {len(part)} "
                f"{name} holds both an accepted and a rejected move; expected at least one"
            )
