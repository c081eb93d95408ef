"""Recorded runs in the place of models: requests answered, misses counted, nothing invented."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BACKEND, Runs, mixed_runs, searches
from toy import ToyDomain, move, toy_problem

from selverify.audit.replay import (
    BLANK,
    Bounds,
    ByScore,
    Count,
    Coverage,
    ReplayBackend,
    Unused,
    bounds,
    recorded_problems,
    replay,
)
from selverify.audit.schema import Candidate, RecordedList, RecordedSample
from selverify.domains import domain_by_name
from selverify.domains.countdown import Countdown
from selverify.errors import ParamsError, ProtocolError, SchemaError
from selverify.search import majority_vote
from selverify.search.backend import Backend
from selverify.search.breadth_first import breadth_first
from selverify.search.driver import Search, run_lockstep
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
from selverify.types import Malformed, Sample, State, Verdict

DOMAIN = ToyDomain()
UNIT = ByScore(0.0, 1.0)
FIRST = Candidate(text="add 1 ;", score=0.9, label=True)
TWICE = Candidate(text="add  2 ;", score=0.2, label=False, times=2, logprob=-1.5)
UNJUDGED = Candidate(text="add 3 ;")


def a_list(*candidates: Candidate, prefix: Sequence[str] = (), run: str = "r") -> RecordedList:
    return RecordedList(
        problem_id="p",
        state_id=" ".join(prefix) or "start",
        run=run,
        model="m",
        question="reach 3 .",
        prefix=tuple(prefix),
        candidates=candidates,
    )


def a_sample(
    place: int, *steps: str, scores: Sequence[float] | None = None, run: str = "r"
) -> RecordedSample:
    return RecordedSample(
        problem_id="p",
        run=run,
        model="m",
        sample=place,
        steps=steps,
        step_scores=None if scores is None else tuple(scores),
        tokens=7,
    )


def a_replay(
    *entries: RecordedList | RecordedSample, judge: ByScore = UNIT, whole_lists: bool = False
) -> ReplayBackend:
    return ReplayBackend(DOMAIN, entries, judge=judge, whole_lists=whole_lists, ranker=None)


def at(*texts: str) -> State:
    state = DOMAIN.initial_state(toy_problem(3), budget=9)
    for text in texts:
        state = DOMAIN.apply(state, move(text))
    return state


def texts(reply: Reply) -> list[list[str]]:
    return [[sample.text for sample in samples] for samples in reply or ()]  # type: ignore[union-attr]


def test_proposals_come_in_recorded_order_and_as_often_as_recorded() -> None:
    """The list after "add 1 ;" is another state's; its recorded log probability is kept."""
    backend = a_replay(a_list(FIRST, TWICE), a_list(UNJUDGED, prefix=["add  1 ;"]))
    request = Propose((ProposeItem(at(), 0, 3), ProposeItem(at("add 1 ;"), 0, 1)))
    assert texts(backend.answer(request)) == [["add 1 ;", "add  2 ;", "add  2 ;"], ["add 3 ;"]]
    assert backend.coverage(request) == Coverage(propose=Count(4, 0))
    ((_, second, _), _) = backend.answer(request)
    assert second == Sample("add  2 ;", 0, -1.5)


def test_a_start_beyond_the_record_is_a_miss_and_blank() -> None:
    """Index 2 is the last one; of a state that nobody visited nothing is known."""
    backend = a_replay(a_list(FIRST, TWICE))
    request = Propose((ProposeItem(at(), 2, 3), ProposeItem(at("add 9 ;"), 0, 2)))
    assert texts(backend.answer(request)) == [["add  2 ;", "", ""], ["", ""]]
    assert backend.coverage(request) == Coverage(propose=Count(5, 4))


def test_the_budget_of_a_state_changes_no_reply() -> None:
    backend = a_replay(a_list(FIRST, TWICE))
    for state in (at(), at().spend(9)):
        assert texts(backend.answer(Propose((ProposeItem(state, 0, 1),)))) == [["add 1 ;"]]


def test_lists_of_two_runs_at_one_state_follow_each_other() -> None:
    backend = a_replay(a_list(FIRST), a_list(TWICE, FIRST, run="s"))
    reply = backend.answer(Propose((ProposeItem(at(), 0, 4),)))
    assert texts(reply) == [["add 1 ;", "add  2 ;", "add  2 ;", "add 1 ;"]]


