"""What both kinds of process reward model share: valued solutions, folds, and the tuning loop.

Knows: how a backbone is tuned on batches of solutions. Does not know: which loss, which head.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM

from selverify.errors import SchemaError
from selverify.models.tokenizer import Words
from selverify.params import VerifierParams
from selverify.storage import check_digests
from selverify.training.reproducible import adamw
from selverify.training.rollouts import ValuedSolution


@dataclass(frozen=True, slots=True)
class Epoch:
    """One line of the training log.

    ``part`` is ``backbone`` or ``head``. Losses are in nats a word (the backbone of kind
    token_logprobs) or a step, ``validation_loss`` on held-out problems.
    """

    part: str
    epoch: int
    training_loss: float
    validation_loss: float | None


LEAST = 3
"""Problems: one of each fold, and one held out."""
POOL = 16
"""Batches whose rows are sorted by length together."""
Report = Callable[[Epoch], None]


def load_model(folder: Path) -> LlamaForCausalLM:
    """A backbone's own model, for training.

    Raises:
        ArtifactError, SchemaError: a file is missing, or damaged.
    """
    check_digests(folder)
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    return model


def target(value: float, targets: str) -> float:
    """Soft: the share of rollouts that reach the gold. Hard: 1 if any rollout does."""
    return float(value > 0) if targets == "hard" else value


def held_out(
    solutions: Sequence[ValuedSolution], settings: VerifierParams
) -> tuple[list[str], list[str]]:
    """Problems to learn from, and the ``validation_fraction`` that is held out (seeded).

    Raises:
        SchemaError: fewer than three problems have a solution.
    """
    problems = sorted({solution.problem_id for solution in solutions})
    random.Random(settings.seed).shuffle(problems)
    if len(problems) < LEAST:
        raise SchemaError(
            f"rollouts.values: solutions of {len(problems)} problems, expected of at least {LEAST}"
        )
    held = min(len(problems) - 2, max(1, round(settings.validation_fraction * len(problems))))
    return problems[held:], problems[:held]


def of_problems(
    solutions: Sequence[ValuedSolution], problems: Sequence[str]
) -> list[ValuedSolution]:
    """The solutions of these problems, in their order."""
    chosen = frozenset(problems)
    return [solution for solution in solutions if solution.problem_id in chosen]


def values_before(
    solution: ValuedSolution, solutions: Sequence[ValuedSolution]
) -> tuple[float, ...]:
    """The value of the state before each step; at the start the share of ``solutions`` of the
    problem that are right."""
    ends = [one.values[-1] for one in solutions if one.problem_id == solution.problem_id]
    return (sum(ends) / len(ends), *solution.values[:-1])


def as_tokens(
    examples: Sequence[tuple[str, Sequence[str]]], words: Words
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Words [rows, longest], how many of them the problem has [rows], and the moves' words."""
    told = [torch.tensor([words.bos, *words.encode(text)]) for text, _ in examples]
    said = [torch.tensor([w for m in moves for w in words.encode(m)]) for _, moves in examples]
    rows = [torch.cat(pair) for pair in zip(told, said, strict=True)]
    tokens = pad_sequence(rows, batch_first=True, padding_value=words.pad)
    return tokens, torch.tensor([len(row) for row in told]), said


def length(text: str, moves: Sequence[str]) -> int:
    """Words of a problem and the moves."""
    return len(text.split()) + sum(len(move.split()) for move in moves)


def allowed(batches: int, share: float) -> int:
    """How many of these batches are learned from, at least one: a weak model stops early."""
    return max(1, round(batches * share)) if batches else 0


def tune(
    module: nn.Module,
    settings: VerifierParams,
    lengths: Sequence[int],
    loss_of: Callable[[list[int]], Tensor],
    *,
    share: float,
) -> Iterator[float]:
    """Tune every weight of ``module`` on examples of these ``lengths``; yields each epoch's loss.

    ``loss_of`` gives the mean loss of the examples with these indices. The rate rises for a tenth
    of the batches and then falls to nothing; after ``share`` of them the tuning stops. Batches are
    drawn anew from ``settings.seed``, whatever else is drawn meanwhile.
    """
    draws = torch.Generator().manual_seed(settings.seed)
    batches = settings.tune_epochs * -(-len(lengths) // settings.tune_rows)
    left = allowed(batches, share)
    if not left:
        return
    optimiser = adamw(module, rate=settings.tune_rate, decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=settings.tune_rate,
        total_steps=batches,
        pct_start=0.1,
        anneal_strategy="linear",
    )
    while left:
        losses = []
        for rows in batches_of_like(lengths, settings.tune_rows, draws)[:left]:
            loss = loss_of(rows)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append(float(loss.detach()))
        left -= len(losses)
        yield sum(losses) / len(losses)


def batches_of_like(lengths: Sequence[int], rows: int, draws: torch.Generator) -> list[list[int]]:
    """All indices in random batches of at most ``rows`` whose lengths are alike.

    Padded to the longest of its batch, a row then costs little more than it is long.
    """
    order = torch.randperm(len(lengths), generator=draws).tolist()
    pools = [order[start : start + POOL * rows] for start in range(0, len(order), POOL * rows)]
    batches = [
        ranked[start : start + rows]
        for ranked in (sorted(pool, key=lengths.__getitem__) for pool in pools)
        for start in range(0, len(ranked), rows)
    ]
    return [batches[place] for place in torch.randperm(len(batches), generator=draws).tolist()]
