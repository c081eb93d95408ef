"""The reply cache: same replies, nothing asked twice, nothing lost to a kill."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import pytest
from fake_backend import PassingBackend
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BACKEND, DOMAIN, Runs, mixed_runs, searches
from toy import Fixed, move, samples, toy_problem

from selverify.errors import ArtifactError, ProtocolError, SchemaError
from selverify.models import reply_cache
from selverify.models.reply_cache import CachedBackend
from selverify.search.driver import run_searches
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Note,
    Propose,
    ProposeItem,
    Rank,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.types import Move, Sample, State, Verdict

START = DOMAIN.initial_state(toy_problem(), budget=9)
MEMORY = Path(":memory:")
ONE, TWO = move("add 1 ;"), move("add 2 ;")


class Log(PassingBackend):
    """What the fake was asked, under any identity."""

    def __init__(self, identity: str = BACKEND.identity("")) -> None:
        super().__init__(BACKEND)
        self._identity = identity

    def identity(self, kind: str) -> str:
        return self._identity

    @property
    def ranges(self) -> list[list[tuple[int, int]]]:
        """Start and count of each item of each request for samples."""
        return [[(item.start, item.count) for item in one.items] for one in self.requests]

    @property
    def entries(self) -> list[tuple[object, ...]]:
        """Names each sample, rank and verdict; without the budget, which decides no reply."""
        return [
            (request.kind, replace(item.state, budget=0), getattr(item, "temperature", None), part)
            for request in self.requests
            for item in request.items
            for part in _parts(item)
        ]


def _parts(item: object) -> Iterable[object]:
    if isinstance(item, ProposeItem | CompleteItem):
        return range(item.start, item.start + item.count)
    return [(item.moves, item.scorer) if isinstance(item, RankItem) else item.steps]


def propose(*ranges: tuple[int, int]) -> Propose:
    """A request for these samples at the start."""
    return Propose(tuple(ProposeItem(START, *one) for one in ranges))


def verify(*steps: Move, state: State = START) -> Verify:
    """A request for the verdict on these steps."""
    return Verify((VerifyItem(state, steps),))


def rank(*moves: Move, scorer: str) -> Rank:
    """A request for the scores of these moves."""
    return Rank((RankItem(START, moves, scorer),))


@settings(max_examples=15, deadline=None)
@given(mixed_runs, st.booleans(), st.integers(1, 5), st.integers(0, 5))
def test_cached_equals_uncached_and_asks_nothing_twice(
    runs: Runs, on_disk: bool, size: int, most_known: int
) -> None:
    """Two runs through one cache, then one through the file again, for each entry one question."""
    plain = run_searches(searches(runs), BACKEND, end_of_move=";", traced=True)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reply_cache, "ENTRIES_PER_COMMIT", size)
        patch.setattr(reply_cache, "MOST_KNOWN", most_known)
        path = Path(folder) / "replies.sqlite" if on_disk else MEMORY
        log = Log()
        cache = CachedBackend(log, path)
        for _ in range(2):
            assert run_searches(searches(runs), cache, end_of_move=";", traced=True) == plain
        cache.close()
        assert len(log.entries) == len(set(log.entries))
        if on_disk:
            silent = Log()
            again = CachedBackend(silent, path)
            assert run_searches(searches(runs), again, end_of_move=";", traced=True) == plain
            again.close()
            assert silent.requests == []


@pytest.mark.parametrize("at_once", [[Propose.kind, Verify.kind], [Verify.kind]])
def test_the_memory_is_emptied_also_while_another_request_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: list[str]
) -> None:
    """Its reply is whole, and what it kept is in the file; what is not yet there stays."""
    monkeypatch.setattr(reply_cache, "MOST_KNOWN", 0)

    class Nested(Log):
        def answer(self, request: Request) -> Reply:
            if request == propose((2, 2)):
                cache.answer(verify(ONE))
            return super().answer(request)

    log = Nested()
    cache = CachedBackend(log, tmp_path / "replies.sqlite", at_once=at_once)
    cache.answer(propose((0, 2)))
    cache.write()
    asked = [propose((0, 4)), propose((0, 4)), verify(ONE)]
    assert [cache.answer(one) for one in asked] == [BACKEND.answer(one) for one in asked]
    assert log.requests == [propose((0, 2)), verify(ONE), propose((2, 2))]
    assert len(cache._known) == (1 if Propose.kind in at_once else 2)
    for one in (rank(ONE, scorer="a"), verify(ONE), rank(ONE, scorer="a")):
        assert cache.answer(one) == BACKEND.answer(one)
    assert len(log.requests) == 4
    cache.close()


@pytest.mark.parametrize(
    ("requests", "asked"),
    [
        # With 2, 3 and 6 known, a request for 0 to 8 passes 0-1, 4-5 and 7 on.
        ([propose((2, 2), (6, 1)), propose((0, 8))], [[(2, 2), (6, 1)], [(0, 2), (4, 2), (7, 1)]]),
        # A part of a known range passes nothing on.
        ([propose((0, 64)), propose((8, 8))], [[(0, 64)]]),
        # The union of ranges in one request is passed on once.
        ([propose((0, 3), (1, 4))], [[(0, 5)]]),
    ],
)
def test_only_missing_samples_are_asked_in_contiguous_ranges(
    requests: list[Propose], asked: list[list[tuple[int, int]]]
) -> None:
    log = Log()
    cache = CachedBackend(log, MEMORY)
    for request in requests:
        assert cache.answer(request) == BACKEND.answer(request)
    assert log.ranges == asked


def test_neither_budgets_nor_repetitions_are_asked() -> None:
    """The state's budget is no part of the key, and a repeated item is passed on once."""
    log = Log()
    cache = CachedBackend(log, MEMORY)
    items = [CompleteItem(state, 0, 8) for state in (START, START.spend(3), START)]
    assert len(set(cache.answer(Complete(tuple(items))))) == 1
    assert log.ranges == [[(0, 8)]]
    cache.answer(Verify((VerifyItem(START, (ONE,)), VerifyItem(START, (ONE,)))))
    assert len(log.requests[1].items) == 1


