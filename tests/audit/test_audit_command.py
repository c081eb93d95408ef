"""``selverify audit`` and ``selverify import`` on small logs of our own."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import torch
from recorded_lists import recorded_list, stopped
from rich.console import Console
from torch import Tensor
from typer.testing import CliRunner, Result

from selverify import cli
from selverify.audit import commands, learned_orders
from selverify.audit.encoders import Embedder
from selverify.audit.importers import IMPORTERS
from selverify.audit.judged_lists import by_label, judge
from selverify.audit.list_audit import AuditSettings, accept_rule, audit_lists
from selverify.audit.log import (
    LogEntry,
    RecordedCandidate,
    RecordedList,
    RecordedSample,
    read_log,
    write_log,
)
from selverify.audit.text import render_lists

PROBLEMS, STATES, MOVES = 12, 4, 5


def listed(
    problem: int,
    state: int,
    candidates: Iterable[RecordedCandidate],
    *,
    committed: int | None = None,
) -> RecordedList:
    return recorded_list(
        candidates,
        problem=f"p{problem}",
        state=f"p{problem}-{state}",
        question=f"question {problem}",
        prefix=(f"step {number}" for number in range(state)),
        committed=committed,
    )


def walks(seed: int, *, labels: bool = True) -> list[RecordedList]:
    """Lists whose right moves are short and stand late; one state in four holds none."""
    rng, found = random.Random(seed), []
    for problem in range(PROBLEMS):
        for state in range(STATES):
            right = rng.sample(range(2, MOVES), 1 + (rng.random() < 0.2)) if state else []
            moves = [
                RecordedCandidate(
                    text="x" * (rng.randint(1, 3) if place in right else 4) + str(place),
                    label=place in right if labels else None,
                    score=0.9 if place in right else 0.1,
                )
                for place in range(MOVES)
            ]
            found.append(listed(problem, state, moves, committed=right[0] if right else None))
    return found


def samples(problems: int = 4, each: int = 3) -> list[RecordedSample]:
    rng = random.Random(0)
    return [
        RecordedSample(
            problem_id=f"p{problem}",
            run="../run",
            model="model",
            sample=sample,
            steps=("a step", "another"),
            answer=str(rng.randrange(2)),
            step_scores=(0.5, rng.random()),
            correct=rng.random() < 0.5,
        )
        for problem in range(problems)
        for sample in range(each)
    ]


def rated(rating: int | None) -> dict[str, object]:
    """A record as PRM800K has them, with two completions of its only step."""
    texts = [{"text": text, "rating": rating, "flagged": False} for text in ("one", "two")]
    step = {"completions": texts, "human_completion": None, "chosen_completion": 0}
    empty = {"completions": [], "human_completion": None, "chosen_completion": None}
    return {
        "question": {"problem": "how many?", "ground_truth_answer": "1"},
        "label": {"steps": [step, empty], "finish_reason": "solution"},
    }


def run(*arguments: object, columns: int = 200) -> Result:
    return CliRunner().invoke(
        cli.app, [str(one) for one in arguments], env={"COLUMNS": str(columns)}
    )


def sentence(result: Result) -> str:
    """The one line of a failed command."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl.gz"
    write_log(walks(0), path)
    return path


def audited(log: Path, *arguments: object, columns: int = 200) -> Result:
    """The command with few resamples and its figures beside the log."""
    rules = ("--figure", log.parent / "figures", "--resamples", 50)
    return run("audit", log, *rules, *arguments, columns=columns)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that show nothing, where it matters only that they are there."""

    def draw(_: object, stem: Path, *, title: str) -> None:
        for kind in ("svg", "png"):
            stem.with_name(f"{stem.name}.{kind}").write_text(title, encoding="utf-8")

    for name in ("found_against_calls", "accuracy_against_cost"):
        monkeypatch.setattr(commands, name, draw)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders are learned in no time, and not well."""
    settings = learned_orders.RANKER_SETTINGS.model_copy(update={"epochs": 2, "hidden": 4})
    monkeypatch.setattr(learned_orders, "RANKER_SETTINGS", settings)


