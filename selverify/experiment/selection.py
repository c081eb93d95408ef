"""Cross-validated choice of settings (docs/protocol.md, difficulty).

Knows: the ``outcomes`` table and difficulty bins. Does not know: the meaning of a setting.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from selverify.errors import ParamsError, SchemaError
from selverify.experiment.statistics import DIGITS, FloatArray, IntArray

SelectionRule = Literal["one_standard_error", "accuracy"]
KEY = ("method", "setting", "n", "problem_id")
COSTS = (
    *("verifier_calls", "verifier_steps", "generated_moves", "generated_tokens"),
    *("read_tokens", "verified_tokens", "compute"),
)
"""What the outcomes count of a search."""
_UNGRADED = ("unparsed", "timeout")


@dataclass(frozen=True, slots=True)
class Strategy:
    """A choice between methods, made like the choice between settings.

    ``by_bin``: for each difficulty bin its own, as in compute-optimal scaling (Snell et al. 2024).
    """

    methods: tuple[str, ...]
    by_bin: bool


@dataclass(frozen=True, slots=True, eq=False)
class CrossValidated:
    """What cross-validation gives.

    Attributes:
        rows: the outcome of each problem under the setting chosen without its fold, for the first
            repetition; columns of ``outcomes`` and ``fold``. ``correct`` is the share of its runs.
        spread: method, n, accuracy_mean, accuracy_sd, verifier_calls_mean, verifier_calls_sd
            over the repetitions (the standard deviation divides by their number), settings (those
            of each fold of the first repetition, joined by " | "). Without strategies that choose
            by bin.
        runs: how often each problem was run: the number of sampling seeds.
        pooled: every outcome, as :func:`pool_runs` gives.
        folds: the fold of each problem, by name, in each repetition [repetition, problem].
    """

    rows: pd.DataFrame
    spread: pd.DataFrame
    runs: int
    pooled: pd.DataFrame
    folds: IntArray


class _Sorted(NamedTuple):
    """One method at one budget, its rows sorted by setting and by problem.

    ``correct`` (counts of runs) and ``calls`` are [setting, problem].
    """

    rows: pd.DataFrame
    correct: IntArray
    calls: FloatArray


def cross_validate(
    outcomes: pd.DataFrame,
    bins: Mapping[str, int],
    *,
    folds: int,
    repetitions: int,
    seed: int,
    methods: Sequence[str],
    rule: SelectionRule,
    strategies: Mapping[str, Strategy] = MappingProxyType({}),
) -> CrossValidated:
    """Choose each method's setting for each budget on the other folds, score it on the held-out.

    All runs of a problem are in one fold.

    Args:
        outcomes: one row a (method, setting, n, problem_id, sampling_seed).
        bins: difficulty bin of each problem; folds are stratified by it.
        methods: those to validate, in the order of the result.
        rule: ``one_standard_error`` takes the fewest mean calls among the settings within one
            standard error of the best accuracy, ``accuracy`` the most accurate, ties to
            fewer calls; then by name.
        strategies: by the name that each has beside the methods. Its setting is named
            after the method and that method's own.

    Raises:
        ParamsError: fewer than 2 folds, more folds than problems, or no repetition.
        SchemaError: a problem without a bin, a duplicate row, or a setting that lacks a problem.
    """
    pooled, runs = pool_runs(outcomes)
    problems = sorted(set(pooled["problem_id"]))
    if missing := [problem for problem in problems if problem not in bins]:
        raise SchemaError(f"difficulty: no bin for problem {missing[0]!r}")
    strata = [bins[problem] for problem in problems]
    if repetitions < 1:
        raise ParamsError(f"evaluation.repetitions: given {repetitions}, expected at least 1")
    assigned = np.stack(
        [stratified_folds(strata, folds=folds, seed=(seed, r)) for r in range(repetitions)]
    )
    columns = np.arange(len(problems))
    rows, scores = [], []
    for method, n, group in _groups(pooled, methods, strategies):
        by_bin = method in strategies and strategies[method].by_bin
        table = _sorted(group, problems)
        bin_of = np.asarray(strata) if by_bin else np.zeros(len(problems), dtype=np.int64)
        picked = _picked(table, assigned, bin_of, rule=rule)
        own = table.rows.iloc[picked[0] * len(problems) + columns].assign(fold=assigned[0])
        rows.append(own)
        if not by_bin:
            of_folds = own.drop_duplicates("fold").sort_values("fold")["setting"]
            accuracy = table.correct[picked, columns].mean(axis=1) / runs
            calls = table.calls[picked, columns].mean(axis=1)
            score = pd.DataFrame({"accuracy": accuracy, "verifier_calls": calls})
            scores.append(score.assign(method=method, n=n, settings=" | ".join(of_folds)))
    held_out = pd.concat(rows, ignore_index=True)
    return CrossValidated(
        rows=held_out.assign(correct=held_out["correct"] / runs),
        spread=_spread(pd.concat(scores)),
        runs=runs,
        pooled=pooled,
        folds=assigned,
    )


def pool_runs(outcomes: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """One row a (method, setting, n, problem_id) from one a run of it, and the number of runs.

    ``correct``, ``unparsed`` and ``timeout`` count runs, costs are means.

    Raises:
        SchemaError: a run is given twice, or some problem was not run under every seed.
    """
    seeds = outcomes["sampling_seed"].nunique()
    if outcomes.duplicated([*KEY, "sampling_seed"]).any():
        raise SchemaError("outcomes: a (method, setting, n, problem, sampling seed) is given twice")
    counted = outcomes.assign(
        correct=outcomes["correct"].astype(np.int64),
        **{name: (outcomes["status"] == name).astype(np.int64) for name in _UNGRADED},
    )
    grouped = counted.groupby(list(KEY), sort=False)
    pooled = grouped.agg(
        {"correct": "sum", **dict.fromkeys(COSTS, "mean"), **dict.fromkeys(_UNGRADED, "sum")}
    )
    sizes = grouped.size().reset_index(name="runs")
    if len(incomplete := sizes[sizes["runs"] != seeds]):
        one = incomplete.iloc[0]
        raise SchemaError(
            f"outcomes: method {one['method']!r}, setting {one['setting']!r}, n {one['n']}, "
            f"problem {one['problem_id']!r}: {one['runs']} runs, expected one for each of {seeds} "
            "sampling seeds"
        )
    return pooled.reset_index(), seeds


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


def choose_setting(correct: IntArray, calls: FloatArray, *, rule: SelectionRule) -> int:
    """Row of the chosen setting. Rows are in the order in which ties break.

    A setting loses D runs net to the best one, and Q is the sum over problems of the squared
    differences. The paired difference has mean D/n and variance (Q - D^2/n)/(n - 1), so it lies
    within one standard error exactly when D^2 <= Q: integers only, no rounding.

    Args:
        correct: [setting, problem], runs that were right.
        calls: [setting, problem], mean verifier calls.
    """
    runs = np.asarray(correct, dtype=np.int64)
    hits, cost = runs.sum(axis=1), np.round(calls.mean(axis=1), DIGITS)  # thirds of calls tie
    best = int(np.lexsort((cost, -hits))[0])
    if rule == "accuracy":
        return best
    lost = hits[best] - hits
    differing = ((runs - runs[best]) ** 2).sum(axis=1)
    return int(np.argmin(np.where(lost**2 <= differing, cost, np.inf)))


def _groups(
    pooled: pd.DataFrame, methods: Sequence[str], strategies: Mapping[str, Strategy]
) -> Iterator[tuple[str, int, pd.DataFrame]]:
    """Name, budget and rows of each method and each strategy; a strategy's rows are renamed."""
    named = {method: pooled[pooled["method"] == method] for method in methods}
    for name, strategy in strategies.items():
        own = pooled[pooled["method"].isin(strategy.methods)]
        settings = (own["method"] + " " + own["setting"]).str.strip()
        named[name] = own.assign(method=name, setting=settings)
    for name, rows in named.items():
        if rows.empty and name in methods:
            raise SchemaError(f"outcomes: no row of method {name!r}")
        for n in sorted(set(rows["n"].tolist())):
            yield name, n, rows[rows["n"] == n]