def test_beyond_a_whole_list_there_is_nothing_and_no_miss() -> None:
    """Of a state that nobody visited nothing is known all the same."""
    backend = a_replay(a_list(FIRST, UNJUDGED), whole_lists=True)
    asked = (
        ProposeItem(at(), 1, 3),
        ProposeItem(at(), 7, 2),
        ProposeItem(at("add 1 ;"), 0, 2),
    )
    reply = backend.answer(Propose(asked))
    assert texts(reply) == [["add 3 ;", "", ""], ["", ""], ["", ""]]
    assert backend.coverage(Propose(asked)) == Coverage(propose=Count(7, 2))


def test_verdicts_are_those_of_the_canonical_move() -> None:
    """Written with other spaces it is the same move; the prefix tells states apart."""
    backend = a_replay(a_list(FIRST, TWICE, UNJUDGED), a_list(TWICE, prefix=["add 2 ;"]))
    request = Verify(
        (
            VerifyItem(at(), (move("add 2 ;"),)),
            VerifyItem(at("add 2 ;"), (move("add 2 ;"),)),
            VerifyItem(at(), (move("add 2 ;"), move("add 2 ;"))),
        )
    )
    one, two = Verdict(0.2, (0.2,)), Verdict(0.2, (0.2, 0.2))
    assert backend.answer(request) == (one, one, two)
    assert backend.coverage(request) == Coverage(verify=Count(3, 0))


def test_a_verdict_that_was_not_recorded_is_zero_and_missed() -> None:
    """A candidate without a score, a move nobody proposed, a solution with one unknown step."""
    backend = a_replay(a_list(FIRST, UNJUDGED))
    request = Verify(
        (
            VerifyItem(at(), (move("add 3 ;"),)),
            VerifyItem(at("add 1 ;"), (move("add 1 ;"),)),
            VerifyItem(at(), (move("add 1 ;"), move("say 1 ;"))),
            VerifyItem(at(), (move("add 1 ;"),)),
        )
    )
    assert [verdict.score for verdict in backend.answer(request)] == [0.0, 0.0, 0.0, 0.9]
    assert backend.answer(request)[2].step_scores == (0.9, 0.0)
    assert backend.coverage(request) == Coverage(verify=Count(4, 3))


def test_of_two_verdicts_the_first_recorded_one_counts() -> None:
    again = Candidate(text="add 3 ;", score=0.6)
    backend = a_replay(a_list(UNJUDGED, again), a_list(again.model_copy(update={"score": 0.1})))
    (verdict,) = backend.answer(Verify((VerifyItem(at(), (move("add 3 ;"),)),)))
    assert verdict.score == 0.6


def test_samples_answer_run_by_run_with_their_step_scores() -> None:
    """Run s was met first; of r sample 0 stands before sample 1 wherever the file has it."""
    backend = a_replay(
        a_sample(4, "say 1 ;", run="s"),
        a_sample(1, "add 3 ;", "say 3 ;", scores=[0.5, 0.8]),
        a_sample(0, "say 2 ;"),
    )
    request = Complete((CompleteItem(at(), 0, 2), CompleteItem(at(), 2, 2)))
    assert texts(backend.answer(request)) == [["say 1 ;", "say 2 ;"], ["add 3 ; say 3 ;", ""]]
    assert backend.coverage(request) == Coverage(complete=Count(4, 1))
    assert backend.answer(request)[1][0] == Sample("add 3 ; say 3 ;", 7, 0.0)
    (verdict,) = backend.answer(Verify((VerifyItem(at(), (move("add 3 ;"), move("say 3 ;"))),)))
    assert verdict == Verdict(0.8, (0.5, 0.8))


def test_neither_a_greedy_solution_nor_one_from_within_was_sampled() -> None:
    backend = a_replay(a_sample(0, "add 3 ;", "say 3 ;"))
    items = (CompleteItem(at(), 0, 1, greedy=True), CompleteItem(at("add 3 ;"), 0, 1))
    assert texts(backend.answer(Complete(items))) == [[""], [""]]
    assert backend.coverage(Complete(items)) == Coverage(complete=Count(2, 2))


def test_steps_of_text_are_joined_as_their_domain_sets_them_apart() -> None:
    domain = domain_by_name("math")
    steps = ("So 6 * 7 = 42.", "The answer is \\boxed{42}.")
    problem = domain.read("What is 6 * 7?", problem_id="p")
    backend = ReplayBackend(
        domain, [a_sample(0, *steps)], judge=UNIT, whole_lists=False, ranker=None
    )
    search = Search(majority_vote(domain, problem, n=1, gates=False), None)
    found = replay({"one": search}, backend)["one"]
    assert (found.result.outcome.answer, found.result.ledger.generated_moves) == ("42", 2)


