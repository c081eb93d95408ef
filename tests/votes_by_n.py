"""Votes on the same N samples: by number, by the verifier's scores, by the ranker without a call.

    python -m flows exec python tests/votes_by_n.py docs/results/results-gsm8k

From the rows that a results page keeps; differences are paired, questions resampled.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from flows.folded_rows import unfold
from selverify.experiment.statistics import Bootstrap, paired_difference

RESAMPLES = Bootstrap(resamples=10_000, seed=0)
VOTES = {"majority": "", "best_of_n_gated": "aggregation=prod", "ranked_vote": "confidence=0"}
"""The methods, and what the setting of each ends with."""
HEADS = (
    *("N", "Majority vote, %", "Best-of-N weighted + gates, %", "Calls of best-of-N"),
    *("Ranked vote without a call, %", "Best-of-N to majority, points"),
    *("Ranked vote to majority, points", "Exactly one right"),
)
SMALLEST = 8


def main() -> None:
    """Print a table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("page", type=Path, help="of docs/results, with one backbone and verifier")
    with TemporaryDirectory() as temporary:
        shutil.copytree(asked.parse_args().page, temporary, dirs_exist_ok=True)
        unfold(Path(temporary))
        found = [*Path(temporary).rglob("outcomes.parquet")]
        if len(found) != 1:
            raise SystemExit(f"given {len(found)} outcomes.parquet, expected one")
        rows = pd.read_parquet(found[0])
    print(f"| {' | '.join(HEADS)} |\n|{' ---: |' * len(HEADS)}")
    for n in sorted(rows["n"].unique()):
        if n >= SMALLEST:
            print(_row(rows[rows["n"] == n]))


def _row(rows: pd.DataFrame) -> str:
    own = {
        name: rows[(rows["method"] == name) & rows["setting"].str.endswith(setting)]
        for name, setting in VOTES.items()
    }
    runs = pd.DataFrame(
        {
            name: some.set_index(["problem_id", "sampling_seed"])["correct"]
            for name, some in own.items()
        }
    )
    assert runs.notna().all(axis=None) and runs.index.is_unique, "a run without one of the votes"
    means = 100 * runs.groupby("problem_id").mean()
    gaps = []
    for name in ("best_of_n_gated", "ranked_vote"):
        gap = paired_difference(means[name], means["majority"], bootstrap=RESAMPLES)
        gaps.append(f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]")
    majority, best, ranked = (f"{means[name].mean():.1f}" for name in VOTES)
    calls = own["best_of_n_gated"]["verifier_calls"].mean()
    differ = (runs["best_of_n_gated"] != runs["ranked_vote"]).sum()
    cells = (
        *(str(rows["n"].iloc[0]), majority, best, f"{calls:.1f}", ranked),
        *(*gaps, f"{differ} of {len(runs):,}"),
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
