r"""Published reward models that give each step a value, by a head of their own.

Knows: the names and shapes of such heads in a checkpoint. Does not know: batches, searches. A new
model of the kind is a ``ValueHeadFormat``.

The backbone is an ordinary one of transformers, so no code of a repository is needed: the head's
weights are read from the checkpoint by their names. A head is linear layers with ReLU between them.
Of one output the score is the sigmoid, of two the probability of the second (softmax).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor
from torch.nn import functional
from transformers import AutoModel

from selverify.errors import SchemaError
from selverify.models.verifiers.loading import (
    content_id,
    load_model,
    load_tensors,
    load_tokenizer,
    local_folder,
)
from selverify.models.verifiers.prefix_reader import Effort, HiddenStateVerifier
from selverify.models.verifiers.steps import Encoder, Script


@dataclass(frozen=True, slots=True)
class ValueHeadFormat:
    """A family: its layout, and its head's layers by their names in the checkpoint.

    A layer has the weights ``<name>.weight`` and ``<name>.bias``. The last one has ``outputs``, 1
    or 2.
    """

    name: str
    script: Script
    layers: tuple[str, ...]
    outputs: int


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

VALUE_HEAD_FORMATS: Mapping[str, ValueHeadFormat] = MappingProxyType(
    {one.name: one for one in (SKYWORK, QWEN_MATH)}
)


class ValueHead:
    """Scores [N] from hidden states [N, D] and (weight, bias) of each layer, in float32."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._layers = [(weight.float(), bias.float()) for weight, bias in layers]

    def __call__(self, hidden: Tensor) -> Tensor:
        """The scores of hidden states."""
        *before, last = self._layers
        for layer in before:
            hidden = functional.linear(hidden, *layer).relu()
        values = functional.linear(hidden, *last)
        return values.softmax(-1)[:, 1] if values.shape[1] == 2 else values[:, 0].sigmoid()


def load_value_head(
    source: str,
    *,
    format: ValueHeadFormat,
    revision: str | None,
    dtype: str,
    device: str,
    effort: Effort,
) -> HiddenStateVerifier:
    """A verifier of this kind, from a folder or a repository.

    Args:
        source: a folder in the Hugging Face layout, or ``owner/name`` on the hub.
        revision: a commit, branch or tag of the repository, None for a folder.
        dtype: of the backbone, ``float32``, ``bfloat16`` or ``float16``; the head runs in float32.
        device: ``cpu``, ``cuda``, ``cuda:1``, ...

    Raises:
        ParamsError: another dtype, or a revision that does not fit the source.
        ArtifactError: no such model, or none in safetensors.
        SchemaError: the weights or the tokenizer are not those of the format.
    """
    folder, weights = local_folder(source, revision=revision)
    encoder = Encoder(load_tokenizer(folder), format.script)
    model = load_model(AutoModel, folder, dtype=dtype, device=device)
    names = [(f"{layer}.weight", f"{layer}.bias") for layer in format.layers]
    found = load_tensors(folder, [name for pair in names for name in pair])
    layers = [(found[weight].to(device), found[bias].to(device)) for weight, bias in names]
    _check(source, format, layers, width=model.config.hidden_size)
    told_apart = content_id(format, encoder.digest)
    return HiddenStateVerifier(
        encoder,
        model,
        ValueHead(layers),
        identity=f"{format.name} {weights} {dtype} {told_apart}",
        effort=effort,
    )


def _check(
    source: str, format: ValueHeadFormat, layers: Sequence[tuple[Tensor, Tensor]], *, width: int
) -> None:
    """Raise SchemaError unless the layers fit one another, the backbone and the format."""
    shapes = [tuple(weight.shape) for weight, _ in layers]
    widths = [width, *(shape[0] for shape in shapes)]
    chained = all(shape[1:] == (before,) for shape, before in zip(shapes, widths, strict=False))
    biases = [tuple(bias.shape) for _, bias in layers]
    fitting = chained and biases == [(size,) for size in widths[1:]]
    if not fitting or format.outputs not in (1, 2) or widths[-1] != format.outputs:
        raise SchemaError(
            f"{source}: a head of weights {shapes} and biases {biases}, expected layers from "
            f"{width} values to {format.outputs}, which is 1 or 2"
        )