def test_entries_that_cannot_be_asked_for_are_counted() -> None:
    """A prefix, and a scored step, that is no move; two scores for one step; none is no fault."""
    backend = a_replay(
        a_list(FIRST, prefix=["what"]),
        a_list(Candidate(text="what", score=0.3)),
        a_sample(0, "say 3 ;", scores=[0.1, 0.2]),
        a_sample(1, "what", "say 3 ;", scores=[0.1, 0.2]),
        a_sample(2, "say 3 ;", scores=[0.4]),
    )
    assert backend.unused == Unused(lists=1, samples=2)
    assert texts(backend.answer(Propose((ProposeItem(at(), 0, 1),)))) == [["what"]]


def test_a_sample_without_scores_is_unused_by_the_verifier_alone() -> None:
    backend = a_replay(a_sample(0, "say 3 ;"))
    assert backend.unused == Unused(lists=0, samples=1)


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (ByScore(0.0, 1.0), [0.9, 0.2, None]),
        (ByScore(0.4, 0.8), [1.0, 0.0, None]),
        (ByScore(-0.7, 0.9), [1.0, 0.5625, None]),
    ],
)
def test_judges(judge: ByScore, said: list[float | None]) -> None:
    """Scores on a line, cut off at its ends; nothing where nothing is known."""
    found = [judge(one) for one in (FIRST, TWICE, UNJUDGED)]
    assert found == [one if one is None else pytest.approx(one) for one in said]


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_a_score_map_needs_two_ends(ends: tuple[float, float]) -> None:
    with pytest.raises(ParamsError, match="expected low < high"):
        ByScore(*ends)


@given(st.floats(-9, 9), st.floats(-9, 9))
def test_a_score_map_keeps_the_order_and_stays_within_its_ends(low: float, high: float) -> None:
    """A threshold that is scaled alike accepts what it accepted, but for what both ends cut off."""
    scale = ByScore(-5.0, 5.0)
    first, second = scale.scaled(min(low, high)), scale.scaled(max(low, high))
    assert 0.0 <= first <= second <= 1.0


@pytest.mark.parametrize("name", ["word_problems", "countdown", "math"])
def test_a_blank_sample_is_a_move_in_no_domain(name: str) -> None:
    assert isinstance(domain_by_name(name).parse(BLANK.text), Malformed)


def test_the_identity_tells_records_judges_and_lists_apart() -> None:
    """Another judge changes the verifier's only."""
    plain = a_replay(a_list(FIRST))
    same = a_replay(a_list(FIRST))
    others = [
        a_replay(a_list(TWICE)),
        a_replay(a_list(FIRST), whole_lists=True),
        a_replay(a_list(FIRST), judge=ByScore(0.4, 0.8)),
    ]
    kinds = ("propose", "complete", "verify", "rank")
    assert [plain.identity(kind) for kind in kinds] == [same.identity(kind) for kind in kinds]
    assert len({one.identity("verify") for one in (plain, *others)}) == 4
    assert len({one.identity("propose") for one in (plain, *others)}) == 3


def test_a_rank_without_a_ranker_and_a_note_are_refused() -> None:
    backend = a_replay(a_list(FIRST))
    for request in (Rank((RankItem(at(), (), "hybrid"),)), Note("x", at())):
        with pytest.raises(ProtocolError, match=r"expected a Propose.*no ranker"):
            backend.answer(request)
        assert backend.coverage(request) == Coverage()


def test_the_questions_give_the_problems() -> None:
    """A sample may leave it out where a list has it."""
    domain = Countdown()
    item = a_list(FIRST).model_copy(update={"question": "use 4 6 to make 24 ."})
    problems = recorded_problems(domain, [a_sample(0, "answer = 24 ;"), item])
    assert problems == {"p": domain.read("use 4 6 to make 24 .", problem_id="p")}
    with pytest.raises(SchemaError, match="'p': given 2 questions, expected one"):
        recorded_problems(domain, [item, a_list(FIRST)])
    with pytest.raises(SchemaError, match="'p': given 0 questions"):
        recorded_problems(domain, [a_sample(0, "say 1 ;")])


def test_every_search_has_its_own_coverage() -> None:
    """After add 2 nothing is recorded: the wide search asks there and is touched."""
    backend = a_replay(
        a_list(FIRST, TWICE), a_list(Candidate(text="say 1 ;", score=0.5), prefix=["add 1 ;"])
    )
    found = replay(
        {
            width: Search(
                breadth_first(
                    DOMAIN,
                    toy_problem(3),
                    proposals=1 + 2 * (width - 1),
                    width=width,
                    gates=True,
                    max_moves=2,
                ),
                None,
            )
            for width in (1, 2)
        },
        backend,
    )
    assert found[1].coverage == Coverage(propose=Count(2, 0), verify=Count(2, 0))
    assert found[2].coverage == Coverage(propose=Count(9, 5), verify=Count(3, 0))
    assert [one.coverage.touched for one in found.values()] == [False, True]
    assert found[2].coverage.propose.answered == 4
    assert {one.result.outcome.answer for one in found.values()} == {"1"}


