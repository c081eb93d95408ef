"""The frozen stage that tunes a model: what it learns from, and when a run takes what is there."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from flows.preflight import name_sources
from flows.stages import load_stages
from selverify.data.benchmark import FURTHER, SPLITS, TRANSFER
from selverify.domains.grade_school import GradeSchool
from selverify.errors import ParamsError, SchemaError
from selverify.models.sources import SOURCE, read_generator_source
from selverify.params import Params, PretrainedParams, TextBenchmark, TextSplit, Tuning, load_params
from selverify.search.backend import Backend
from selverify.storage import read_json
from selverify.types import Sample, State
from tasks import benchmark as benchmark_stage
from tasks import generator as stage
from tasks import rollouts
from tasks.artifacts import read_rows, read_tasks, read_training, write_rows

ROOT = Path(__file__).parents[2]
TUNING = Tuning(
    rank=2, alpha=4.0, words=False, values=True, epochs=1, tokens_per_batch=400, rate=1e-3,
    warmup_fraction=0.1, bfloat16=False, saved_steps=5, seed=1,
)  # fmt: skip
NEAR = "Every evening after school her younger sister bakes"
"""A phrase of eight words that a question of the pool and one of the test share."""


def write_questions(path: Path, *, first: int, count: int, special: str) -> None:
    rows = []
    for number in range(first, first + count):
        story = special if number == first else f"In town{number} a shop{number} sells"
        question = f"{story} {number} rolls and {number + 1} cakes. How many in all{number}?"
        total = 2 * number + 1
        solution = f"It is {number}+{number + 1}=<<{number}+{number + 1}={total}>>{total}."
        rows.append(json.dumps({"question": question, "answer": f"{solution}\n#### {total}"}))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture
def params(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A pool of 40 questions, one of which shares a phrase with a test question."""
    monkeypatch.chdir(tmp_path)
    write_questions(Path("pool.jsonl"), first=100, count=40, special=NEAR)
    write_questions(Path("test.jsonl"), first=500, count=6, special=f"Well. {NEAR}")
    split = {
        name: TextSplit(source="file", path=path, problems=count, seed=1)
        for name, path, count in (
            ("train", "pool.jsonl", 9), ("validation", "pool.jsonl", 4), ("test", "test.jsonl", 3),
        )
    }  # fmt: skip
    source = PretrainedParams(
        kind="transformers", model=str(llama), revision=None, dtype="float32", prompt=None,
        kept_tokens=2000, exact_values=True, alphabet=None, tuning=TUNING,
    )  # fmt: skip
    loaded = load_params(ROOT / "params.yaml")
    return loaded.model_copy(
        update={
            "domain": GradeSchool.name,
            "backbones": ("tiny",),
            "benchmark": {
                **loaded.benchmark,
                GradeSchool.name: TextBenchmark(**split, further=None, transfer=None),
            },
            "generator": {**loaded.generator, GradeSchool.name: {"tiny": source}},
        }
    )


