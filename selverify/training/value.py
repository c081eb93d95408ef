"""A conventional process reward model: a backbone tuned to predict the value of each state.

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
from selverify.training.fit import ReportEpoch
from selverify.training.language import Encoded, encode, pad
from selverify.training.reproducible import reproducible
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import held_out, load_trainable, of_problems, tune

_ROWS_AT_ONCE = 128
_Example = tuple[Encoded, list[float | None]]
"""A solution and the targets of its steps; None where another solution has the step."""


@reproducible()
def train_value_model(
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
    """Tune ``backbone`` under a new head on the values, and write both to ``folder``.

    Binary cross-entropy of the value at the last word of each move (Wang et al. 2024; Snell et al.
    2024). The epoch with the lowest loss on the held-out problems is kept.
    """
    torch.manual_seed(settings.seed)
    training, held = (
        [_example(one, words) for one in of_problems(solutions, part)]
        for part in held_out(solutions, settings)
    )
    model = load_trainable(backbone)
    head = ValueHead(model.config.hidden_size)
    end = words.ids[end_of_move]

    def loss_of(part: Sequence[_Example]) -> tuple[Tensor, int]:
        """Mean loss of the steps of ``part``, and how many they are."""
        tokens, lengths = pad([row for row, _ in part], words)
        ends = (tokens == end) & (torch.arange(tokens.shape[1]) >= lengths[:, None])
        learned = torch.tensor([value is not None for _, values in part for value in values])
        states = model.model(input_ids=tokens).last_hidden_state[ends][learned]
        wanted = torch.tensor([one for _, values in part for one in values if one is not None])
        return functional.binary_cross_entropy_with_logits(head.logit(states), wanted), len(wanted)

    def validation() -> float:
        total, steps = 0.0, 0
        for start in range(0, len(held), _ROWS_AT_ONCE):
            loss, count = loss_of(held[start : start + _ROWS_AT_ONCE])
            total, steps = total + float(loss) * count, steps + count
        return total / steps

    lowest = tune(
        nn.ModuleList((model, head)),
        settings,
        [row for row, _ in training],
        lambda rows: loss_of([training[row] for row in rows.tolist()])[0],
        share=share,
        report=report,
        validation=validation,
    )
    save_reward_model(folder, model, head, words)
    return {"verifier_validation_loss": lowest, "verifier_training_solutions": len(training)}


def _example(solution: ValuedSolution, words: Words) -> _Example:
    values = [
        value if step >= solution.fresh else None for step, value in enumerate(solution.values)
    ]
    return encode(solution.text, solution.moves, words), values
