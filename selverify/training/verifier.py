"""Training of the process reward model from Monte-Carlo values (Wang et al. 2024).

Knows: the two kinds of model. Does not know: how the values were made, test problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from selverify.params import RewardKind, Verifier
from selverify.rollouts import ValuedSolution
from selverify.tokenizer import Words
from selverify.training.evidence import train_evidence_model
from selverify.training.tuning import Report
from selverify.training.value import train_value_model

KINDS = {"evidence": train_evidence_model, "value": train_value_model}


def train_verifier(
    solutions: Sequence[ValuedSolution],
    kind: RewardKind,
    settings: Verifier,
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