def test_a_log_alone_gives_an_answer(log: Path) -> None:
    """What it holds, three ways to ask, and what follows; figure and points are written."""
    result = audited(log)
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert "48 states of 12 problems (1 run, 1 model), 240 distinct candidates" in shown
    assert "one is accepted if its label says that it is right." in shown
    assert "75.0 % of the states hold an accepted candidate; in 75.0 % one stands" in shown
    assert "Every candidate has a verdict." in shown
    rows = [line.split("  ")[0] for line in shown.splitlines()]
    assert rows.count("Verify-all") == 1
    assert rows.count("Oracle") == 3
    assert rows.count("Shortest first") == rows.count("Recorded order") == 4
    assert "shortest first needs fewer calls; recorded order needs more calls" in shown
    plain = " ".join(shown.split())
    assert "12 problems with an accepted candidate: too few for the intervals to be" in plain
    assert "do not include the choice of settings and are not corrected for the number" in plain
    figures = log.parent / "figures"
    assert shown.splitlines()[-3:] == [
        str(figures / f"runs.{kind}") for kind in ("svg", "png", "csv")
    ]
    assert {file.name for file in figures.iterdir()} == {"runs.svg", "runs.png", "runs.csv"}


def test_the_calls_are_those_of_the_log(log: Path) -> None:
    """Verify-all makes five a state; in recorded order the first right move, or all five."""
    table = log.parent / "table.csv"
    assert audited(log, "--csv", table).stdout.splitlines()[-1] == str(table)
    rows = pd.read_csv(table).set_index(["ranker", "allocator"])
    assert rows.loc[("random", "verify-all"), "calls"] == MOVES
    assert pd.isna(rows.loc[("random", "verify-all"), "k"])
    firsts = [
        next((place for place, one in enumerate(item.candidates, start=1) if one.label), None)
        for item in read_log(log).lists
    ]
    single = rows.loc[("recorded", "one by one")]
    assert single["calls"] == pytest.approx(sum(f or MOVES for f in firsts) / len(firsts))
    assert single["to_first"] == pytest.approx(sum(filter(None, firsts)) / (3 * PROBLEMS))
    assert single["found"] == 1.0
    assert single["calls_less_random"] > 0
    assert rows.loc[("shortest", "first k"), "k"] == 1
    assert rows.loc[("shortest", "first k"), "calls_ratio"] == pytest.approx(1 / MOVES)
    assert rows.loc[("any", "any"), "calls_ratio"] == pytest.approx(1 / MOVES)
    points = pd.read_csv(log.parent / "figures" / "runs.csv")
    assert set(points["family"]) == {"first k", "k(w)"}
    assert set(points[points["family"] == "first k"]["setting"]) == {1, 2, 3, 4, 5}


@pytest.mark.usefixtures("undrawn")
def test_nothing_is_written_over_the_log_or_over_the_figures(log: Path) -> None:
    """Nor over what is written of its samples."""
    figures, before = log.parent / "figures", log.read_bytes()
    figures.mkdir()
    (log.parent / "link.csv").symlink_to(log)
    told = {
        log: "the log",
        log.parent / "link.csv": "the log",
        figures / "runs.csv": "a file of the figures",
        figures / ".." / "figures" / "runs-run-2.csv": "a file of the figures",
        figures / "runs-samples-run-1.csv": "a file of the figures",
    }
    for table, what in told.items():
        said = sentence(audited(log, "--csv", table))
        assert f"csv: given {table}, which would overwrite {what}, expected another" in said
    assert log.read_bytes() == before and not list(figures.iterdir())
    assert audited(log, "--csv", figures / "runs-run-x.csv").exit_code == 0


