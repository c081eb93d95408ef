"""The figure of an audit: verifier calls, and accepted moves found for them, order by order.

Knows: the tables of an audit. Does not know: how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from selverify.audit.lists.audit import ADAPTIVE, FIRST_K, ONE_BY_ONE, Audit
from selverify.audit.lists.rankers import in_order, ranker_name
from selverify.experiment.audits import ORACLE, RANDOM
from selverify.experiment.methods import OTHER_COLOUR
from selverify.report.plots import (
    RANKER_COLOURS,
    STYLE,
    new_figure,
    percent_axis,
    save_figure,
)

COLOURS = RANKER_COLOURS | {
    "recorded": "#cc79a7",
    "frequency": "#7a5195",
    "shortest": "#8c564b",
    "reject_probability": "#b8860b",
}
PANELS = {
    FIRST_K: "The first k at once, k = 1, 2, ...",
    ADAPTIVE: "k(w) at once, k_base = 1, 2, ...",
}
CROSS: dict[str, Any] = {"marker": "X", "markersize": 7, "color": "#222222"}
STAR: dict[str, Any] = {"marker": "*", "markersize": 10, "color": COLOURS[ORACLE]}
MOST_BANDS = 5
"""Bands of more orders hide each other; their ends stand in the table of the curves."""
ROOM = 20
"""Per cent of verify-all's calls that a number needs between the axis and its interval."""
CALLS = "Calls, % of verify-all's"


def found_against_calls(audit: Audit, stem: Path, *, title: str) -> tuple[Path, Path]:
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
    names = in_order(audit.curves["ranker"].tolist())
    with mpl.rc_context(STYLE):
        figure = new_figure(9.6, max(3.6, 1.2 + 0.4 * len(names)))
        single, *panels = figure.subplots(1, 3, width_ratios=[1, 1.35, 1.35])
        panels[1].sharey(panels[0])
        _one_by_one(single, audit.summary, names)
        for axes, (family, name) in zip(panels, PANELS.items(), strict=True):
            for ranker in names:
                banded = ranker == RANDOM or len(names) <= MOST_BANDS
                _curve(axes, audit.curves, ranker, family, banded=banded)
            axes.plot(100, 100, **CROSS, clip_on=False, zorder=5)
            axes.set(title=name)
        panels[0].set_ylim(top=100.5)
        panels[1].tick_params(labelleft=False)
        percent_axis(panels[0], "States where one is found")
        panels[0].legend(handles=_marks(), loc="lower right", handlelength=1)
        for axes in (single, *panels):
            axes.set(xlabel=CALLS, xlim=(0, 104))
            axes.xaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
        # A file may be called anything, "$" included.
        figure.suptitle(title, x=0.01, ha="left", size=10, parse_math=False)
        return save_figure(figure, stem)


def _one_by_one(axes: Axes, table: pd.DataFrame, names: Sequence[str]) -> None:
    rows = table[table["allocator"] == ONE_BY_ONE].set_index("ranker").loc[list(names)]
    cells = 100 * rows[["calls_ratio", "calls_ratio_low", "calls_ratio_high"]].to_numpy(np.float64)
    for place, (ranker, (value, low, high)) in enumerate(zip(names, cells.tolist(), strict=True)):
        colour = _colour(ranker)
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
        label.set_color(_colour(ranker))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _curve(axes: Axes, table: pd.DataFrame, ranker: str, family: str, *, banded: bool) -> None:
    if ranker == RANDOM:
        family = FIRST_K  # which k(w) is where all scores are alike
    chosen = table[(table["ranker"] == ranker) & (table["family"] == family)]
    own = chosen.sort_values("setting")
    if own.empty:
        return
    x, found, low, high = (
        100 * own[name].to_numpy(np.float64)
        for name in ("calls_ratio", "found", "found_low", "found_high")
    )
    if ranker == ORACLE:  # its first call finds what there is
        axes.plot(x[0], found[0], **STAR, clip_on=False)
        return
    axes.plot(x, found, marker="o", markersize=3, color=_colour(ranker))
    if banded:
        axes.fill_between(x, low, high, color=_colour(ranker), alpha=0.1, linewidth=0)


def _marks() -> list[Line2D]:
    return [
        Line2D([], [], label="verify-all", linestyle="", **CROSS),
        Line2D([], [], label="oracle, k = 1", linestyle="", **STAR),
    ]


def _colour(ranker: str) -> str:
    return COLOURS.get(ranker, OTHER_COLOUR)
