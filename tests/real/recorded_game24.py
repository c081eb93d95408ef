"""Game of 24 by GPT-4 and GPT-3.5: gates, rankers and searches on recorded trees, as a page's part.

What is measured for the page on recorded runs; the records are not part of the project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from game24_embedding import is_held_out, is_sayable
from game24_notation import TOLERANCE
from game24_ranking import (
    ADAPTIVE,
    DOUBTS,
    FIXED,
    FOLDS,
    FULL,
    RANKERS,
    WANTED,
    Ranked,
    asked,
    by_exact_label,
    by_recorded_value,
    chosen,
    cross_fitted,
    part_of,
    pick,
    settings_chosen,
    threshold,
    transferred,
    while_hopeful,
)
from game24_states import (
    MOVES,
    PASSED,
    UNSAID,
    Visited,
    countdown_counts,
    different_tables,
    gate_counts,
    refused_right_moves,
    visited,
    with_survivors,
)
from game24_trees import (
    Ended,
    RecordedRanks,
    Tree,
    ended,
    gated,
    mean_calls,
    original,
    reproduced,
    rules,
    solved_rates,
    trees,
)
from recorded import row

from selverify.audit.counterfactual import Outcomes, one_by_one, summarise, verify_all
from selverify.audit.judged_lists import by_label
from selverify.audit.orders import ranker_name
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.statistics import Bootstrap
from selverify.search.rules import GatedSettings

BOOTSTRAP = Bootstrap(resamples=2_000, seed=1)
GPT_4, GPT_35 = "gpt-4", "gpt-35"
TREE_OF_THOUGHTS = "princeton-nlp/tree-of-thought-llm"
TARGET_FOUND, TARGET_CALLS = 0.98, 0.5
SOME_CHANCE, LIKELY = 0.0005, 1.0
"""Values: a search goes on with whatever the model gives some chance."""
SHORT = {FULL: "full", RANDOM: "random order", ORACLE: "oracle"}
NAMES = {"likelihood": "log probability of the backbone", "recorded": "recorded = proposal order"}


class Verifier(NamedTuple):
    """A verifier of the records, and the states that it judged."""

    title: str
    ranked: Callable[[], Ranked]
    accepted: str


@dataclass(frozen=True, eq=False)
class Found:
    """What was found on some states: the outcomes by (ranker, allocation), settings chosen."""

    ranked: Ranked
    outcomes: Mapping[tuple[str, str], Outcomes]
    settings: Mapping[tuple[str, str], str]

    @cached_property
    def table(self) -> pd.DataFrame:
        """``summarise`` of all states, by (ranker, allocator)."""
        return self.part([True] * len(self.ranked.asked), *self.outcomes)

    def part(self, kept: Sequence[bool], *keys: tuple[str, str]) -> pd.DataFrame:
        """The same of some states and of some rows."""
        states = [one for one, own in zip(self.ranked.states, kept, strict=True) if own]
        outcomes = {key: part_of(self.outcomes[key], kept) for key in keys}
        found = summarise(states, outcomes, bootstrap=BOOTSTRAP)
        return found.set_index(["ranker", "allocator"])


FIXED_K, K_OF_W, HOPEFUL = "fixed k", "k(w)", "one by one, while doubt is low"
ONE_BY_ONE, ALL = "one by one", "verify-all"


def by_model(model: str) -> list[Visited]:
    """The states that a model's runs visited."""
    return [one for one in visited() if one.whole.model.startswith(model)]


def by_source(repository: str) -> list[Visited]:
    """The states of one repository's logs."""
    return [one for one in visited() if one.row["repo"] == repository]


@cache
def by_labels() -> Ranked:
    """All states under the exact label, each ranked from other puzzles."""
    return cross_fitted(visited(), by_exact_label)


@cache
def by_values() -> Ranked:
    """The states of GPT-4's logs under GPT-4's value, each ranked from other puzzles."""
    return cross_fitted(by_model(GPT_4), by_recorded_value)


