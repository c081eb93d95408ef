"""N recorded solutions: one chosen, all voting, and the few that are worth a verifier call."""

from __future__ import annotations

import itertools
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from selverify.audit.answer_groups import (
    MOST_SAMPLES,
    ORDERS,
    AnswerGroups,
    graded,
    group_answers,
    mean_score,
    pad_answers,
    sample_coverage,
    usable,
)
from selverify.audit.figures import accuracy_against_cost, sample_points
from selverify.audit.log import RecordedSample
from selverify.audit.sample_audit import SampleAudit, audit_samples, budgets, widest
from selverify.audit.savings import SolutionSettings, full_scoring
from selverify.audit.selective import CallPolicy, follow, stop
from selverify.audit.solutions import (
    BEST,
    MAJORITY,
    PASS,
    WEIGHTED,
    AccuracyCurve,
    Subsets,
    accuracy_curves,
    best_of,
    passing,
    voted,
)
from selverify.audit.text import render_samples
from selverify.audit.tuning import Halving, choose_settings, reach
from selverify.data.grading import MAX_ANSWER, Grader
from selverify.errors import SchemaError
from selverify.experiment.statistics import FloatArray, pass_at_k
from selverify.search.aggregation import AGGREGATIONS

ALL = (1, 2, 3)
SMALL = replace(SolutionSettings(), subsets=20, resamples=200, repetitions=2, fewest=4)


def sample(
    place: int,
    answer: str | None,
    *scores: float,
    right: bool | None = False,
    problem: str = "p",
    gold: str | None = None,
    steps: Sequence[str] | None = None,
    tokens: int | None = None,
) -> RecordedSample:
    """A sample whose steps have these scores; without any the verifier was not asked."""
    return RecordedSample(
        problem_id=problem,
        run="run",
        model="model",
        gold=gold,
        sample=place,
        steps=tuple(steps or ["a step"] * max(1, len(scores))),
        answer=answer,
        step_scores=scores or None,
        correct=right,
        tokens=tokens,
    )


def pool(*own: RecordedSample) -> AnswerGroups:
    """The pool of one problem."""
    (made,) = group_answers(own)
    return made


def three() -> AnswerGroups:
    """Twice a wrong 7 with low scores, once a right 8 with a high one."""
    return pool(
        sample(0, "7", 0.9, 0.2),
        sample(1, "7", 0.5, 0.4),
        sample(2, "8", 0.8, 0.9, right=True),
    )


@st.composite
def one_pool(draw: st.DrawFn, problem: str = "p", fewest: int = 1) -> AnswerGroups:
    """Up to seven samples of up to four answers, of which answer 0 is right; some give none."""
    answers = draw(
        st.lists(st.sampled_from([None, "0", "1", "2", "3"]), min_size=fewest, max_size=7)
    )
    score = st.floats(0.0, 1.0, allow_subnormal=False).map(lambda one: round(one, 3))
    return pool(
        *(
            sample(
                place,
                answer,
                *draw(st.lists(score, min_size=1, max_size=3)),
                right=answer == "0",
                problem=problem,
                tokens=draw(st.integers(0, 50)),
            )
            for place, answer in enumerate(answers)
        )
    )


@st.composite
def some_pools(draw: st.DrawFn) -> tuple[AnswerGroups, ...]:
    """Two to five problems with uneven numbers of samples."""
    return tuple(draw(one_pool(f"p{number}")) for number in range(draw(st.integers(2, 5))))


def subsets_of(own: AnswerGroups, size: int, right: Callable[[AnswerGroups], float]) -> float:
    """The slow obvious mean over every subset."""
    found = [
        right(own.take(np.array(one))) for one in itertools.combinations(range(len(own)), size)
    ]
    return sum(found) / len(found)


def best(own: AnswerGroups) -> float:
    """The best-scored answering sample of them all by product, ties shared."""
    scores = [
        score if answer >= 0 else -1.0
        for score, answer in zip(own.scores["prod"], own.answers, strict=True)
    ]
    top = [place for place, score in enumerate(scores) if score == max(scores)]
    return sum(float(own.correct[place]) for place in top) / len(top)


def how(*budgets: int, number: int = 1) -> Subsets:
    """Budgets with one random order, or more."""
    return Subsets(budgets, number, 0)


