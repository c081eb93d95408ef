"""The importers on what other projects recorded: as many entries as the records hold."""

from __future__ import annotations

from pathlib import Path

from recorded import DATA, records

from selverify.audit.importers import IMPORTERS, Imported
from selverify.audit.importers.omegaprm import ROLLOUTS
from selverify.audit.log import LogEntry, RecordedList, RecordedSample, read_log, write_log


def imported(name: str, file: str) -> tuple[list[LogEntry], Imported]:
    """All entries of a file, and the count."""
    counted = Imported()
    return list(IMPORTERS[name](DATA / file, counted)), counted


def test_raw_records_of_prm800k() -> None:
    """Seven records; every step but the one that was given up is a list."""
    name = "candidates/prm800k_raw_samples.jsonl.gz"
    raw = records(name)
    assert len(raw) == 7
    found, counted = imported("prm800k", name)
    steps = [step for record in raw for step in record["label"]["steps"]]
    assert len(found) == sum(bool(step["completions"]) for step in steps)
    assert counted.remarks == {
        "steps by people kept in prefixes, not as candidates": 2,
        "states left out: no completion": 1,
    }
    completions = [one for step in steps for one in step["completions"] or ()]
    lists = [one for one in found if isinstance(one, RecordedList)]
    candidates = [one for item in lists for one in item.candidates]
    assert [one.text for one in candidates] == [one["text"] for one in completions]
    assert [one.label for one in candidates] == [one["rating"] >= 0 for one in completions]
    screening = [one for one in lists if one.run == "prm800k_raw_samples, screening"]
    marked = [record for record in raw if record["is_initial_screening_question"]]
    assert {one.question for one in screening} == {one["question"]["problem"] for one in marked}


def test_rated_states_of_prm800k() -> None:
    """All whose prefix is known; a committed step of the model is always right.

    People also wrote steps of their own where the model had proposed a right one.
    """
    found, counted = imported("prm800k", "candidates/prm800k_phase1test_candidates.jsonl.gz")
    lists = [one for one in found if isinstance(one, RecordedList)]
    unknown = counted.remarks["states left out: their prefix is unknown"]
    assert (len(lists), len(lists) + unknown) == (889, 923)
    committed = [one.candidates[one.committed] for one in lists if one.committed is not None]
    assert len(committed) == 759 + 29 and all(one.label for one in committed)
    rejected = [one for one in lists if not any(move.label for move in one.candidates)]
    assert rejected and all(one.committed is None for one in rejected)
    assert counted.remarks["choices matched by what stands before their answer"] == 29
    assert counted.remarks["steps by people kept in prefixes, not as candidates"] == 99
    uncommitted = [one for one in lists if one.committed is None]
    accepted = [one for one in uncommitted if any(move.label for move in one.candidates)]
    # In two states nobody chose, and both hold a right move.
    assert (len(uncommitted), len(accepted)) == (99 + 2, 39 + 2)


def test_trees_of_openr() -> None:
    """Three trees; of 254 children in 15 states 234 are whole right solutions.

    Every prefix leads to a state of its tree.
    """
    found, counted = imported("omegaprm", "candidates/openr_mathaps_trees.jsonl.gz")
    lists = [one for one in found if isinstance(one, RecordedList)]
    assert (len(lists), sum(len(one.candidates) for one in lists)) == (12, 20)
    assert counted.remarks == {ROLLOUTS: 234, "states left out: no candidate": 3}
    assert len({one.problem_id for one in lists}) == 3
    assert all(one.score is not None for item in lists for one in item.candidates)
    reached = {
        (one.problem_id, (*one.prefix, move.text)) for one in lists for move in one.candidates
    }
    assert all((one.problem_id, one.prefix) in reached for one in lists if one.prefix)


def test_states_of_game_of_24() -> None:
    """3,826 states of five logs; repeated proposals are merged and none is lost."""
    name = "candidates/game24_tot_states.jsonl.gz"
    found, counted = imported("tree_of_thought", name)
    lists = [one for one in found if isinstance(one, RecordedList)]
    rows = records(name)
    assert len(lists) == len(rows) == 3_826
    assert len({one.run for one in lists}) == 5
    times = [sum(move.times for move in one.candidates) for one in lists]
    assert times == [row["n"] for row in rows]
    repeated = [move for row in rows for move in row["candidates"] if move.get("dup")]
    assert counted.remarks["repeated proposals merged"] == len(repeated)
    states = {(one.run, one.problem_id, one.prefix) for one in lists}
    assert len(states) == len(lists)


def test_samples_with_step_scores(tmp_path: Path) -> None:
    """16,000 of 500 problems, a score a step; written and read back."""
    found, counted = imported("sample_rows", "samples/spb_math500_n32.jsonl.gz")
    assert len(found) == 16_000 and not counted.remarks
    assert len({one.problem_id for one in found}) == 500
    few = found[:320]
    write_log(few, tmp_path / "log.jsonl.gz")
    assert list(read_log(tmp_path / "log.jsonl.gz").samples) == few


def test_samples_of_search_and_learn(tmp_path: Path) -> None:
    """Scores where they were kept, one a step; no sample of a run stands twice."""
    name = "samples/sal_llama_math500.jsonl.gz"
    found, counted = imported("sample_rows", name)
    samples = [one for one in found if isinstance(one, RecordedSample)]
    rows = records(name)
    assert len(samples) == len(rows) == 7_952 and not counted.remarks
    assert [one.step_scores is None for one in samples] == [row["prm"] is None for row in rows]
    assert [len(one.steps) for one in samples] == [row["n_parts"] for row in rows]
    write_log(found, tmp_path / "log.jsonl.gz")
