"""Training of the process reward model from Monte-Carlo values (Wang et al. 2024).

Knows: soft and hard targets, the loss at the end of each move, early stopping on held-out training
problems. Does not know: how the values were made, test problems.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM

from selverify.backends.models import save_reward_model
from selverify.backends.reward import RewardHead, evidence
from selverify.params import Verifier
from selverify.tokenizer import Words

ROWS_AT_ONCE = 128
CERTAIN = -1e-6
"""Log values end here, so that the chance of failure keeps a logarithm."""


@dataclass(frozen=True, slots=True)
class ValuedSolution:
    """One sampled solution: its problem's text, its moves' texts, one value in [0, 1] a move."""

    problem_id: str
    text: str
    moves: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Epoch:
    """One line of the training log.

    ``part`` is ``backbone``, with the loss in nats a word, or ``head``, with the mean binary
    cross-entropy in nats a step, also on the held-out problems.
    """

    part: str
    epoch: int
    training_loss: float
    validation_loss: float | None


@dataclass(frozen=True, slots=True)
class _Data:
    """Solutions, padded to T moves; ``mask`` is 1 where there is a move."""

    seen: Tensor  # [S, T, SEEN]
    before: Tensor  # [S, T, D]
    wanted: Tensor  # [S, T]
    mask: Tensor  # [S, T]

    def take(self, rows: Tensor) -> _Data:
        return _Data(self.seen[rows], self.before[rows], self.wanted[rows], self.mask[rows])


def train_verifier(
    solutions: Sequence[ValuedSolution],
    settings: Verifier,
    words: Words,
    *,
    end_of_move: str,
    backbone: Path,
    folder: Path,
    report: Callable[[Epoch], None],
) -> dict[str, float]:
    """Tune ``backbone`` on what worked, fit a head on it and write both to ``folder``.

    To a head that learned from the very solutions the backbone was tuned on, every other problem
    would look wrong. So the head learns from cross-fitted evidence: each of two folds is judged by
    a backbone tuned on the other one. The backbone that is kept is tuned on both. A
    ``validation_fraction`` of the problems is held out of everything; the epoch of the head with
    the lowest loss there is kept. ``strength: weak`` keeps ``weak_fraction`` of the problems only.
    """
    torch.manual_seed(settings.seed)
    end = words.ids[end_of_move]
    generator = _load(backbone)
    first, second, validation = _split(solutions, settings)

    def judged(tuning: Sequence[ValuedSolution], part: Sequence[ValuedSolution]) -> _Data:
        model = _tuned(backbone, tuning, settings, words, report)
        return _gather((model, generator), part, settings, words, end)

    training = _join(judged(first, second), judged(second, first))
    model = _tuned(backbone, [*first, *second], settings, words, report)
    held_out = _gather((model, generator), validation, settings, words, end)
    head = RewardHead(model.config.hidden_size, settings.hidden)
    optimiser = torch.optim.AdamW(head.parameters(), lr=settings.rate, weight_decay=0.01)
    best, kept = float("inf"), {}
    for epoch in range(settings.epochs):
        for rows in torch.split(torch.randperm(len(training.mask)), settings.rows_per_batch):
            optimiser.zero_grad(set_to_none=True)
            _loss(head, training.take(rows)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.inference_mode():
            trained, validated = float(_loss(head, training)), float(_loss(head, held_out))
        report(Epoch("head", epoch + 1, trained, validated))
        if validated < best:
            best = validated
            kept = {name: value.clone() for name, value in head.state_dict().items()}
    head.load_state_dict(kept)
    save_reward_model(folder, model, head, words)
    return {"verifier_validation_loss": best, "verifier_training_solutions": len(training.mask)}


def _load(folder: Path) -> LlamaForCausalLM:
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    return model


def _tuned(
    backbone: Path,
    solutions: Sequence[ValuedSolution],
    settings: Verifier,
    words: Words,
    report: Callable[[Epoch], None],
) -> LlamaForCausalLM:
    """Make what reached the gold more probable, as in rejection sampling fine-tuning.

    A backbone that holds two readings of a sentence for possible learns here which of them led to
    right answers. The examples are the solutions up to their last step worth ``tune_value``.
    """
    model = _load(backbone)
    examples = [
        (one.text, one.moves[: last + 1])
        for one in solutions
        if (last := _last_worth(one.values, settings.tune_value)) is not None
    ]
    if not examples or not settings.tune_epochs:
        return model
    batches = -(-len(examples) // settings.tune_rows)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.tune_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=settings.tune_rate,
        total_steps=settings.tune_epochs * batches,
        pct_start=0.1,
        anneal_strategy="linear",
    )
    for epoch in range(settings.tune_epochs):
        losses = []
        for rows in torch.split(torch.randperm(len(examples)), settings.tune_rows):
            loss = _language_loss(model, [examples[row] for row in rows.tolist()], words)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append(float(loss.detach()))
        report(Epoch("backbone", epoch + 1, sum(losses) / len(losses), None))
    return model


def _last_worth(values: Sequence[float], least: float) -> int | None:
    return max((step for step, value in enumerate(values) if value >= least), default=None)


def _language_loss(
    model: LlamaForCausalLM, examples: Sequence[tuple[str, Sequence[str]]], words: Words
) -> Tensor:
    """Mean cross-entropy of the moves' words, in nats a word."""
    tokens, told, _ = _tokens(examples, words)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=tokens[:, :-1]).logits
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    ).view(len(tokens), -1)
    places = torch.arange(1, tokens.shape[1])
    said = (places >= told[:, None]) & (tokens[:, 1:] != words.pad)
    mean: Tensor = (losses * said).sum() / said.sum()
    return mean


