"""MATH-500 with 32 recorded solutions a problem and a reward model's score of every step.

What is measured for the page on recorded runs; the records are not part of the project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import recorded
import recorded_llama_runs
from recorded import DATA, row
from recorded_pools import BOOTSTRAP, ONE, filtering, majority, refused, refused_share

from selverify.audit.answer_groups import (
    AnswerGroups,
    answer_of,
    group_answers,
    mean_score,
    pad_answers,
    sample_coverage,
)
from selverify.audit.figures import SELECTIVE, accuracy_against_cost
from selverify.audit.importers import IMPORTERS
from selverify.audit.log import RecordedSample
from selverify.audit.sample_audit import accuracy_table
from selverify.audit.savings import Savings, SolutionSettings, against_full, full_scoring
from selverify.audit.selective import CallPolicy, Spent, follow, stop
from selverify.audit.solutions import (
    BEST,
    MAJORITY,
    PASS,
    WEIGHTED,
    AccuracyCurve,
    Subsets,
    accuracy_curves,
    expected_right,
    leading,
)
from selverify.audit.text import interval_text, method_label
from selverify.audit.tuning import ChosenSettings, Goal, Pick, choose_settings
from selverify.data.difficulty import bin_agreement, difficulty_bins
from selverify.data.grading import Grader
from selverify.experiment.statistics import (
    DIGITS,
    FloatArray,
    Interval,
    calls_at_accuracy,
    mean_interval,
    paired_difference,
    pareto_frontier,
)
from selverify.search.aggregation import AGGREGATIONS

SAMPLES = "samples/spb_math500_n32.jsonl.gz"
BUDGETS = (1, 2, 4, 8, 16, 32)
ALLOWED = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Mean calls a problem that a setting may make where it is chosen."""
QUINTILES = 5
GRID, RECORDED = "chosen, the whole grid", "without length and gates: in recorded order"
"""Rows of the table of parts."""
FEWER_REPETITIONS = 3
"""Where intervals are much wider than what halvings differ by: parts of the method, quintiles."""
REFERENCE = {
    (PASS, "", 1): 0.743,
    (MAJORITY, "", 32): 0.812,
    (BEST, "prod", 32): 0.846,
    (BEST, "last", 32): 0.812,
    (PASS, "", 32): 0.936,
}
USUAL = SolutionSettings()
FEWER = replace(USUAL, repetitions=FEWER_REPETITIONS)


@cache
def samples() -> tuple[RecordedSample, ...]:
    """The recorded solutions."""
    entries = IMPORTERS["sample_rows"](DATA / SAMPLES)
    return tuple(one for one in entries if isinstance(one, RecordedSample))


@cache
def ungated() -> tuple[AnswerGroups, ...]:
    """One pool a problem, without a look at the steps."""
    return group_answers(samples())


@cache
def gated() -> tuple[AnswerGroups, ...]:
    """The same pools with what the gates refuse."""
    return group_answers(samples(), refused=refused)


@cache
def measured() -> tuple[AccuracyCurve, ...]:
    """Every method at every number of samples."""
    return accuracy_curves(ungated(), Subsets(BUDGETS, USUAL.subsets, USUAL.seed))


@cache
def accuracies() -> pd.DataFrame:
    """The same with intervals."""
    return accuracy_table(measured(), fewest=USUAL.fewest, bootstrap=BOOTSTRAP)


def reproduced() -> Iterator[tuple[str, float, float]]:
    """Name, reference, ours; where scores are equal the reference takes the first recorded."""
    ours = accuracies().set_index(["method", "aggregation", "n"])["accuracy"]
    for (method, aggregation, size), reference in REFERENCE.items():
        label = f"{method_label(method, aggregation)}, N = {size}"
        yield label, reference, float(ours[method, aggregation, size])
        if method == BEST:
            yield f"{label}, ties to the first", reference, first_best(ungated(), aggregation)


