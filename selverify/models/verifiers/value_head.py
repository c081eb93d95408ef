r"""Published reward models that give each step a value, by a head of their own.

Knows: the names and shapes of such heads in a checkpoint. Does not know: batches, searches. A new
model of the kind is a ``ValueHeadFormat``.

The backbone is an ordinary one of transformers, so no code of a repository is needed: the head's
weights are read from the checkpoint by their names. A head is linear layers with ReLU between them.
Of one output the score is the sigmoid, of two the probability of the second (softmax).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional
from transformers import AutoModel

from selverify.errors import SchemaError
from selverify.models.verifiers.loading import load_tensors
from selverify.models.verifiers.opening import Surroundings, format_named
from selverify.models.verifiers.prefix_reader import HiddenStateVerifier
from selverify.models.verifiers.published import RewardFormat, StepScores, load_published
from selverify.models.verifiers.steps import Encoder, Script
from selverify.params import PretrainedVerifier


@dataclass(frozen=True, slots=True)
class ValueHeadFormat(RewardFormat):
    """A family: its layout, and its head's layers by their names in the checkpoint.

    A layer has the weights ``<name>.weight`` and ``<name>.bias``. The last one has ``outputs``, 1
    or 2, the others as many as the backbone's hidden state.
    """

    auto: ClassVar[Any] = AutoModel

    layers: tuple[str, ...]
    outputs: int

    def head(self, folder: Path, model: Any, encoder: Encoder) -> StepScores:
        """Scores [N] from hidden states [N, D], by the head's layers in float32."""
        names = [f"{layer}.{part}" for layer in self.layers for part in ("weight", "bias")]
        found = load_tensors(folder, names)
        width = model.config.hidden_size
        sizes = [width] * len(self.layers) + [self.outputs]
        shapes = [one for old, new in pairwise(sizes) for one in ((new, old), (new,))]
        if [found[name].shape for name in names] != shapes:
            raise SchemaError(
                f"{folder}: a head of shapes {[(*found[name].shape,) for name in names]}, expected "
                f"{shapes}: layers from {width} values to {self.outputs}"
            )
        parts = [found[name].to(model.device).float() for name in names]
        layers = list(zip(parts[::2], parts[1::2], strict=True))
        *before, last = layers

        def scores(hidden: Tensor) -> Tensor:
            for layer in before:
                hidden = functional.linear(hidden, *layer).relu()
            values = functional.linear(hidden, *last)
            return values.softmax(-1)[:, 1] if values.shape[1] == 2 else values[:, 0].sigmoid()

        return scores


SKYWORK = ValueHeadFormat(
    "skywork",
    Script(
        first=(("", "{bos}{question}\n{step}{mark}"),),
        later=(("", "{step}{mark}"),),
        mark="\u010a",
        before_mark=False,
        one_line=True,
    ),
    layers=("v_head.summary",),
    outputs=1,
)
"""Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B and -7B; a line is a step, its line break the mark.

The main branches hold a pickle; a revision with safetensors is needed.
"""

QWEN_MATH = ValueHeadFormat(
    "qwen_math",
    Script(
        first=(
            (
                "system",
                r"Please reason step by step, and put your final answer within \boxed{}.",
            ),
            ("user", "{question}"),
            ("assistant", "{step}{mark}"),
        ),
        later=(("", "{step}{mark}"),),
        mark="<extra_0>",
        before_mark=False,
    ),
    layers=("score.0", "score.2"),
    outputs=2,
)
"""Qwen/Qwen2.5-Math-PRM-7B, -72B and Qwen2.5-Math-7B-PRM800K (Zhang et al. 2025)."""

VALUE_HEAD_FORMATS: Mapping[str, ValueHeadFormat] = {one.name: one for one in (SKYWORK, QWEN_MATH)}


def open_value_head(source: PretrainedVerifier, surroundings: Surroundings) -> HiddenStateVerifier:
    """The verifier of these settings; errors as in ``load_published`` and ``format_named``."""
    format = format_named(VALUE_HEAD_FORMATS, source.format)
    return load_published(source, format, device=surroundings.device)
