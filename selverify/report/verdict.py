"""What a run says, in one sentence written from its tables.

Knows: which comparison is said, and what counts as missed. Does not know: HTML, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from selverify.experiment.equal_cost import HULL, MARGIN
from selverify.report.formatting import number, ranged
from selverify.report.names import FULL_METHOD, method_name
from selverify.report.targets import Target

VOTES = ("ranked_vote", "selective_vote")
"""Ours that weigh whole solutions: the one that gains most is told beside full, if it gains more
than full does and more than chance."""
_percent = partial(number, scale=100)
_points = partial(ranged, scale=100, signed=True)


def verdict(tables: Mapping[str, pd.DataFrame], targets: Sequence[Target], *, problems: int) -> str:
    """One sentence: where full, and a vote of ours, differ from the baselines; what is missed.

    Args:
        tables: ``equal_calls`` and ``near_best``, as :mod:`selverify.experiment.equal_cost` gives.
        problems: on so many they were measured.
    """
    calls, near = tables["equal_calls"], tables["near_best"]
    vote = _gaining_vote(calls)
    told = [FULL_METHOD, *vote]
    parts = [_against_hull(calls, method) for method in told]
    parts.append(_to_its_best(calls, near, told[-1]))
    missed = [one for one in targets if not one.met]
    if missed:
        parts.append(f"missed: {len(missed)} of {len(targets)} targets, first {_missed(missed[0])}")
    elif targets:
        parts.append(f"missed: none of {len(targets)} targets")
    return (
        f"On {problems} problems, against the best mixture of all baselines for as many verifier "
        f"calls a problem on average: {'; '.join(parts)}."
    )


def _gaining_vote(calls: pd.DataFrame) -> list[str]:
    """The vote that gains most over full at the levels that both reach, if one gains anything."""
    gains = calls.pivot_table(index="level", columns="method", values="difference")
    gained = set(calls.loc[calls["difference_low"] > 0.0, "method"])
    votes = [name for name in VOTES if name in gained]
    over = gains[votes].sub(gains.get(FULL_METHOD, 0.0), axis=0).mean().dropna()
    return [str(over.idxmax())] if (over > 0.0).any() else []


def _against_hull(calls: pd.DataFrame, method: str) -> str:
    """The largest gain beyond chance and its B, or else the largest loss; then the other B."""
    own = calls[calls["method"] == method].dropna(subset="difference").sort_values("level")
    above, below = own[own["difference_low"] > 0.0], own[own["difference_high"] < 0.0]
    who = method_name(method)
    if own.empty:
        return f"{who} makes too many calls to be compared"
    if above.empty and below.empty:
        return f"{who} shows no difference beyond chance at {_levels(own)}"
    most = below["difference"].argmin() if above.empty else above["difference"].argmax()
    one: dict[Any, Any] = (below if above.empty else above).iloc[int(most)].to_dict()
    found = (
        f"{who} solves {_percent(one, 'accuracy')} % with at most {_calls(one['level'])}, "
        f"{_points(one, 'difference')} points"
    )
    also = [
        f"{side} it at {_levels(others)}"
        for side, rows in (("above", above), ("below", below))
        if len(others := rows[rows["level"] != one["level"]])
    ]
    return f"{found} ({', '.join(also)})" if also else found


def _to_its_best(calls: pd.DataFrame, near: pd.DataFrame, method: str) -> str:
    """The calls for the accuracy that the hull has at best."""
    best = {"accuracy": calls.loc[calls["method"] == HULL, "accuracy"].max()}
    within = f"within {100 * MARGIN:g} point of the mixture's best ({_percent(best, 'accuracy')} %)"
    rows: dict[str, dict[Any, Any]] = {str(one["method"]): one for one in near.to_dict("records")}
    own, hull = rows.get(method, {}), rows.get(HULL, {})
    if pd.isna(own.get("verifier_calls")):
        return f"it does not come {within}"
    found = f"it comes {within} with {ranged(own, 'verifier_calls')} calls"
    if pd.isna(own.get("ratio")):
        return f"{found}, the mixture with {ranged(hull, 'verifier_calls')}"
    of_them = f"of the mixture's {number(hull, 'verifier_calls')}"
    return f"{found}, {ranged(own, 'ratio', digits=2)} {of_them}"


def _missed(one: Target) -> str:
    measured = "no value" if one.measured is None else f"{one.measured:.3g}"
    return f"{one.text} ({measured}, goal {one.goal})"


def _calls(level: float) -> str:
    return f"{level} call{'' if level == 1 else 's'}"


def _levels(rows: pd.DataFrame) -> str:
    *others, last = (str(level) for level in sorted(rows["level"]))
    return f"{', '.join(others)} and {last}" if others else last
