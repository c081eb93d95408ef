"""The trained policy on its own, on checkpoints of random weights."""

import json
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import selverify
from selverify.domains import GENERATED
from selverify.domains.word_problems import NAMES as ALL_NAMES
from selverify.errors import ArtifactError, BudgetError, SchemaError
from selverify.experiment.methods import Conditions, Trial, gated_settings
from selverify.models import assembly
from selverify.models.policy_settings import load_policy_settings, save_policy_settings
from selverify.models.threshold import with_tau
from selverify.models.tokenizer import Words
from selverify.params import load_params
from selverify.policy import Solved, TrainedPolicy, load_policy
from selverify.search.ledger import Ledger
from selverify.search.traces import Event
from selverify.storage import write_digests
from selverify.types import Problem

PARAMS = with_tau(load_params(Path(__file__).parents[1] / "params.yaml"), 0.4)
NAMES = "apples pears plums figs limes nuts dates beans peas corns cups pens books coins cards"
TEXT = " ".join(f"we count {x} {v} ." for v, x in enumerate(NAMES.split()))
QUESTIONS = [f"find {name} ?" for name in NAMES.split()]
SHORT = "we count apples 7 . pears equal 3 times apples . find pears ?"


@pytest.fixture(scope="module")
def policy(tiny_models: Path) -> TrainedPolicy:
    return load_policy(tiny_models)


@pytest.fixture
def models(tiny_models: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(tiny_models.parent, tmp_path / "models") / tiny_models.name


@pytest.mark.parametrize("budget", [1, 3, 16])
def test_texts_are_solved_within_the_budget(policy, budget):
    """Calls are spent, never more than the budget; the events sum to what is reported."""
    solutions = policy.solve_many([f"{TEXT} {question}" for question in QUESTIONS], budget=budget)
    for solved in solutions:
        total = sum((event.ledger for event in solved.events), start=Ledger())
        assert solved.verifier_calls == total.verifier_calls <= budget
        assert solved.generated_tokens == total.generated_tokens
        assert total.generated_moves <= policy.generation_cap(budget)
        assert all(text.endswith(" ;") for text in solved.derivation)
        assert (solved.answer is not None) == (solved.reason == "answered")
        assert dict(solved.events[-1].data) == {"reason": solved.reason, "answer": solved.answer}
    assert sum(solved.verifier_calls for solved in solutions) > budget
    assert any(len(solved.derivation) > 1 for solved in solutions)


def test_a_search_does_not_show_what_decoding_left(tiny_models, monkeypatch):
    """With embeddings from decoding and from a second pass: the same events, answers and calls."""
    texts = [f"{TEXT} {question}" for question in QUESTIONS]
    kept = load_policy(tiny_models).solve_many(texts, budget=8)
    assert kept == load_policy(tiny_models).solve_many(texts, budget=8)
    monkeypatch.setattr(assembly, "KEPT_MOVES", 0)
    for one, other in zip(kept, load_policy(tiny_models).solve_many(texts, budget=8), strict=True):
        assert replace(one, events=()) == replace(other, events=())
        assert [said(event) for event in one.events] == [said(event) for event in other.events]


def test_problems_together_are_solved_as_each_alone(policy):
    """Neighbours change nothing but the last digits of scores; equal texts get equal samples."""
    text = f"{TEXT} find figs ?"
    problems = [text, SHORT, Problem("mine", "word_problems", text, ""), f"  {text}\n"]
    together = policy.solve_many(problems, budget=4)
    for problem, solved in zip(problems, together, strict=True):
        alone = policy.solve(problem, budget=4)
        assert replace(alone, events=()) == replace(solved, events=())
        assert [said(event) for event in alone.events] == [said(event) for event in solved.events]
        assert scores(alone) == pytest.approx(scores(solved), abs=1e-5)
    assert list(map(said, together[0].events)) == list(map(said, together[3].events))
    assert list(map(said, together[0].events)) != list(map(said, together[2].events))
    assert policy.solve_many((), budget=4) == ()


def said(event: Event) -> tuple[object, ...]:
    """An event without its scores."""
    data = dict(event.data)
    texts = [data.get(name) for name in ("texts", "survivors", "steps", "move", "k")]
    return (event.event, event.ledger, texts)


def scores(solved: Solved) -> list[float]:
    """The verifier's scores, in order."""
    data = [dict(event.data) for event in solved.events]
    return [float(one["score"]) for one in data if "score" in one]


def test_the_rules_are_those_of_the_evaluation(policy):
    """Settings and samples allowed equal the full method's under ``search``, with retrieval too."""
    search = PARAMS.search.model_copy(update={"retrieval": True})
    for params in (PARAMS, PARAMS.model_copy(update={"search": search})):
        conditions = Conditions(
            params=params,
            dispersion={"hybrid": policy.reference_dispersion},
            patterns=policy.patterns,
        )
        settings = policy.policy_settings.model_copy(update={"search": params.search})
        own = replace(policy, policy_settings=settings)
        for n in (1, 2, 16, 64):
            trial = Trial(policy.domain, None, n, (), conditions)  # the problem plays no part
            assert own.settings(n) == gated_settings(trial)
            assert own.generation_cap(n) == trial.generation_cap


@pytest.mark.parametrize("domain", GENERATED.values(), ids=GENERATED)
def test_a_domain_reads_its_own_problems(domain):
    """Text alone gives back the goal of every generated problem."""
    rng = random.Random(4)
    for index in range(50):
        problem, _ = domain.generate(rng, problem_id=f"p{index}", minimum=4, maximum=4)
        assert domain.read(problem.text, problem_id=f"p{index}") == problem


@pytest.mark.parametrize("domain", GENERATED.values(), ids=GENERATED)
@pytest.mark.parametrize("text", ["", "?", "find", "find 7 ?", "use 1 to make", "apples find ?"])
def test_a_text_without_a_question_is_refused(domain, text):
    """The message names the problem and shows what a question looks like."""
    with pytest.raises(SchemaError, match=r"^p: given .*expected .* like '"):
        domain.read(text, problem_id="p")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("we count appels 7 . find appels ?", "unknown word 'appels'; expected words of word_pr"),
        ("we count apples 7. find apples ?", "unknown word '7.'; expected .* a space before"),
        ("we count apples 7 .", "expected a question like 'how many apples \\?'"),
        ("", "expected a question like"),
        ("we count apples 7 . " * 22 + "find apples ?", "113 words, expected at most 111"),
        (Problem("c1", "countdown", "use 4 7 8 8 to make 24 .", "reach 24"), "c1: .*of countdown"),
    ],
)
def test_a_problem_that_cannot_be_read_is_refused(policy, problem, message):
    """One sentence says what was given and what was expected."""
    with pytest.raises(SchemaError, match=message):
        policy.solve(problem, budget=4)


