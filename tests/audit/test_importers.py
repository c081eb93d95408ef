"""Files of other projects: what becomes of each record, and what is refused or counted."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import json_values

from selverify.audit import records as reading
from selverify.audit.importers import IMPORTERS, Imported, format_of
from selverify.audit.importers.base import MOST_FAULTS
from selverify.audit.importers.omegaprm import ROLLOUTS
from selverify.audit.log import RecordedSample, read_log, write_log
from selverify.errors import ArtifactError, SchemaError

Values = Sequence[Mapping[str, Any]]


def lines_of(path: Path, records: Values) -> Path:
    """The records as JSON lines."""
    text = "".join(json.dumps(record) + "\n" for record in records)
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def imported(name: str, path: Path) -> tuple[list[Any], dict[str, int]]:
    """All entries, which make a log, and the remarks."""
    counted = Imported()
    found = list(IMPORTERS[name](path, counted))
    assert counted.entries == len(found)
    log = path.parent / "imported.log.gz"
    write_log(found, log)
    read = read_log(log)
    assert [*read.lists, *read.samples] == found
    log.unlink()
    return found, dict(counted.remarks)


def refusal(name: str, path: Path) -> str:
    """Why a file is refused."""
    with pytest.raises(SchemaError) as caught:
        list(IMPORTERS[name](path))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


# PRM800K


def rated(*completions: tuple[str, int | None], chosen: int | None = None, human: str = "") -> Any:
    """One step of a record."""
    return {
        "completions": [
            {"text": text, "rating": rating, "flagged": None} for text, rating in completions
        ],
        "human_completion": {"text": human, "rating": None, "source": "human"} if human else None,
        "chosen_completion": chosen,
    }


def solution(*steps: Any, problem: str = "2 + 2?", **others: Any) -> dict[str, Any]:
    """One record."""
    return {
        "labeler": "x",
        "generation": None,
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
        "question": {"problem": problem, "ground_truth_answer": "4"},
        "label": {"steps": list(steps), "total_time": 1, "finish_reason": "solution"},
    } | others


STEPS = (
    rated(("a", 1), ("b", 0), ("c", -1), ("d", None), chosen=1),
    rated(("e", -1), ("f", -1), human="by hand"),
    rated(("g", 1), chosen=0),
)


def test_ratings_are_labels_and_choices_make_prefixes(tmp_path: Path) -> None:
    """A person's own step stands in the prefix after it and is no candidate."""
    found, remarks = imported("prm800k", lines_of(tmp_path / "phase1.jsonl.gz", [solution(*STEPS)]))
    assert [one.prefix for one in found] == [(), ("b",), ("b", "by hand")]
    assert [one.committed for one in found] == [1, None, 0]
    assert [(one.text, one.label) for one in found[0].candidates] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", None),
    ]
    assert [one.label for one in found[1].candidates] == [False, False]
    assert {(one.run, one.question) for one in found} == {("phase1", "2 + 2?")}
    assert [one.state_id for one in found] == ["1-1", "1-2", "1-3"]
    assert remarks == {"steps by people kept in prefixes, not as candidates": 1}


def test_what_has_no_candidate_or_no_known_prefix_is_counted(tmp_path: Path) -> None:
    """A solution that was given up, a step after no choice, a broken problem."""
    given_up = solution(rated(("a", 1), chosen=0), rated())
    cut = solution(rated(("a", -1)), rated(("b", 1), chosen=0))
    broken = solution(rated(("a", 1), chosen=0))
    broken["label"]["finish_reason"] = "bad_problem"
    found, remarks = imported("prm800k", lines_of(tmp_path / "x.jsonl", [given_up, cut, broken]))
    assert [one.state_id for one in found] == ["1-1", "2-1"]
    assert remarks == {
        "states left out: no completion": 1,
        "states left out: no choice was recorded before them": 1,
        "records left out: the problem was called broken": 1,
    }


def test_control_questions_are_runs_of_their_own(tmp_path: Path) -> None:
    """The same problem has the same id in all of them, whatever its white space."""
    records = [
        solution(STEPS[0]),
        solution(STEPS[0], is_quality_control_question=True),
        solution(STEPS[0], problem="2  + 2?\n", is_initial_screening_question=True),
        solution(STEPS[0], problem="another"),
    ]
    found, _ = imported("prm800k", lines_of(tmp_path / "x.jsonl", records))
    assert [one.run for one in found] == ["x", "x, quality control", "x, screening", "x"]
    assert len({one.problem_id for one in found}) == 2


