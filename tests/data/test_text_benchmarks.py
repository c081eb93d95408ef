"""Files of questions: what is taken from them, what is refused, and how splits are drawn."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selverify.data import question_files, text_benchmarks
from selverify.data.question_files import question_records
from selverify.data.text_benchmarks import (
    KNOWN,
    Draw,
    Questions,
    TextQuestion,
    fingerprint,
    load_known,
    load_questions,
    tasks_from,
    without,
)
from selverify.domains.math_steps import MathSteps
from selverify.errors import ArtifactError, LeakError, ParamsError, SchemaError

MATH = {
    "problem": "How much is $1+1$?",
    "solution": r"It is $\boxed{2}$.",
    "answer": "2",
    "subject": "Algebra",
    "level": 2,
    "unique_id": "test/algebra/1.json",
}
GSM8K = {"question": "A pen costs $500. Four?", "answer": "4*500 = <<4*500=2000>>\n#### 2,000"}
HENDRYCKS = {"problem": "Find $x$.", "level": "Level 5", "type": "Algebra", "solution": r"\boxed 3"}
LAYOUTS = [
    (MATH, TextQuestion("test/algebra/1.json", "How much is $1+1$?", "2", "2", "Algebra")),
    (GSM8K, TextQuestion("mine-00000", "A pen costs $500. Four?", "2000", None, None)),
    (HENDRYCKS, TextQuestion("mine-00000", "Find $x$.", "3", "5", "Algebra")),
    ({"question": "Q?", "answer": "4", "id": 7}, TextQuestion("7", "Q?", "4", None, None)),
]


def write(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    """A file of these records, of the kind that its name says."""
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(records)), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(records))
    else:
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


def many(count: int) -> list[dict[str, Any]]:
    """Records that differ in text, gold and id."""
    return [
        {"question": f"q: what is {number}?", "answer": number, "id": f"q{number}"}
        for number in range(count)
    ]


def pool(count: int, prefix: str = "q") -> Questions:
    """The questions of ``many``."""
    items = (
        TextQuestion(f"{prefix}{number}", f"{prefix}: what is {number}?", str(number), None, None)
        for number in range(count)
    )
    return Questions(f"{prefix}.jsonl", tuple(items))


def refusal(path: Path, content: bytes | None = None) -> str:
    """Why a file is refused, without its folder; it says so at once."""
    if content is not None:
        path.write_bytes(content)
    began = time.perf_counter()
    with pytest.raises(SchemaError) as error:
        load_questions(path)
    assert time.perf_counter() - began < 3.0  # seconds
    return str(error.value).removeprefix(f"{path.parent}/")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".parquet"])
@pytest.mark.parametrize(("record", "question"), LAYOUTS)
def test_every_public_layout_is_read_from_every_kind_of_file(
    tmp_path: Path, suffix: str, record: dict[str, Any], question: TextQuestion
) -> None:
    path = write(tmp_path / f"mine{suffix}", [record])
    assert load_questions(path) == Questions(str(path), (question,))


@pytest.mark.parametrize(
    ("fields", "gold"),
    [
        ({"answer": "x\n#### 1,234,567"}, "1234567"),
        ({"answer": "x\n#### -5 "}, "-5"),
        ({"answer": "x\n#### $-1,234.50"}, "$-1234.50"),
        ({"answer": "x\n#### (100,200)"}, "(100,200)"),
        ({"answer": "x\n#### 100,200, 300,400"}, "100,200, 300,400"),
        ({"answer": "1,234"}, "1,234"),
        ({"answer": r"so \boxed{1} or \boxed{\frac{1}{2}}"}, r"\frac{1}{2}"),
        ({"answer": "", "solution": r"$x=\boxed 9$."}, "9"),
        ({"answer": None, "final_answer": "7"}, "7"),
        ({"solution": r"\boxed{}", "gold": "8"}, "8"),
        ({"expected_answer": 6, "solution": r"\boxed{5}"}, "6"),
        ({"answer": 3.50}, "3.5"),
        ({"solution": "#### Step 1\nThe box:\n\\boxed{4}"}, "4"),
    ],
)
def test_where_a_gold_stands(tmp_path: Path, fields: dict[str, Any], gold: str) -> None:
    path = write(tmp_path / "a.jsonl", [{"question": "Q?", **fields}])
    assert load_questions(path).items[0].answer == gold


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"answer": ""},
        {"answer": "\n#### "},
        {"answer": "#### Step 1\nwe think"},
        {"answer": float("nan")},
        {"solution": "It is 4."},
        {"solution": r"It is \boxed{}."},
    ],
)
def test_a_record_without_a_gold_is_refused_by_its_line(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    path = write(tmp_path / "a.jsonl", [GSM8K, {"question": "B?", **fields}])
    said = refusal(path)
    assert said.startswith("a.jsonl, line 2: given {'question': 'B?'")
    assert said.endswith(r"expected an answer, or a solution that ends in #### or has a \boxed")


RECORD = b'{"question": "Q?", "answer": "4"}\n'
TWICE = b'{"question": "A?", "answer": 1, "id": "a"}\n{"question": "B?", "answer": 2, "id": "a"}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "a.jsonl: given 0 records, expected at least one"),
        (b"\n\n", "a.jsonl: given 0 records, expected at least one"),
        (RECORD + b"{", "a.jsonl, line 2: given b'{', expected JSON: "),
        (RECORD + b"[1]", "a.jsonl, line 2: given a list, expected an object"),
        (RECORD + b"\xff", "a.jsonl, line 2: given 0xff at byte 1, expected UTF-8"),
        (b'{"answer": "4"}', "a.jsonl, line 1: given {'answer': '4'}, expected a text in question"),
        (b'{"question": " ", "answer": "4"}', "a.jsonl, line 1: given {'question': ' ', "),
        (
            RECORD.replace(b'"4"', b"true"),
            "a.jsonl, line 1: field 'answer': given a bool, expected",
        ),
        (RECORD.replace(b'"4"', b"[4]"), "a.jsonl, line 1: field 'answer': given a list, expected"),
        (RECORD.replace(b"?", rb"\u0000"), r"a.jsonl, line 1: given a question with '\x00' at ch"),
        (RECORD.replace(b"?", rb"\ud800"), r"a.jsonl, line 1: given a question with '\ud800' at "),
        (RECORD.replace(b"4", rb"4\u001b[2J"), r"a.jsonl, line 1: given a gold with '\x1b' at "),
        (TWICE, "a.jsonl, line 2: given the id 'a', which also stands at "),
        (RECORD.replace(b"?", b"?" * 50_001), "a.jsonl, line 1: given a question of 50002 charac"),
        (RECORD.replace(b"4", b"4" * 4_001), "a.jsonl, line 1: given a gold of 4001 characters, "),
        (
            RECORD.replace(b"}", b', "id": "' + b"i" * 201 + b'"}'),
            "a.jsonl, line 1: given an id of 201 characters, expected at most 200",
        ),
        (b"4" * (1 << 20), "a.jsonl, line 1: given a str, expected an object"),
        (b"[" * 100_000, "a.jsonl, line 1: given b'[[["),
        (b'{"question":' * 80_000, 'a.jsonl, line 1: given b\'{"question":{'),
        (
            b" " * ((1 << 20) + 1),
            "a.jsonl, line 1: given a line of 1048577 bytes, 1048577 bytes up",
        ),
        (b"\n" * 1_000_001, "a.jsonl, line 1000001: given a line of 1 bytes, 1000001 bytes up to"),
        (
            b'{"question": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b', "answer": "4"}',
            "a.jsonl, line 1: field 'question': given a dict, expected text or a number",
        ),
    ],
)
def test_hostile_lines_are_refused_at_once_with_the_reason(
    tmp_path: Path, content: bytes, said: str
) -> None:
    assert refusal(tmp_path / "a.jsonl", content).startswith(said)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json"])
def test_files_as_other_systems_write_them_are_read(tmp_path: Path, suffix: str) -> None:
    """A byte order mark, and lines that end with CR LF, in the file and within a question."""
    path = write(tmp_path / f"a{suffix}", [{"question": "One?\r\n Two?\r\n", "answer": 4}])
    content = gzip.decompress(path.read_bytes()) if suffix.endswith("gz") else path.read_bytes()
    marked = codecs.BOM_UTF8 + content.replace(b"\n", b"\r\n")
    path.write_bytes(gzip.compress(marked) if suffix.endswith("gz") else marked)
    (record,) = question_records(path)
    assert (record.text("question"), record.text("answer")) == ("One?\n Two?", "4")


def test_a_column_of_short_floats_is_read_as_it_was_written(tmp_path: Path) -> None:
    """0.1 in 32 bits is 0.10000000149; NaN is a missing field."""
    column = pa.array([0.1, 12.0, float("nan"), None], pa.float32())
    pq.write_table(pa.table({"answer": column}), tmp_path / "a.parquet")
    records = question_records(tmp_path / "a.parquet")
    assert [one.text("answer") for one in records] == ["0.1", "12.0", None, None]


def test_a_file_over_the_cap_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """The file is sparse: it takes no room on the disk."""
    for name, size in (("a.jsonl", (1 << 30) + 1), ("a.json", (1 << 25) + 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        assert refusal(tmp_path / name).startswith(f"{name}: given {size} bytes, expected at most ")


def test_a_gzip_bomb_is_refused_while_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long line, and many short ones; neither is unpacked further than the caps."""
    bomb = gzip.compress(bytes(1 << 24), compresslevel=1)
    assert "given a line of 1048577 bytes" in refusal(tmp_path / "a.jsonl.gz", bomb)
    monkeypatch.setattr(question_files, "MAX_FILE", 20_000)
    lines = gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in many(2_000)))
    assert " bytes up to here; expected at most 1048576 a line, 20000 in all" in refusal(
        tmp_path / "b.jsonl.gz", lines
    )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl.gz", RECORD, "a.jsonl.gz: expected a .jsonl.gz file, and reading says: "),
        (
            "a.jsonl.gz",
            gzip.compress(RECORD * 9, mtime=0)[:-12],
            "a.jsonl.gz: expected a .jsonl.gz file",
        ),
        (
            "a.jsonl.gz",
            gzip.compress(RECORD, mtime=0)[:12] + b"\xff" * 40,
            "a.jsonl.gz: expected a .jsonl.",
        ),
        ("a.parquet", RECORD, "a.parquet: expected a .parquet file, and reading says: "),
        ("a.parquet", b"PAR1" + bytes(99) + b"PAR1", "a.parquet: expected a .parquet file, and "),
        ("a.json", RECORD, "a.json: given a dict, expected a list of records"),
        ("a.json", b"[" + RECORD + b",3]", "a.json, record 2: given a str, expected an object"),
        ("a.json", b"[" * 100_000, "a.json: given b'[["),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    assert refusal(tmp_path / name, content).startswith(said)


