"""Cross-validated choice of settings (PROTOCOL, Difficulty and cross-validation).

Knows: the ``outcomes`` table and difficulty bins. Does not know: what a setting means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from selverify.errors import ParamsError, SchemaError

Rule = Literal["one_standard_error", "accuracy"]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
KEY = ("method", "setting", "n", "problem_id")


@dataclass(frozen=True, slots=True, eq=False)
class CrossValidated:
    """What cross-validation gives.

    Attributes:
        rows: the outcome of each problem under the setting chosen without its fold, for the first
            repetition; columns of ``outcomes`` and ``fold``.
        chosen: repetition, method, n, fold (the one scored), setting.
        repetitions: repetition, method, n, accuracy, verifier_calls (means over all problems).
        spread: method, n, accuracy_mean, accuracy_sd, verifier_calls_mean, verifier_calls_sd
            over the repetitions; the standard deviation divides by their number.
    """

    rows: pd.DataFrame
    chosen: pd.DataFrame
    repetitions: pd.DataFrame
    spread: pd.DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class _Arrays:
    """One method at one budget: names [setting], and [setting, problem] for the rest."""

    settings: tuple[str, ...]
    position: IntArray
    correct: BoolArray
    calls: FloatArray


def cross_validate(
    outcomes: pd.DataFrame,
    bins: Mapping[str, int],
    *,
    folds: int,
    repetitions: int,
    seed: int,
    methods: Sequence[str],
    rule: Rule,
) -> CrossValidated:
    """Choose each method's setting for each budget on the other folds, score it on the held-out.

    Args:
        outcomes: one row a (method, setting, n, problem_id), with correct and verifier_calls.
        bins: difficulty bin of each problem; folds are stratified by it.
        methods: those to validate, in the order of the result.
        rule: ``one_standard_error`` takes the fewest mean calls among the settings within one
            standard error of the best accuracy, ``accuracy`` the most accurate, ties to
            fewer calls; then by name.

    Raises:
        ParamsError: fewer than 2 folds, more folds than problems, or no repetition.
        SchemaError: a problem without a bin, a duplicate row, or a setting that lacks a problem.
    """
    problems = sorted(set(outcomes["problem_id"]))
    if missing := [problem for problem in problems if problem not in bins]:
        raise SchemaError(f"difficulty: no bin for problem {missing[0]!r}")
    if repetitions < 1:
        raise ParamsError(f"evaluation.repetitions: given {repetitions}, expected at least 1")
    strata = [bins[problem] for problem in problems]
    assigned = np.stack(
        [stratified_folds(strata, folds=folds, seed=(seed, r)) for r in range(repetitions)]
    )
    rows, chosen, scores = [], [], []
    for method, n in _groups(outcomes, methods):
        group = outcomes[(outcomes["method"] == method) & (outcomes["n"] == n)]
        arrays = _pivot(group, problems)
        choices = _choose_all(arrays, assigned, folds=folds, rule=rule)
        rows.append(_held_out(group, arrays, choices[0], assigned[0]))
        chosen.append(_chosen_table(method, n, settings=arrays.settings, choices=choices))
        scores.append(_score_table(method, n, arrays=arrays, choices=choices, assigned=assigned))
    repeated = pd.concat(scores, ignore_index=True)
    return CrossValidated(
        rows=pd.concat(rows, ignore_index=True),
        chosen=pd.concat(chosen, ignore_index=True),
        repetitions=repeated,
        spread=_spread(repeated),
    )


def stratified_folds(strata: Sequence[int], *, folds: int, seed: int | tuple[int, ...]) -> IntArray:
    """Fold of each problem, 0..folds-1; sizes differ by at most one, in total and in a stratum.

    Problems are shuffled inside their stratum and dealt out in turn, stratum after stratum.
    """
    if not 2 <= folds <= len(strata):
        raise ParamsError(f"evaluation.folds: given {folds} for {len(strata)} problems, 2 or more")
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    order = np.lexsort((shuffled, np.asarray(strata)))
    assigned = np.empty(len(strata), dtype=np.int64)
    assigned[order] = np.arange(len(strata)) % folds
    return assigned


def choose(correct: BoolArray, calls: FloatArray, *, rule: Rule) -> int:
    """Row of the chosen setting. Rows are in the order in which ties break.

    A setting loses D problems net to the best one and differs from it on Q. The paired difference
    has mean D/n and variance (Q - D^2/n)/(n - 1), so it lies within one standard error exactly
    when D^2 <= Q: integers only, no rounding.

    Args:
        correct: [setting, problem].
        calls: [setting, problem], verifier calls.
    """
    hits, cost = correct.sum(axis=1), calls.mean(axis=1)
    best = int(np.lexsort((cost, -hits))[0])
    if rule == "accuracy":
        return best
    lost = hits[best] - hits
    differing = (correct != correct[best]).sum(axis=1)
    return int(np.argmin(np.where(lost**2 <= differing, cost, np.inf)))


def _groups(outcomes: pd.DataFrame, methods: Sequence[str]) -> list[tuple[str, int]]:
    present = outcomes[["method", "n"]].drop_duplicates()
    groups = []
    for method in methods:
        budgets = present.loc[present["method"] == method, "n"]
        if budgets.empty:
            raise SchemaError(f"outcomes: no row of method {method!r}")
        groups += [(method, int(n)) for n in sorted(budgets)]
    return groups


def _pivot(group: pd.DataFrame, problems: Sequence[str]) -> _Arrays:
    first = group.iloc[0]
    where = f"outcomes: method {first['method']!r}, n {first['n']}"
    if group.duplicated(list(KEY)).any():
        raise SchemaError(f"{where}: a (setting, problem) stands there twice")
    settings = tuple(sorted(set(group["setting"])))
    if len(group) != len(settings) * len(problems):
        raise SchemaError(
            f"{where}: given {len(group)} rows, expected {len(settings)} settings x "
            f"{len(problems)} problems"
        )
    order = np.lexsort((group["problem_id"].to_numpy(str), group["setting"].to_numpy(str)))
    position = order.reshape(len(settings), len(problems)).astype(np.int64)
    return _Arrays(
        settings,
        position,
        correct=group["correct"].to_numpy(bool)[position],
        calls=group["verifier_calls"].to_numpy(np.float64)[position],
    )


def _choose_all(arrays: _Arrays, assigned: IntArray, *, folds: int, rule: Rule) -> IntArray:
    """Chosen row [repetition, fold], each chosen on every problem outside the fold."""
    chosen = np.empty((len(assigned), folds), dtype=np.int64)
    for repetition, fold_of in enumerate(assigned):
        for fold in range(folds):
            seen = fold_of != fold
            chosen[repetition, fold] = choose(
                arrays.correct[:, seen], arrays.calls[:, seen], rule=rule
            )
    return chosen


def _held_out(
    group: pd.DataFrame, arrays: _Arrays, choice: IntArray, fold_of: IntArray
) -> pd.DataFrame:
    columns = np.arange(len(fold_of))
    return group.iloc[arrays.position[choice[fold_of], columns]].assign(fold=fold_of)


def _chosen_table(
    method: str, n: int, *, settings: Sequence[str], choices: IntArray
) -> pd.DataFrame:
    repetition, fold = np.indices(choices.shape)
    return pd.DataFrame(
        {
            "repetition": repetition.ravel(),
            "method": method,
            "n": n,
            "fold": fold.ravel(),
            "setting": [settings[row] for row in choices.ravel().tolist()],
        }
    )


def _score_table(
    method: str, n: int, *, arrays: _Arrays, choices: IntArray, assigned: IntArray
) -> pd.DataFrame:
    picked = np.take_along_axis(choices, assigned, axis=1)
    columns = np.arange(assigned.shape[1])
    return pd.DataFrame(
        {
            "repetition": np.arange(len(assigned)),
            "method": method,
            "n": n,
            "accuracy": arrays.correct[picked, columns].mean(axis=1),
            "verifier_calls": arrays.calls[picked, columns].mean(axis=1),
        }
    )


def _spread(repeated: pd.DataFrame) -> pd.DataFrame:
    grouped = repeated.groupby(["method", "n"], sort=False)
    return pd.DataFrame(
        {
            "accuracy_mean": grouped["accuracy"].mean(),
            "accuracy_sd": grouped["accuracy"].std(ddof=0),
            "verifier_calls_mean": grouped["verifier_calls"].mean(),
            "verifier_calls_sd": grouped["verifier_calls"].std(ddof=0),
        }
    ).reset_index()
