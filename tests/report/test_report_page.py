"""The report page and its trace explorer: what is shown, and that no text becomes markup."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from markupsafe import escape
from synthetic import STUB, stub_figures
from test_cli import DOMAIN, TASKS, guided

from selverify.errors import ArtifactError, SchemaError
from selverify.policy import Solved
from selverify.report.by_depth import visits_table
from selverify.report.explorer import NONE_WRONG, Outcome, TracedSearch, explorer_data
from selverify.report.pages import to_html
from selverify.report.sections import ReportData, sections
from selverify.search.traces import read_events, write_events

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


def unpacked(page: str) -> list[dict[str, Any]]:
    """The explorer's data."""
    found = re.search(r'id="data">([A-Za-z0-9+/=]*)</script>', page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


@pytest.fixture(scope="module")
def solved() -> list[Solved]:
    """Searches that verify, go back, sample again and end in every way."""
    return guided(1, skip_below=0.2).solve_many([task.problem for task in TASKS], budget=6)


@pytest.fixture(scope="module")
def searched(solved: list[Solved]) -> list[TracedSearch]:
    return [TracedSearch(task, 1, one.events) for task, one in zip(TASKS, solved, strict=True)]


@pytest.fixture
def figures(tmp_path: Path, built: ReportData) -> Path:
    stub_figures(built, tmp_path)
    return tmp_path


def test_events_come_back_from_the_log(tmp_path: Path, solved: list[Solved]) -> None:
    """States, ledgers and data of every search are those that were written."""
    path = tmp_path / "events.parquet"
    written = {one.problem.problem_id: one.events for one in solved}
    write_events(path, written)
    problems = {one.problem.problem_id: one.problem for one in solved}
    found = read_events(path, DOMAIN, problems=problems)
    assert list(found) == [name for name, events in written.items() if events]
    for name, events in found.items():
        for one, other in zip(events, written[name], strict=True):
            assert (one.index, one.event, one.ledger) == (other.index, other.event, other.ledger)
            assert one.state == other.state
            assert json.dumps(dict(one.data)) == json.dumps(dict(other.data))
    with pytest.raises(SchemaError, match="expected one of the benchmark's"):
        read_events(path, DOMAIN, problems={})


def test_the_explorer_tells_the_whole_search(searched: list[TracedSearch]) -> None:
    """Calls, commits and verdicts are those of the events, and the answer is judged."""
    data = explorer_data(DOMAIN, searched, tau=0.5, reference_dispersion=0.25, matches=eq)
    assert [one["id"] for one in data] == [one.task.problem.problem_id for one in searched]
    for entry, one in zip(data, searched, strict=True):
        kinds = [event.event for event in one.events]
        assert entry["calls"] == kinds.count("verify")
        rows = [row for step in entry["steps"] for row in step.get("rows", ())]
        judged = [row for row in rows if row[4] in ("accepted", "rejected")]
        assert len(judged) == kinds.count("verify")
        commits = [step for step in entry["steps"] if step.get("event") == "commit"]
        assert len(commits) == kinds.count("commit")
        assert entry["right"] == (entry["answer"] == one.task.truth.answer)


def test_moves_are_marked_right_or_wrong(searched: list[TracedSearch]) -> None:
    """Of every state and candidate, as the domain knows; a wrong solution went astray somewhere."""
    data = explorer_data(DOMAIN, searched, tau=0.5, reference_dispersion=0.25, matches=eq)
    marks = set()
    for entry, one in zip(data, searched, strict=True):
        truth, start = one.task.truth, DOMAIN.initial_state(one.task.problem, budget=6)
        for step in entry["steps"]:
            state = start
            for text, mark in step.get("derivation", ()):
                move = DOMAIN.parse(text)
                assert mark == ("right" if DOMAIN.right(state, move, truth) else "wrong")
                state = DOMAIN.apply(state, move)
            for text, *_, kind, mark in step.get("rows", ()):
                assert (mark == "") == (kind == "refused")
                if mark:
                    right = DOMAIN.right(state, DOMAIN.parse(text), truth)
                    assert mark == ("right" if right else "wrong")
                marks.add((kind, mark))
        end = one.events[-1].state
        assert bool(entry["astray"]) == (not entry["right"])
        assert (entry["astray"] == NONE_WRONG) == (not entry["right"] and DOMAIN.alive(end, truth))
        if "from move" in entry["astray"]:
            place = int(re.search(r"from move (\d+) on", entry["astray"])[1])
            before, at = start, start
            for move in end.derivation[:place]:
                before, at = at, DOMAIN.apply(at, move)
            assert DOMAIN.alive(before, truth) and not DOMAIN.alive(at, truth)
    assert {("accepted", "right"), ("rejected", "wrong")} <= marks
    assert any(entry["astray"] for entry in data)


def test_what_other_methods_made_of_a_problem_stands_beside_its_trace(
    searched: list[TracedSearch],
) -> None:
    name = searched[0].task.problem.problem_id
    made = {name: [Outcome("CoT", 1.0, 0.0, 40.0), Outcome("Full", 0.5, 3.0, 80.0)]}
    data = explorer_data(
        DOMAIN, searched, tau=0.5, reference_dispersion=0.25, matches=eq, outcomes=made
    )
    assert data[0]["methods"] == [["CoT", 1.0, 0.0, 40.0], ["Full", 0.5, 3.0, 80.0]]
    assert data[1]["methods"] == []


def test_the_table_along_a_solution_counts_every_call(searched: list[TracedSearch]) -> None:
    """Each allotted or trusted round is a row, and calls add up to the ledgers'."""
    visits = visits_table({s.task.problem.problem_id: s.events for s in searched}, tau=0.5)
    kinds = pd.Series([event.event for one in searched for event in one.events]).value_counts()
    assert visits["calls"].sum() == kinds["verify"]
    assert visits["trusted"].sum() == kinds.get("trust", 0)
    assert len(visits) == kinds["allocate"] + kinds.get("trust", 0)


def test_the_page_stands_alone(
    built: ReportData, figures: Path, searched: list[TracedSearch]
) -> None:
    """Every section with its figure inside; nothing is loaded from elsewhere."""
    data = explorer_data(DOMAIN, searched, tau=0.5, reference_dispersion=0.25, matches=eq)
    page = to_html(built, figures, data)
    for section in sections(built):
        assert f"<h2>{section.title}</h2>" in page
    inside = base64.b64encode(STUB.encode()).decode()
    assert page.count(inside) == 1 + sum(bool(section.figure) for section in sections(built))
    assert page.count(f">{escape(built.verdict)}</p>") == 1
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert unpacked(page) == json.loads(json.dumps(data))
    without = to_html(built, figures, [])
    assert "<script" not in without and "explorer" not in without


def test_no_text_becomes_markup(
    built: ReportData, figures: Path, searched: list[TracedSearch]
) -> None:
    """Tags in a problem's text, a candidate or a table cell are shown, not obeyed."""
    task = searched[0].task
    hostile = replace(task, problem=replace(task.problem, text=HOSTILE))
    one = replace(searched[0], task=hostile)
    tables = {**built.tables, "gates": built.tables["gates"].assign(reason=HOSTILE)}
    data = explorer_data(DOMAIN, [one], tau=0.5, reference_dispersion=0.25, matches=eq)
    page = to_html(replace(built, tables=tables), figures, data)
    assert "<img src=x" not in page
    assert page.count("</script>") == 2
    assert HOSTILE in unpacked(page)[0]["text"]


def test_a_missing_figure_is_named(built: ReportData, tmp_path: Path) -> None:
    """With the file that was expected."""
    with pytest.raises(ArtifactError, match=r"equal_calls\.svg: no such file"):
        to_html(built, tmp_path, [])