def test_pass_at_n_and_best_of_n_by_hand() -> None:
    """The 8 is right: by last, min and product it is best wherever it is drawn, as for pass@N."""
    expected = pytest.approx([1 / 3, 2 / 3, 1])
    assert passing(three(), how(*ALL)).tolist() == expected
    for name in AGGREGATIONS:
        assert best_of(three(), name, how(*ALL)).tolist() == expected


def test_the_aggregations_rank_differently() -> None:
    """Last 0.9 beats 0.8; the lowest step and the product say otherwise."""
    own = pool(sample(0, "7", 0.1, 0.9), sample(1, "8", 0.8, 0.8, right=True))
    assert [best_of(own, name, how(2))[0] for name in ("last", "min", "prod")] == [0, 1, 1]


def test_equal_scores_share_the_choice() -> None:
    """Of two equally scored samples one is right: one half, in either order."""
    own = pool(sample(0, "7", 0.5), sample(1, "8", 0.5, right=True), sample(2, "9", 0.1))
    assert best_of(own, "last", how(3))[0] == pytest.approx(0.5)


def test_the_majority_by_hand() -> None:
    """Two 7s outvote an 8; of two samples each pair is a tie or a 7: (1/2 + 1/2 + 0) / 3."""
    found = voted(three(), np.ones(3), how(1, 2, 3, number=4000))
    assert found[[0, 2]].tolist() == pytest.approx([1 / 3, 0])
    assert found[1] == pytest.approx(1 / 3, abs=0.03)


def test_the_weighted_vote_by_hand() -> None:
    """By last 0.9 beats 0.2 + 0.4; by minimum 0.8 beats 0.6; unweighted the 7 wins."""
    for name in ("last", "min", "prod"):
        assert voted(three(), three().scores[name], how(3)).tolist() == [1.0]


def test_answers_that_are_plainly_equal_vote_together() -> None:
    """0.5, 1/2 and a fraction outvote two 3s."""
    texts = ["3", "0.5", "1/2", "3", r"\frac12"]
    own = pool(*(sample(i, text, 0.5, right=text != "3") for i, text in enumerate(texts)))
    assert voted(own, np.ones(5), how(5)).tolist() == [1.0]


def test_an_answer_is_read_off_the_text_where_none_is_recorded() -> None:
    """The boxed one votes with the recorded one; a text that states none gives none."""
    own = pool(
        sample(0, "4", 0.5, right=True),
        sample(1, None, 0.5, right=True, steps=[r"So \boxed{4}."]),
        sample(2, None, 0.5, steps=["No idea."]),
    )
    assert own.answers.tolist() == [0, 0, -1]


def test_what_answers_nothing_is_never_chosen_and_costs_nothing() -> None:
    """Its score of 1 does not count; a call is made for one of the two samples.

    Of solutions of one, two and three steps two random ones are two calls and four scores.
    """
    own = pool(sample(0, None, 1.0), sample(1, "8", 0.1, right=True))
    (found,) = [one for one in accuracy_curves((own,), how(2)) if _is(one, "prod")]
    assert (found.right[0, 0], found.calls[0, 0], found.steps[0, 0]) == (1.0, 1.0, 1.0)
    own = pool(*(sample(i, "7", *[0.5] * (i + 1)) for i in range(3)))
    (found,) = [one for one in accuracy_curves((own,), how(2)) if _is(one, "prod")]
    assert (found.calls[0, 0], found.steps[0, 0]) == (2.0, 4.0)


def test_a_budget_above_the_number_of_samples_is_unknown() -> None:
    """Problems with fewer samples are left out of that budget only."""
    short = pool(sample(0, "7", 0.5, problem="q"))
    for found in accuracy_curves((three(), short), how(1, 2, 3)):
        assert np.isnan(found.right).tolist() == [[False] * 3, [False, True, True]]


def test_missing_scores_leave_samples_out_of_what_needs_them() -> None:
    """The majority counts the unscored 7; best-of-N sees two samples and knows nothing of three."""
    own = pool(sample(0, "7", 0.1), sample(1, "7"), sample(2, "8", 0.9, right=True))
    found = {(one.method, one.aggregation): one for one in accuracy_curves((own,), how(2, 3))}
    assert sample_coverage([own]).unscored == 1
    assert found[MAJORITY, ""].right[0, 1] == 0.0
    assert found[BEST, "last"].right[0, 0] == 1.0
    assert np.isnan(found[BEST, "last"].right[0, 1])
    assert len(usable(own)) == 2


