"""PRM800K: candidate steps that people rated on problems of MATH-500, and orders to verify them in.

What is measured for the page on recorded runs; the records are not part of the project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from recorded import DATA, DOMAIN, row

from selverify.audit.counterfactual import (
    Allocator,
    Outcomes,
    Ranking,
    choose_allocation,
    first_k,
    one_by_one,
    rank_states,
    split_problems,
)
from selverify.audit.encoders import DIMENSION, open_embedder
from selverify.audit.importers import IMPORTERS, Imported
from selverify.audit.judged_lists import JudgedList, ListCoverage, by_label, judge
from selverify.audit.learned_orders import (
    RANKER_SETTINGS,
    HeldOutScores,
    cross_fit,
    labelled,
    learned_ranking,
)
from selverify.audit.log import RecordedList
from selverify.audit.orders import RECORDED, SHORTEST, orders_for
from selverify.experiment.audits import ORACLE, RANDOM, pairwise_accuracy
from selverify.experiment.statistics import Bootstrap, FloatArray, Interval, clustered_mean
from selverify.search.gates import reject
from selverify.training.fit import Epoch
from selverify.training.policy import PLAIN as COMPARED
from selverify.training.policy import LabelledList
from selverify.types import Move, State

FILE = "candidates/prm800k_phase1test_candidates.jsonl.gz"
BOOTSTRAP = Bootstrap(resamples=10_000, seed=81)
FOLDS, REPETITIONS, SEED = 5, 2, 81
EMBEDDERS = ("free", "wordllama", "wordllama+free")
TOLD = {
    "free": "free features",
    "wordllama": "text embeddings",
    "wordllama+free": "both",
}
WANTED, SHARE = 0.98, 0.5
"""The target: so much of what verify-all finds, with so much of its calls."""
BETAS = (-0.5, 0.5)
GATES, COSINE, CHOSEN = "gates", "distance_cosine", "chosen"
FULL = "full h, chosen features"
PLAIN = "full h without L_traj, chosen features"
RANDOM_ORDER, SHORTEST_FIRST = "random", "shortest first"
ONE_BY_ONE, FIRST_K, ADAPTIVE = "one by one", "fixed k", "k(w)"


@dataclass(frozen=True)
class Judged:
    """The lists with their human labels, and what was left out."""

    states: tuple[JudgedList, ...]
    coverage: ListCoverage
    imported: Imported


class Ranked(NamedTuple):
    """One order: [state][move] scores, lower first, and what counterfactual evaluation reads."""

    scores: tuple[FloatArray, ...]
    ranking: Ranking


class Order(NamedTuple):
    """An order where one matters; [mixed list], means over repetitions.

    ``pairs``: share of (right, wrong) pairs in order. ``first``: the chance that the first move is
    right. ``calls``: to the first right move, one by one.
    """

    pairs: FloatArray
    first: FloatArray
    calls: FloatArray


class Refusal(NamedTuple):
    """A candidate that a gate refuses: its state, why, and its human label."""

    state: int
    place: int
    kind: str
    right: bool


@cache
def lists() -> Judged:
    """Every state whose prefix is known."""
    imported = Imported()
    entries = IMPORTERS["prm800k"](DATA / FILE, imported)
    found = [one for one in entries if isinstance(one, RecordedList)]
    return Judged(*judge(found, by_label, complete=True), imported)


@cache
def mixed() -> tuple[int, ...]:
    """Places of the states with a right candidate and a wrong one: there an order matters."""
    states = enumerate(lists().states)
    return tuple(at for at, one in states if one.accepted.any() and not one.accepted.all())


@cache
def splits() -> tuple[tuple[int, ...], ...]:
    """For each repetition the fold of each state, by problem."""
    states = lists().states
    return tuple(split_problems(states, folds=FOLDS, repetitions=REPETITIONS, seed=SEED))


@cache
def embedded(embedder: str) -> tuple[LabelledList, ...]:
    """The states with their embeddings."""
    return tuple(labelled(lists().states, open_embedder(embedder)))


@cache
def fitted(embedder: str, repetition: int) -> tuple[tuple[HeldOutScores, ...], tuple[float, ...]]:
    """Each state's scores by a ranker of other problems, and each fold's held-out error.

    The error is the share of pairs out of order on the problems that the training holds out of
    those it was given, for the epoch that was kept.
    """
    settings = RANKER_SETTINGS.model_copy(update={"seed": SEED + repetition})
    errors = [np.inf] * FOLDS

    def keep_best(fold: int, epoch: Epoch) -> None:
        if epoch.part == "residual" and epoch.validation_loss is not None:
            errors[fold] = min(errors[fold], epoch.validation_loss)

    scored = cross_fit(
        embedded(embedder), splits()[repetition], settings, report=keep_best, also=(COMPARED,)
    )
    return tuple(scored), tuple(errors)


@cache
def choices() -> tuple[tuple[str, ...], ...]:
    """For each repetition and fold the embedder with the lowest held-out error of the training."""
    return tuple(
        tuple(
            min((fitted(name, run)[1][fold], name) for name in EMBEDDERS)[1]
            for fold in range(FOLDS)
        )
        for run in range(REPETITIONS)
    )


def learned(embedder: str, scorer: str) -> tuple[Ranked, ...]:
    """One order a repetition; ``CHOSEN`` takes in each fold the embedder that was chosen."""
    found = []
    for run, folds in enumerate(splits()):
        names = [choices()[run][fold] if embedder == CHOSEN else embedder for fold in folds]
        scored = [fitted(name, run)[0][at] for at, name in enumerate(names)]
        own = tuple(one.scores[scorer] for one in scored)
        found.append(Ranked(own, learned_ranking(lists().states, scored, scorer)))
    return tuple(found)


def unlearned(name: str) -> tuple[Ranked, ...]:
    """An order that needs no training."""
    states = lists().states
    items = [state.recorded for state in states]
    if name == GATES:
        scores = [np.zeros(len(item.candidates)) for item in items]
        for one in refusals():
            scores[one.state][one.place] = 1.0
    else:
        order = orders_for(items, by_label)[name]
        scores = [order(item) for item in items]
    return (Ranked(tuple(scores), rank_states(states, scores)),)


ORDERS: dict[str, Callable[[], tuple[Ranked, ...]]] = {
    RANDOM_ORDER: partial(unlearned, RANDOM),
    "recorded": partial(unlearned, RECORDED),
    SHORTEST_FIRST: partial(unlearned, SHORTEST),
    "gates, refused last": partial(unlearned, GATES),
    "D_type, cosine": partial(learned, "wordllama", "distance_cosine"),
    "D_type, learned": partial(learned, "wordllama", "distance"),
    **{f"residual, {shown}": partial(learned, name, "residual") for name, shown in TOLD.items()},
    **{f"full h, {shown}": partial(learned, name, "hybrid") for name, shown in TOLD.items()},
    FULL: partial(learned, CHOSEN, "hybrid"),
    PLAIN: partial(learned, CHOSEN, "hybrid_without_trajectory"),
    "oracle": partial(unlearned, ORACLE),
}


@cache
def ranked(order: str) -> tuple[Ranked, ...]:
    """The order, once a repetition."""
    return ORDERS[order]()


@cache
def measured(order: str) -> Order:
    """The order on the lists where one matters."""
    states = lists().states
    found = [
        [
            (
                pairwise_accuracy(one.scores[at], states[at].accepted),
                one.ranking.reach[at][1],
                one.ranking.to_first[at],
            )
            for at in mixed()
        ]
        for one in ranked(order)
    ]
    return Order(*np.mean(np.array(found, dtype=np.float64), axis=0).T)


def on_mixed(values: FloatArray) -> Interval:
    """The mean over the lists where an order matters; resamples problems."""
    return _mean(values, [lists().states[at].problem_id for at in mixed()])


def _mean(values: FloatArray, problems: Sequence[str]) -> Interval:
    found = clustered_mean(values, problems, bootstrap=BOOTSTRAP)
    if found is None:
        raise ValueError("given no value, expected some")
    return found


@cache
def refusals() -> tuple[Refusal, ...]:
    """Every candidate that one of the two gates of ``math_steps`` refuses after its prefix."""
    found = []
    for at, judged in enumerate(lists().states):
        state = state_of(judged.recorded)
        for place, one in enumerate(judged.recorded.candidates):
            refused = reject(DOMAIN, state, candidate=DOMAIN.parse(one.text))
            if refused is not None:
                kind = refused.reason.partition(":")[0]
                found.append(Refusal(at, place, kind, bool(judged.accepted[place])))
    return tuple(found)


def state_of(item: RecordedList) -> State:
    """The state after the prefix; steps that the gates would refuse are written down all the
    same."""
    state: State = DOMAIN.initial_state(
        DOMAIN.read(item.question, problem_id=item.problem_id), budget=1
    )
    for text in item.prefix:
        move = DOMAIN.parse(text)
        if isinstance(move, Move):
            state = DOMAIN.apply(state, move)
    return state


def adaptive(k: int, beta: float) -> Allocator:
    """k(w) around k, up to the longest list."""
    return Allocator("adaptive", k_base=k, beta=beta, k_max=longest(), retries=0)


@cache
def longest() -> int:
    """The size of the longest list."""
    return max(len(state.accepted) for state in lists().states)


def families() -> dict[str, dict[tuple[int, float], Allocator]]:
    """The allocations, and the settings among which each fold's are chosen."""
    sizes = range(1, longest() + 1)
    return {
        ONE_BY_ONE: {(1, 0.0): one_by_one()},
        FIRST_K: {(k, 0.0): first_k(k) for k in sizes},
        ADAPTIVE: {(k, beta): adaptive(k, beta) for beta in BETAS for k in sizes},
    }


