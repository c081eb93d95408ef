"""Which stages' replies are kept, and that processes may open their cache at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from stand_in import NOWHERE

from selverify.data.benchmark import Task
from selverify.domains.base import Domain, knows_truth
from selverify.domains.grade_school import GradeSchool
from selverify.domains.word_problems import WordProblems
from selverify.models import assembly
from selverify.models.assembly import OpenModels
from selverify.models.reply_cache import REQUEST_KINDS, CachedBackend
from selverify.models.sources import write_source
from selverify.params import Params, ServedJudge, load_params
from selverify.search.backend import Backend
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Rank,
    RankItem,
    Reply,
    Request,
    Verify,
    VerifyItem,
)
from selverify.types import Move, Problem, Sample, State, Truth, Verdict
from tasks import evaluation, verifier
from tasks.models import make_cache, open_models
from tasks.shards import Shard

AT_ONCE, FILES = 8, 10


def params(cache: Path) -> Params:
    given = load_params(Path(__file__).parents[2] / "params.yaml")
    tracking = given.tracking.model_copy(update={"reply_cache": str(cache), "threads": 1})
    return given.model_copy(update={"tracking": tracking})


JUDGE = ServedJudge(kind="judge", **NOWHERE, max_tokens=50, schema_constrained=False)
STATE = State(Problem("p", "word_problems", "What is 1+1?", ""), (), (), 8)
STEP = Move("answer", ("2",), "So the answer is 2.")
REQUESTS: dict[str, Request] = {
    Propose.kind: Propose((ProposeItem(STATE, 0, 1),)),
    Complete.kind: Complete((CompleteItem(STATE, 0, 1),)),
    Rank.kind: Rank((RankItem(STATE, (STEP,), "hybrid"),)),
    Verify.kind: Verify((VerifyItem(STATE, (STEP,)),)),
}


class Says:
    """Any model, which counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def concurrency(self, kind: str) -> int:
        return 0

    def identity(self, kind: str) -> str:
        return kind

    def answer(self, request: Request) -> Reply:
        self.asked.append(request.kind)
        sampled = ((Sample("x", 1, 0.0),),)
        replies = {Rank.kind: ((1.0,),), Verify.kind: (Verdict(0.5, (0.5,)),)}
        return replies.get(request.kind, sampled)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    ("served", "judged", "kept"),
    [
        (False, False, set()),
        (False, True, {"verify"}),
        (True, False, REQUEST_KINDS),
        (True, True, REQUEST_KINDS),
    ],
)
def test_what_a_model_of_others_says_is_kept_at_once_whoever_the_other_model_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    served: bool,
    judged: bool,
    kept: set[str],
    cached: bool,
) -> None:
    """Behind a server, beside what was trained here, which is kept by ``write``."""
    cache = tmp_path / "cache" / "replies.sqlite"
    given = params(cache)
    inputs = {name: tmp_path / name for name in ("generator", "verifier")}
    if served:
        given = given.model_copy(update={"domain": "math", "backbones": ("served",)})
        write_source(inputs["generator"], given.generator["math"]["served"])
    if judged:
        write_source(inputs["verifier"], JUDGE)
    asked = []
    for written in (False, True, False):
        says = Says()
        opened = OpenModels(WordProblems(), says, None, "", None, None)
        monkeypatch.setattr(assembly, "open_models", lambda *_, found=opened, **__: found)
        backend = open_models(given, inputs, seed=1, cached=cached).backend
        for request in REQUESTS.values():
            backend.answer(request)
        assert isinstance(backend, CachedBackend) == cache.is_file() == bool(cached or kept)
        if isinstance(backend, CachedBackend):
            if written:
                backend.write()
            backend.close()
        asked.append(set(says.asked))
    assert asked == [
        REQUEST_KINDS,
        REQUEST_KINDS - kept,
        set() if cached or kept else REQUEST_KINDS,
    ]


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


