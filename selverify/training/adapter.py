"""Training of an adapter on a pretrained model, from written solutions of its domain.

Knows: how a solution becomes tokens, the loss (on the solution only), the optimiser, how a training
goes on after an interruption. Does not know: which problems are held out, where solutions are from.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from selverify.data.gold_moves import GoldSolution
from selverify.domains.base import Domain
from selverify.models.generators.adapter import add_adapter, save_adapter
from selverify.models.generators.pretrained import HubModel
from selverify.models.prompting import disarmed, plain
from selverify.models.verifiers.loading import content_id
from selverify.params import Tuning
from selverify.storage import atomic_path
from selverify.training.language import like_lengths

_IGNORED = -100
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of ``total``; ``loss`` is smoothed, in nats a token."""

    step: int
    total: int
    loss: float


def train_adapter(
    pretrained: HubModel,
    domain: Domain,
    solutions: Sequence[GoldSolution],
    held_out: Sequence[GoldSolution],
    settings: Tuning,
    *,
    name: str,
    folder: Path,
    resumed: Path,
    report: Callable[[Progress], None],
) -> dict[str, float]:
    """Train on ``solutions`` and write the adapter to ``folder``; losses in nats a token.

    Args:
        pretrained: in float32; its weights are changed in place.
        name: what parameters call the model.
        resumed: a file of the training's state. A training with the same settings, model and
            solutions goes on from it; it is removed at the end.
        report: called after every ten steps.

    Raises:
        ParamsError: peft is not installed.
    """
    torch.manual_seed(settings.seed)
    adapted = add_adapter(pretrained.model, rank=settings.rank, alpha=settings.alpha)
    model = pretrained.model
    model.set_attn_implementation("eager")  # a tenth faster forwards and backwards on a processor
    rows = [encode_solution(pretrained, domain, one, settings) for one in solutions]
    held = [encode_solution(pretrained, domain, one, settings) for one in held_out]
    training = _Training(model, settings, total=len(list(_batches(rows, settings))))
    mark = content_id(settings.model_dump(exclude={"saved_steps"}), pretrained.files, rows)
    training.resume(resumed, mark)
    model.train()
    for batch in islice(_batches(rows, settings), training.step, None):
        training.learn(batch)
        if training.step % settings.saved_steps == 0:
            training.save(resumed, mark)
        if training.step % 10 == 0 or training.step == training.total:
            report(Progress(training.step, training.total, training.smoothed))
    model.eval()
    save_adapter(folder, adapted, base=pretrained.files, name=name, settings=settings.model_dump())
    resumed.unlink(missing_ok=True)
    found = {"generator_loss": training.smoothed, "generator_solutions": float(len(rows))}
    if held:
        found["generator_validation_loss"] = held_out_loss(model, held, settings)
    return found


class Row(NamedTuple):
    """Tokens of a question and of its solution, and these again where they are to be learned."""

    shown: list[int]
    said: list[int]
    learned: list[int]


def encode_solution(
    pretrained: HubModel, domain: Domain, solution: GoldSolution, settings: Tuning
) -> Row:
    """Tokens of what the model is shown of the question, and of the moves up to the text's end.

    Values that the model need not learn are tokens of their own, as the generator is given them.
    """
    problem = domain.read(solution.question, problem_id=solution.question_id)
    shown = pretrained.encode(plain(domain)(domain.initial_state(problem, budget=0)))
    row = Row(list(shown), [], [])
    for move in solution.moves:
        said, computed = f"{disarmed(move)}{domain.end_of_move}", ""
        if domain.computed_after and not settings.values:
            begun, mark, rest = said.partition(domain.computed_after)
            said, computed = begun + mark, rest
        for text, learned in ((said, True), (computed, False)):
            tokens = pretrained.encode_behind(text) if text else []
            row.said.extend(tokens)
            row.learned.extend(tokens if learned else [_IGNORED] * len(tokens))
    for part in (row.said, row.learned):
        part.append(pretrained.tokenizer.eos_token_id)
    return row


