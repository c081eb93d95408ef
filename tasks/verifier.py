"""Stage ``verifier``: train the process reward model and measure it on validation problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import cast

import pandas as pd
import torch

from selverify.data.benchmark import FURTHER, Task
from selverify.data.grading import Grader
from selverify.domains import domain_by_name, generated_by_name
from selverify.domains.base import Domain, knows_truth
from selverify.errors import ParamsError
from selverify.experiment.inspection import inspect_samples
from selverify.experiment.statistics import area_under_roc
from selverify.models.assembly import OpenModels, load_generator_model, prompting_of
from selverify.models.sources import has_source, read_generator_source, write_source
from selverify.models.threshold import RULES, leaves_tau, save_threshold
from selverify.models.tokenizer import load_words
from selverify.params import Params, PretrainedParams
from selverify.search.backend import Backend
from selverify.search.requests import Verify, VerifyItem
from selverify.training.adapter_head import train_adapted_head
from selverify.training.fit import Epoch
from selverify.training.head import train_head, whole_solution
from selverify.training.reproducible import reproducible
from selverify.training.rollouts import (
    ValuedSolution,
    sample_training_solutions,
    solutions_from,
    state_values,
    value_solutions,
)
from selverify.training.token_logprobs import train_token_logprob_model
from selverify.training.tuning import held_out, of_problems, with_targets
from selverify.training.value import train_value_model
from selverify.types import Verdict
from tasks.artifacts import read_rows, read_tasks, read_training, say
from tasks.models import open_grader, open_models

REPORT_EVERY = 5
MOST = 0.5
"""More than this share of a state's continuations is the majority of them."""
TRAINERS = {"token_logprobs": train_token_logprob_model, "value": train_value_model}
"""The training of each kind of reward model that is a model of its own."""


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write the reward model; metrics are on problems it never saw."""
    torch.set_num_threads(params.tracking.threads)
    solutions = solutions_from(read_rows(inputs["rollouts"], "rollouts", "values"))
    tasks, _ = read_training(inputs["benchmark"], params.rollouts.share)
    valued = of_problems(solutions, [task.problem.problem_id for task in tasks])
    learned = with_targets(valued, params.verifier.targets[params.domain])
    folder, kind = outputs["verifier"], params.verifier.kind[params.domain]
    losses: dict[str, float] = {}
    if kind == "source":
        write_source(folder, params.verifier.source[params.domain])
    else:
        train = OF_PRETRAINED.get(kind, _train_model)
        losses = train(learned, params, inputs, folder)
    models = open_models(params, {**inputs, "verifier": folder}, seed=params.verifier.seed)
    trained_here = not any(map(has_source, (inputs["generator"], folder)))
    with reproducible() if trained_here else nullcontext():
        chosen = {}
        if leaves_tau(params):
            trained = frozenset(held_out(learned, params.verifier)[0])
            known = trained | {task.problem.problem_id for task in tasks if task.split == FURTHER}
            new = [one for one in solutions if one.problem_id not in known]
            chosen = _choose_tau(new, params, models, folder)
        return {**losses, **chosen, **_audit(params, models, inputs["benchmark"])}


def _train_model(
    solutions: list[ValuedSolution], params: Params, inputs: Mapping[str, Path], folder: Path
) -> dict[str, float]:
    """A reward model of its own, tuned from the backbone."""
    domain = generated_by_name(params.domain)
    return TRAINERS[params.verifier.kind[params.domain]](
        solutions,
        params.verifier,
        load_words(inputs["generator"], domain.vocabulary),
        share=params.verifier.share[params.strengths[0]],
        end_of_move=domain.end_of_move,
        backbone=inputs["generator"],
        folder=folder,
        report=_report,
    )


def _train_head(
    solutions: list[ValuedSolution], params: Params, inputs: Mapping[str, Path], folder: Path
) -> dict[str, float]:
    """A head on the hidden states of the generator, which stays as it is."""
    generator = {"generator": inputs["generator"]}
    models = open_models(params, generator, seed=params.verifier.seed)
    return train_head(
        solutions,
        params.verifier,
        models.domain,
        models.embedding(),
        share=params.verifier.share[params.strengths[0]],
        backbone=models.backbone,
        folder=folder,
        report=_report,
    )


def _train_adapted_head(
    solutions: list[ValuedSolution], params: Params, inputs: Mapping[str, Path], folder: Path
) -> dict[str, float]:
    """A head and an adapter on a copy of the generator's model."""
    source = read_generator_source(inputs["generator"])
    if not isinstance(source, PretrainedParams):
        raise ParamsError(
            f"verifier.kind.{params.domain}: given adapter, expected a generator of the hub or of "
            f"a package in {inputs['generator']}"
        )
    domain = domain_by_name(params.domain)
    pretrained = load_generator_model(
        source, inputs["generator"], dtype="float32", device=params.tracking.device
    )
    prompting, shown = prompting_of(domain, source.prompt)
    return train_adapted_head(
        solutions,
        params.verifier,
        domain,
        pretrained,
        prompting=prompting,
        backbone=f"{pretrained.files} {shown}",
        share=params.verifier.share[params.strengths[0]],
        name=source.model,
        folder=folder,
        report=_report,
    )


