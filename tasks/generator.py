"""Stage ``generator`` (frozen): train the backbone from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from selverify.benchmark import SPLITS, held_out_marks
from selverify.domains import domain_by_name
from selverify.params import Params
from selverify.training.generator import Progress, train_generator
from tasks.artifacts import read_tasks, say, write_facts


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write a checkpoint in the Hugging Face layout; no problem of the benchmark is trained on.

    A generator that knows the training problems by heart is surer of itself there than on new ones,
    and verifier and ranker would learn from the wrong behaviour.
    """
    torch.set_num_threads(params.tracking.threads)
    held_out = [task for split in SPLITS for task in read_tasks(inputs["benchmark"], split)]
    marks = {"marks": held_out_marks(held_out)}
    write_facts(outputs["generator"], "generator", "held_out", marks)
    return train_generator(
        domain_by_name(params.domain),
        params.benchmark[params.domain],
        params.generator[params.domain][params.backbones[0]],
        forbidden=frozenset(task.fingerprint for task in held_out),
        folder=outputs["generator"],
        report=_report,
    )


def _report(progress: Progress) -> None:
    say(f"generator: step {progress.step} of {progress.steps}, loss {progress.loss:.4f}")