def test_rated_states_may_come_without_their_records(tmp_path: Path) -> None:
    """Labels 0 and 1, a prefix that may be unknown, a choice that may be a person's."""
    row = {"state_id": "s1", "problem": "q", "prefix": [], "committed": "b", "math500_id": "m"}
    row |= {"candidates": [{"text": "a", "label": 0}, {"text": "b", "label": 1}]}
    rows = [
        row,
        row | {"state_id": "s2", "prefix": None},
        row | {"state_id": "s3", "committed": "by hand"},
        row | {"state_id": "s4", "committed": None, "math500_id": None},
        row | {"state_id": "s5", "candidates": []},
    ]
    found, remarks = imported("prm800k", lines_of(tmp_path / "x.jsonl", rows))
    assert [(one.state_id, one.committed) for one in found] == [
        ("s1", 1),
        ("s3", None),
        ("s4", None),
    ]
    assert [one.label for one in found[0].candidates] == [False, True]
    assert found[0].problem_id == "m" != found[2].problem_id
    assert remarks["states left out: their prefix is unknown"] == 1
    assert remarks["states left out: no completion"] == 1


def test_a_choice_may_stand_without_its_answer(tmp_path: Path) -> None:
    """Then the candidate that is the same before its answer is meant, if it is the only one."""
    texts = ("so\n\n# Answer\n\n4", "else\n\n# Answer\n\n5", "so what")
    row = {"problem": "q", "prefix": [], "state_id": "s1", "committed": "so"}
    row |= {"candidates": [{"text": text, "label": 1} for text in texts]}
    again = [{"text": f"so\n\n# Answer\n\n{number}"} for number in (4, 5)]
    other = row | {"state_id": "s3", "committed": "so\n\n# Answer\n\n6"}
    rows = [row, row | {"state_id": "s2", "candidates": again}, other]
    found, remarks = imported("prm800k", lines_of(tmp_path / "x.jsonl", rows))
    assert [one.committed for one in found] == [0, None, None]
    assert remarks == {
        "choices matched by what stands before their answer": 1,
        "states without a choice: candidates differ in their answers only": 1,
        "steps by people kept in prefixes, not as candidates": 1,
    }


# OmegaPRM


def node(text: str, value: float | None, *children: Any) -> dict[str, Any]:
    """One node of a tree."""
    return {"text": text, "mc_value": value, "children": list(children)}


TREE = {
    "question": "q",
    "final_answer": "4",
    "reasoning_steps": node(
        "q", 0.5, node("a", 0.25, node("c", None), node("c", 0.0)), node("b", 1.0)
    ),
}


def test_nodes_with_children_are_states(tmp_path: Path) -> None:
    """Values are scores, no labels; the root is the question and in no prefix."""
    found, remarks = imported("omegaprm", lines_of(tmp_path / "trees.jsonl", [TREE]))
    assert [(one.state_id, one.prefix) for one in found] == [("1", ()), ("1.0", ("a",))]
    assert [[(c.text, c.score, c.label) for c in one.candidates] for one in found] == [
        [("a", 0.25, None)],
        [("c", None, None), ("c", 0.0, None)],
    ]
    assert (found[0].model, found[0].run) == ("not recorded", "trees")
    assert remarks == {ROLLOUTS: 1}


def test_right_rollouts_are_no_candidates(tmp_path: Path) -> None:
    """A leaf of the value 1 is in the tree for it; a step of the value 1 has such leaves."""
    tree = TREE | {
        "reasoning_steps": node(
            "q", 0.5, node("a", 1.0, node("right", 1.0), node("also", 1.0)), node("b", 0.0)
        )
    }
    row = {"tree": 2, "question": "q", "prefix": [], "mc_value": 0.5}
    row |= {"candidates": [{"text": one, "mc_value": value} for one, value in (("a", 1), ("b", 0))]}
    below = row | {"prefix": ["a"], "candidates": [{"text": "right", "mc_value": 1}] * 2}
    leaf = row | {"prefix": ["a", "right"], "candidates": []}
    for number, lines in enumerate(([tree], [row, below], [row, below, leaf])):
        path = lines_of(tmp_path / f"{number}.jsonl", lines)
        (one,), remarks = imported("omegaprm", path)
        assert [(each.text, each.score) for each in one.candidates] == [("a", 1.0), ("b", 0.0)]
        assert remarks == {ROLLOUTS: 2, "states left out: no candidate": 2 if leaf in lines else 1}


def test_a_folder_of_questions_is_one_run(tmp_path: Path) -> None:
    """A file a question, over several lines as OpenR writes it."""
    folder = tmp_path / "output"
    folder.mkdir()
    for number in (3, 12):
        path = folder / f"question_{number}.json"
        path.write_text(json.dumps(TREE, indent=4), encoding="utf-8")
    found, _ = imported("omegaprm", folder)
    assert {one.run for one in found} == {"output"}
    assert {one.state_id for one in found} == {
        f"question_{number}-1{rest}" for number in (3, 12) for rest in ("", ".0")
    }


