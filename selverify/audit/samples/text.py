"""An audit of samples as text for a reader who knows nothing of the method.

Knows: the tables of an audit, and how to lay them out. Does not know: how they were made.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from rich import box
from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from selverify.audit.lines import shown
from selverify.audit.samples.audit import SampleAudit, widest
from selverify.audit.samples.savings import Saved
from selverify.experiment.statistics import Interval
from selverify.report.formatting import ranged

INTERVALS = (
    "[ , ]: 95 % intervals over problems. They leave out that settings were chosen, and that "
    "several methods are compared; one without width says nothing, as its problems do not differ."
)
LAST = (
    "Last N: the largest N that as many problems have samples for as any. An N that too few "
    "problems have samples for is not shown."
)
NARROWEST = 14
"""Characters of the names of methods; longer ones are broken."""
FREE = (
    "All samples are generated either way: what is saved are calls of the verifier. Calls, and "
    "below without the problems whose samples all give one answer: no score can change that one, "
    "and leaving them out needs no method."
)


def render(audit: SampleAudit) -> Iterator[RenderableType]:
    """What the run holds, accuracy by number of samples, and the calls that selection needs."""
    yield Text("\n".join(_coverage(audit)))
    yield Text("\nAccuracy in % of N random ones of the recorded samples", style="bold")
    yield _by_size(audit)
    yield Text("\nOf the last N, with verifier calls and step scores a problem", style="bold")
    yield _at_last(audit)
    yield Text(LAST)
    if not audit.saved:
        yield Text(f"\n{INTERVALS}\nNothing is said of selective verification: {audit.unsaved}.")
        return
    yield Text(
        "\nAiming at the same accuracy with fewer verifier calls: samples are scored one by one, "
        "those of the leading answer and of its closest rival first, until the answer is sure "
        "enough. Settings are chosen on half of the problems and scored on the other half.",
        style="bold",
    )
    yield _selective(audit)
    yield Text(f"\n{INTERVALS} {FREE}\n")
    for one in audit.saved:
        yield Text(conclusion(one), style="bold")


def conclusion(one: Saved) -> str:
    """What selection saves against one way to score everything, in a sentence."""
    label, calls = method_label(one.method, one.aggregation), one.calls.value
    return (
        f"{label}: {calls:.2f} calls a problem instead of {one.target_calls:.1f}"
        f"{_share(calls, one.target_calls)}, or of {one.open_calls:.1f} where unanimous problems "
        f"are not asked about{_share(calls, one.open_calls)}; accuracy "
        f"{told(one.difference, scale=100, signed=True)} points."
    )


def _share(part: float, whole: float) -> str:
    return f" ({100 * part / whole:.0f} %)" if whole else ""


def method_label(method: str, aggregation: str) -> str:
    """A method with how its scores are made of step scores."""
    return f"{method}, {aggregation}" if aggregation else method


def told(found: Interval, *, scale: float = 1, digits: int = 1, signed: bool = False) -> str:
    """A value with its interval in brackets."""
    row = pd.Series({"value": found.value, "low": found.low, "high": found.high})
    return ranged(row, "value", scale=scale, digits=digits, signed=signed)


def _coverage(audit: SampleAudit) -> Iterator[str]:
    own = audit.coverage
    each = f"{own.fewest:,}" if own.fewest == own.most else f"{own.fewest:,} to {own.most:,}"
    yield (
        f"Run {shown(audit.run)}, model {shown(audit.model)}: {own.samples:,} samples of "
        f"{own.problems:,} problems, {each} a problem."
    )
    if own.unanswered:
        yield f"{own.unanswered:,} samples give no answer: never chosen, and no call is made."
    if own.unscored:
        yield (
            f"{own.unscored:,} samples that answer have no step scores: they take no part in "
            f"methods that need them."
        )
    if audit.graded:
        yield f"{audit.graded:,} samples did not say whether they are correct: graded by us."
    if audit.saved and audit.left_out:
        yield f"{audit.left_out:,} problems without all scores are left out of the last table."


def _by_size(audit: SampleAudit) -> Table:
    own = audit.accuracy
    sizes = sorted(own["n"].unique().tolist())
    table = _table("Method", *(f"N = {size}" for size in sizes))
    uneven: dict[tuple[int, ...], str] = {}
    for label, rows in _methods(own):
        at = {int(row["n"]): row for _, row in rows.iterrows()}
        cells = [f"{100 * at[size]['accuracy']:.1f}" if size in at else "-" for size in sizes]
        table.add_row(label, *cells)
        counts = tuple(int(at[size]["problems"]) if size in at else 0 for size in sizes)
        if set(counts) != {audit.coverage.problems}:
            uneven.setdefault(counts, label)
    for counts, label in uneven.items():
        table.add_row(f"problems: {label}", *map(str, counts), style="dim")
    return table


def _at_last(audit: SampleAudit) -> Table:
    table = _table("Method", "Last N", "Accuracy, %", "Calls", "Step scores")
    for label, rows in _methods(audit.accuracy):
        last = widest(rows)
        accuracy = ranged(last, "accuracy", scale=100)
        asked = f"{last['calls']:.1f}", f"{last['steps']:.0f}"
        table.add_row(label, str(int(last["n"])), Text(accuracy), *asked)
    return table


def _methods(accuracy: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (method, aggregation), rows in accuracy.groupby(["method", "aggregation"], sort=False):
        yield method_label(str(method), str(aggregation)), rows


def _selective(audit: SampleAudit) -> Table:
    table = _table(
        *("Instead of scoring all", "Its\naccuracy, %", "Calls, not\nunanimous"),
        *("Selective, %", "Its calls"),
    )
    for one in audit.saved:
        table.add_row(
            method_label(one.method, one.aggregation),
            _stacked(told(one.target, scale=100)),
            f"{one.target_calls:.1f}\n{one.open_calls:.1f}",
            _stacked(told(one.accuracy, scale=100)),
            _stacked(told(one.calls, digits=2)),
        )
    return table


def _stacked(value: str) -> Text:
    """The interval below its value, so that the table fits a terminal."""
    return Text(value.replace(" [", "\n[", 1))


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, label in enumerate(names):
        justify: JustifyMethod = "right" if place else "left"
        table.add_column(
            label, justify=justify, no_wrap=place > 0, min_width=None if place else NARROWEST
        )
    return table