VERIFIERS = (
    Verifier("Exact label, all models", by_labels, "24 can still be reached"),
    Verifier(
        "GPT-4's value, GPT-4's logs",
        by_values,
        "the value is at least the threshold that tells right moves from wrong ones best on the "
        "other folds",
    ),
)


@cache
def transfers() -> dict[str, Ranked]:
    """A ranker of one log on another model's; puzzles in both are not trained on."""
    tot, gpt_35 = by_source(TREE_OF_THOUGHTS), by_model(GPT_35)
    hands = {one.hand for one in tot}
    # The threshold of GPT-4's value is chosen on puzzles that the test side does not have.
    value = by_recorded_value([one for one in by_model(GPT_4) if one.hand not in hands])
    return {
        "GPT-4 to GPT-3.5, exact label": transferred(asked(tot, by_label), asked(gpt_35, by_label)),
        "GPT-3.5 to GPT-4, exact label": transferred(asked(gpt_35, by_label), asked(tot, by_label)),
        "GPT-3.5 (own value) to GPT-4, GPT-4's value": transferred(
            asked(gpt_35, by_recorded_value(gpt_35)), asked(tot, value)
        ),
    }


@cache
def measured(ranked: Ranked, rankers: tuple[str, ...] = RANKERS) -> Found:
    """Orders with a fixed k, and the full method with every allocation."""
    outcomes: dict[tuple[str, str], Outcomes] = {}
    settings: dict[tuple[str, str], str] = {}
    for name in rankers:
        choice = chosen(ranked, name, FIXED)
        outcomes[name, FIXED_K] = choice.outcomes
        settings[name, FIXED_K] = settings_chosen(choice)
    choice = chosen(ranked, FULL, ADAPTIVE)
    outcomes[FULL, K_OF_W], settings[FULL, K_OF_W] = choice.outcomes, settings_chosen(choice)
    for name in (FULL, RANDOM):
        hopeful = {f"doubt below {most:g}": while_hopeful(ranked, most, name) for most in DOUBTS}
        choice = pick(ranked, hopeful)
        outcomes[name, HOPEFUL], settings[name, HOPEFUL] = choice.outcomes, settings_chosen(choice)
    for name in (FULL, ORACLE):
        outcomes[name, ONE_BY_ONE] = ranked.ranking(name).outcomes(one_by_one())
    outcomes[FULL, ALL] = ranked.ranking(FULL).outcomes(verify_all())
    return Found(ranked, outcomes, settings)


def section() -> Iterator[str]:
    """The page's part."""
    yield "## Game of 24: GPT-4 and GPT-3.5\n"
    yield from records_used()
    yield from gates()
    yield from rankers()
    yield from transferred_rankers()
    yield from replayed_searches()


def records_used() -> Iterator[str]:
    """Which records, how many, and what is missing of them."""
    found = visited()
    hands = {one.hand for one in found}
    candidates = sum(len(one.row["candidates"]) for one in found)
    yield (
        f"{len(found):,} states of {len(hands)} puzzles with {candidates:,} proposed moves, from "
        f"{len(trees())} logs of tree-of-thought searches (princeton-nlp/tree-of-thought-llm and "
        "microsoft/Everything-of-Thoughts-XoT, MIT). Every candidate has an exact label and the "
        "recorded model's value: none is missing. A value is the mean of its evaluations: sure is "
        "20, likely 1, impossible 0.001."
    )
    yield "\n| log | states | puzzles | moves | pass the gates | states where one passes |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for tree in trees():
        moves = sum(len(one.row["candidates"]) for one in tree.found)
        passed = sum(
            candidate["gate"] in PASSED for one in tree.found for candidate in one.row["candidates"]
        )
        alive = sum(1 for _ in with_survivors(tree.found))
        puzzles = len({one.hand for one in tree.found})
        cells = (tree.name, len(tree.found), puzzles, moves, f"{share(passed, moves)}", alive)
        yield row(cells)


