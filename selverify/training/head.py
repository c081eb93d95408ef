"""Training of a head on a frozen generator's hidden states, from Monte-Carlo values.

Knows: the loss (Wang et al. 2024; Snell et al. 2024). Does not know: how values or hidden states
were made, test problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from selverify.domains.base import Domain
from selverify.errors import SchemaError
from selverify.models.heuristic.embedding import Embed, Embeddings, concatenate
from selverify.models.verifiers.head import StepHead, save_head, single_steps
from selverify.params import VerifierParams
from selverify.search.requests import VerifyItem
from selverify.training.best import Best
from selverify.training.reproducible import adamw, one_thread
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import (
    Epoch,
    Report,
    allowed,
    held_out,
    of_problems,
    target,
)
from selverify.types import Move


def train_head(
    solutions: Sequence[ValuedSolution],
    settings: VerifierParams,
    domain: Domain,
    embed: Embed,
    *,
    share: float,
    backbone: str,
    folder: Path,
    report: Report,
) -> dict[str, float]:
    """Train a head on the values of all steps and write it to ``folder``; its losses.

    Binary cross-entropy with the values as targets. The epoch of the lowest loss on the held-out
    problems is kept; after ``share`` of all batches the training stops.
    """
    torch.manual_seed(settings.seed)
    parts = [of_problems(solutions, part) for part in held_out(solutions, settings)]
    (rows, wanted), (held_rows, held_wanted) = (
        (_embedded(part, domain, embed), _targets(part, settings)) for part in parts
    )
    sizes = (rows.after.shape[1], rows.token_logprobs.shape[1], settings.hidden)
    head = StepHead(*sizes)
    loss = _fit(
        head, (rows, wanted), (held_rows, held_wanted), settings, share=share, report=report
    )
    save_head(folder, head, sizes=sizes, backbone=backbone)
    return {"verifier_validation_loss": loss, "verifier_training_solutions": len(parts[0])}


@one_thread()
def _fit(
    head: StepHead,
    training: tuple[Embeddings, Tensor],
    held: tuple[Embeddings, Tensor],
    settings: VerifierParams,
    *,
    share: float,
    report: Report,
) -> float:
    """Fit ``head`` to the first rows and values; the lowest loss on the held-out ones."""
    rows, wanted = training
    best = Best(head)
    best.offer(_loss(head, *held))
    optimiser = adamw(head, rate=settings.rate, decay=0.01)
    per_epoch = -(-len(wanted) // settings.rows_per_batch)
    left = allowed(settings.epochs * per_epoch, share)
    epoch = 0
    while left:
        losses = []
        for chosen in torch.split(torch.randperm(len(wanted)), settings.rows_per_batch)[:left]:
            odds = head(rows.take(chosen))
            loss = functional.binary_cross_entropy_with_logits(odds, wanted[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(float(loss.detach()))
        left, epoch = left - len(losses), epoch + 1
        checked = _loss(head, *held)
        report(Epoch("head", epoch, sum(losses) / len(losses), checked))
        best.offer(checked)
    best.restore()
    return best.loss


@torch.inference_mode()
def _loss(head: StepHead, rows: Embeddings, wanted: Tensor) -> float:
    return float(functional.binary_cross_entropy_with_logits(head(rows), wanted))


def _targets(solutions: Sequence[ValuedSolution], settings: VerifierParams) -> Tensor:
    return torch.tensor(
        [target(value, settings.targets) for one in solutions for value in one.values]
    )


def _embedded(solutions: Sequence[ValuedSolution], domain: Domain, embed: Embed) -> Embeddings:
    """A row a step, as tensors that can be learned from."""
    items = [item for one in solutions for item in single_steps(whole_solution(one, domain))]
    rows = concatenate(embed(items))
    return Embeddings(*(getattr(rows, field.name).clone() for field in fields(Embeddings)))


def whole_solution(solution: ValuedSolution, domain: Domain) -> VerifyItem:
    """All steps of a valued solution, to be judged together.

    Raises:
        SchemaError: a step that the domain cannot read.
    """
    problem = domain.read(solution.text, problem_id=solution.problem_id)
    moves = [domain.parse(text) for text in solution.moves]
    taken = tuple(move for move in moves if isinstance(move, Move))
    if len(taken) < len(moves):
        raise SchemaError(
            f"rollouts.values: {solution.problem_id}: given a step that cannot be read, expected "
            f"steps of {domain.name}"
        )
    return VerifyItem(domain.initial_state(problem, budget=1), taken)