def test_trees_may_come_as_rows(tmp_path: Path) -> None:
    """A state each, with the number of its tree."""
    row = {"tree": 2, "question": "q", "gold": "4", "depth": 0, "prefix": [], "mc_value": 0.5}
    row |= {"candidates": [{"text": "a", "mc_value": 0.25}]}
    rows = [row, row | {"prefix": ["a"]}, row | {"tree": 3}, row | {"candidates": []}]
    found, remarks = imported("omegaprm", lines_of(tmp_path / "x.jsonl", rows))
    assert [one.state_id for one in found] == ["2-1", "2-2", "3-1"]
    assert [one.prefix for one in found] == [(), ("a",), ()]
    assert remarks == {"states left out: no candidate": 1}


def test_what_holds_no_tree_is_counted(tmp_path: Path) -> None:
    """Solution prefixes, rollouts by state, a root alone."""
    prefixes = TREE | {"reasoning_steps": [{"solution_prefix": "q", "mc_value": 1.0}]}
    rollouts = {"q": "q", "states": [{"rollout": "r", "state": "", "mcs": 0.5}]}
    alone = TREE | {"reasoning_steps": node("q", 0.5)}
    found, remarks = imported(
        "omegaprm", lines_of(tmp_path / "x.jsonl", [prefixes, rollouts, alone])
    )
    assert found == []
    assert remarks == {
        "records left out: prefixes or rollouts, no tree": 2,
        "trees left out: nothing but a root": 1,
    }


# Tree of thought

FIRST = {
    "step": 0,
    "x": "1 2 3 4",
    "ys": [""],
    "new_ys": ["1 + 2\n", "3 * 4\n", "1 + 2\n", "\n"],
    "values": [3.0, 60, 0, 0.001],
    "select_new_ys": ["3 * 4\n", "1 + 2\n"],
}
SECOND = {
    "step": 1,
    "x": "1 2 3 4",
    "ys": ["3 * 4\n", "1 + 2\n"],
    "new_ys": ["3 * 4\n12 + 1\n", "1 + 2\n3 + 3\n", "1 + 2\n3 * 3\n"],
    "values": [1.0, 0.0, 2.0],
    "select_new_ys": ["3 * 4\n12 + 1\n"],
}
SEARCH = {"steps": [FIRST, SECOND], "idx": 7, "ys": ["3 * 4\n12 + 1\n"], "infos": [{"r": 0}]}
MERGED = "repeated proposals merged"
SEVERAL = "states with several selected moves: none is committed"


def json_of(path: Path, value: object) -> Path:
    """The value as one JSON text over several lines."""
    path.write_text(json.dumps(value, indent=4), encoding="utf-8")
    return path


def test_each_partial_solution_is_a_state(tmp_path: Path) -> None:
    """Proposals stand with the one that they continue; repetitions are merged."""
    path = json_of(tmp_path / "gpt-4_0.7_propose1_value3.json", [SEARCH])
    found, remarks = imported("tree_of_thought", path)
    assert [(one.state_id, one.prefix) for one in found] == [
        ("7-0-0", ()),
        ("7-1-0", ("3 * 4",)),
        ("7-1-1", ("1 + 2",)),
    ]
    assert [[(c.text, c.score, c.times) for c in one.candidates] for one in found] == [
        [("1 + 2", 3.0, 2), ("3 * 4", 60.0, 1), ("", 0.001, 1)],
        [("12 + 1", 1.0, 1)],
        [("3 + 3", 0.0, 1), ("3 * 3", 2.0, 1)],
    ]
    assert [one.committed for one in found] == [None, 0, None]
    names = {(one.problem_id, one.question, one.model, one.run) for one in found}
    assert names == {("1 2 3 4", "1 2 3 4", "gpt-4", "gpt-4_0.7_propose1_value3")}
    assert remarks == {MERGED: 1, SEVERAL: 1}


def test_a_state_that_begins_with_another_keeps_its_own_proposals(tmp_path: Path) -> None:
    """Sampled thoughts need not end a line, and a state may be visited twice."""
    first = FIRST | {"new_ys": ["ab", "abc"], "values": [1, 1], "select_new_ys": ["ab", "abc"]}
    second = SECOND | {"ys": ["ab", "abc", "ab"], "select_new_ys": []}
    second |= {"new_ys": ["abx", "abcd", "abx"], "values": [1, 1, 0]}
    found, _ = imported(
        "tree_of_thought", json_of(tmp_path / "x.json", [{"idx": 0, "steps": [first, second]}])
    )
    assert [(one.prefix, [c.text for c in one.candidates]) for one in found[1:]] == [
        (("ab",), ["x"]),
        (("abc",), ["d"]),
    ]
    assert found[0].model == "not recorded"


