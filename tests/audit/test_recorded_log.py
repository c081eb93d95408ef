"""The log of a run: what is written is read back, and what is no log is refused in a sentence."""

from __future__ import annotations

import gzip
import io
import json
import re
import runpy
import sys
from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import json_values
from typer.testing import CliRunner

from selverify.audit import log, records
from selverify.audit.log import (
    Log,
    LogEntry,
    RecordedCandidate,
    RecordedList,
    RecordedSample,
    json_schema,
    read_log,
    schema_text,
    write_log,
)
from selverify.cli import app
from selverify.errors import ArtifactError, SchemaError

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "recorded-log.jsonl"
LIST: Mapping[str, Any] = {
    "kind": "list",
    "problem_id": "p",
    "state_id": "s",
    "run": "r",
    "model": "m",
    "question": "q",
    "candidates": [{"text": "a", "score": 0.5, "label": True}],
}
SAMPLE: Mapping[str, Any] = {
    "kind": "sample",
    "problem_id": "p",
    "run": "r",
    "model": "m",
    "sample": 0,
    "steps": ["a"],
}

HOSTILE = "\x1b[2J\x07\r\n" + "a" * 100_000

names = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp")), min_size=1)
texts = st.text(max_size=12)
scores = st.floats(-1e15, 1e15)
candidates = st.builds(
    RecordedCandidate,
    text=texts,
    score=st.none() | scores,
    label=st.none() | st.booleans(),
    times=st.integers(1, 5),
    logprob=st.none() | scores,
)


@st.composite
def lists(draw: st.DrawFn) -> RecordedList:
    """Any list of up to three candidates."""
    proposed = draw(st.lists(candidates, min_size=1, max_size=3))
    return RecordedList(
        **{name: draw(names) for name in ("problem_id", "state_id", "run", "model")},
        question=draw(texts),
        prefix=tuple(draw(st.lists(texts, max_size=2))),
        candidates=tuple(proposed),
        committed=draw(st.none() | st.integers(0, len(proposed) - 1)),
    )


samples = st.builds(
    RecordedSample,
    problem_id=names,
    run=names,
    model=names,
    question=st.none() | texts,
    gold=st.none() | texts,
    sample=st.integers(0, 9),
    steps=st.lists(texts, max_size=3).map(tuple),
    answer=st.none() | texts,
    step_scores=st.none() | st.lists(scores, min_size=1, max_size=3).map(tuple),
    correct=st.none() | st.booleans(),
    tokens=st.none() | st.integers(0, 99),
)
entries = st.lists(lists() | samples, max_size=4, unique_by=log._key)


def written(path: Path, *values: object) -> Path:
    """A file of these values, one a line; bytes stand as they are."""
    content = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in values]
    path.write_bytes(b"\n".join(content))
    return path


def refusal(path: Path) -> str:
    """Why a file is no log, as a sentence of one line and of bounded length."""
    with pytest.raises(SchemaError) as caught:
        read_log(path)
    message = str(caught.value)
    assert message.isprintable() and len(message) < 400 + len(str(path))
    return message.removeprefix(str(path))


@given(entries, st.booleans())
@settings(deadline=None)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, entries: list[LogEntry], packed: bool
) -> None:
    """Every field, in order, compressed or not; equal entries give equal bytes."""
    folder = tmp_path_factory.mktemp("log")
    path, again = (folder / f"{name}.jsonl{'.gz' * packed}" for name in ("one", "two"))
    write_log(entries, path)
    write_log(iter(entries), again)
    assert path.read_bytes() == again.read_bytes()
    found = read_log(path)
    assert found.lists == tuple(one for one in entries if isinstance(one, RecordedList))
    assert found.samples == tuple(one for one in entries if isinstance(one, RecordedSample))


@given(st.binary(max_size=200), st.booleans())
@settings(deadline=None)
def test_random_bytes_are_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, packed: bool
) -> None:
    """Or, where they are nothing, or white space in a plain file, hold no entry."""
    path = tmp_path_factory.mktemp("bytes") / f"x.jsonl{'.gz' * packed}"
    path.write_bytes(content)
    if not (content if packed else content.strip()):
        assert read_log(path) == Log((), ())
    else:
        assert refusal(path)


