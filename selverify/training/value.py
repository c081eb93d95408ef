"""A conventional process reward model: a backbone tuned to say the value of each state.

Knows: the loss at the end of each move. Does not know: how the values were made, test problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from selverify.models.generators.checkpoints import save_reward_model
from selverify.models.tokenizer import Words
from selverify.models.verifiers.reward import ValueHead
from selverify.params import VerifierParams
from selverify.training.best import Best
from selverify.training.reproducible import one_thread
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import (
    Epoch,
    Report,
    as_tokens,
    held_out,
    length,
    load_model,
    of_problems,
    target,
    tune,
)

ROWS_AT_ONCE = 128


@one_thread()
def train_value_model(
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
    """Tune ``backbone`` under a new head on the values, and write both to ``folder``.

    Binary cross-entropy of the value at the last word of each move (Wang et al. 2024; Snell et al.
    2024). The epoch with the lowest loss on the held-out problems is kept.
    """
    torch.manual_seed(settings.seed)
    training, held = (of_problems(solutions, part) for part in held_out(solutions, settings))
    model = load_model(backbone)
    head = ValueHead(model.config.hidden_size)
    both = nn.ModuleList((model, head))
    end = words.ids[end_of_move]

    def loss_of(part: Sequence[ValuedSolution]) -> tuple[Tensor, int]:
        tokens, told, said = as_tokens([(one.text, one.moves) for one in part], words)
        ended = torch.stack(
            [
                functional.pad(row == end, (before, tokens.shape[1] - before - len(row)))
                for row, before in zip(said, told.tolist(), strict=True)
            ]
        )
        values = [target(value, settings.targets) for one in part for value in one.values]
        states = model.model(input_ids=tokens).last_hidden_state[ended]
        wanted = torch.tensor(values)
        return functional.binary_cross_entropy_with_logits(head.logit(states), wanted), len(wanted)

    def held_out_loss() -> float:
        total, steps = 0.0, 0
        with torch.inference_mode():
            for start in range(0, len(held), ROWS_AT_ONCE):
                loss, count = loss_of(held[start : start + ROWS_AT_ONCE])
                total, steps = total + float(loss) * count, steps + count
        return total / steps

    best = Best(both)
    best.offer(held_out_loss())
    epochs = tune(
        both,
        settings,
        [length(one.text, one.moves) for one in training],
        lambda rows: loss_of([training[row] for row in rows])[0],
        share=share,
    )
    for epoch, trained in enumerate(epochs):
        checked = held_out_loss()
        report(Epoch("backbone", epoch + 1, trained, checked))
        best.offer(checked)
    best.restore()
    save_reward_model(folder, model, head, words)
    return {"verifier_validation_loss": best.loss, "verifier_training_solutions": len(training)}
