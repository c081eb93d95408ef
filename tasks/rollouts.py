"""Stage ``rollouts``: Monte-Carlo values of the steps of sampled solutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from selverify.backends.local import LocalBackend
from selverify.benchmark import SPLITS, Task, check_held_out
from selverify.domains.base import GeneratedDomain
from selverify.params import Params, Rollouts
from selverify.rollouts import SampledSolution, sample_solutions, to_rows, value_solutions
from tasks.artifacts import local_backend, read_facts, read_tasks, read_training, say, write_rows

PROBLEMS_AT_ONCE = 50


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``values``: training problems, valued."""
    settings = params.rollouts
    domain, backend = local_backend(params, inputs, seed=settings.seed)
    _check_held_out(inputs)
    tasks, _ = read_training(inputs["benchmark"], settings.share)
    rows, solutions = [], 0
    for part in _parts(tasks):
        sampled, part_rows = _value(domain, backend, part, settings)
        rows += part_rows
        solutions += sum(one.count for one in sampled)
        say(f"rollouts: {part[-1].problem.problem_id}, {len(rows)} solutions valued")
    write_rows(outputs["rollouts"], "rollouts", "values", rows)
    parsed = solutions / (settings.solutions * len(tasks))
    return {"solutions": len(rows), "parsed_share": parsed}


def _check_held_out(inputs: Mapping[str, Path]) -> None:
    """The first use of the frozen generator: no test problem may stand in its training."""
    marks = read_facts(inputs["generator"], "generator", "held_out")["marks"]
    for split in SPLITS:
        tasks = read_tasks(inputs["benchmark"], split)
        known = check_held_out(tasks, marks, checkpoint=str(inputs["generator"]))
        if known:
            say(
                f"rollouts: {inputs['generator']} may have been trained on {known} of {len(tasks)} "
                f"problems of split {split!r}; verifier and ranker may learn from what it knows by "
                "heart (python -m flows generator trains it without them)"
            )


def _value(
    domain: GeneratedDomain, backend: LocalBackend, tasks: Sequence[Task], settings: Rollouts
) -> tuple[list[SampledSolution], list[dict[str, object]]]:
    sampled = sample_solutions(domain, backend, tasks, solutions=settings.solutions)
    valued = value_solutions(domain, backend, sampled, rollouts=settings.rollouts)
    return sampled, to_rows(domain, valued, sampled)


def _parts(tasks: Sequence[Task]) -> Iterator[Sequence[Task]]:
    for start in range(0, len(tasks), PROBLEMS_AT_ONCE):
        yield tasks[start : start + PROBLEMS_AT_ONCE]
