"""Training of the ranker's heads from verifier-labelled candidate lists: distance, residual,
acceptance, expected score.

Knows: L_rank (Eq. rank_loss), L_traj (Eq. traj_loss), their sum (Eq. training_loss), the learned
D_type, sigma-bar. Does not know: how lists were explored, the truth, test problems.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from tempfile import TemporaryFile
from threading import Event
from typing import IO

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.models.heuristic.embedding import SHARED, Embeddings
from selverify.models.heuristic.hybrid import Heuristic, PrintedHead, Scorer, scorers
from selverify.models.verifiers.head import StepHead, read_of
from selverify.params import Residual
from selverify.search.allocation import dispersion
from selverify.training.fit import Batches, ReportEpoch, Update, adamw, fit
from selverify.training.reproducible import reproducible, side_by_side

_DRAWS = 50
_ROWS_PER_BATCH = 1024
_ROWS_AT_ONCE = 16_384
"""That are scored together; the last part is up to twice as large, because a matrix product of few
rows may sum in another order."""
_MOST_STATES = 32_768
"""That the familiarity is learned from, and as many for its limit; scikit-learn copies them."""
_ROUNDING = 0.1
"""Of the largest number of a row: less than that is rounding, in bfloat16 too."""
_NO_ROWS = Embeddings(*(torch.empty(0) for _ in Embeddings._fields))
EXPECTED = "expected score"
PLAIN, WORDLESS, PRINTED = "plain residual", "wordless residual", "printed residual"
"""Heads that some uses do without, and how they are named while they are trained."""
_Training = Callable[..., None]
"""Of one head, from the data to learn from and the data to check it by."""


@dataclass(frozen=True, slots=True)
class LabelledList:
    """One state's survivors: their embeddings, verifier labels, and the end of the trajectory.

    ``remaining`` is g(w), the accepted moves from this state to a right answer along its
    trajectory, or None when the trajectory reached none. ``committed`` is the row committed.
    ``scores`` are the verifier's, in [0, 1]; where it gave none, the labels stand for them.
    """

    problem_id: str
    rows: Embeddings
    labels: tuple[bool, ...]
    committed: int | None
    remaining: int | None
    scores: tuple[float, ...] = ()


class MappedLists:
    """Lists whose embeddings are in memory-mapped files, z_w and z_w* once a list.

    ``items`` are the lists without their embeddings, ``starts`` the position of each one's first
    row among the rows of all, and their number. The files are in the folder for temporary ones
    (``TMPDIR``) without a name: they end when nothing maps them, at the latest with the process.
    """

    def __init__(self, lists: Iterable[LabelledList]) -> None:
        """Reads ``lists`` once and holds the embeddings of one at a time.

        Raises:
            ArtifactError: the files cannot be made, or their disk is full.
            SchemaError: z_w or z_w* of the moves of one list differ by more than rounding.
        """
        self.items: list[LabelledList] = []
        widths = [torch.Size()] * len(Embeddings._fields)
        with ExitStack() as stack:
            files = [stack.enter_context(_unnamed()) for _ in Embeddings._fields]
            for item in lists:
                for file, name, column in zip(files, Embeddings._fields, item.rows, strict=True):
                    kept = _shared(column, name, item.problem_id) if name in SHARED else column
                    _write(file, kept.float().numpy().tobytes())
                widths = [column.shape[1:] for column in item.rows]
                self.items.append(replace(item, rows=_NO_ROWS))
            counts = [len(item.labels) for item in self.items]
            self.starts = [0, *accumulate(counts)]
            shapes = [
                (len(counts) if name in SHARED else self.starts[-1], *width)
                for name, width in zip(Embeddings._fields, widths, strict=True)
            ]
            self._columns = Embeddings(*map(_mapped, files, shapes))
        self._list_of = torch.repeat_interleave(torch.tensor(counts, dtype=torch.long))

    def take(self, rows: Tensor) -> Embeddings:
        """The rows at these positions among those of all lists, in that order."""
        own = self._list_of[rows]
        columns = zip(Embeddings._fields, self._columns, strict=True)
        return Embeddings(*(column[own if name in SHARED else rows] for name, column in columns))

    def rows(self, place: int) -> Embeddings:
        """The embeddings of the list at ``place``."""
        return self.take(torch.arange(self.starts[place], self.starts[place + 1]))

    def parts(self) -> Iterator[tuple[Embeddings, list[int]]]:
        """The embeddings of all lists, those of some at once, and how many rows each has."""
        place = 0
        while place < len(self.items):
            start, left = self.starts[place], self.starts[-1] - self.starts[place]
            end = bisect_right(self.starts, start + _ROWS_AT_ONCE) - 1
            end = len(self.items) if left < 2 * _ROWS_AT_ONCE else max(place + 1, end)
            rows = self.take(torch.arange(start, self.starts[end]))
            yield rows, [len(item.labels) for item in self.items[place:end]]
            place = end

    def states(self, places: Sequence[int]) -> Tensor:
        """z_w of the lists at ``places``, or of evenly spaced ones of too many: [lists, D]."""
        return self._columns.state[list(places[:: math.ceil(len(places) / _MOST_STATES) or 1])]


def _shared(column: Tensor, name: str, problem_id: str) -> Tensor:
    """The row [D] that all moves of a list have in this column."""
    first = column[0]
    if (column - first).abs().max() > _ROUNDING * first.abs().max():
        raise SchemaError(
            f"{problem_id}: given moves of one state with different rows of {name!r}, expected "
            "the same row"
        )
    return first


def _unnamed() -> IO[bytes]:
    """A file without a buffer, so that what cannot be written is known at once."""
    with _one_sentence():
        return TemporaryFile(buffering=0)


def _write(file: IO[bytes], data: bytes) -> None:
    with _one_sentence():
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]


@contextmanager
def _one_sentence() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"TMPDIR: embeddings are kept in a temporary folder, which says {error.strerror}; "
            "expected space there, or another folder"
        ) from error


def _mapped(file: IO[bytes], shape: tuple[int, ...]) -> Tensor:
    if not math.prod(shape):  # an empty file cannot be mapped
        return torch.empty(shape)
    return torch.from_numpy(np.memmap(file, np.float32, "r+")).view(shape)


@dataclass(frozen=True, slots=True)
class _Data:
    """A part of the lists: which rows are theirs, and indices into these rows."""

    lists: MappedLists
    rows: Tensor  # [rows]: positions among the rows of all lists
    accepted: Tensor  # [rows]: 1 where the verifier accepted
    scores: Tensor  # [rows]: what it gave
    pairs: Tensor  # [pairs, 2]: accepted row, rejected row
    path_rows: Tensor  # committed rows of right trajectories
    path_steps: Tensor  # g(w) of their states

    def take(self, chosen: Tensor) -> Embeddings:
        """The embeddings of these of the part's rows, in that order."""
        return self.lists.take(self.rows[chosen])

    def scores_of(self, scorer: Scorer) -> Tensor:
        """What ``scorer`` gives each of the part's rows [rows]."""
        parts = max(1, len(self.rows) // _ROWS_AT_ONCE)
        cuts = [_ROWS_AT_ONCE * part for part in range(1, parts)]
        places = torch.arange(len(self.rows))
        return torch.cat([scorer(self.take(part)) for part in places.tensor_split(cuts)])


def split_lists(lists: Sequence[LabelledList], settings: Residual) -> tuple[list[int], list[int]]:
    """Places of training and held-out lists; a problem's lists stay together (seeded).

    The first draw in ``_DRAWS`` counts that gives both parts a list with an order to learn, where
    these are few; without such a draw the first that gives the training one, or else the first one.
    """
    problems = sorted({item.problem_id for item in lists})
    rng = random.Random(settings.seed)
    contrasting = {item.problem_id for item in lists if 0 < sum(item.labels) < len(item.labels)}
    most = max(1, len(problems) - 1)
    count = min(most, max(1, round(settings.validation_fraction * len(problems))))
    draws = []
    for _ in range(_DRAWS):
        rng.shuffle(problems)
        draws.append(set(problems[:count]))
        if contrasting & draws[-1] and contrasting - draws[-1]:
            held = draws[-1]
            break
    else:
        held = next((drawn for drawn in draws if contrasting - drawn), draws[0])
    return (
        [place for place, item in enumerate(lists) if item.problem_id not in held],
        [place for place, item in enumerate(lists) if item.problem_id in held],
    )


@reproducible()
def train_policy(
    lists: MappedLists,
    settings: Residual,
    *,
    report: ReportEpoch,
    also: Collection[str] = (EXPECTED, PLAIN, WORDLESS, PRINTED),
) -> tuple[Heuristic, dict[str, float]]:
    """The trained heuristic, and sigma-bar of each scorer over all ``lists``.

    ``familiarity`` is fitted first, then the distance, which is frozen. The residual is ranked on
    ``settings.rank_on`` (h = D + r, or r alone as the paper prints it) and the epoch that orders
    most held-out pairs rightly is kept; without such a pair, the last one. The acceptance is fitted
    to all labels, and the expected score to all scores. The residuals for comparison see the same
    batches as the first. Of these and the expected score, those that ``also`` does not name are
    left as they are made. Two heads are trained at a time, so ``report`` is called from two threads
    at once.

    Raises:
        SchemaError: no training list has both an accepted and a rejected move.
        ProtocolError: what was learned is not a number.
    """
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    training, held = split_lists(lists.items, settings)
    data, checked = (_gather(lists, part, settings, rng) for part in (training, held))
    if not len(data.pairs):
        raise SchemaError(
            f"exploration.lists: none of {len(training)} training lists holds both an accepted and "
            "a rejected move; expected some (is exploration.tau out of the verifier's range?)"
        )
    one = lists.rows(0)
    heuristic = Heuristic(one.state.shape[1], one.token_logprobs.shape[1], settings.hidden)
    states = lists.states(training), lists.states(held)
    heuristic.familiarity.fit(*states, familiar=settings.familiar)
    _fit_distance(heuristic, data, settings, report)
    start = torch.random.get_rng_state()

    def trained(chain: Sequence[_Training], stop: Event) -> None:
        draws = torch.Generator().set_state(start)
        for training in chain:
            training(data, checked, draws=draws, report=report, stop=stop)

    side_by_side(trained, _trainings(heuristic, settings, also), workers=2)
    if any(weight.isnan().any() for weight in heuristic.parameters()):
        raise ProtocolError(
            "training: given weights of the ranker that are not numbers, expected numbers (is "
            "residual.rate too high?)"
        )
    return heuristic.eval(), reference_dispersion(heuristic, lists)


def _trainings(
    heuristic: Heuristic, settings: Residual, also: Collection[str]
) -> list[list[_Training]]:
    """Chains of trainings, the longest first; every chain begins with the same draws, and within
    one each training goes on with those of the one before."""
    local = settings.model_copy(update={"trajectory_weight": 0.0})
    ordered = partial(_ordered, heuristic, settings=settings)
    residual = partial(_fit_residual, settings=settings)
    probability = partial(_fit_probability, settings=settings)
    plain, wordless, printed = heuristic.plain, heuristic.wordless, heuristic.printed
    own: list[_Training] = [
        partial(residual, heuristic.residual, "residual", scorer=ordered(heuristic.residual)),
        partial(probability, heuristic.acceptance, "acceptance", of="accepted"),
    ]
    if EXPECTED in also:
        own.append(partial(probability, heuristic.expected, EXPECTED, of="scores"))
    compared: dict[str, _Training] = {
        PLAIN: partial(residual, plain, PLAIN, scorer=ordered(plain), settings=local),
        WORDLESS: partial(residual, wordless, WORDLESS, scorer=ordered(wordless)),
        PRINTED: partial(residual, printed, PRINTED, scorer=printed),
    }
    return [own, *([one] for name, one in compared.items() if name in also)]


def reference_dispersion(heuristic: Heuristic, lists: MappedLists) -> dict[str, float]:
    """sigma-bar: the mean of sigma(w) over the exploration log, for each scorer."""
    named = scorers(heuristic)
    found = {name: array("d") for name in named}
    with torch.inference_mode():
        for rows, counts in lists.parts():
            for name, scorer in named.items():
                by_list = torch.split(scorer(rows), counts)
                found[name].extend(dispersion(one.tolist()) for one in by_list)
    return {name: sum(spreads) / len(lists.items) for name, spreads in found.items()}


def _gather(
    lists: MappedLists, places: Sequence[int], settings: Residual, rng: random.Random
) -> _Data:
    rows, pairs, path_rows = array("q"), array("q"), array("q")
    labels, scores, path_steps = array("f"), array("f"), array("f")
    start = 0
    for place in places:
        item = lists.items[place]
        accepted = [start + row for row, label in enumerate(item.labels) if label]
        rejected = [start + row for row, label in enumerate(item.labels) if not label]
        if accepted and rejected:
            for _ in range(settings.pairs_per_state):
                pairs.extend((rng.choice(accepted), rng.choice(rejected)))
        if item.remaining is not None and item.committed is not None:
            path_rows.append(start + item.committed)
            path_steps.append(item.remaining)
        rows.extend(range(*lists.starts[place : place + 2]))
        labels.extend(item.labels)
        scores.extend(item.scores or item.labels)
        start += len(item.labels)
    return _Data(
        lists,
        torch.from_numpy(np.array(rows)),
        torch.from_numpy(np.array(labels)),
        torch.from_numpy(np.array(scores)),
        torch.from_numpy(np.array(pairs)).reshape(-1, 2),
        torch.from_numpy(np.array(path_rows)),
        torch.from_numpy(np.array(path_steps)),
    )


def _fit_distance(
    heuristic: Heuristic, data: _Data, settings: Residual, report: ReportEpoch
) -> None:
    """Regress the remaining steps after each committed move of a right trajectory."""
    left = data.path_steps - 1

    def loss_of(chosen: Tensor) -> Tensor:
        rows = data.take(data.path_rows[chosen])
        distances = heuristic.distance(rows.after, rows.goal)
        return functional.smooth_l1_loss(distances, left[chosen])

    fit(
        "distance",
        heuristic.distance,
        loss_of,
        Batches(len(left), _ROWS_PER_BATCH, settings.epochs),
        update=_update(heuristic.distance, settings),
        report=report,
    )
    heuristic.distance.requires_grad_(False)


def _ordered(heuristic: Heuristic, residual: PrintedHead, *, settings: Residual) -> Scorer:
    """What L_rank orders while ``residual`` is trained."""
    return heuristic.with_residual(residual) if settings.rank_on == "hybrid" else residual


def _fit_residual(
    module: PrintedHead,
    name: str,
    data: _Data,
    checked: _Data,
    *,
    scorer: Scorer,
    settings: Residual,
    draws: torch.Generator,
    report: ReportEpoch,
    stop: Event,
) -> None:
    """Fit ``module`` so that ``scorer`` orders pairs.

    A batch's loss is L_rank + trajectory_weight L_traj (Eq. training_loss).
    """

    def loss_of(chosen: Tensor) -> Tensor:
        loss = _rank_loss(scorer, data, data.pairs[chosen])
        return loss + settings.trajectory_weight * _trajectory_loss(module, data, settings, draws)

    fit(
        name,
        module,
        loss_of,
        Batches(len(data.pairs), _ROWS_PER_BATCH, settings.epochs, draws=draws),
        update=_update(module, settings),
        report=report,
        validation=partial(_out_of_order, scorer, checked) if len(checked.pairs) else None,
        stop=stop,
    )


def _fit_probability(
    head: StepHead,
    name: str,
    data: _Data,
    checked: _Data,
    *,
    of: str,
    settings: Residual,
    draws: torch.Generator,
    report: ReportEpoch,
    stop: Event,
) -> None:
    """Fit the log odds of what the verifier said of all moves, by cross-entropy.

    ``of``: a column of the data, ``accepted`` or ``scores``.
    """
    wanted, held_wanted = getattr(data, of), getattr(checked, of)
    loss = functional.binary_cross_entropy_with_logits

    def odds(rows: Embeddings) -> Tensor:
        found: Tensor = head(read_of(rows))
        return found

    fit(
        name,
        head,
        lambda chosen: loss(odds(data.take(chosen)), wanted[chosen]),
        Batches(len(wanted), _ROWS_PER_BATCH // 4, settings.epochs, draws=draws),
        update=_update(head, settings),
        report=report,
        validation=lambda: float(loss(checked.scores_of(odds), held_wanted)),
        stop=stop,
    )


def _rank_loss(scorer: Scorer, data: _Data, pairs: Tensor) -> Tensor:
    """E[log(1 + exp(s(m+) - s(m-)))]: accepted moves are to score lower (Eq. rank_loss)."""
    return functional.softplus(
        scorer(data.take(pairs[:, 0])) - scorer(data.take(pairs[:, 1]))
    ).mean()


def _trajectory_loss(
    residual: PrintedHead, data: _Data, settings: Residual, draws: torch.Generator
) -> Tensor:
    """E[(r(w_i, m_i) - alpha g(w_i))^2] over a batch of committed moves (Eq. traj_loss)."""
    if not len(data.path_rows):
        return torch.zeros(())
    size = (min(_ROWS_PER_BATCH, len(data.path_rows)),)
    chosen = torch.randint(len(data.path_rows), size, generator=draws)
    predicted = residual(data.take(data.path_rows[chosen]))
    return functional.mse_loss(predicted, settings.trajectory_scale * data.path_steps[chosen])


def _out_of_order(scorer: Scorer, data: _Data) -> float:
    """The share of pairs that the scorer orders wrongly; ties count as wrong.

    NaN where a score is.
    """
    scores = data.scores_of(scorer)
    if scores.isnan().any():
        return math.nan
    ordered = scores[data.pairs[:, 0]] < scores[data.pairs[:, 1]]
    return 1.0 - float(ordered.float().mean())


def _update(module: torch.nn.Module, settings: Residual) -> Update:
    return adamw(module, rate=settings.rate, decay=settings.weight_decay).step
