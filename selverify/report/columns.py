"""The columns of every table of the report: headings, values, digits.

Knows: which value each column shows. Does not know: sections, notes, Markdown, HTML, files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

import pandas as pd

from selverify.report.formatting import (
    Column,
    TableRow,
    labelled_method,
    number,
    p_value,
    ranged,
    verbatim,
    with_deviation,
    words,
)
from selverify.report.names import PART_SETS, PRODUCT, STEP, method_name, our_methods

_percent = partial(number, scale=100)
_whole_percent = partial(number, scale=100, digits=0)
_percent_ranged = partial(ranged, scale=100)
_points_ranged = partial(ranged, scale=100, signed=True)
_ratio_ranged = partial(ranged, digits=2)
_percent_deviation = partial(with_deviation, scale=100)


def _lowest_to_highest(record: TableRow, name: str) -> str:
    return f"{_percent(record, f'{name}_min')} to {_percent(record, f'{name}_max')}"


def _mean_of_points(record: TableRow, name: str) -> str:
    mean, least, greatest = (
        number(record, f"{name}_{one}", scale=100, signed=True) for one in ("mean", "min", "max")
    )
    return mean if mean == "-" else f"{mean} ({least} to {greatest})"


def _interval(record: TableRow, name: str) -> str:
    """The ends of a target's interval; a count has none."""
    low, high = (number(record, end, digits=3) for end in ("low", "high"))
    return low if low == "-" else f"{low} to {high}"


def _part_set(record: TableRow, name: str) -> str:
    return PART_SETS[str(record[name])]


def _accuracy_against_hull(record: TableRow, name: str) -> str:
    """In percent; for our methods with the difference to the hull, in points."""
    accuracy, difference = f"{name}.accuracy", f"{name}.difference"
    text = _percent(record, accuracy)
    if record["method"] not in our_methods() or pd.isna(record.get(difference)):
        return text
    return f"{text} ({_percent(record, difference, signed=True)})"


def _settings(record: TableRow, name: str) -> str:
    """One setting a fold; that of a strategy is the method it chose."""
    return "; ".join(method_name(one) for one in str(record[name]).split(" | "))


def _measured(record: TableRow, name: str) -> str:
    """Counts without digits, all else with three."""
    return number(record, name, digits=0 if isinstance(record[name], int) else 3)


def _yes_or_no(record: TableRow, name: str) -> str:
    return "yes" if record[name] else "no"


_METHOD = Column("Method", "method", labelled_method)
_CONFIGURATION = Column("Configuration", "method", labelled_method)
_ACCURACY = Column("Accuracy, %", "accuracy", _percent_ranged)
_CALLS = Column("Verifier calls", "verifier_calls", ranged)
_TOKENS = Column("Generated tokens", "generated_tokens", partial(number, digits=0))

MAIN = (
    _METHOD,
    _ACCURACY,
    _CALLS,
    Column("Step scores", "verifier_steps", number),
    _TOKENS,
    Column("Difference to full, points", "difference", _points_ranged),
    Column("McNemar p", "mcnemar_p", p_value),
)
NEAR_BEST = (
    _METHOD,
    Column("Verifier calls", "verifier_calls", partial(ranged, missing="not reached")),
    Column("Over the hull's calls", "ratio", _ratio_ranged),
)
TARGETS = (
    Column("Target", "text", verbatim),
    Column("Measured", "measured", _measured),
    Column("95 % interval", "measured", _interval),
    Column("Goal", "goal", verbatim),
    Column("Met", "met", _yes_or_no),
)
CLAIMS = (
    Column("Claim", "claim", verbatim),
    Column("Paper", "paper", number),
    Column("Measured", "value", ranged),
    Column("Verdict", "verdict", verbatim),
)
HEADLINE = (
    Column("Full against", "other", labelled_method),
    Column("Calls saved at equal accuracy, %", "calls_saved.value", _points_ranged),
    Column("Accuracy gained at equal calls, points", "accuracy_gained.value", _points_ranged),
    Column("Area under the frontier gained, points", "area_gained.value", _points_ranged),
)
BY_BUDGET = (
    Column("N", "n", verbatim),
    Column("Best baseline", "baseline", labelled_method),
    Column("Its accuracy, %", "baseline_accuracy", _percent),
    Column("Full, %", "accuracy", _percent),
    Column("Gain, points", "gain", partial(ranged, signed=True)),
    Column("Its calls", "baseline_calls", number),
    Column("Calls of full", "verifier_calls", number),
    Column("Ratio", "ratio", partial(number, digits=2)),
)
_FROM_THE_PAPER = (
    Column("Paper: accuracy, %", "paper_accuracy", number),
    Column("Paper: calls", "paper_calls", number),
)
PAPER = (_METHOD, _ACCURACY, _CALLS, *_FROM_THE_PAPER)
ABLATION = (
    _CONFIGURATION,
    _ACCURACY,
    _CALLS,
    Column("Gain over the row above, points", "step", _points_ranged),
    Column("Calls over the row above", "calls_ratio", _ratio_ranged),
    *_FROM_THE_PAPER,
)
LEFT_OUT = (
    _CONFIGURATION,
    _ACCURACY,
    _CALLS,
    _TOKENS,
    Column("Difference to full, points", "step", _points_ranged),
    Column("Calls over full's", "calls_ratio", _ratio_ranged),
)
SEEDS = (
    _METHOD,
    Column("Seeds", "seeds", verbatim),
    Column("Accuracy, %", "accuracy_mean", _percent_deviation),
    Column("Lowest to highest, %", "accuracy", _lowest_to_highest),
    Column("Verifier calls", "calls_mean", with_deviation),
)
AGAINST_BEST = (
    Column("0-shot, %", "one_shot", _percent),
    Column("Best baseline with gates", "baseline", labelled_method),
    Column("Its accuracy, %", "baseline_accuracy", _percent),
    Column("Its calls", "baseline_calls", number),
    Column("Full, %", "accuracy", _percent_ranged),
    Column("Calls of full", "verifier_calls", ranged),
    Column("Gain, points", "step", _points_ranged),
    Column("Calls over the baseline's", "calls_ratio", _ratio_ranged),
)
SETTINGS = (
    _METHOD,
    Column("Settings, one a fold", "settings", _settings),
    Column("Accuracy over repetitions, %", "accuracy_mean", _percent_deviation),
    Column("Calls", "verifier_calls_mean", with_deviation),
)
GATE_SHARES = (
    Column("Gate", "gate", verbatim),
    Column("Reason", "reason", verbatim),
    Column("Refused", "refused", verbatim),
    Column("Share of candidates, %", "share", partial(number, scale=100, digits=2)),
    Column("False rejects", "false_rejects", verbatim),
)
VERIFIER = (
    Column("Measure", "metric", words),
    *(Column(f"By {of}", f"{of}.value", partial(ranged, digits=3)) for of in (STEP, PRODUCT)),
)
BY_DEPTH = (
    Column("Moves so far", "depth", verbatim),
    Column("Rounds", "rounds", verbatim),
    Column("Without a call, %", "trusted", _whole_percent),
    Column("Survivors", "survivors", number),
    Column("sigma(w)", "sigma", partial(with_deviation, digits=2)),
    Column("Margin", "margin", partial(with_deviation, digits=2)),
    Column("k(w)", "k", partial(with_deviation, digits=2)),
    Column("Accepted of verified, %", "accepted", _whole_percent),
)