def test_what_was_not_searched_is_counted(tmp_path: Path) -> None:
    """Plain samples, searches without a step, and proposals that continue nothing."""
    lost = SECOND | {"ys": ["lost\n"], "new_ys": ["lost\na\n"], "values": [1.0]}
    stopped = [{"idx": 3, "steps": None}, {"idx": 4, "steps": []}]
    records = [{"idx": 1, "ys": ["a"], "infos": []}, {"idx": 2, "steps": [FIRST, lost]}, *stopped]
    found, remarks = imported("tree_of_thought", json_of(tmp_path / "x.json", records))
    assert [one.state_id for one in found] == ["2-0-0"]
    assert remarks["records left out: samples without a search"] == 1
    assert remarks["records left out: stopped before the first step"] == 2
    assert remarks["proposals left out: they continue no known state"] == 1


STOPPED = "steps stopped before their selection"
EARLY = {
    "steps left out: stopped before their proposals": {"new_ys": None, "values": None},
    "steps stopped before their values: no scores": {"values": None, "select_new_ys": None},
    STOPPED: {"select_new_ys": None},
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("remark", EARLY)
def test_a_search_that_stopped_is_read_as_far_as_it_goes(
    tmp_path: Path, remark: str, missing: bool
) -> None:
    """The last step may have null, or nothing, where the search had not come to yet."""
    last = SECOND | EARLY[remark]
    if missing:
        last = {name: value for name, value in last.items() if value is not None}
    path = json_of(tmp_path / "x.json", [{"idx": 7, "steps": [FIRST, last]}])
    found, remarks = imported("tree_of_thought", path)
    assert remarks == {MERGED: 1, SEVERAL: 1, remark: 1}
    assert len(found) == (1 if "proposals" in remark else 3)
    assert all(one.committed is None for one in found)
    scores = [move.score for one in found[1:] for move in one.candidates]
    assert scores == ([1.0, 0.0, 2.0] if remark == STOPPED else [None] * 3 * (len(found) > 1))


def test_states_may_come_as_rows(tmp_path: Path) -> None:
    """With labels; ids are those that the log itself gives."""
    row = {
        "log": "l",
        "model": "m",
        "puzzle_idx": 7,
        "start": ["1", "2"],
        "depth": 1,
        "prefix": ["a"],
    }
    proposals = [
        {"text": "b", "value": 2.0, "label": 1, "selected": True},
        {"text": "c", "value": 0.5, "label": 0, "selected": False},
        {"text": "b", "value": 0, "label": 1, "selected": True, "dup": True},
    ]
    rows = [row | {"candidates": proposals}, row | {"candidates": proposals[1:2], "prefix": ["d"]}]
    path = lines_of(tmp_path / "x.jsonl.gz", [*rows, row | {"candidates": []}])
    found, remarks = imported("tree_of_thought", path)
    assert [(one.state_id, one.prefix, one.committed) for one in found] == [
        ("7-1-0", ("a",), 0),
        ("7-1-1", ("d",), None),
    ]
    assert [(c.text, c.score, c.label, c.times) for c in found[0].candidates] == [
        ("b", 2.0, True, 2),
        ("c", 0.5, False, 1),
    ]
    assert (found[0].problem_id, found[0].run, found[0].model) == ("1 2", "l", "m")
    assert remarks == {MERGED: 1, "states left out: no proposal": 1}


# search-and-learn

COMPLETIONS = {
    "problem": "2 + 2?",
    "solution": "It is 4.",
    "answer": "4",
    "subject": "Algebra",
    "level": 2,
    "unique_id": "test/1.json",
    "completions": ["So\n\n\\boxed{4}", "No idea.", "one\ntwo"],
    "scores": [[0.5, 1], [], [0.25, 0.75]],
    "pred": "So",
    "completion_tokens": [5, 0, 3],
    "agg_scores": [1.0, 0.5, 0.75],
    "pred_maj@1": "\\boxed{4}",
}


def test_completions_are_samples(tmp_path: Path) -> None:
    """Steps fit the scores; the answer is what the text states; counts of 0 were not made."""
    folder = tmp_path / "Llama-3.2-1B-Instruct"
    folder.mkdir()
    path = lines_of(folder / "best_of_n_completions.jsonl", [COMPLETIONS])
    found, remarks = imported("search_and_learn", path)
    assert [(one.sample, one.steps, one.step_scores) for one in found] == [
        (0, ("So", "\\boxed{4}"), (0.5, 1.0)),
        (1, ("No idea.",), None),
        (2, ("one", "two"), (0.25, 0.75)),
    ]
    assert [(one.answer, one.correct, one.tokens) for one in found] == [
        ("4", None, 5),
        (None, None, None),
        (None, None, 3),
    ]
    assert {(one.problem_id, one.gold, one.question) for one in found} == {
        ("test/1.json", "4", "2 + 2?")
    }
    assert {(one.run, one.model) for one in found} == {
        ("best_of_n_completions", "Llama-3.2-1B-Instruct")
    }
    assert remarks == {}


def test_what_a_record_lacks_stays_unknown(tmp_path: Path) -> None:
    """A run without scores, and the -1 of diverse verifier tree search."""
    bare = {"problem": "q", "completions": ["a\n\nb"], "completion_tokens": -1}
    odd = COMPLETIONS | {"completions": ["a"], "scores": [[1.0, 0.5]], "completion_tokens": [-1]}
    found, remarks = imported("search_and_learn", lines_of(tmp_path / "x.jsonl", [bare, odd]))
    assert (found[0].gold, found[0].step_scores, found[0].tokens) == (None, None, None)
    assert found[0].problem_id.startswith("text-")
    assert found[1].step_scores == (1.0, 0.5) and found[1].tokens is None
    assert remarks == {"samples whose step scores are not as many as their steps": 1}


def test_completions_of_a_faulty_version_are_left_out(tmp_path: Path) -> None:
    """They begin with the chat's header; a row of one completion could not be mixed up."""
    text = "<|start_header_id|>assistant<|end_header_id|>\n\na"
    mixed = {"problem": "q", "completions": [text, text]}
    single = {"problem": "r", "completions": [text]}
    found, remarks = imported("search_and_learn", lines_of(tmp_path / "x.jsonl", [mixed, single]))
    assert [one.question for one in found] == ["r"]
    assert list(remarks.values()) == [2]


def table(path: Path, records: Values) -> None:
    """The records as Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(record) for record in records]), path)


def numbered(*numbers: int) -> list[dict[str, Any]]:
    """Records of different problems."""
    return [COMPLETIONS | {"unique_id": str(number)} for number in numbers]


def test_a_dataset_is_read_from_its_folder(tmp_path: Path) -> None:
    """A configuration is a run of several files; its tables of figures are left out.

    Without configurations the dataset is one run.
    """
    dataset = tmp_path / "completions-of-a-model"
    many = range(2 * reading._ROWS_AT_ONCE + 1)
    table(dataset / "T-0.8--n-4" / "train-00000-of-00002.parquet", numbered(*many))
    table(dataset / "T-0.8--n-4" / "train-00001-of-00002.parquet", numbered(99))
    table(dataset / "T-0.8--n-4--evals" / "train-00000-of-00001.parquet", [{"n": 1, "acc": 0.5}])
    found, remarks = imported("search_and_learn", dataset)
    assert {(one.run, one.model) for one in found} == {("T-0.8--n-4", "completions-of-a-model")}
    assert len(found) == 3 * (len(many) + 1)
    from_lines, _ = imported("search_and_learn", lines_of(tmp_path / "x.jsonl", [COMPLETIONS]))
    assert [one.steps for one in found[:3]] == [one.steps for one in from_lines]
    assert remarks == {"tables left out: no completions": 1}
    one_file = dataset / "T-0.8--n-4" / "train-00001-of-00002.parquet"
    again, _ = imported("search_and_learn", one_file)
    assert again == found[-3:]
    table(tmp_path / "plain" / "data" / "train-00000-of-00001.parquet", [COMPLETIONS])
    found, _ = imported("search_and_learn", tmp_path / "plain")
    assert {one.run for one in found} == {"plain"}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes) -> None:
    """With the reader's reason."""
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    assert refusal("search_and_learn", path).startswith(": expected a Parquet table: ")


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([b"\xff\xfe"], pa.binary()).cast(pa.string(), safe=False), "'utf-8' codec"),
        (pa.array([2**62], pa.timestamp("ms")), "expected a Parquet table of text and numbers"),
        (pa.array([0], pa.timestamp("us", "Mars/Phobos")), "text and numbers: 'Mars/Phobos'"),
    ],
)
def test_a_column_that_python_cannot_hold_is_refused(
    tmp_path: Path, column: pa.Array, reason: str
) -> None:
    """Text that is no UTF-8, a date of another age, a time zone of another planet."""
    path = tmp_path / "x.parquet"
    whole = pa.table({"problem": column, "completions": pa.array([["a"]])})
    pq.write_table(whole, path)
    assert reason in refusal("search_and_learn", path)