def first_best(found: Sequence[AnswerGroups], aggregation: str) -> float:
    """Best-of-N over all samples in recorded order, equal scores to the first."""
    right = []
    for one in found:
        scores = np.where(one.answered, one.scores[aggregation], -np.inf)
        right.append(one.correct[np.argmax(scores)])
    return float(np.mean(right))


@cache
def all_scored(found: tuple[AnswerGroups, ...]) -> Mapping[tuple[str, str], FloatArray]:
    """How right each way to score everything is, [problem]."""
    return full_scoring(found, subsets=USUAL.subsets, seed=USUAL.seed)


@cache
def selected(
    found: tuple[AnswerGroups, ...], aggregation: str, settings: SolutionSettings
) -> dict[str | float, ChosenSettings]:
    """Every goal's problems under settings that the other half chose.

    A goal is a way to score everything, to be as accurate as, or a number of calls.
    """
    targets = all_scored(found)
    goals: dict[str | float, Goal] = {
        method: settings.reaching(targets[method, aggregation]) for method in (BEST, WEIGHTED)
    }
    goals |= {most: spend(most) for most in ALLOWED}
    chosen = choose_settings(
        found,
        settings.policies(aggregation),
        settings.thresholds,
        list(goals.values()),
        halving=settings.halving,
    )
    return dict(zip(goals, chosen, strict=True))


def spend(most: float) -> Goal:
    """The most accurate among the settings that make at most ``most`` calls a problem on average.

    Equally accurate: the fewest calls. Where none does: the fewest calls.
    """

    def goal(right: FloatArray, calls: FloatArray, known: FloatArray) -> Pick:
        cost, accuracy = (
            np.round(values[:, :, known].mean(axis=-1), DIGITS) for values in (calls, right)
        )
        accuracy = np.where(cost <= max(most, float(cost.min())), accuracy, -np.inf)
        best = np.argmin(np.where(accuracy == accuracy.max(), cost, np.inf))
        policy, threshold = np.unravel_index(int(best), cost.shape)
        return Pick(int(policy), int(threshold))

    return goal


def until_settled(found: Sequence[AnswerGroups], aggregation: str) -> Spent:
    """The weighted vote in recorded order, stopped when no unknown score could change its answer.

    What unknown scores are expected to be does not matter then.
    """
    policy = CallPolicy(aggregation, exponent=1.0, weight=1.0, order="recorded")
    own = pad_answers(found, aggregation=aggregation, order=policy.order)
    prior = mean_score(own, train=np.ones(len(found), dtype=np.bool_))
    return stop(follow(own, policy, prior), np.inf)


def section() -> Iterator[str]:
    """The measurements as Markdown."""
    yield "## Solutions with step scores: MATH-500, 32 samples a problem\n"
    yield from _records()
    yield from _references()
    yield from _by_size()
    yield from _selective()
    yield from _parts()
    yield from _spending()
    yield from _quintiles()
    yield from _gates()
    yield from _agreement()
    yield from recorded_llama_runs.section()


def figures(folder: Path) -> tuple[Path, ...]:
    """Accuracy against calls and against step scores."""
    shown = accuracies()
    shown = shown[shown["aggregation"].isin(["", "last", "prod"]) & (shown["method"] != PASS)]
    rows = [
        {
            "method": SELECTIVE,
            "aggregation": aggregation,
            **_ends(mean_interval(chosen.outcome.right, BOOTSTRAP)),
            "calls": float(chosen.outcome.calls.mean()),
            "steps": float(chosen.outcome.steps.mean()),
        }
        for aggregation in ("last", "prod")
        for goal, chosen in selected(gated(), aggregation, USUAL).items()
        if goal in ALLOWED
    ]
    return accuracy_against_cost(
        pd.concat([shown, pd.DataFrame(rows)], ignore_index=True),
        folder / "recorded-samples",
        title="MATH-500, up to 32 recorded samples: what is scored, and what it gives",
    )