def test_hostile_parquet_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that are no text, bytes that are no UTF-8, and more than the caps allow."""
    path = write(tmp_path / "a.parquet", [{"question": "Q?", "answer": [1]}])
    assert refusal(path).startswith("a.parquet, row 1: field 'answer': given a list, expected text")
    raw = pa.array([b"4", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"question": ["A?", "B?"], "answer": raw}), path)
    assert refusal(path).startswith("a.parquet, row 2: field 'answer': expected text or a number, ")
    path.write_bytes(path.read_bytes().replace(b"answer", b"answe\xff"))
    assert "and reading says: 'utf-8' codec can't decode" in refusal(path)
    columns = [pa.array(["Q?"]), pa.array(["1"]), pa.array(["2"])]
    pq.write_table(pa.table(columns, names=["question", "answer", "answer"]), path)
    assert refusal(path).startswith("a.parquet, row 1: field 'answer': expected text or a number, ")
    write(path, many(9))
    monkeypatch.setattr(question_files, "MAX_RECORDS", 8)
    assert refusal(path) == "a.parquet: given 9 rows, expected at most 8"
    packed = pa.Table.from_pylist([{"question": "Q?" * 1_000, "answer": "1"}] * 8)
    pq.write_table(packed, path, use_dictionary=False, compression="zstd")
    monkeypatch.setattr(question_files, "MAX_FILE", path.stat().st_size)
    assert " unpacked bytes, expected at most " in refusal(path)


@settings(deadline=None)  # it writes files
@given(st.binary(max_size=60))
def test_any_bytes_are_questions_or_refused_in_one_sentence(content: bytes) -> None:
    """Whatever stands behind a good record."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(RECORD + content)
        try:
            assert load_questions(path).items
        except SchemaError as error:
            assert "\n" not in str(error)