@given(one_pool())
def test_best_of_n_is_the_mean_over_every_subset(own: AnswerGroups) -> None:
    """The closed form against all subsets of every size."""
    sizes = tuple(range(1, len(own) + 1))
    slow = [subsets_of(own, size, best) for size in sizes]
    assert best_of(own, "prod", how(*sizes)).tolist() == pytest.approx(slow)


def slow_best_of(own: AnswerGroups, sizes: Sequence[int]) -> FloatArray:
    """By pass@k at every distinct score."""
    scores = np.where(own.answered, own.scores["last"], -np.inf)
    values, place = np.unique(scores, return_inverse=True)
    right = np.bincount(place, weights=own.correct * own.answered) / np.bincount(place)
    above = (scores > values[:, None]).sum(axis=1)
    reached = 1.0 - pass_at_k(above[:, None], samples=len(own), k=np.array(sizes)[None, :])
    return right @ np.diff(reached, axis=0, prepend=0.0)


def many(number: int, *, digits: int) -> AnswerGroups:
    """Samples of a problem with random scores of so many digits; some answer nothing."""
    rng = np.random.default_rng(number)
    return AnswerGroups(
        "p",
        (rng.random(number) < 0.4).astype(float),
        rng.integers(-1, 9, number),
        {"last": np.round(rng.random(number), digits)},
        *np.ones((2, number)),
        np.zeros(number, dtype=np.bool_),
    )


@pytest.mark.parametrize("digits", [1, 9])
@pytest.mark.parametrize("number", [1, 2, 64, 700])
def test_best_of_n_is_that_of_pass_at_k_at_every_score(number: int, digits: int) -> None:
    own = many(number, digits=digits)
    sizes = sorted({size for size in (1, 2, 16, 60, number - 1, number) if 0 < size <= number})
    found = best_of(own, "last", how(*sizes))
    assert found == pytest.approx(slow_best_of(own, sizes), abs=1e-12)


def test_best_of_n_takes_no_time_that_grows_with_the_square() -> None:
    """The most samples that a problem may have: milliseconds, where pass@k took seconds."""
    own = many(MOST_SAMPLES, digits=12)
    start = time.process_time()
    found = best_of(own, "last", how(*(2**power for power in range(14)), MOST_SAMPLES))
    assert time.process_time() - start < 1.0
    assert found[0] == pytest.approx((own.correct * own.answered).mean())


@given(one_pool())
def test_best_of_n_with_perfect_scores_is_pass_at_n(own: AnswerGroups) -> None:
    """Right samples score 1 and wrong ones 0."""
    perfect = replace(own, scores={"last": np.where(own.answered, own.correct, np.nan)})
    sizes = tuple(range(1, len(own) + 1))
    assert best_of(perfect, "last", how(*sizes)).tolist() == pytest.approx(
        passing(own, how(*sizes)).tolist()
    )


@given(one_pool(), st.randoms(use_true_random=False))
def test_the_order_of_the_samples_changes_no_exact_figure(own: AnswerGroups, rng: object) -> None:
    """pass@N and best-of-N at every size, votes over one and over all."""
    places = np.arange(len(own))
    rng.shuffle(places)  # type: ignore[attr-defined]
    other = own.take(places)
    sizes = tuple(range(1, len(own) + 1))
    ends = how(1, len(own))
    for name in AGGREGATIONS:
        assert np.allclose(best_of(own, name, how(*sizes)), best_of(other, name, how(*sizes)))
        assert np.allclose(
            voted(own, own.scores[name], ends), voted(other, other.scores[name], ends)
        )
    assert np.allclose(passing(own, how(*sizes)), passing(other, how(*sizes)))


@settings(max_examples=15)
@given(one_pool(fewest=3))
def test_votes_on_subsets_come_near_the_mean_over_all_of_them(own: AnswerGroups) -> None:
    """Four thousand random orders against every subset."""
    size = len(own) - 1
    slow = subsets_of(own, size, lambda one: float(voted(one, np.ones(len(one)), how(len(one)))[0]))
    assert voted(own, np.ones(len(own)), how(size, number=4000))[0] == pytest.approx(slow, abs=0.04)