def test_different_items_have_different_keys() -> None:
    """Also two steps whose texts run together to another one: "A. B." reads like "A." and "B."."""
    together, apart = (
        State(START.problem, tuple(Move("step", None, text) for text in texts), None, 9)
        for texts in (("A. B.",), ("A.", "B."))
    )
    assert together.trace == apart.trace
    different = [
        verify(ONE),
        verify(TWO),
        verify(ONE, TWO),
        verify(ONE, state=together),
        verify(ONE, state=apart),
        verify(ONE, state=DOMAIN.initial_state(toy_problem(4), budget=9)),
        verify(ONE, state=DOMAIN.initial_state(toy_problem(3, "q"), budget=9)),
        rank(ONE, scorer="a"),
        rank(ONE, scorer="b"),
        rank(ONE, TWO, scorer="a"),
        propose((0, 1)),
        Complete((CompleteItem(START, 0, 1),)),
        Complete((CompleteItem(START, 0, 1, temperature=0.0),)),
    ]
    cache = CachedBackend(BACKEND, MEMORY)
    keys = {cache._key(request.kind, request.items[0]) for request in different}
    assert len(keys) == len(different)
    assert cache._key("verify", replace(verify(ONE).items[0], state=START.spend(3))) in keys


def test_tokens_and_sizes_are_those_of_the_backend() -> None:
    """They cost no model, so they are passed on."""
    cache = CachedBackend(Log(), MEMORY)
    assert cache.tokens("add 1 ;") == 3
    assert cache.sizes() == BACKEND.sizes()


def test_another_backend_identity_shares_nothing(tmp_path: Path) -> None:
    """A retrained model never reads the replies of the old one."""
    for identity in ("old", "new"):
        log = Log(identity)
        cache = CachedBackend(log, tmp_path / "replies.sqlite")
        cache.answer(verify(ONE))
        cache.close()
        assert len(log.requests) == 1


def test_two_open_caches_may_write_the_same_entry(tmp_path: Path) -> None:
    """Each asks for itself what the other stored after it looked."""
    request = verify(ONE)
    caches = [CachedBackend(BACKEND, tmp_path / "replies.sqlite") for _ in range(2)]
    for cache in caches:
        cache.answer(verify(TWO))
        cache._load([cache._key("verify", request.items[0])])
    assert [cache.answer(request) for cache in caches] == [BACKEND.answer(request)] * 2
    for cache in caches:
        cache.close()


floats = st.floats(allow_nan=False)


