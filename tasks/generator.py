"""Stage ``generator`` (frozen): train a backbone, tune a pretrained one, or name one of the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from selverify.data.benchmark import SPLITS, Task, held_out_marks
from selverify.data.gold_moves import GoldSolution, gold_solutions
from selverify.data.near_duplicates import PHRASE, apart_from
from selverify.data.text_benchmarks import Questions, TextQuestion
from selverify.domains import domain_by_name, generated_by_name
from selverify.domains.grade_school import GradeSchool
from selverify.errors import ParamsError, SchemaError
from selverify.models.generators.pretrained import load_hub_model
from selverify.models.sources import write_source
from selverify.models.verifiers.loading import check_device
from selverify.params import Benchmark, Generator, Params, PretrainedParams, TextBenchmark, Tuning
from selverify.training.adapter import Progress, train_adapter
from selverify.training.generator import train_generator
from tasks.artifacts import read_tasks, say, write_facts
from tasks.benchmark import split_questions


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write a checkpoint in the Hugging Face layout, or which model of the hub or a server it is,
    with an adapter where it is tuned.

    Raises:
        ParamsError: a training on a benchmark of files, from which nothing can be drawn; a tuning
            in a domain without written solutions.
    """
    settings = params.generator[params.domain][params.backbones[0]]
    if isinstance(settings, Generator):
        return _train(params, settings, inputs["benchmark"], outputs["generator"])
    losses: dict[str, float] = {}
    if isinstance(settings, PretrainedParams) and settings.tuning is not None:
        losses = _tune(params, settings, settings.tuning, inputs["benchmark"], outputs["generator"])
    # After the adapter's digests: what else the source says may change under the same adapter.
    write_source(outputs["generator"], settings)
    return losses


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


def _tune(
    params: Params, settings: PretrainedParams, tuning: Tuning, benchmark: Path, folder: Path
) -> dict[str, float]:
    """Train an adapter on written solutions; no test, validation or training problem is among them.

    Verifier and ranker learn from what the generator does on training problems, which it must not
    know by heart.
    """
    torch.set_num_threads(params.tracking.threads)
    check_device(params.tracking.device)
    held_out = [task for split in SPLITS for task in read_tasks(benchmark, split)]
    if (other := held_out[0].problem.domain) != params.domain:
        raise SchemaError(
            f"{benchmark}: given problems of {other}, expected those of {params.domain}, which are "
            "held out; run python -m flows benchmark first"
        )
    learned, validation = _written(params, tuning, held_out)
    write_facts(folder, "generator", "held_out", {"marks": held_out_marks(held_out)})
    pretrained = load_hub_model(
        settings.model, revision=settings.revision, dtype="float32", device=params.tracking.device
    )
    state = f"generator-{params.domain}-{params.backbones[0]}.safetensors"
    return train_adapter(
        pretrained,
        domain_by_name(params.domain),
        learned,
        validation,
        tuning,
        name=settings.model,
        folder=folder,
        resumed=Path(params.tracking.reply_cache).parent / state,
        report=_report,
    )


def _written(
    params: Params, tuning: Tuning, held_out: list[Task]
) -> tuple[list[GoldSolution], list[GoldSolution]]:
    """Solutions to learn from, and those of the validation problems.

    Raises:
        ParamsError: the domain has no written solutions, or none is left to learn from.
    """
    sizes = params.benchmark[params.domain]
    name = f"generator.{params.domain}.{params.backbones[0]}.tuning"
    if params.domain != GradeSchool.name or not isinstance(sizes, TextBenchmark):
        raise ParamsError(
            f"{name}: given a tuning, expected null: solutions that can be read as moves are known "
            f"of {GradeSchool.name} alone"
        )
    found, lacking = gold_solutions(split_questions(sizes.train), words=tuning.words)
    say(f"generator: {len(found)} written solutions are moves; others: {lacking}")
    pool = _as_questions([(one.question_id, one.question) for one in found])
    tasks = _as_questions([(one.problem.problem_id, one.problem.text) for one in held_out])
    apart = apart_from(apart_from(pool, tasks), split_questions(sizes.test))
    kept = {question.question_id for question in apart.items}
    say(
        f"generator: {len(found) - len(kept)} of them stand in the benchmark or share {PHRASE} "
        f"words in a row with a problem of it or of {sizes.test.source}: left out"
    )
    if not kept:
        raise ParamsError(
            f"{name}: given a tuning, expected null: of {sizes.train.source} no written solution "
            "that can be read as moves is left beside the benchmark"
        )
    validation = {one.problem.problem_id for one in held_out if one.split == "validation"}
    return (
        [one for one in found if one.question_id in kept],
        [one for one in found if one.question_id in validation],
    )


def _as_questions(texts: list[tuple[str, str]]) -> Questions:
    items = tuple(TextQuestion(name, text, "", None, None) for name, text in texts)
    return Questions("", items)


def _report(progress: Progress) -> None:
    say(f"generator: step {progress.step} of {progress.total}, loss {progress.loss:.4f}")
