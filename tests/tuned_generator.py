"""Would the same labels have been better spent on the generator? Baselines on a tuned one.

    python -m flows exec python tests/tuned_generator.py

After an evaluation of a domain whose generator was trained here, in its folder. The reward model
contains the generator, tuned on those sampled solutions of training problems that reached the gold
(rejection sampling fine-tuning). Baselines sample from that one here, with the same verifier, grid
and folds. The full method's rows are those that the evaluation kept: its generator is the frozen
one, which the verifier and the ranker were trained on.

With ``--replace`` the tuned generator takes the place of the frozen one in this checkout, and
nothing is measured: a run then has rollouts, a verifier and a ranker of its own. ``git checkout
models`` brings the frozen one back.
"""

from __future__ import annotations

import argparse
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from free_signals import at_equal_calls
from likelihood_vote import trained

from selverify.experiment.equal_cost import HULL, equal_cost_table
from selverify.experiment.evaluation import evaluate
from selverify.experiment.methods import METHODS, Conditions
from selverify.experiment.statistics import Bootstrap
from selverify.params import Params
from selverify.report.names import FULL_METHOD, method_name
from selverify.search.compute import Sizes
from selverify.storage import check_digests, write_digests
from tasks.artifacts import read_facts, read_frame, read_tasks
from tasks.models import open_models

BASELINES = ("cot", "majority_gated", "best_of_n_gated", "early_stopping_gated", "dvts_gated")
WEIGHTS = "model.safetensors"
SHARD = 125
"""Problems that are searched at once."""


def main() -> None:
    """Measure and print a table, or replace the generator."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--replace", action="store_true", help="the generator by the tuned one")
    given = asked.parse_args()
    logging.disable(logging.INFO)
    params, inputs = trained()
    if given.replace:
        _replace(inputs["generator"], inputs["verifier"])
        return
    variant = f"{params.backbones[0]}-{params.strengths[0]}"
    kept = Path("results/evaluation", variant)
    outcomes = read_frame(kept, "evaluation", "outcomes")
    sizes = Sizes(**read_facts(kept, "evaluation", "rules")["sizes"])
    frozen = outcomes[outcomes["method"].isin((*BASELINES, FULL_METHOD))]
    tuned = pd.DataFrame(_searched(params, inputs["verifier"]))
    for name, rows in (
        ("frozen", frozen),
        ("tuned", pd.concat([tuned, frozen[frozen["method"] == FULL_METHOD]], ignore_index=True)),
    ):
        print(f"\nBaselines with the {name} generator, right, %\n")
        _print(params, rows.assign(compute=sizes.operations(rows)))


def _replace(generator: Path, verifier: Path) -> None:
    check_digests(verifier)
    shutil.copyfile(verifier / WEIGHTS, generator / WEIGHTS)
    write_digests(generator)
    print(f"{generator}: the generator that {verifier} contains")


def _searched(params: Params, verifier: Path) -> Iterator[dict[str, Any]]:
    settings = params.evaluation
    tasks = read_tasks(Path("data/benchmark"), settings.split, limit=settings.problems)
    for seed in settings.sampling_seeds:
        given = {"generator": verifier, "verifier": verifier}
        models = open_models(params, given, seed=seed, cached=True)
        for start in range(0, len(tasks), SHARD):
            for row in evaluate(
                models.domain,
                models.backend,
                tasks[start : start + SHARD],
                Conditions(params, {}, ()),
                methods=BASELINES,
                report=lambda *_: None,
            ):
                yield {"sampling_seed": seed, **row}


def _print(params: Params, rows: pd.DataFrame) -> None:
    """Accuracy at equal calls; of the full method also points to the hull of these baselines."""
    settings = params.evaluation
    difficulty = read_frame(
        Path("data/difficulty", params.backbones[0]), "difficulty", "difficulty"
    ).set_index("problem_id")["difficulty_bin"]
    methods = (*BASELINES, FULL_METHOD)
    entries = at_equal_calls(params, rows, difficulty.to_dict(), methods, baselines=BASELINES)
    table = equal_cost_table(entries, Bootstrap(settings.resamples, settings.seed))
    print("| Method | " + " | ".join(f"B = {level}" for level in settings.calls) + " |")
    print("| --- |" + " ---: |" * len(settings.calls))
    for name in (*BASELINES, HULL, FULL_METHOD):
        own = table[table["method"] == name].sort_values("level")
        print(f"| {method_name(name)} | " + " | ".join(map(_cell, own.to_dict("records"))) + " |")


def _cell(entry: dict[str, Any]) -> str:
    if pd.isna(entry["accuracy"]):
        return "-"
    right = f"{100 * entry['accuracy']:.1f}"
    if METHODS.get(entry["method"]) is not METHODS[FULL_METHOD]:
        return right
    gap, low, high = (
        100 * entry[one] for one in ("difference", "difference_low", "difference_high")
    )
    return f"{right} ({gap:+.1f} [{low:+.1f}, {high:+.1f}])"


if __name__ == "__main__":
    main()