def test_a_table_of_too_many_rows_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is refused: it can be written again, and no handle is left."""
    path = tmp_path / "x.parquet"
    table(path, [COMPLETIONS] * 3)
    monkeypatch.setattr(reading, "MOST_LINES", 2)
    opened: list[pq.ParquetFile] = []

    class Watched(pq.ParquetFile):
        def __init__(self, file: Path) -> None:
            super().__init__(file)
            opened.append(self)

    monkeypatch.setattr(pq, "ParquetFile", Watched)
    assert refusal("search_and_learn", path) == ": given 3 rows, expected at most 2"
    assert [one.closed for one in opened] == [True]


def test_a_row_of_a_table_is_named(tmp_path: Path) -> None:
    """By its number."""
    path = tmp_path / "x.parquet"
    table(path, [COMPLETIONS, COMPLETIONS | {"scores": [[0.5]]}])
    reason = ", row 2: scores: given 1, expected one for each of 3 completions"
    assert refusal("search_and_learn", path) == reason


# Sample rows


def test_a_row_is_a_sample(tmp_path: Path) -> None:
    """By steps or text, with scores by themselves or under the reward model's name."""
    row = {"unique_id": "u", "problem_id": "p", "cand": 0, "steps": ["a", "b"], "gold": "4"}
    row |= {"answer": "5", "correct": False, "n_tokens": 9, "prm": {"some_prm": [0.5, 0.25]}}
    text = {"problem_id": "p", "cand": 1, "text": "a\n\nb", "run": "r", "model": "m", "prm": None}
    found, remarks = imported("sample_rows", lines_of(tmp_path / "x.jsonl", [row, text]))
    assert found[0] == RecordedSample(
        problem_id="u",
        run="x",
        model="not recorded",
        gold="4",
        sample=0,
        steps=("a", "b"),
        answer="5",
        step_scores=(0.5, 0.25),
        correct=False,
        tokens=9,
    )
    assert found[1] == RecordedSample(
        problem_id="p", run="r", model="m", sample=1, steps=("a", "b")
    )
    assert remarks == {}