def _records() -> Iterator[str]:
    held = sample_coverage(ungated())
    steps = sum(float(pool.steps[pool.answered].sum()) for pool in ungated())
    rows = recorded.records(SAMPLES)
    flags = Counter(one["flag"] for one in rows if one.get("flag"))
    changed = Counter(one["correct"] for one in rows if one["correct"] != one["correct_repo"])
    yield (
        f"Records: `{SAMPLES}`, {held.samples:,} solutions of {held.problems:,} problems, "
        f"{held.samples // held.problems} a problem. No answer: {held.unanswered} (never chosen, "
        f"no call). Answer without step scores: {held.unscored}. A verifier call scores one "
        f"solution, {steps / (held.samples - held.unanswered):.1f} steps on average. "
        f"Intervals are 95 %, bootstrapped over problems; they leave out that settings were "
        f"chosen, and that many rows are compared.\n"
    )
    flagged = " and ".join(f"{count:,} `{flag}`" for flag, count in flags.items())
    yield (
        f"Flagged: {flagged} ({100 * flags.total() / len(rows):.0f} %). Of these solutions "
        f"upstream kept the numbered items only: what stood before them is in no step, so step "
        f"counts and scores are of a part, and the gates saw a part. They stay in; what leaving "
        f"them out does stands with the reference values and with the gates. `correct` is not "
        f"upstream's grade but was graded again, as upstream had cut golds down to a number: "
        f"{changed.total():,} differ, {changed[True]:,} of them right now and wrong upstream.\n"
    )


def _references() -> Iterator[str]:
    yield "| | reference | ours | difference, points |"
    yield "| --- | ---: | ---: | ---: |"
    for label, reference, ours in reproduced():
        yield row((label, f"{reference:.3f}", f"{ours:.3f}", f"{100 * (ours - reference):+.2f}"))
    tied = np.mean([_tied_best(pool) for pool in ungated()])
    yield (
        f"\nOn average {tied:.1f} of the solutions of a problem share the highest last score. The "
        f"reference takes the first recorded one of them; every other figure on this page is the "
        f"expectation over a random one.\n"
    )
    yield from _without_flagged()


def _without_flagged() -> Iterator[str]:
    """The same methods where only whole solutions are taken, and on as many of all."""
    pairs = [(one, kept) for one, kept in zip(gated(), whole(gated()), strict=True) if len(kept)]
    left = sum(len(kept) for _, kept in pairs)
    yield (
        f"Without the flagged solutions {left:,} of {len(pairs)} problems are left, "
        f"{left / len(pairs):.1f} a problem. All of these, against as many random ones of the same "
        f"problems with the flagged ones, accuracy in %:\n"
    )
    yield row(("", "without flagged", "as many of all", "difference, points"))
    yield "| --- | --- | --- | --- |"
    for method, aggregation in dict.fromkeys(key[:2] for key in REFERENCE):
        values = np.array([_at_size(method, aggregation, *pair) for pair in pairs])
        yield row(
            (
                method_label(method, aggregation),
                *(interval_text(mean_interval(own, BOOTSTRAP), scale=100) for own in values.T),
                interval_text(
                    paired_difference(*values.T, bootstrap=BOOTSTRAP), scale=100, signed=True
                ),
            )
        )
    yield ""


def _at_size(
    method: str, aggregation: str, pool: AnswerGroups, kept: AnswerGroups
) -> tuple[float, float]:
    """How right all of ``kept`` is, and as many of ``pool``."""
    how = Subsets((len(kept),), USUAL.subsets, USUAL.seed)
    found = [expected_right(method, aggregation, one, how) for one in (kept, pool)]
    return float(found[0][0]), float(found[1][0])


def whole(found: Sequence[AnswerGroups]) -> tuple[AnswerGroups, ...]:
    """The pools without flagged solutions; some are then empty."""
    kept: dict[str, list[bool]] = {}
    for one in recorded.records(SAMPLES):
        kept.setdefault(one["unique_id"], []).append(not one.get("flag"))
    return tuple(pool.take(np.array(kept[pool.problem_id])) for pool in found)


