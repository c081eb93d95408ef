"""Figures as SVG and PNG, byte-identical for equal tables.

Knows: the tables of ``report`` and ``audits``. Does not know: how they were made. A method's colour
is its family's; the variant with gates is dashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter
from sklearn.isotonic import isotonic_regression

from selverify.experiment.equal_cost import HULL, OURS
from selverify.experiment.methods import OTHER_COLOUR
from selverify.report.names import (
    BUDGET_FREE,
    FULL_METHOD,
    GATED,
    ORACLES,
    PRODUCT,
    SHORT_LIST,
    STEP,
    figure_methods,
    method_colour,
    method_name,
    ordered_methods,
    our_methods,
)
from selverify.storage import atomic_path

VERMILION, BLUE, ORANGE = "#d55e00", "#0072b2", "#e69f00"
RANKER_COLOURS = {
    "random": "#8c8c8c",
    "likelihood": ORANGE,
    "distance_cosine": "#56b4e9",
    "distance": "#009e73",
    "residual": BLUE,
    "hybrid": VERMILION,
    "oracle": "#222222",
}
FONT = "DejaVu Sans"
"""Ships with matplotlib, so every machine draws the same."""
STYLE: dict[Any, Any] = {  # matplotlib's own key type is a literal of every key
    "font.family": FONT,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "savefig.dpi": 160,
    "svg.hashsalt": "selverify",
}


@contextmanager
def drawing(stem: Path, width: float, height: float, **style: Any) -> Iterator[Figure]:
    """An empty figure of ``width`` x ``height`` inches, written to its ``figure_files`` at the end.

    Equal figures give the same bytes. ``style``: what differs from ``STYLE``.
    """
    with mpl.rc_context(STYLE | style):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)  # no window and no global state of pyplot
        yield figure
        # The date and the version in the metadata would make equal figures differ.
        metadata: tuple[dict[str, str | None], ...] = ({"Date": None}, {"Software": None})
        for path, entries in zip(figure_files(stem), metadata, strict=True):
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], metadata=entries)


def figure_files(stem: Path) -> tuple[Path, Path]:
    """The SVG and the PNG of a figure, from its path without a suffix."""
    return stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")


def drawable(text: str) -> str:
    """The text with U+FFFD for every character without a glyph in ``FONT``.

    A control character would make an SVG that no XML parser reads; a name in Chinese would be
    drawn as boxes, with a warning for each.
    """
    glyphs = get_font(findfont(FONT)).get_charmap()
    return "".join(one if ord(one) in glyphs else "\ufffd" for one in text)


def accuracy_against_budget(points: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Accuracy against nominal N with 95 % bars; a method without a budget is a level line.

    Args:
        points: as :func:`selverify.report.tables.points_table` gives.
        stem: the figures' path without its suffix.
    """
    with drawing(stem, 7.6, 4.4) as figure:
        axes = figure.add_subplot()
        shown = _lines_over_budgets(axes, points)
        axes.set(title=title)
        percent_axis(axes, "Accuracy")
        last = _last_accuracies(points)
        _label_ends(axes, {method: last[method] for method in shown})


