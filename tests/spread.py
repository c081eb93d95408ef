"""``make spread``: a default run's accuracy and gain when all is trained again with other seeds.

Knows: the parameters that seed a training. Does not know: how a stage is run. Each training is a
whole run of the checkout, whose parameters are put back at the end; ``make run`` then brings back
its results. Problems, backbone, samples and folds stay, so what differs is the training.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from flows.launcher import run
from flows.origin import changed_parameters, short_commit
from flows.profiles import params_with
from flows.readme import SPREAD
from flows.stages import PARAMS_FILE
from selverify.errors import ParamsError, SelverifyError
from selverify.params import load_params
from selverify.report.names import FULL_METHOD, baseline_methods
from selverify.report.pages import write_csv

TRAININGS = 5
SEEDS = ("rollouts.seed", "verifier.seed", "exploration.seed", "residual.seed")
REPORT = Path("results/report/equal_calls.csv")
COLUMNS = ["level", "accuracy", "difference", "difference_mean"]
"""The last two are to the hull of all baselines: in the first division into folds, over all."""
ROWS = {
    "accuracy": "Accuracy, %",
    "difference": "Points to the hull",
    "difference_mean": "The same on average over 20 divisions into folds",
}


def main() -> None:
    """Train, evaluate, and write ``SPREAD``.

    Raises:
        ParamsError: parameters were changed.
    """
    if changes := changed_parameters(Path.cwd()):
        raise ParamsError(f"params.yaml: given {', '.join(changes)}, expected the commit's values")
    before = PARAMS_FILE.read_text(encoding="utf-8")
    methods = load_params(PARAMS_FILE).evaluation.methods
    kept = [name for name in methods if name in (*baseline_methods(), FULL_METHOD)]
    compared = f"evaluation.methods=[{', '.join(kept)}]"
    found = []
    try:
        for training in range(1, TRAININGS + 1):
            changes = [f"{name}={1000 * training + place}" for place, name in enumerate(SEEDS)]
            text = params_with((*changes, compared), origin=PARAMS_FILE)
            PARAMS_FILE.write_text(text, encoding="utf-8")
            run()
            table = pd.read_csv(REPORT)
            own = table[table["method"] == FULL_METHOD][COLUMNS]
            found.append(own.assign(training=training))
    finally:
        PARAMS_FILE.write_text(before, encoding="utf-8")
    write_csv(pd.concat(found).assign(commit=short_commit(Path.cwd())), SPREAD)
    print(f"{SPREAD}: {TRAININGS} trainings, lowest to highest (standard deviation)\n")
    print(as_table(pd.read_csv(SPREAD)))


def as_table(trainings: pd.DataFrame) -> str:
    """In Markdown: of each of ``ROWS`` the lowest and highest of the trainings, by B."""
    levels = sorted(trainings["level"].unique())
    lines = [f"| | {' | '.join(f'B = {level}' for level in levels)} |"]
    lines.append(f"| --- |{' ---: |' * len(levels)}")
    for column, name in ROWS.items():
        sign = "" if column == "accuracy" else "+"
        values = (100 * trainings.loc[trainings["level"] == level, column] for level in levels)
        cells = (
            f"{one.min():{sign}.1f} to {one.max():{sign}.1f} ({one.std():.1f})" for one in values
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        main()
    except SelverifyError as error:
        sys.exit(f"error: {error}")
