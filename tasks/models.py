"""The models and the grader that stages work with, from their parameters and inputs.

Knows: which parameters say how models run. Does not know: artifacts, what a stage does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from transformers.utils import logging as hf_logging

from selverify import assembly
from selverify.assembly import Models
from selverify.grading import Grader
from selverify.params import Params

hf_logging.set_verbosity_error()  # a stage's own lines are its progress; loading bars drown them
hf_logging.disable_progress_bar()


def open_models(params: Params, inputs: Mapping[str, Path], *, seed: int) -> Models:
    """The domain and what answers its requests, from the models that are among ``inputs``."""
    torch.set_num_threads(params.tracking.threads)
    return assembly.open_models(
        params.domain,
        params.sampling[params.domain],
        seed=seed,
        device=params.tracking.device,
        generator=inputs["generator"],
        verifier=inputs.get("verifier"),
        policy=inputs.get("residual"),
    )


def open_grader(params: Params) -> Grader:
    """What compares answers with golds; to be closed."""
    return Grader(seconds=params.evaluation.grading_seconds, workers=1)
