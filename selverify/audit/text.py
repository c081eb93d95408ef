"""Audits of lists and of samples as text for a reader who knows nothing of the method.

Knows: the tables of an audit, and how to lay them out. Does not know: how they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from selverify.audit.block_table import BlockTable
from selverify.audit.judged_lists import ListCoverage
from selverify.audit.list_audit import (
    ADAPTIVE,
    ANY,
    FIRST_K,
    ONE_BY_ONE,
    VERIFY_ALL,
    AuditOption,
    ListAudit,
)
from selverify.audit.orders import LEARNED, LIKELIHOOD, RECORDED, ranker_name
from selverify.audit.records import shown
from selverify.audit.sample_audit import SampleAudit, widest
from selverify.audit.savings import Savings
from selverify.audit.solutions import BEST, WEIGHTED
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.statistics import Interval
from selverify.report.formatting import ranged
from selverify.search.aggregation import AGGREGATIONS

FEW_PROBLEMS = 20
"""Below so many clusters percentile intervals are known to be too narrow."""
MANY_MISSES = 0.03
"""From this share of candidates without a verdict on, an order may owe its rank to them."""
NARROWEST = 14
"""Characters of the names of methods; longer ones are broken where the table fits then."""
_OF_LISTS = (
    "\n[ , ]: 95 % intervals over problems. ( ): range of the choices. Equal scores are asked "
    "about in random order. The oracle knows the verdicts, and no order does better.\n"
    "Intervals do not include the choice of settings and are not corrected for the number of "
    "orders; one without width says nothing, for all values were alike."
)
_OF_LEARNED = (
    "Each learned order was trained on other problems than it is asked about. Its k and "
    "k_base are chosen on states whose scores come from rankers trained on the verdicts "
    "of the very problems that are then scored, so its rows for k and k(w), and the choice "
    "among all orders, may be too good."
)
_OF_SAMPLES = (
    "[ , ]: 95 % intervals over problems. They leave out that settings were chosen, and that "
    "several methods are compared; one without width says nothing, as its problems do not differ."
)
_LAST = (
    "Last N: the largest N that as many problems have samples for as any. An N that too few "
    "problems have samples for is not shown."
)
_SELECTIVE = (
    "\nAiming at the same accuracy with fewer verifier calls: samples are scored one by one, "
    "those of the leading answer and of its closest rival first, until the answer is sure "
    "enough. Settings are chosen on half of the problems and scored on the other half."
)
_SAVED = (
    "All samples are generated either way: what is saved are calls of the verifier. Calls, and "
    "below without the problems whose samples all give one answer: no score can change that one, "
    "and leaving them out needs no method."
)
_bold = partial(Text, style="bold")


def render_lists(found: ListAudit) -> Iterator[RenderableType]:
    """What the log holds, one table for each way to ask, and what follows from them."""
    wanted = f"{100 * found.wanted:g} %"
    yield Text("\n".join(_list_coverage(found)))
    yield _bold("\nAsk one by one, in the given order, until a move is accepted")
    yield _one_by_one(found)
    yield _bold(
        f"\nAsk once, about the first k: the smallest k that finds an accepted move in {wanted} of "
        "the states that hold one, chosen on other problems"
    )
    yield _at_once(found, FIRST_K, "k")
    yield _bold(f"\nAsk once, about k(w): more where the scores are spread; k_base for {wanted}")
    yield _at_once(found, ADAPTIVE, "k_base")
    yield _bold("\nOne by one: calls a state less those of another order, negative if fewer")
    yield _differences(found)
    yield Text(_OF_LISTS)
    if LEARNED & set(found.summary["ranker"]):
        yield Text(_OF_LEARNED)
    yield Text()
    yield from map(_bold, _conclusions(found))


def render_samples(found: SampleAudit) -> Iterator[RenderableType]:
    """What the run holds, accuracy by number of samples, and the calls that selection needs."""
    yield Text("\n".join(_sample_coverage(found)))
    yield _bold("\nAccuracy in % of N random ones of the recorded samples")
    yield _by_size(found)
    yield _bold("\nAt the largest N, with verifier calls and step scores a problem")
    yield _at_last(found)
    yield Text(_LAST)
    if not found.savings:
        yield Text(f"\n{_OF_SAMPLES}\nNothing is said of selective verification: {found.unsaved}.")
        return
    yield _bold(_SELECTIVE)
    yield _selective(found)
    yield Text(f"\n{_OF_SAMPLES} {_SAVED}\n")
    yield from map(_bold, map(_saved, found.savings))


def method_label(method: str, aggregation: str) -> str:
    """A method with how its scores are made of step scores."""
    return f"{method}, {aggregation}" if aggregation else method


def interval_text(
    found: Interval, *, scale: float = 1, digits: int = 1, signed: bool = False
) -> str:
    """A value with its interval in brackets."""
    return ranged(asdict(found), "value", scale=scale, digits=digits, signed=signed)


def _conclusions(found: ListAudit) -> Iterator[str]:
    """What the log says about selective verification, in sentences."""
    (_, best), (_, bound) = *_rows(found, ANY), *_rows(found, ONE_BY_ONE, ORACLE)
    (option, times), chosen = _first(found.chosen[ANY, ANY]), found.chosen[ANY, ANY].total()
    if found.coverage.misses >= MANY_MISSES * found.coverage.candidates:
        yield _unknown(found.coverage)
    yield (
        f"With order and allocation chosen on other problems, an accepted move is found in "
        f"{ranged(best, 'found', scale=100)} % of the states that hold one, for "
        f"{ranged(best, 'calls_ratio', scale=100)} % of verify-all's calls "
        f"({times} of {chosen} choices: {ranker_name(option.ranker).lower()}, {_setting(option)})."
    )
    yield _against_random(found)
    hopeless = _hopeless(bound)
    if hopeless >= 0.005:
        yield (
            f"States without an accepted move take {100 * hopeless:.0f} % of the calls of the best "
            "possible order one by one: no order saves those, only asking fewer times does."
        )
    if found.coverage.problems_reachable < FEW_PROBLEMS:
        yield few_problems(found.coverage)


def few_problems(own: ListCoverage) -> str:
    """What less than ``FEW_PROBLEMS`` problems with an accepted candidate do to intervals."""
    return (
        f"{_number(own.problems_reachable, 'problem')} with an accepted candidate: too few for the "
        "intervals to be trusted; record more problems rather than more states of the same."
    )


def _setting(option: AuditOption) -> str:
    if option.family == ONE_BY_ONE:
        return ONE_BY_ONE
    return f"k = {option.k}" if option.family == FIRST_K else f"k(w) with k_base = {option.k}"


def _one_by_one(found: ListAudit) -> BlockTable:
    table = BlockTable("Order", "Calls a state", "Of verify-all's, %", "To first accepted")
    for _, row in _rows(found, VERIFY_ALL):
        table.add_row("Verify-all", _cell(row, "calls", digits=2), "100", "-")
    for ranker, row in _rows(found, ONE_BY_ONE):
        table.add_row(
            ranker_name(ranker),
            _cell(row, "calls", digits=2),
            _cell(row, "calls_ratio", scale=100),
            _cell(row, "to_first", digits=2),
        )
    return table


def _at_once(found: ListAudit, family: str, setting: str) -> BlockTable:
    table = BlockTable("Order", setting, "Of verify-all's, %", "Found, %")
    for ranker, row in _rows(found, family):
        table.add_row(
            ranker_name(ranker),
            _chosen(found.chosen[ranker, family]),
            _cell(row, "calls_ratio", scale=100),
            _cell(row, "found", scale=100),
        )
    return table


def _differences(found: ListAudit) -> BlockTable:
    table = BlockTable("Order", "Less random order's", "Less recorded order's")
    own = found.differences[found.differences["allocator"] == ONE_BY_ONE]
    rows = {(row["ranker"], row["against"]): row for _, row in own.iterrows()}
    for ranker in dict.fromkeys(own["ranker"]):
        if ranker != RANDOM:
            cells = [rows.get((ranker, other)) for other in (RANDOM, RECORDED)]
            table.add_row(
                ranker_name(ranker), *(_cell(one, "calls", digits=3, signed=True) for one in cells)
            )
    return table


def _against_random(found: ListAudit) -> str:
    table = found.differences
    own = table[
        (table["allocator"] == ONE_BY_ONE)
        & (table["against"] == RANDOM)
        & (table["ranker"] != ORACLE)
    ]
    names = {
        "fewer": own[own["calls_high"] < 0]["ranker"].tolist(),
        "more": own[own["calls_low"] > 0]["ranker"].tolist(),
    }
    parts = [
        f"{_words([ranker_name(name).lower() for name in rankers])} "
        f"{'needs' if len(rankers) == 1 else 'need'} {what} calls"
        for what, rankers in names.items()
        if rankers
    ]
    if not parts:
        return "One by one, no order is told from random order: every interval holds 0."
    return f"One by one, against random order: {'; '.join(parts)} (intervals without 0)."


def _hopeless(oracle: pd.Series) -> float:
    """The share of an order's calls at states without an accepted move."""
    return float(
        1
        - oracle["calls_where_reachable"]
        * oracle["reachable"]
        / (oracle["calls"] * oracle["states"])
    )