@cache
def allocated(order: str, family: str) -> tuple[Outcomes, str]:
    """Calls and finds at every state under settings chosen on other folds, and the most chosen."""
    options = {
        setting: _together([one.ranking.outcomes(allocator) for one in ranked(order)])
        for setting, allocator in families()[family].items()
    }
    choice = choose_allocation(options, splits(), wanted=WANTED)
    (k, beta), _ = max(choice.chosen.items(), key=lambda item: item[1])
    return choice.outcomes, f"{k}" + (f", beta {beta:g}" if beta else "")


def _together(found: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(*(np.mean(np.stack(column), axis=0) for column in zip(*found, strict=True)))


class Allocation(NamedTuple):
    """All states under one order and family, against verify-all and the random order.

    ``calls``: a state. ``ratio``: of the calls of verify-all. ``found``: share of the states that
    hold a right candidate in which one is found; ``found_mixed``: of the lists where an order
    matters. ``fewer``: calls a state less those of the random order.
    """

    calls: Interval
    ratio: float
    found: Interval
    found_mixed: Interval
    fewer: Interval
    setting: str


@cache
def allocation(order: str, family: str) -> Allocation:
    """The row of the table."""
    states = lists().states
    problems = [state.problem_id for state in states]
    own, setting = allocated(order, family)
    base, _ = allocated(RANDOM_ORDER, FIRST_K if family == ADAPTIVE else family)
    everything = sum(len(state.accepted) for state in states)
    return Allocation(
        _mean(own.calls, problems),
        float(own.calls.sum()) / everything,
        _mean(own.found, problems),
        on_mixed(own.found[list(mixed())]),
        _mean(own.calls - base.calls, problems),
        setting,
    )


def section() -> Iterator[str]:
    """The section of the page, in Markdown."""
    yield "\n## PRM800K: candidate steps on MATH-500\n"
    yield from _records()
    yield from _ranking()
    yield from _allocations()
    yield from _gates()


def _records() -> Iterator[str]:
    held, coverage = lists(), lists().coverage
    states = held.states
    several = [state for state in states if len(state.accepted) > 1]
    problems = {states[at].problem_id for at in mixed()}
    yield (
        f"Records: {coverage.used:,} states of {coverage.problems} problems with "
        f"{coverage.candidates:,} candidate steps, each rated by a person; about half of the test "
        "problems of phase 1. A rating of 1 or 0 is accepted, -1 is not. That 0 (ambiguous, subtly "
        "misleading, or technically valid and no more) counts as accepted is a choice, and what "
        "strict labels would give cannot be told from rows in which the two are merged. Left out, "
        "or not as it was recorded: "
        + "; ".join(f"{count} {what}" for what, count in held.imported.remarks.most_common())
        + f". Candidates without a rating: {coverage.misses}.\n"
    )
    yield (
        f"Only {len(several)} states have more than one candidate, and in {len(mixed())} of them, "
        f"of {len(problems)} problems, some are right and some are wrong. **Only in these "
        f"{len(mixed())} lists does the order matter**; everywhere else every order finds the same "
        "with any fixed number of calls.\n"
    )
    places = Counter[tuple[bool, bool]]()
    for at in mixed():
        places.update((place == 0, bool(right)) for place, right in enumerate(states[at].accepted))
    shares = [
        places[first, True] / (places[first, True] + places[first, False])
        for first in (True, False)
    ]
    yield (
        "The recorded order is no fair baseline: people were shown alternatives mostly where the "
        f"first candidate had failed. In these lists {shares[0]:.1%} of the first candidates are "
        f"right, and {shares[1]:.1%} of the others. The fair baseline is the random order.\n"
    )


def _ranking() -> Iterator[str]:
    yield "### Does ranking beat random order?\n"
    chosen = Counter(name for run in choices() for name in run)
    yield (
        f"Rankers are trained on the other problems ({FOLDS} folds by problem, {REPETITIONS} "
        "times with other folds and another seed; figures are means). *Text embeddings* are the "
        f"first {DIMENSION} numbers of the static model that the package wordllama carries; *free "
        "features* are a step's length, its numbers, new numbers, equality signs, whether it asks "
        "or answers, and its true and false arithmetic claims. *Chosen features* are in each fold "
        "those with the fewest pairs out of order on problems that the training holds out of its "
        f"own (of {chosen.total()} folds: "
        f"{', '.join(f'{TOLD[name]} in {count}' for name, count in chosen.most_common())}).\n"
    )
    yield (
        "What was not chosen on training folds: rate, epochs, size of the networks, the number of "
        "embedding dimensions and the list of free features were set by hand after looks at these "
        "very lists, with nine settings of the training and nine sets of features tried, TF-IDF "
        "among them. Learned rows are therefore, if anything, too good. That sigma-bar of k(w) is "
        "of the lists with two candidates or more was decided here too: over all lists, most of "
        "which hold one, the others seemed spread, and k(w) asked for many more calls.\n"
    )
    yield "| order | pairs in order | first is right | calls to a right one | less random's |"
    yield "| --- | --- | ---: | ---: | --- |"
    base = measured(RANDOM_ORDER)
    for name in ORDERS:
        own = measured(name)
        cells = (
            name,
            _percent(on_mixed(own.pairs)),
            f"{own.first.mean():.1%}",
            f"{own.calls.mean():.3f}",
            "" if name == RANDOM_ORDER else _signed(on_mixed(own.calls - base.calls)),
        )
        yield row(cells)
    yield from _reading()


def _reading() -> Iterator[str]:
    base = measured(RANDOM_ORDER)
    fewer = {
        name: on_mixed(measured(name).calls - base.calls)
        for name in ORDERS
        if name not in (RANDOM_ORDER, "oracle")
    }
    better = [name for name, gap in fewer.items() if gap.high < 0]
    worse = [name for name, gap in fewer.items() if gap.low > 0]
    full, pairs = fewer[FULL], on_mixed(measured(FULL).pairs)
    yield (
        "\n**Reading.** The full method changes the calls to the first right candidate by "
        f"{_signed(full)} against the random order: {_verdict(full)}. It puts {_percent(pairs)} of "
        f"the pairs in order, {'more' if pairs.low > 0.5 else 'not certainly more'} than half. Of "
        f"{len(fewer)} orders compared with the random one, the whole interval lies on the side of "
        f"fewer calls for: {_listed(better)}; of more calls for: {_listed(worse)}. The intervals "
        "are not corrected for the number of orders.\n"
    )
    yield from _trajectories()
    gap = on_mixed(measured(FULL).pairs - measured(SHORTEST_FIRST).pairs)
    rest = _later_places()
    yield (
        "The one order that needs no training, the shortest step first, puts "
        f"{_percent(on_mixed(measured(SHORTEST_FIRST).pairs))} of the pairs in order, "
        f"and {_percent(rest)} among the candidates after the first, which speaks against its "
        "living on how the lists came about. The likely reason: a short step claims less, and a "
        "step rated 0 counts as right. What was learned is "
        f"{'not shown to be better' if gap.low <= 0 else 'better'} than that (the full method less "
        f"shortest first: {_signed(gap, scale=100, digits=1)} points of pairs).\n"
    )
    distance = on_mixed(measured("D_type, learned").pairs)
    cosine = on_mixed(measured("D_type, cosine").pairs)
    helps = max(distance.low, cosine.low) > 0.5
    yield (
        f"D_type by itself {'helps' if helps else 'is not shown to help'}: {_percent(cosine)} of "
        f"the pairs are in order by the cosine, {_percent(distance)} by the learned distance.\n"
    )


def _trajectories() -> Iterator[str]:
    gap = on_mixed(measured(FULL).pairs - measured(PLAIN).pairs)
    harm = "costs" if gap.high < 0 else "is not shown to change"
    yield (
        f"The trajectory term of the residual's loss {harm} pairs in order: with it "
        f"{_signed(gap, scale=100, digits=1)} points. The likely reason: it asks of the committed "
        "moves, which are right, a score that rises with the steps that are left, and the ranking "
        "asks them for a low one.\n"
    )


def _later_places() -> Interval:
    """Pairs in order by length, without each list's first candidate."""
    own = [
        pairwise_accuracy(ranked(SHORTEST_FIRST)[0].scores[at][1:], lists().states[at].accepted[1:])
        for at in mixed()
    ]
    return on_mixed(np.array(own, dtype=np.float64))


def _allocations() -> Iterator[str]:
    states = lists().states
    reachable = sum(bool(state.accepted.any()) for state in states)
    everything = sum(len(state.accepted) for state in states)
    yield "### Calls\n"
    yield (
        f"All {len(states)} states; verify-all makes {everything:,} calls, "
        f"{everything / len(states):.3f} a state, and finds a right candidate in {reachable}. k "
        "and beta are chosen for each fold on the other folds: the fewest calls among those that "
        f"find {WANTED:.0%} of what verify-all finds there. (The other folds' scores come from "
        "rankers that had seen this one; its labels reach the choice of k no other way.) *One by "
        "one* asks until a candidate is accepted, so it finds everything.\n"
    )
    head = "| order | allocation | most chosen | calls a state | of verify-all's | found |"
    yield f"{head} found where order matters | less random's calls |"
    yield "| --- | --- | --- | --- | ---: | --- | --- | --- |"
    for name in (RANDOM_ORDER, "recorded", SHORTEST_FIRST, FULL, "oracle"):
        for family in families():
            if family == ADAPTIVE and name != FULL:
                continue
            own = allocation(name, family)
            cells = (
                name,
                family,
                own.setting,
                _number(own.calls),
                f"{own.ratio:.1%}",
                _percent(own.found),
                _percent(own.found_mixed),
                "" if name == RANDOM_ORDER else _signed(own.fewer),
            )
            yield row(cells)
    yield from _target()


def _target() -> Iterator[str]:
    rows = {family: allocation(FULL, family) for family in families()}
    met = [
        family for family, own in rows.items() if own.found.value >= WANTED and own.ratio <= SHARE
    ]
    plain = [
        family
        for family in (ONE_BY_ONE, FIRST_K)
        if allocation(RANDOM_ORDER, family).found.value >= WANTED
        and allocation(RANDOM_ORDER, family).ratio <= SHARE
    ]
    yield (
        f"\nThe target, {WANTED:.0%} of what verify-all finds with at most {SHARE:.0%} of its "
        f"calls, is met by the full method with: {_listed(met)}; by the random order with: "
        f"{_listed(plain)}. Most candidates are right, so one by one the saving comes from "
        "stopping at the first accepted one, and little of it from the order: against the random "
        f"one, the oracle's saves {_number(_less(allocation('oracle', ONE_BY_ONE).fewer))} calls a "
        "state. With a fixed k a better order would save more: the oracle's finds all with "
        f"{allocation('oracle', FIRST_K).ratio:.1%} of the calls.\n"
    )


def _gates() -> Iterator[str]:
    states, found = lists().states, refusals()
    everything = sum(len(state.accepted) for state in states)
    wrong = sum(int(np.sum(~state.accepted)) for state in states)
    yield "### Gates\n"
    yield "| refused for | of wrong steps | of right steps | states |"
    yield "| --- | ---: | ---: | ---: |"
    for kind in sorted({one.kind for one in found}):
        own = [one for one in found if one.kind == kind]
        right = sum(one.right for one in own)
        yield (
            f"| {kind} | {len(own) - right} of {wrong} | {right} of {everything - wrong} | "
            f"{len({one.state for one in own})} |"
        )
    lost = [at for at in {one.state for one in found} if _is_lost(at)]
    yield (
        f"\nThe gates refuse {len(found)} of {everything:,} candidates; verify-all behind them "
        f"makes as many calls less, {len(found) / everything:.1%}. States that lose every right "
        f"candidate: {len(lost)}. Ordinary text seldom states arithmetic that can be refuted, so "
        "as a filter the gates hardly matter here. What they refuse and people call right: "
        + "; ".join(
            f"{states[one.state].recorded.state_id}, candidate {one.place + 1} ({one.kind})"
            for one in found
            if one.right
        )
        + ".\n"
    )


def _is_lost(at: int) -> bool:
    """Whether the gates refuse every right candidate of a state that has one."""
    accepted = lists().states[at].accepted
    refused = {one.place for one in refusals() if one.state == at}
    return bool(accepted.any()) and set(np.flatnonzero(accepted).tolist()) <= refused


def _percent(found: Interval) -> str:
    return f"{found.value:.1%} [{found.low:.1%}, {found.high:.1%}]"


def _number(found: Interval) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _signed(found: Interval, *, scale: float = 1.0, digits: int = 3) -> str:
    ends = ", ".join(f"{scale * end:+.{digits}f}" for end in (found.low, found.high))
    return f"{scale * found.value:+.{digits}f} [{ends}]"


def _less(found: Interval) -> Interval:
    return Interval(-found.value, -found.high, -found.low)


def _verdict(gap: Interval) -> str:
    if gap.high < 0:
        return "ranking beats the random order"
    return (
        "ranking is worse than the random order" if gap.low > 0 else "that is no clear difference"
    )


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) if names else "none"