@given(st.sampled_from([LIST, SAMPLE]), st.data())
@settings(deadline=None)
def test_a_field_of_any_value_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    entry: Mapping[str, Any],
    data: st.DataObject,
) -> None:
    """Nothing but a SchemaError comes of it."""
    field = data.draw(st.sampled_from([*entry, "committed", "step_scores", "tokens", "other"]))
    changed = {**entry, field: data.draw(json_values)}
    path = written(tmp_path_factory.mktemp("field") / "x.jsonl", changed)
    try:
        found = read_log(path)
    except SchemaError as error:
        assert "line 1" in str(error)
    else:
        assert len(found.lists) + len(found.samples) == 1


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            {**LIST, "candidates": [{"text": "a", "label": 1}]},
            "candidates.0.label: given 1, expected a valid boolean",
        ),
        ({**LIST, "candidates": []}, "candidates: given [], expected at least 1 item"),
        (
            {**LIST, "candidates": [{"text": "a", "logprob": -1.7e308}]},
            "candidates.0.logprob: given -1.7e+308, expected greater than or equal to -1000",
        ),
        (
            {**LIST, "candidates": [{"text": "a", "times": 10**400}]},
            "candidates.0.times: given 1000",
        ),
        ({**SAMPLE, "tokens": 10**400}, "tokens: given 1000"),
        ({**SAMPLE, "step_scores": [1e16]}, "step_scores.0: given 1e+16, expected less than or"),
        ({**LIST, "committed": 1}, "committed: given 1, expected below 1"),
        ({**LIST, "extra": 2}, "extra: given 2, expected no such field"),
        ({**LIST, "run": ""}, "run: given '', expected at least 1 character"),
        ({**LIST, "run": "a\x1b[31m"}, r"run: given 'a\x1b[31m', expected no control characters"),
        ({**SAMPLE, "model": "a\n"}, r"model: given 'a\n', expected no control characters"),
        ({**SAMPLE, "problem_id": "a\u202eb"}, r"given 'a\u202eb', expected no control characters"),
        ({**SAMPLE, HOSTILE: 1}, r"'\x1b[2J\x07\r\naaa"),
        ({**LIST, "candidates": [{"text": "a", HOSTILE: 1}]}, r"candidates.0.'\x1b[2J"),
        ({**SAMPLE, "kind": HOSTILE}, r"kind: given '\x1b[2J"),
        ({**SAMPLE, "a b": 1}, "'a b': given 1, expected no such field"),
        ({**LIST, "question": "q" * 200_001}, "expected at most 200000 characters"),
        ({**LIST, "candidates": ["a"]}, "candidates.0: given 'a', expected an object"),
        ({**SAMPLE, "sample": -1}, "sample: given -1, expected greater than or equal to 0"),
        ({**SAMPLE, "sample": "0"}, "sample: given '0', expected a valid integer"),
        ({"kind": "sample"}, "problem_id: not given, expected in every record"),
        ({"kind": "run"}, "kind: given 'run', expected list or sample"),
        ({"run": "r"}, "kind: not given, expected list or sample"),
        ([], "the entry: given [], expected an object"),
        (b'{"kind":', """given '{"kind":', expected JSON: EOF while parsing a value"""),
        (b"\xff", "expected JSON"),
        (b"[" * 100_000, "recursion limit exceeded"),
        (b'{"kind": "sample", "sample": ' + b"9" * 5_000 + b"}", "line 2: "),
        (json.dumps(SAMPLE).replace('["a"]', '["\\ud800"]').encode(), "expected JSON"),
        (json.dumps({**SAMPLE, "step_scores": [float("inf")]}).encode(), "a finite number"),
    ],
)
def test_a_fault_is_told_with_line_field_and_value(
    tmp_path: Path, entry: object, reason: str
) -> None:
    """What was given is cut short; blank lines are counted but no entries."""
    message = refusal(written(tmp_path / "x.jsonl", b"", entry))
    assert message.startswith(", line 2: ") and reason in f"line 2: {message}"


@pytest.mark.parametrize("entry", [LIST, SAMPLE])
def test_an_entry_stands_once(tmp_path: Path, entry: Mapping[str, Any]) -> None:
    """A run has a state once, and a sample of a problem once; another run has its own."""
    other = {**entry, "run": "other"}
    found = read_log(written(tmp_path / "x.jsonl", entry, other))
    assert len(found.lists) + len(found.samples) == 2
    message = refusal(written(tmp_path / "x.jsonl", entry, other, {**entry, "model": "n"}))
    assert re.fullmatch(rf", line 3: given the {entry['kind']} 'r', .* again, .* once", message)


