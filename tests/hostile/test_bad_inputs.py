"""Whatever a user types or leaves lying about: one sentence and exit code 1, never a traceback.

Usage errors, which the option parser finds, have exit code 2.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from flows.__main__ import COMMANDS, MOST_ARGUMENTS, main
from selverify.audit.log import RecordedCandidate, RecordedList, write_log
from selverify.cli import app
from selverify.storage import write_digests, write_table

ROOT = Path(__file__).parents[2]
TEXT = "we count apples 7 . pears equal 3 times apples . find pears ?"
LONG = "n" * 300
POINTS = "method,n,accuracy,accuracy_low,accuracy_high,verifier_calls,generated_tokens\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a command, with things that stand in its way."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    return tmp_path


def told(*arguments: str, code: int = 1) -> str:
    """The one line in which ``selverify`` refuses, or its usage."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert code == 2 or (result.stderr.startswith("error: ") and result.stderr.count("\n") == 1)
    return result.stderr


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line in which ``python -m flows`` refuses."""
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and shown.err.count("\n") == 1, shown.err
    return shown.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("",), "expected a question like"),
        (("find pears ?",), "there is none"),
        ((". . find pears ?",), "given the sentence '.'"),
        (("\0",), r"unknown word '\x00'"),
        (("\ud800",), r"unknown word '\ud800'"),
        (("[red]",), "unknown word '[red]'"),
        (("we count apples 7 . " * 40 + "find apples ?",), "words, expected at most"),
        ((TEXT, "--budget", "0"), "budget: given 0"),
        ((TEXT, "--budget", "-99999999999999999999"), "budget: given -99999999999999999999"),
        ((TEXT, "--device", ""), "device: given ''"),
        ((TEXT, "--device", "cuda:99999"), "expected one of cpu"),
        ((TEXT, "--models", LONG), "File name too long"),
        ((TEXT, "--models", "loop"), "solver.json: no such file"),
        ((TEXT, "--models", "file"), "solver.json: no such file"),
        (("--benchmark", LONG), "File name too long"),
        (("--benchmark", "file"), "problems.parquet: no such file"),
        (("--problem", "p"), "problems.parquet: no such file"),
    ],
)
def test_solve(here: Path, tiny_models: Path, arguments: tuple[str, ...], expected: str) -> None:
    """Texts, numbers, devices and folders that are none."""
    assert expected in told("solve", "--models", str(tiny_models), *arguments)


@pytest.mark.parametrize("option", [("--budget", "x"), ("--budget", "1.5"), ("--models", "a\0")])
@pytest.mark.usefixtures("here")
def test_solve_has_a_usage(option: tuple[str, str]) -> None:
    """What an option cannot be at all."""
    told("solve", TEXT, *option, code=2)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *product(
            ("small-strong/solver.json", "small-strong/verifier/config.json"),
            ("", "[]", "null", "{}", "\xff", "7", "[" * 50_000),
        ),
        *product(
            (
                "small-strong/policy/policy.json",
                "word_problems-small/source.json",
                "small-strong/verifier/source.json",
            ),
            ("{}", "\xff"),
        ),
    ],
)
def test_solve_by_models_of_another_kind(
    here: Path, tiny_models: Path, file: str, content: str
) -> None:
    """Files that hold something else, digests and all."""
    path = shutil.copytree(tiny_models.parent, here / "models") / file
    path.write_text(content, encoding="latin-1")
    write_digests(path.parent)
    assert path.name in told("solve", TEXT, "--models", "models/small-strong")


def test_solve_by_a_benchmark_of_another_kind(here: Path) -> None:
    """Tables without the columns, of another version, or no tables."""
    empty = pa.table({"a": pa.array([], pa.int64())})
    write_table(here / "problems.parquet", empty, schema="benchmark.problems", version=1)
    assert "truths.parquet: no such file" in told("solve", "--benchmark", ".")
    (here / "truths.parquet").write_text("PAR1")
    assert "truths.parquet: not a Parquet file" in told("solve", "--benchmark", ".")
    pq.write_table(empty, here / "truths.parquet")
    assert "written as no schema" in told("solve", "--benchmark", ".")
    write_table(here / "truths.parquet", empty, schema="benchmark.truths", version=1)
    assert "expected a benchmark with test problems" in told("solve", "--benchmark", ".")
    rows = pa.table({"a": [1]})
    for name in ("problems", "truths"):
        write_table(here / f"{name}.parquet", rows, schema=f"benchmark.{name}", version=1)
    assert "given tables of other rows" in told("solve", "--benchmark", ".")


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ("", "No columns"),
        ("\xff\xfe\0", "can't decode"),
        ('"', "EOF inside string"),
        ("\0\0", "no column 'method'"),
        ("method\nfull\n", "no column 'n'"),
        (POINTS, "no row"),
        (POINTS + "full,8,x,1,1,1,1\n", "column 'accuracy' holds something else"),
        (POINTS + ",8,1,1,1,1,1\n", "a row without a method"),
        (POINTS + "full,8,1,1,1,1,1,1,1\nfull,1\n", "a row without a method"),
        (POINTS + "full,8,1,1,1,1\nfull,8,1,1,1,1,1,1,1\n", "Error tokenizing"),
        (POINTS + "full,8,1,1,1,1,1\n", "--methods: given 'ful', expected among full"),
    ],
)
def test_frontier(here: Path, points: str, expected: str) -> None:
    """Tables that are no table of points."""
    (here / "points.csv").write_text(points, encoding="latin-1")
    assert expected in told("frontier", "--report", ".", "--methods", "ful")


@pytest.mark.parametrize("report", [LONG, "file", "loop", "dangling", "folder", "", "/dev/null"])
@pytest.mark.usefixtures("here")
def test_frontier_of_no_report(report: str) -> None:
    """Folders that are none."""
    assert "expected" in (line := told("frontier", "--report", report)) or "no such file" in line


@pytest.mark.parametrize(
    "models", [LONG, "file", "loop", "dangling", "folder", "", "/dev/null", "..", "a\nb", "[red]"]
)
@pytest.mark.usefixtures("here")
def test_check(models: str) -> None:
    """It says of each thing how it is, and ends with exit code 1."""
    result = CliRunner().invoke(app, ["check", "--models", models])
    assert isinstance(result.exception, SystemExit) and result.exit_code == 1
    assert "failed  models" in result.stdout and result.stderr == ""


@pytest.fixture
def log(here: Path) -> Path:
    """Six problems, one state each."""
    candidates = (
        RecordedCandidate(text="a", label=True, score=0.9),
        RecordedCandidate(text="b", label=False),
    )
    names = {"state_id": "s", "model": "m", "question": "q", "candidates": candidates}
    write_log(
        [RecordedList(problem_id=f"p{n}", run=f"r{n}", **names) for n in range(6)],
        here / "runs.jsonl",
    )
    return here / "runs.jsonl"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nowhere",), "no such file"),
        ((LONG,), "File name too long"),
        (("folder",), "given a folder"),
        (("loop",), "no such file"),
        (("/dev/null",), "no such file"),
        (("file",), "expected JSON"),
        (("runs.jsonl", "--seed", "-1"), "seed: given -1"),
        (("runs.jsonl", "--tau", "nan"), "tau: given nan"),
        (("runs.jsonl", "--wanted", "inf"), "wanted: given inf"),
        (("runs.jsonl", "--by", "\0"), "by: given"),
        (("runs.jsonl", "--resamples", "0"), "resamples: given 0"),
        (("runs.jsonl", "--encoder", "mean:" + LONG), "expected"),
        (("runs.jsonl", "--encoder", "mean:nowhere"), "expected a folder that exists"),
        (("runs.jsonl", "--figure", "file"), "not written (Not a directory)"),
        (("runs.jsonl", "--figure", "dangling"), "not written (Not a directory)"),
        (("runs.jsonl", "--figure", LONG), "not written (File name too long)"),
        (("runs.jsonl", "--csv", "folder"), "given a folder"),
        (("runs.jsonl", "--csv", ""), "given a folder"),
        (("runs.jsonl", "--csv", "/dev/null"), "given a device"),
    ],
)
@pytest.mark.usefixtures("log")
def test_audit(here: Path, arguments: tuple[str, ...], expected: str) -> None:
    """Logs, settings and places that are none; nothing is written."""
    before = sorted(here.rglob("*"))
    assert expected in told("audit", *arguments)
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    "content",
    ["", "\n", "null", "[]", "{}", '{"kind": 1}', '{"kind": "list"}', "\xff", "[" * 9_999, "1e999"],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.parquet"])
def test_audit_of_no_log(here: Path, name: str, content: str) -> None:
    """Whatever the file is called."""
    (here / name).write_text(content, encoding="latin-1")
    assert "expected" in told("audit", name)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("", "file", "log"), "FORMAT: given ''"),
        (("PRM800K", "file", "log"), "FORMAT: given 'PRM800K'"),
        (("prm800k", "nowhere", "log"), "nowhere: no such file"),
        (("prm800k", LONG, "log"), "File name too long"),
        (("prm800k", "loop", "log"), "loop: no such file"),
        (("prm800k", "folder", "log"), "no file that ends in .jsonl"),
        (("prm800k", "file", "log"), "expected JSON"),
        (("prm800k", "file", "file"), "which is file or below it"),
        (("prm800k", ".", "folder/log"), "or below it"),
        (("prm800k", "file", "file/log"), "not written (Not a directory)"),
        (("prm800k", "file", "folder"), "given a folder"),
        (("prm800k", "file", "."), "given a folder"),
        (("prm800k", "file", LONG), "not written (File name too long)"),
        (("prm800k", "file", "loop"), "not written (Too many levels"),
        (("prm800k", "file", "/dev/full"), "given a device"),
        (("search_and_learn", "/dev/null", "log"), "no such file"),
    ],
)
def test_import(here: Path, arguments: tuple[str, ...], expected: str) -> None:
    """Formats, sources and places that are none; nothing is written."""
    before = sorted(here.rglob("*"))
    assert expected in told("import", *arguments)
    assert sorted(here.rglob("*")) == before
    assert (here / "file").read_text() == "x"


@pytest.fixture
def project(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which nothing was run."""
    # It would end what the process of the tests has started, and wait ten seconds for it.
    monkeypatch.setattr("flows.launcher.nothing_left", nullcontext)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, here)
    (here / ".dvc").mkdir()
    return here


