"""``params.yaml`` is complete, and every mistake in it is one sentence that names the field."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from selverify.errors import ParamsError
from selverify.models.sources import has_source, read_generator_source
from selverify.params import check_params, load_params, read_yaml
from selverify.solving import Solver, SolveSettings

PARAMS = Path(__file__).parents[1] / "params.yaml"
ABSENT = object()
Changes = dict[str, Any]


def changed(changes: Changes) -> dict[str, Any]:
    """The project's parameters in plain form, each dotted name with another value, or without."""
    raw: dict[str, Any] = yaml.safe_load(PARAMS.read_text(encoding="utf-8"))
    for name, value in changes.items():
        *sections, key = name.split(".")
        section = reduce(lambda inside, part: inside[part], sections, raw)
        if value is ABSENT:
            del section[key]
        else:
            section[key] = value
    return raw


def without_oracles() -> list[str]:
    """The methods that a domain of text can run."""
    methods = changed({})["evaluation"]["methods"]
    return [name for name in methods if not name.startswith("oracle")]


MATH = {"domain": "math", "backbones": ["llama1b"], "evaluation.methods": without_oracles()}
"""What a profile for a model of the hub sets."""
OF_A_TOOL = {"domain": "countdown", "verifier.kind.countdown": "source"}


def test_the_project_has_valid_parameters() -> None:
    """The file that is shipped passes its own check, and its headline budget is one it runs."""
    params = load_params(PARAMS)
    assert params.evaluation.headline_budget in params.evaluation.budgets
    check_params(changed(MATH), PARAMS)
    taus = {"exploration.tau": 0.5, "search.tau": 0.5, "evaluation.grid.tau": [0.5]}
    check_params(changed(OF_A_TOOL | taus), PARAMS)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"search.k_base": ABSENT, "search.k_bas": 4.0},
            r"params\.yaml: unknown key 'search\.k_bas' \(and 1 more\); check its spelling",
        ),
        ({"verifier": ABSENT}, "key 'verifier' is missing"),
        ({"evaluation.headline_budget": 0}, r"evaluation\.headline_budget: given 0, expected: "),
        ({"search.tau": 1.5}, r"search\.tau: given 1\.5, expected: "),
        ({"verifier.targets.countdown": "medium"}, r"verifier\.targets\.countdown: given 'medium'"),
        ({"verifier.targets.word_problems": "relative"}, "given relative, expected soft or hard"),
        ({"verifier.targets.word_problems": "written"}, "of grade_school alone"),
        ({"generator.grade_school.smollm2.tuning.words": True}, "expected alphabet null where"),
        ({"residual.rate": "1e-3"}, r"residual\.rate: given '1e-3', expected: "),  # text in YAML
        ({"search.beta": float("nan")}, r"search\.beta: given nan, expected: "),
        ({"residual.rate": float("inf")}, r"residual\.rate: given inf, expected: "),
        ({"evaluation.grid.proposals": []}, r"evaluation\.grid\.proposals: given \[\], expected: "),
        ({"evaluation.methods": []}, r"evaluation\.methods: given \[\], expected: "),
        ({"difficulty.bins": True}, r"difficulty\.bins: given True, expected: "),
        ({"benchmark.countdown.minimum": 99}, "minimum 99 exceeds maximum"),
        ({"rollouts.threshold_share": 0.5}, "are more than all training problems"),
        (
            {"evaluation.budgets": [2, 4]},
            r"evaluation: headline_budget: given 64, expected one of the .*\[2, 4\]",
        ),
        (
            {"evaluation.split": "validation"},
            r"evaluation\.problems 250 above benchmark\.word_problems\.validation\.problems 150",
        ),
        ({"evaluation.calls": [4, 2]}, r"evaluation: calls: given \[4, 2\], expected rising"),
        ({"evaluation.budgets": [2, 64, 2]}, r"budgets: given \[2, 64, 2\], expected each once"),
        ({"evaluation.folds": 1}, r"evaluation\.folds: given 1, expected: .* equal to 2"),
        ({"evaluation.folds": 251}, "evaluation: folds 251 above problems 250"),
        ({"difficulty.samples": 1}, r"difficulty\.samples: given 1, expected: .* equal to 2"),
        ({"difficulty.bins": 251}, r"difficulty\.bins 251 above evaluation\.problems 250"),
        ({"residual.seed": 2**63}, r"residual\.seed: given 9223372036854775808, expected: "),
        ({"evaluation.sampling_seeds": [2**64]}, r"evaluation\.sampling_seeds\.0: given 18446"),
        ({"evaluation.calls": [0, 2]}, r"evaluation\.calls\.0: given 0, expected: "),
        ({"backbones": ["large"]}, "backbones: given large, expected one of"),
        ({"generator.math.served.kind": 7}, r"generator\.math\.served: given .*'<int>'"),
        (
            {**MATH, "evaluation.methods": ["cot", "oracle"]},
            r"evaluation\.methods: given oracle, expected no oracle",
        ),
        (
            {"verifier.kind.word_problems": "head"},
            "given head, expected token_logprobs, value or source",
        ),
        (
            {**MATH, "verifier.kind.math": "token_logprobs"},
            "given token_logprobs, expected head, adapter or source",
        ),
        (
            {
                "domain": "countdown",
                "strengths": ["strong", "weak"],
                "verifier.kind.countdown": "source",
                "evaluation.problems": 10,
            },
            "expected one: the verifier of countdown is not trained",
        ),
        (OF_A_TOOL | {"search.tau": 0.5}, r"exploration\.tau: given null, expected a number"),
        (OF_A_TOOL | {"exploration.tau": 0.5}, r"search\.tau: given null, .* of countdown is not"),
        (
            OF_A_TOOL | {"exploration.tau": 0.5, "search.tau": 0.5},
            r"evaluation\.grid\.tau: given null, .* has to be given its tau",
        ),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_field(changes: Changes, sentence: str) -> None:
    """What was given and what was expected; what does not go together is found out at once."""
    with pytest.raises(ParamsError, match=sentence) as caught:
        check_params(changed(changes), PARAMS)
    assert "\n" not in str(caught.value)


