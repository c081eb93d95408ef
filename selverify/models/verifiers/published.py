"""Published process reward models in this process: any format, one way to load it.

Knows: the parts of such a verifier. Does not know: batches, searches, what a head computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from selverify.models.verifiers.loading import (
    content_id,
    load_model,
    load_tokenizer,
    local_folder,
    number_type,
)
from selverify.models.verifiers.prefix_reader import HiddenStateVerifier
from selverify.models.verifiers.steps import Encoder, Script
from selverify.params import PretrainedVerifier

REMEMBERED_SCORES = 500_000

StepScores = Callable[[Tensor], Tensor]
"""Scores [N] in [0, 1] from hidden states [N, D] in float32."""


@dataclass(frozen=True, slots=True)
class RewardFormat(ABC):
    """A family of published reward models: its name in the parameters, and its layout.

    ``auto`` is the class of transformers that loads the checkpoint.
    """

    auto: ClassVar[Any]

    name: str
    script: Script

    @abstractmethod
    def head(self, folder: Path, model: Any, encoder: Encoder) -> StepScores:
        """What scores hidden states.

        Raises:
            SchemaError: the weights or the tokenizer are not those of the format.
        """


def load_published(
    source: PretrainedVerifier,
    format: RewardFormat,
    *,
    device: str,
    remembered_scores: int = REMEMBERED_SCORES,
) -> HiddenStateVerifier:
    """The verifier in a folder or a repository.

    Raises:
        ParamsError: a revision that does not fit the source.
        ArtifactError: no such model, or none in safetensors.
        SchemaError: the weights or the tokenizer are not those of the format.
    """
    folder, weights = local_folder(source.model, revision=source.revision)
    encoder = Encoder(load_tokenizer(folder), format.script)
    kind = number_type(source.dtype, device)
    model = load_model(format.auto, folder, dtype=kind, device=device)
    content = content_id(format, encoder.digest)
    return HiddenStateVerifier(
        encoder,
        model.base_model,
        format.head(folder, model, encoder),
        identity=f"{format.name} {weights} {kind} {content}",
        batch_tokens=source.batch_tokens,
        remembered_scores=remembered_scores,
        kept_tokens=source.kept_tokens,
    )
