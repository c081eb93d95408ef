"""How verification varies along one solution: the paper's thesis of heterogeneity, measured.

Knows: the events of traced gated competitions. Does not know: models, text, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from selverify.search.allocation import margin
from selverify.search.traces import Event

SPREADS = ("sigma", "margin", "k")
"""What is shown of a round with calls: two spreads of h, and k(w)."""
_VISIT = ["search", "depth", "trusted", *SPREADS, "survivors", "calls", "accepted"]
_BY_DEPTH = [
    *("depth", "rounds", "trusted", "survivors"),
    *(f"{name}{end}" for name in SPREADS for end in ("", "_sd")),
    "accepted",
]


def visits_table(searches: Mapping[str, Sequence[Event]], *, tau: float) -> pd.DataFrame:
    """One row a round of ranked survivors, whether it was trusted or verified.

    Returns:
        search; depth (moves so far); trusted (committed without a call); sigma, margin and k
        (None where no call was allotted); survivors; calls; accepted (of those verified).
    """
    records: list[dict[str, Any]] = []
    for search, events in searches.items():
        for event in events:
            data: dict[str, Any] = dict(event.data)
            visit = {"search": search, "depth": len(event.state.derivation)}
            if event.event == "trust":
                records.append({**visit, "trusted": True})
            elif event.event == "allocate":
                allotted = {
                    "sigma": data["sigma"],
                    "margin": margin(data["scores"]),
                    "k": data["k"],
                }
                counts = {"survivors": len(data["scores"]), "calls": 0, "accepted": 0}
                records.append({**visit, "trusted": False, **allotted, **counts})
            elif event.event == "verify":
                records[-1]["calls"] += 1
                records[-1]["accepted"] += data["score"] >= tau
    return pd.DataFrame(records, columns=_VISIT)


def within_table(visits: pd.DataFrame) -> pd.DataFrame:
    """Means by depth over all rounds there; shares in [0, 1].

    Returns:
        depth, rounds, trusted, survivors, each of ``SPREADS`` and its deviation (sigma_sd and so
        on; these and survivors over the rounds with calls), accepted (share of the verified moves).
    """
    records = []
    for depth, own in visits.groupby("depth"):
        verified = own[~own["trusted"].astype(bool)]
        calls = verified["calls"].sum()
        records.append(
            {
                "depth": depth,
                "rounds": len(own),
                "trusted": float(own["trusted"].mean()),
                **{name: verified[name].mean() for name in ("survivors", *SPREADS)},
                **{f"{name}_sd": verified[name].std(ddof=0) for name in SPREADS},
                "accepted": verified["accepted"].sum() / calls if calls else None,
            }
        )
    return pd.DataFrame(records, columns=_BY_DEPTH).astype({"depth": int})


def share_within(visits: pd.DataFrame, column: str) -> float | None:
    """The share of a column's variance that lies within problems, in [0, 1]; None without any.

    Variance components of a one-way layout with problems as groups (the unbiased estimates, the
    one between problems not below 0), so that it tends to 1 where problems do not differ.
    """
    known = visits.dropna(subset=[column])
    values, groups = known[column].astype(float), known.groupby("search")[column]
    sizes = groups.size()
    if len(sizes) < 2 or len(known) == len(sizes):
        return None
    residue = values - values.groupby(known["search"]).transform("mean")
    within = float((residue**2).sum()) / (len(known) - len(sizes))
    rest = float(((values - values.mean()) ** 2).sum() - (residue**2).sum()) / (len(sizes) - 1)
    size = (len(known) - float((sizes**2).sum()) / len(known)) / (len(sizes) - 1)
    between = max(0.0, (rest - within) / size)
    return within / (within + between) if within + between else None
