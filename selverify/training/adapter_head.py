"""Training of a head together with an adapter on the generator's model, from Monte-Carlo values.

Knows: the loss at the end of each step (Wang et al. 2024; Snell et al. 2024). Does not know: how
values were made, test problems. The generator stays as it is: the adapter is the verifier's own. It
computes on all threads and in bfloat16: no two machines give the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from selverify.domains.base import Domain
from selverify.errors import ParamsError
from selverify.models.generators.adapter import add_adapter, save_adapter
from selverify.models.generators.pretrained import HubModel
from selverify.models.prompting import Prompt, disarmed
from selverify.models.verifiers.head import StepHead, save_head
from selverify.params import VerifierParams
from selverify.training.fit import ReportEpoch
from selverify.training.language import Encoded
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import held_out, of_problems, tune
from selverify.types import State

_SCALE = 2.0
"""alpha over rank."""


@dataclass(frozen=True, slots=True)
class _Example:
    """Tokens of a solution, and the place and the target of each step's end to learn from."""

    row: Encoded
    ends: tuple[int, ...]
    targets: tuple[float, ...]


def train_adapted_head(
    solutions: Sequence[ValuedSolution],
    settings: VerifierParams,
    domain: Domain,
    pretrained: HubModel,
    *,
    prompting: Callable[[State], Prompt],
    backbone: str,
    share: float,
    name: str,
    folder: Path,
    report: ReportEpoch,
) -> dict[str, float]:
    """Tune adapter and head on the values and write both to ``folder``; the lowest held-out loss.

    Binary cross-entropy of the value at the last token of each step. The epoch with the lowest loss
    on the held-out problems is kept; after ``share`` of all batches the training stops.

    Args:
        pretrained: the generator's model in float32, which is changed in place.
        prompting: what it is shown of a problem.
        backbone: the content of its files and its prompt, to which the head belongs.
        name: what parameters call it.

    Raises:
        ParamsError: peft is not installed, or a word ends the domain's moves, which a model of the
            hub is not shown as it stands.
    """
    if domain.end_of_move.strip():
        raise ParamsError(
            f"verifier.kind.{domain.name}: given adapter, expected another kind: moves that end in "
            f"{domain.end_of_move!r} are read otherwise by a model of the hub"
        )
    torch.manual_seed(settings.seed)
    training, held = (
        [
            _example(one, domain, pretrained, prompting=prompting)
            for one in of_problems(solutions, part)
        ]
        for part in held_out(solutions, settings)
    )
    model = pretrained.model
    adapted = add_adapter(model, rank=settings.rank, alpha=_SCALE * settings.rank)
    sizes = (model.config.get_text_config().hidden_size, 0, settings.hidden)
    head = StepHead(*sizes).to(model.device)
    learned = nn.ParameterList([one for one in model.parameters() if one.requires_grad])

    def validation() -> float:
        total = steps = 0.0
        for start in range(0, len(held), settings.tune_rows):
            part = held[start : start + settings.tune_rows]
            count = sum(len(one.ends) for one in part)
            total, steps = total + count * float(_loss(model, head, part)), steps + count
        return total / steps

    model.train()
    lowest = tune(
        nn.ModuleList((head, learned)),
        settings,
        [one.row for one in training],
        lambda rows: _loss(model, head, [training[row] for row in rows.tolist()]),
        share=share,
        report=report,
        validation=validation,
    )
    model.eval()
    head.cpu()
    told = settings.model_dump(mode="json")
    save_adapter(folder, adapted, base=pretrained.files, name=name, settings=told)
    # Its digests are those of both.
    save_head(folder, head, sizes=sizes, backbone=backbone)
    return {"verifier_validation_loss": lowest, "verifier_training_solutions": len(training)}


def _example(
    solution: ValuedSolution,
    domain: Domain,
    pretrained: HubModel,
    *,
    prompting: Callable[[State], Prompt],
) -> _Example:
    problem = domain.read(solution.text, problem_id=solution.problem_id)
    shown = pretrained.encode(prompting(domain.initial_state(problem, budget=0)))
    said: list[int] = []
    ends = []
    for move in solution.moves:
        text = disarmed(move) + domain.end_of_move
        said += pretrained.tokenizer.encode(text, add_special_tokens=False)
        ends.append(len(shown) + len(said) - 1)
    fresh = solution.fresh
    return _Example((list(shown), said), tuple(ends[fresh:]), solution.values[fresh:])


def _loss(model: Any, head: StepHead, part: Sequence[_Example]) -> Tensor:
    """Mean loss of the steps of ``part``."""
    device = model.device
    tokens = pad_sequence(
        [torch.tensor([*one.row[0], *one.row[1]]) for one in part], batch_first=True
    ).to(device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        # Padding is behind all tokens, which see only what is before them: no mask is needed.
        hidden = model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state
    rows = torch.tensor([row for row, one in enumerate(part) for _ in one.ends])
    ends = torch.tensor([end for one in part for end in one.ends])
    wanted = torch.tensor([value for one in part for value in one.targets], device=device)
    odds = head.of_state(hidden[rows, ends].float())
    return functional.binary_cross_entropy_with_logits(odds, wanted)