OF_PRETRAINED = {"head": _train_head, "adapter": _train_adapted_head}
"""The training of each kind of reward model that is put on a pretrained generator."""


def _choose_tau(
    held: list[ValuedSolution], params: Params, models: OpenModels, folder: Path
) -> dict[str, float]:
    """Tau on ``held``, solutions of problems that the training left out, beside the verifier.

    Under relative targets without answers: what is left after one is nearly all, so they score
    higher than all other moves, and tau would lie between the two.
    """
    items = tuple(whole_solution(one, models.domain) for one in held)
    verdicts = cast(tuple[Verdict, ...], models.backend.answer(Verify(items)))
    relative = params.verifier.targets[params.domain] == "relative"
    chosen = [
        slice(one.fresh, len(one.moves) - (relative and _answers(models.domain, item)))
        for one, item in zip(held, items, strict=True)
    ]
    threshold = RULES[params.verifier.threshold](
        [
            score
            for part, verdict in zip(chosen, verdicts, strict=True)
            for score in verdict.step_scores[part]
        ],
        [value for part, one in zip(chosen, held, strict=True) for value in one.before[part]],
        [value for part, one in zip(chosen, held, strict=True) for value in one.values[part]],
        solvable=params.rollouts.explored_from,
    )
    save_threshold(folder, threshold)
    known = {name: value for name, value in asdict(threshold).items() if value is not None}
    return {f"threshold.{name}": float(value) for name, value in known.items()}


def _answers(domain: Domain, item: VerifyItem) -> bool:
    """Whether the last of the steps is an answer."""
    return domain.is_final(reduce(domain.apply, item.steps, item.state))


def _audit(params: Params, models: OpenModels, benchmark: Path) -> dict[str, float]:
    """Step AUC on validation problems against exact truth, of all steps and of first errors; where
    there is none, against answers and against rollouts."""
    tasks = read_tasks(benchmark, "validation")
    with open_grader(params) as grader:
        steps = inspect_samples(
            models.domain,
            models.backend,
            tasks,
            samples=params.verifier.audit_samples,
            grader=grader,
        )
    kinds = {"problem_id": str, "sample": int, "before": bool, "alive": bool, "score": float}
    scored = pd.DataFrame(steps, columns=list(kinds)).astype(kinds)  # of no sample, too
    known = knows_truth(models.domain)
    if not known:  # only an answer can be counted, and it is as good as all that leads to it
        scored["score"] = scored.groupby(["problem_id", "sample"])["score"].cumprod()
    rows = scored[scored["score"].notna()]
    decided = rows[rows["before"]]
    found = {
        "validation_step_auc": _area(*_columns(rows if known else decided)),
        "validation_decision_auc": _area(*_columns(decided)),
    }
    if not known and params.verifier.audit_rollouts:
        found |= _audit_by_rollouts(params, models, tasks)
    return {name: value for name, value in found.items() if value is not None}


def _audit_by_rollouts(
    params: Params, models: OpenModels, tasks: Sequence[Task]
) -> dict[str, float | None]:
    """Step AUC against whether most continuations of a state reach the right answer."""
    with open_grader(params) as grader:
        steps = steps_by_rollouts(
            models.domain,
            models.backend,
            tasks,
            solutions=params.verifier.audit_samples,
            rollouts=params.verifier.audit_rollouts,
            grader=grader,
        )
    return {
        "validation_rollout_auc": _area(steps["score"].tolist(), steps["right"].tolist()),
        "validation_rollout_steps": float(len(steps)),
        "validation_rollout_right": float(steps["right"].sum()),
    }


def steps_by_rollouts(
    domain: Domain,
    backend: Backend,
    tasks: Sequence[Task],
    *,
    solutions: int,
    rollouts: int,
    grader: Grader,
) -> pd.DataFrame:
    """Each distinct step of sampled solutions, with what the verifier and continuations say of it.

    Args:
        solutions: sampled of each problem.
        rollouts: continuations of the state after a step; it is right if most of them are.

    Returns:
        One row a step: problem_id; score, the verifier's; right.
    """
    sampled = sample_training_solutions(domain, backend, tasks, solutions=solutions)
    values = state_values(
        domain, backend, sampled, solutions=solutions, rollouts=rollouts, grader=grader
    )
    valued = value_solutions(sampled, values)
    items = tuple(whole_solution(one, domain) for one in valued)
    verdicts = cast(tuple[Verdict, ...], backend.answer(Verify(items)))
    steps = {
        (one.problem_id, one.moves[: step + 1]): (one.problem_id, score, one.values[step] > MOST)
        for one, verdict in zip(valued, verdicts, strict=True)
        for step, score in enumerate(verdict.step_scores)
    }
    kinds = {"problem_id": str, "score": float, "right": bool}
    return pd.DataFrame(list(steps.values()), columns=list(kinds)).astype(kinds)


def _area(scores: list[float], right: list[bool]) -> float | None:
    """The area under the curve; None where nothing was sampled that can be judged."""
    return area_under_roc(scores, right) if scores else None


def _columns(rows: pd.DataFrame) -> tuple[list[float], list[bool]]:
    return rows["score"].tolist(), rows["alive"].tolist()


def _report(epoch: Epoch) -> None:
    if epoch.part == "backbone" or epoch.epoch % REPORT_EVERY == 0:
        say(f"verifier: {epoch}")
