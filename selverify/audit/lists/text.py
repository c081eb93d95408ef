"""An audit as text for a reader who knows nothing of the method.

Knows: the tables of an audit, and how to lay them out. Does not know: how they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from selverify.audit.lists.audit import (
    ADAPTIVE,
    ANY,
    FIRST_K,
    ONE_BY_ONE,
    VERIFY_ALL,
    Audit,
    Option,
)
from selverify.audit.lists.judging import Coverage
from selverify.audit.lists.rankers import LEARNED, RECORDED, ranker_name
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.report.formatting import ranged

FEW_PROBLEMS = 20
"""Below so many clusters percentile intervals are known to be too narrow."""
MANY_MISSES = 0.03
"""From this share of candidates without a verdict on, an order may owe its rank to them."""


def render(audit: Audit) -> Iterator[RenderableType]:
    """What the log holds, one table for each way to ask, and what follows from them."""
    wanted = f"{100 * audit.wanted:g} %"
    yield Text("\n".join(_coverage(audit)))
    yield _heading("Ask one by one, in the given order, until a move is accepted")
    yield _one_by_one(audit)
    yield _heading(
        f"Ask once, about the first k: the smallest k that finds an accepted move in {wanted} of "
        "the states that hold one, chosen on other problems"
    )
    yield _at_once(audit, FIRST_K, "k")
    yield _heading(f"Ask once, about k(w): more where the scores are spread; k_base for {wanted}")
    yield _at_once(audit, ADAPTIVE, "k_base")
    yield _heading("One by one: calls a state less those of another order, negative if fewer")
    yield _differences(audit)
    yield Text(
        "\n[ , ]: 95 % intervals over problems. ( ): range of the choices. Equal scores are asked "
        "about in random order. The oracle knows the verdicts, and no order does better.\n"
        "Intervals do not include the choice of settings and are not corrected for the number of "
        "orders; one without width says nothing, for all values were alike."
    )
    if LEARNED & set(audit.summary["ranker"]):
        yield Text(
            "Each learned order was trained on other problems than it is asked about. Its k and "
            "k_base are chosen on states whose scores come from rankers trained on the verdicts "
            "of the very problems that are then scored, so its rows for k and k(w), and the choice "
            "among all orders, may be too good."
        )
    yield Text()
    for sentence in conclusions(audit):
        yield Text(sentence, style="bold")


def conclusions(audit: Audit) -> Iterator[str]:
    """What the log says about selective verification, in sentences."""
    (_, best), (_, bound) = *_rows(audit, ANY), *_rows(audit, ONE_BY_ONE, ORACLE)
    (option, times), chosen = _first(audit.chosen[ANY, ANY]), audit.chosen[ANY, ANY].total()
    if audit.coverage.misses >= MANY_MISSES * audit.coverage.candidates:
        yield _unknown(audit.coverage)
    yield (
        f"With order and allocation chosen on other problems, an accepted move is found in "
        f"{ranged(best, 'found', scale=100)} % of the states that hold one, for "
        f"{ranged(best, 'calls_ratio', scale=100)} % of verify-all's calls "
        f"({times} of {chosen} choices: {option_name(option)})."
    )
    yield _against_random(audit)
    hopeless = _hopeless(bound)
    if hopeless >= 0.005:
        yield (
            f"States without an accepted move take {100 * hopeless:.0f} % of the calls of the best "
            "possible order one by one: no order saves those, only asking fewer times does."
        )
    if audit.coverage.problems < FEW_PROBLEMS:
        yield (
            f"{_number(audit.coverage.problems, 'problem')}: too few for the intervals to be "
            "trusted; record more problems rather than more states of the same."
        )


def option_name(option: Option) -> str:
    """An order and an allocation in words."""
    return f"{ranker_name(option.ranker).lower()}, {_setting(option)}"


def _setting(option: Option) -> str:
    if option.family == ONE_BY_ONE:
        return ONE_BY_ONE
    return f"k = {option.k}" if option.family == FIRST_K else f"k(w) with k_base = {option.k}"


def _one_by_one(audit: Audit) -> Table:
    table = _table("Order", "Calls a state", "Of verify-all's, %", "To first accepted")
    for _, row in _rows(audit, VERIFY_ALL):
        table.add_row("Verify-all", _cell(row, "calls", digits=2), "100", "-")
    for ranker, row in _rows(audit, ONE_BY_ONE):
        table.add_row(
            ranker_name(ranker),
            _cell(row, "calls", digits=2),
            _cell(row, "calls_ratio", scale=100),
            _cell(row, "to_first", digits=2),
        )
    return table


def _at_once(audit: Audit, family: str, setting: str) -> Table:
    table = _table("Order", setting, "Of verify-all's, %", "Found, %")
    for ranker, row in _rows(audit, family):
        table.add_row(
            ranker_name(ranker),
            _chosen(audit.chosen[ranker, family]),
            _cell(row, "calls_ratio", scale=100),
            _cell(row, "found", scale=100),
        )
    return table


def _differences(audit: Audit) -> Table:
    table = _table("Order", "Less random order's", "Less recorded order's")
    own = audit.differences[audit.differences["allocator"] == ONE_BY_ONE]
    found = {(row["ranker"], row["against"]): row for _, row in own.iterrows()}
    for ranker in dict.fromkeys(own["ranker"]):
        if ranker != RANDOM:
            cells = [found.get((ranker, other)) for other in (RANDOM, RECORDED)]
            table.add_row(
                ranker_name(ranker), *(_cell(one, "calls", digits=3, signed=True) for one in cells)
            )
    return table


def _against_random(audit: Audit) -> str:
    own = audit.differences[
        (audit.differences["allocator"] == ONE_BY_ONE)
        & (audit.differences["against"] == RANDOM)
        & (audit.differences["ranker"] != ORACLE)
    ]
    names = {
        "fewer": own[own["calls_high"] < 0]["ranker"].tolist(),
        "more": own[own["calls_low"] > 0]["ranker"].tolist(),
    }
    parts = [
        f"{_words([ranker_name(name).lower() for name in found])} {_need(found)} {what} calls"
        for what, found in names.items()
        if found
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


def _unknown(own: Coverage) -> str:
    """What verdicts that were not recorded do to every conclusion."""
    return (
        f"{_share(own.misses, own.candidates)} of the candidates have no verdict, and none of them "
        "can be accepted. Where the verifier stopped at the first accepted one, this alone makes "
        "the recorded order look like the oracle: distrust what follows, and have all candidates "
        "of some problems verified (--complete keeps only states where the accepted move came "
        "last or never)."
    )


def _coverage(audit: Audit) -> Iterator[str]:
    """What was used of the log, and what was missing."""
    own = audit.coverage
    yield (
        f"{_number(own.used, 'state')} of {_number(own.problems, 'problem')} "
        f"({_number(own.runs, 'run')}, {_number(own.models, 'model')}), "
        f"{_number(own.candidates, 'distinct candidate')}; one is accepted if {audit.rule}."
    )
    yield (
        f"{_share(own.reachable, own.used)} of the states hold an accepted candidate; in "
        f"{_share(own.decided_by_order, own.used)} one stands among others, so that the order "
        "matters."
    )
    yield from _missing(own)


def _missing(own: Coverage) -> Iterator[str]:
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
    if own.left_out:
        yield (
            f"{own.left_out:,} of {_number(own.lists, 'list')} "
            f"{'is' if own.left_out == 1 else 'are'} left out for want of verdicts."
        )


def _chosen(counts: Counter[Option]) -> str:
    """The setting chosen most often and, where others were, how far they reach."""
    sizes = [option.k for option in counts]
    ends = f" ({min(sizes)} to {max(sizes)})" if len(sizes) > 1 else ""
    return f"{_first(counts)[0].k}{ends}"


def _rows(
    audit: Audit, allocator: str, ranker: str | None = None
) -> Iterator[tuple[str, pd.Series]]:
    for _, row in audit.summary[audit.summary["allocator"] == allocator].iterrows():
        if ranker in (None, row["ranker"]):
            yield str(row["ranker"]), row


def _first(counts: Counter[Option]) -> tuple[Option, int]:
    return counts.most_common(1)[0]


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(*names: str) -> Table:
    # Four columns with intervals fit into 80 characters without an edge.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", no_wrap=place > 0)
    return table


def _cell(
    row: pd.Series | None, name: str, *, scale: float = 1, digits: int = 1, signed: bool = False
) -> Text:
    # As a plain string its brackets would be read as markup.
    return Text(ranged(row, name, scale=scale, digits=digits, signed=signed))


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def _words(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _need(names: Sequence[str]) -> str:
    return "needs" if len(names) == 1 else "need"
