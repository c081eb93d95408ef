"""Searches over a backend that is waited for: what is under way, and what a failure leaves."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fake_backend import PassingBackend
from strategies import BACKEND, DOMAIN
from toy import ScriptedBackend, ToyDomain, toy_problem

from selverify.errors import NoReply
from selverify.models.reply_cache import CachedBackend
from selverify.search.beam import beam_search
from selverify.search.best_of_n import best_of_n
from selverify.search.driver import Result, Search, run_searches
from selverify.search.in_flight import PORTAL, shared_limits
from selverify.search.majority import majority_vote
from selverify.search.requests import Propose, ProposeItem, Reply, Request
from selverify.types import Outcome

MOST = 4


class Slow(PassingBackend):
    """The fake, to be waited for; counts what is under way and what was asked of it."""

    def __init__(self, before: Callable[[], None] = lambda: time.sleep(0.002)) -> None:
        super().__init__(BACKEND)
        self.asked: Counter[object] = Counter()
        self.most_under_way = 0
        self._before = before
        self._under_way = 0
        self._counting = threading.Lock()

    def concurrency(self, kind: str) -> int:
        return MOST

    def answer(self, request: Request) -> Reply:
        """The fake's reply."""
        with self._counting:
            self._under_way += 1
            self.most_under_way = max(self.most_under_way, self._under_way)
            self.asked.update(one for item in request.items for one in _entries(request, item))
        try:
            self._before()
        finally:
            with self._counting:
                self._under_way -= 1
        return super().answer(request)


def _entries(request: Request, item: Any) -> list[object]:
    """What is paid for: samples by their indices, verdicts by their steps."""
    place = (request.kind, item.state.problem.problem_id, item.state.said)
    if request.kind == "verify":
        return [(*place, *(move.text for move in item.steps))]
    return [(*place, item.temperature, item.start + number) for number in range(item.count)]


def searches(problems: int) -> dict[tuple[str, int], Search[Outcome]]:
    """On each problem three searches that ask for the same samples."""
    shape: dict[str, Any] = {"n": 8, "gates": True, "temperature": None}
    found = {}
    for number in range(problems):
        problem = toy_problem(3, f"p{number}")
        beam = {"width": 2, "every": 1, "max_moves": 5, "aggregation": "last"}
        made = {
            "beam": beam_search(DOMAIN, problem, **shape, **beam),
            "best": best_of_n(DOMAIN, problem, **shape, aggregation="last"),
            "votes": majority_vote(DOMAIN, problem, **shape),
        }
        found.update({(name, number): Search(one, None) for name, one in made.items()})
    return found


def drive(backend: Any, problems: int = 4) -> dict[tuple[str, int], Result[Outcome]]:
    return run_searches(searches(problems), backend, end_of_move=";")


def test_no_more_are_under_way_than_allowed_of_each_kind() -> None:
    """Proposals, solutions and verdicts count by themselves."""
    slow = Slow()
    drive(slow)
    assert MOST <= slow.most_under_way <= 3 * MOST


def test_no_reply_is_asked_for_twice(tmp_path: Path) -> None:
    """Searches that want the same at once share it through the cache."""
    slow = Slow()
    cached = CachedBackend(slow, tmp_path / "replies.sqlite")
    assert drive(cached) == drive(BACKEND)
    assert set(slow.asked.values()) == {1}
    cached.close()


def test_a_failure_ends_the_searches_and_what_was_answered_is_kept(tmp_path: Path) -> None:
    """The error is the server's; asked again, only the rest is paid for."""
    calls = iter(range(1000))

    def failing() -> None:
        time.sleep(0.002)
        if next(calls) == 9:
            raise NoReply("http://server: no reply; expected a reply after 2 retries")

    slow, file = Slow(failing), tmp_path / "replies.sqlite"
    cached = CachedBackend(slow, file)
    with pytest.raises(NoReply, match="http://server: no reply"):
        drive(cached)
    cached.close()
    before = slow.asked.total()
    again = CachedBackend(slow, file)
    assert drive(again) == drive(BACKEND)
    again.close()
    asked_twice = slow.asked.total() - len(slow.asked)
    assert 0 < asked_twice < before / 2


def test_what_is_under_way_is_cancelled_with_the_searches() -> None:
    """A request that waits in the event loop of the searches does not keep them from ending."""
    calls = iter(range(1000))

    def waiting() -> None:
        if next(calls) == 2:
            time.sleep(0.05)
            raise NoReply("http://server: no reply")
        portal = PORTAL.get()
        assert portal is not None
        portal.call(anyio.sleep, 60.0)

    started = time.monotonic()
    with pytest.raises(NoReply):
        drive(Slow(waiting))
    assert time.monotonic() - started < 10.0
    assert PORTAL.get() is None


def test_threads_have_one_limit_together_also_after_a_failure() -> None:
    """Searches of one that fails are cancelled while they wait; their places are not lost."""
    calls = iter(range(100_000))

    def failing() -> None:
        time.sleep(0.001)
        if next(calls) == 5:
            raise NoReply("http://server: no reply")

    slow, ended = Slow(failing), list[object]()

    def work(begin_thread: Callable[[], object]) -> None:
        begin_thread()
        try:
            ended.append(drive(slow) == drive(BACKEND))
        except NoReply as error:
            ended.append(error)

    with shared_limits() as begin_thread:
        for _ in range(2):  # threads after the failure, too
            threads = [threading.Thread(target=work, args=(begin_thread,)) for _ in range(3)]
            for one in threads:
                one.start()
            for one in threads:
                one.join(30)
    assert sorted(map(str, ended)) == ["True"] * 5 + ["http://server: no reply"]
    assert slow.most_under_way <= 2 * MOST


def test_a_search_inside_a_search_has_limits_of_its_own() -> None:
    """It would wait for the place of the one that asks it."""
    inner = Slow()
    outer = Slow(lambda: drive(inner, 1) and None)
    with shared_limits() as begin_thread:
        begun = contextvars.copy_context()
        begun.run(begin_thread)
        assert begun.run(drive, outer, 1) == drive(BACKEND, 1)


def test_what_follows_a_search_waits_as_long_as_that_would() -> None:
    """By the replies to it and to those before it, so that no other search is held up by it."""

    class One(ScriptedBackend):
        def concurrency(self, kind: str) -> int:
            return 1

    def propose(key: str, times: int) -> Generator[Request, Reply, None]:
        state = ToyDomain().initial_state(toy_problem(3, key), budget=9)
        for start in range(times):
            yield Propose((ProposeItem(state, start, 1),))

    def then(key: str, _result: Result[None]) -> dict[str, Search[None]]:
        after = f"{key}+"
        return {} if key == "long" or len(after) > 4 else {after: Search(propose(after, 1), None)}

    searches = {key: Search(propose(key, 4 if key == "long" else 1), None) for key in ("a", "long")}
    backend = One(moves={"": ["add 1 ;"] * 4})
    run_searches(searches, backend, end_of_move=";", then=then)
    asked = [item.state.problem.problem_id for one in backend.asked for item in one.items]
    assert sorted(asked) == ["a", "a+", "a++", "a+++", *["long"] * 4]
    assert asked[:6].count("long") == 3
