"""What a run says, in sentences written from its tables.

Knows: which comparison is said first, and what counts as missed. Does not know: HTML, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from selverify.experiment.equal_cost import HULL, MARGIN
from selverify.report.formatting import number, ranged
from selverify.report.names import FULL_METHOD, method_name
from selverify.report.targets import Target

VOTES = ("ranked_vote", "selective_vote")
"""Ours that weigh whole solutions; a run is also told of the best of them where it beats full."""
NAMED = 2
"""Missed targets that are named."""
_percent = partial(number, scale=100)
_points = partial(ranged, scale=100, signed=True)


def verdict(
    tables: Mapping[str, pd.DataFrame], targets: Sequence[Target], *, problems: int
) -> tuple[str, ...]:
    """Which of our methods is better than the baselines, where, for how many calls; what is missed.

    Args:
        tables: ``equal_calls`` and ``near_best``, as :mod:`selverify.experiment.equal_cost` gives.
        problems: on so many they were measured.
    """
    calls, near = tables["equal_calls"], tables["near_best"]
    found = []
    for method in _told(calls):
        found.append(_against_hull(calls, method, problems))
        found.append(_to_its_best(calls, near, method))
    missed = [one for one in targets if not one.met]
    if missed:
        named = "; ".join(map(_missed, missed[:NAMED]))
        others = "; the others stand under Targets" if len(missed) > NAMED else ""
        found.append(f"Missed, {len(missed)} of {len(targets)} targets: {named}{others}.")
    elif targets:
        found.append(f"Every target is met, {len(targets)} of {len(targets)}.")
    return tuple(found)


def _told(calls: pd.DataFrame) -> Iterator[str]:
    """Full, and the vote that gains most over it, if one does, at the levels that both reach."""
    gains = calls.pivot_table(index="level", columns="method", values="difference")
    if FULL_METHOD not in set(calls["method"]):
        return
    yield FULL_METHOD
    votes = [name for name in VOTES if name in gains]
    if FULL_METHOD in gains:
        over = gains[votes].sub(gains[FULL_METHOD], axis=0).mean()
        votes = [name for name in votes if over[name] > 0.0]
    else:
        over = gains[votes].mean()
    if votes:
        yield max(votes, key=lambda name: float(over[name]))


def _against_hull(calls: pd.DataFrame, method: str, problems: int) -> str:
    """At which B the difference is more than chance, with the one that is largest."""
    own = calls[calls["method"] == method].dropna(subset="difference")
    hull = calls[calls["method"] == HULL].set_index("level")
    above, below = own[own["difference_low"] > 0.0], own[own["difference_high"] < 0.0]
    level = own[~own["level"].isin([*above["level"], *below["level"]])]
    parts = []
    for said, rows, first in (
        ("more accurate", above, False),
        ("less accurate", below, True),
    ):
        if len(rows):
            one = rows.sort_values("difference", ascending=first).iloc[0].to_dict()
            parts.append(
                f"{said} with at most {_levels(rows)} ({_percent(one, 'accuracy')} % against "
                f"{_percent(hull.loc[one['level']].to_dict(), 'accuracy')} % at {one['level']}, "
                f"{_points(one, 'difference')} points)"
            )
    if len(level):
        parts.append(f"no difference beyond chance with at most {_levels(level)}")
    what = "; ".join(parts) or "nothing was cheap enough to compare"
    return (
        f"{method_name(method)} against the best mixture of all baselines, verifier calls a "
        f"problem, {problems} problems: {what}."
    )


def _to_its_best(calls: pd.DataFrame, near: pd.DataFrame, method: str) -> str:
    """The calls for the accuracy that the hull has at best."""
    best = {"accuracy": calls.loc[calls["method"] == HULL, "accuracy"].max()}
    percent = _percent(best, "accuracy")
    within = f"{100 * MARGIN:g} point of the mixture's best accuracy ({percent} %)"
    rows: dict[str, dict[Any, Any]] = {str(one["method"]): one for one in near.to_dict("records")}
    own, hull = rows.get(method, {}), rows.get(HULL, {})
    if pd.isna(own.get("verifier_calls")):
        return f"It does not come within {within}."
    text = (
        f"It comes within {within} with {ranged(own, 'verifier_calls')} calls, the mixture with "
        f"{ranged(hull, 'verifier_calls')}"
    )
    if pd.isna(own.get("ratio")):
        return f"{text}."
    return f"{text}: {ranged(own, 'ratio', digits=2)} of them."


def _missed(one: Target) -> str:
    measured = "no value" if one.measured is None else f"{one.measured:.3g}"
    return f"{one.text} ({measured}, goal {one.goal})"


def _levels(rows: pd.DataFrame) -> str:
    *others, last = (str(level) for level in rows["level"])
    return f"{', '.join(others)} or {last}" if others else last