def test_the_longest_text_is_solved(policy):
    """The limit on words leaves room for every derivation."""
    forms = ["we count {} 7 ."] * 18 + ["of {} 7 are there ."] * 3
    told = " ".join(form.format(name) for form, name in zip(forms, ALL_NAMES, strict=False))
    words = f"{told} find apples ?"
    assert len(words.split()) == policy.longest
    policy.solve(words, budget=16)


@pytest.mark.parametrize("budget", [0, -3])
def test_a_budget_below_one_is_refused(policy, budget):
    """Even where there is nothing to solve."""
    for problems in ((SHORT,), ()):
        with pytest.raises(BudgetError, match=f"given {budget} verifier calls, expected a whole"):
            policy.solve_many(problems, budget=budget)


@pytest.mark.parametrize(
    ("problems", "what"), [(SHORT, "problems: given a str"), ([5], "problem: given a int")]
)
def test_what_is_no_list_of_texts_is_refused(policy, problems, what):
    with pytest.raises(SchemaError, match=f"{what}, expected a"):
        policy.solve_many(problems, budget=1)


@pytest.mark.parametrize(
    ("file", "stage"),
    [
        ("small-strong/solver.json", "evaluation"),
        ("small-strong/policy/policy.json", "residual"),
        ("small-strong/policy/heuristic.safetensors", "residual"),
        ("small-strong/verifier/config.json", "verifier"),
        ("small-strong/verifier/model.safetensors", "verifier"),
        ("word_problems-small/config.json", "generator"),
        ("word_problems-small/tokenizer.json", "generator"),
        ("word_problems-small/model.safetensors", "generator"),
    ],
)
def test_a_missing_file_is_named_with_its_stage(models, file, stage):
    """Whatever is missing, the sentence says which stage writes it."""
    (models.parent / file).unlink()
    with pytest.raises(ArtifactError, match=rf"{file}: no such file; stage '{stage}' writes it"):
        load_policy(models)


