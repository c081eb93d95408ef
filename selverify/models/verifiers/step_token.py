r"""Published reward models that say of each step whether it is right, by a token.

Knows: which tokens stand for right and wrong, and the rows of the model's head for them. Does not
know: batches, searches. A new model of the kind is a ``StepTokenFormat``.

The score of a step is the probability of the token for right, between these two tokens alone. Their
logits are two rows of the head times one hidden state, which holds for architectures whose head is
a matrix and no more (Llama, Mistral, Qwen2 and most others).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor
from transformers import AutoModelForCausalLM

from selverify.errors import SchemaError
from selverify.models.verifiers.loading import content_id, load_model, load_tokenizer, local_folder
from selverify.models.verifiers.prefix_reader import Effort, HiddenStateVerifier
from selverify.models.verifiers.steps import Encoder, Script


@dataclass(frozen=True, slots=True)
class StepTokenFormat:
    """A family: its layout, and the tokens for right and wrong as the vocabulary spells them."""

    name: str
    script: Script
    good: str
    bad: str


MATH_SHEPHERD = StepTokenFormat(
    "math_shepherd",
    Script(
        first=(("", "{bos}{question} {step}{mark}"),),
        later=(("", "\n{step}{mark}"),),
        mark="\u2581\u043a\u0438",
        before_mark=False,
        one_line=True,
        anchor="\u043a\u0438",
    ),
    good="\u2581+",
    bad="\u2581-",
)
"""peiyi9979/math-shepherd-mistral-7b-prm (Wang et al. 2024); its steps begin with ``Step 1: ``."""

RLHFLOW = StepTokenFormat(
    "rlhflow",
    Script(
        first=(("user", "{question} {step}"), ("assistant", "{mark}")),
        later=(("user", "{step}"), ("assistant", "{mark}")),
        mark="+",
        before_mark=True,
    ),
    good="+",
    bad="-",
)
"""RLHFlow/Llama3.1-8B-PRM-Deepseek-Data and -Mistral-Data (Xiong et al. 2024)."""

STEP_TOKEN_FORMATS: Mapping[str, StepTokenFormat] = MappingProxyType(
    {one.name: one for one in (MATH_SHEPHERD, RLHFLOW)}
)


class StepTokenHead:
    """p(good) [N] from hidden states [N, D], the head's rows [2, D] for good and bad, its bias."""

    def __init__(self, rows: Tensor, bias: Tensor | None) -> None:
        self._rows = rows.float()
        self._bias = self._rows.new_zeros(2) if bias is None else bias.float()

    def __call__(self, hidden: Tensor) -> Tensor:
        """The scores of hidden states."""
        return (hidden @ self._rows.T + self._bias).softmax(-1)[:, 0]


def load_step_token(
    source: str,
    *,
    format: StepTokenFormat,
    revision: str | None,
    dtype: str,
    device: str,
    effort: Effort,
) -> HiddenStateVerifier:
    """A verifier of this kind, from a folder or a repository.

    Args:
        source: a folder in the Hugging Face layout, or ``owner/name`` on the hub.
        revision: a commit, branch or tag of the repository, None for a folder.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu``, ``cuda``, ``cuda:1``, ...

    Raises:
        ParamsError: another dtype, or a revision that does not fit the source.
        ArtifactError: no such model, or none in safetensors.
        SchemaError: the weights or the tokenizer are not those of the format.
    """
    folder, weights = local_folder(source, revision=revision)
    encoder = Encoder(load_tokenizer(folder), format.script)
    tokens = [encoder.token(format.good), encoder.token(format.bad)]
    model = load_model(AutoModelForCausalLM, folder, dtype=dtype, device=device)
    matrix = model.get_output_embeddings()
    if max(tokens) >= len(matrix.weight):
        raise SchemaError(
            f"{source}: the tokens {tokens} for right and wrong, expected less than "
            f"{len(matrix.weight)}, the rows of the model's head"
        )
    bias = getattr(matrix, "bias", None)
    head = StepTokenHead(matrix.weight[tokens], None if bias is None else bias[tokens])
    told_apart = content_id(format, encoder.digest)
    return HiddenStateVerifier(
        encoder,
        model.base_model,
        head,
        identity=f"{format.name} {weights} {dtype} {told_apart}",
        effort=effort,
    )