def _by_size() -> Iterator[str]:
    yield "Accuracy in % of N random ones of the 32 samples; pass@N and best-of-N exactly, votes"
    yield f"as means over {USUAL.subsets} nested random subsets a problem, exactly at 1 and 32:\n"
    yield row(("", *(f"N = {size}" for size in BUDGETS)))
    yield "| --- |" + " ---: |" * len(BUDGETS)
    for (method, aggregation), own in accuracies().groupby(["method", "aggregation"], sort=False):
        cells = [interval_text(_interval(one), scale=100) for _, one in own.iterrows()]
        yield row((method_label(str(method), str(aggregation)), *cells))
    asked = accuracies()
    asked = asked[(asked["method"] == BEST) & (asked["aggregation"] == "last")]
    for label, column in (("verifier calls", "calls"), ("step scores", "steps")):
        yield row((f"{label} of every scored row", *(f"{value:.1f}" for value in asked[column])))
    yield ""


def _selective() -> Iterator[str]:
    yield "### Which solutions to score first\n"
    yield (
        "All 32 solutions are generated and the verifier is asked about some: first about the "
        "leading answer and its closest rival, the shortest or not refused solutions of them "
        "first, until the answer is sure enough. Exponent, prior weight, order and threshold are "
        "chosen on one half of the problems and scored on the other "
        f"({USUAL.repetitions} random halvings, both ways): the fewest calls among those that are "
        f"wrong on at most {100 * USUAL.lost:g} % of the problems where scoring everything is "
        "right, else among those that are so least often. The grid itself, and that losses and "
        "not accuracies are compared, were seen on these very problems.\n"
    )
    undecided = 100 * np.mean([not pool.unanimous for pool in gated()])
    head = ("target, all 32 scored", "its accuracy, %", "selective, %", "difference, points")
    yield row((*head, "to majority, points", "calls", "step scores"))
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    made = compared()
    for (_, aggregation), one in made.items():
        yield row(_reached(one, selected(gated(), aggregation, USUAL)[one.method]))
    every = next(iter(made.values()))
    yield (
        f"\nScoring everything takes {every.target_calls:.1f} calls a problem, and "
        f"{every.open_calls:.1f} if the problems on which all solutions agree, "
        f"{100 - undecided:.0f} %, are not asked about: no score can change their answer, and no "
        f"method is needed for that.\n"
    )
    yield from _reaching()
    yield from _against_random()
    yield "\nWhat was chosen most often, and in how many of the halves:\n"
    for aggregation in AGGREGATIONS:
        chosen = selected(gated(), aggregation, USUAL)[BEST]
        (setting, times), halves_ = chosen.settings.most_common(1)[0], chosen.settings.total()
        policy = setting.policy
        yield (
            f"- {method_label(BEST, aggregation)}: exponent {policy.exponent:g}, weight "
            f"{policy.weight:g}, {policy.order} first, threshold {setting.threshold:g} "
            f"({times} of {halves_})"
        )
    yield ""


@cache
def compared() -> Mapping[tuple[str, str], Savings]:
    """Selection against each way to score everything."""
    return {
        key: against_full(
            gated(),
            right,
            selected(gated(), key[1], USUAL)[key[0]],
            name=key,
            bootstrap=BOOTSTRAP,
        )
        for key, right in all_scored(gated()).items()
    }


def _reached(one: Savings, chosen: ChosenSettings) -> tuple[str, ...]:
    ahead = paired_difference(chosen.outcome.right, majority(gated()), bootstrap=BOOTSTRAP)
    return (
        method_label(one.method, one.aggregation),
        interval_text(one.target, scale=100),
        interval_text(one.accuracy, scale=100),
        interval_text(one.difference, scale=100, signed=True),
        interval_text(ahead, scale=100, signed=True),
        interval_text(one.calls, digits=2),
        interval_text(one.steps),
    )


