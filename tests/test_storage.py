"""Artifacts are whole or absent, marked with their schema, and equal when their content is."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from selverify.errors import ArtifactError, SchemaError
from selverify.storage import (
    atomic_path,
    check_place,
    digest,
    read_checked,
    read_json,
    read_table,
    write_digests,
    write_json,
    write_plain_json,
    write_table,
)

ROWS = [{"problem": "a", "calls": 3}, {"problem": "b", "calls": 5}]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """An exception inside the block removes the temporary file and keeps the older artifact."""
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert (path.read_text(), names(tmp_path)) == ("old", ["a.txt"])


def test_a_directory_replaces_an_older_one_that_is_not_empty(tmp_path: Path) -> None:
    """Files of the older directory do not survive beside the new ones."""
    path = tmp_path / "out"
    path.mkdir()
    (path / "old").touch()
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
        assert names(path) == ["old"]
    assert names(path) == ["new"]
    assert names(tmp_path) == ["out"]


def test_a_writer_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    """Ending the block without a file must not look like success."""
    message = r"a\.txt: nothing was written"
    with pytest.raises(ArtifactError, match=message), atomic_path(tmp_path / "a.txt"):
        pass


UNWRITABLE = {
    "below a file": "file/a/b",
    "a folder": "folder",
    "no name": ".",
    "the root": "/",
    "a device": "/dev/full",
    "a long name": "n" * 300,
    "links in a circle": "loop/a",
    "a byte of 0": "a\0b",
}
ONLY_BY_TRYING = {"a long temporary name": "n" * 250, "no place of this system": "/proc/none/a"}


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file, a folder and a link to itself."""
    (tmp_path / "file").write_text("older")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("why", UNWRITABLE | ONLY_BY_TRYING)
def test_what_cannot_be_written_is_one_sentence(around: Path, why: str) -> None:
    """It names the path, and what stands there or near it is what it was."""
    path = Path((UNWRITABLE | ONLY_BY_TRYING)[why])
    before = sorted(around.rglob("*"))
    with pytest.raises(ArtifactError, match="expected") as caught, atomic_path(path) as temporary:
        temporary.write_text("newer")
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    assert sorted(around.rglob("*")) == before
    assert (around / "file").read_text() == "older"
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("why", UNWRITABLE)
def test_a_place_is_looked_at_without_writing(around: Path, why: str) -> None:
    """What cannot be written is refused before the work."""
    with pytest.raises(ArtifactError, match="expected"):
        check_place(Path(UNWRITABLE[why]))


def test_a_place_that_is_free_stays_free(around: Path) -> None:
    """So does an older file."""
    for name in ("a/b/c.csv", "folder/c.csv", "file"):
        check_place(Path(name))
    assert names(around) == ["file", "folder", "loop"]
    assert (around / "file").read_text() == "older"


def test_an_error_of_another_file_is_not_one_of_writing(tmp_path: Path) -> None:
    """What the block itself could not read stays what it is."""
    with pytest.raises(FileNotFoundError, match="none") as caught, atomic_path(tmp_path / "a"):
        (tmp_path / "none").read_text()
    assert not isinstance(caught.value, ArtifactError)


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Rows and an Arrow table of the same rows read back alike."""
    write_table(tmp_path / "rows", ROWS, schema="rollouts.steps", version=2)
    write_table(tmp_path / "table", pa.Table.from_pylist(ROWS), schema="rollouts.steps", version=2)
    for name in ("rows", "table"):
        read = read_table(tmp_path / name, schema="rollouts.steps", version=2)
        assert read.to_pylist() == ROWS


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    """DVC skips what follows a stage only when its files are byte-identical."""
    for name in ("one", "two"):
        write_table(tmp_path / name, ROWS, schema="rollouts.steps", version=1)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("read", [read_table, read_json])
def test_a_missing_file_names_itself_and_its_stage(tmp_path: Path, read: object) -> None:
    """The message says which stage to run."""
    assert callable(read)
    with pytest.raises(ArtifactError, match=r"steps\.bin: no such file; stage 'rollouts'"):
        read(tmp_path / "steps.bin", schema="rollouts.steps", version=1)


@pytest.mark.parametrize(("schema", "version"), [("rollouts.steps", 2), ("rollouts.values", 1)])
def test_another_schema_or_version_is_refused(tmp_path: Path, schema: str, version: int) -> None:
    """The message names the file, what it was written as, and what was expected."""
    write_table(tmp_path / "t", ROWS, schema="rollouts.steps", version=1)
    write_json(tmp_path / "j", {"a": 1}, schema="rollouts.steps", version=1)
    for path, read in ((tmp_path / "t", read_table), (tmp_path / "j", read_json)):
        expected = rf"{path.name}: written as rollouts\.steps 1, expected {schema} {version}"
        with pytest.raises(SchemaError, match=expected):
            read(path, schema=schema, version=version)


def test_a_file_of_another_kind_is_a_schema_error(tmp_path: Path) -> None:
    """Neither reader passes on another library's exception."""
    path = tmp_path / "x"
    path.write_text("neither Parquet nor JSON")
    with pytest.raises(SchemaError, match="not a Parquet file"):
        read_table(path, schema="a.b", version=1)
    with pytest.raises(SchemaError, match="not JSON"):
        read_json(path, schema="a.b", version=1)