def gates() -> Iterator[str]:
    """The gates against the recorded reasons."""
    counts = gate_counts()
    same = sum(times for (theirs, own), times in counts.items() if theirs == own)
    yield "\n### Gates\n"
    yield (
        f"The gates on exact rational numbers give the recorded reason in {same:,} of "
        f"{counts.total():,} cases and refuse {len(refused_right_moves())} moves of label 1; "
        f"{len(different_tables())} states have another table than recorded. That a decimal stands "
        f"for a value within {float(TOLERANCE):.1%} of it (or {float(TOLERANCE):g}), and for no "
        "whole number but its own, was read off these records."
    )
    yield "\n| recorded | moves | the same | differ |"
    yield "| --- | ---: | ---: | --- |"
    for reason in sorted({theirs for theirs, _ in counts}):
        own = {ours: times for (theirs, ours), times in counts.items() if theirs == reason}
        differ = ", ".join(f"{ours}: {times}" for ours, times in own.items() if ours != reason)
        yield row((reason, sum(own.values()), own.get(reason, 0), differ or "none"))
    yield from countdown()


def countdown() -> Iterator[str]:
    """The domain ``countdown`` itself, where its vocabulary can say the move."""
    counts = countdown_counts()
    said = {key: times for key, times in counts.items() if key[1] != UNSAID}
    unsaid: Counter[str] = Counter()
    for (theirs, own), times in counts.items():
        unsaid[theirs] += times if own == UNSAID else 0
    agree = sum(times for (theirs, own), times in said.items() if theirs == own)
    listed = ", ".join(f"{reason} {times:,}" for reason, times in unsaid.most_common())
    yield (
        "\nThe domain `countdown` has words for whole numbers from 0 to 200. Of "
        f"{counts.total():,} moves at states that no refused move led to it can say "
        f"{sum(said.values()):,}, and its gates give the recorded reason in {agree:,} of these. "
        f"It cannot say (by recorded reason): {listed}."
    )


def rankers() -> Iterator[str]:
    """Rankers trained on some puzzles and asked about others."""
    yield "\n### Rankers, other puzzles\n"
    yield (
        f"Trained on {FOLDS - 1} of {FOLDS} folds of puzzles, asked about the other. Candidates "
        "are what passes the gates. Embeddings are of the pipeline's `countdown-small`, where its "
        "vocabulary can say state and move, beside simple facts of each number; of a move that it "
        "cannot say there are the facts alone. k, k_base, beta, the number of rounds and the "
        f"largest doubt are chosen on the other folds: the fewest calls that find {WANTED:.1%}. "
        "Recorded and proposal order are one, because the models propose a list. To stop by doubt "
        "is no part of the method so far: one move is asked about after the other, while the "
        "learned chance of being rejected is below a limit. Which settings are options, and that "
        "hidden states and facts stand side by side, was decided after a look at these records; "
        "which option is taken was not. Intervals resample puzzles."
    )
    for verifier in VERIFIERS:
        found = measured(verifier.ranked())
        yield f"\n#### {verifier.title}\n"
        yield from described(verifier)
        yield from orders(found)
        yield from allocations(found)
        yield from parts(found)
    yield from targets()


def described(verifier: Verifier) -> Iterator[str]:
    """What is accepted, how many states, how much of them the backbone can say."""
    ranked = verifier.ranked()
    moves = [(one.visited, c.text) for one in ranked.asked for c in one.judged.recorded.candidates]
    said = sum(is_sayable(one, text) for one, text in moves)
    reachable = sum(bool(one.accepted.any()) for one in ranked.states)
    yield (
        f"Accepted: {verifier.accepted}. {len(ranked.asked):,} states with {len(moves):,} "
        f"candidates; {reachable:,} of them hold an accepted move. No verdict is missing. The "
        f"backbone can say {share(said, len(moves))} of the candidates.\n"
    )
    if verifier.ranked is by_values:
        yield f"Thresholds (folds): {thresholds(ranked)}.\n"