def _unknown(own: ListCoverage) -> str:
    """What verdicts that were not recorded do to every conclusion."""
    return (
        f"{_share(own.misses, own.candidates)} of the candidates have no verdict, and none of them "
        "can be accepted. Where the verifier stopped at the first accepted one, this alone makes "
        "the recorded order look like the oracle: distrust what follows, and have all candidates "
        "of some problems verified (--complete keeps only states where the accepted move came "
        "last or never)."
    )


def _list_coverage(found: ListAudit) -> Iterator[str]:
    """What was used of the log, and what was missing."""
    own = found.coverage
    yield (
        f"{_number(own.used, 'state')} of {_number(own.problems, 'problem')} "
        f"({_number(own.runs, 'run')}, {_number(own.models, 'model')}), "
        f"{_number(own.candidates, 'distinct candidate')}; one is accepted if {found.rule}."
    )
    yield (
        f"{_share(own.reachable, own.used)} of the states hold an accepted candidate; in "
        f"{_share(own.decided_by_order, own.used)} one stands among others, so that the order "
        "matters."
    )
    if own.repeats:
        yield f"Repeats of a candidate in its list cost no call: {own.repeats:,}."
    if own.disagreeing:
        yield f"Repeats with another verdict than the first, which counts: {own.disagreeing:,}."
    if own.misses:
        yield (
            f"{own.misses:,} of {_number(own.candidates, 'candidate')} "
            f"({_share(own.misses, own.candidates)}), in {_number(own.lists_with_misses, 'state')},"
            f" {'has' if own.misses == 1 else 'have'} no verdict: each costs a call when it is "
            "asked about, and is never accepted."
        )
    else:
        yield "Every candidate has a verdict."
    if 0 < own.without_logprob < own.candidates:
        yield (
            f"{ranker_name(LIKELIHOOD)} is left out: {own.without_logprob:,} of "
            f"{_number(own.candidates, 'candidate')} "
            f"{'has' if own.without_logprob == 1 else 'have'} none."
        )
    if own.left_out:
        yield (
            f"{own.left_out:,} of {_number(own.lists, 'list')} "
            f"{'is' if own.left_out == 1 else 'are'} left out for want of verdicts."
        )


