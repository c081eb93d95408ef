"""Training of distance, residual and acceptance from verifier-labelled candidate lists.

Knows: L_rank (Eq. rank_loss), L_traj (Eq. traj_loss), their sum (Eq. training_loss), the learned
D_type, sigma-bar. Does not know: how lists were explored, the truth, test problems.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from selverify.allocation import dispersion
from selverify.errors import SchemaError
from selverify.heuristic.embedding import Embeddings, concatenate
from selverify.heuristic.hybrid import Heuristic, cosine_distance
from selverify.params import Residual

ROWS_PER_BATCH = 1024


@dataclass(frozen=True, slots=True)
class LabelledList:
    """One state's survivors: their embeddings, verifier labels and what became of the state.

    ``remaining`` is g(w), the accepted moves from this state to a right answer along its
    trajectory, or None when the trajectory reached none. ``committed`` is the row committed.
    """

    problem_id: str
    rows: Embeddings
    labels: tuple[bool, ...]
    committed: int | None
    remaining: int | None


@dataclass(frozen=True, slots=True)
class Epoch:
    """One line of the training log, with what is looked at on held-out problems.

    That is, for the part ``residual``, the share of pairs in order; for ``acceptance`` the loss.
    """

    part: str
    epoch: int
    loss: float
    held_out: float


@dataclass(frozen=True, slots=True)
class _Data:
    """All rows one below the other, and indices into them."""

    rows: Embeddings
    accepted: Tensor  # [rows]: 1 where the verifier accepted
    pairs: Tensor  # [pairs, 2]: accepted row, rejected row
    path_rows: Tensor  # committed rows of right trajectories
    path_steps: Tensor  # g(w) of their states


def split_lists(
    lists: Sequence[LabelledList], settings: Residual
) -> tuple[list[LabelledList], list[LabelledList]]:
    """Training and held-out lists; a problem's lists stay together (seeded)."""
    problems = sorted({item.problem_id for item in lists})
    random.Random(settings.seed).shuffle(problems)
    held = set(problems[: max(1, round(settings.validation_fraction * len(problems)))])
    return (
        [item for item in lists if item.problem_id not in held],
        [item for item in lists if item.problem_id in held],
    )