def test_a_rate_is_bounded_from_both_sides() -> None:
    """One right and one wrong search went untouched; of two that were touched one ended right."""
    clean, touched = Coverage(verify=Count(3, 0)), Coverage(complete=Count(1, 1))
    ends = [(True, clean), (False, clean), (True, touched), (False, touched)]
    assert bounds(ends) == Bounds(
        low=0.25, high=0.75, ended=0.5, left_out=0.5, touched=2, searches=4
    )
    assert bounds(ends[2:]).left_out is None
    with pytest.raises(SchemaError, match="given none"):
        bounds([])


class Recorder:
    """Passes everything on and keeps what was said as a log would."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.proposed: dict[tuple[str, tuple[str, ...]], dict[int, str]] = {}
        self.scores: dict[tuple[str, tuple[str, ...]], dict[str, float]] = {}
        self.solutions: dict[str, dict[int, Sample]] = {}

    def identity(self, kind: str) -> str:
        return self.inner.identity(kind)

    def answer(self, request: Request) -> Reply:
        reply = self.inner.answer(request)
        for item, entry in zip(request.items, reply or (), strict=True):  # type: ignore[union-attr]
            where = item.state.problem.problem_id, item.state.said
            if isinstance(item, ProposeItem):
                known = self.proposed.setdefault(where, {})
                known |= {item.start + at: one.text for at, one in enumerate(entry)}
            elif isinstance(item, CompleteItem) and not item.greedy:
                known = self.solutions.setdefault(where[0], {})
                known |= {item.start + at: one for at, one in enumerate(entry)}
            elif isinstance(item, VerifyItem):
                for step, score in zip(item.steps, entry.step_scores, strict=True):
                    self.scores.setdefault(where, {})[step.text] = score
                    where = where[0], (*where[1], step.text)
        return reply

    def entries(self) -> list[RecordedList | RecordedSample]:
        """A list a state, verified moves that nobody proposed at its end, and the samples."""
        lists = [self._list(*where) for where in {**self.proposed, **self.scores}]
        samples = [
            RecordedSample(
                problem_id=problem_id,
                run="r",
                model="fake",
                sample=place,
                steps=(one.text,),
                tokens=one.tokens,
            )
            for problem_id, found in self.solutions.items()
            for place, one in found.items()
        ]
        return [*lists, *samples]

    def _list(self, problem_id: str, said: tuple[str, ...]) -> RecordedList:
        proposed = self.proposed.get((problem_id, said), {})
        scores = dict(self.scores.get((problem_id, said), {}))
        listed = [proposed[place] for place in range(len(proposed))]
        unsaid = [text for text in scores if text not in listed]
        return RecordedList(
            problem_id=problem_id,
            state_id=" ".join(said) or "start",
            run="r",
            model="fake",
            question="",
            prefix=said,
            candidates=tuple(
                Candidate(text=text, score=scores.get(text)) for text in (*listed, *unsaid)
            ),
        )


class FakeRanker:
    """The ranks of the fake backend."""

    def identity(self) -> str:
        return BACKEND.identity("rank")

    def rank(self, items: Sequence[RankItem]) -> tuple[tuple[float, ...], ...]:
        return BACKEND.answer(Rank(tuple(items)))  # type: ignore[return-value]


@settings(max_examples=60, deadline=None)
@given(mixed_runs)
def test_a_recorded_search_replays_the_same_way(runs: Runs) -> None:
    """Same outcomes, same events but for tokens of single moves, same calls, and no miss.

    A greedy solution is not recorded, so chain of thought is left out.
    """
    gated, baselines = runs
    kept = gated, [run for run in baselines if run[0] != "cot"]
    recorder = Recorder(BACKEND)
    live = run_lockstep(searches(kept), recorder, end_of_move=";")
    backend = ReplayBackend(
        DOMAIN, recorder.entries(), judge=UNIT, whole_lists=False, ranker=FakeRanker()
    )
    found = replay(searches(kept), backend)
    assert list(found) == list(live)
    for key, one in found.items():
        assert one.result.outcome == live[key].outcome
        without_tokens = [
            replace(ledger, generated_tokens=0) for ledger in (one.result.ledger, live[key].ledger)
        ]
        assert without_tokens[0] == without_tokens[1]
        assert one.coverage.verify == Count(live[key].ledger.verifier_calls, 0)
        assert not one.coverage.touched