def _tokens(
    examples: Sequence[tuple[str, Sequence[str]]], words: Words
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Words [rows, longest], how many of them the problem has [rows], and the moves' words."""
    told = [torch.tensor([words.bos, *words.encode(text)]) for text, _ in examples]
    said = [torch.tensor([w for m in moves for w in words.encode(m)]) for _, moves in examples]
    rows = [torch.cat(pair) for pair in zip(told, said, strict=True)]
    tokens = pad_sequence(rows, batch_first=True, padding_value=words.pad)
    return tokens, torch.tensor([len(row) for row in told]), said


def target(value: float, targets: str) -> float:
    """Soft: the share of rollouts that reach the gold. Hard: 1 if any rollout does."""
    return float(value > 0) if targets == "hard" else value


def _split(
    solutions: Sequence[ValuedSolution], settings: Verifier
) -> tuple[list[ValuedSolution], list[ValuedSolution], list[ValuedSolution]]:
    """The solutions of the two folds and of the problems held out."""
    problems = sorted({solution.problem_id for solution in solutions})
    random.Random(settings.seed).shuffle(problems)
    if settings.strength == "weak":
        problems = problems[: max(3, round(settings.weak_fraction * len(problems)))]
    held = max(1, round(settings.validation_fraction * len(problems)))
    half = held + (len(problems) - held) // 2
    first, second, held_out = (
        [solution for solution in solutions if solution.problem_id in chosen]
        for chosen in map(frozenset, (problems[held:half], problems[half:], problems[:held]))
    )
    return first, second, held_out


@torch.inference_mode()
def _gather(
    models: tuple[LlamaForCausalLM, LlamaForCausalLM],
    solutions: Sequence[ValuedSolution],
    settings: Verifier,
    words: Words,
    end: int,
) -> _Data:
    """What the head sees of each move: evidence from the first model, states of the second."""
    judge, generator = models
    seen, before, wanted = [], [], []
    for start in range(0, len(solutions), ROWS_AT_ONCE):
        part = solutions[start : start + ROWS_AT_ONCE]
        tokens, told, said = _tokens([(one.text, one.moves) for one in part], words)
        states = generator.model(input_ids=tokens).last_hidden_state
        logprobs = judge(input_ids=tokens[:, :-1]).logits.log_softmax(-1)
        ended = (tokens == end) | (torch.arange(tokens.shape[1]) < told[:, None])
        found = evidence(logprobs, tokens[:, 1:], ended[:, 1:])
        for row, solution in enumerate(part):
            ends = told[row] + torch.where(said[row] == end)[0]
            starts = torch.cat((told[row : row + 1] - 1, ends[:-1]))
            seen.append(found[row, ends - 1])
            before.append(states[row, starts])
            wanted.append(torch.tensor([target(v, settings.targets) for v in solution.values]))
    return _Data(
        pad_sequence(seen, batch_first=True),
        pad_sequence(before, batch_first=True),
        pad_sequence(wanted, batch_first=True),
        pad_sequence([torch.ones(len(one)) for one in wanted], batch_first=True),
    )


def _join(one: _Data, other: _Data) -> _Data:
    """All solutions of both, padded to the longer."""
    longest = max(one.mask.shape[1], other.mask.shape[1])

    def padded(values: Tensor) -> Tensor:
        room = longest - values.shape[1]
        return functional.pad(values, (0, 0) * (values.ndim - 2) + (0, room))

    return _Data(
        *(
            torch.cat((padded(getattr(one, name)), padded(getattr(other, name))))
            for name in ("seen", "before", "wanted", "mask")
        )
    )


def _loss(head: RewardHead, data: _Data) -> Tensor:
    """Mean binary cross-entropy of the values, in nats a step."""
    value = head(data.seen, data.before).clamp(max=CERTAIN)
    failure = torch.log1p(-value.exp())
    losses = -(data.wanted * value + (1 - data.wanted) * failure) * data.mask
    mean: Tensor = losses.sum() / data.mask.sum()
    return mean
