"""Training of the process reward model from Monte-Carlo values (Wang et al. 2024).

Knows: the two kinds of model. Does not know: how the values were made, test problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from selverify.models.tokenizer import Words
from selverify.params import RewardKind, VerifierParams
from selverify.training.rollouts import ValuedSolution
from selverify.training.token_logprobs import train_token_logprob_model
from selverify.training.tuning import Report
from selverify.training.value import train_value_model

KINDS = {"token_logprobs": train_token_logprob_model, "value": train_value_model}


def train_verifier(
    solutions: Sequence[ValuedSolution],
    kind: RewardKind,
    settings: VerifierParams,
    words: Words,
    *,
    share: float,
    end_of_move: str,
    backbone: Path,
    folder: Path,
    report: Report,
) -> dict[str, float]:
    """Train a model of ``kind`` from ``backbone`` and write it to ``folder``; its losses.

    ``share``: of its batches, after which every training in it stops.
    """
    return KINDS[kind](
        solutions,
        settings,
        words,
        share=share,
        end_of_move=end_of_move,
        backbone=backbone,
        folder=folder,
        report=report,
    )