@settings(max_examples=12, deadline=None)
@given(st.text(st.characters()), st.integers(0, 2**40), floats, st.lists(floats, min_size=1))
def test_replies_round_trip_exactly(
    text: str, tokens: int, number: float, scores: list[float]
) -> None:
    """Any text, any float, bit for bit, through the file."""
    cases: list[tuple[Request, Reply]] = [
        (propose((0, 1)), ((Sample(text, tokens, number),),)),
        (verify(ONE), (Verdict(number, tuple(scores)),)),
        (rank(ONE, scorer="a"), (tuple(scores),)),
    ]
    backend = Fixed()
    with tempfile.TemporaryDirectory() as folder:
        for answers in (True, False):
            cache = CachedBackend(backend, Path(folder) / "replies.sqlite")
            for request, reply in cases:
                backend.reply = reply if answers else None
                assert repr(cache.answer(request)) == repr(reply)
            cache.close()


@pytest.mark.parametrize(
    "change", ["CREATE TABLE other (x)", "PRAGMA user_version=1", "PRAGMA user_version=99", None]
)
def test_a_file_that_is_no_reply_cache_is_a_schema_error(
    tmp_path: Path, change: str | None
) -> None:
    """Another program's database, another schema and garbage are refused by name."""
    path = tmp_path / "replies.sqlite"
    if change is None:
        path.write_bytes(b"this is no database, only text" * 99)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(change)
        connection.close()
    with pytest.raises(SchemaError, match=r"replies\.sqlite: .*; move the file away to start"):
        CachedBackend(BACKEND, path)


