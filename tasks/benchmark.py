"""Stage ``benchmark``: the problems of all splits, and a check that they share none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from selverify.data.benchmark import (
    FURTHER,
    SPLITS,
    TRANSFER,
    Task,
    benchmark_rows,
    build,
    check_leaks,
)
from selverify.data.gold_moves import gold_solutions
from selverify.data.near_duplicates import PHRASE, apart_from
from selverify.data.text_benchmarks import (
    Draw,
    Questions,
    load_known,
    load_questions,
    tasks_from,
)
from selverify.domains import domain_by_name, generated_by_name
from selverify.domains.grade_school import GradeSchool
from selverify.params import Benchmark, Params, TextBenchmark, TextSplit
from tasks.artifacts import say, write_rows

ANY_FILE = "file"


def run(
    params: Params, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> dict[str, float]:
    """Write ``problems`` and ``truths`` of all splits, and what is ``written`` of training ones."""
    settings = params.benchmark[params.domain]
    if isinstance(settings, Benchmark):
        tasks = build(generated_by_name(params.domain), settings)
    else:
        tasks = _from_text(params.domain, settings)
    check_leaks(tasks)
    problems, truths = benchmark_rows(tasks)
    write_rows(outputs["benchmark"], "benchmark", "problems", problems)
    write_rows(outputs["benchmark"], "benchmark", "truths", truths)
    write_rows(outputs["benchmark"], "benchmark", "written", _written(settings, params, tasks))
    return {"problems": len(problems)}


def _from_text(domain: str, settings: TextBenchmark) -> tuple[Task, ...]:
    """Questions of files; training leaves out what is in the test's file, or nearly so.

    Questions to transfer to leave out what is in any file of the benchmark, or nearly so.
    """
    splits = {name: getattr(settings, name) for name in SPLITS}
    if settings.further is not None:
        splits[FURTHER] = settings.further
    pools = {name: split_questions(split) for name, split in splits.items()}
    test = pools["test"]
    others = {name: pool for name, pool in pools.items() if pool != test}
    apart = {pool: _apart(pool, test) for pool in dict.fromkeys(others.values())}
    pools |= {name: apart[pool] for name, pool in others.items()}
    if settings.transfer is not None:
        splits[TRANSFER] = settings.transfer
        pools[TRANSFER] = _apart(split_questions(settings.transfer), test, *others.values())
    draws = {name: Draw(pools[name], split.problems, split.seed) for name, split in splits.items()}
    return tasks_from(domain_by_name(domain), **draws)


def _written(
    settings: Benchmark | TextBenchmark, params: Params, tasks: Sequence[Task]
) -> list[dict[str, object]]:
    """The moves of the training problems' written solutions, where they can be read as moves."""
    if params.domain != GradeSchool.name or not isinstance(settings, TextBenchmark):
        return []
    splits = (split for split in (settings.train, settings.further) if split is not None)
    pools = dict.fromkeys(map(split_questions, splits))
    wanted = {task.problem.problem_id for task in tasks if task.split in ("train", FURTHER)}
    return [
        {"problem_id": one.question_id, "moves": list(one.moves)}
        for pool in pools
        for one in gold_solutions(pool, words=False)[0]
        if one.question_id in wanted
    ]


def _apart(pool: Questions, *others: Questions) -> Questions:
    """``pool`` without what stands in one of the others, or nearly so."""
    for other in dict.fromkeys(others):
        kept = apart_from(pool, other)
        if left_out := len(pool.items) - len(kept.items):
            say(
                f"benchmark: {left_out} questions of {pool.source} stand in {other.source} or "
                f"share {PHRASE} words in a row with one of its questions: left out"
            )
        pool = kept
    return pool


def split_questions(split: TextSplit) -> Questions:
    """All questions that a split of text may be drawn from."""
    path = None if split.path is None else Path(split.path)
    if split.source == ANY_FILE and path is not None:
        return load_questions(path)
    return load_known(split.source, path)