def _sorted(group: pd.DataFrame, problems: Sequence[str]) -> _Sorted:
    shape = group["setting"].nunique(), len(problems)
    if len(group) != shape[0] * shape[1]:
        first = group.iloc[0]
        raise SchemaError(
            f"outcomes: method {first['method']!r}, n {first['n']}: given {len(group)} rows, "
            f"expected {shape[0]} settings x {shape[1]} problems"
        )
    rows = group.sort_values(["setting", "problem_id"])
    return _Sorted(
        rows,
        correct=rows["correct"].to_numpy(np.int64).reshape(shape),
        calls=rows["verifier_calls"].to_numpy(np.float64).reshape(shape),
    )


def _picked(
    table: _Sorted, assigned: IntArray, bin_of: IntArray, *, rule: SelectionRule
) -> IntArray:
    """The place of the chosen setting for each problem [repetition, problem].

    It is chosen on the problems of its bin outside its fold.
    """
    picked = np.empty_like(assigned)
    for repetition, fold_of in enumerate(assigned):
        for fold, number in itertools.product(np.unique(fold_of), np.unique(bin_of)):
            others, inside = fold_of != fold, bin_of == number
            seen = others & inside
            if not seen.any():  # a bin within one fold: the best setting on all other problems
                seen = others
            row = choose_setting(table.correct[:, seen], table.calls[:, seen], rule=rule)
            picked[repetition, ~others & inside] = row
    return picked


def _spread(scores: pd.DataFrame) -> pd.DataFrame:
    grouped = scores.groupby(["method", "n", "settings"], sort=False)
    spread = pd.DataFrame(
        {
            f"{name}_{end}": column
            for name in ("accuracy", "verifier_calls")
            for end, column in (("mean", grouped[name].mean()), ("sd", grouped[name].std(ddof=0)))
        }
    ).reset_index()
    return spread.assign(settings=spread.pop("settings"))
