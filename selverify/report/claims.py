"""What the paper claims of its method, beside what was measured of the method as printed.

Knows: the ``outcomes`` table, difficulty bins, the paper's figures. Does not know: text around the
table, files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise

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

HARDEST = 2
"""Bins on each side of the comparison by difficulty."""
_Gain = Callable[[int], Interval]
"""At N, what a claim says is above 0, with its interval."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """``paper``: its own figure in the unit of ``gain``; None where it gives none."""

    text: str
    paper: float | None
    gain: _Gain


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
    ran = set(rows["method"])
    if PAPER_METHOD not in ran:
        return pd.DataFrame()
    budgets = sorted(rows.loc[rows["method"] == PAPER_METHOD, "n"].unique().tolist())
    found = [
        *_over_baselines(rows, ran, bootstrap),
        *_calls_saved(rows, ran, bootstrap),
        *_ablation(rows, ran, bootstrap),
        *_by_difficulty(rows, ran, bins, bootstrap),
        *_small_over_large(by_backbone, bootstrap),
    ]
    return pd.DataFrame([_row(one, budgets, budget) for one in found])


def _row(claim: _Claim, budgets: list[int], budget: int) -> dict[str, object]:
    gains = {n: claim.gain(n) for n in budgets}
    return {
        "claim": claim.text,
        "paper": claim.paper,
        **asdict(gains[budget]),
        "verdict": _verdict(gains, budget),
    }


def _verdict(gains: Mapping[int, Interval], budget: int) -> str:
    if gains[budget].low > 0:
        return "holds"
    elsewhere = [str(n) for n, gain in gains.items() if gain.low > 0]
    if elsewhere:
        return f"holds at N = {', '.join(elsewhere)}"
    return "does not hold" if gains[budget].high < 0 else "not decided"


def _gain(rows: pd.DataFrame, method: str, other: str, bootstrap: Bootstrap) -> _Gain:
    """Accuracy of ``method`` minus that of ``other``, paired, in points."""

    def at(n: int) -> Interval:
        return _points(paired_difference(*_correct(rows, n, method, other), bootstrap=bootstrap))

    return at


def _over_baselines(rows: pd.DataFrame, ran: set[str], bootstrap: Bootstrap) -> Iterator[_Claim]:
    printed = PAPER_METHODS[PAPER_METHOD][0]
    for other in [one for one in PAPER_METHODS if one in ran and one != PAPER_METHOD]:
        yield _Claim(
            f"More accurate than {method_name(other)}, points",
            printed - PAPER_METHODS[other][0],
            _gain(rows, PAPER_METHOD, other, bootstrap),
        )


def _calls_saved(rows: pd.DataFrame, ran: set[str], bootstrap: Bootstrap) -> Iterator[_Claim]:
    """Against the measured calls of the paper's baselines that verify."""
    own_calls = PAPER_METHODS[PAPER_METHOD][1]
    for other, (_, calls) in PAPER_METHODS.items():
        if other in ran and other != PAPER_METHOD and calls and own_calls:
            yield _Claim(
                f"Fewer verifier calls than {method_name(other)}, percent",
                100 * (1 - own_calls / calls),
                _saving(rows, other, bootstrap),
            )


def _saving(rows: pd.DataFrame, other: str, bootstrap: Bootstrap) -> _Gain:
    def at(n: int) -> Interval:
        chosen = at_budget(rows[rows["method"].isin((PAPER_METHOD, other))], n)
        _, ratio = compare(chosen, PAPER_METHOD, other, bootstrap)
        if ratio is None:
            return Interval(0.0, 0.0, 0.0)
        return _points(Interval(1.0 - ratio.value, 1.0 - ratio.high, 1.0 - ratio.low))

    return at


def _ablation(rows: pd.DataFrame, ran: set[str], bootstrap: Bootstrap) -> Iterator[_Claim]:
    for above, method in pairwise(PAPER_ABLATION):
        if {above, method} <= ran:
            yield _Claim(
                f"{method_name(method)} more accurate than {method_name(above)}, points",
                PAPER_ABLATION[method][0] - PAPER_ABLATION[above][0],
                _gain(rows, method, above, bootstrap),
            )


def _by_difficulty(
    rows: pd.DataFrame, ran: set[str], bins: Mapping[str, int], bootstrap: Bootstrap
) -> Iterator[_Claim]:
    other = "beam_keep_b"
    if other not in ran:
        return

    def at(n: int) -> Interval:
        own, theirs = _correct(rows, n, PAPER_METHOD, other)
        number = np.array([bins[problem] for problem in own.index])
        hard, easy = number > number.max() - HARDEST, number < number.min() + HARDEST
        weights = hard * len(number) / hard.sum() - easy * len(number) / easy.sum()
        return _points(mean_interval((own - theirs).to_numpy() * weights, bootstrap))

    text = f"Larger gain over {method_name(other)} on the hardest two bins than on the easiest"
    yield _Claim(f"{text}, points", None, at)


def _small_over_large(
    by_backbone: Mapping[str, pd.DataFrame], bootstrap: Bootstrap
) -> Iterator[_Claim]:
    names = list(by_backbone)
    free = BUDGET_FREE[0]
    for small, large in pairwise(names):
        without = by_backbone[large]
        if free in set(without["method"]):

            def at(n: int, small: str = small, without: pd.DataFrame = without) -> Interval:
                (own,) = _correct(by_backbone[small], n, PAPER_METHOD)
                (other,) = _correct(without, n, free)
                return _points(paired_difference(own, other, bootstrap=bootstrap))

            yield _Claim(f"{small} with the method beats {large} 0-shot, points", None, at)


def _correct(rows: pd.DataFrame, n: int, *methods: str) -> list[pd.Series]:
    """Whether each method is right at N, by problem."""
    chosen = at_budget(rows[rows["method"].isin(methods)], n)
    return [outcomes_of(chosen, method)["correct"] for method in methods]


def _points(one: Interval) -> Interval:
    return Interval(100 * one.value, 100 * one.low, 100 * one.high)
