"""Training of the ranker's heads from verifier-labelled candidate lists: distance, residual,
acceptance, expected score.

Knows: L_rank (Eq. rank_loss), L_traj (Eq. traj_loss), their sum (Eq. training_loss), the learned
D_type, sigma-bar. Does not know: how lists were explored, the truth, test problems.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from selverify.errors import SchemaError
from selverify.models.heuristic.embedding import Embeddings, concatenate
from selverify.models.heuristic.hybrid import Heuristic, PrintedHead, Scorer, scorers
from selverify.models.verifiers.head import StepHead, read_of
from selverify.params import Residual
from selverify.search.allocation import dispersion
from selverify.training.fit import Batches, ReportEpoch, Update, adamw, fit
from selverify.training.reproducible import one_thread

_DRAWS = 50
_ROWS_PER_BATCH = 1024
EXPECTED = "expected score"
PLAIN, WORDLESS, PRINTED = "plain residual", "wordless residual", "printed residual"
"""Heads that some uses do without, and how they are named while they are trained."""


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


@dataclass(frozen=True, slots=True)
class _Data:
    """All rows one below the other, and indices into them."""

    rows: Embeddings
    accepted: Tensor  # [rows]: 1 where the verifier accepted
    scores: Tensor  # [rows]: what it gave
    pairs: Tensor  # [pairs, 2]: accepted row, rejected row
    path_rows: Tensor  # committed rows of right trajectories
    path_steps: Tensor  # g(w) of their states


def split_lists(
    lists: Sequence[LabelledList], settings: Residual
) -> tuple[list[LabelledList], list[LabelledList]]:
    """Training and held-out lists; a problem's lists stay together (seeded).

    The first draw in ``_DRAWS`` counts that gives both parts a list with an order to learn, where
    these are few; without such a draw the first one.
    """
    problems = sorted({item.problem_id for item in lists})
    rng = random.Random(settings.seed)
    contrasting = {item.problem_id for item in lists if 0 < sum(item.labels) < len(item.labels)}
    draws = []
    for _ in range(_DRAWS):
        rng.shuffle(problems)
        draws.append(set(problems[: max(1, round(settings.validation_fraction * len(problems)))]))
        if contrasting & draws[-1] and contrasting - draws[-1]:
            break
    else:
        draws = draws[:1]
    held = draws[-1]
    return (
        [item for item in lists if item.problem_id not in held],
        [item for item in lists if item.problem_id in held],
    )


@one_thread()
def train_policy(
    lists: Sequence[LabelledList],
    settings: Residual,
    *,
    report: ReportEpoch,
    also: Collection[str] = (EXPECTED, PLAIN, WORDLESS, PRINTED),
) -> tuple[Heuristic, dict[str, float]]:
    """The trained heuristic, and sigma-bar of each scorer over all ``lists``.

    ``familiarity`` is fitted first, then the distance, which is frozen. The residual is ranked on
    ``settings.rank_on`` (h = D + r, or r alone as the paper prints it) and the epoch that orders
    most held-out pairs rightly is kept. The acceptance is fitted to all labels, and the expected
    score to all scores. The residuals for comparison see the same batches as the first. Of these
    and the expected score, those that ``also`` does not name are left as they are made.

    Raises:
        SchemaError: no training list has both an accepted and a rejected move.
    """
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    training, held = split_lists(lists, settings)
    data, checked = _gather(training, settings, rng), _gather(held, settings, rng)
    if not len(data.pairs):
        raise SchemaError(
            f"exploration.lists: none of {len(training)} training lists holds both an accepted and "
            "a rejected move; expected some (is exploration.tau out of the verifier's range?)"
        )
    heuristic = Heuristic(
        data.rows.state.shape[1], data.rows.token_logprobs.shape[1], settings.hidden
    )
    heuristic.familiarity.fit(_states(training), _states(held), familiar=settings.familiar)
    _fit_distance(heuristic, data, settings, report)
    start = torch.random.get_rng_state()
    fitted = partial(_fit_residual, data=data, checked=checked, settings=settings, report=report)
    fitted(heuristic.residual, "residual", scorer=_ordered(heuristic, heuristic.residual, settings))
    for name, head, wanted, held_wanted in (
        ("acceptance", heuristic.acceptance, data.accepted, checked.accepted),
        (EXPECTED, heuristic.expected, data.scores, checked.scores),
    ):
        if name != EXPECTED or name in also:
            pairs = (data.rows, wanted), (checked.rows, held_wanted)
            _fit_probability(name, head, *pairs, settings=settings, report=report)
    local = settings.model_copy(update={"trajectory_weight": 0.0})
    for name, module, scorer, how in (
        (PLAIN, heuristic.plain, _ordered(heuristic, heuristic.plain, local), local),
        (
            WORDLESS,
            heuristic.wordless,
            _ordered(heuristic, heuristic.wordless, settings),
            settings,
        ),
        (PRINTED, heuristic.printed, heuristic.printed, settings),
    ):
        if name in also:
            with torch.random.fork_rng(devices=()):
                torch.random.set_rng_state(start)
                fitted(module, name, scorer=scorer, settings=how)
    return heuristic.eval(), reference_dispersion(heuristic, lists)


def reference_dispersion(heuristic: Heuristic, lists: Sequence[LabelledList]) -> dict[str, float]:
    """sigma-bar: the mean of sigma(w) over the exploration log, for each scorer."""
    with torch.inference_mode():
        return {
            name: sum(dispersion(scorer(item.rows).tolist()) for item in lists) / len(lists)
            for name, scorer in scorers(heuristic).items()
        }


def _states(lists: Sequence[LabelledList]) -> Tensor:
    """z_w of each list, [lists, D]."""
    return torch.stack([item.rows.state[0] for item in lists])


def _gather(lists: Sequence[LabelledList], settings: Residual, rng: random.Random) -> _Data:
    labels: list[bool] = []
    scores: list[float] = []
    pairs: list[tuple[int, int]] = []
    path_rows: list[int] = []
    path_steps: list[int] = []
    start = 0
    for item in lists:
        accepted = [start + row for row, label in enumerate(item.labels) if label]
        rejected = [start + row for row, label in enumerate(item.labels) if not label]
        if accepted and rejected:
            pairs += [
                (rng.choice(accepted), rng.choice(rejected))
                for _ in range(settings.pairs_per_state)
            ]
        if item.remaining is not None and item.committed is not None:
            path_rows.append(start + item.committed)
            path_steps.append(item.remaining)
        labels += item.labels
        scores += item.scores or map(float, item.labels)
        start += len(item.labels)
    return _Data(
        concatenate([item.rows for item in lists]),
        torch.tensor(labels, dtype=torch.float32),
        torch.tensor(scores, dtype=torch.float32),
        torch.tensor(pairs, dtype=torch.long).reshape(-1, 2),
        torch.tensor(path_rows, dtype=torch.long),
        torch.tensor(path_steps, dtype=torch.float32),
    )


def _fit_distance(
    heuristic: Heuristic, data: _Data, settings: Residual, report: ReportEpoch
) -> None:
    """Regress the remaining steps after each committed move of a right trajectory."""
    rows = data.rows.take(data.path_rows)
    left = data.path_steps - 1

    def loss_of(chosen: Tensor) -> Tensor:
        distances = heuristic.distance(rows.after[chosen], rows.goal[chosen])
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


def _ordered(heuristic: Heuristic, residual: PrintedHead, settings: Residual) -> Scorer:
    """What L_rank orders while ``residual`` is trained."""
    return heuristic.with_residual(residual) if settings.rank_on == "hybrid" else residual


def _fit_residual(
    module: PrintedHead,
    name: str,
    *,
    scorer: Scorer,
    data: _Data,
    checked: _Data,
    settings: Residual,
    report: ReportEpoch,
) -> None:
    """Fit ``module`` so that ``scorer`` orders pairs.

    A batch's loss is L_rank + trajectory_weight L_traj (Eq. training_loss).
    """

    def loss_of(chosen: Tensor) -> Tensor:
        loss = _rank_loss(scorer, data.rows, data.pairs[chosen])
        return loss + settings.trajectory_weight * _trajectory_loss(module, data, settings)

    fit(
        name,
        module,
        loss_of,
        Batches(len(data.pairs), _ROWS_PER_BATCH, settings.epochs),
        update=_update(module, settings),
        report=report,
        validation=lambda: _out_of_order(scorer, checked),
    )


def _fit_probability(
    name: str,
    head: StepHead,
    learned: tuple[Embeddings, Tensor],
    held: tuple[Embeddings, Tensor],
    *,
    settings: Residual,
    report: ReportEpoch,
) -> None:
    """Fit the log odds of what the verifier said of all moves, by cross-entropy."""
    rows, wanted = learned

    def loss(rows: Embeddings, wanted: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(head(read_of(rows)), wanted)

    fit(
        name,
        head,
        lambda chosen: loss(rows.take(chosen), wanted[chosen]),
        Batches(len(wanted), _ROWS_PER_BATCH // 4, settings.epochs),
        update=_update(head, settings),
        report=report,
        validation=lambda: float(loss(*held)),
    )


def _rank_loss(scorer: Scorer, rows: Embeddings, pairs: Tensor) -> Tensor:
    """E[log(1 + exp(s(m+) - s(m-)))]: accepted moves are to score lower (Eq. rank_loss)."""
    return functional.softplus(
        scorer(rows.take(pairs[:, 0])) - scorer(rows.take(pairs[:, 1]))
    ).mean()


def _trajectory_loss(residual: PrintedHead, data: _Data, settings: Residual) -> Tensor:
    """E[(r(w_i, m_i) - alpha g(w_i))^2] over a batch of committed moves (Eq. traj_loss)."""
    if not len(data.path_rows):
        return torch.zeros(())
    chosen = torch.randint(len(data.path_rows), (min(_ROWS_PER_BATCH, len(data.path_rows)),))
    predicted = residual(data.rows.take(data.path_rows[chosen]))
    return functional.mse_loss(predicted, settings.trajectory_scale * data.path_steps[chosen])


def _out_of_order(scorer: Scorer, data: _Data) -> float:
    """The share of pairs that the scorer orders wrongly; ties count as wrong."""
    if not len(data.pairs):
        return 1.0
    scores = scorer(data.rows)
    ordered = scores[data.pairs[:, 0]] < scores[data.pairs[:, 1]]
    return 1.0 - float(ordered.float().mean())


def _update(module: torch.nn.Module, settings: Residual) -> Update:
    return adamw(module, rate=settings.rate, decay=settings.weight_decay).step