@given(some_pools(), st.sampled_from(sorted(ORDERS)), st.sampled_from(sorted(AGGREGATIONS)))
def test_with_everything_scored_selection_is_best_of_n_weighted(
    found: tuple[AnswerGroups, ...], order: str, aggregation: str
) -> None:
    """And with nothing scored the majority; a stop that is certain gives the same for less."""
    policy = CallPolicy(aggregation, 1.0, 2.0, order)
    own = pad_answers(found, aggregation=aggregation, order=order)
    course = follow(own, policy, 0.5)
    weighted = full_scoring(found, subsets=1, seed=0)[WEIGHTED, aggregation]
    plain = [float(voted(one, np.ones(len(one)), how(len(one)))[0]) for one in found]
    stopped = stop(course, math.inf)
    assert course.right[:, -1].tolist() == pytest.approx(weighted.tolist())
    assert stopped.right.tolist() == pytest.approx(weighted.tolist())
    assert course.right[:, 0].tolist() == pytest.approx(plain)
    assert np.all(stopped.calls <= [one.answered.sum() for one in found])


@given(some_pools(), st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_a_higher_threshold_never_makes_fewer_calls(
    found: tuple[AnswerGroups, ...], one: float, other: float
) -> None:
    """Nor fewer step scores; and every step score belongs to a call."""
    own = pad_answers(found, aggregation="prod", order="shortest")
    policy = CallPolicy("prod", 0.5, 1.0, "shortest")
    course = follow(own, policy, 0.5)
    low, high = (stop(course, level) for level in sorted((one, other)))
    assert np.all(low.calls <= high.calls)
    assert np.all(low.steps <= high.steps)
    assert np.all(low.calls <= low.steps)


def test_selection_asks_about_the_answers_in_question_only() -> None:
    """A 7 with nine samples against a 1: at most one call tells that nothing can change."""
    own = pool(
        *(sample(i, "7", 0.9, right=True) for i in range(9)),
        sample(9, "1", 0.9),
    )
    policy = CallPolicy("last", 1.0, 1.0, "recorded")
    for one, calls in ((own, 2.0), (own.take(np.arange(9)), 0.0)):
        padded = pad_answers([one], aggregation="last", order="recorded")
        assert stop(follow(padded, policy, 0.9), math.inf).calls.tolist() == [calls]


def test_the_shortest_and_the_not_refused_sample_are_asked_about_first() -> None:
    """In their order the scores of an answer's samples are stacked."""
    made = group_answers(
        [
            sample(i, "7", score, tokens=tokens)
            for i, (score, tokens) in enumerate([(0.1, 30), (0.2, 10), (0.3, 20)])
        ],
        refused=lambda one: one.sample == 0,
    )
    orders = {
        order: pad_answers(made, aggregation="last", order=order).scores.tolist()
        for order in ORDERS
    }
    assert orders == {
        "recorded": [0.1, 0.2, 0.3],
        "shortest": [0.2, 0.3, 0.1],
        "not refused": [0.2, 0.3, 0.1],
    }


def test_unknown_scores_are_expected_to_be_the_mean_of_the_training_problems() -> None:
    """Of the second problem alone; without an answer there is none."""
    scores = {"p": (0.9, 0.1), "q": (0.3, 0.4)}
    found = group_answers(
        [sample(i, "7", one, problem=p) for p, own in scores.items() for i, one in enumerate(own)]
    )
    own = pad_answers(found, aggregation="last", order="recorded")
    assert mean_score(own, train=np.array([False, True])) == pytest.approx(0.35)
    with pytest.raises(SchemaError, match="no training problem has an answer"):
        mean_score(own, train=np.zeros(2, dtype=np.bool_))


def test_settings_are_chosen_on_the_other_half() -> None:
    """Calls that help on every problem are found worth it."""
    helped = [
        pool(
            sample(0, "7", 0.1, problem=f"p{n}"),
            sample(1, "7", 0.1, problem=f"p{n}"),
            sample(2, "8", 1.0, right=True, problem=f"p{n}"),
        )
        for n in range(12)
    ]
    target = full_scoring(helped, subsets=1, seed=0)[BEST, "last"]
    (needed,) = choose_settings(
        helped,
        SMALL.policies("last"),
        SMALL.thresholds,
        [reach(target, lost=0.0)],
        halving=Halving(2, 0),
    )
    assert needed.outcome.right.tolist() == [1.0] * 12
    assert 0 < needed.outcome.calls.mean() <= 3
    assert needed.settings.total() == 4


def test_a_target_that_nothing_reaches_is_neared_for_the_fewest_calls() -> None:
    """The first setting loses least, with fewer calls than the second."""
    right = np.array([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 0.0]]])
    calls = np.array([[[2.0, 2.0]], [[3.0, 3.0]], [[0.0, 0.0]]])
    known = np.ones(2, dtype=np.bool_)
    assert reach(np.ones(2), lost=0.0)(right, calls, known) == (0, 0)
    assert reach(np.ones(2), lost=1.0)(right, calls, known) == (2, 0)