def accuracy_by_level(levels: Iterable[int]) -> tuple[Column, ...]:
    """Accuracy in percent, one column a level."""
    return (_METHOD, *_by_level(levels, ".accuracy", _percent))


def accuracy_against_hull(levels: Iterable[int]) -> tuple[Column, ...]:
    """The same, and in brackets the difference of our methods to the hull."""
    return (_METHOD, *_by_level(levels, "", _accuracy_against_hull))


def parts_by_level(levels: Iterable[int]) -> tuple[Column, ...]:
    """Which parts of ours a method has, and its accuracy in percent, one column a level."""
    return (Column("Parts", "method", _part_set), *_by_level(levels, ".accuracy", _percent))


def difference_to_hull(levels: Iterable[int]) -> tuple[Column, ...]:
    """The difference to the hull in points with its interval, one column a level."""
    return (_METHOD, *_by_level(levels, ".difference", _points_ranged))


def difference_over_repetitions(levels: Iterable[int]) -> tuple[Column, ...]:
    """That difference on average over the repetitions, with the least and the greatest."""
    return (_METHOD, *_by_level(levels, ".difference", _mean_of_points))


def gain_columns(levels: Iterable[int]) -> tuple[Column, ...]:
    """The difference to the hull of each group of problems, one column a level."""
    shown = Column("Problems", "group", verbatim)
    return (shown, *_by_level(levels, ".difference", _points_ranged))


def _by_level(
    levels: Iterable[int], name: str, write: Callable[[TableRow, str], str]
) -> tuple[Column, ...]:
    numbers = sorted(set(levels))
    return tuple(Column(f"B = {one}", f"{one}{name}", write) for one in numbers)


def bin_columns(
    bins: Iterable[int], name: str, write: Callable[[TableRow, str], str]
) -> tuple[Column, ...]:
    """``name`` of each method, one column a difficulty bin."""
    numbers = sorted(set(bins))
    ends = {numbers[0]: " (easiest)", numbers[-1]: " (hardest)"}
    return (
        _METHOD,
        *(Column(f"{one}{ends.get(one, '')}", f"{one}.{name}", write) for one in numbers),
    )


def ranker_columns(metrics: Iterable[str]) -> tuple[Column, ...]:
    """One column a metric."""
    return (
        Column("Ranker", "ranker", verbatim),
        *(
            Column(metric.replace("_", " "), f"{metric}.value", _ratio_ranged)
            for metric in dict.fromkeys(metrics)
        ),
    )


def ranking_columns(names: Sequence[str]) -> tuple[Column, ...]:
    """Those of ``variants.ranking_table``, three for each of ``names``."""
    groups = (
        (
            Column(f"{name}: accuracy, %", f"{name}.accuracy", _percent_ranged),
            Column(f"{name}: calls", f"{name}.calls", number),
            Column(f"{name}: rank", f"{name}.rank", partial(number, digits=0)),
        )
        for name in names
    )
    return (_METHOD, *chain.from_iterable(groups))
