"""How verification varies along one solution: the paper's thesis of heterogeneity, measured.

Knows: the events of traced gated competitions. Does not know: models, text, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from selverify.traces import Event


def visits_table(searches: Mapping[str, Sequence[Event]], *, tau: float) -> pd.DataFrame:
    """One row a round of ranked survivors, whether it was trusted or verified.

    Returns:
        search; depth (moves so far); trusted (committed without a call); sigma and k (None where
        no call was allotted); survivors; calls; accepted (of those verified).
    """
    records: list[dict[str, object]] = []
    for search, events in searches.items():
        for event in events:
            data = dict(event.data)
            depth = len(event.state.derivation)
            if event.event == "trust":
                records.append({"search": search, "depth": depth, "trusted": True})
            elif event.event == "allocate":
                records.append(
                    {
                        "search": search,
                        "depth": depth,
                        "trusted": False,
                        "sigma": data["sigma"],
                        "k": data["k"],
                        "survivors": len(data["scores"]),  # type: ignore[arg-type]
                        "calls": 0,
                        "accepted": 0,
                    }
                )
            elif event.event == "verify":
                records[-1]["calls"] = int(str(records[-1]["calls"])) + 1
                accepted = float(str(data["score"])) >= tau
                records[-1]["accepted"] = int(str(records[-1]["accepted"])) + accepted
    names = ["search", "depth", "trusted", "sigma", "k", "survivors", "calls", "accepted"]
    return pd.DataFrame(records, columns=names)


def within_table(visits: pd.DataFrame) -> pd.DataFrame:
    """Means by depth over all rounds there; shares in [0, 1].

    Returns:
        depth, rounds, trusted, survivors, sigma and its deviation (sigma_sd), k, k_sd (these five
        over the rounds with calls), accepted (share of the verified moves).
    """
    records = []
    for depth, own in visits.groupby("depth"):
        asked = own[~own["trusted"].astype(bool)]
        calls = asked["calls"].sum()
        records.append(
            {
                "depth": depth,
                "rounds": len(own),
                "trusted": float(own["trusted"].mean()),
                "survivors": asked["survivors"].mean(),
                "sigma": asked["sigma"].mean(),
                "sigma_sd": asked["sigma"].std(ddof=0),
                "k": asked["k"].mean(),
                "k_sd": asked["k"].std(ddof=0),
                "accepted": asked["accepted"].sum() / calls if calls else None,
            }
        )
    return pd.DataFrame(records).astype({"depth": int})


def share_within(visits: pd.DataFrame, column: str) -> float | None:
    """The share of a column's variance that lies within problems, in [0, 1]; None without any.

    By the law of total variance: the mean of the problems' variances, weighted by their rounds,
    over the variance of all rounds.
    """
    known = visits.dropna(subset=[column])
    values = known[column].astype(float)
    total = values.var(ddof=0)
    if not len(values) or not total:
        return None
    residue = values - values.groupby(known["search"]).transform("mean")
    return float(residue.var(ddof=0) / total)