@pytest.mark.usefixtures("undrawn")
def test_figures_of_another_log_and_files_of_others_stay(log: Path) -> None:
    """Also where a later run of samples has the name; the same log replaces its own."""
    figures = log.parent / "figures"
    for path in (log.parent / "other" / log.name, log):
        write_log([*walks(0), *samples()], path)
    assert audited(log).exit_code == audited(log).exit_code == 0
    before = {file: file.read_bytes() for file in figures.iterdir()}
    told = "given a file that is not marked as one of an audit of"
    other = log.parent / "other" / log.name
    assert f"runs.svg: {told} {other}, expected none" in sentence(
        run("audit", other, "--figure", figures, "--resamples", 50)
    )
    assert before == {file: file.read_bytes() for file in figures.iterdir()}
    for name in ("mine.csv", "yours-samples-run-1.png"):
        (figures / name).write_text("years of work")
        mine = log.with_name(name.partition("-")[0].partition(".")[0] + ".jsonl")
        write_log([*walks(0), *samples()], mine)
        assert f"{name}: {told} {mine}, expected none" in sentence(audited(mine))


@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_audit_leaves_nothing_in_the_way(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one runs; what was there is its own, or not there at all."""
    write_log(walks(0), log)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("found_against_calls", "write_csv"):
        with monkeypatch.context() as patched:
            patched.setattr(commands, step, interrupted)
            assert audited(log).exit_code != 0
        assert audited(log).exit_code == 0
    assert sorted(file.suffix for file in (log.parent / "figures").iterdir()) == [
        ".csv",
        ".png",
        ".svg",
    ]


def test_a_log_whose_real_name_is_that_of_a_figure_stays(log: Path) -> None:
    figures = log.parent / "figures"
    write_log(walks(0), figures / "runs.csv")
    before = (figures / "runs.csv").read_bytes()
    (log.parent / "runs.jsonl").symlink_to(figures / "runs.csv")
    assert "where a figure would overwrite the log" in sentence(audited(log.parent / "runs.jsonl"))
    assert (figures / "runs.csv").read_bytes() == before


@pytest.mark.usefixtures("undrawn")
def test_lists_are_shown_where_the_samples_beside_them_cannot_be(log: Path) -> None:
    bare = samples()[0].model_copy(update={"correct": None})
    write_log([*walks(0), bare], log)
    result = audited(log)
    assert result.stdout.startswith("48 states of 12 problems") and result.exit_code == 1
    assert result.stderr.count("\n") == 1 and "given neither correct nor gold" in result.stderr


@pytest.mark.usefixtures("quick", "undrawn")
def test_an_audit_does_not_depend_on_the_order_of_the_log(log: Path) -> None:
    """Also where an order is learned."""
    options = ("--encoder", "free")
    shown = audited(log, *options).stdout
    lists = walks(0)
    random.Random(1).shuffle(lists)
    write_log(lists, log)
    assert audited(log, *options).stdout == shown


@pytest.mark.usefixtures("undrawn")
def test_tables_fit_a_terminal(log: Path) -> None:
    """No line is longer than it, no cell is cut or wrapped; every method has its intervals."""
    shown = audited(log, columns=80).stdout.split(str(log.parent))[0]
    assert sum(line.startswith("Shortest first") for line in shown.splitlines()) == 4
    write_log(samples(problems=40, each=32), log)
    of_samples = audited(log, columns=80).stdout.split(str(log.parent))[0]
    assert "N = 32" in of_samples and "Its calls" in of_samples
    assert len(re.findall(r"^weighted vote, prod +[0-9]", of_samples, re.MULTILINE)) == 3
    for text in (shown, of_samples):
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text


def told(lists: Sequence[RecordedList], width: int = 200) -> str:
    """The audit of lists on a terminal of so many columns, without files."""
    text = StringIO()
    for part in render_lists(audit_lists(lists, settings=AuditSettings(resamples=50))):
        Console(file=text, width=width).print(part)
    return text.getvalue()


def test_no_number_and_no_name_of_an_order_is_cut() -> None:
    """Tables that are too wide are broken: each number is there as often as on a wide terminal."""
    wide, shown = told(walks(0)), told(walks(0), 60)
    found, expected = (Counter(re.findall(r"[-+]?[0-9.]+", text)) for text in (shown, wide))
    assert found == expected
    assert "Recorded order  " in shown and max(map(len, shown.splitlines())) <= 60


def test_equal_logs_give_equal_files(log: Path) -> None:
    """Text, figures and tables, byte by byte; another seed draws other resamples."""
    table = log.parent / "table.csv"
    files = [table, *(log.parent / "figures" / f"runs.{kind}" for kind in ("svg", "png", "csv"))]
    found = []
    for _ in range(2):
        shown = audited(log, "--csv", table).stdout
        found.append((shown, [file.read_bytes() for file in files]))
    assert found[0] == found[1]
    assert audited(log, "--seed", 5).stdout != shown


@pytest.mark.usefixtures("undrawn")
def test_scores_can_be_the_verifier(log: Path) -> None:
    """By --by score, by --tau alone, or because there are no labels: the same here."""
    asked = [(walks(0), "score", None), (walks(0), None, 0.5), (walks(0, labels=False), None, None)]
    for lists, by, tau in asked:
        rule = accept_rule(lists, by=by, tau=tau)
        assert rule.words == "its recorded score is at least 0.5"
        assert rule.accepts(RecordedCandidate(text="a", score=0.5, label=False)) is True
    shown = audited(log, "--by", "score", "--tau", 0.1).stdout
    assert "one is accepted if its recorded score is at least 0.1." in shown
    assert "100.0 % of the states hold an accepted candidate" in shown


@pytest.mark.usefixtures("undrawn")
def test_what_is_missing_is_told(log: Path) -> None:
    """Candidates and lists without a verdict; with --complete their lists are left out."""
    lists = walks(0)
    blank = RecordedCandidate(text="never verified")
    lists.append(listed(99, 0, [blank, RecordedCandidate(text="right", label=True)]))
    lists.append(listed(99, 1, [blank]))
    shown = told(lists)
    assert "1 of 242 candidates (0.4 %), in 1 state, has no verdict: each costs a call" in shown
    assert "1 of 50 lists is left out for want of verdicts." in shown
    assert "have no verdict, and none" not in shown
    write_log(lists, log)
    shown = audited(log, "--complete").stdout
    assert "Every candidate has a verdict." in shown
    assert "2 of 50 lists are left out for want of verdicts." in shown


def test_a_verifier_that_stopped_early_is_no_proof_of_its_order() -> None:
    """Where what stands after the first accepted one has no verdict, conclusions begin with it."""
    shown = " ".join(told([stopped(one) for one in walks(0)]).split())
    warning = shown.index("% of the candidates have no verdict, and none of them can be accepted.")
    assert warning < shown.index("With order and allocation chosen on other problems")
    assert "look like the oracle: distrust" in shown
    assert "--complete" in shown


def test_a_log_may_be_called_anything(log: Path) -> None:
    """Its name is drawn without what the font lacks, and an error that quotes it does not steer
    the terminal."""
    odd = log.with_name("$\\foo{$ _^ 日本\x1b--\n.jsonl")
    unnamed = log.with_name(os.fsdecode(b"\xff.jsonl"))
    for path in (odd, unnamed):
        write_log(walks(0), path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = audited(path)
        assert result.exit_code == 0, result.output
    figures = list((log.parent / "figures").glob("*.svg"))
    assert len([ElementTree.parse(file) for file in figures]) == 2
    said = sentence(run("audit", log.with_name("no\x1b[31m\nlog")))
    assert "\x1b" not in said
    assert r"no\x1b[31m\nlog: no such file" in said


def test_repeats_are_told() -> None:
    """How many there are, and how many say something else; proposal counts make an order."""
    again = [RecordedCandidate(text="a", label=True), RecordedCandidate(text="b", label=False)]
    lists = [listed(n, 0, [*again, RecordedCandidate(text="a", label=n > 0)]) for n in range(4)]
    shown = told(lists)
    assert "Repeats of a candidate in its list cost no call: 4." in shown
    assert "Repeats with another verdict than the first, which counts: 1." in shown
    assert "Most proposed first" in shown


def test_a_missing_log_probability_is_told() -> None:
    """Where some candidates have one: the order is left out. Where none has, nothing is said."""

    def shown(missing: int) -> str:
        lists, rest = [], missing
        for item in walks(0):
            moves = [
                one.model_copy(update={"logprob": None if place < rest else -1.0})
                for place, one in enumerate(item.candidates)
            ]
            lists.append(item.model_copy(update={"candidates": tuple(moves)}))
            rest -= len(moves)
        return told(lists)

    for missing, have in ((1, "has"), (239, "have")):
        line = f"Log probability is left out: {missing} of 240 candidates {have} none."
        assert shown(missing).count("Log probability") == shown(missing).count(line) == 1
    assert shown(0).count("Log probability  ") == 4 and "is left out" not in shown(0)
    assert "Log probability" not in shown(240)


def test_an_order_that_helps_nothing_is_called_so() -> None:
    """Where every candidate is right, no order is told from random order."""
    right = [RecordedCandidate(text="a", label=True)]
    shown = told([listed(number, 0, right) for number in range(30)])
    assert "One by one, no order is told from random order: every interval holds 0." in shown
    assert "States without an accepted move" not in shown
    assert "too few" not in shown


@pytest.mark.parametrize(
    ("entries", "options", "message"),
    [
        ([], (), "given an empty log, expected candidate lists or samples"),
        (
            [listed(0, 0, [RecordedCandidate(text="a")])],
            (),
            "no candidate of the log has a score, nor has any a label",
        ),
        (
            [listed(0, 0, [RecordedCandidate(text="a", score=0.3)])],
            ("--by", "label"),
            "label, expected some",
        ),
        (
            [listed(0, 0, [RecordedCandidate(text="a", label=True)])],
            ("--by", "score"),
            "have a label)",
        ),
        (
            [listed(0, 0, [RecordedCandidate(text="a", score=-2.0)])],
            (),
            "run from -2 to -2; expected",
        ),
        (
            [listed(0, 0, [RecordedCandidate(text="a", label=False)])],
            (),
            "none of them holds an accepted",
        ),
        (
            [listed(0, 0, [RecordedCandidate(text="a", label=True)])],
            (),
            "accepted move: given 1, expected",
        ),
        (walks(0), ("--by", "people"), "by: given 'people', expected 'label' or 'score'"),
        (walks(0), ("--by", "label", "--tau", 0.5), "tau: given 0.5, expected none where"),
        (walks(0), ("--wanted", 1.5), "wanted: given 1.5, expected a share from 0 to 1"),
        (walks(0), ("--encoder", "magic"), "encoder: given 'magic'"),
        (
            walks(0),
            ("--resamples", 10**7),
            "resamples: given 10,000,000, expected at most 1,000,000",
        ),
        (walks(0), ("--csv", ""), "csv: given a folder or no name, expected a file"),
        (walks(0), ("--seed", -1), "seed: given -1, expected from 0 to 9"),
        (walks(0), ("--encoder", "free", "--seed", 1 << 64), "seed: given 18446744073709551616,"),
        (samples(), ("--tau", 0.5), "given samples only, expected no --by, --tau"),
        (samples(), ("--wanted", 0.9), "given samples only, expected no --by, --tau, --wanted"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    log: Path, entries: list[LogEntry], options: tuple[object, ...], message: str
) -> None:
    """It says what was given and what was expected; nothing is written."""
    write_log(entries, log)
    assert message in sentence(audited(log, *options))
    assert not (log.parent / "figures").exists()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("form", ["lines", "folder"])
def test_the_files_of_another_project_are_audited_as_they_are(tmp_path: Path, form: str) -> None:
    """As the log that is made of them; what is left out is told first."""
    source = tmp_path / "rated"
    source.mkdir()
    rows = [rated(1) | {"question": {"problem": f"{number}?"}} for number in range(9)]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (source / "phase.jsonl").write_text(lines, encoding="utf-8")
    given = source if form == "folder" else source / "phase.jsonl"
    made = tmp_path / "made" / given.name
    made.parent.mkdir()
    left_out, *_ = run("import", "prm800k", given, made).stdout.partition("Written to")
    raw, log = (audited(one).stdout.replace(str(one.parent), "") for one in (given, made))
    assert left_out.startswith("9 entries") and raw == f"{left_out}\n{log}"


def test_the_files_of_another_project_stay_and_must_hold_something(tmp_path: Path) -> None:
    source = tmp_path / "rated" / "phase.jsonl"
    source.parent.mkdir()
    nothing = rated(1) | {"label": {"steps": [], "finish_reason": "solution"}}
    lines = json.dumps(nothing) + "\n"
    source.write_text(lines, encoding="utf-8")
    told = sentence(audited(source.parent))
    assert "given nothing that 'prm800k' can import, expected some (0 entries" in told
    told = sentence(audited(source.parent, "--csv", source))
    assert "which would overwrite the log, expected another" in told
    assert source.read_text(encoding="utf-8") == lines


def test_a_file_that_no_importer_knows_names_them_all(log: Path) -> None:
    """A folder too; but not where the file begins as a log does."""
    other = log.with_name("other.jsonl")
    other.write_text('{"question": "why?"}\n', encoding="utf-8")
    told = sentence(run("audit", other))
    assert "other.jsonl, line 1: kind: not given" in told and "prm800k, omegaprm, " in told
    log.unlink()
    told = sentence(run("audit", log.parent))
    assert "a folder of no known format, expected a log, or files of one of prm800k, " in told
    write_log(walks(0), other)
    other.write_text(other.read_text(encoding="utf-8") + "{}\n", encoding="utf-8")
    assert sentence(run("audit", other)).endswith("kind: not given, expected list or sample\n")


def test_a_full_disk_is_one_sentence(log: Path, tmp_path: Path) -> None:
    """Neither a log nor a figure is half written."""
    source = tmp_path / "rows.jsonl"
    source.write_text('{"unique_id": "u", "cand": 0, "steps": ["a"]}\n', encoding="utf-8")
    target = tmp_path / "log.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        results = [run("import", "sample_rows", source, target), audited(log)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "expected space on its disk" in sentence(results[0])
    assert "expected space on its disk" in results[1].stderr
    assert results[1].exit_code == 1
    assert results[1].stdout.startswith("48 states of 12 problems")  # what was found is shown
    assert not target.exists() and not list((tmp_path / "figures").iterdir())


def test_a_bad_file_of_a_folder_is_told(tmp_path: Path) -> None:
    """Beside what was imported; its name does not steer the terminal."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "good.jsonl").write_text(json.dumps(rated(1)), encoding="utf-8")
    (tmp_path / "runs" / "bad\x1b[31m.jsonl").write_text("{", encoding="utf-8")
    result = run("import", "prm800k", tmp_path / "runs", tmp_path / "log.jsonl")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1 entry\n") and "\x1b" not in result.stdout
    assert f"file left out: {tmp_path}/runs/bad\\x1b[31m.jsonl, line 1: given '{{'" in result.stdout


class Letters:
    """An encoder: counts of two letters."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        return torch.tensor([[float(text.count(one)) for one in "xq"] for text in texts])


@pytest.mark.usefixtures("quick", "undrawn")
def test_an_order_can_be_learned(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features give two rows a table, embeddings of committed runs four; without all verdicts
    there is nothing to learn from."""
    shown = audited(log, "--encoder", "free").stdout
    for name in ("Residual", "Learned reject probability"):
        assert sum(line.startswith(f"{name}  ") for line in shown.splitlines()) == 4
    assert "D_type" not in shown  # without an encoder every distance is 0
    assert "Each learned order was trained on other problems than it is asked about." in shown
    leak = "trained on the verdicts of the very problems that are then scored"
    assert leak in " ".join(shown.split())
    monkeypatch.setattr(learned_orders, "open_embedder", lambda _: Embedder(Letters(), free=True))
    orders = learned_orders.learned_orders("letters", seed=0)
    always = {"residual", "reject_probability"}
    assert set(orders(judge(walks(0), by_label, complete=True)[0])) == always | {
        "distance",
        "hybrid",
    }
    uncommitted = [item.model_copy(update={"committed": None}) for item in walks(0)]
    assert set(orders(judge(uncommitted, by_label, complete=True)[0])) == always
    blank = [RecordedCandidate(text="never verified"), RecordedCandidate(text="right", label=True)]
    write_log([*walks(0), listed(99, 0, blank)], log)
    assert "expected --complete" in sentence(audited(log, "--encoder", "free"))


def test_samples_are_audited_too(log: Path) -> None:
    """Alone and beside lists; a run's name never becomes a path."""
    table = log.parent / "table.csv"
    write_log(samples(), log)
    shown = audited(log, "--csv", table).stdout
    assert "12 samples of 4 problems, 3 a problem" in shown
    figures = log.parent / "figures"
    files = {f"runs-run-1.{kind}" for kind in ("svg", "png", "csv")}
    assert {file.name for file in figures.iterdir()} == files
    assert set(pd.read_csv(table)["run"]) == {"../run"}
    write_log([*walks(0), *samples()], log)
    shown = audited(log, "--csv", table).stdout
    assert "48 states of 12 problems" in shown
    assert "12 samples of 4 problems" in shown
    names = {f"runs-samples-run-1.{kind}" for kind in ("svg", "png", "csv")}
    assert names < {file.name for file in figures.iterdir()}
    assert "ranker" in pd.read_csv(table)
    assert "method" in pd.read_csv(log.parent / "table-samples.csv")


def test_other_formats_are_imported_and_what_is_left_out_is_told(tmp_path: Path) -> None:
    """The log is written, with the number of entries and each reason."""
    source, target = tmp_path / "phase.jsonl", tmp_path / "log.jsonl"
    source.write_text(json.dumps(rated(1)) + "\n", encoding="utf-8")
    result = run("import", "prm800k", source, target)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "1 entry"
    assert any("no completion" in line for line in lines[1:-1])
    assert lines[-1] == f"Written to {target}; ask it: selverify audit {target}"
    assert [one.text for one in read_log(target).lists[0].candidates] == ["one", "two"]


def test_imports_that_cannot_be_are_one_sentence(tmp_path: Path) -> None:
    """An unknown format names the known ones; a source with nothing in it leaves no log."""
    source, target = tmp_path / "source.jsonl", tmp_path / "log.jsonl"
    source.write_text("", encoding="utf-8")
    said = sentence(run("import", "prm", source, target))
    assert f"FORMAT: given 'prm', expected among {', '.join(IMPORTERS)}" in said
    assert "can import, expected some" in sentence(run("import", "prm800k", source, target))
    assert not target.exists()


def test_an_import_replaces_nothing_but_a_log(tmp_path: Path) -> None:
    """Another source, which a pattern of the shell may name last, stays as it is."""
    sources = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for source in sources:
        source.write_text(json.dumps(rated(1)) + "\n", encoding="utf-8")
    before = sources[1].read_bytes()
    said = sentence(run("import", "prm800k", *sources))
    assert f"target: given {sources[1]}, which is there and no log, expected" in said
    assert sources[1].read_bytes() == before
    target = tmp_path / "log.jsonl"
    target.touch()
    for _ in range(2):
        assert run("import", "prm800k", sources[0], target).exit_code == 0


def test_the_help_names_every_format() -> None:
    """And what it is, in the words of the importers themselves."""
    shown = run("import", "--help").stdout
    for name, importer in IMPORTERS.items():
        assert f"{name}: {importer.title}." in shown