@pytest.mark.parametrize(
    "change",
    [
        "x'730000'",
        "x''",
        "'text'",
        "value || x'00'",
        "substr(value, 1, length(value) - 1)",
        "substr(value, 1, 12) || x'ff' || substr(value, 14)",
    ],
)
def test_a_damaged_value_is_asked_for_again(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Found when it is read, told by the name of the file, and whole the next time."""
    path = tmp_path / "replies.sqlite"
    request = rank(ONE, TWO, scorer="a")
    cache = CachedBackend(BACKEND, path)
    whole = cache.answer(request)
    cache.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE replies SET value = CAST({change} AS BLOB)")
    connection.close()
    for asked in (1, 0):
        log = Log()
        cache = CachedBackend(log, path)
        assert cache.answer(request) == whole
        cache.close()
        assert len(log.requests) == asked
    assert caplog.messages == [f"{path}: 1 replies are damaged and are asked for again"]


def test_kinds_that_are_not_kept_at_once_are_kept_together(tmp_path: Path) -> None:
    """Until they are written, another process finds none of them; closing writes none."""
    path = tmp_path / "replies.sqlite"
    requests = [
        *(rank(ONE, TWO, scorer=scorer) for scorer in "ab"),
        verify(ONE),
    ]
    whole = [BACKEND.answer(request) for request in requests]
    for asked, written in ((3, False), (2, False), (2, True), (0, False)):
        log = Log()
        cache = CachedBackend(log, path, at_once=[Verify.kind])
        assert [cache.answer(request) for request in requests] == whole
        assert len(log.requests) == asked
        if written:
            cache.write()
        cache.close()


def test_what_is_remembered_while_the_file_is_written_is_written_later(tmp_path: Path) -> None:
    """Two threads may do it."""
    cache = CachedBackend(BACKEND, tmp_path / "replies.sqlite")
    cache.remember("early", 1)
    late = Thread(target=cache.remember, args=("late", 2))
    usual = cache._insert

    def insert(rows: Sequence[tuple[object, ...]]) -> None:
        usual(rows)
        late.start()
        late.join(0.2)

    with patch.object(cache, "_insert", insert):
        cache.write()
    late.join()
    cache.write()
    assert [cache.recall("early"), cache.recall("late")] == [1, 2]
    cache.close()


def test_replies_that_could_not_be_read_are_read_again(tmp_path: Path) -> None:
    """And are not taken for replies that are not there."""
    path = tmp_path / "replies.sqlite"
    for asked in (1, 0):
        log = Log()
        cache = CachedBackend(log, path)
        if not asked:
            failure = ArtifactError("cannot be read")
            with patch.object(cache, "_rows", side_effect=failure), pytest.raises(ArtifactError):
                cache.answer(verify(ONE))
        assert cache.answer(verify(ONE)) == BACKEND.answer(verify(ONE))
        assert len(log.requests) == asked
        cache.close()


def test_what_follows_from_replies_is_kept_under_a_name(tmp_path: Path) -> None:
    """Only what was written, and only whole; names and items do not meet."""
    path = tmp_path / "replies.sqlite"
    value = [{"answer": "7\ud800", "calls": 3, "right": None, "cost": 0.1 + 0.2}]
    for found, written in ((None, False), (None, True), (value, False)):
        cache = CachedBackend(BACKEND, path)
        assert cache.recall("rows") == found
        assert cache.recall("other") is None
        cache.remember("rows", value)
        if written:
            cache.write()
        cache.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE replies SET value = CAST(value || 'x' AS BLOB)")
    connection.close()
    cache = CachedBackend(BACKEND, path)
    assert cache.recall("rows") is None
    cache.remember("rows", value)
    cache.write()
    assert cache.recall("rows") == value
    cache.close()


def test_a_kill_while_the_file_is_made_leaves_one_that_can_be_used(tmp_path: Path) -> None:
    """The table and the version come together: killed before each statement in turn."""
    script = """
import os, sqlite3, sys
from pathlib import Path
from selverify.models.reply_cache import CachedBackend

class Killed(sqlite3.Connection):
    def execute(self, *arguments):
        global left
        if left == 0:
            os._exit(9)
        left -= 1
        return super().execute(*arguments)

connect = sqlite3.connect
sqlite3.connect = lambda *given, **named: connect(*given, **named, factory=Killed)
number, code = -1, 9
while code == 9:
    number = left = number + 1
    child = os.fork()
    if child == 0:
        CachedBackend.create(Path(sys.argv[1], f"{number}.sqlite"))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    codes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    for number in range(len(codes)):
        cache = CachedBackend(BACKEND, tmp_path / f"{number}.sqlite")
        cache.answer(rank(ONE, TWO, scorer="a"))
        cache.close()
    assert {*codes[:-1]} == {"9"} and codes[-1] == "0" and len(codes) > 6


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.soak)])
def test_no_bit_of_the_file_can_change_unseen(tmp_path: Path, every: int) -> None:
    """Each bit of the table's page that is in use, and of the file's head, or one in ``every``: a
    reply is asked for again, or one sentence refuses the file.
    """
    path = tmp_path / "replies.sqlite"
    request = propose((0, 1))
    cache = CachedBackend(BACKEND, path)
    whole = cache.answer(request)
    cache.close()
    kept = path.read_bytes()
    page = int.from_bytes(kept[16:18], "big")
    used = [place for place in range(page, len(kept)) if kept[place]]
    refused = again = 0
    for place in [*range(100), *used]:
        for bit in range(place % every, 8, every):
            for beside in tmp_path.glob("replies.sqlite*"):
                beside.unlink()
            path.write_bytes(kept[:place] + bytes([kept[place] ^ 1 << bit]) + kept[place + 1 :])
            log = Log()
            try:
                cache = CachedBackend(log, path)
                try:
                    found = cache.answer(request)
                finally:
                    cache.close()
            except (ArtifactError, SchemaError) as error:
                assert str(path) in str(error) and "\n" not in str(error)
                refused += 1
                continue
            again += bool(log.requests)
            assert found == whole
    assert refused > 0 and again > 0


def test_a_path_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    """A folder, and a file in a folder that is not there."""
    for path in (tmp_path, tmp_path / "none" / "replies.sqlite"):
        with pytest.raises(ArtifactError, match=f"{path}: cannot be written or read"):
            CachedBackend(BACKEND, path)


@pytest.mark.parametrize("reply", [(), (samples(["add 1 ;"]),)])
def test_a_backend_reply_of_wrong_length_is_not_stored(reply: Reply) -> None:
    """Too few items, or too few samples of one, are a protocol error."""
    cache = CachedBackend(Fixed(reply=reply), MEMORY)
    with pytest.raises(ProtocolError, match="expected"):
        cache.answer(propose((0, 2)))


def test_a_note_is_no_request() -> None:
    """A note is the driver's business."""
    with pytest.raises(ProtocolError, match="'note'"):
        CachedBackend(BACKEND, MEMORY).answer(Note("hello", START))