def test_a_setting_is_chosen_without_the_other_half() -> None:
    """Whatever is known of the problems that may not be looked at changes nothing."""
    rng = np.random.default_rng(1)
    right, calls = rng.random((2, 5, 4, 40))
    known = np.arange(40) < 20
    target = rng.random(40)
    goal = reach(target, lost=0.02)
    before = goal(right, calls, known)
    right[:, :, ~known], calls[:, :, ~known] = rng.random((2, 5, 4, 20))
    target[~known] = 0.0
    assert goal(right, calls, known) == before


def test_luck_where_the_target_is_wrong_pays_for_no_loss() -> None:
    """A hundred cheap settings are as accurate as the target, on other problems than it.

    The dear one agrees with it. That a tenth may be lost lets a cheap one that loses as much in.
    """
    rng, known = np.random.default_rng(0), np.ones(200, dtype=np.bool_)
    cheap = (rng.random((100, 1, 200)) < 0.8).astype(float)
    target = (np.arange(200) % 10 < 7).astype(float)
    right = np.concatenate([cheap, target[None, None]])
    calls = np.ones_like(right)
    calls[-1] = 9.0
    assert cheap.mean(axis=-1).max() > target.mean()
    assert reach(target, lost=0.0025)(right, calls, known) == (100, 0)
    policy, _ = reach(target, lost=0.1)(right, calls, known)
    assert policy < 100


@pytest.fixture(scope="module")
def log() -> tuple[RecordedSample, ...]:
    """Eight problems of four to six samples, with and without agreement."""
    rng = np.random.default_rng(3)

    def drawn(problem: str, place: int) -> RecordedSample:
        answer = str(rng.integers(0, 3))
        scores = np.round(rng.uniform(0.0, 1.0, size=2) * (0.5 + 0.5 * (answer == "0")), 3).tolist()
        return sample(place, answer, *scores, right=answer == "0", problem=problem, gold="0")

    return tuple(drawn(f"p{n}", i) for n in range(8) for i in range(4 + n % 3))


def audited(samples: Sequence[RecordedSample], grader: Grader | None = None) -> SampleAudit:
    """The audit of the only run."""
    (found,) = audit_samples(samples, settings=SMALL, grader=grader)
    return found


def said(found: SampleAudit, width: int = 160) -> str:
    """The audit as a terminal shows it."""
    text = StringIO()
    console = Console(file=text, width=width)
    for part in render_samples(found):
        console.print(part)
    return text.getvalue()


def test_an_audit_shows_every_method_and_what_selection_needs(
    log: tuple[RecordedSample, ...],
) -> None:
    """Uneven numbers of samples are said, and each target has its calls."""
    found = audited(log)
    assert len(found.savings) == 6
    assert all(one.calls.value <= one.target_calls for one in found.savings)
    assert set(found.accuracy["n"]) == {1, 2, 4, 5}
    assert set(found.accuracy[found.accuracy["n"] == 5]["problems"]) == {5}
    assert all(0 < one.open_calls <= one.target_calls for one in found.savings)
    text = said(found)
    assert "4 to 6 a problem" in text
    assert "problems: pass@N" in text
    assert "weighted vote, prod: " in text