def of_word_problems() -> tuple[Domain, Problem, Truth]:
    domain = WordProblems()
    return domain, *domain.generate(random.Random(1), problem_id="p", minimum=4, maximum=4)


def of_grade_school() -> tuple[Domain, Problem, Truth]:
    domain = GradeSchool()
    return domain, domain.read("What are 4 and 5?", problem_id="p"), Truth("p", "9", "{}")


def test_rows_are_named_by_code_models_problems_and_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them changes the name that all methods of a shard share."""
    says, given = Says(), params(tmp_path / "replies.sqlite")
    task = Task("test", STATE.problem, Truth("p", "2", "{}"), "f")
    shard = Shard(given, {}, (task,))
    backend = cast(Backend, says)
    name = evaluation._common(shard, backend)
    assert name == evaluation._common(shard, backend)
    longer = given.evaluation.model_copy(update={"grading_seconds": 9.0})
    truth = replace(task, truth=Truth("p", "3", "{}"))
    others = [
        replace(shard, params=given.model_copy(update={"evaluation": longer})),
        replace(shard, tasks=(truth,)),
        replace(shard, tasks=(task, truth)),
    ]
    names = {evaluation._common(one, backend) for one in others}
    monkeypatch.setattr(says, "identity", lambda kind: f"{kind}, seed 2")
    names.add(evaluation._common(shard, backend))
    monkeypatch.undo()
    for what in ("CODE", "GRADED_BY"):
        with monkeypatch.context() as patched:
            patched.setattr(evaluation, what, "another")
            names.add(evaluation._common(shard, backend))
    assert len(names) == 6 and name not in names


def test_rows_of_a_method_are_made_once_for_what_they_follow_from(tmp_path: Path) -> None:
    """Not where a grading ran out of time: it could end otherwise."""
    made: list[str] = []

    def rows(own: str, status: str) -> list[dict[str, Any]]:
        cache = CachedBackend(cast(Backend, None), tmp_path / "replies.sqlite")

        found = cache.recall(f"code and models {own}")
        if found is None:
            made.append(own)
            found = [{"status": "correct"}, {"status": status}]
            evaluation._remember(cache, "code and models", own, found)
        cache.write()
        cache.close()
        return cast("list[dict[str, Any]]", found)

    for own, status in (("a", "wrong"), ("a", "wrong"), ("b", "timeout"), ("b", "timeout")):
        assert rows(own, status) == [{"status": "correct"}, {"status": status}]
    assert made == ["a", "b", "b"]


@pytest.mark.parametrize("drawn", [of_word_problems, of_grade_school])
@pytest.mark.parametrize("unreadable", [True, False], ids=["unreadable", "none"])
def test_a_verifier_without_a_solution_to_judge_has_no_area(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drawn: Callable[[], tuple[Domain, Problem, Truth]],
    *,
    unreadable: bool,
) -> None:
    """Where the truth of steps is known and where not, the stage ends as it does with some."""
    domain, problem, truth = drawn()

    class Mute(Says):
        def answer(self, request: Request) -> Reply:
            if isinstance(request, Complete):
                return tuple((Sample("?", 1, 0.0),) * item.count for item in request.items)
            assert isinstance(request, Verify) and not request.items
            return ()

    tasks = (Task("validation", problem, truth, ""),) if unreadable else ()
    models = OpenModels(domain, Mute(), None, "", None, None)
    monkeypatch.setattr(verifier, "read_tasks", lambda *_: tasks)
    given = params(tmp_path / "replies.sqlite")
    audited = given.verifier.model_copy(update={"audit_rollouts": 4})
    changed = given.model_copy(update={"domain": domain.name, "verifier": audited})
    counts = {"validation_rollout_steps": 0.0, "validation_rollout_right": 0.0}
    assert verifier._audit(changed, models, tmp_path) == ({} if knows_truth(domain) else counts)
