"""Which stages' replies are kept, and that processes may open their cache at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from selverify.params import Params, ServedJudge, load_params
from selverify.reply_cache import CachedBackend
from selverify.sources import write_verifier_source
from tasks.models import make_cache, open_models

AT_ONCE, FILES = 8, 10


def params(cache: Path) -> Params:
    given = load_params(Path(__file__).parents[2] / "params.yaml")
    tracking = given.tracking.model_copy(update={"reply_cache": str(cache), "threads": 1})
    return given.model_copy(update={"tracking": tracking})


@pytest.mark.parametrize("paid", [False, True])
def test_what_a_model_of_others_says_is_kept_whoever_the_other_model_is(
    tiny_models: Path, tmp_path: Path, paid: bool
) -> None:
    """A judge behind a server beside a generator that was trained here; without it nothing is."""
    verifier = tiny_models / "verifier"
    if paid:
        verifier = tmp_path / "judge"
        judge = ServedJudge(
            kind="judge",
            url="http://127.0.0.1:9/v1",
            model="judge",
            key_variable=None,
            concurrency=1,
            timeout_seconds=1.0,
            max_retries=0,
            max_tokens=50,
            schema_constrained=False,
        )
        write_verifier_source(verifier, judge)
    inputs = {"generator": tiny_models.parent / "word_problems-small", "verifier": verifier}
    cache = tmp_path / "cache" / "replies.sqlite"
    models = open_models(params(cache), inputs, seed=1)
    assert isinstance(models.backend, CachedBackend) == cache.is_file() == paid


def test_a_cache_can_be_made_by_several_at_once(tmp_path: Path) -> None:
    """SQLite turns some of them away unless they take turns."""
    start = threading.Barrier(AT_ONCE)
    told = [params(tmp_path / f"{number}.sqlite") for number in range(FILES)]

    def make(place: int) -> None:
        for one in told:
            start.wait()
            make_cache(one)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert list(threads.map(make, range(AT_ONCE))) == [None] * AT_ONCE
    assert len(list(tmp_path.glob("*.sqlite"))) == FILES