def _reaching() -> Iterator[str]:
    """What came of aiming at each way to score everything, on the other half."""
    made = list(compared().values())
    level = sum(one.difference.value >= 0.0 for one in made)
    below = sum(one.difference.high < 0.0 for one in made)
    yield (
        f"On problems that did not choose, {level} of {len(made)} targets are reached. {below} of "
        f"the intervals of the difference lie below 0, and the lowest of them goes down to "
        f"{100 * min(one.difference.low for one in made):+.1f} points: so much may be lost.\n"
    )
    for one in made:
        calls, gap = one.calls.value, 100 * one.difference.value
        yield (
            f"- {method_label(one.method, one.aggregation)}, 32 scored: "
            f"{'reached' if gap >= 0 else 'not reached'} ({gap:+.2f} points), with {calls:.2f} "
            f"calls ({100 * calls / one.target_calls:.0f} % of all, "
            f"{100 * calls / one.open_calls:.0f} % of those where solutions disagree)"
        )


def _against_random() -> Iterator[str]:
    """The calls that random best-of-k makes for what selection reaches."""
    for aggregation in ("prod", "last"):
        chosen = selected(gated(), aggregation, USUAL)[BEST].outcome
        reached, calls = float(chosen.right.mean()), float(chosen.calls.mean())
        own = [one for one in measured() if one.aggregation == aggregation]
        points = pareto_frontier(
            np.concatenate([one.calls.mean(axis=0) for one in own]),
            np.concatenate([one.right.mean(axis=0) for one in own]),
        )
        needed = calls_at_accuracy(points, reached)
        verdict = "never get there" if needed is None else f"need {needed:.1f} calls"
        yield (
            f"\nFor the {100 * reached:.1f} % that selection reaches with {calls:.2f} calls by "
            f"{aggregation}, best-of-k and the weighted vote over k random solutions {verdict}; "
            f"they also generate no more than k, which is not counted here."
        )


def _parts() -> Iterator[str]:
    yield "What each part adds, by product; the target is best-of-32:\n"
    yield row(("", "accuracy, %", "difference to best-of-32, points", "calls", "step scores"))
    yield "| --- | --- | --- | --- | --- |"
    found, right = gated(), all_scored(gated())[BEST, "prod"]
    settled = until_settled(found, "prod")
    unanimous = np.array([float(pool.unanimous) for pool in found])
    weighted = all_scored(found)[WEIGHTED, "prod"]
    rows = {
        "weighted vote, all scored but unanimous problems": (
            weighted,
            np.array([float(one.answered.sum()) for one in found]) * (1 - unanimous),
            np.array([float(one.steps[one.answered].sum()) for one in found]) * (1 - unanimous),
        ),
        "weighted vote, until no score could change it": tuple(settled),
    }
    variants = {
        GRID: FEWER,
        RECORDED: replace(FEWER, orders=("recorded",)),
        "exponent 1 only": replace(FEWER, exponents=(1.0,)),
    }
    for label, settings in variants.items():
        rows[label] = tuple(selected(found, "prod", settings)[BEST].outcome)
    for label, (own, calls, steps) in rows.items():
        difference = paired_difference(own, right, bootstrap=BOOTSTRAP)
        yield row(
            (
                label,
                interval_text(mean_interval(own, BOOTSTRAP), scale=100),
                interval_text(difference, scale=100, signed=True),
                interval_text(mean_interval(calls, BOOTSTRAP), digits=2),
                interval_text(mean_interval(steps, BOOTSTRAP)),
            )
        )
    same = np.array_equal(np.round(settled.right, 9), np.round(weighted, 9))
    yield (
        f"\nStopping when no score could change the answer gives the weighted vote's answer on "
        f"{'every problem' if same else 'not every problem'}. The chosen rows are means over "
        f"{FEWER_REPETITIONS} halvings instead of {USUAL.repetitions}: so the whole grid's "
        f"accuracy is {100 * _accuracy(FEWER):.2f} % instead of {100 * _accuracy(USUAL):.2f} %.\n"
    )
    plain, grid = (rows[label][0] for label in (RECORDED, GRID))
    gain = paired_difference(grid, plain, bootstrap=BOOTSTRAP)
    yield (
        f"Asking about the shortest or not refused solutions first, instead of in recorded order, "
        f"changes accuracy by {interval_text(gain, scale=100, signed=True)} points and calls from "
        f"{rows[RECORDED][1].mean():.2f} to {rows[GRID][1].mean():.2f}.\n"
    )