def test_json_without_an_envelope_is_refused(tmp_path: Path) -> None:
    """A file that another tool wrote does not pass for an artifact."""
    write_plain_json(tmp_path / "x", {"a": 1})
    with pytest.raises(SchemaError, match=r"written as no schema, expected a\.b 1"):
        read_json(tmp_path / "x", schema="a.b", version=1)


def test_json_has_no_word_for_nan(tmp_path: Path) -> None:
    """Other readers refuse NaN, so it must not be written, and nothing is left behind."""
    with pytest.raises(SchemaError, match="cannot be written as JSON"):
        write_json(tmp_path / "x", {"a": float("nan")}, schema="a.b", version=1)
    assert names(tmp_path) == []


def test_a_digest_is_the_one_that_dvc_records(tmp_path: Path) -> None:
    """The expected value follows DVC's format: the MD5 of a sorted JSON list of MD5s."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_text("1")
    (tmp_path / "a").write_text("2")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("byte code")
    one, two = (hashlib.md5(text).hexdigest() for text in (b"2", b"1"))
    listing = json.dumps([{"md5": one, "relpath": "a"}, {"md5": two, "relpath": "b/x"}])
    assert digest(tmp_path) == hashlib.md5(listing.encode()).hexdigest() + ".dir"
    assert digest(tmp_path / "a") == one


def test_files_are_the_ones_that_were_written_or_refused(tmp_path: Path) -> None:
    """A file without a digest is not one of a checkpoint."""
    (tmp_path / "a").write_text("1")
    with pytest.raises(ArtifactError, match=r"digests\.json: no such file; expected a thing"):
        read_checked(tmp_path, ["a"], expected="a thing")
    write_digests(tmp_path)
    assert read_checked(tmp_path, ["a"], expected="a thing") == {"a": b"1"}
    (tmp_path / "b").write_text("1")
    for name in ("a", "b"):
        (tmp_path / "a").write_text("2")
        with pytest.raises(SchemaError, match=f"{name}: damaged: digest"):
            read_checked(tmp_path, [name], expected="a thing")


def test_a_place_of_a_folder_may_hold_one(tmp_path: Path) -> None:
    check_place(tmp_path, folder=True)
    with pytest.raises(ArtifactError, match="given a folder"):
        check_place(tmp_path)


def test_a_digest_of_nothing_is_an_error(tmp_path: Path) -> None:
    """A missing path has no digest."""
    with pytest.raises(ArtifactError, match="nothing to take a digest of"):
        digest(tmp_path / "absent")


def test_a_folder_that_cannot_take_its_place_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one stepped aside, and comes back; nothing else stays."""
    place = tmp_path / "output"
    place.mkdir()
    (place / "old").touch()
    replace = os.replace

    def refuse(source: Path, target: Path) -> None:
        if ".tmp-" in source.name:
            raise PermissionError("not now")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError), atomic_path(place) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
    assert [path.name for path in place.iterdir()] == ["old"]