def test_equal_runs_of_several_repositories_are_two(tmp_path: Path) -> None:
    """The repository stands before the run; scores that do not fit the steps are counted."""
    row = {"unique_id": "u", "cand": 0, "steps": ["a"], "run": "r", "prm": [0.5, 0.5]}
    rows = [row, row | {"repo": "o/n"}]
    found, remarks = imported("sample_rows", lines_of(tmp_path / "x.jsonl", rows))
    assert [one.run for one in found] == ["r", "o/n: r"]
    assert remarks == {"samples whose step scores are not as many as their steps": 2}


# All of them

WHERE = {
    "prm800k": solution(*STEPS),
    "omegaprm": TREE,
    "tree_of_thought": SEARCH,
    "search_and_learn": COMPLETIONS,
    "sample_rows": {"unique_id": "u", "cand": 0, "steps": ["a"]},
}


@pytest.mark.parametrize(
    ("name", "record", "reason"),
    [
        (
            "prm800k",
            solution(rated(("a", 2))),
            "label.steps.0.completions.0.rating: given 2, expected",
        ),
        (
            "prm800k",
            solution(rated(("a", 1), chosen=1)),
            "step 1: committed: given 1, expected below 1",
        ),
        (
            "prm800k",
            solution(rated(chosen=0)),
            "step 1: chosen_completion: given 0, expected below 0",
        ),
        ("prm800k", {}, "question: not given, expected in every record"),
        ("omegaprm", TREE | {"reasoning_steps": node("q", 1.0, {})}, "children.0.text: not given"),
        ("omegaprm", TREE | {"question": 1}, "question: given 1, expected a valid string"),
        (
            "tree_of_thought",
            SEARCH | {"steps": [FIRST | {"values": [1]}]},
            "step 0: values: given 1, expected one for each of 4 new_ys",
        ),
        (
            "tree_of_thought",
            SEARCH | {"steps": [FIRST | {"ys": [""] * 201}]},
            "steps.0.ys: given ['', '', ...], expected at most 200 items",
        ),
        ("tree_of_thought", {"idx": 1}, "steps: not given, expected in every record"),
        ("search_and_learn", {"problem": "q"}, "completions: not given"),
        (
            "search_and_learn",
            COMPLETIONS | {"completion_tokens": [1]},
            "completion_tokens: given 1, expected one for each of 3 completions",
        ),
        ("sample_rows", {"cand": 0, "steps": []}, "given no id, expected unique_id or problem_id"),
        ("sample_rows", {"unique_id": "u", "cand": 0}, "given neither steps nor text, expected"),
        (
            "sample_rows",
            {"unique_id": "u", "cand": 0, "text": "", "prm": {"a": [1], "b": [1]}},
            "prm: given 2 reward models, expected one",
        ),
    ],
)
def test_a_malformed_record_is_refused_in_a_sentence(
    tmp_path: Path, name: str, record: Mapping[str, Any], reason: str
) -> None:
    """With the file, the line, the field, what was given and what was expected."""
    path = lines_of(tmp_path / "x.jsonl", [WHERE[name], record])
    message = refusal(name, path)
    assert message.startswith(", line 2") and reason in message