def _accuracy(settings: SolutionSettings) -> float:
    """Of selection that aims at best-of-32 by product."""
    return float(selected(gated(), "prod", settings)[BEST].outcome.right.mean())


def _spending() -> Iterator[str]:
    yield "Accuracy in % where a setting is chosen for at most so many calls a problem, and the"
    yield "calls that it then makes on the other half:\n"
    yield row(("calls allowed", *(f"{one:g}" for one in ALLOWED)))
    yield "| --- |" + " ---: |" * len(ALLOWED)
    for aggregation in AGGREGATIONS:
        own = selected(gated(), aggregation, USUAL)
        cells = [own[most].outcome for most in ALLOWED]
        accuracy = [interval_text(mean_interval(one.right, BOOTSTRAP), scale=100) for one in cells]
        yield row((f"selective, {aggregation}", *accuracy))
        yield row(("calls made", *(f"{one.calls.mean():.2f}" for one in cells)))
    yield f"\nThe majority, which makes none: {_percent(majority(gated()))}.\n"


def _quintiles() -> Iterator[str]:
    first, second = halves(gated())
    rates = [np.array([one.correct.mean() for one in half]) for half in (first, second)]
    bins = difficulty_bins(rates[0], bins=QUINTILES, seed=USUAL.seed)
    agreement = bin_agreement(*rates, bins=QUINTILES, seed=USUAL.seed)
    yield "### By difficulty\n"
    yield (
        f"Quintiles by pass@1 of a random half of each problem's samples (equal sizes by rank, "
        f"ties by seed); everything else is of the other half, 16 samples. Two halves put "
        f"{100 * agreement.same_bin:.0f} % of the problems into the same quintile (rank "
        f"correlation {agreement.spearman or 0.0:.2f}).\n"
    )
    yield row(("", *(f"{number}" for number in range(1, QUINTILES + 1)), "all"))
    yield "| --- |" + " ---: |" * (QUINTILES + 1)
    lines = {
        method_label(one.method, one.aggregation): one.right[:, 0]
        for one in accuracy_curves(second, Subsets((len(second[0]),), 1, USUAL.seed))
    }
    lines = {ONE: rates[1], **lines}
    for aggregation in ("last", "prod"):
        outcome = selected(second, aggregation, FEWER)[BEST].outcome
        lines[f"selective, {aggregation}"] = outcome.right
        lines[f"calls of selective, {aggregation}"] = outcome.calls
    # All of one size first: the draws of one number of problems are kept, not those of two.
    all_problems = {label: mean_interval(values, BOOTSTRAP) for label, values in lines.items()}
    for label, values in lines.items():
        scale, digits = (1, 2) if label.startswith("calls") else (100, 1)
        groups = [values[bins == number] for number in range(1, QUINTILES + 1)]
        found = [*(mean_interval(own, BOOTSTRAP) for own in groups), all_problems[label]]
        yield row((label, *(interval_text(own, scale=scale, digits=digits) for own in found)))
    yield (
        f"\n1 is the easiest. Settings are chosen over all quintiles together, as means over "
        f"{FEWER_REPETITIONS} halvings.\n"
    )