def thresholds(ranked: Ranked) -> str:
    """The threshold of each fold, which the others chose."""
    pairs = list(zip(ranked.asked, ranked.folds, strict=True))
    chosen_on = [
        threshold([one.visited for one, own in pairs if own != fold])
        for fold in sorted(set(ranked.folds))
    ]
    return "; ".join(f"{tau:g} ({times})" for tau, times in Counter(chosen_on).most_common())


def orders(found: Found) -> Iterator[str]:
    """Every order, one by one and with a fixed k."""
    table = found.table
    yield "| order | calls to the first accepted | found, fixed k | calls of verify-all's |"
    yield "| --- | --- | --- | --- |"
    for name in RANKERS:
        own = table.loc[name, FIXED_K]
        cells = (told(own, "to_first"), told(own, "found"), told(own, "calls_ratio"))
        yield row((NAMES.get(name, ranker_name(name)), *cells))


def allocations(found: Found) -> Iterator[str]:
    """The full method's allocations, over all states and where verify-all finds a move."""
    table = found.table
    every = table.loc[FULL, ALL]
    yield "\n| order, allocation | found | calls of verify-all's, all states | where it finds one |"
    yield "| --- | --- | --- | ---: |"
    for name, allocation in (
        (FULL, FIXED_K),
        (FULL, K_OF_W),
        (FULL, HOPEFUL),
        (RANDOM, HOPEFUL),
        (FULL, ONE_BY_ONE),
        (ORACLE, ONE_BY_ONE),
    ):
        own = table.loc[name, allocation]
        there = own["calls_where_reachable"] / every["calls_where_reachable"]
        cells = (told(own, "found"), told(own, "calls_ratio"), f"{there:.3f}")
        yield row((f"{SHORT[name]}, {allocation}", *cells))
    for (name, allocation), setting in found.settings.items():
        if name == FULL:
            yield f"\nChosen, {allocation} (folds): {setting}."
        elif allocation == HOPEFUL:
            yield f"\nChosen, {SHORT[name]}, {allocation} (folds): {setting}."


def parts(found: Found) -> Iterator[str]:
    """The full method with k(w) by depth, and by whether the backbone saw the hand."""
    one = [own.visited for own in found.ranked.asked]
    groups = {f"after {depth} moves": [own.depth == depth for own in one] for depth in range(MOVES)}
    held = [is_held_out(own.hand) for own in one]
    groups["hands that the backbone never saw"] = held
    groups["hands that it may have seen"] = [not own for own in held]
    yield "\n| full, k(w) | states | hold an accepted | found | calls of verify-all's |"
    yield "| --- | ---: | ---: | --- | --- |"
    for name, kept in groups.items():
        own = found.part(kept, (FULL, K_OF_W)).loc[FULL, K_OF_W]
        counts = (int(own["states"]), int(own["reachable"]))
        yield row((name, *counts, told(own, "found"), told(own, "calls_ratio")))


def targets() -> Iterator[str]:
    """Whether the target is met, and what keeps it from being met."""
    yield (
        f"\n#### Target: {TARGET_FOUND:.0%} found with at most {TARGET_CALLS:.0%} of the calls\n"
    )
    for verifier in VERIFIERS:
        found = measured(verifier.ranked())
        table = found.table
        every = table.loc[FULL, ALL]
        for allocation in (K_OF_W, HOPEFUL):
            own = table.loc[FULL, allocation]
            there = own["calls_where_reachable"] / every["calls_where_reachable"]
            yield (
                f"- {verifier.title}, {allocation}: found {own['found']:.3f} with {there:.3f} of "
                f"the calls on the states where verify-all finds one "
                f"({met(own['found'], there)}), with {own['calls_ratio']:.3f} of them on all "
                f"states ({met(own['found'], own['calls_ratio'])})."
            )
        oracle = table.loc[ORACLE, ONE_BY_ONE]
        yield (
            f"- {verifier.title}: where nothing is accepted, a search that goes on until it finds "
            "something pays for every candidate, whatever the order: an oracle's order that is "
            f"asked one by one makes {oracle['calls_ratio']:.3f} of the calls on all states. So "
            "what counts there is when to stop, and doubt tells that better than the spread of h."
        )