SCALE = ("scale", "--problems", "9", "--machines", "1")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("",), "no stage ''"),
        (("-x",), "dvc.yaml: no stage '-x'; expected one of benchmark, "),
        (("a\0\ud800",), "no stage"),
        (("evaluation@",), "no stage"),
        (("report", "--force"), "report: given '--force' after it, expected nothing"),
        (("report",), "report"),
        (("exec",), "given nothing after it"),
        (("exec", "no-such-program"), "(No such file or directory)"),
        (("exec", "./folder"), "(Permission denied)"),
        (("exec", ""), "expected a program that can be run"),
        (("exec", LONG), "(File name too long)"),
        (("exec", "a\0b"), "expected a program that can be run"),
        (("show",), "missing; stage 'report' writes it"),
        (("readme",), "missing; stage 'report' writes it"),
        (("run", ""), "no profile ''"),
        (("run", "../x"), "no profile '../x'"),
        (("run", LONG), "no profile"),
        (("run", "a", "b"), "given 'a b' after it"),
        (("scale",), "required"),
        (("scale", "--problems"), "expected one argument"),
        ((*SCALE[:2], "0", "--machines", "1"), "given 0, expected 1 to"),
        ((*SCALE[:2], "1e9", "--machines", "1"), "invalid number value: '1e9'"),
        ((*SCALE[:2], "9" * 5_000, "--machines", "1"), "expected 1 to"),
        ((*SCALE, "--core-hour", "nan"), "given nan, expected 0 to"),
        ((*SCALE, "--core-hour", "-1"), "expected"),
        ((*SCALE, "extra"), "unrecognized arguments: extra"),
        (SCALE, "details.json: no such file"),
    ],
)
@pytest.mark.usefixtures("project")
def test_flows(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], expected: str) -> None:
    """Commands, stages and arguments that are none; nothing is written."""
    assert expected in said(capsys, *arguments)
    assert not Path("results").exists()


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.usefixtures("project")
def test_flows_with_too_much(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """No command takes more arguments than it reads."""
    many = ["x"] * (MOST_ARGUMENTS.get(command, 0) + 1)
    assert f"{command}: given '{' '.join(many)}' after it" in said(capsys, command, *many)


@pytest.mark.parametrize(
    ("command", "file"),
    [
        *((command, None) for command in ("clean", "run", "pipeline")),
        *((command, ".dvc") for command in ("clean", "run", "pipeline")),
        *((command, ".dvc/tmp") for command in ("clean", "run")),
    ],
)
def test_flows_outside_of_a_project(
    project: Path, capsys: pytest.CaptureFixture[str], command: str, file: str | None
) -> None:
    """Nothing is removed where DVC's folder is not there, or a file is there or in it."""
    (project / ".dvc").rmdir()
    if file is not None:
        (project / file).parent.mkdir(exist_ok=True)
        (project / file).write_text("x")
    assert ".dvc" in said(capsys, command)
    assert (project / "folder" / "kept").is_file()


NO_YAML = [
    ("", None),
    ("[1]", None),
    ("7", None),
    ("a: [", "not YAML in line 1"),
    ("\xff\xfe", "not YAML"),
    ("\0", "not YAML"),
    ("a: !!python/object:os.system {}", "not YAML in line 1"),
    ("? [a]\n: 1\n", "not YAML in line 1"),
    ("a: 2024-13-45\n", "not YAML"),
    ("[" * 500, "not YAML"),
    ("1: 2\n", None),
    ("x: &a [*a]\n", None),
]
READERS = ("run", "report", "show", "clean")


@pytest.mark.parametrize("file", ["params.yaml", "dvc.yaml"])
@pytest.mark.parametrize(("text", "expected"), [*NO_YAML, (None, "no such file")])
def test_flows_by_no_yaml(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    text: str | None,
    expected: str | None,
) -> None:
    """Every command that reads the file tells what is wrong with it, and where; all read alike."""
    (project / file).unlink()
    if text is None:
        (project / file).mkdir()
    else:
        (project / file).write_text(text, encoding="latin-1")
    for command in READERS if text in {None, "a: ["} else READERS[:1]:
        line = said(capsys, command)
        assert line.startswith(f"error: {file}") and (expected or "") in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(
            ["runner"],
            ["~", "''", "-1", "1.5", ".nan", "[]", "{}", "0x" + "f" * 6_000, "2024-01-01"],
        ),
        ("reply_cache", "''"),
        ("device", "''"),
    ],
)
def test_flows_by_other_parameters(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    """The parameter is named, whatever stands in its place."""
    lines = (project / "params.yaml").read_text(encoding="utf-8").splitlines()
    changed = [f"  {name}: {value}" if one.startswith(f"  {name}: ") else one for one in lines]
    (project / "params.yaml").write_text("\n".join(changed), encoding="utf-8")
    assert f"params.yaml: tracking.{name}: given " in said(capsys, "show")


@pytest.mark.parametrize("name", ["docs", "folder", ".", "folder/", "*", ""])
def test_clean_removes_no_more_than_the_replies(
    project: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A folder for a reply cache is a mistake; it was removed, and all that begins like it."""
    text = (project / "params.yaml").read_text(encoding="utf-8")
    changed = text.replace(".cache/replies.sqlite", f"'{name}'")
    (project / "params.yaml").write_text(changed, encoding="utf-8")
    assert "tracking.reply_cache: given" in said(capsys, "clean")
    assert (project / "folder" / "kept").is_file()


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("b", "['one']. Got 'b'"),
        ("~", "['one']. Got None"),
        ("{cmd: x}", "given no outs"),
        ("{outs: [a]}", "required key not provided @ data['stages']['one']['cmd']"),
        ("{cmd: x, outs: 3}", "['outs']. Got 3"),
        ("{cmd: x, outs: [3]}", "['outs'][0]. Got 3"),
        ("{cmd: x, outs: [{}]}", "given no outs"),
        ("{cmd: x, outs: [a], deps: ~}", "['deps']. Got None"),
        ("{cmd: x, outs: [a], params: 3}", "['params']. Got 3"),
        ("{cmd: x, outs: [a], params: [{}]}", "expected names in params"),
        ("{cmd: x, outs: [a], matrix: [1]}", "['matrix']. Got [1]"),
        ("{cmd: x, outs: [a], matrix: {x: 3}}", "['matrix']['x']. Got 3"),
        ("{cmd: x, outs: [a], matrix: {x: '${domain}'}}", "not iterable"),
        ("{cmd: x, outs: [a], frozen: maybe}", "['frozen']. Got 'maybe'"),
        ("{cmd: x, outs: ['${nope}']}", "'stages.one.outs' in 'dvc.yaml': Could not find 'nope'"),
        ("{cmd: x, outs: [a], deps: [a]}", "in a circle"),
    ],
)
def test_flows_by_other_stages(
    project: Path, capsys: pytest.CaptureFixture[str], entry: str, expected: str
) -> None:
    """The stage and the part of it are named."""
    (project / "dvc.yaml").write_text(f"stages:\n  one: {entry}\n", encoding="utf-8")
    for command in ("one", "show"):
        assert expected in said(capsys, command)


@pytest.mark.parametrize("text", ["", "[]", "null", "7", '{"a": null}', '{"a": {}}', "\xff", "{"])
def test_scale_by_other_metrics(
    project: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """They are no numbers by name."""
    path = project / "results" / "report" / "details.json"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    assert "expected numbers by name" in said(capsys, *SCALE)


def test_show_by_another_table(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder in its place, or bytes that are no text."""
    table = project / "results" / "report" / "main.txt"
    table.mkdir(parents=True)
    assert "main.txt: missing" in said(capsys, "show")
    table.rmdir()
    table.write_bytes(b"\xff")
    assert "expected a table as text" in said(capsys, "show")