def accuracy_at_equal_calls(table: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Accuracy for at most B verifier calls (log scale): the short list without oracles.

    95 % intervals are a band for the hull and bars for our methods; baselines have none here.

    Args:
        table: as :func:`selverify.experiment.equal_cost.equal_cost_table` gives.
    """
    with drawing(stem, 7.6, 4.4) as figure:
        axes = figure.add_subplot()
        methods = [name for name in SHORT_LIST if name not in ORACLES]
        shown = _lines_over_levels(axes, table, methods)
        axes.set(title=title)
        percent_axis(axes, "Accuracy")
        last = _last_accuracies(table.dropna(subset="accuracy"), "level")
        _label_ends(axes, {method: last[method] for method in shown})


def benchmarks_at_equal_calls(
    tables: Mapping[str, pd.DataFrame], stem: Path, *, methods: Sequence[str]
) -> None:
    """:func:`accuracy_at_equal_calls` of several benchmarks side by side.

    Args:
        tables: by the title of the panel, each as for one benchmark.
        methods: those to show, if they are in the tables.
    """
    with drawing(stem, 4.6 * len(tables), 3.9) as figure:
        panels = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, (title, table) in zip(panels, tables.items(), strict=True):
            _lines_over_levels(axes, table, methods)
            axes.set(title=title)
            axes.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=" %"))
        panels[0].set_ylabel("Accuracy")
        no_marker = {HULL: {"marker": ""}}
        handles = [
            Line2D([], [], **_line(name) | no_marker.get(name, {}))
            for name in _present(pd.concat(tables.values()), methods)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)


def accuracy_against_calls(points: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Accuracy against measured verifier calls a problem (log scale), 95 % bars on both.

    Points that cost no call are in a narrow panel of their own at the left, because a log scale has
    no zero; there a method shows its best N.
    """
    with drawing(stem, 7.6, 4.4) as figure:
        none, axes = figure.subplots(1, 2, sharey=True, width_ratios=[1, 7])
        axes.spines["left"].set_visible(False)
        paid, unpaid = (points[points["verifier_calls"] > 0], points[points["verifier_calls"] == 0])
        free = _present(unpaid)
        for place, (method, own) in enumerate(_by_method(unpaid, free, "n")):
            best = own.nlargest(1, "accuracy")
            _errorbars(none, pd.Series((place + 1) / (len(free) + 1), best.index), best, method)
        _lines_over_costs(axes, paid, "verifier_calls", horizontal=True)
        none.set(xticks=[0.5], xticklabels=["0"], xlim=(0, 1))
        # The title is that of the wide panel: over the narrow one it would push them apart.
        axes.set(xlabel="Measured verifier calls a problem", title=title)
        percent_axis(none, "Accuracy")
        axes.tick_params(axis="y", left=False, labelleft=False)
        _legend(figure, _by_accuracy(points))


def accuracy_against_tokens(points: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Accuracy against generated tokens a problem (log scale), with 95 % bars."""
    with drawing(stem, 7.6, 4.4) as figure:
        axes = figure.add_subplot()
        _lines_over_costs(axes, points, "generated_tokens")
        axes.set(xlabel="Generated tokens a problem", title=title)
        percent_axis(axes, "Accuracy")
        _legend(figure, _by_accuracy(points))


def accuracy_of_backbones(
    points: Mapping[str, pd.DataFrame], stem: Path, *, methods: Sequence[str], title: str
) -> None:
    """Accuracy against N for each backbone side by side, with the one-shot lines of all of them.

    The paper's Figure 3: does a small backbone with verification pass a large one without?

    Args:
        points: by backbone, as :func:`selverify.report.tables.points_table` gives.
        methods: those to show, if they are in the tables.
    """
    with drawing(stem, 3.6 * len(points), 3.2) as figure:
        panels = figure.subplots(1, len(points), sharey=True, squeeze=False)[0]
        free = {
            f"0-shot, {name}": own.loc[own["method"].isin(BUDGET_FREE), "accuracy"].max()
            for name, own in points.items()
        }
        for axes, (backbone, own) in zip(panels, points.items(), strict=True):
            _lines_over_budgets(axes, own, methods)
            for other, height in free.items():
                style = "-" if other.endswith(f" {backbone}") else ":"
                axes.axhline(100 * height, color="#888888", linestyle=style, linewidth=1, zorder=1)
            axes.set(title=f"{title}: {backbone}")
        # Right of the last panel, where there is no point.
        _label_ends(panels[-1], free)
        percent_axis(panels[0], "Accuracy")
        for axes in panels[1:]:
            axes.tick_params(axis="y", left=False, labelleft=False)
        _legend(figure, _present(pd.concat(points.values()), methods))


def accuracy_by_bin(table: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Accuracy in each difficulty bin with 95 % bars, methods side by side.

    Args:
        table: as :func:`selverify.report.tables.by_bin_table` gives.
    """
    unjoined: dict[str, Any] = {"linestyle": ""}
    with drawing(stem, 7.6, 4.0) as figure:
        axes = figure.add_subplot()
        shown = _present(table)
        for place, (method, own) in enumerate(_by_method(table, shown, "difficulty_bin")):
            shift = (place - (len(shown) - 1) / 2) * 0.75 / len(shown)
            _errorbars(axes, own["difficulty_bin"] + shift, own, method, **unjoined)
        numbers = sorted(table["difficulty_bin"].unique().tolist())
        names = [str(number) for number in numbers]
        names[0] += "\neasiest"
        names[-1] += "\nhardest"
        axes.set(xticks=numbers, xticklabels=names, xlabel="Difficulty bin", title=title)
        for number in numbers[1:]:
            axes.axvline(number - 0.5, color="#e6e6e6", linewidth=0.8, zorder=0)
        percent_axis(axes, "Accuracy")
        _legend(figure, shown, **unjoined)


def gains(table: pd.DataFrame, stem: Path, *, title: str) -> None:
    """The difference of full to the hull with 95 % bars, a panel for each number of a problem.

    Three of the levels B are shown: the lowest, the middle one and the highest.

    Args:
        table: as :func:`selverify.experiment.equal_cost.gain_table` gives, with a column ``along``.
    """
    names, levels = sorted(table["along"].unique()), sorted(table["level"].unique())
    shown = dict.fromkeys((levels[0], levels[len(levels) // 2], levels[-1]))
    colours = (VERMILION, BLUE, "#999999")
    with drawing(stem, 7.6, 3.4) as figure:
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            axes.axhline(0, color="#999999", linewidth=1, linestyle=":")
            whole = table[table["along"] == name]
            nudge = 0.012 * (whole["mean"].max() - whole["mean"].min())
            for place, (level, colour) in enumerate(zip(shown, colours, strict=False)):
                own = whole[whole["level"] == level]
                axes.errorbar(
                    own["mean"] + (place - 1) * nudge,  # bars do not cover each other
                    100 * own["difference"],
                    yerr=_arms(own, "difference", scale=100),
                    fmt="o-",
                    elinewidth=0.8,
                    color=colour,
                    label=f"B = {level}",
                )
            axes.set_xlabel(name)
        panels[0].set_ylabel("Ours minus the hull, points")
        panels[0].legend()
        figure.suptitle(title, x=0.01, ha="left", size=10)


def reliability_diagram(table: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Share of right steps against mean scores; below it, how many steps.

    Args:
        table: as :func:`selverify.experiment.audits.reliability_table` gives, each with what its
            scores are ``of``.
    """
    with drawing(stem, 4.4, 4.8) as figure:
        axes, counts = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle=":", label="calibrated")
        colours = dict(zip((STEP, PRODUCT), (BLUE, OTHER_COLOUR), strict=True))
        for side, (of, own) in zip((-0.25, 0.25), table.groupby("of", sort=False), strict=False):
            colour = colours[str(of)]
            axes.plot(own["mean_score"], own["rate"], marker="o", color=colour, label=f"by {of}")
            width = own["high"] - own["low"]
            middle = (own["low"] + own["high"]) / 2 + side * width
            counts.bar(middle, own["count"], width=0.45 * width, color=colour)
        axes.legend(loc="upper left")
        axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="Share of right steps", title=title)
        counts.set(xlabel="Verifier score", ylabel="Steps")
        counts.locator_params(axis="y", nbins=3)


def ranker_recall(table: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Recall@k of the best accepted move for each ranker with 95 % bands.

    Args:
        table: as :func:`selverify.experiment.audits.ranker_table` gives.
    """
    with drawing(stem, 6.8, 4.0) as figure:
        axes = figure.add_subplot()
        recall = table[table["metric"].str.startswith("recall_at_")]
        first = recall.groupby("ranker")["value"].first()
        for ranker in sorted(first.index, key=lambda name: (-first[name], name)):
            own = recall[recall["ranker"] == ranker].sort_values("k")
            colour, name = RANKER_COLOURS.get(ranker, OTHER_COLOUR), ranker.replace("_", " ")
            axes.plot(own["k"], 100 * own["value"], marker="o", color=colour, label=name)
            ends = (100 * own["low"], 100 * own["high"])
            axes.fill_between(own["k"], *ends, color=colour, alpha=0.12, linewidth=0)
        axes.set(xlabel="Moves verified at a state, k", title=title)
        axes.xaxis.set_major_locator(FixedLocator(sorted(recall["k"].unique().tolist())))
        percent_axis(axes, "Best accepted move is among them")
        figure.legend(loc="outside right center")


def gate_bars(table: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Share of sampled candidates that each gate refuses, by reason.

    Args:
        table: as :func:`selverify.experiment.audits.gate_table` gives.
    """
    with drawing(stem, 6.8, 1.4 + 0.3 * max(len(table), 1), **{"axes.grid": False}) as figure:
        axes = figure.add_subplot()
        for gate, colour in (("structural", BLUE), ("context", ORANGE)):
            own = table[table["gate"] == gate]
            if len(own):  # else its mark in the legend would have another gate's colour
                axes.barh(own.index, 100 * own["share"], color=colour, label=f"{gate} gate")
        for place, share in zip(table.index, table["share"], strict=True):
            axes.text(100 * share, place, f" {100 * share:.2f} %", va="center", color="#444444")
        axes.set(yticks=table.index, yticklabels=table["reason"], title=title)
        for label in axes.get_yticklabels():
            label.set_parse_math(False)  # a domain may put a move's text into a reason
        axes.set(xlabel="Share of sampled candidates", xlim=(0, 118 * max([*table["share"], 0.01])))
        axes.xaxis.set_major_formatter(PercentFormatter(symbol=" %"))
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside right center")


def within_problems(table: pd.DataFrame, stem: Path, *, title: str) -> None:
    """Shares trusted and accepted, and k(w), against the moves made so far.

    Args:
        table: as :func:`selverify.report.by_depth.within_table` gives.
    """
    with drawing(stem, 7.2, 3.2) as figure:
        shares, calls = figure.subplots(1, 2)
        for column, name, height, colour in (
            ("trusted", "states without a call", 0.02, VERMILION),
            ("accepted", "verified moves accepted", 0.1, BLUE),
        ):
            shares.plot(table["depth"], 100 * table[column].astype(float), "o-", color=colour)
            shares.annotate(name, (0.02, height), xycoords="axes fraction", color=colour)
        shares.set_ylim(0, 105)
        percent_axis(shares, "share")
        calls.errorbar(table["depth"], table["k"], yerr=table["k_sd"], fmt="o-", color=VERMILION)
        calls.set_ylabel("k(w), mean and standard deviation")
        for axes in (shares, calls):
            axes.set_xlabel("moves made so far")
            axes.xaxis.set_major_locator(FixedLocator(table["depth"].tolist()))
        figure.suptitle(title, x=0.01, ha="left", size=10)


def log_axis(axes: Axes, values: pd.Series) -> None:
    """Powers of two on the x axis, written out, every other one where there are many."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if not values.empty:
        first, last = np.floor(np.log2(values.min())), np.ceil(np.log2(values.max()))
        step = 1 if last - first <= 8 else 2
        axes.xaxis.set_major_locator(FixedLocator(list(2.0 ** np.arange(first, last + 1, step))))


def percent_axis(axes: Axes, name: str) -> None:
    """Percent on the y axis, under ``name``."""
    axes.set_ylabel(name)
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=" %"))


def _line(method: str) -> dict[str, Any]:
    gated, full = method.endswith(GATED), method == FULL_METHOD
    return {
        "color": method_colour(method),
        "linestyle": "--" if gated or method == OURS else ":" if method in BUDGET_FREE else "-",
        "marker": "s" if gated else "o",
        "markerfacecolor": "white" if gated else None,
        "linewidth": 2.4 if full else 1.6,
        "zorder": 4 if full else 3,
        "label": method_name(method),
    }


def _errorbars(
    axes: Axes,
    x: pd.Series,
    own: pd.DataFrame,
    method: str,
    *,
    horizontal: bool = False,
    **style: Any,
) -> None:
    """One method's points with bars on accuracy, and on calls where ``horizontal``."""
    axes.errorbar(
        x,
        100 * own["accuracy"],
        yerr=_arms(own, "accuracy", scale=100),
        xerr=_arms(own, "verifier_calls") if horizontal else None,
        elinewidth=0.8,
        ecolor=(method_colour(method), 0.55),
        capsize=0,
        **_line(method) | style,
    )


def _band(axes: Axes, own: pd.DataFrame) -> None:
    """The hull: a dark line in the band of its intervals."""
    colour = method_colour(HULL)
    ends = (100 * own["accuracy_low"], 100 * own["accuracy_high"])
    axes.fill_between(own["level"], *ends, color=colour, alpha=0.1, linewidth=0)
    axes.plot(own["level"], 100 * own["accuracy"], color=colour, linewidth=2, zorder=3.5)


def _arms(own: pd.DataFrame, name: str, *, scale: float = 1) -> np.ndarray:
    """[2, point] lengths of the bars below and above a value."""
    value, low, high = own[name], own[f"{name}_low"], own[f"{name}_high"]
    return np.clip(scale * np.stack([value - low, high - value]), 0.0, None)


def _present(table: pd.DataFrame, methods: Sequence[str] | None = None) -> list[str]:
    wanted = figure_methods() if methods is None else methods
    return ordered_methods(set(wanted) & set(table["method"]))


def _by_method(
    table: pd.DataFrame, methods: Sequence[str], order: str
) -> Iterator[tuple[str, pd.DataFrame]]:
    for method in methods:
        yield method, table[table["method"] == method].sort_values(order)


def _last_accuracies(points: pd.DataFrame, order: str = "n") -> dict[str, float]:
    """Accuracy of each method at its largest n, or the largest value of another column."""
    return dict(points.sort_values(order).groupby("method")["accuracy"].last())


def _by_accuracy(points: pd.DataFrame) -> list[str]:
    last = _last_accuracies(points)
    return sorted(_present(points), key=lambda method: (-last[method], method))


def _lines_over_budgets(
    axes: Axes, points: pd.DataFrame, methods: Sequence[str] | None = None
) -> list[str]:
    """Each method's accuracy over N; returns the methods that are there."""
    shown = _present(points, methods)
    for place, (method, own) in enumerate(_by_method(points, shown, "n")):
        if method in BUDGET_FREE:
            axes.axhline(100 * own["accuracy"].iloc[0], **_line(method) | {"marker": ""})
            continue
        # A few percent on a log scale, so that the bars of ten methods do not cover each other.
        nudge = 2 ** (0.03 * (place - (len(shown) - 1) / 2))
        _errorbars(axes, own["n"] * nudge, own, method)
    budgets = points.loc[~points["method"].isin(BUDGET_FREE), "n"]
    log_axis(axes, budgets)
    axes.set(xlabel="Generation budget N", xlim=(budgets.min() / 1.25, 1.2 * budgets.max()))
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(budgets))))
    axes.xaxis.set_minor_locator(NullLocator())
    return shown


def _lines_over_levels(axes: Axes, table: pd.DataFrame, methods: Sequence[str]) -> list[str]:
    """Accuracy for at most B calls; returns the methods that are there."""
    reached = table.dropna(subset="accuracy")
    shown = _present(reached, methods)
    ours = [method for method in shown if method in our_methods()]
    for method, own in _by_method(reached, shown, "level"):
        if method in ours:  # side by side, so that their bars do not cover each other
            nudge = 2 ** (0.06 * (ours.index(method) - (len(ours) - 1) / 2))
            _errorbars(axes, own["level"] * nudge, own, method)
        elif method == HULL:
            _band(axes, own)
        else:
            axes.plot(own["level"], 100 * own["accuracy"], **_line(method) | {"linewidth": 1})
    axes.set(xlabel="At most B verifier calls a problem on average")
    log_axis(axes, table["level"])
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(table["level"]))))
    axes.xaxis.set_minor_locator(NullLocator())
    return shown


