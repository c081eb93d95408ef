"""What the process reward models share: folds of valued solutions, and the tuning of a backbone.

Knows: how a backbone is tuned on batches of solutions. Does not know: which loss, which head.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from selverify.errors import SchemaError
from selverify.params import VerifierParams
from selverify.storage import check_digests
from selverify.training.fit import Batches, ReportEpoch, fit, one_cycle
from selverify.training.language import Encoded, length
from selverify.training.rollouts import ValuedSolution

_FEWEST_PROBLEMS = 3
"""One of each fold, and one held out."""
_SORTED_BATCHES = 16


def load_trainable(folder: Path) -> LlamaForCausalLM:
    """A backbone's own model, for training.

    Raises:
        ArtifactError, SchemaError: a file is missing, or damaged.
    """
    check_digests(folder)
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    return model


def held_out(
    solutions: Sequence[ValuedSolution], settings: VerifierParams
) -> tuple[list[str], list[str]]:
    """Problems to learn from, and the ``validation_fraction`` that is held out (seeded).

    Raises:
        SchemaError: fewer than three problems have a solution.
    """
    problems = sorted({solution.problem_id for solution in solutions})
    random.Random(settings.seed).shuffle(problems)
    if len(problems) < _FEWEST_PROBLEMS:
        raise SchemaError(
            f"rollouts.values: solutions of {len(problems)} problems, expected of at least "
            f"{_FEWEST_PROBLEMS}"
        )
    held = min(len(problems) - 2, max(1, round(settings.validation_fraction * len(problems))))
    return problems[held:], problems[:held]


def of_problems(
    solutions: Sequence[ValuedSolution], problems: Sequence[str]
) -> list[ValuedSolution]:
    """The solutions of these problems, in their order."""
    chosen = frozenset(problems)
    return [solution for solution in solutions if solution.problem_id in chosen]


def with_targets(solutions: Sequence[ValuedSolution], targets: str) -> list[ValuedSolution]:
    """The same with what a reward model is to learn of each step in place of its value.

    ``soft``: the value, the share of rollouts that reach the gold. ``hard``: 1 if any does.
    ``relative``: as ``relative`` has it. ``written``: the value, which is 0 or 1.
    """
    if targets == "relative":
        return relative(solutions)
    if targets == "hard":
        return [replace(one, values=tuple(float(v > 0) for v in one.values)) for one in solutions]
    return list(solutions)


def relative(solutions: Sequence[ValuedSolution]) -> list[ValuedSolution]:
    """The same with the share of the value before that is left after each step, at most 1.

    So a right step of a problem that is seldom solved counts as right, as one of an easy problem
    does. A solution ends before its first step to learn from at a state from which nothing is
    solved, where a wrong step could not be seen; one without other steps is left out.
    """
    found = []
    for one in solutions:
        shares: list[float] = []
        for before, after in zip(one.before, one.values, strict=True):
            if not before and len(shares) >= one.fresh:
                break
            shares.append(min(1.0, after / before) if before else 1.0)
        if len(shares) > one.fresh:
            moves = one.moves[: len(shares)]
            found.append(replace(one, moves=moves, values=tuple(shares), embedded=b""))
    return found


def tune(
    module: nn.Module,
    settings: VerifierParams,
    examples: Sequence[Encoded],
    loss_of: Callable[[Tensor], Tensor],
    *,
    share: float,
    report: ReportEpoch,
    validation: Callable[[], float] | None = None,
    stop: Event | None = None,
) -> float:
    """Tune every weight of ``module`` on a ``share`` of the batches of ``examples``, by ``fit``.

    Batches are drawn from ``settings.seed`` alone: another thread may draw at the same time.
    """
    batches = BatchesOfLike(
        count=len(examples),
        rows=settings.tune_rows,
        epochs=settings.tune_epochs,
        share=share,
        lengths=tuple(length(row) for row in examples),
        draws=torch.Generator().manual_seed(settings.seed),
    )
    return fit(
        "backbone",
        module,
        loss_of,
        batches,
        update=one_cycle(module, rate=settings.tune_rate, batches=max(1, batches.total)),
        report=report,
        validation=validation,
        keep_start=True,
        stop=stop,
    )


@dataclass(frozen=True, kw_only=True)
class BatchesOfLike(Batches):
    """Batches of examples whose ``lengths`` are alike.

    Padded to the longest of its batch, a row then costs little more than it is long.
    """

    lengths: Sequence[int]
    draws: torch.Generator = field(kw_only=True)

    def epoch(self) -> Sequence[Tensor]:
        """Sorted by length are the rows of a few batches together, so that batches stay random."""
        order = torch.randperm(self.count, generator=self.draws).tolist()
        together = _SORTED_BATCHES * self.rows
        batches = [
            batch
            for start in range(0, self.count, together)
            for ranked in [sorted(order[start : start + together], key=self.lengths.__getitem__)]
            for batch in torch.split(torch.tensor(ranked), self.rows)
        ]
        return [batches[at] for at in torch.randperm(len(batches), generator=self.draws).tolist()]
