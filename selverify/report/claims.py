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
"""Bins on each side of the comparison by difficulty."""


class _Claim(NamedTuple):
    """A claim at one N: its text, the paper's own figure if it gives one, and the measured one.

    Both figures are in one unit, and the claim says that they are above 0.
    """

    text: str
    paper: float | None
    gain: Interval


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
        not hold" where it is below 0, else "not decided".
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
            "verdict": _verdict({n: own[place].gain for n, own in found.items()}, budget),
        }
        for place, one in enumerate(found[budget])
    )


def _verdict(gains: Mapping[int, Interval], budget: int) -> str:
    if gains[budget].low > 0:
        return "holds"
    elsewhere = [str(n) for n, gain in gains.items() if gain.low > 0]
    if elsewhere:
        return f"holds at N = {', '.join(elsewhere)}"
    return "does not hold" if gains[budget].high < 0 else "not decided"


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
    if BEAM in ran:
        text = f"Larger gain over {method_name(BEAM)} on the hardest two bins than on the easiest"
        yield _Claim(f"{text}, points", None, _by_difficulty(rows, bins, n, bootstrap))
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
    rows: pd.DataFrame, bins: Mapping[str, int], n: int, bootstrap: Bootstrap
) -> Interval:
    """The gain over the beam on the hardest bins less that on the easiest, in points."""
    own, theirs = _correct(rows, n, PAPER_METHOD, BEAM)
    number = np.array([bins[problem] for problem in own.index])
    hard, easy = number > number.max() - HARDEST, number < number.min() + HARDEST
    weights = hard * len(number) / hard.sum() - easy * len(number) / easy.sum()
    return _points(mean_interval((own - theirs).to_numpy() * weights, bootstrap))


def _correct(rows: pd.DataFrame, n: int, *methods: str) -> list[pd.Series]:
    """Whether each method is right at N, by problem."""
    chosen = at_budget(rows[rows["method"].isin(methods)], n)
    return [outcomes_of(chosen, method)["correct"] for method in methods]


def _points(one: Interval) -> Interval:
    return Interval(100 * one.value, 100 * one.low, 100 * one.high)