def change(path: Path, **values: object) -> None:
    """Change fields of a JSON file; those of an envelope's data under ``data``."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw["data"] = {**raw.get("data", {}), **values.pop("data", {})}
    path.write_text(json.dumps({**raw, **values}), encoding="utf-8")


def test_another_schema_is_refused(models):
    """Of the settings, of the heuristic, and of a single field."""
    solver, heuristic = models / "solver.json", models / "policy" / "policy.json"
    change(heuristic, schema=0)
    write_digests(heuristic.parent)
    with pytest.raises(SchemaError, match=r"policy\.json: schema 0, expected 7; train it again"):
        load_policy(models)
    change(solver, data={"seed": -1})
    with pytest.raises(
        SchemaError, match=r"solver\.json: seed: given -1, expected: .*'evaluation'"
    ):
        load_policy(models)
    change(solver, version=0)
    with pytest.raises(SchemaError, match=r"solver\.json: written as evaluation\.solver 0, expect"):
        load_policy(models)


def test_a_verifier_of_other_words_is_refused(models):
    """It would read one word for another."""
    Words(GENERATED["word_problems"].vocabulary[:-1]).save(models / "verifier")
    write_digests(models / "verifier")
    with pytest.raises(SchemaError, match="another vocabulary"):
        load_policy(models)


def test_a_heuristic_of_another_backbone_is_refused(models):
    """Its embeddings would mean something else."""
    change(models.parent / "word_problems-small" / "generation_config.json", top_k=3)
    write_digests(models.parent / "word_problems-small")
    with pytest.raises(SchemaError, match="train the residual again for this generator"):
        load_policy(models)


def test_settings_are_read_as_they_were_saved(tmp_path):
    """What the stage gives is what the policy is used under."""
    save_policy_settings(tmp_path / "solver.json", PARAMS, backbone="word_problems-base")
    settings = load_policy_settings(tmp_path)
    assert (settings.domain, settings.backbone) == ("word_problems", "word_problems-base")
    assert settings.search == PARAMS.search
    assert settings.sampling == PARAMS.sampling["word_problems"]
    assert settings.seed == PARAMS.evaluation.sampling_seeds[0]


def test_the_front_door_opens_without_torch():
    """Every public name is there, and importing the package alone is quick."""
    assert all(getattr(selverify, name).__name__ == name for name in selverify.__all__)
    with pytest.raises(AttributeError, match="no attribute 'load_polcy'"):
        _ = selverify.load_polcy
    code = "import sys, selverify, selverify.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_models_that_were_trained_here_open_without_transformers(tiny_models):
    """Importing it takes seconds, in every process of every stage."""
    opens = f"from selverify.policy import load_policy; load_policy({str(tiny_models)!r})"
    code = f"import sys; {opens}; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("angles", "missing", "message"),
    [
        (None, None, "rope_parameters None, expected rope_type default"),
        ({"rope_type": "llama3"}, None, "'llama3'}, expected rope_type default"),
        ({"rope_type": "default"}, None, "no 'rope_theta' in config.json"),
        ({"rope_theta": 1e4}, "model.layers.0.mlp.up_proj.weight", "no 'model.layers.0.mlp.up_p"),
    ],
)
def test_a_backbone_that_is_no_whole_llama_is_refused(models, angles, missing, message):
    """What the decoder would compute otherwise, or cannot."""
    backbone = models.parent / "word_problems-small"
    config, weights = backbone / "config.json", backbone / "model.safetensors"
    stated = {**json.loads(config.read_text(encoding="utf-8")), "rope_parameters": angles}
    config.write_text(json.dumps(stated), encoding="utf-8")
    kept = {name: tensor for name, tensor in load_file(weights).items() if name != missing}
    save_file(kept, weights)
    write_digests(backbone)
    with pytest.raises(SchemaError, match=re.escape(message)):
        load_policy(models)