def solution_loss(model: Any, rows: Sequence[Row], *, bfloat16: bool) -> Tensor:
    """Mean cross-entropy of the tokens to be learned, in nats a token.

    Only these are projected to the vocabulary, which is wide.
    """
    device = model.device
    tokens = pad_sequence([torch.tensor([*one.shown, *one.said]) for one in rows], batch_first=True)
    wanted = pad_sequence(
        [torch.tensor([*[_IGNORED] * len(one.shown), *one.learned]) for one in rows],
        batch_first=True,
        padding_value=_IGNORED,
    )[:, 1:].to(device)
    followed = wanted != _IGNORED
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16):
        # Padding is behind all tokens, which see only what is before them: no mask is needed.
        hidden = model.get_decoder()(
            input_ids=tokens[:, :-1].to(device), use_cache=False
        ).last_hidden_state
        logits = model.get_output_embeddings()(hidden[followed])
    return functional.cross_entropy(logits.float(), wanted[followed])


@torch.inference_mode()
def held_out_loss(model: Any, rows: Sequence[Row], settings: Tuning) -> float:
    """The mean over all tokens of ``rows`` that are to be learned."""
    total = tokens = 0.0
    for batch in like_lengths(list(rows), settings.tokens_per_batch, random.Random(0)):
        count = sum(token != _IGNORED for one in batch for token in one.learned)
        total += count * float(solution_loss(model, batch, bfloat16=settings.bfloat16))
        tokens += count
    return total / tokens


class _Training:
    """The adapter's weights, their optimiser, and how far it is."""

    def __init__(self, model: Any, settings: Tuning, *, total: int) -> None:
        self.total = total
        self.step = 0
        self.smoothed = 0.0
        self._model = model
        self._settings = settings
        self._weights = [one for one in model.parameters() if one.requires_grad]
        self._optimiser = torch.optim.AdamW(
            self._weights, lr=settings.rate, betas=(0.9, 0.99), weight_decay=0.0
        )

    def learn(self, rows: Sequence[Row]) -> None:
        """One step down the gradient of a batch."""
        for group in self._optimiser.param_groups:
            group["lr"] = self._settings.rate * self._factor()
        loss = solution_loss(self._model, rows, bfloat16=self._settings.bfloat16)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad()
        value = float(loss.detach())
        self.smoothed = value if self.step == 0 else 0.95 * self.smoothed + 0.05 * value
        self.step += 1

    def _factor(self) -> float:
        """Linear warm-up, then a cosine to 0."""
        warm = max(1, round(self._settings.warmup_fraction * self.total))
        if self.step < warm:
            return (self.step + 1) / warm
        return 0.5 + 0.5 * math.cos(math.pi * (self.step - warm) / max(1, self.total - warm))

    def save(self, path: Path, mark: str) -> None:
        """Write all that ``resume`` needs; the file is whole or the one before."""
        tensors = {}
        for place, weight in enumerate(self._weights):
            tensors[f"{place}.weight"] = weight.detach()
            for moment in _MOMENTS:
                tensors[f"{place}.{moment}"] = self._optimiser.state[weight][moment]
        facts = {"mark": mark, "step": str(self.step), "smoothed": repr(self.smoothed)}
        with atomic_path(path) as temporary:
            save_file(tensors, temporary, metadata=facts)

    def resume(self, path: Path, mark: str) -> None:
        """Go on from what ``save`` wrote for the same training; else begin at the beginning."""
        if not path.is_file():
            return
        try:
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                if facts.get("mark") != mark:
                    return
                tensors = {name: file.get_tensor(name) for name in set(file.keys())}
        except SafetensorError:
            return
        self.step, self.smoothed = int(facts["step"]), float(facts["smoothed"])
        for place, weight in enumerate(self._weights):
            weight.data.copy_(tensors[f"{place}.weight"])
            moments = {
                moment: tensors[f"{place}.{moment}"].to(weight.device) for moment in _MOMENTS
            }
            self._optimiser.state[weight] = {"step": torch.tensor(float(self.step)), **moments}


def _batches(rows: Sequence[Row], settings: Tuning) -> Iterator[list[Row]]:
    """All batches of all epochs, each epoch shuffled anew; rows of a batch have like lengths."""
    rng = random.Random(settings.seed)
    for _ in range(settings.epochs):
        shuffled = rng.sample(list(rows), len(rows))
        yield from like_lengths(shuffled, settings.tokens_per_batch, rng)
