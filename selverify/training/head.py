"""Training of a head on a frozen generator's hidden states, from values of steps.

Knows: the loss (Wang et al. 2024; Snell et al. 2024). Does not know: how values or hidden states
were made, test problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from selverify.domains.base import Domain
from selverify.models.heuristic.embedding import Embed, concatenate, packed, unpacked
from selverify.models.verifiers.head import StepHead, StepRead, read_of, save_head, single_steps
from selverify.params import VerifierParams
from selverify.search.requests import VerifyItem
from selverify.training.exploration import parse_moves
from selverify.training.fit import Batches, ReportEpoch, adamw, fit
from selverify.training.reproducible import reproducible
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import held_out, of_problems


def train_head(
    solutions: Sequence[ValuedSolution],
    settings: VerifierParams,
    domain: Domain,
    embed: Embed,
    *,
    share: float,
    backbone: str,
    folder: Path,
    report: ReportEpoch,
) -> dict[str, float]:
    """Train a head on the values of all steps and write it to ``folder``; its losses.

    Binary cross-entropy with the values as targets. The epoch of the lowest loss on the held-out
    problems is kept; after ``share`` of all batches the training stops.

    Args:
        embed: what reads the moves of solutions without ``embedded``.
    """
    torch.manual_seed(settings.seed)
    embedded = embed_moves(solutions, domain, embed)
    parts = [of_problems(embedded, part) for part in held_out(solutions, settings)]
    (rows, wanted), held = map(_read, parts)
    sizes = (rows.after.shape[1], rows.token_logprobs.shape[1], settings.hidden)
    head = StepHead(*sizes)
    with reproducible():
        lowest = fit(
            "head",
            head,
            lambda chosen: _loss(head, StepRead(*(one[chosen] for one in rows)), wanted[chosen]),
            Batches(len(wanted), settings.rows_per_batch, settings.epochs, share),
            update=adamw(head, rate=settings.rate, decay=0.01).step,
            report=report,
            validation=lambda: float(_loss(head, *held)),
            keep_start=True,
        )
    save_head(folder, head, sizes=sizes, backbone=backbone)
    return {"verifier_validation_loss": lowest, "verifier_training_solutions": len(parts[0])}


def _loss(head: StepHead, read: StepRead, wanted: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(head(read), wanted)


def embed_moves(
    solutions: Sequence[ValuedSolution], domain: Domain, embed: Embed
) -> list[ValuedSolution]:
    """The same with ``embedded``: what a head reads of the moves to learn from, a row a move.

    Those that have it stay as they are.
    """
    items = [
        [] if one.embedded else single_steps(whole_solution(one, domain))[one.fresh :]
        for one in solutions
    ]
    every = [item for own in items for item in own]
    rows = iter(embed(every) if every else ())
    return [
        replace(one, embedded=packed(read_of(concatenate([next(rows) for _ in own]))._asdict()))
        if own
        else one
        for one, own in zip(solutions, items, strict=True)
    ]


def _read(solutions: Sequence[ValuedSolution]) -> tuple[StepRead, Tensor]:
    """What is read of the moves to learn from, and their targets."""
    parts = [StepRead(**unpacked(one.embedded)) for one in solutions if one.embedded]
    wanted = [value for one in solutions for value in one.values[one.fresh :]]
    return StepRead(*map(torch.cat, zip(*parts, strict=True))), torch.tensor(wanted)


def whole_solution(solution: ValuedSolution, domain: Domain) -> VerifyItem:
    """All steps of a valued solution, to be judged together.

    Raises:
        SchemaError: a step that the domain cannot read.
    """
    problem = domain.read(solution.text, problem_id=solution.problem_id)
    where = f"rollouts.values: {solution.problem_id}"
    moves = parse_moves(domain, solution.moves, where=where)
    return VerifyItem(domain.initial_state(problem, budget=1), moves)
