"""Training of a process reward model that judges moves by the log probabilities of their words.

Knows: rejection sampling fine-tuning, cross-fitting, the loss of the head. Does not know: how the
values were made, test problems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaForCausalLM

from selverify.models.generators.checkpoints import save_reward_model
from selverify.models.generators.decoder import Decoder
from selverify.models.generators.local import predicting, read_groups
from selverify.models.tokenizer import Words
from selverify.models.verifiers.reward import TokenLogprobHead, token_logprobs
from selverify.params import VerifierParams
from selverify.training.fit import Batches, ReportEpoch, adamw, fit
from selverify.training.language import encode, language_loss, pad
from selverify.training.reproducible import reproducible, side_by_side
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import held_out, load_trainable, of_problems, tune

_KEPT_WORDS = 20_000
"""Of problems, which several solutions begin with; 4 KiB each."""
_CERTAIN = -1e-6
"""Log values end here, so that the chance of failure keeps a logarithm."""


class _Data(NamedTuple):
    """Solutions, padded to T moves; ``mask`` is 1 where there is a move to learn from."""

    seen: Tensor  # [S, T, SEEN]
    before: Tensor  # [S, T, D]
    wanted: Tensor  # [S, T]
    mask: Tensor  # [S, T]


@reproducible()
def train_token_logprob_model(
    solutions: Sequence[ValuedSolution],
    settings: VerifierParams,
    words: Words,
    *,
    share: float,
    end_of_move: str,
    backbone: Path,
    folder: Path,
    report: ReportEpoch,
) -> dict[str, float]:
    """Tune ``backbone`` on right solutions, fit a head on it and write both to ``folder``.

    A head that learned from the solutions the backbone was tuned on would reject the moves of
    every other problem. So the head learns from cross-fitted log probabilities: each of two folds
    is judged by a backbone tuned on the other one. The backbone that is kept is tuned on both. A
    ``validation_fraction`` of the problems is held out of everything; the epoch of the head with
    the lowest loss there is kept.
    """
    torch.manual_seed(settings.seed)
    generator = load_trainable(backbone)
    problems, held = held_out(solutions, settings)
    half = len(problems) // 2
    first, second, validation = (
        of_problems(solutions, part) for part in (problems[:half], problems[half:], held)
    )
    tuned = partial(_tuned, settings=settings, words=words, report=report, share=share)
    gather = partial(_gather, generator=generator, words=words, end_of_move=end_of_move)

    # The longest first, and half of it each: two threads end together. Only one may load a model.
    parts = [*first, *second], first, second
    given = [(load_trainable(backbone), part) for part in parts]
    model, *halves = side_by_side(tuned, given, workers=2)
    judged = (halves[0], second), (halves[1], first), (model, validation)
    *crossed, unseen = side_by_side(gather, judged, workers=2)
    training, checked = _padded([row for part in crossed for row in part]), _padded(unseen)
    head = TokenLogprobHead(model.config.hidden_size, settings.hidden)
    count = len(training.mask)
    lowest = fit(
        "head",
        head,
        lambda rows: _loss(head, _Data(*(column[rows] for column in training))),
        Batches(count, settings.rows_per_batch, settings.epochs, share),
        update=adamw(head, rate=settings.rate, decay=0.01).step,
        report=report,
        validation=lambda: float(_loss(head, checked)),
    )
    save_reward_model(folder, model, head, words)
    return {"verifier_validation_loss": lowest, "verifier_training_solutions": count}


def _tuned(
    given: tuple[LlamaForCausalLM, Sequence[ValuedSolution]],
    stop: Event,
    *,
    settings: VerifierParams,
    words: Words,
    report: ReportEpoch,
    share: float,
) -> LlamaForCausalLM:
    """Make solutions that reached the gold more probable (rejection sampling fine-tuning).

    A backbone that gives two readings of a sentence some probability learns here which of them
    led to right answers. The examples are the solutions up to their last step worth ``tune_value``.
    """
    model, solutions = given
    examples = [
        encode(one.text, one.moves[: max(worth) + 1], words)
        for one in solutions
        if not one.explored
        and (
            worth := [step for step, value in enumerate(one.values) if value >= settings.tune_value]
        )
    ]

    def loss_of(rows: Tensor) -> Tensor:
        return language_loss(model, *pad([examples[row] for row in rows.tolist()], words), words)

    tune(model, settings, examples, loss_of, share=share, report=report, stop=stop)
    return model


@torch.inference_mode()
def _gather(
    given: tuple[LlamaForCausalLM, Sequence[ValuedSolution]],
    stop: Event,
    *,
    generator: LlamaForCausalLM,
    words: Words,
    end_of_move: str,
) -> list[tuple[Tensor, ...]]:
    """For each solution the columns of ``_Data``: log probabilities of the judge that it is given
    with, states of ``generator``. Each of the two reads a problem once for all its solutions."""
    judge, solutions = given
    end, decoder = words.ids[end_of_move], _decoder(judge)
    seen: dict[int, Tensor] = {}
    for place, ends, before, said in _read(decoder, solutions, words, stop):
        logprobs = decoder.logits(before).log_softmax(-1)
        seen[place] = token_logprobs(logprobs, said, said == end)[ends]
    states = {
        place: before[torch.cat((torch.zeros(1, dtype=torch.long), ends[:-1] + 1))]
        for place, ends, before, _ in _read(_decoder(generator), solutions, words, stop)
    }
    return [
        (
            seen[place],
            states[place],
            torch.tensor(one.values),
            (torch.arange(len(one.values)) >= one.fresh).to(torch.float32),
        )
        for place, one in enumerate(solutions)
    ]


def _read(
    decoder: Decoder, solutions: Sequence[ValuedSolution], words: Words, stop: Event
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """For each solution its index, the index of each move's last word [T], the state before each
    word [M, D] and the words [M]."""
    moves = [[words.encode(move) for move in one.moves] for one in solutions]
    groups = [
        ((words.bos, *words.encode(one.text)), [tuple(chain(*said))])
        for one, said in zip(solutions, moves, strict=True)
    ]
    for chosen, last, hidden, tokens in read_groups(decoder, groups):
        if stop.is_set():
            raise CancelledError
        before = predicting(last, hidden[:, 0])
        for line, place in enumerate(chosen):
            ends = torch.tensor([len(move) for move in moves[place]]).cumsum(0) - 1
            size = int(ends[-1]) + 1
            yield place, ends, before[line, :size], tokens[line, 0, :size]


def _decoder(model: LlamaForCausalLM) -> Decoder:
    return Decoder(model.config.to_dict(), model.state_dict(), capacity=_KEPT_WORDS)


def _padded(solutions: Sequence[tuple[Tensor, ...]]) -> _Data:
    columns = zip(*solutions, strict=True)
    return _Data(*(pad_sequence(list(column), batch_first=True) for column in columns))


def _loss(head: TokenLogprobHead, data: _Data) -> Tensor:
    """Mean binary cross-entropy of the values, in nats a step.

    A power instead of ``exp``, which a library computes differently on another processor.
    """
    log_value = head(data.seen, data.before).clamp(max=_CERTAIN)
    value = torch.pow(math.e, log_value)
    failing = functional.binary_cross_entropy(value, torch.zeros_like(value), reduction="none")
    losses = ((1 - data.wanted) * failing - data.wanted * log_value) * data.mask
    mean: Tensor = losses.sum() / data.mask.sum()
    return mean