def test_shipped_sources_are_those_of_the_parameters() -> None:
    """A stage that is started by hand reads them as they lie in the checkout."""
    params = load_params(PARAMS)
    folders = [folder for folder in PARAMS.with_name("models").iterdir() if has_source(folder)]
    assert folders
    for folder in folders:
        domain, backbone = folder.name.rsplit("-", 1)
        assert read_generator_source(folder) == params.generator[domain][backbone], folder.name


def test_parameters_are_frozen() -> None:
    """A stage cannot change what the next one reads."""
    with pytest.raises(ValidationError, match="frozen"):
        load_params(PARAMS).search.tau = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [("key_variable", "sk-secret"), ("url", "http://me:sk-secret@host/v1")],
)
def test_a_key_in_the_wrong_place_is_not_shown(field: str, value: str) -> None:
    """The sentence names the field only."""
    with pytest.raises(ParamsError, match=rf"generator\.math\.served\.{field}: expected") as caught:
        check_params(changed({f"generator.math.served.{field}": value}), PARAMS)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"verifier": {"kind": "judge", "model": "m"}}, r"verifier: key 'url' is missing$"),
        (
            {"verifier": {"kind": "judge", "model": "m", "base_url": "http://sk-secret"}},
            r"verifier: unknown key 'base_url' \(and 1 more\), expected one of kind, url, model, ",
        ),
        (
            {"verifier": {"kind": "value_head", "model": "m", "url": "http://sk-secret"}},
            r"verifier: unknown key 'url' \(and 1 more\), expected one of kind, format, model, ",
        ),
        (
            {"verifier": {"kind": "judge", "model": "m", "url": "http://me:sk-secret@host"}},
            r"verifier: url: expected http\(s\)://host/path, [^)]*$",
        ),
        ({"generator": {"kind": "server", "model": "m"}}, r"generator: key 'url' is missing$"),
        (
            {"generator": {"base_url": "http://sk-secret", "model": "m"}},
            r"generator: unknown key 'base_url', expected one of url \(of a server, with key_vari",
        ),
        (
            {"generator": {"url": "http://host/v1", "model": "m", "api_key": "sk-secret"}},
            r"generator: unknown key 'api_key', expected one of url, model, key_variable, ",
        ),
        ({"settings": SolveSettings(tau=50)}, r"settings: tau: given 50, expected: .* equal to 1$"),
        ({"settings": SolveSettings(tau=-0.1)}, r"settings: tau: given -0\.1, expected: .* to 0$"),
    ],
)
def test_a_mistake_in_the_settings_of_a_solver_is_one_sentence(
    given: dict[str, Any], sentence: str
) -> None:
    """Only what the reader left out or misspelt is named, with the keys that there are."""
    known: dict[str, Any] = {"generator": lambda question, steps, n: ["So."] * n}
    with pytest.raises(ParamsError, match=sentence) as caught:
        Solver(**known | given)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_numbers_are_read_as_dvc_writes_them(tmp_path: Path) -> None:
    """YAML 1.2's, in which 1e-05 needs no point."""
    path = tmp_path / "params.yaml"
    path.write_text(
        "a: [1e-05, -2E3, 1.5e+3, 1e5x, '1e5', 3]\n"
        "b: &b {x: 1}\nc: {in: &in {<<: *b, x: 2}}\nd: {<<: *in, y: 3}\n1: 4\n'1': 5\n"
    )
    assert read_yaml(path) == {
        "a": [1e-5, -2000.0, 1500.0, "1e5x", "1e5", 3],
        "b": {"x": 1},
        "c": {"in": {"x": 2}},
        "d": {"x": 2, "y": 3},
        1: 4,
        "1": 5,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: key 'a' stands here again"),
        ("? [1]\n: 2\n", "unhashable"),
        ("!!map [a]", "not YAML"),
    ],
)
def test_a_key_stands_once_and_is_a_name(tmp_path: Path, text: str, sentence: str) -> None:
    """DVC refuses the file, too."""
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ParamsError, match=sentence):
        read_yaml(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="expected a file that can be read"):
        read_yaml(tmp_path)
