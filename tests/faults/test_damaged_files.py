"""Bits that change and files that are cut: found by a checksum, named, rebuilt or refused."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from fake_backend import FakeBackend, PassingBackend, pool_proposer

from selverify.domains.math_steps import MathSteps
from selverify.domains.word_problems import WordProblems
from selverify.errors import SelverifyError
from selverify.models.generators.checkpoints import load_backbone
from selverify.models.reply_cache import CachedBackend
from selverify.policy import load_policy
from selverify.search.requests import Propose, ProposeItem
from selverify.storage import read_json, read_table, write_json, write_table
from selverify.training.tuning import load_trainable

SEED = 12
SHARD_MOMENTS, CHECKPOINT_MOMENTS, CACHE_MOMENTS = 300, 6, 60
SCHEMA, VERSION = "stage.table", 1
ROWS = [{"n": n, "text": f"step {n} " * 3, "scores": [0.5 * n] * 3} for n in range(400)]


def damaged(whole: bytes, moments: int) -> Iterator[bytes]:
    """``whole`` with one bit changed, or cut off somewhere, by turns."""
    rng = random.Random(SEED)
    for moment in range(moments):
        place = rng.randrange(len(whole))
        if moment % 2:
            yield whole[:place]
        else:
            yield whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]


def sentence(caught: pytest.ExceptionInfo[SelverifyError], path: Path) -> bool:
    """Whether an error is one line that names the file."""
    message = str(caught.value)
    return str(path) in message and "\n" not in message


def test_a_damaged_shard_is_named_and_never_read_as_another(tmp_path: Path, record) -> None:
    """Parquet pages carry checksums, which are compared."""
    path = tmp_path / "shard.parquet"
    write_table(path, ROWS, schema=SCHEMA, version=VERSION)
    whole = path.read_bytes()
    table = read_table(path, schema=SCHEMA, version=VERSION)
    refused = 0
    for spoilt in damaged(whole, SHARD_MOMENTS):
        path.write_bytes(spoilt)
        try:
            assert read_table(path, schema=SCHEMA, version=VERSION).equals(table)
        except SelverifyError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 0.9 * SHARD_MOMENTS
    # The footer has none: each bit of the names and types of columns, which are told there first.
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place, bit in product(range(footer, footer + 150), range(8)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        with suppress(SelverifyError):
            assert read_table(path, schema=SCHEMA, version=VERSION).equals(table)
    record(
        "a damaged shard (Parquet)",
        "one bit changed or the end cut off, by turns, at random places",
        moments=SHARD_MOMENTS,
        held=f"{refused} refused in one sentence that names the file; the other "
        f"{SHARD_MOMENTS - refused} read as the same table (the bit has no meaning)",
    )


def test_a_cut_json_is_named(tmp_path: Path) -> None:
    """Facts of a stage end with their last brace."""
    path = tmp_path / "facts.json"
    write_json(path, {"tau": 0.5, "text": "é" * 9}, schema=SCHEMA, version=VERSION)
    whole = path.read_bytes().rstrip()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(SelverifyError) as caught:
            read_json(path, schema=SCHEMA, version=VERSION)
        assert sentence(caught, path)


def test_a_damaged_checkpoint_is_named_and_refused(
    tiny_models: Path, tmp_path: Path, record
) -> None:
    """Every file that was trained here, weights and descriptions, against the digests beside it."""
    models = tmp_path / "models"
    shutil.copytree(tiny_models.parent, models)
    folder = models / tiny_models.name
    load_policy(folder)
    files = [path for name in ("verifier", "policy") for path in (folder / name).iterdir()]
    weights = sorted(path for path in files if path.name != "digests.json")
    assert {path.suffix for path in weights} == {".safetensors", ".json"}
    for path in weights:
        whole = path.read_bytes()
        for spoilt in damaged(whole, CHECKPOINT_MOMENTS):
            path.write_bytes(spoilt)
            with pytest.raises(SelverifyError, match="damaged: digest") as caught:
                load_policy(folder)
            assert sentence(caught, path)
        path.unlink()
        with pytest.raises(SelverifyError, match=re.escape(path.name)):
            load_policy(folder)
        path.write_bytes(whole)
    for name in ("verifier", "policy"):
        path = folder / name / "digests.json"
        whole = path.read_bytes()
        for spoilt in (None, b"[]", whole.replace(b'"data": {', b'"data": 1, "more": {')):
            path.unlink() if spoilt is None else path.write_bytes(spoilt)
            with pytest.raises(SelverifyError, match=r"digests\.json"):
                load_policy(folder)
        path.write_bytes(whole)
    load_policy(folder)
    moments = len(weights) * CHECKPOINT_MOMENTS
    record(
        "a damaged checkpoint",
        f"each of the {len(weights)} files of a verifier and a policy: a bit changed, cut, removed",
        moments=moments + len(weights),
        held="each refused by its digest, in one sentence that names the file",
    )


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_damaged_backbone_is_refused(name: str, tiny_models: Path, tmp_path: Path) -> None:
    """Before it is asked or tuned: a stage loads it in one of these ways."""
    models = tmp_path / "models"
    shutil.copytree(tiny_models.parent, models)
    path = models / "word_problems-small" / name
    for spoilt in damaged(path.read_bytes(), CHECKPOINT_MOMENTS):
        path.write_bytes(spoilt)
        for load in (partial(load_backbone, vocabulary=WordProblems.vocabulary), load_trainable):
            with pytest.raises(SelverifyError, match="damaged: digest") as caught:
                load(path.parent)
            assert sentence(caught, path)
    path.unlink()
    with pytest.raises(SelverifyError, match=re.escape(name)):
        load_backbone(path.parent, WordProblems.vocabulary)


def test_a_damaged_reply_cache_never_gives_another_reply(tmp_path: Path, record) -> None:
    """A damaged entry is asked for again; a file that is no database is refused by name."""
    domain = MathSteps()
    pool = pool_proposer(["1+1=2", "2+2=5"])
    backend = PassingBackend(FakeBackend(domain, pool, name="n", seed=1, max_moves=9))
    states = [
        domain.initial_state(domain.read(f"What is {n} + {n}?", problem_id=f"p{n}"), budget=1)
        for n in range(40)
    ]
    asked = Propose(tuple(ProposeItem(state, 0, 3) for state in states))
    path = tmp_path / "replies.sqlite"
    cache = CachedBackend(backend, path)
    whole = cache.answer(asked)
    cache.close()
    kept = path.read_bytes()
    refused = again = 0
    for spoilt in damaged(kept, CACHE_MOMENTS):
        for beside in tmp_path.glob("replies.sqlite-*"):
            beside.unlink()
        path.write_bytes(spoilt)
        before = len(backend.requests)
        try:
            cache = CachedBackend(backend, path)
            try:
                assert cache.answer(asked) == whole
            finally:
                cache.close()
        except SelverifyError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            refused += 1
        again += len(backend.requests) > before
    assert refused and again
    record(
        "a damaged reply cache (SQLite)",
        "one bit changed or the end cut off, by turns, at random places",
        moments=CACHE_MOMENTS,
        held=f"never another reply: {refused} refused in one sentence that names the file, {again} "
        "asked again what was damaged, the others as before",
    )
