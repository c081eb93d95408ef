"""A process reward model of our own: a small head on a model's hidden states.

Knows: what the head reads of a step, its file. Does not know: how it is trained, or how hidden
states are computed. On those of the frozen generator a step costs no pass of its own; on those of a
copy that was tuned with the head it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from selverify.errors import SchemaError
from selverify.models.heuristic.embedding import Embed, Embeddings, concatenate
from selverify.models.parameter_count import parameters_of
from selverify.models.verifiers.steps import verdict_of
from selverify.search.requests import RankItem, VerifyItem
from selverify.storage import check_digests, digest, read_json, write_digests, write_json
from selverify.types import Verdict

_WEIGHTS, _DESCRIBED = "head.safetensors", "head.json"
_SCHEMA, _VERSION = "verifier.head", 3
_REMEMBERED_STEPS = 500_000
"""Scored steps that are kept; a derivation's are requested again with each new step."""


class StepRead(NamedTuple):
    """What a head reads of steps: z_w' and z_m [rows, D], token logprobs [rows, SEEN]."""

    after: Tensor
    move: Tensor
    token_logprobs: Tensor


def read_of(rows: Embeddings) -> StepRead:
    """What a head reads of embedded moves."""
    return StepRead(rows.after, rows.move, rows.token_logprobs)


class StepHead(nn.Module):
    """Log odds that the right answer follows: a sum of what z_w', z_m and the step's token logprobs
    say.

    With ``seen`` 0, what z_w' says alone.
    """

    def __init__(self, width: int, seen: int, hidden: int) -> None:
        super().__init__()

        def term(inputs: int, *first: nn.Module) -> nn.Sequential:
            return nn.Sequential(*first, nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, 1))

        self.after = term(width, nn.LayerNorm(width))
        self.move = term(width, nn.LayerNorm(width)) if seen else None
        self.words = term(seen) if seen else None

    def forward(self, read: StepRead) -> Tensor:
        """Log odds [rows]."""
        odds = self.of_state(read.after)
        if self.move is None or self.words is None:
            return odds
        terms: Tensor = self.move(read.move) + self.words(read.token_logprobs)
        return odds + terms.squeeze(-1)

    def of_state(self, after: Tensor) -> Tensor:
        """What the state after the step [rows, D] says: log odds [rows]."""
        odds: Tensor = self.after(after)
        return odds.squeeze(-1)


class HeadVerifier:
    """Satisfies ``Verifier``: the head's probability after each step."""

    def __init__(
        self, embed: Embed, head: StepHead, *, identity: str, alone: bool = False, read: int = 0
    ) -> None:
        """``alone`` as in ``TrainedRanker``. ``read``: parameters of a model that reads each step
        for the head; 0 where it is the generator, whose sampling left what the head reads."""
        self._embed = embed
        self._alone = alone
        self._head = head
        self._identity = identity
        self._read = read
        self._known: dict[tuple[str, tuple[str, ...], str], float] = {}

    def identity(self) -> str:
        """Of the backbone and the head."""
        return self._identity

    def parameters(self) -> int:
        """Of the head, and of a model that reads for it alone."""
        return self._read + parameters_of(self._head)

    @torch.inference_mode()
    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """A verdict an item; each step is scored once."""
        if len(self._known) > _REMEMBERED_STEPS:
            self._known = {}  # another thread may still read what was there
        known = self._known
        by_item = [{_key(one): one for one in single_steps(item)} for item in items]
        fresh = {key: one for steps in by_item for key, one in steps.items() if key not in known}
        if fresh:
            rows = concatenate(self._embed(list(fresh.values())))
            parts = map(read_of, rows.each() if self._alone else [rows])
            scores = [one for part in parts for one in torch.sigmoid(self._head(part)).tolist()]
            known.update(zip(fresh, scores, strict=True))
        return tuple(verdict_of([known[key] for key in steps]) for steps in by_item)


def single_steps(item: VerifyItem) -> list[RankItem]:
    """Each step of ``item`` at the state that it is taken from."""
    found, state = [], item.state
    for step in item.steps:
        found.append(RankItem(state, (step,), ""))
        state = replace(state, derivation=(*state.derivation, step))
    return found


def _key(one: RankItem) -> tuple[str, tuple[str, ...], str]:
    """What a step's score follows from."""
    return one.state.problem.text, one.state.said, one.moves[0].text


def save_head(folder: Path, head: StepHead, *, sizes: tuple[int, int, int], backbone: str) -> None:
    """Write the head and what it is for; ``sizes`` are those it was made with."""
    save_file(head.state_dict(), folder / _WEIGHTS)
    described = {"sizes": list(sizes), "backbone": backbone}
    write_json(folder / _DESCRIBED, described, schema=_SCHEMA, version=_VERSION)
    write_digests(folder)


def load_head(folder: Path, *, backbone: str) -> tuple[StepHead, str]:
    """The head that ``save_head`` wrote, and its digest.

    Raises:
        ArtifactError: a file is missing.
        SchemaError: another schema, a head for another backbone, or a damaged file.
    """
    check_digests(folder)
    described = read_json(folder / _DESCRIBED, schema=_SCHEMA, version=_VERSION)
    if described["backbone"] != backbone:
        raise SchemaError(
            f"{folder}: a head for the backbone {described['backbone']}, expected {backbone}; "
            "train the verifier again for this generator"
        )
    head = StepHead(*described["sizes"])
    head.load_state_dict(load_file(folder / _WEIGHTS))
    return head.eval(), f"{digest(folder / _WEIGHTS)} {backbone}"
