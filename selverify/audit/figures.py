"""The figures of audits: accepted moves found, or accuracy, against calls of the verifier.

Knows: the tables of an audit. Does not know: how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from selverify.audit.list_audit import ADAPTIVE, FIRST_K, ONE_BY_ONE, ListAudit
from selverify.audit.orders import ranker_name, rankers_in_order
from selverify.audit.sample_audit import SampleAudit, widest
from selverify.audit.solutions import BEST, MAJORITY, PASS, WEIGHTED
from selverify.audit.text import method_label
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.methods import OTHER_COLOUR
from selverify.experiment.statistics import interval_columns
from selverify.report.names import method_colour
from selverify.report.plots import (
    RANKER_COLOURS,
    drawable,
    drawing,
    figure_files,
    log_axis,
    percent_axis,
)

SELECTIVE = "selective"
ORDER_COLOURS = RANKER_COLOURS | {
    "recorded": "#cc79a7",
    "frequency": "#7a5195",
    "shortest": "#8c564b",
    "reject_probability": "#b8860b",
}
METHOD_COLOURS = {
    BEST: method_colour("best_of_n"),
    WEIGHTED: method_colour("beam_keep_b"),
    SELECTIVE: method_colour("full"),
    MAJORITY: method_colour("majority"),
    PASS: method_colour("oracle"),
}
MOST_BANDS = 5
"""Bands of more orders hide each other; their ends are in the table of the curves."""
ROOM = 20
"""Per cent of verify-all's calls that a number needs between the axis and its interval."""
_PANELS = {
    FIRST_K: "The first k at once, k = 1, 2, ...",
    ADAPTIVE: "k(w) at once, k_base = 1, 2, ...",
}
_CROSS: dict[str, Any] = {"marker": "X", "markersize": 7, "color": "#222222"}
_STAR: dict[str, Any] = {"marker": "*", "markersize": 10, "color": ORDER_COLOURS[ORACLE]}
_CALLS = "Calls, % of verify-all's"
_COSTS = {"calls": "Verifier calls a problem", "steps": "Step scores a problem"}
_DASHES = {"prod": "-", "last": "--", "min": ":"}


def found_against_calls(found: ListAudit, stem: Path, *, title: str) -> tuple[Path, Path]:
    """What an order costs one by one, and what it finds if only some moves are verified.

    Left, the calls until a move is accepted, as a share of verify-all's, with 95 % intervals; its
    names are the legend. Right, the share of the states that hold an accepted move in which one is
    found, for the first k and for k(w), with 95 % bands; of more orders than ``MOST_BANDS`` random
    order alone has one. The cross is verify-all, the star the oracle with one call a state.

    Args:
        stem: the figures' path without its suffix.

    Returns:
        The SVG and the PNG.
    """
    names = rankers_in_order(found.curves["ranker"].tolist())
    with drawing(stem, 9.6, max(3.6, 1.2 + 0.4 * len(names))) as figure:
        single, *panels = figure.subplots(1, 3, width_ratios=[1, 1.35, 1.35])
        panels[1].sharey(panels[0])
        _one_by_one(single, found.summary, names)
        for axes, (family, name) in zip(panels, _PANELS.items(), strict=True):
            for ranker in names:
                banded = ranker == RANDOM or len(names) <= MOST_BANDS
                _curve(axes, found.curves, ranker, family, banded=banded)
            axes.plot(100, 100, **_CROSS, clip_on=False, zorder=5)
            axes.set(title=name)
        panels[0].set_ylim(top=100.5)
        panels[1].tick_params(labelleft=False)
        percent_axis(panels[0], "States where one is found")
        marks = [("verify-all", _CROSS), ("oracle, k = 1", _STAR)]
        handles = [Line2D([], [], label=label, linestyle="", **own) for label, own in marks]
        panels[0].legend(handles=handles, loc="lower right", handlelength=1)
        for axes in (single, *panels):
            axes.set(xlabel=_CALLS, xlim=(0, 104))
            axes.xaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
        # A file may be called anything, "$" included.
        figure.suptitle(drawable(title), x=0.01, ha="left", size=10, parse_math=False)
    return figure_files(stem)


