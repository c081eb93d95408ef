r"""Published reward models that say of each step whether it is right, by a token.

Knows: the tokens for right and wrong, and the rows of the model's head for them. Does not
know: batches, searches. A new model of the kind is a ``StepTokenFormat``.

The score of a step is the probability of the token for right, between these two tokens alone. Their
logits are two rows of the head times one hidden state, which holds for architectures whose head is
a matrix and no more (Llama, Mistral, Qwen2 and most others).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor
from transformers import AutoModelForCausalLM

from selverify.errors import SchemaError
from selverify.models.verifiers.opening import Surroundings, format_named
from selverify.models.verifiers.prefix_reader import HiddenStateVerifier
from selverify.models.verifiers.published import RewardFormat, StepScores, load_published
from selverify.models.verifiers.steps import Encoder, Script
from selverify.params import PretrainedVerifier


@dataclass(frozen=True, slots=True)
class StepTokenFormat(RewardFormat):
    """A family: its layout, and the tokens for right and wrong as the vocabulary spells them."""

    auto: ClassVar[Any] = AutoModelForCausalLM

    good: str
    bad: str

    def head(self, folder: Path, model: Any, encoder: Encoder) -> StepScores:
        """p(good) [N] from hidden states [N, D], by two rows of the model's head."""
        tokens = [encoder.token(self.good), encoder.token(self.bad)]
        matrix = model.get_output_embeddings()
        if max(tokens) >= len(matrix.weight):
            raise SchemaError(
                f"{folder}: the tokens {tokens} for right and wrong, expected less than "
                f"{len(matrix.weight)}, the rows of the model's head"
            )
        rows = matrix.weight[tokens].float()
        bias = getattr(matrix, "bias", None)
        offset = rows.new_zeros(2) if bias is None else bias[tokens].float()

        def score(hidden: Tensor) -> Tensor:
            scores: Tensor = (hidden @ rows.T + offset).softmax(-1)[:, 0]
            return scores

        return score


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

STEP_TOKEN_FORMATS: Mapping[str, StepTokenFormat] = {
    one.name: one for one in (MATH_SHEPHERD, RLHFLOW)
}


def open_step_token(source: PretrainedVerifier, surroundings: Surroundings) -> HiddenStateVerifier:
    """The verifier of these settings; errors as in ``load_published`` and ``format_named``."""
    format = format_named(STEP_TOKEN_FORMATS, source.format)
    return load_published(source, format, device=surroundings.device)