@pytest.mark.parametrize("name", IMPORTERS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_whatever_a_field_holds_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """Nothing but a SchemaError comes of it, and what is read makes a log."""
    field = data.draw(st.sampled_from([*WHERE[name], "candidates", "prefix"]))
    record = {**WHERE[name], field: data.draw(json_values)}
    folder = tmp_path_factory.mktemp("any")
    try:
        write_log(IMPORTERS[name](lines_of(folder / "x.jsonl", [record])), folder / "log")
    except SchemaError as error:
        assert "x.jsonl" in str(error)
    else:
        read_log(folder / "log")


@pytest.mark.parametrize("file", ["x.json", "x.jsonl", "x.json.gz"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1, ", b"[[", b"{", b"[" * 9_999])
def test_what_is_no_json_is_refused(tmp_path: Path, file: str, content: bytes) -> None:
    """By what all importers read files with."""
    path = tmp_path / file
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    assert "expected" in refusal("prm800k", path)


@pytest.mark.parametrize("name", IMPORTERS)
def test_json_of_the_wrong_kind_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.json"
    for content in ("null", "[1, 2]"):
        path.write_text(content, encoding="utf-8")
        assert "expected an object" in refusal(name, path)


@pytest.mark.parametrize("name", IMPORTERS)
def test_nothing_to_read_is_an_error(tmp_path: Path, name: str) -> None:
    """No such file or table, or a folder without one of the format."""
    for file in ("none.jsonl", "none.parquet"):
        with pytest.raises(ArtifactError, match=rf"{file}: no such file"):
            list(IMPORTERS[name](tmp_path / file))
    with pytest.raises(ArtifactError, match=r"no file that ends in \.jsonl"):
        list(IMPORTERS[name](tmp_path))


def test_a_value_longer_than_the_cap_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is read as a whole, so it has a cap of its own."""
    monkeypatch.setattr(reading, "LONGEST_VALUE", 1_000)
    path = json_of(tmp_path / "x.json", [SEARCH, SEARCH])
    assert refusal("tree_of_thought", path).startswith(": given more than 1,000 bytes of one JSON")


def test_a_list_on_one_line_may_be_longer_than_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one value, whose cap is its own; so is a long object in a file called .json."""
    monkeypatch.setattr(reading, "LONGEST_LINE", 1_000)
    values = {
        "x.json": [SEARCH] * 4,
        "x.jsonl": [SEARCH] * 4,
        "y.json": SEARCH | {"ys": [" "] * 199},
    }
    for name, value in values.items():
        path = tmp_path / name
        path.write_text(f"\n \n{json.dumps(value)}\n", encoding="utf-8")
        assert path.stat().st_size > 1_000
        assert len(list(IMPORTERS["tree_of_thought"](path))) == (12 if "x" in name else 3)
    path = lines_of(tmp_path / "y.jsonl", [SEARCH | {"ys": [" "] * 199}])
    assert refusal("tree_of_thought", path).startswith(", line 1: given more than 1,000 bytes")


@pytest.mark.parametrize("name", ["a\nb", "\x1b]0;owned\x07", "a\u202eb"])
def test_a_name_that_cannot_be_printed_is_refused_or_replaced(tmp_path: Path, name: str) -> None:
    """Refused where it is an id of the record's own, replaced where it is a text."""
    path = lines_of(tmp_path / "x.jsonl", [WHERE["sample_rows"] | {"run": name}])
    message = refusal("sample_rows", path)
    assert message == f", line 1: run: given {name!r}, expected no control characters"
    search = {"idx": 0, "steps": [FIRST | {"x": name}]}
    found, _ = imported("tree_of_thought", lines_of(tmp_path / "x.jsonl", [search]))
    assert found[0].problem_id.startswith("text-") and found[0].question == name


def test_a_fault_deep_in_a_tree_is_told_briefly(tmp_path: Path) -> None:
    """By the end of its place."""
    tree: dict[str, Any] = {"text": 1, "mc_value": None, "children": []}
    for _ in range(40):
        tree = node("a", None, tree)
    path = lines_of(tmp_path / "x.jsonl", [TREE | {"reasoning_steps": tree}])
    message = refusal("omegaprm", path)
    assert message.startswith(", line 1: ....") and "children.0.text: given 1, expected" in message
    assert len(message) < 200


def test_files_of_a_folder_are_runs_by_their_paths(tmp_path: Path) -> None:
    """Equal names in several folders stay apart."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        lines_of(tmp_path / folder / "test.jsonl", [solution(*STEPS)])
    found = list(IMPORTERS["prm800k"](tmp_path))
    assert [one.run for one in found[::3]] == ["a/test", "b/test"]


def test_links_capitals_and_unreadable_folders_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each folder is read once, under its own name before a link's; what is not is named."""
    folder, outside = tmp_path / "runs", tmp_path / "outside"
    for place in (folder / "b", folder / "locked", outside):
        place.mkdir(parents=True)
    for file in (folder / "A.JSONL", folder / "b" / "c.jsonl", outside / "d.Json"):
        lines_of(file, [solution(rated(("one", 1)))])
    for link, target in (("a", folder / "b"), ("z", outside), ("up", tmp_path), ("b/x", folder)):
        (folder / link).symlink_to(target)
    (folder / "gone.jsonl").symlink_to(tmp_path / "nothing")
    real = os.scandir

    def scandir(place: str) -> Any:
        if str(place).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(place))
        return real(place)

    monkeypatch.setattr(os, "scandir", scandir)
    counted = Imported()
    found = list(IMPORTERS["prm800k"](folder, counted))
    assert [one.run for one in found] == ["A", "b/c", "z/d"]
    locked, gone = counted.faults
    assert locked.startswith(
        f"{folder / 'locked'}: not read (Permission denied), expected a folder"
    )
    assert gone.startswith(f"{folder / 'gone.jsonl'}: no such file")


@pytest.mark.parametrize(
    ("name", "run"),
    [
        (b"a\xff.jsonl", r"a\udcff"),
        (b"a\n\xe2\x80\xaeb.jsonl.gz", r"a\n\u202eb"),
        (b"a b.json", "a b"),
    ],
)
def test_a_file_may_be_called_anything(tmp_path: Path, name: bytes, run: str) -> None:
    """Its run is then called by what can be printed."""
    path = tmp_path / os.fsdecode(name)
    text = json.dumps(solution(rated(("one", 1)))).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    for source in (path, tmp_path):
        (found,) = IMPORTERS["prm800k"](source)
        assert found.run == run


@pytest.mark.parametrize("name", IMPORTERS)
@pytest.mark.parametrize("bad", ['{"a": ', "7\n", "\xff"])
def test_a_bad_file_of_a_folder_is_left_out_and_named(tmp_path: Path, name: str, bad: str) -> None:
    """As a whole, with its reason, wherever it stands among the others; their entries are there."""
    folder = tmp_path / "runs"
    folder.mkdir()
    alone = list(IMPORTERS[name](lines_of(folder / "b.jsonl", [WHERE[name]])))
    (folder / "c").mkdir()
    faulty = [folder / "a.jsonl", folder / "c" / "d.jsonl"]
    for file in faulty:
        file.write_text(f"{json.dumps(WHERE[name])}\n{bad}", encoding="latin-1")
    counted = Imported()
    found = list(IMPORTERS[name](folder, counted))
    assert len(found) == len(alone) == counted.entries
    told = [line for line in counted.sentences() if line.startswith("file left out: ")]
    assert all(f"{file}, line 2: " in line for file, line in zip(faulty, told, strict=True))
    assert all("expected" in line and "\n" not in line for line in told)


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_folder_of_bad_files_is_an_error(tmp_path: Path, name: str) -> None:
    """It names how many there are, and the reason of the first."""
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text("{", encoding="utf-8")
    message = refusal(name, tmp_path)
    assert message.startswith(": no entry, 3 of 3 files cannot be read, expected some: ")
    assert "0.jsonl, line 1: given '{', expected JSON" in message


def test_a_record_is_known_by_its_fields() -> None:
    """Each by its own importer and by no other; every importer says in a line what it reads."""
    assert set(WHERE) == set(IMPORTERS)
    assert all(0 < len(one.title) < 80 for one in IMPORTERS.values())
    for name, record in WHERE.items():
        assert [one for one in IMPORTERS if IMPORTERS[one].describes(record)] == [name]
        assert format_of(record) == name
    assert format_of({"kind": "list"}) is format_of([1]) is None


def test_the_count_is_told_in_sentences() -> None:
    """Entries first, then the most frequent remark; of many bad files the first are named."""
    counted = Imported(entries=1_200)
    for reason, times in (("states left out", 2), ("records left out", 3), ("nothing", 0)):
        counted.remark(reason, times)
    assert counted.sentences() == ("1,200 entries", "3 records left out", "2 states left out")
    assert Imported(entries=1).sentences() == ("1 entry",)
    many = Imported(faults=[f"{number}: bad" for number in range(MOST_FAULTS + 2)]).sentences()
    assert (len(many), many[-1]) == (1 + MOST_FAULTS + 1, "2 more files left out")
