"""What a scheduled run may change: every other text is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.overrides import combinations
from flows.stages import PARAMS_FILE
from selverify.errors import ParamsError

HOSTILE = [
    "search.tau=${oc.env:HOME}",
    "search.max_retries=range(0,9)",
    "search.commit=choice(joint,verifier)",
    "+search.more=1",
    "~search",
    "params.yaml:search.tau=0.5",
    "../other.yaml:search.tau=0.5",
    "search.tau=0.5 --queue",
    "search.tau=0.5\n",
    "search.tau=inf",
    "evaluation.grid.tau=[nan]",
    "search.tau='0.5'",
    "search.tau={a:1}",
    "search.tаu=0.5",  # noqa: RUF001 - a Cyrillic letter
    "evaluation.problems=" + "9" * 10,
    "evaluation.problems=9**9**9",
    "evaluation.budgets=" + "[" * 90 + "]" * 90,
    "=1",
    "search.tau=",
    "",
    "x" * 1_000_000,
    "benchmark.math.test.path=/etc/passwd",
    "benchmark.math.test.path=passwd",
    "tracking.reply_cache=flows",
    "tracking.device=cuda",
    "generator.math.llama1b.model=gpt2",
    "generator.math.served.url=http://evil.example/v1",
    "generator.math.served.key_variable=home",
    "search.no_such_parameter=1",
    "search=1",
    "evaluation.problems=0",
    "evaluation.budgets=[2,4]",  # not the headline budget
    "evaluation.problems=true",
    "search.tau=1.5",
    "domain=chess",
]


@pytest.mark.parametrize("override", HOSTILE, ids=lambda text: text[:40])
def test_a_hostile_change_is_refused_in_one_sentence(parameters: Path, override: str) -> None:
    """Whatever it is; the parameters are not touched."""
    before = (parameters / PARAMS_FILE).read_bytes()
    with pytest.raises(ParamsError, match=r"^overrides: [^\n]{1,600}$"):
        combinations(None, [override])
    assert (parameters / PARAMS_FILE).read_bytes() == before


@given(st.text(max_size=300))
def test_no_text_is_anything_but_refused_or_run(text: str) -> None:
    """No other exception comes out of a text that is no change at all."""
    with pytest.raises(ParamsError):
        combinations(None, [f"{text}!"])


@pytest.mark.parametrize("name", ["../health", "health.yaml", "/etc/passwd", "", "HEALTH"])
def test_a_profile_is_one_of_those_there_are(parameters: Path, name: str) -> None:
    """A name is compared with the files there are and never made into a path."""
    with pytest.raises(ParamsError, match=r"no profile .* expected one of .*health"):
        combinations(name, [])


def test_several_values_are_one_run_a_combination(parameters: Path) -> None:
    """Lists are values; every combination was checked, and there are not too many."""
    given = ["search.max_retries=0,2", "evaluation.budgets=[2, 64],[64]"]
    first, *_, last = found = combinations(None, given)
    assert len(found) == 4
    assert first == ("search.max_retries=0", "evaluation.budgets=[2,64]")
    assert last == ("search.max_retries=2", "evaluation.budgets=[64]")
    with pytest.raises(ParamsError, match=r"evaluation\.problems"):
        combinations(None, ["evaluation.problems=5,0"])
    with pytest.raises(ParamsError, match="100 combinations, expected at most 64"):
        combinations(None, ["search.max_retries=0,1,2,3,4,5,6,7,8,9"] * 2)
    with pytest.raises(ParamsError, match="given 33, expected at most 32"):
        combinations(None, ["search.tau=0.5"] * 33)
