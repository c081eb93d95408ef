"""Accuracy against what is asked of the verifier, method by method.

Knows: tables with a row a point. Does not know: how they were made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from selverify.audit.samples.audit import SampleAudit, widest
from selverify.audit.samples.solutions import BEST, MAJORITY, PASS, WEIGHTED
from selverify.audit.samples.text import method_label
from selverify.experiment.methods import OTHER_COLOUR
from selverify.report.names import method_colour
from selverify.report.plots import (
    STYLE,
    log_axis,
    new_figure,
    percent_axis,
    save_figure,
)

SELECTIVE = "selective"
COSTS = {"calls": "Verifier calls a problem", "steps": "Step scores a problem"}
COLOURS = {
    BEST: method_colour("best_of_n"),
    WEIGHTED: method_colour("beam_keep_b"),
    SELECTIVE: method_colour("full"),
    MAJORITY: method_colour("majority"),
    PASS: method_colour("oracle"),
}
DASHES = {"prod": "-", "last": "--", "min": ":"}


def points(audit: SampleAudit) -> pd.DataFrame:
    """Every method of an audit, and of selective verification what each target took.

    Returns:
        As ``audit.accuracy`` (method, aggregation, n, problems, accuracy with its ends, calls and
        steps), then one row a target of selection: method "selective", the target's aggregation,
        n NaN, problems, and the same columns of what selection made of it.
    """
    selective = [
        {
            "method": SELECTIVE,
            "aggregation": one.aggregation,
            "problems": audit.coverage.problems - audit.left_out,
            "accuracy": one.accuracy.value,
            "accuracy_low": one.accuracy.low,
            "accuracy_high": one.accuracy.high,
            "calls": one.calls.value,
            "steps": one.steps.value,
        }
        for one in audit.saved
    ]
    return pd.concat([audit.accuracy, pd.DataFrame(selective)], ignore_index=True)


def accuracy_against_cost(table: pd.DataFrame, stem: Path, *, title: str) -> tuple[Path, Path]:
    """Left against verifier calls, right against step scores (log scales), 95 % bars on accuracy.

    Methods that ask nothing are level lines at what they reach with the most samples that
    all problems have.

    Args:
        table: as :func:`points` gives.
        stem: the figures' path without its suffix.
        title: shown as it stands; a dollar begins no formula.

    Returns:
        The SVG and the PNG.
    """
    with mpl.rc_context(STYLE):
        figure = new_figure(9.6, 4.2)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (cost, label) in zip(panels, COSTS.items(), strict=True):
            asked = table[table[cost] > 0]
            for (method, aggregation), own in asked.groupby(["method", "aggregation"], sort=False):
                _line(axes, own.sort_values(cost), cost, str(method), str(aggregation))
            for method, own in table.groupby("method", sort=False):
                if not (own[cost] > 0).any():
                    height = 100 * float(widest(own)["accuracy"])
                    axes.axhline(height, color=COLOURS[str(method)], linewidth=1, label=str(method))
            log_axis(axes, asked[cost])
            axes.set(xlabel=label)
        percent_axis(panels[0], "Accuracy")
        panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.suptitle(title, x=0.01, ha="left", size=10, parse_math=False)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
        return save_figure(figure, stem)


def _line(axes: Axes, own: pd.DataFrame, cost: str, method: str, aggregation: str) -> None:
    height, low, high = (
        100 * own[column].to_numpy(np.float64)
        for column in ("accuracy", "accuracy_low", "accuracy_high")
    )
    colour = COLOURS.get(method, OTHER_COLOUR)
    chosen: dict[str, Any] = {"linewidth": 2.2, "zorder": 4} if method == SELECTIVE else {}
    axes.errorbar(
        own[cost],
        height,
        yerr=np.stack([height - low, high - height]),
        elinewidth=0.6,
        ecolor=(colour, 0.3),
        color=colour,
        marker="o",
        linestyle=DASHES.get(aggregation, "-"),
        label=method_label(method, aggregation),
        **chosen,
    )