def test_a_missing_file_and_an_unknown_kind_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"^math_501: no such file; expected one, or one of math5"
    ):
        load_questions(Path("math_501"))
    with pytest.raises(ArtifactError, match=r"gone.jsonl: no such file; expected a copy of gsm8k"):
        load_known("gsm8k", tmp_path / "gone.jsonl")
    with pytest.raises(
        ParamsError, match=r"^benchmark: given 'gsm', expected one of math500, math_"
    ):
        load_known("gsm", None)
    (tmp_path / "a.csv").write_bytes(RECORD)
    with pytest.raises(
        ParamsError, match=r"a.csv: given a file of another kind, expected .jsonl, "
    ):
        load_questions(tmp_path / "a.csv")


def test_a_text_that_stands_twice_is_kept_once(tmp_path: Path) -> None:
    """The first record stays; case and spacing make no other question."""
    texts = ["Evaluate $\\log_8 2$.", "B?", "evaluate $\\log_82$. ", r"Evaluate\quad$\log_8\,2$."]
    records = [{"question": text, "answer": gold} for text, gold in zip(texts, "1231", strict=True)]
    records[2]["answer"], records[3]["answer"] = "1.0", "1 cm"
    loaded = load_questions(write(tmp_path / "a.jsonl", records))
    assert [question.answer for question in loaded.items] == ["1", "2"]