def test_no_number_and_no_name_of_a_method_is_cut(log: tuple[RecordedSample, ...]) -> None:
    """Tables that are too wide are broken: each number is there as often as on a wide terminal."""
    for found in (audited(log), audited(uneven(255, 256, 256))):
        expected = Counter(re.findall(r"[-+]?[0-9.]+", said(found)))
        for width in (60, 80):
            shown = said(found, width)
            assert Counter(re.findall(r"[-+]?[0-9.]+", shown)) == expected
            assert "weighted vote, prod  " in shown
            assert max(map(len, shown.splitlines())) <= width


def uneven(*sizes: int) -> list[RecordedSample]:
    """A problem for each number of samples, of which the first is right."""
    return [
        sample(i, str(i), 0.5, right=i == 0, problem=f"p{n}")
        for n, size in enumerate(sizes)
        for i in range(size)
    ]


def test_budgets_are_of_what_most_problems_have() -> None:
    """The largest is one that more than half of the problems have; the fewest is among them."""
    assert budgets(group_answers(uneven(*[4] * 29, 7))) == (1, 2, 4)
    assert budgets(group_answers(uneven(3, 6, 6, 6))) == (1, 2, 3, 4, 6)
    assert budgets(group_answers(uneven(2, 7))) == (1, 2)


def test_the_row_for_intervals_is_the_largest_that_all_problems_have() -> None:
    """Five of six have eight samples: shown, but intervals and calls are of all six at three."""
    found = audited(uneven(3, *[8] * 5))
    for _, rows in found.accuracy.groupby(["method", "aggregation"]):
        assert rows["n"].tolist() == [1, 2, 3, 4, 8]
        assert (widest(rows)["n"], widest(rows)["problems"]) == (3, 6)
    _, line, *_ = [one for one in said(found).splitlines() if one.startswith("best-of-N, last")]
    assert " 3 " in line
    assert " 3.0 " in line


def test_budgets_that_too_few_problems_have_are_left_out() -> None:
    """Three of five have eight samples, one of 30 seven; a table begins at four problems."""
    assert set(audited(uneven(2, 2, 8, 8, 8)).accuracy["n"]) == {1, 2}
    found = audited(uneven(*[4] * 29, 7))
    assert set(found.accuracy["n"]) == {1, 2, 4}
    assert set(found.accuracy["problems"]) == {30}
    assert "4 to 7 a problem" in said(found)


def test_unanimous_problems_need_no_call_whatever_the_method(
    log: tuple[RecordedSample, ...],
) -> None:
    """What is saved on them is named beside the calls of scoring everything."""
    agreeing = [
        one.model_copy(update={"answer": "0", "correct": True}) if one.problem_id < "p4" else one
        for one in log
    ]
    found = audited(agreeing)
    alike = sum(one.problem_id < "p4" for one in agreeing)
    assert found.savings[0].target_calls == len(log) / 8
    assert found.savings[0].open_calls == (len(log) - alike) / 8
    assert "where unanimous problems are not asked about" in said(found)


def test_hostile_names_are_shown_cut_and_escaped(log: tuple[RecordedSample, ...]) -> None:
    """No escape sequence reaches a terminal, neither from a table nor from an error."""
    name = "\x1b[2J" + "x" * 400
    found = audited(log)
    text = said(replace(found, run=name, model=name))
    assert "\x1b" not in text
    assert "x" * 100 not in text
    update = {"run": name, "problem_id": name, "answer": None, "correct": True}
    with pytest.raises(SchemaError, match="correct without an answer") as error:
        group_answers([log[0].model_copy(update=update)])
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 300


def test_too_many_samples_of_a_problem_are_refused() -> None:
    """Before anything is computed from them."""
    one = sample(0, "7", 0.5)
    many = [one.model_copy(update={"sample": i}) for i in range(MOST_SAMPLES + 1)]
    with pytest.raises(SchemaError, match="given 10,001 samples, expected at most 10,000"):
        group_answers(many)


@pytest.mark.parametrize(
    ("scores", "problems", "methods", "why"),
    [
        (None, "p9", {PASS, MAJORITY}, "have no step scores, and no problem has them all"),
        ((-3.0, 2.5), "p9", {PASS, MAJORITY, BEST, WEIGHTED}, "scores do not lie in [0, 1]"),
        ((0.5,), "p3", {PASS, MAJORITY, BEST, WEIGHTED}, "3 problems with all scores are too few"),
    ],
)
def test_where_selection_cannot_be_audited_the_first_table_is_there_and_a_reason(
    log: tuple[RecordedSample, ...],
    scores: tuple[float, ...] | None,
    problems: str,
    methods: set[str],
    why: str,
) -> None:
    """No scores; logits, which can be ranked but not be certain; fewer problems than four."""
    found = audited(
        [one.model_copy(update={"step_scores": scores}) for one in log if one.problem_id < problems]
    )
    assert set(found.accuracy["method"]) == methods
    assert found.savings == ()
    assert why in found.unsaved and why in said(found)


