"""What the paper claims of its method, beside what was measured of the method as printed.

Knows: the ``outcomes`` table, difficulty bins, the paper's figures. Does not know: text around the
table, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from selverify.experiment.statistics import (
    Bootstrap,
    Interval,
    mean_interval,
    paired_difference,
)
from selverify.report.names import BUDGET_FREE, PAPER_METHOD, method_name
from selverify.report.tables import (
    PAPER_ABLATION,
    PAPER_METHODS,
    at_budget,
    compare,
    outcomes_of,
)

BEAM = "beam_keep_b"
HARDEST = 2
"""Bins on each side of the comparison by difficulty, where there are four or more."""


class _Claim(NamedTuple):
    """A claim at one N: its text, the paper's own figure if it gives one, and the measured one.

    Both figures are in one unit, and the claim says that they are above 0. It is ``void`` where it
    compares what is not there.
    """

    text: str
    paper: float | None
    gain: Interval
    void: bool = False


def claims_table(
    rows: pd.DataFrame,
    by_backbone: Mapping[str, pd.DataFrame],
    bins: Mapping[str, int],
    *,
    budget: int,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """One row a claim of the paper; empty where its method or a method it names was not run.

    Args:
        rows: out-of-fold outcomes, one a (method, n, problem_id).
        by_backbone: the same for each backbone, smaller ones first.
        bins: difficulty bin of each problem, 1 the easiest.

    Returns:
        claim; paper; value, low and high at N = ``budget``, in points or percent; verdict: "holds"
        where the interval is above 0, "holds at N = ..." where that is so at other N only, "does
        not hold" where it is below 0, else "not decided". A larger gain on hard problems does not
        hold where they show no gain.
    """
    if PAPER_METHOD not in set(rows["method"]):
        return pd.DataFrame()
    budgets = sorted(rows.loc[rows["method"] == PAPER_METHOD, "n"].unique().tolist())
    found = {n: list(_claims(rows, by_backbone, bins, n, bootstrap)) for n in budgets}
    return pd.DataFrame(
        {
            "claim": one.text,
            "paper": one.paper,
            **asdict(one.gain),
            "verdict": _verdict({n: own[place] for n, own in found.items()}, budget),
        }
        for place, one in enumerate(found[budget])
    )


def _verdict(claims: Mapping[int, _Claim], budget: int) -> str:
    holds = [n for n, one in claims.items() if one.gain.low > 0 and not one.void]
    if budget in holds:
        return "holds"
    if holds:
        return f"holds at N = {', '.join(map(str, holds))}"
    here = claims[budget]
    return "does not hold" if here.gain.high < 0 or here.void else "not decided"


def _claims(
    rows: pd.DataFrame,
    by_backbone: Mapping[str, pd.DataFrame],
    bins: Mapping[str, int],
    n: int,
    bootstrap: Bootstrap,
) -> Iterator[_Claim]:
    """Every claim at N whose methods were run, the same ones at each N."""
    ran = set(rows["method"])
    others = [name for name in PAPER_METHODS if name in ran and name != PAPER_METHOD]
    printed, own_calls = PAPER_METHODS[PAPER_METHOD]
    for other in others:
        yield _Claim(
            f"More accurate than {method_name(other)}, points",
            printed - PAPER_METHODS[other][0],
            _gain(rows, n, PAPER_METHOD, other, bootstrap),
        )
    for other in others:
        calls = PAPER_METHODS[other][1]
        if calls and own_calls:
            yield _Claim(
                f"Fewer verifier calls than {method_name(other)}, percent",
                100 * (1 - own_calls / calls),
                _saving(rows, n, other, bootstrap),
            )
    for above, method in pairwise(PAPER_ABLATION):
        if {above, method} <= ran:
            yield _Claim(
                f"{method_name(method)} more accurate than {method_name(above)}, points",
                PAPER_ABLATION[method][0] - PAPER_ABLATION[above][0],
                _gain(rows, n, method, above, bootstrap),
            )
    side = min(HARDEST, len(set(bins.values())) // 2)
    if BEAM in ran and side:
        yield _by_difficulty(rows, bins, n, side, bootstrap)
    free = BUDGET_FREE[0]
    for (small, with_method), (large, without) in pairwise(by_backbone.items()):
        if free in set(without["method"]):
            (own,), (theirs,) = _correct(with_method, n, PAPER_METHOD), _correct(without, n, free)
            gain = _points(paired_difference(own, theirs, bootstrap=bootstrap))
            yield _Claim(f"{small} with the method beats {large} 0-shot, points", None, gain)


def _gain(rows: pd.DataFrame, n: int, method: str, other: str, bootstrap: Bootstrap) -> Interval:
    """Accuracy of ``method`` minus that of ``other``, paired, in points."""
    return _points(paired_difference(*_correct(rows, n, method, other), bootstrap=bootstrap))


def _saving(rows: pd.DataFrame, n: int, other: str, bootstrap: Bootstrap) -> Interval:
    """The share of the measured calls of a baseline that the method does without, in percent."""
    chosen = at_budget(rows[rows["method"].isin((PAPER_METHOD, other))], n)
    _, ratio = compare(chosen, PAPER_METHOD, other, bootstrap)
    if ratio is None:
        return Interval(0.0, 0.0, 0.0)
    return _points(Interval(1.0 - ratio.value, 1.0 - ratio.high, 1.0 - ratio.low))


def _by_difficulty(
    rows: pd.DataFrame, bins: Mapping[str, int], n: int, side: int, bootstrap: Bootstrap
) -> _Claim:
    """The gain over the beam on the ``side`` hardest bins less that on the easiest, in points.

    A resample holds another number of hard problems than the sample: the interval is that of the
    two means, each linearised at its value.
    """
    own, theirs = _correct(rows, n, PAPER_METHOD, BEAM)
    gain = (own - theirs).to_numpy()
    number = np.array([bins[problem] for problem in own.index])
    sides = (number > number.max() - side, number < number.min() + side)
    (hard, easy) = means = [gain[one].mean() for one in sides]
    spread = [
        np.where(one, gain - mean, 0.0) * len(gain) / one.sum()
        for one, mean in zip(sides, means, strict=True)
    ]
    around = mean_interval(spread[0] - spread[1], bootstrap)
    value = float(hard - easy)
    bins_of = "two bins" if side == HARDEST else "bin"
    return _Claim(
        f"Larger gain over {method_name(BEAM)} on the hardest {bins_of} than on the easiest, "
        "points",
        None,
        _points(Interval(value, value + around.low, value + around.high)),
        void=hard <= 0,
    )


def _correct(rows: pd.DataFrame, n: int, *methods: str) -> list[pd.Series]:
    """Whether each method is right at N, by problem."""
    chosen = at_budget(rows[rows["method"].isin(methods)], n)
    return [outcomes_of(chosen, method)["correct"] for method in methods]


def _points(one: Interval) -> Interval:
    return Interval(100 * one.value, 100 * one.low, 100 * one.high)