def test_a_question_with_two_answers_is_refused(tmp_path: Path) -> None:
    """One of them would be lost without a word."""
    records = [{"question": f"What is {n} times 4?", "answer": gold} for n, gold in TWO_AND_A_HALF]
    message = refusal(write(tmp_path / "a.jsonl", records))
    assert "line 2: given '42' as the answer to a question that has '10' at" in message
    assert "line 1; expected one answer" in message
    twice = [{"question": "Q?", "answer": gold} for gold in ("5.5", "9" * 3_400 + "e999")]
    assert "expected one answer" in refusal(write(tmp_path / "b.jsonl", twice))


TWO_AND_A_HALF = [("2 1/2", "10"), ("21/2", "42")]
SPACES = st.sampled_from(["", " ", "\n", "\t", "~", r"\,", r"\!", r"\ ", "\\quad ", "\u200b"])


@given(st.lists(st.tuples(st.sampled_from("aB1$^{}"), SPACES, SPACES), max_size=20))
def test_a_fingerprint_does_not_see_spacing_or_case(parts: list[tuple[str, str, str]]) -> None:
    one, other = ("".join(part[0] + part[i] for part in parts) for i in (1, 2))
    assert fingerprint(one) == fingerprint(other.upper().replace(r"\QUAD", r"\quad"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x + 1", "x - 1"),
        (r"a\\b", "ab"),
        (r"\quadratic", "ratic"),
        (r"a\\,b", r"a\\b"),
        ("1", "2"),
    ],
)
def test_a_fingerprint_sees_everything_else(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


def shrunk(monkeypatch: pytest.MonkeyPatch, name: str, records: int) -> None:
    """Expect ``records`` of the known benchmark ``name``."""
    known = {**KNOWN, name: replace(KNOWN[name], records=records)}
    monkeypatch.setattr(text_benchmarks, "KNOWN", known)


def test_a_copy_of_a_known_benchmark_must_be_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither fewer nor more; and MATH-500 keeps its own ids."""
    path = write(tmp_path / "copy.jsonl", [MATH, {**MATH, "problem": "B?", "unique_id": "b"}])
    with pytest.raises(SchemaError, match=r"given 2 records, expected the 500 of math500$"):
        load_known("math500", path)
    shrunk(monkeypatch, "math500", 1)
    with pytest.raises(SchemaError, match=r"given 2 records, expected the 1 of math500$"):
        load_known("math500", path)
    shrunk(monkeypatch, "math500", 2)
    loaded = load_known("math500", path)
    assert loaded.source == "math500"
    assert [question.question_id for question in loaded.items] == ["test/algebra/1.json", "b"]
    write(path, [MATH, {**MATH, "unique_id": None}])
    with pytest.raises(SchemaError, match=r"line 2: given \{.*expected an id in unique_id$"):
        load_known("math500", path)


def test_only_so_many_records_of_a_known_benchmark_may_lack_a_gold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of math_train do; a record's number is its id whatever is left out."""
    lacking = {"problem": "Empty?", "solution": r"\boxed{}", "unique_id": "twice"}
    good = {"problem": "Full?", "solution": r"\boxed{1}", "unique_id": "twice"}
    shrunk(monkeypatch, "math_train", 3)
    loaded = load_known("math_train", write(tmp_path / "a.jsonl", [lacking, lacking, good]))
    assert [question.question_id for question in loaded.items] == ["math_train-00002"]
    with pytest.raises(SchemaError, match=r"line 3: given .*expected an answer, or a solution"):
        load_known("math_train", write(tmp_path / "a.jsonl", [lacking, lacking, lacking]))


def test_splits_are_drawn_by_seed_and_share_nothing() -> None:
    """From one file all three; more problems keep the fewer."""
    questions = pool(20)

    def ids(train: int, seed: int) -> dict[str, list[str]]:
        tasks = tasks_from(
            MathSteps(),
            train=Draw(questions, train, seed),
            validation=Draw(questions, 4, 2),
            test=Draw(questions, 5, 3),
        )
        splits: dict[str, list[str]] = {}
        for task in tasks:
            splits.setdefault(task.split, []).append(task.problem.problem_id)
        return splits

    few, more, other = ids(6, 1), ids(11, 1), ids(11, 7)
    assert list(more) == ["test", "validation", "train"]
    assert len({*chain(*more.values())}) == 5 + 4 + 11
    assert few["train"] == more["train"][:6]
    assert (few["test"], few["validation"]) == (more["test"], more["validation"])
    assert set(other["train"]) == set(more["train"]) and other["train"] != more["train"]


def test_a_test_that_takes_its_whole_pool_keeps_the_order_of_the_file() -> None:
    """The others are shuffled all the same: a file may be sorted by subject."""
    tasks = tasks_from(
        MathSteps(),
        train=Draw(pool(9, "t"), 9, 1),
        validation=Draw(pool(3, "v"), 3, 1),
        test=Draw(pool(9, "q"), 9, 1),
    )
    drawn = [task.problem.problem_id for task in tasks]
    assert drawn[:9] == [f"q{number}" for number in range(9)]
    assert sorted(drawn[12:]) == [f"t{number}" for number in range(9)] != drawn[12:]


def test_what_a_task_holds() -> None:
    """The truth's facts are level and subject where they are known."""
    known = TextQuestion("a", " Find $x$. Is it 3? ", "3", "5", "Algebra")
    asked = Questions("a", (known, TextQuestion("b", "B?", "1", None, None)))
    rest = Draw(pool(2), 1, 1)
    first, second, *_ = tasks_from(MathSteps(), train=rest, validation=rest, test=Draw(asked, 2, 1))
    assert (first.problem.text, first.problem.goal) == ("Find $x$. Is it 3?", "Is it 3?")
    assert (first.truth.answer, first.fingerprint) == ("3", fingerprint(known.text))
    assert json.loads(first.truth.facts) == {"level": "5", "subject": "Algebra"}
    assert (first.problem.domain, second.truth.facts) == ("math", "{}")


def test_pools_that_share_a_question_are_a_leak_until_it_is_taken_out() -> None:
    """Even when the draw would have missed it."""
    tests = pool(3, "test")
    again = replace(tests.items[1], question_id="copy", text="TEST: what is\n1 ?")
    training = replace(pool(40), items=(*pool(40).items, again))
    rest = Draw(pool(2, "v"), 1, 1)
    with pytest.raises(
        LeakError,
        match=r"^question 'copy' of q.jsonl \(split 'train'\) also stan.*"
        r"in test.jsonl \(split 'test'\) as 'test1'; expected .* \(without\)$",
    ):
        tasks_from(MathSteps(), train=Draw(training, 1, 1), validation=rest, test=Draw(tests, 3, 1))
    clean = without(training, tests)
    assert clean == replace(pool(40), source="q.jsonl without test.jsonl")
    tasks_from(MathSteps(), train=Draw(clean, 40, 1), validation=rest, test=Draw(tests, 3, 1))


def test_pools_that_give_one_id_to_two_questions_are_refused() -> None:
    """Truths are found by the id of their problem."""
    tests = replace(pool(2, "test"), items=(TextQuestion("q1", "Other?", "1", None, None),))
    rest = Draw(pool(2, "v"), 1, 1)
    with pytest.raises(
        SchemaError, match=r"^id 'q1': stands for different questions in test.jsonl "
    ):
        tasks_from(MathSteps(), train=Draw(pool(2), 1, 1), validation=rest, test=Draw(tests, 1, 1))


@pytest.mark.parametrize("problems", [0, 16])
def test_more_problems_than_are_left_are_refused(problems: int) -> None:
    """The test took five of the twenty, and no number below one is a split."""
    one = pool(20)
    with pytest.raises(
        ParamsError,
        match=f"^validation.problems: given {problems}, expected 1 to 15, which is what q",
    ):
        tasks_from(
            MathSteps(),
            train=Draw(one, 1, 1),
            validation=Draw(one, problems, 1),
            test=Draw(one, 5, 1),
        )


@dataclass(frozen=True)
class Reply:
    """What the stand-in for the hub answers: a status, an error code, or a file."""

    status: int
    code: str = ""
    body: bytes = b""


@pytest.fixture
def hub() -> Iterator[str]:
    """The address of a stand-in for the hub: MATH-500 is there, the others are not."""
    records = [
        {**MATH, "problem": f"{index}?", "unique_id": f"test/{index}"} for index in range(500)
    ]
    math500 = "".join(json.dumps(record) + "\n" for record in records).encode()
    replies = {
        "math500": Reply(200, body=math500),
        "math_train": Reply(403, "GatedRepo"),
        "gsm8k": Reply(404, "EntryNotFound"),
        "gsm8k_train": Reply(404, "RepoNotFound"),
    }
    at = {
        f"/datasets/{one.repository}/resolve/{one.revision}/{one.file}": replies[name]
        for name, one in KNOWN.items()
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply = at.get(self.path.partition("?")[0], Reply(404))
            self.send_response(reply.status)
            revision = self.path.partition("/resolve/")[2].partition("/")[0]
            self.send_header("X-Error-Code", reply.code)
            self.send_header("X-Repo-Commit", revision)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(reply.body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


ASK = """
from selverify.errors import ArtifactError
from selverify.data.text_benchmarks import KNOWN, load_known
for name in KNOWN:
    try:
        loaded = load_known(name, None)
        print(len(loaded.items), loaded.items[-1].question_id)
    except ArtifactError as error:
        print(error)
"""


def test_the_hub_gives_a_benchmark_or_one_sentence_says_what_to_do(
    hub: str, tmp_path: Path
) -> None:
    """In a process of its own, since the hub's library reads its settings once."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": hub,
        "HF_HOME": str(tmp_path),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    given, gated, no_file, no_repository = done.stdout.splitlines()
    assert given == "500 test/499"
    assert gated.startswith(
        "math_train: the Hugging Face hub did not give data/train-00000-of-00001"
    )
    assert "GatedRepoError" in gated
    assert "EntryNotFoundError" in no_file
    assert "RepositoryNotFoundError" in no_repository
    assert no_file.endswith(
        "expected access to it, or the path of a copy of that file in place of gsm8k"
    )


def test_without_a_network_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ArtifactError, match=r"^gsm8k_train: the Hugging Face hub did not .*a copy of"
    ):
        load_known("gsm8k_train", None)
