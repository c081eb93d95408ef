"""Training of a process reward model that judges moves by how probable their words are.

Knows: rejection sampling fine-tuning, cross-fitting, the loss of the head. Does not know: how the
values were made, test problems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM

from selverify.models.generators.checkpoints import save_reward_model
from selverify.models.tokenizer import Words
from selverify.models.verifiers.reward import TokenLogprobHead, token_logprobs
from selverify.params import VerifierParams
from selverify.training.best import Best
from selverify.training.reproducible import Stop, adamw, one_thread, side_by_side
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import (
    Epoch,
    Report,
    allowed,
    as_tokens,
    held_out,
    length,
    load_model,
    of_problems,
    target,
    tune,
)

ROWS_AT_ONCE = 32
CERTAIN = -1e-6
"""Log values end here, so that the chance of failure keeps a logarithm."""


@dataclass(frozen=True, slots=True)
class _Data:
    """Solutions, padded to T moves; ``mask`` is 1 where there is a move."""

    seen: Tensor  # [S, T, SEEN]
    before: Tensor  # [S, T, D]
    wanted: Tensor  # [S, T]
    mask: Tensor  # [S, T]

    def take(self, rows: Tensor) -> _Data:
        return _Data(self.seen[rows], self.before[rows], self.wanted[rows], self.mask[rows])


@one_thread()
def train_token_logprob_model(
    solutions: Sequence[ValuedSolution],
    settings: VerifierParams,
    words: Words,
    *,
    share: float,
    end_of_move: str,
    backbone: Path,
    folder: Path,
    report: Report,
) -> dict[str, float]:
    """Tune ``backbone`` on what worked, fit a head on it and write both to ``folder``.

    To a head that learned from the very solutions the backbone was tuned on, every other problem
    would look wrong. So the head learns from cross-fitted log probabilities: each of two folds
    is judged by a backbone tuned on the other one. The backbone that is kept is tuned on both. A
    ``validation_fraction`` of the problems is held out of everything; the epoch of the head with
    the lowest loss there is kept.
    """
    torch.manual_seed(settings.seed)
    end = words.ids[end_of_move]
    generator = load_model(backbone)
    first, second, validation = _split(solutions, settings)

    def tuned(
        given: tuple[LlamaForCausalLM, Sequence[ValuedSolution]], stop: Stop
    ) -> LlamaForCausalLM:
        return _tuned(*given, settings, words, report, share=share, stop=stop)

    def judged(judge: LlamaForCausalLM, part: Sequence[ValuedSolution]) -> _Data:
        return _gather((judge, generator), part, settings, words, end)

    # The longest first, and half of it each: two threads end together. Only one may load a model.
    parts = [*first, *second], first, second
    given = [(load_model(backbone), part) for part in parts]
    model, *halves = side_by_side(tuned, given, workers=2)
    training = _join(judged(halves[0], second), judged(halves[1], first))
    checked = judged(model, validation)
    head = TokenLogprobHead(model.config.hidden_size, settings.hidden)
    optimiser = adamw(head, rate=settings.rate, decay=0.01)
    best = Best(head)
    left = allowed(settings.epochs * -(-len(training.mask) // settings.rows_per_batch), share)
    for epoch in range(settings.epochs):
        for rows in torch.split(torch.randperm(len(training.mask)), settings.rows_per_batch)[:left]:
            left -= 1
            optimiser.zero_grad(set_to_none=True)
            _loss(head, training.take(rows)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.inference_mode():
            trained, validated = float(_loss(head, training)), float(_loss(head, checked))
        report(Epoch("head", epoch + 1, trained, validated))
        best.offer(validated)
    best.restore()
    save_reward_model(folder, model, head, words)
    return {
        "verifier_validation_loss": best.loss,
        "verifier_training_solutions": len(training.mask),
    }


def _tuned(
    model: LlamaForCausalLM,
    solutions: Sequence[ValuedSolution],
    settings: VerifierParams,
    words: Words,
    report: Report,
    *,
    share: float,
    stop: Stop,
) -> LlamaForCausalLM:
    """Make what reached the gold more probable, as in rejection sampling fine-tuning.

    A backbone that holds two readings of a sentence for possible learns here which of them led to
    right answers. The examples are the solutions up to their last step worth ``tune_value``.
    """
    examples = [
        (one.text, one.moves[: last + 1])
        for one in solutions
        if (last := _last_worth(one.values, settings.tune_value)) is not None
    ]

    lengths = [length(*example) for example in examples]

    def loss_of(rows: list[int]) -> Tensor:
        stop.check()
        return _language_loss(model, [examples[row] for row in rows], words)

    for epoch, loss in enumerate(tune(model, settings, lengths, loss_of, share=share)):
        report(Epoch("backbone", epoch + 1, loss, None))
    return model


def _last_worth(values: Sequence[float], least: float) -> int | None:
    return max((step for step, value in enumerate(values) if value >= least), default=None)


def _language_loss(
    model: LlamaForCausalLM, examples: Sequence[tuple[str, Sequence[str]]], words: Words
) -> Tensor:
    """Mean cross-entropy of the moves' words, in nats a word."""
    tokens, told, _ = as_tokens(examples, words)
    logits = model(input_ids=tokens[:, :-1]).logits
    losses = functional.cross_entropy(
        logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    ).view(len(tokens), -1)
    places = torch.arange(1, tokens.shape[1])
    said = (places >= told[:, None]) & (tokens[:, 1:] != words.pad)
    mean: Tensor = (losses * said).sum() / said.sum()
    return mean