def halves(
    found: Sequence[AnswerGroups],
) -> tuple[tuple[AnswerGroups, ...], tuple[AnswerGroups, ...]]:
    """A random half of each problem's samples, and the other half, in recorded order."""
    rng = np.random.default_rng(USUAL.seed)
    masks = [rng.permutation(len(pool)) < len(pool) // 2 for pool in found]
    return (
        tuple(pool.take(mask) for pool, mask in zip(found, masks, strict=True)),
        tuple(pool.take(~mask) for pool, mask in zip(found, masks, strict=True)),
    )


def _gates() -> Iterator[str]:
    yield "### Gates and grading on these solutions\n"
    for label, wrong in (("wrong", True), ("right", False)):
        share, count = refused_share(gated(), wrong=wrong)
        yield f"- {label} solutions with a refused step: {share} % of {count:,}"
    for how in (ONE, MAJORITY):
        every, gain = filtering(gated(), how)
        yield f"- leaving refused solutions out: {how} {every} %, changed by {gain} points"
    uncut = [pool for pool in whole(gated()) if len(pool)]
    for label, wrong in (("wrong", True), ("right", False)):
        share, count = refused_share(uncut, wrong=wrong)
        yield f"- the same without flagged ones, {label} solutions: {share} % of {count:,}"
    yield ""


def _agreement() -> Iterator[str]:
    found, disputed = agreement(distinct(samples()))
    yield (
        f"Distinct answers graded again by our grader: {found.total():,}; recorded and ours agree "
        f"on {found.total() - len(disputed):,}. Where they do not:\n"
    )
    for gold, answer, ours, theirs in disputed:
        yield f"- gold `{gold}`, answer `{answer}`: recorded {theirs}, ours {ours}"
    mixed, split = clusters(ungated())
    yield (
        f"\nVotes go by answers that are plainly equal. Problems in which such an answer "
        f"holds right and wrong solutions: {mixed}; in which right solutions fall into several "
        f"answers: {split}. Were these one, the majority would be right in "
        f"{_percent(merged_majority())} instead of {_percent(majority(ungated()))}.\n"
    )


def distinct(found: Iterable[RecordedSample]) -> dict[tuple[str, str], bool]:
    """Whether each (gold, answer) was recorded as correct."""
    pairs = {}
    for one in found:
        answer = answer_of(one)
        if answer is not None and one.gold is not None:
            pairs[one.gold, answer] = bool(one.correct)
    return pairs


def agreement(
    pairs: Mapping[tuple[str, str], bool],
) -> tuple[Counter[tuple[str, bool]], list[tuple[str, str, str, str]]]:
    """(our status, recorded correct), and the pairs on which the two differ."""
    with Grader(recorded.SECONDS, recorded.WORKERS) as grader:
        grades = grader.grade_many(list(pairs))
    both = zip(grades, pairs.values(), strict=True)
    found = Counter((ours.status, theirs) for ours, theirs in both)
    disputed = [
        (*pair, ours.status, "correct" if theirs else "wrong")
        for (pair, theirs), ours in zip(pairs.items(), grades, strict=True)
        if ours.correct != theirs
    ]
    return found, disputed


def clusters(found: Sequence[AnswerGroups]) -> tuple[int, int]:
    """Problems with an answer both right and wrong, and with several answers that are right."""
    shares = [
        [pool.correct[pool.answers == one].mean() for one in np.unique(pool.answers[pool.answered])]
        for pool in found
    ]
    mixed = sum(any(0.0 < one < 1.0 for one in own) for own in shares)
    return mixed, sum(sum(one > 0.0 for one in own) > 1 for own in shares)


def merged_majority() -> FloatArray:
    """The majority's accuracy, [problem], if all right solutions gave one answer."""
    merged = []
    for pool in ungated():
        votes = Counter(pool.answers[pool.answered & (pool.correct == 0)].tolist())
        totals = [float(pool.correct.sum()), *map(float, votes.values())]
        merged.append(float(leading(np.array(totals), np.eye(len(totals))[0])))
    return np.array(merged)


def _tied_best(pool: AnswerGroups) -> int:
    scores = pool.scores["last"][pool.answered]
    return int((scores == scores.max()).sum())


def _interval(one: pd.Series) -> Interval:
    return Interval(one["accuracy"], one["accuracy_low"], one["accuracy_high"])


def _ends(found: Interval) -> dict[str, float]:
    return {"accuracy": found.value, "accuracy_low": found.low, "accuracy_high": found.high}


def _percent(values: FloatArray) -> str:
    return f"{interval_text(mean_interval(values, BOOTSTRAP), scale=100)} %"