def test_no_problem_of_the_benchmark_and_none_like_a_test_problem_is_learned_from(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 solutions 9 train and 4 validation problems are out, and one that is told again."""
    benchmark_stage.run(params, {}, {"benchmark": Path("benchmark")})
    assert len(read_rows(Path("benchmark"), "benchmark", "written")) == 9
    learned: list[str] = []
    held: list[str] = []
    train = stage.train_adapter

    def spy(pretrained, domain, solutions, held_out, *more, **settings):  # type: ignore[no-untyped-def]
        learned.extend(one.question for one in solutions)
        held.extend(one.question for one in held_out)
        return train(pretrained, domain, solutions, held_out, *more, **settings)

    monkeypatch.setattr(stage, "train_adapter", spy)
    folder = Path("models/grade_school-tiny")
    folder.mkdir(parents=True)
    found = stage.run(params, {"benchmark": Path("benchmark")}, {"generator": folder})
    assert found["generator_solutions"] == len(learned) == 40 - 9 - 4 - 1
    assert len(held) == 4
    assert not set(held) & set(learned)
    assert not [question for question in learned if NEAR in question]
    marks = read_json(folder / "held_out.json", schema="generator.held_out", version=1)["marks"]
    assert len(marks) == 9 + 4 + 3
    rollouts._check_held_out({"generator": folder, "benchmark": Path("benchmark")})
    check_what_is_written_values_what_is_sampled(params, folder, monkeypatch)
    check_a_run_takes_it(params, folder)


def check_what_is_written_values_what_is_sampled(
    params: Params, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole solutions of the problems that have a written one, without a rollout."""

    def sampled(_: Backend, states: Sequence[State], *, count: int) -> list[tuple[Sample, ...]]:
        return [tuple(sample(state, index) for index in range(count)) for state in states]

    def sample(state: State, index: int) -> Sample:
        first, second = map(int, re.findall(r"(\d+) (?:rolls|cakes)", state.problem.text))
        line = f"{first} + {second} = {first + second}"
        texts = f"{line}\nAnswer {first + second}", f"1 + 1 = 2\nAnswer {first}", "none"
        return Sample(texts[index % 3], 6, -1.0)

    monkeypatch.setattr("selverify.training.rollouts.sample_completions", sampled)
    inputs = {"generator": folder, "benchmark": Path("benchmark")}
    found = rollouts.run(params, inputs, {"rollouts": Path("rollouts")})
    rows = read_rows(Path("rollouts"), "rollouts", "values")
    assert found == {"rows": 16, "parsed_share": 11 / 16}
    assert [row["values"] for row in rows] == [[1.0, 1.0], [0.0]] * 8
    assert [row["count"] for row in rows] == [6, 5] * 8
    assert {row["start"] for row in rows} == {1.0}
    write_rows(Path("benchmark"), "benchmark", "written", [])
    with pytest.raises(ParamsError, match="no written solutions that can be read as moves"):
        rollouts.run(params, inputs, {"rollouts": Path("rollouts")})


def test_a_tuning_that_has_nothing_to_learn_from_is_a_sentence(params: Params) -> None:
    """A pool of the 13 questions that the benchmark takes."""
    write_questions(Path("pool.jsonl"), first=100, count=13, special="Some other story of")
    benchmark_stage.run(params, {}, {"benchmark": Path("benchmark")})
    with pytest.raises(ParamsError, match=r"tiny\.tuning: given a tuning, .* of file no written"):
        stage.run(params, {"benchmark": Path("benchmark")}, {"generator": Path("models/tuned")})


def draw_beside(params: Params, split: str, path: str, *, problems: int) -> Params:
    """The benchmark stage with one more split, and the parameters that it ran under."""
    of_files = params.benchmark[GradeSchool.name]
    assert isinstance(of_files, TextBenchmark)
    more = TextSplit(source="file", path=path, problems=problems, seed=2)
    wider = of_files.model_copy(update={split: more})
    changed = params.model_copy(update={"benchmark": {GradeSchool.name: wider}})
    benchmark_stage.run(changed, {}, {"benchmark": Path("benchmark")})
    return changed


def test_questions_to_transfer_to_are_apart_from_all_others(params: Params) -> None:
    """Of 12 questions of another file the one that shares a phrase with the pool is out."""
    write_questions(Path("first.jsonl"), first=900, count=6, special=f"So. {NEAR}")
    write_questions(Path("second.jsonl"), first=950, count=6, special="Some other story of")
    text = Path("first.jsonl").read_text() + Path("second.jsonl").read_text()
    Path("other.jsonl").write_text(text)
    draw_beside(params, "transfer", "other.jsonl", problems=11)
    tasks = read_tasks(Path("benchmark"), TRANSFER)
    assert len(tasks) == 11
    assert not [task for task in tasks if NEAR in task.problem.text]
    assert len(read_tasks(Path("benchmark"), "test")) == 3


def test_verifier_and_ranker_learn_from_further_questions_that_the_generator_may_know(
    params: Params,
) -> None:
    """As from training questions, which come first; tau's are training questions alone."""
    changed = draw_beside(params, "further", "pool.jsonl", problems=10)
    learned, others = (
        Counter(task.split for task in part) for part in read_training(Path("benchmark"), 0.6)
    )
    assert learned == {"train": 5, FURTHER: 6} and others == {"train": 4, FURTHER: 4}
    assert list(learned) == list(others) == ["train", FURTHER]
    assert len(read_rows(Path("benchmark"), "benchmark", "written")) == 9 + 10
    held_out = [task for split in SPLITS for task in read_tasks(Path("benchmark"), split)]
    tuned_on, _ = stage._written(changed, TUNING, held_out)
    known = {one.question_id for one in tuned_on}
    assert {task.problem.problem_id for task in read_tasks(Path("benchmark"), FURTHER)} <= known


def test_written_solutions_of_further_questions_are_read_in_their_own_file(params: Params) -> None:
    write_questions(Path("second.jsonl"), first=950, count=6, special="Some other story of")
    draw_beside(params, "further", "second.jsonl", problems=6)
    written = {row["problem_id"] for row in read_rows(Path("benchmark"), "benchmark", "written")}
    others = {task.problem.problem_id for task in read_tasks(Path("benchmark"), FURTHER)}
    assert len(others) == 6 and others < written and len(written) == 9 + 6


def check_a_run_takes_it(params: Params, folder: Path) -> None:
    """Only where it is of the tuning that is asked for; what else the source says may change."""
    stages = load_stages(params, ROOT / "dvc.yaml")
    assert name_sources(params, stages) == []
    source = params.generator[GradeSchool.name]["tiny"]
    assert isinstance(source, PretrainedParams)

    def asked(**changes: object) -> Params:
        changed = source.model_copy(update=changes)
        return params.model_copy(update={"generator": {GradeSchool.name: {"tiny": changed}}})

    sampled = asked(exact_values=False)
    assert name_sources(sampled, stages) == [folder]
    assert name_sources(asked(tuning=None), stages) == [folder]
    assert name_sources(params, stages) == [folder]
    assert read_generator_source(folder) == source
    (folder / SOURCE).write_text('{"schema": "generator.source", "version": 1, "data": {}}')
    assert name_sources(params, stages) == [folder], "written under other parameters"
    assert name_sources(asked(tuning=TUNING.model_copy(update={"saved_steps": 9})), stages)
    assert name_sources(params, stages) == [folder]
    other = asked(tuning=TUNING.model_copy(update={"epochs": 2}))
    with pytest.raises(
        SchemaError,
        match=r"of another tuning, expected one of epochs 2; run .* flows generator@tiny",
    ):
        name_sources(other, stages)
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(SchemaError, match="given no adapter, expected one of rank 2, "):
        name_sources(params, stages)


def test_the_benchmark_leaves_near_duplicates_out(params: Params) -> None:
    """Of 40 questions of the pool all but the near one can be drawn."""
    sizes = params.benchmark[GradeSchool.name]
    assert isinstance(sizes, TextBenchmark)
    train = sizes.train.model_copy(update={"problems": 35})
    most = sizes.model_copy(update={"train": train})
    benchmark_stage.run(
        params.model_copy(update={"benchmark": {GradeSchool.name: most}}),
        {},
        {"benchmark": Path("benchmark")},
    )
    drawn = [
        task.problem.text
        for split in ("train", "validation")
        for task in read_tasks(Path("benchmark"), split)
    ]
    assert len(drawn) == 35 + 4
    assert not [text for text in drawn if NEAR in text]


def test_a_benchmark_of_another_domain_holds_nothing_out(params: Params) -> None:
    benchmark_stage.run(params, {}, {"benchmark": Path("benchmark")})
    math = params.model_copy(
        update={"domain": "math", "generator": {"math": params.generator[GradeSchool.name]}}
    )
    with pytest.raises(SchemaError, match=r"given problems of grade_school, expected those of ma"):
        stage.run(math, {"benchmark": Path("benchmark")}, {"generator": Path("models/math-tiny")})


def test_other_domains_have_no_written_solutions(params: Params) -> None:
    source = params.generator[GradeSchool.name]["tiny"]
    math = params.model_copy(update={"domain": "math", "generator": {"math": {"tiny": source}}})
    with pytest.raises(ParamsError, match=r"generator\.math\.tiny\.tuning: given a tuning"):
        stage._written(math, TUNING, [])


def test_what_else_the_source_says_may_change_beside_a_committed_adapter() -> None:
    """Its digest is none of the adapter's, so another dtype does not make a damaged checkpoint."""
    digests = json.loads((ROOT / "models/grade_school-smollm2/digests.json").read_text())["data"]
    assert "adapter_model.safetensors" in digests and SOURCE not in digests
