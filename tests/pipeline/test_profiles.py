"""Profiles: every one is valid, is written whole or not at all, and is named where results are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import load_yaml

from flows.overrides import combinations
from flows.profiles import PROFILES, apply_profile, read_profile
from flows.stages import leaves
from selverify.errors import ParamsError
from selverify.params import load_params

NAMES = sorted(path.stem for path in (ROOT / PROFILES).glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_changes_what_it_says_and_nothing_else(parameters: Path, name: str) -> None:
    """Comments stay, and a second time there is nothing to change.

    A scheduled run is told the same: as texts for ``-S`` it leads to the same parameters.
    """
    before = leaves("", yaml.safe_load((parameters / "params.yaml").read_text(encoding="utf-8")))
    told = Path(shutil.copy("params.yaml", "told.yaml"))
    apply_overrides(told, list(combinations(name, [])[0]))
    values = read_profile(PROFILES, name)
    assert values.keys() <= before.keys()
    changed = apply_profile(name)
    text = (parameters / "params.yaml").read_text(encoding="utf-8")
    assert leaves("", yaml.safe_load(text)) == {**before, **values}
    assert yaml.safe_load(told.read_text(encoding="utf-8")) == yaml.safe_load(text)
    assert set(changed) == {key for key in values if before[key] != values[key]}
    assert "# the process reward model" in text
    load_params(Path("params.yaml"))
    assert apply_profile(name) == {}


@pytest.mark.parametrize("change", ["strengths=[strong, weak]", "sampling.math.batch_rows=64"])
def test_one_parameter_changed_by_dvc_leaves_the_others(parameters: Path, change: str) -> None:
    """``dvc exp run -S`` writes the whole file anew, in a YAML of its own."""
    before = leaves("", yaml.safe_load((parameters / "params.yaml").read_text(encoding="utf-8")))
    apply_overrides(parameters / "params.yaml", [change])
    after = leaves("", load_yaml(parameters / "params.yaml"))
    assert after == leaves("", yaml.safe_load((parameters / "params.yaml").read_text("utf-8")))
    name = change.partition("=")[0]
    assert {key for key in before if before[key] != after[key]} == {name}
    assert before.keys() == after.keys()


@pytest.mark.parametrize("rate", ["1e-5", "0.00001", "1.0e-5"])
def test_a_small_number_stays_one_however_it_is_written(parameters: Path, rate: str) -> None:
    """DVC writes 1e-05, by a profile, a sweep or by hand."""
    assert combinations(None, [f"residual.rate={rate}"])
    (parameters / PROFILES / "small.yaml").write_text(f"residual: {{rate: {rate}}}\n")
    assert combinations("small", [])
    assert apply_profile("small") == {"residual.rate": 1e-5}
    assert "rate: 1e-05" in (parameters / "params.yaml").read_text(encoding="utf-8")
    assert load_params(Path("params.yaml")).residual.rate == 1e-5
    assert apply_profile("small") == {}


MODEL = """
domain: math
backbones: [mine]
generator:
  math:
    mine:
      kind: transformers
      model: /models/mine
      revision: null
      dtype: bfloat16
      prompt: null
      kept_tokens: 400000
      exact_values: false
      alphabet: null
      tuning: null
evaluation:
  methods: [cot, full]
