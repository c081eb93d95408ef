"""Training of the process reward model from Monte-Carlo values (Wang et al. 2024).

Knows: soft and hard targets, the loss at the end of each move, early stopping on held-out training
problems. Does not know: how the values were made, test problems.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForTokenClassification

from selverify.params import Verifier
from selverify.tokenizer import Words


@dataclass(frozen=True, slots=True)
class ValuedSolution:
    """One sampled solution: its problem's text, its moves' texts, one value in [0, 1] a move."""

    problem_id: str
    text: str
    moves: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One line of the training log: mean binary cross-entropy in nats a step."""

    epoch: int
    training_loss: float
    validation_loss: float


def train_verifier(
    solutions: Sequence[ValuedSolution],
    settings: Verifier,
    words: Words,
    *,
    renaming: Callable[[random.Random], Mapping[str, str]],
    backbone: Path,
    folder: Path,
    report: Callable[[Epoch], None],
) -> dict[str, float]:
    """Fine-tune the backbone with one output a word and write the best epoch to ``folder``.

    Words are exchanged by a fresh ``renaming`` for every solution and epoch, because a few hundred
    problems are otherwise learned by heart. The validation problems are a seeded
    ``validation_fraction`` of the training problems; the epoch with the lowest loss on them is
    kept. ``strength: weak`` keeps ``weak_fraction`` of the problems only.
    """
    torch.manual_seed(settings.seed)
    training, validation = _split(solutions, settings)
    model = LlamaForTokenClassification.from_pretrained(
        backbone, num_labels=1, attn_implementation="eager", dtype=torch.float32
    )
    rng = random.Random(settings.seed)
    batches = _batches(training, settings, words)
    held_out = _batches(validation, settings, words)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.rate, weight_decay=0.01)
    total = settings.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=settings.rate, total_steps=total, pct_start=0.1
    )
    best, kept = float("inf"), {}
    for epoch in range(settings.epochs):
        rng.shuffle(batches)
        losses = []
        for tokens, wanted in batches:
            renamed = _rename(tokens, words, [renaming(rng) for _ in tokens])
            loss = _loss(model, renamed, wanted)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append(float(loss.detach()))
        with torch.inference_mode():
            validated = _mean([float(_loss(model, *batch)) for batch in held_out])
        report(Epoch(epoch + 1, _mean(losses), validated))
        if validated < best:
            best = validated
            kept = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)
    model.save_pretrained(folder)
    return {"verifier_validation_loss": best, "verifier_training_solutions": len(training)}


def target(value: float, targets: str) -> float:
    """Soft: the share of rollouts that reach the gold. Hard: 1 if any rollout does."""
    return float(value > 0) if targets == "hard" else value


def _split(
    solutions: Sequence[ValuedSolution], settings: Verifier
) -> tuple[list[ValuedSolution], list[ValuedSolution]]:
    problems = sorted({solution.problem_id for solution in solutions})
    random.Random(settings.seed).shuffle(problems)
    if settings.strength == "weak":
        problems = problems[: max(2, round(settings.weak_fraction * len(problems)))]
    held = set(problems[: max(1, round(settings.validation_fraction * len(problems)))])
    chosen = set(problems) - held
    return (
        [solution for solution in solutions if solution.problem_id in chosen],
        [solution for solution in solutions if solution.problem_id in held],
    )


def _batches(
    solutions: Sequence[ValuedSolution], settings: Verifier, words: Words
) -> list[tuple[Tensor, Tensor]]:
    """Words [rows, longest] and targets [rows, longest], -1 where a word ends no move."""
    ordered = sorted(solutions, key=lambda s: len(s.text) + sum(map(len, s.moves)))
    size = settings.rows_per_batch
    chunks = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [_pad([_encode(s, settings.targets, words) for s in chunk], words) for chunk in chunks]


def _encode(solution: ValuedSolution, targets: str, words: Words) -> tuple[list[int], list[float]]:
    ids = [words.bos, *words.encode(solution.text)]
    wanted = [-1.0] * len(ids)
    for move, value in zip(solution.moves, solution.values, strict=True):
        said = words.encode(move)
        ids += said
        wanted += [-1.0] * (len(said) - 1) + [target(value, targets)]
    return ids, wanted


def _pad(rows: Sequence[tuple[list[int], list[float]]], words: Words) -> tuple[Tensor, Tensor]:
    longest = max(len(ids) for ids, _ in rows)
    tokens = torch.full((len(rows), longest), words.pad)
    wanted = torch.full((len(rows), longest), -1.0)
    for row, (ids, values) in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids)
        wanted[row, : len(ids)] = torch.tensor(values)
    return tokens, wanted


def _rename(tokens: Tensor, words: Words, renamings: Sequence[Mapping[str, str]]) -> Tensor:
    """Words [rows, longest] with each row's words exchanged."""
    tables = torch.arange(len(words.words)).repeat(len(tokens), 1)
    for row, renaming in enumerate(renamings):
        old = torch.tensor([words.ids[word] for word in renaming], dtype=torch.long)
        tables[row, old] = torch.tensor([words.ids[w] for w in renaming.values()], dtype=torch.long)
    return tables.gather(1, tokens)


def _loss(model: LlamaForTokenClassification, tokens: Tensor, wanted: Tensor) -> Tensor:
    logits = model(input_ids=tokens).logits.squeeze(-1)
    ends = wanted >= 0
    return functional.binary_cross_entropy_with_logits(logits[ends], wanted[ends])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