@pytest.mark.parametrize(
    ("scores", "votes", "told"),
    [
        ((2.0, 0.4), {"last", "min"}, ()),
        ((-3.0, 2.5), {"last"}, ("Some scores are negative: no weighted vote by min,",)),
        ((-3.0, -2.5), set(), ("Some scores are negative: no weighted vote by last or min,",)),
    ],
)
def test_a_product_outside_0_to_1_and_negative_votes_are_left_out_and_told(
    log: tuple[RecordedSample, ...], scores: tuple[float, ...], votes: set[str], told: Sequence[str]
) -> None:
    """A single sample is enough: the rows are of a whole run."""
    found = audited([log[0].model_copy(update={"step_scores": scores}), *log[1:]])
    shown = {
        method: set(found.accuracy[found.accuracy["method"] == method]["aggregation"])
        for method in (BEST, WEIGHTED)
    }
    assert shown == {BEST: {"last", "min"}, WEIGHTED: votes}
    for text in ("Some step scores lie outside [0, 1]: no row multiplies them", *told):
        assert text in said(found)
    assert "outside [0, 1]" not in said(audited(log)) and "negative" not in said(audited(log))
    assert found.unsaved == "the recorded scores do not lie in [0, 1]"


def test_problems_with_a_missing_score_are_left_out_of_selection(
    log: tuple[RecordedSample, ...],
) -> None:
    """One of eight."""
    found = audited([log[0].model_copy(update={"step_scores": None}), *log[1:]])
    assert (found.left_out, found.coverage.unscored, len(found.savings)) == (1, 1, 6)
    assert "1 problems without all scores are left out" in said(found)


def test_samples_without_correct_are_graded(log: tuple[RecordedSample, ...]) -> None:
    """Against the gold, to the same tables."""
    bare = [one.model_copy(update={"correct": None}) for one in log]
    with Grader(1.0, 1) as grader:
        found = audited(bare, grader)
    assert (found.graded, found.unsettled) == (len(log), 0)
    assert found.accuracy.equals(audited(log).accuracy)


def test_only_answers_are_graded_and_what_cannot_be_is_told(
    log: tuple[RecordedSample, ...],
) -> None:
    bare = [one.model_copy(update={"correct": None}) for one in log]
    bare[0] = bare[0].model_copy(update={"answer": None})
    bare[1] = bare[1].model_copy(update={"answer": "9" * (MAX_ANSWER + 1)})
    with Grader(1.0, 1) as grader:
        text = said(audited(bare, grader))
    assert f"{len(log) - 1} answers did not say whether they are correct: graded by us." in text
    assert "1 of these could not be read or compared: taken for wrong." in text


def test_an_audit_does_not_depend_on_the_order_of_the_log(log: tuple[RecordedSample, ...]) -> None:
    assert said(audited(random.Random(1).sample(log, len(log)))) == said(audited(log))


def test_the_figure_is_written(log: tuple[RecordedSample, ...], tmp_path: Path) -> None:
    """Twice, as SVG and as PNG; dollars in a name are no formula."""
    shown = sample_points(audited(log))
    written = accuracy_against_cost(shown, tmp_path / "accuracy", title=r"A run called $\foo{$")
    assert [one.suffix for one in written] == [".svg", ".png"]
    assert all(one.stat().st_size > 1000 for one in written)


def _is(one: AccuracyCurve, aggregation: str) -> bool:
    return one.method == BEST and one.aggregation == aggregation


def test_what_cannot_be_graded_is_refused_in_a_sentence() -> None:
    """With neither a gold nor a verdict, or with a right answer that is not there."""
    with Grader(1.0, 1) as grader, pytest.raises(SchemaError, match="neither correct nor gold"):
        graded([sample(0, "7", right=None)], grader)
    with pytest.raises(SchemaError, match="correct without an answer"):
        pool(sample(0, None, right=True))