def sample_points(found: SampleAudit) -> pd.DataFrame:
    """Every method of an audit, and of selective verification what each target took.

    Returns:
        As ``found.accuracy`` (method, aggregation, n, problems, accuracy with its ends, calls and
        steps), then one row a target of selection: method "selective", the target's aggregation,
        n NaN, problems, and the same columns of what selection made of it.
    """
    selective = [
        {
            "method": SELECTIVE,
            "aggregation": one.aggregation,
            "problems": found.coverage.problems - found.left_out,
            **interval_columns("accuracy", one.accuracy),
            "calls": one.calls.value,
            "steps": one.steps.value,
        }
        for one in found.savings
    ]
    return pd.concat([found.accuracy, pd.DataFrame(selective)], ignore_index=True)


def accuracy_against_cost(table: pd.DataFrame, stem: Path, *, title: str) -> tuple[Path, Path]:
    """Left against verifier calls, right against step scores (log scales), 95 % bars on accuracy.

    Methods without verifier calls are level lines at what they reach with the most samples that
    all problems have.

    Args:
        table: as :func:`sample_points` gives.
        stem: the figures' path without its suffix.
        title: a dollar begins no formula; what the font lacks is replaced.

    Returns:
        The SVG and the PNG.
    """
    with drawing(stem, 9.6, 4.2) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (cost, label) in zip(panels, _COSTS.items(), strict=True):
            called = table[table[cost] > 0]
            for (method, aggregation), own in called.groupby(["method", "aggregation"], sort=False):
                _line(axes, own.sort_values(cost), cost, str(method), str(aggregation))
            for method, own in table.groupby("method", sort=False):
                if not (own[cost] > 0).any():
                    height = 100 * float(widest(own)["accuracy"])
                    colour = METHOD_COLOURS[str(method)]
                    axes.axhline(height, color=colour, linewidth=1, label=str(method))
            log_axis(axes, called[cost])
            axes.set(xlabel=label)
        percent_axis(panels[0], "Accuracy")
        panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.suptitle(drawable(title), x=0.01, ha="left", size=10, parse_math=False)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    return figure_files(stem)


def _one_by_one(axes: Axes, table: pd.DataFrame, names: Sequence[str]) -> None:
    rows = table[table["allocator"] == ONE_BY_ONE].set_index("ranker").loc[list(names)]
    cells = 100 * rows[["calls_ratio", "calls_ratio_low", "calls_ratio_high"]].to_numpy(np.float64)
    for place, (ranker, (value, low, high)) in enumerate(zip(names, cells.tolist(), strict=True)):
        colour = _order_colour(ranker)
        axes.plot([low, high], [place, place], color=colour, alpha=0.5)
        axes.plot(value, place, marker="o", color=colour)
        left = low > ROOM
        axes.annotate(
            f"{value:.0f} %",
            (low if left else high, place),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            color=colour,
        )
    axes.set(title="One by one until accepted", ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), [ranker_name(ranker) for ranker in names])
    for label, ranker in zip(axes.get_yticklabels(), names, strict=True):
        label.set_color(_order_colour(ranker))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _curve(axes: Axes, table: pd.DataFrame, ranker: str, family: str, *, banded: bool) -> None:
    if ranker == RANDOM:
        family = FIRST_K  # which k(w) is where all scores are alike
    chosen = table[(table["ranker"] == ranker) & (table["family"] == family)]
    own = chosen.sort_values("setting")
    if own.empty:
        return
    x, y, low, high = _percent(own, "calls_ratio", "found", "found_low", "found_high")
    if ranker == ORACLE:  # its first call finds what there is
        axes.plot(x[0], y[0], **_STAR, clip_on=False)
        return
    axes.plot(x, y, marker="o", markersize=3, color=_order_colour(ranker))
    if banded:
        axes.fill_between(x, low, high, color=_order_colour(ranker), alpha=0.1, linewidth=0)


def _line(axes: Axes, own: pd.DataFrame, cost: str, method: str, aggregation: str) -> None:
    height, low, high = _percent(own, "accuracy", "accuracy_low", "accuracy_high")
    colour = METHOD_COLOURS.get(method, OTHER_COLOUR)
    chosen: dict[str, Any] = {"linewidth": 2.2, "zorder": 4} if method == SELECTIVE else {}
    axes.errorbar(
        own[cost],
        height,
        yerr=np.stack([height - low, high - height]),
        elinewidth=0.6,
        ecolor=(colour, 0.3),
        color=colour,
        marker="o",
        linestyle=_DASHES.get(aggregation, "-"),
        label=method_label(method, aggregation),
        **chosen,
    )


def _percent(table: pd.DataFrame, *columns: str) -> list[np.ndarray]:
    return [100 * table[column].to_numpy(np.float64) for column in columns]


def _order_colour(ranker: str) -> str:
    return ORDER_COLOURS.get(ranker, OTHER_COLOUR)
