"""``params.yaml`` is complete, and every mistake in it is one sentence that names the field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from selverify.errors import ParamsError
from selverify.params import load_params

PARAMS = Path(__file__).parents[1] / "params.yaml"


def load_changed(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> object:
    """Load the project's parameters after ``change`` was applied to their plain form."""
    raw = yaml.safe_load(PARAMS.read_text(encoding="utf-8"))
    change(raw)
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return load_params(path)


def test_the_project_has_valid_parameters() -> None:
    """The file that is shipped passes its own check, and its headline budget is one it runs."""
    params = load_params(PARAMS)
    assert params.evaluation.headline_budget in params.evaluation.budgets


def test_a_misspelt_key_is_named(tmp_path: Path) -> None:
    """The message names the file and the unknown key by its full path."""
    with pytest.raises(ParamsError, match=r"params\.yaml: .*'search\.k_bas'"):
        load_changed(tmp_path, lambda raw: raw["search"].update(k_bas=raw["search"].pop("k_base")))


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    """A section that is not there has no default."""
    with pytest.raises(ParamsError, match="key 'verifier' is missing"):
        load_changed(tmp_path, lambda raw: raw.pop("verifier"))


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("evaluation", "headline_budget", 0),
        ("search", "tau", 1.5),
        ("verifier", "targets", "medium"),
        ("residual", "rate", "1e-3"),
        ("difficulty", "bins", True),
    ],
)
def test_a_value_out_of_range_or_of_another_type_is_named(
    tmp_path: Path, section: str, name: str, value: object
) -> None:
    """The message names the field and what was given; ``1e-3`` is text in YAML 1.1."""
    with pytest.raises(ParamsError, match=rf"{section}\.{name}: given {value!r}, expected: "):
        load_changed(tmp_path, lambda raw: raw[section].update({name: value}))


def test_a_smallest_size_above_the_largest_is_refused(tmp_path: Path) -> None:
    """The two bounds are checked together."""
    with pytest.raises(ParamsError, match="minimum 99 exceeds maximum"):
        load_changed(tmp_path, lambda raw: raw["benchmark"]["countdown"].update(minimum=99))


def test_a_headline_budget_that_is_not_run_is_refused(tmp_path: Path) -> None:
    """The report would have no row for its main table, found out after the last stage."""
    with pytest.raises(
        ParamsError, match=r"evaluation: headline_budget: given 64, expected one of the .*\[2, 4\]"
    ):
        load_changed(tmp_path, lambda raw: raw["evaluation"].update(budgets=[2, 4]))


@pytest.mark.parametrize("text", ["", "- a list", "a: [unclosed"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    """An empty file, a list and broken YAML each end as a ParamsError that names the file."""
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError, match=r"params\.yaml: "):
        load_params(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The path that was tried stands in the message."""
    with pytest.raises(ParamsError, match=r"absent\.yaml: no such file"):
        load_params(tmp_path / "absent.yaml")


def test_parameters_are_frozen() -> None:
    """A stage cannot change what the next one reads."""
    with pytest.raises(ValidationError, match="frozen"):
        load_params(PARAMS).search.tau = 0.1  # type: ignore[misc]


def as_math(raw: dict[str, Any]) -> None:
    """What a profile for a model of the hub sets."""
    raw["domain"], raw["backbones"] = "math", ["llama1b"]
    methods = raw["evaluation"]["methods"]
    raw["evaluation"]["methods"] = [name for name in methods if not name.startswith("oracle")]


def test_a_domain_of_text_knows_no_oracle(tmp_path: Path) -> None:
    """Found out at once, not at the end of the evaluation."""
    load_changed(tmp_path, as_math)

    def change(raw: dict[str, Any]) -> None:
        as_math(raw)
        raw["evaluation"]["methods"].append("oracle")

    with pytest.raises(ParamsError, match=r"evaluation\.methods: given oracle, expected no oracle"):
        load_changed(tmp_path, change)


def test_a_verifier_that_does_not_go_with_the_generator_is_refused(tmp_path: Path) -> None:
    def head(raw: dict[str, Any]) -> None:
        raw["verifier"]["kind"]["word_problems"] = "head"

    def token_logprobs(raw: dict[str, Any]) -> None:
        as_math(raw)
        raw["verifier"]["kind"]["math"] = "token_logprobs"

    with pytest.raises(ParamsError, match="given head, expected token_logprobs, value or source"):
        load_changed(tmp_path, head)
    with pytest.raises(ParamsError, match="given token_logprobs, expected head or source"):
        load_changed(tmp_path, token_logprobs)


@pytest.mark.parametrize(
    ("field", "value"),
    [("key_variable", "sk-secret"), ("url", "http://me:sk-secret@host/v1")],
)
def test_a_key_in_the_wrong_place_is_not_shown(tmp_path: Path, field: str, value: str) -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["generator"]["math"]["served"][field] = value

    with pytest.raises(ParamsError, match=rf"generator\.math\.served\.{field}: expected") as caught:
        load_changed(tmp_path, change)
    assert "secret" not in str(caught.value)


def test_an_unknown_backbone_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"backbones: given large, expected one of"):
        load_changed(tmp_path, lambda raw: raw.update(backbones=["large"]))


def test_a_verifier_of_another_house_has_one_strength(tmp_path: Path) -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["domain"], raw["strengths"] = "countdown", ["strong", "weak"]
        raw["verifier"]["kind"]["countdown"] = "source"
        raw["evaluation"]["problems"] = 10

    with pytest.raises(ParamsError, match="expected one: the verifier of countdown is not trained"):
        load_changed(tmp_path, change)