def met(found: float, calls: float) -> str:
    """In words."""
    return "met" if found >= TARGET_FOUND and calls <= TARGET_CALLS else "missed"


def transferred_rankers() -> Iterator[str]:
    """A ranker of one log on another's."""
    yield "\n### Rankers, another model's log\n"
    yield (
        "Trained on one log, less the puzzles of the other; settings are chosen on half of the "
        "training log, ranked by the other half. GPT-4 is the log of tree-of-thought-llm."
    )
    yield (
        "\n| from, to, verifier | states | calls to the first accepted | in random order | "
        "found, k(w) | calls of verify-all's | found, while doubt is low | calls |"
    )
    yield "| --- | ---: | --- | ---: | --- | --- | --- | --- |"
    for name, ranked in transfers().items():
        found = measured(ranked, (RANDOM, FULL, ORACLE))
        table = found.part([fold == 1 for fold in ranked.folds], *found.outcomes)
        own, hopeful = table.loc[FULL, K_OF_W], table.loc[FULL, HOPEFUL]
        first = (told(own, "to_first"), f"{table.loc[RANDOM, FIXED_K]['to_first']:.2f}")
        cells = (told(own, "found"), told(own, "calls_ratio"))
        more = (told(hopeful, "found"), told(hopeful, "calls_ratio"))
        yield row((name, int(own["states"]), *first, *cells, *more))


def replayed_searches() -> Iterator[str]:
    """Tree of thoughts' search on its own log, then gated competition on the same tree."""
    yield "\n### Searches on the recorded trees\n"
    yield (
        "Tree of thoughts' breadth-first search, run again on its log without gates: the states "
        "that it keeps against those that the log kept. Solved: a kept derivation makes 24."
    )
    yield "\n| log | puzzles | same states | differ by a tie only | solved | in the log | calls |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for tree in trees():
        again = reproduced(tree)
        cells = (again.puzzles, again.same, again.tied, again.solved, again.solved_in_log)
        yield row((tree.name, *cells, f"{again.calls:.1f}"))
    yield (
        "\nThe logs that keep one state break ties at random; a run that keeps the first of them "
        "leaves the recorded tree. A call is a distinct (state, move); tree-of-thought-llm asks "
        "its model three times for each."
    )
    yield from gated_searches()


def gated_searches() -> Iterator[str]:
    """The methods on the trees of GPT-4 that hold more than one state a move."""
    yield (
        "\nThe same trees searched by gated competition; the verifier is GPT-4's recorded value, "
        "the ranker learned its verdicts on other puzzles. A state that the log did not visit has "
        "no recorded proposals: that is a miss, and a search that meets one is touched. Solved "
        "puzzles with the touched ones as failures, as they ended, and as successes; then on the "
        "puzzles that the method leaves untouched, against breadth-first on the same ones. Chosen "
        "are k and the number of rounds with the fewest calls that solve as many puzzles of the "
        "other folds as breadth-first with gates and free check. A move is accepted if its value "
        "gives it some chance; the best is gone on with first. Untouched are mostly easy puzzles: "
        "a search that does not succeed goes on until it leaves the recorded tree, and what it "
        f"would have met there nobody knows. {rejected_ends()}"
    )
    yield (
        "\n| log | method | as failures | as ended | as successes | touched | calls | untouched: "
        "solved | breadth-first | calls | breadth-first |"
    )
    yield f"|{' --- |' * 2}{' ---: |' * 9}"
    for tree in trees():
        if tree.width > 1 and tree.model.startswith(GPT_4):
            for name, method in methods(tree).items():
                yield row((tree.name, name, *compared(method, methods(tree)["breadth-first"])))


def rejected_ends() -> str:
    """Why GPT-3.5's trees are left out."""
    values = [
        candidate.score or 0.0
        for one in by_model(GPT_35)
        if one.depth == MOVES - 1
        for candidate in one.whole.candidates
        if candidate.label
    ]
    some = sum(value >= LIKELY for value in values)
    return (
        f"GPT-3.5's trees are left out: of {len(values)} moves that make 24 its value calls {some} "
        "likely or sure."
    )