def _chosen(counts: Counter[AuditOption]) -> str:
    """The setting chosen most often and, where others were, how far they reach."""
    sizes = [option.k for option in counts]
    ends = f" ({min(sizes)} to {max(sizes)})" if len(sizes) > 1 else ""
    return f"{_first(counts)[0].k}{ends}"


def _rows(
    found: ListAudit, allocator: str, ranker: str | None = None
) -> Iterator[tuple[str, pd.Series]]:
    for _, row in found.summary[found.summary["allocator"] == allocator].iterrows():
        if ranker in (None, row["ranker"]):
            yield str(row["ranker"]), row


def _first(counts: Counter[AuditOption]) -> tuple[AuditOption, int]:
    return counts.most_common(1)[0]


def _sample_coverage(found: SampleAudit) -> Iterator[str]:
    own = found.coverage
    each = f"{own.fewest:,}" if own.fewest == own.most else f"{own.fewest:,} to {own.most:,}"
    yield (
        f"Run {shown(found.run)}, model {shown(found.model)}: {own.samples:,} samples of "
        f"{own.problems:,} problems, {each} a problem."
    )
    if own.unanswered:
        yield f"{own.unanswered:,} samples give no answer: never chosen, and no call is made."
    if own.unscored:
        yield (
            f"{own.unscored:,} samples that answer have no step scores: they take no part in "
            f"methods that need them."
        )
    yield from _unranked(found.accuracy)
    if found.graded:
        yield f"{found.graded:,} answers did not say whether they are correct: graded by us."
    if found.unsettled:
        yield f"{found.unsettled:,} of these could not be read or compared: taken for wrong."
    if found.savings and found.left_out:
        yield f"{found.left_out:,} problems without all scores are left out of the last table."