def test_nothing_is_written_of_entries_that_would_be_refused(tmp_path: Path) -> None:
    """The older file stays as it was."""
    path = written(tmp_path / "x.jsonl", SAMPLE)
    entry = RecordedSample.model_validate(SAMPLE)
    with pytest.raises(SchemaError, match=r"x\.jsonl, entry 2: given the sample 'r', 'p', 0 again"):
        write_log([entry, entry], path)
    assert read_log(path).samples == (entry,)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("cap", "size", "reason"),
    [
        ("LONGEST_LINE", 50, r"entry 1: given (\d+) bytes, .* at most 50 of a line"),
        ("MOST_BYTES", 200, r"entry 3: given \d+ bytes, \d+ with those before"),
        ("MOST_LINES", 4, r"entry 5: .* and 4 lines"),
    ],
)
def test_what_could_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: str, size: int, reason: str
) -> None:
    """The reader's caps of a line, and of all lines together, are the writer's."""
    entries = [RecordedSample.model_validate({**SAMPLE, "sample": one}) for one in range(9)]
    monkeypatch.setattr(log, cap, size)
    with pytest.raises(SchemaError, match=reason):
        write_log(entries, tmp_path / "x.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_candidates_and_steps_of_a_log_have_a_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few packed bytes a line hold thousands; reader and writer count them alike."""
    monkeypatch.setattr(log, "MOST_PARTS", 100)
    many = [
        {**LIST, "state_id": str(one), "prefix": ["a"] * 5, "candidates": LIST["candidates"] * 15}
        for one in range(5)
    ]
    few = [{**SAMPLE, "sample": one, "steps": ["a"] * 9, "step_scores": [1]} for one in range(11)]
    reason = "given more than 100 candidates, steps and step scores up to here"
    for values in (many, few):
        path = written(tmp_path / "x.jsonl", *values[:-1] if values is few else values)
        found = read_log(path)
        written(path, *values, {**SAMPLE, "run": "other"})
        assert refusal(path).startswith(f", line {len(values) + (values is many)}: {reason}")
        entries = [*found.lists, *found.samples]
        renamed = [one.model_copy(update={"run": "again"}) for one in entries]
        with pytest.raises(SchemaError, match=rf"entry {len(entries) + 1}: {reason}"):
            write_log([*entries, *renamed], tmp_path / "y.jsonl")
    assert not (tmp_path / "y.jsonl").exists()


def test_a_byte_order_mark_is_read_and_other_encodings_are_named(tmp_path: Path) -> None:
    """UTF-16, and gzip whose name does not say so; a suffix may be in capitals."""
    text = json.dumps(SAMPLE).encode()
    plain, packed = tmp_path / "x.jsonl", tmp_path / "X.JSONL.GZ"
    plain.write_bytes(BOM_UTF8 + text)
    packed.write_bytes(gzip.compress(BOM_UTF8 + text))
    assert read_log(plain) == read_log(packed)
    plain.write_bytes(text.decode().encode("utf-16"))
    assert refusal(plain) == ": given UTF-16, expected UTF-8"
    plain.write_bytes(gzip.compress(text))
    assert refusal(plain) == ": given gzip, expected a name that ends in .gz"


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """Compressed by the name that was given."""
    link, real = tmp_path / "link.jsonl.gz", tmp_path / "real"
    link.symlink_to(real)
    write_log([RecordedSample.model_validate(SAMPLE)], link)
    assert link.is_symlink() and gzip.decompress(real.read_bytes()).startswith(b"{")
    assert read_log(link).samples


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder is no file either."""
    for path in (tmp_path / "x.jsonl", tmp_path):
        with pytest.raises(ArtifactError, match="no such file; expected one of JSON lines"):
            read_log(path)


def bomb(path: Path, chunk: bytes, times: int) -> Path:
    """A small file of ``times`` chunks."""
    buffer = io.BytesIO()
    with gzip.GzipFile(mode="wb", fileobj=buffer) as file:
        for _ in range(times):
            file.write(chunk)
    path.write_bytes(buffer.getvalue())
    return path


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the length of a line, by the number of lines, by the bytes of them all."""
    monkeypatch.setattr(records, "MOST_LINES", 2_000)
    one_line = bomb(tmp_path / "a.jsonl.gz", b"a" * (1 << 20), 24)
    assert one_line.stat().st_size < 50_000
    assert refusal(one_line).startswith(", line 1: given more than 16,777,216 bytes of a line")
    blank = bomb(tmp_path / "b.jsonl.gz", b"\n" * 1_000, 3)
    assert refusal(blank).startswith(": given more than 2,000 lines")
    monkeypatch.setattr(records, "MOST_BYTES", 1 << 20)
    spaces = bomb(tmp_path / "c.jsonl.gz", b" " * 1023 + b"\n", 1025)
    assert refusal(spaces).startswith(": given more than 1,048,576 bytes")


def test_too_many_lines_are_refused_before_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first line, which is no entry, is not looked at."""
    monkeypatch.setattr(records, "MOST_LINES", 5)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"no entry\n" * 7)
    assert refusal(path).startswith(": given more than 5 lines")


@pytest.mark.parametrize("cut", [5, 30, 60])
def test_a_broken_gzip_stream_is_refused(tmp_path: Path, cut: int) -> None:
    """Cut off, or not compressed at all."""
    path = bomb(tmp_path / "x.jsonl.gz", json.dumps(SAMPLE).encode(), 1)
    path.write_bytes(path.read_bytes()[:cut])
    assert refusal(path).startswith(": expected a whole gzip file: ")
    path.write_bytes(b"{}\n")
    assert refusal(path).startswith(": expected a whole gzip file: Not a gzipped file")


def test_the_schema_of_the_page_is_current(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what the page's command prints."""
    kept = (DOCS / "recorded-log.schema.json").read_text(encoding="utf-8")
    assert kept == schema_text()
    page = (DOCS / "recorded-log.md").read_text(encoding="utf-8")
    command = re.search(r"^python -m (\S+) > docs/recorded-log\.schema\.json$", page, re.MULTILINE)
    assert command is not None
    monkeypatch.delitem(sys.modules, command[1])
    runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    assert capsys.readouterr().out == kept


@given(lists() | samples)
@settings(deadline=None, max_examples=30)
def test_the_schema_takes_what_the_reader_takes(entry: LogEntry) -> None:
    """Any entry as it is written."""
    jsonschema.Draft202012Validator(json_schema()).validate(json.loads(entry.model_dump_json()))


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "list"},
        {key: value for key, value in LIST.items() if key != "kind"},
        {**LIST, "extra": 1},
        {**LIST, "candidates": []},
        {**SAMPLE, "sample": -1},
        {**SAMPLE, "step_scores": []},
        {**SAMPLE, "run": "a\x1b[31m"},
        {**LIST, "run": "a\u2028b"},
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(entry: Mapping[str, Any]) -> None:
    """A user can check lines in another language."""
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(dict(entry))