@cache
def methods(tree: Tree) -> dict[str, Mapping[str, Ended]]:
    """Every method on a tree: the original, with what is free, and gated competition."""
    ranked = by_values()
    found = {
        "breadth-first": ended(*original(tree, gates=False, checks=False), any_kept=True),
        "breadth-first, gates": ended(*original(tree, gates=True, checks=False), any_kept=True),
        "breadth-first, gates and free check": ended(*original(tree, gates=True, checks=True)),
    }
    reference = float(np.mean([one.dispersion[FULL] for one in ranked.scored]))
    ranker = RecordedRanks(ranked)
    every = {name: gated(tree, own, ranker) for name, own in searches(reference).items()}
    folds = {one.visited.hand: fold for one, fold in zip(ranked.asked, ranked.folds, strict=True)}
    for name in ("gates, verify-all", "gates, proposal order", "full, fixed k", "full, k(w)"):
        own = [done for key, done in every.items() if key.startswith(name)]
        found[name] = by_fold(own, folds, found["breadth-first, gates and free check"])
    return found


def searches(reference: float) -> dict[str, GatedSettings]:
    """The settings that are chosen between, by method."""
    rules_of = {
        "gates, proposal order": rules(SOME_CHANCE, allocation="fixed"),
        "full, fixed k": rules(SOME_CHANCE, allocation="fixed", scorer=FULL),
        "full, k(w)": rules(
            SOME_CHANCE,
            allocation="adaptive",
            scorer=FULL,
            beta=-2.0,
            reference_dispersion=reference,
        ),
    }
    return {"gates, verify-all": rules(SOME_CHANCE)} | {
        f"{name}, {k}, {retries}": replace(own, k_base=k, max_retries=retries)
        for k in (1.0, 2.0)
        for retries in (0, 2)
        for name, own in rules_of.items()
    }


def by_fold(
    options: Sequence[Mapping[str, Ended]], folds: Mapping[str, int], wanted: Mapping[str, Ended]
) -> dict[str, Ended]:
    """Each puzzle under the setting that the other folds choose."""
    found: dict[str, Ended] = {}
    for fold in sorted(set(folds.values())):
        others = [hand for hand in wanted if folds.get(hand, 0) != fold]
        worth = partial(_worth, hands=others, wanted=wanted)
        best = min(options, key=worth)
        found |= {hand: best[hand] for hand in wanted if folds.get(hand, 0) == fold}
    return {hand: found[hand] for hand in wanted}


def _worth(
    own: Mapping[str, Ended], *, hands: Sequence[str], wanted: Mapping[str, Ended]
) -> tuple[int, float]:
    """How many puzzles fewer than wanted are solved, then the calls."""
    lacking = sum(wanted[hand].solved - own[hand].solved for hand in hands)
    return max(0, lacking), mean_calls([own[hand] for hand in hands])


def compared(own: Mapping[str, Ended], other: Mapping[str, Ended]) -> tuple[str, ...]:
    """The cells of a method, beside those of breadth-first on the puzzles it leaves untouched."""
    clean = [hand for hand, one in own.items() if not one.touched]
    cells = [f"{rate:.2f}" for rate in solved_rates(own.values())]
    cells += [f"{len(own) - len(clean)} of {len(own)}", f"{mean_calls(own.values()):.1f}"]
    if not clean:
        return (*cells, "none", "none", "none", "none")
    pair = [[one[hand] for hand in clean] for one in (own, other)]
    cells += [f"{sum(end.solved for end in ends) / len(ends):.2f}" for ends in pair]
    return (*cells, *(f"{mean_calls(ends):.1f}" for ends in pair))


def told(own: pd.Series, column: str) -> str:
    """A value with its interval."""
    low, high = own[f"{column}_low"], own[f"{column}_high"]
    digits = 2 if column == "to_first" else 3
    return f"{own[column]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def share(part: int, whole: int) -> str:
    """A part in percent."""
    return f"{part / whole:.1%}"