def train_policy(
    lists: Sequence[LabelledList], settings: Residual, *, report: Callable[[Epoch], None]
) -> tuple[Heuristic, dict[str, float]]:
    """The trained heuristic, and sigma-bar of each scorer over all ``lists``.

    The distance is fitted first and then frozen; the residual is ranked on ``settings.rank_on``
    (h = D + r, or r alone as the paper prints it) and the epoch that orders most held-out pairs
    rightly is kept. The acceptance is fitted last, to all labels.

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
    heuristic = Heuristic(data.rows.state.shape[1], data.rows.evidence.shape[1], settings.hidden)
    _fit_distance(heuristic, data, settings)
    _fit_residual(heuristic, data, checked, settings, report)
    _fit_acceptance(heuristic, data, checked, settings, report)
    return heuristic.eval(), reference_dispersion(heuristic, lists)


def reference_dispersion(heuristic: Heuristic, lists: Sequence[LabelledList]) -> dict[str, float]:
    """sigma-bar: the mean of sigma(w) over the exploration log, for each scorer."""
    found: dict[str, float] = {}
    with torch.inference_mode():
        for name, scorer in scorers(heuristic).items():
            sigmas = [dispersion(scorer(item.rows).tolist()) for item in lists]
            found[name] = sum(sigmas) / len(sigmas)
    return found


def scorers(heuristic: Heuristic) -> dict[str, Callable[[Embeddings], Tensor]]:
    """Every scorer by the name that a search asks for; lower ranks first."""
    return {
        "likelihood": lambda rows: -rows.logprob,
        "distance_cosine": lambda rows: cosine_distance(rows.after, rows.goal),
        "distance": heuristic.distances,
        "residual": heuristic.residuals,
        "hybrid": heuristic,
    }


def _gather(lists: Sequence[LabelledList], settings: Residual, rng: random.Random) -> _Data:
    labels: list[bool] = []
    pairs: list[tuple[int, int]] = []
    path: list[tuple[int, int]] = []
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
            path.append((start + item.committed, item.remaining))
        labels += item.labels
        start += len(item.labels)
    rows = [row for row, _ in path]
    steps = [step for _, step in path]
    return _Data(
        concatenate([item.rows for item in lists]),
        torch.tensor(labels, dtype=torch.float32),
        torch.tensor(pairs, dtype=torch.long).reshape(-1, 2),
        torch.tensor(rows, dtype=torch.long),
        torch.tensor(steps, dtype=torch.float32),
    )


def _fit_distance(heuristic: Heuristic, data: _Data, settings: Residual) -> None:
    """Regress the remaining steps after each committed move of a right trajectory."""
    if not len(data.path_rows):
        heuristic.distance.requires_grad_(False)
        return
    after = data.rows.after[data.path_rows]
    goal = data.rows.goal[data.path_rows]
    left = data.path_steps - 1
    optimiser = _optimiser(heuristic.distance, settings)
    for _ in range(settings.epochs):
        for rows in torch.split(torch.randperm(len(left)), ROWS_PER_BATCH):
            loss = functional.smooth_l1_loss(
                heuristic.distance(after[rows], goal[rows]), left[rows]
            )
            _descend(optimiser, loss)
    heuristic.distance.requires_grad_(False)


def _fit_residual(
    heuristic: Heuristic,
    data: _Data,
    checked: _Data,
    settings: Residual,
    report: Callable[[Epoch], None],
) -> None:
    optimiser = _optimiser(heuristic.residual, settings)
    best, kept = -1.0, heuristic.residual.state_dict()
    for epoch in range(settings.epochs):
        losses = []
        for chosen in torch.split(torch.randperm(len(data.pairs)), ROWS_PER_BATCH):
            loss = _rank_loss(heuristic, data.rows, data.pairs[chosen], settings.rank_on)
            loss = loss + settings.trajectory_weight * _trajectory_loss(heuristic, data, settings)
            _descend(optimiser, loss)
            losses.append(float(loss.detach()))
        accuracy = _pair_accuracy(heuristic, checked, settings.rank_on)
        report(Epoch("residual", epoch + 1, sum(losses) / max(1, len(losses)), accuracy))
        if accuracy > best:
            best = accuracy
            kept = _copy(heuristic.residual)
    heuristic.residual.load_state_dict(kept)


def _fit_acceptance(
    heuristic: Heuristic,
    data: _Data,
    checked: _Data,
    settings: Residual,
    report: Callable[[Epoch], None],
) -> None:
    """Fit the probability of the verifier's labels; the epoch of lowest held-out loss is kept."""
    optimiser = _optimiser(heuristic.acceptance, settings)
    best, kept = float("inf"), heuristic.acceptance.state_dict()
    for epoch in range(settings.epochs):
        losses = []
        for rows in torch.split(torch.randperm(len(data.accepted)), ROWS_PER_BATCH // 4):
            loss = _label_loss(heuristic, data.rows.take(rows), data.accepted[rows])
            _descend(optimiser, loss)
            losses.append(float(loss.detach()))
        with torch.inference_mode():
            held_out = float(_label_loss(heuristic, checked.rows, checked.accepted))
        report(Epoch("acceptance", epoch + 1, sum(losses) / len(losses), held_out))
        if held_out < best:
            best = held_out
            kept = _copy(heuristic.acceptance)
    heuristic.acceptance.load_state_dict(kept)


def _label_loss(heuristic: Heuristic, rows: Embeddings, accepted: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(heuristic.acceptance(rows), accepted)


def _copy(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def _rank_loss(heuristic: Heuristic, rows: Embeddings, pairs: Tensor, rank_on: str) -> Tensor:
    """E[log(1 + exp(s(m+) - s(m-)))]: accepted moves are to score lower (Eq. rank_loss)."""
    scorer = scorers(heuristic)[rank_on]
    return functional.softplus(
        scorer(rows.take(pairs[:, 0])) - scorer(rows.take(pairs[:, 1]))
    ).mean()


def _trajectory_loss(heuristic: Heuristic, data: _Data, settings: Residual) -> Tensor:
    """E[(r(w_i, m_i) - alpha g(w_i))^2] over a batch of committed moves (Eq. traj_loss)."""
    if not len(data.path_rows):
        return torch.zeros(())
    chosen = torch.randint(len(data.path_rows), (min(ROWS_PER_BATCH, len(data.path_rows)),))
    predicted = heuristic.residuals(data.rows.take(data.path_rows[chosen]))
    return functional.mse_loss(predicted, settings.trajectory_scale * data.path_steps[chosen])


def _pair_accuracy(heuristic: Heuristic, data: _Data, rank_on: str) -> float:
    if not len(data.pairs):
        return 0.0
    with torch.inference_mode():
        scores = scorers(heuristic)[rank_on](data.rows)
        ordered = scores[data.pairs[:, 0]] < scores[data.pairs[:, 1]]
    return float(ordered.float().mean())


def _optimiser(module: torch.nn.Module, settings: Residual) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        module.parameters(), lr=settings.rate, weight_decay=settings.weight_decay
    )


def _descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
