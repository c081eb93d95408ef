"""Training of a head together with an adapter on the generator's model, from Monte-Carlo values.

Knows: the loss at the end of each step (Wang et al. 2024; Snell et al. 2024). Does not know: how
values were made, test problems. The generator stays as it is: the adapter is the verifier's own. It
computes on all threads, in bfloat16 where that is fast: no two machines give the same weights.

The solutions of a problem are a tree of tokens, in which each sees those that it continues. What
solutions begin alike with, the question above all, is read once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
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
from selverify.models.verifiers.loading import AUTO, number_type
from selverify.params import VerifierParams
from selverify.training.fit import ReportEpoch
from selverify.training.rollouts import ValuedSolution
from selverify.training.tuning import held_out, of_problems, tune
from selverify.types import State

_SCALE = 2.0
"""alpha over rank."""
_UNSEEN = -1.0e30
MOST_TOKENS = 1000
"""A tree to which no further solution is added: attention is over all of its tokens."""


@dataclass(frozen=True, slots=True)
class _Example:
    """The token tree of a problem, and the places and targets of the steps' ends to learn from.

    ``parents``: the place of the token that each one follows, -1 for the first.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
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
    parts = [of_problems(solutions, part) for part in held_out(solutions, settings)]
    training, held = (
        [
            one
            for own in _by_problem(part)
            for one in _examples(own, domain, pretrained, prompting=prompting)
        ]
        for part in parts
    )
    rows = max(1, round(settings.tune_rows * len(training) / len(parts[0])))
    model = pretrained.model
    model.set_attn_implementation("eager")  # the faster one here
    adapted = add_adapter(model, rank=settings.rank, alpha=_SCALE * settings.rank)
    sizes = (model.config.get_text_config().hidden_size, 0, settings.hidden)
    head = StepHead(*sizes).to(model.device)
    learned = nn.ParameterList([one for one in model.parameters() if one.requires_grad])

    def validation() -> float:
        total = steps = 0.0
        for start in range(0, len(held), rows):
            part = held[start : start + rows]
            count = sum(len(one.ends) for one in part)
            total, steps = total + count * float(_loss(model, head, part)), steps + count
        return total / steps

    model.train()
    lowest = tune(
        nn.ModuleList((head, learned)),
        settings.model_copy(update={"tune_rows": rows}),
        [([], list(one.tokens)) for one in training],
        lambda chosen: _loss(model, head, [training[row] for row in chosen.tolist()]),
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
    return {"verifier_validation_loss": lowest, "verifier_training_solutions": len(parts[0])}


def _by_problem(solutions: Sequence[ValuedSolution]) -> list[list[ValuedSolution]]:
    found: dict[str, list[ValuedSolution]] = defaultdict(list)
    for one in solutions:
        found[one.problem_id].append(one)
    return list(found.values())


def _examples(
    solutions: Sequence[ValuedSolution],
    domain: Domain,
    pretrained: HubModel,
    *,
    prompting: Callable[[State], Prompt],
) -> Iterator[_Example]:
    """The trees of a problem's solutions."""
    problem = domain.read(solutions[0].text, problem_id=solutions[0].problem_id)
    shown = pretrained.encode(prompting(domain.initial_state(problem, budget=0)))
    tree = _Tree(list(shown))
    for one in solutions:
        if tree.ends and len(tree.tokens) > MOST_TOKENS:
            yield tree.example()
            tree = _Tree(list(shown))
        at, ends = len(shown) - 1, []
        for move in one.moves:
            text = disarmed(move) + domain.end_of_move
            for token in pretrained.encode_behind(text):
                at = tree.child(at, token)
            ends.append(at)
        tree.ends += ends[one.fresh :]
        tree.targets += one.values[one.fresh :]
    yield tree.example()


class _Tree:
    def __init__(self, shown: list[int]) -> None:
        self.tokens = shown
        self.ends: list[int] = []
        self.targets: list[float] = []
        self._parents = list(range(-1, len(shown) - 1))
        self._children: dict[tuple[int, int], int] = {}

    def child(self, at: int, token: int) -> int:
        """The place of ``token`` after the one at ``at``, a new one where it is not there yet."""
        place = self._children.setdefault((at, token), len(self.tokens))
        if place == len(self.tokens):
            self.tokens.append(token)
            self._parents.append(at)
        return place

    def example(self) -> _Example:
        places = tuple(self.tokens), tuple(self._parents), tuple(self.ends)
        return _Example(*places, tuple(self.targets))


def _seen(parents: Sequence[int], size: int) -> tuple[Tensor, Tensor]:
    """Which tokens [size, size] each one sees, itself among them, and its position [size].

    Padding behind them sees itself alone.
    """
    seen = torch.eye(size, dtype=torch.bool)
    for at, parent in enumerate(parents):
        if parent >= 0:
            seen[at] |= seen[parent]
    return seen, seen.sum(1) - 1


def _loss(model: Any, head: StepHead, part: Sequence[_Example]) -> Tensor:
    """Mean loss of the steps of ``part``."""
    device = model.device
    rows = [torch.tensor(one.tokens) for one in part]
    tokens = pad_sequence(rows, batch_first=True).to(device)
    trees = [_seen(one.parents, tokens.shape[1]) for one in part]
    mask, positions = (torch.stack(one).to(device) for one in zip(*trees, strict=True))
    kind = number_type(AUTO, str(device))
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=kind == torch.bfloat16):
        hidden = model.get_decoder()(
            input_ids=tokens,
            attention_mask=(~mask[:, None]).float() * _UNSEEN,
            position_ids=positions,
            use_cache=False,
        ).last_hidden_state
    of = torch.tensor([row for row, one in enumerate(part) for _ in one.ends])
    ends = torch.tensor([end for one in part for end in one.ends])
    wanted = torch.tensor([value for one in part for value in one.targets], device=device)
    odds = head.of_state(hidden[of, ends].float())
    return functional.binary_cross_entropy_with_logits(odds, wanted)
