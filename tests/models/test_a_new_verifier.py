"""A verifier takes one class and one row of the table: parameters, files and models see it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest
import yaml

from selverify import params
from selverify.errors import ParamsError, SchemaError
from selverify.models.assembly import open_models
from selverify.models.sources import read_verifier_source, write_source
from selverify.models.verifiers.opening import Surroundings
from selverify.search.requests import Verify, VerifyItem
from selverify.types import Move, Verdict

ROOT = Path(__file__).parents[2]


class ShortSource(params.VerifierSource):
    kind: Literal["short"]
    longest: params.Positive


class ShortVerifier:
    """Accepts short steps."""

    def __init__(self, source: ShortSource, surroundings: Surroundings) -> None:
        self.longest, self.end = source.longest, surroundings.domain.end_of_move

    def identity(self) -> str:
        return f"short {self.longest}"

    def parameters(self) -> int:
        return 0

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        by_item = [tuple(float(len(one.text) <= self.longest) for one in i.steps) for i in items]
        return tuple(Verdict(scores[-1], scores) for scores in by_item)


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = params.VerifierKind(ShortSource, f"{__name__}:ShortVerifier")
    monkeypatch.setitem(params.VERIFIERS, "short", kind)


def read(**source: object) -> params.Params:
    """The parameters with this source for countdown."""
    path = ROOT / "params.yaml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    raw["verifier"]["kind"]["countdown"] = "source"
    raw["verifier"]["source"]["countdown"] = source
    raw["exploration"]["tau"] = raw["search"]["tau"] = 0.5
    raw["evaluation"]["grid"]["tau"] = [0.5]
    return params.check_params(raw, path)


def test_it_opens_from_the_parameters_and_gives_verdicts(tmp_path: Path) -> None:
    """By way of ``source.json``, as stage ``verifier`` writes it."""
    given = read(kind="short", longest=21)
    source = given.verifier.source["countdown"]
    assert given.model_dump()["verifier"]["source"]["countdown"] == {"kind": "short", "longest": 21}
    write_source(tmp_path, source)
    assert read_verifier_source(tmp_path) == source
    models = open_models(
        "countdown",
        given.sampling["countdown"],
        seed=1,
        device="cpu",
        generator=ROOT / "models/countdown-small",
        verifier=tmp_path,
    )
    assert models.backend.identity(Verify.kind) == "short 21"
    problem = models.domain.read("use 1 2 3 4 to make 24 .", problem_id="c")
    texts = ("4 - 3 = 1 left 1 1 2 ;", "answer = 24 ;")
    steps = tuple(step for step in map(models.domain.parse, texts) if isinstance(step, Move))
    item = VerifyItem(models.domain.initial_state(problem, budget=1), steps)
    assert models.backend.answer(Verify((item,))) == (Verdict(1.0, (0.0, 1.0)),)


def test_its_settings_are_checked_with_all_others(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"verifier\.source\.countdown\.longest: given 0, expec"):
        read(kind="short", longest=0)
    with pytest.raises(ParamsError, match=r"unknown key 'verifier\.source\.countdown\.wide'"):
        read(kind="short", longest=9, wide=1)
    with pytest.raises(ParamsError, match=r"source\.countdown: given the kind 'shor', .* short$"):
        read(kind="shor", longest=9)
    text = '{"schema": "verifier.source", "version": 1, "data": {"kind": "short", "longest": 0}}'
    (tmp_path / "source.json").write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"source\.json: longest: given 0, expected"):
        read_verifier_source(tmp_path)


def test_every_kind_is_documented() -> None:
    """The page of real models has a row for each row of the table."""
    page = (ROOT / "docs/real-models.md").read_text(encoding="utf-8")
    assert [kind for kind in params.VERIFIERS if f"| `{kind}` |" not in page] == ["short"]