def _unranked(accuracy: pd.DataFrame) -> Iterator[str]:
    """Why rows are left out, where the scores of a run cannot serve a method."""
    shown_rows = set(zip(accuracy["method"], accuracy["aggregation"], strict=True))
    ranked = [name for name in AGGREGATIONS if (BEST, name) in shown_rows]
    if ranked and len(ranked) < len(AGGREGATIONS):
        yield (
            "Some step scores lie outside [0, 1]: no row multiplies them, for a product of such "
            "scores is no measure of a solution."
        )
    unvoted = [name for name in ranked if (WEIGHTED, name) not in shown_rows]
    if unvoted:
        yield (
            f"Some scores are negative: no weighted vote by {' or '.join(unvoted)}, in which more "
            "votes would then count for less."
        )


def _by_size(found: SampleAudit) -> BlockTable:
    own = found.accuracy
    sizes = sorted(own["n"].unique().tolist())
    table = BlockTable("Method", *(f"N = {size}" for size in sizes), narrowest=NARROWEST)
    uneven: dict[tuple[int, ...], str] = {}
    for label, rows in _methods(own):
        at = {int(row["n"]): row for _, row in rows.iterrows()}
        cells = [f"{100 * at[size]['accuracy']:.1f}" if size in at else "-" for size in sizes]
        table.add_row(label, *cells)
        counts = tuple(int(at[size]["problems"]) if size in at else 0 for size in sizes)
        if set(counts) != {found.coverage.problems}:
            uneven.setdefault(counts, label)
    for counts, label in uneven.items():
        table.add_row(f"problems: {label}", *map(str, counts), style="dim")
    return table


def _at_last(found: SampleAudit) -> BlockTable:
    columns = ("Method", "Last N", "Accuracy, %", "Calls", "Step scores")
    table = BlockTable(*columns, narrowest=NARROWEST)
    for label, rows in _methods(found.accuracy):
        last = widest(rows)
        costs = f"{last['calls']:.1f}", f"{last['steps']:.0f}"
        table.add_row(label, str(int(last["n"])), _cell(last, "accuracy", scale=100), *costs)
    return table


def _methods(accuracy: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (method, aggregation), rows in accuracy.groupby(["method", "aggregation"], sort=False):
        yield method_label(str(method), str(aggregation)), rows


def _selective(found: SampleAudit) -> BlockTable:
    table = BlockTable(
        *("Instead of scoring all", "Its\naccuracy, %", "Calls, not\nunanimous"),
        *("Selective, %", "Its calls"),
        narrowest=NARROWEST,
    )
    for one in found.savings:
        table.add_row(
            method_label(one.method, one.aggregation),
            _stacked(interval_text(one.target, scale=100)),
            f"{one.target_calls:.1f}\n{one.open_calls:.1f}",
            _stacked(interval_text(one.accuracy, scale=100)),
            _stacked(interval_text(one.calls, digits=2)),
        )
    return table


def _saved(one: Savings) -> str:
    """What selection saves against one way to score everything, in a sentence."""
    calls = one.calls.value
    instead = [
        f"{other:.1f}{text}" + (f" ({100 * calls / other:.0f} %)" if other else "")
        for other, text in (
            (one.target_calls, ""),
            (one.open_calls, " where unanimous problems are not asked about"),
        )
    ]
    return (
        f"{method_label(one.method, one.aggregation)}: {calls:.2f} calls a problem instead of "
        f"{instead[0]}, or of {instead[1]}; accuracy "
        f"{interval_text(one.difference, scale=100, signed=True)} points."
    )


def _cell(
    row: pd.Series | None, name: str, *, scale: float = 1, digits: int = 1, signed: bool = False
) -> str:
    return ranged(row, name, scale=scale, digits=digits, signed=signed)


def _stacked(value: str) -> str:
    """The interval below its value, so that the table fits a terminal."""
    return value.replace(" [", "\n[", 1)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def _words(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