def test_the_example_is_a_log() -> None:
    """Of both kinds and several problems, with all that an audit asks for."""
    found = read_log(EXAMPLE)
    assert len({one.problem_id for one in found.lists}) >= 2
    assert len({one.problem_id for one in found.samples}) >= 2
    labels = {one.label for item in found.lists for one in item.candidates}
    assert labels == {True, False}
    assert all(one.step_scores is not None for one in found.samples)
    schema = jsonschema.Draft202012Validator(json_schema())
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        schema.validate(json.loads(line))


def test_the_page_shows_the_table_of_its_example(tmp_path: Path) -> None:
    """As the command prints it."""
    page = (DOCS / "recorded-log.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    found = CliRunner().invoke(app, ["audit", str(EXAMPLE), "--figure", str(tmp_path)])
    assert found.exit_code == 0
    assert shown in found.stdout


def test_the_page_names_every_option_and_every_field() -> None:
    """Of the audit; of candidates, lists and samples."""
    page = (DOCS / "recorded-log.md").read_text(encoding="utf-8")
    found = CliRunner().invoke(app, ["audit", "--help"])
    options = set(re.findall(r"--[a-z]+", found.stdout)) - {"--help"}
    assert len(options) >= 9
    assert {one for one in options if f"`{one}" not in page} == set()
    entries = (RecordedCandidate, RecordedList, RecordedSample)
    fields = {name for entry in entries for name in entry.model_fields}
    assert {name for name in fields if f"| `{name}` |" not in page} == set()


class Engine:
    """Answers as vLLM's ``LLM`` does: ``n`` outputs a prompt."""

    def __init__(self, model: str) -> None:
        self.model = model

    def chat(self, messages: list[Any], params: SimpleNamespace) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(outputs=[self.output(place) for place in range(params.n)])
            for _ in messages
        ]

    def output(self, place: int) -> SimpleNamespace:
        text = f"Step {place}.\n\nThe answer is 4."
        return SimpleNamespace(text=text, token_ids=[1, 2], cumulative_logprob=-1.5)


def test_the_ten_lines_of_the_page_write_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both programs, run against what answers as vLLM does; the second adds to the log."""
    vllm = ModuleType("vllm")
    vars(vllm).update(LLM=Engine, SamplingParams=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "recorded-log.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert [len(program.splitlines()) <= 10 for program in programs] == [True, True]
    kinds = []
    for program in programs:
        exec(compile(program, "page", "exec"), {})
        found = read_log(tmp_path / "log.jsonl")
        kinds.append((len(found.samples) > 1, len(found.lists) >= 1))
    assert kinds == [(True, False), (True, True)]
