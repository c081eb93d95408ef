"""What the tests of faults share: searches over servers, whole pipelines, figures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import figures
import psutil
import pytest
import stand_in
from fake_backend import FakeBackend, pool_proposer
from kills import Wholes
from proxy import Proxy
from toy import SETTINGS

from selverify.domains.word_problems import WordProblems
from selverify.search.backend import ComposedBackend, Proposer
from selverify.search.cot import chain_of_thought
from selverify.search.driver import Result, Search, run_searches
from selverify.search.gated import gated_competition
from selverify.search.majority import majority_vote
from selverify.search.requests import Rank, RankItem, Verify, VerifyItem
from selverify.types import Outcome, Problem, Verdict

DOMAIN = WordProblems()
BUDGET = 8
RULES = replace(SETTINGS, proposals=3, k_max=2, tau=0.3, max_moves=12)


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's first pause, which no public setting shortens, as short as tests need."""
    monkeypatch.setattr("selverify.models.generators.client.FIRST_PAUSE", 0.01)


class Judge:
    """A ranker and a verifier by hash."""

    def __init__(self) -> None:
        self._fake = FakeBackend(DOMAIN, pool_proposer([""]), name="", seed=5, max_moves=1)

    def identity(self) -> str:
        return self._fake.identity("verify")

    def rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        return self._fake.answer(Rank(tuple(items)))

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        return self._fake.answer(Verify(tuple(items)))


def _solve(
    problems: Sequence[Problem], proposer: Proposer
) -> dict[tuple[str, str], Result[Outcome]]:
    searches = {}
    for problem in problems:
        gated = gated_competition(
            DOMAIN, problem, rules=RULES.rules(DOMAIN), budget=BUDGET, generation_cap=40
        )
        searches[problem.problem_id, "gated"] = Search(gated, budget=BUDGET)
        votes = majority_vote(DOMAIN, problem, n=2, gates=True, temperature=None)
        searches[problem.problem_id, "majority"] = Search(votes, budget=None)
        greedy = chain_of_thought(DOMAIN, problem)
        searches[problem.problem_id, "greedy"] = Search(greedy, budget=None)
    backend = ComposedBackend(proposer, ranker=Judge(), verifier=Judge())
    return run_searches(searches, backend, end_of_move=DOMAIN.end_of_move)


@pytest.fixture(scope="session")
def solve() -> Callable[[Sequence[Problem], Proposer], dict[tuple[str, str], Result[Outcome]]]:
    """Three searches a problem, all in step: gated, by majority, and one greedy solution."""
    return _solve


# Whole pipelines -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def server() -> Iterator[Proxy]:
    with Proxy(stand_in.answer) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def wholes(api: str, server: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wholes]:
    """Both copies, each made when it is first asked for; nothing of theirs is left running."""
    with ExitStack() as ending:
        yield Wholes(api, server, tmp_path_factory.mktemp("copies"), ending)


# Figures ----------------------------------------------------------------------------------------


@dataclass
class Recorder:
    """What one test says of what it did."""

    test: str
    started: float

    def __call__(self, fault: str, done: str, *, moments: int, held: str) -> None:
        """Record a row; what is said to hold has been checked before."""
        seconds = round(time.monotonic() - self.started, 1)
        MEASURED[self.test] = figures.Figure(
            self.test, fault, done, moments, held, seconds, COMMIT[0], MACHINE
        )


MEASURED: dict[str, figures.Figure] = {}
COMMIT: list[str] = []
MACHINE = f"{os.cpu_count()} cores, {psutil.virtual_memory().total >> 30} GiB, {sys.platform}"


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Recorder:
    """Keeps a figure of this test."""
    if not COMMIT:
        COMMIT.append(figures.commit())
    return Recorder(request.node.nodeid, time.monotonic())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what was measured; a session that measured something long writes the page.

    But not where that would lose rows of tests that were never run here.
    """
    if not MEASURED:
        return
    figures.keep(MEASURED)
    long = {item.nodeid for item in session.items if item.get_closest_marker("soak")}
    if long & set(MEASURED):
        import report

        if report.is_whole():
            report.write()