"""


def test_a_profile_may_state_a_whole_new_model(parameters: Path) -> None:
    """Its nulls are written, as the guide shows, and a scheduled run is told the same."""
    before = yaml.safe_load((parameters / "params.yaml").read_text(encoding="utf-8"))
    (parameters / PROFILES / "mine.yaml").write_text(MODEL)
    stated = yaml.safe_load(MODEL)
    before["generator"]["math"].update(stated["generator"]["math"])
    before["evaluation"].update(stated["evaluation"])
    expected = {**before, "domain": "math", "backbones": ["mine"]}
    told = Path(shutil.copy("params.yaml", "told.yaml"))
    apply_overrides(told, list(combinations("mine", [])[0]))
    assert yaml.safe_load(told.read_text(encoding="utf-8")) == expected
    changed = apply_profile("mine")
    assert {name for name, value in changed.items() if value is None} == {
        "generator.math.mine.revision",
        "generator.math.mine.prompt",
        "generator.math.mine.alphabet",
        "generator.math.mine.tuning",
    }
    assert yaml.safe_load((parameters / "params.yaml").read_text(encoding="utf-8")) == expected
    assert load_params(Path("params.yaml")).generator["math"]["mine"].revision is None
    assert apply_profile("mine") == {}
    assert sorted(path.name for path in parameters.glob("params.yaml*")) == ["params.yaml"]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("generator: {math: {served: {embeddings: null}}}", "embeddings", None),
        ("generator: {math: {served: {<<: {structured: true}}}}", "structured", True),
    ],
)
def test_a_profile_changes_no_section_that_merges_the_changed_one(
    parameters: Path, text: str, name: str, value: object
) -> None:
    """Null replaces a whole section; merge keys of the profile are values like others."""
    before = yaml.safe_load((parameters / "params.yaml").read_text(encoding="utf-8"))
    (parameters / PROFILES / "one.yaml").write_text(text)
    before["generator"]["math"]["served"][name] = value
    apply_profile("one")
    assert yaml.safe_load((parameters / "params.yaml").read_text(encoding="utf-8")) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("evaluation: {problem: 3}", r"unknown key 'evaluation\.problem'"),
        ("chess: 1", "unknown key 'chess'"),
        (MODEL.replace("      prompt: null\n", ""), r"key 'generator\.math\.mine\.prompt' is"),
        (MODEL.replace("[mine]", "[yours]"), "given yours, expected one of .*mine"),
        ("domain: {a: 1}", "domain: given {'a': 1}, expected"),
        ("search: null", "search: given None, expected"),
        ("strengths: []", r"strengths: given \[\], expected"),
        ("verifier: {source: {}}", r"verifier\.source: given {}, expected a mapping"),
        ("{}", "given {}, expected a mapping"),
        ("", "given None, expected a mapping"),
        ("- domain", r"given \['domain'\], expected a mapping"),
        ("math", "given 'math', expected a mapping"),
        ("{1: 2}", "given the key 1, expected a name"),
        ("{search.tau: 0.5}", "given the key 'search.tau', expected a name without dots"),
        ("domain: [", "not YAML"),
        ("search: &a {b: *a}", "not YAML"),
        ("<<: 3", "not YAML"),
        ("domain: \xff", "not YAML"),
    ],
)
def test_a_bad_profile_leaves_the_parameters_as_they_were(
    parameters: Path, text: str, message: str
) -> None:
    """Byte for byte; it is named in one sentence, also where a run is scheduled with it."""
    before = (parameters / "params.yaml").read_bytes()
    (parameters / PROFILES / "bad.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ParamsError, match=rf"^profiles/bad\.yaml: [^\n]*{message}[^\n]*$"):
        apply_profile("bad")
    with pytest.raises(ParamsError, match=r"^(overrides|profiles/bad\.yaml): [^\n]*$"):
        combinations("bad", [])
    assert (parameters / "params.yaml").read_bytes() == before
    assert sorted(path.name for path in parameters.glob("params.yaml*")) == ["params.yaml"]


def test_an_alias_that_would_change_two_sections_is_refused(parameters: Path) -> None:
    """The profile names one of them, and DVC's way of writing keeps them the same."""
    path = parameters / "params.yaml"
    merged = "  math_structured:\n    <<: *math_sampling\n"
    text = path.read_text(encoding="utf-8").replace(merged, "  math_structured: *math_sampling\n")
    assert merged not in text
    path.write_text(text, encoding="utf-8")
    (parameters / PROFILES / "one.yaml").write_text("sampling: {math: {batch_rows: 64}}")
    with pytest.raises(ParamsError, match=r"one\.yaml: DVC would not write sampling\.math.* alias"):
        apply_profile("one")
    assert path.read_text(encoding="utf-8") == text
