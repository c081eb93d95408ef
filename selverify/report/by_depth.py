"""How verification varies along one solution: the paper's thesis of heterogeneity, measured.

Knows: the events of traced gated competitions. Does not know: models, text, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from selverify.search.traces import Event


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
    records: list[dict[str, object]] = []
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
    names = [
        "depth",
        "rounds",
        "trusted",
        "survivors",
        "sigma",
        "sigma_sd",
        "k",
        "k_sd",
        "accepted",
    ]
    return pd.DataFrame(records, columns=names).astype({"depth": int})


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