def _lines_over_costs(
    axes: Axes, points: pd.DataFrame, cost: str, *, horizontal: bool = False
) -> None:
    """Each method's accuracy over a measured cost."""
    shown = _present(points)
    for method, own in _by_method(points, shown, cost):
        _errorbars(axes, own[cost], own, method, horizontal=horizontal)
    log_axis(axes, points.loc[points["method"].isin(shown), cost])


def _label_ends(axes: Axes, ends: Mapping[str, float]) -> None:
    """Names at the right of the lines' ends, moved apart where they would overlap.

    A line that is nowhere (NaN) has none.
    """
    ends = {name: end for name, end in ends.items() if not np.isnan(end)}
    if not ends:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    names = sorted(ends, key=lambda method: (ends[method], method))
    wanted = [(100 * ends[name] - low) / (high - low) for name in names]
    for name, end, height in zip(names, wanted, _spread_out(wanted, gap=0.052), strict=True):
        colour = method_colour(name)
        axes.annotate(
            method_name(name),
            xy=(1.0, end),
            xytext=(1.06, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            color=colour,
            weight="bold" if name == FULL_METHOD else "normal",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "relpos": (0, 0.5)},
        )


def _spread_out(heights: Sequence[float], *, gap: float) -> list[float]:
    """Rising heights moved as little as possible (least squares) to be ``gap`` apart.

    Subtracting i * gap turns "at least a gap apart" into "not falling": isotonic regression.
    """
    offsets = gap * np.arange(len(heights))
    level = isotonic_regression(np.asarray(heights) - offsets)
    return [float(height) for height in level + offsets]


def _legend(figure: Figure, order: Sequence[str], **style: Any) -> None:
    handles = [Line2D([], [], **_line(method) | style) for method in order]
    figure.legend(handles=handles, loc="outside right center")