def _split(
    solutions: Sequence[ValuedSolution], settings: VerifierParams
) -> tuple[list[ValuedSolution], list[ValuedSolution], list[ValuedSolution]]:
    """The solutions of the two folds and of the problems held out."""
    problems, held = held_out(solutions, settings)
    half = len(problems) // 2
    return (
        of_problems(solutions, problems[:half]),
        of_problems(solutions, problems[half:]),
        of_problems(solutions, held),
    )


@torch.inference_mode()
def _gather(
    models: tuple[LlamaForCausalLM, LlamaForCausalLM],
    solutions: Sequence[ValuedSolution],
    settings: VerifierParams,
    words: Words,
    end: int,
) -> _Data:
    """What the head sees of each move: log probabilities of one model, states of the other."""
    judge, generator = models
    found: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
    order = sorted(range(len(solutions)), key=lambda row: length(*_told(solutions[row])))
    for start in range(0, len(order), ROWS_AT_ONCE):
        rows = order[start : start + ROWS_AT_ONCE]
        tokens, told, said = as_tokens([_told(solutions[row]) for row in rows], words)
        states = generator.model(input_ids=tokens).last_hidden_state
        logprobs = judge(input_ids=tokens[:, :-1]).logits.log_softmax(-1)
        ended = (tokens == end) | (torch.arange(tokens.shape[1]) < told[:, None])
        seen = token_logprobs(logprobs, tokens[:, 1:], ended[:, 1:])
        for place, row in enumerate(rows):
            ends = told[place] + torch.where(said[place] == end)[0]
            starts = torch.cat((told[place : place + 1] - 1, ends[:-1]))
            wanted = [target(value, settings.targets) for value in solutions[row].values]
            found[row] = seen[place, ends - 1], states[place, starts], torch.tensor(wanted)
    columns = list(zip(*(found[row] for row in range(len(solutions))), strict=True))
    mask = [torch.ones(len(wanted)) for wanted in columns[2]]
    return _Data(*(pad_sequence(list(column), batch_first=True) for column in (*columns, mask)))


def _told(solution: ValuedSolution) -> tuple[str, Sequence[str]]:
    return solution.text, solution.moves


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


def _loss(head: TokenLogprobHead, data: _Data) -> Tensor:
    """Mean binary cross-entropy of the values, in nats a step.

    The power stands for ``exp``, which a library computes otherwise on another processor.
    """
    log_value = head(data.seen, data.before).clamp(max=CERTAIN)
    value = torch.pow(math.e, log_value)
    failing = functional.binary_cross_entropy(value, torch.zeros_like(value), reduction="none")
    losses = ((1 - data.wanted) * failing - data.wanted * log_value) * data.mask
    mean: Tensor = losses.sum() / data.mask.sum()
    return mean
