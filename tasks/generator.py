"""Stage ``generator`` (frozen): train the backbone from scratch, or name one of the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from selverify.data.benchmark import SPLITS, held_out_marks
from selverify.domains import generated_by_name
from selverify.errors import ParamsError
from selverify.models.sources import write_source
from selverify.params import Benchmark, Generator, Params
from selverify.training.generator import train_generator
from tasks.artifacts import read_tasks, say, write_facts


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write a checkpoint in the Hugging Face layout, or which model of the hub or a server it is.

    Raises:
        ParamsError: a training on a benchmark of files, from which nothing can be drawn.
    """
    settings = params.generator[params.domain][params.backbones[0]]
    if isinstance(settings, Generator):
        return _train(params, settings, inputs["benchmark"], outputs["generator"])
    write_source(outputs["generator"], settings)
    return {}


def _train(params: Params, settings: Generator, benchmark: Path, folder: Path) -> dict[str, float]:
    """Train; no problem of the benchmark is trained on.

    A generator that memorised the training problems is more certain there than on new ones, and
    verifier and ranker would learn from the wrong behaviour.
    """
    sizes = params.benchmark[params.domain]
    if not isinstance(sizes, Benchmark):
        raise ParamsError(
            f"generator.{params.domain}.{params.backbones[0]}: given a training, expected a model "
            "of the hub or a server: this domain does not draw problems"
        )
    held_out = [task for split in SPLITS for task in read_tasks(benchmark, split)]
    write_facts(folder, "generator", "held_out", {"marks": held_out_marks(held_out)})
    return train_generator(
        generated_by_name(params.domain),
        sizes,
        settings,
        forbidden=frozenset(task.fingerprint for task in held_out),
        folder=folder,
        report=lambda step, loss: say(
            f"generator: step {step} of {settings.stop}, loss {loss:.4f}"
        ),
    )
