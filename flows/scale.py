"""``python -m flows scale``: calls, storage, time and price of a run on many machines.

Knows: the files of the last report and evaluation, and how long MLflow says that the latter took.
Does not know: prices, which are given, or machines other than the one that was measured. All is in
proportion to the problems.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import NoReturn

import pyarrow.parquet as pq

from flows.stages import PARAMS_FILE, Stage, find_stage, load_stages
from selverify.errors import ArtifactError, ParamsError, SchemaError
from selverify.params import Params, load_params
from tasks.evaluation import SHARD
from tasks.shards import shard_size, workers_and_threads

LARGEST = 10**12
CALLS, TOKENS = "verifier_calls", "generated_tokens"
OUTCOMES, DETAILS = "outcomes.parquet", "details.json"
UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Measured:
    """What the evaluation of ``problems`` problems left: bytes by what they hold, table rows.

    ``core_seconds`` is its time times its cores; None where one of them is unknown.
    """

    problems: int
    stored: Mapping[str, int]
    rows: int
    core_seconds: float | None


def scale(*arguments: str) -> None:
    """Print the plan.

    Raises:
        ParamsError: an argument is none, or out of range.
        ArtifactError: there is no report.
        SchemaError: its metrics are no numbers.
    """
    asked = _asked(arguments)
    params = load_params(PARAMS_FILE)
    stages = load_stages(params)
    report = list(stages.values())[-1]
    evaluation = find_stage(stages, f"evaluation@{params.backbones[0]}-{params.strengths[0]}")
    size = _shard_size(params)
    shards = ceil(asked.problems / size)
    print(
        f"{asked.problems:,} problems on {asked.machines:,} machines: {shards:,} shards of "
        f"{size}, {ceil(shards / asked.machines):,} a machine\n"
    )
    print("\n".join(by_method(_metrics(report.outputs[report.task] / DETAILS), asked)))
    found = measure(evaluation, params.narrowed(**evaluation.item))
    if found is None:
        print(f"\nTime and storage: unknown, {evaluation.name} is not here (make run)")
    else:
        print("\n".join(["", *whole_stage(found, asked)]))


def _shard_size(params: Params) -> int:
    return shard_size(SHARD, params.generator[params.domain][params.backbones[0]])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ParamsError(f"scale: {message}; expected {' '.join(self.format_usage().split()[1:])}")


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    """Problems and machines, and prices in any currency; None where not given."""
    parser = _Parser(prog="python -m flows scale", add_help=False)
    for name in ("problems", "machines"):
        parser.add_argument(f"--{name}", type=_within(int, 1), required=True, metavar="N")
    for name in ("million-tokens", "thousand-calls", "core-hour"):
        parser.add_argument(f"--{name}", type=_within(float, 0), metavar="PRICE")
    return parser.parse_args(arguments)


def _within(kind: Callable[[str], float], least: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text[:32])
        if not least <= value <= LARGEST:
            raise argparse.ArgumentTypeError(f"given {value}, expected {least} to {LARGEST}")
        return value

    return number


def _metrics(path: Path) -> dict[str, float]:
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; the report writes it (make run)")
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
        return {name: float(value) for name, value in read.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise SchemaError(f"{path}: given {error}, expected numbers by name") from error


def by_method(metrics: Mapping[str, float], asked: argparse.Namespace) -> list[str]:
    """One method alone at the headline budget: its calls and tokens, and their price."""
    methods = [name.removesuffix(f".{CALLS}") for name in metrics if name.endswith(f".{CALLS}")]
    lines = [
        f"One method at N = {metrics.get('budget', 0):.0f}, as the ledger counts "
        f"({DETAILS}; a problem, and all)",
        f"{'':24} {'verifier calls':>31} {'generated tokens':>31} {'price':>14}",
    ]
    for method in methods:
        calls, tokens = metrics[f"{method}.{CALLS}"], metrics.get(f"{method}.{TOKENS}", 0.0)
        parts = [(calls / 1e3, asked.thousand_calls), (tokens / 1e6, asked.million_tokens)]
        prices = [asked.problems * amount * price for amount, price in parts if price is not None]
        price = f"{sum(prices):,.2f}" if prices else "-"
        lines.append(
            f"{method:24} {calls:12,.2f} {calls * asked.problems:18,.0f} "
            f"{tokens:12,.1f} {tokens * asked.problems:18,.0f} {price:>14}"
        )
    return lines


def measure(stage: Stage, params: Params) -> Measured | None:
    """What evaluation ``stage`` left; None where it was not run here."""
    folder = stage.outputs[stage.task]
    if not (folder / OUTCOMES).is_file():
        return None
    table = pq.read_table(folder / OUTCOMES, columns=["problem_id"])
    problems = len(table["problem_id"].unique())
    stored = {path.name: path.stat().st_size for path in sorted(folder.glob("*.parquet"))}
    cache = Path(params.tracking.reply_cache)
    if cache.is_file():
        stored[f"{cache} (with what earlier runs asked)"] = cache.stat().st_size
    seconds = import_module("flows.tracking").seconds_of(stage, params)
    cores = _cores(stage, params, shards=ceil(problems / _shard_size(params)))
    core_seconds = None if seconds is None or cores is None else seconds * cores
    return Measured(problems, stored, table.num_rows, core_seconds)


def _cores(stage: Stage, params: Params, *, shards: int) -> int | None:
    """How many cores worked on shards at a time; None where a scheduler of others knows it."""
    if params.tracking.runner != "local" and params.tracking.dask is not None:
        return None
    workers, threads = workers_and_threads(params, stage.inputs)
    if params.tracking.runner != "local":
        workers = params.tracking.threads
    return min(min(workers, shards) * threads, params.tracking.threads)


def whole_stage(measured: Measured, asked: argparse.Namespace) -> list[str]:
    """The evaluation stage, which is every method, setting and N: time, storage, table rows."""
    factor = asked.problems / measured.problems
    lines = [
        f"The evaluation stage, every method, setting and N (measured on {measured.problems:,} "
        "problems; a problem, all, a machine)"
    ]
    for name, size in measured.stored.items():
        whole = size * factor
        parts = (size / measured.problems, whole, whole / asked.machines)
        lines.append(f"{name:58} " + " ".join(f"{_bytes(part):>10}" for part in parts))
    rows = measured.rows / measured.problems
    lines.append(
        f"rows of {OUTCOMES}, gathered by one process: {rows:,.0f} a problem, "
        f"{measured.rows * factor:,.0f} in all"
    )
    if measured.core_seconds is None:
        return [*lines, "time: unknown, MLflow has none or a scheduler had the workers"]
    hours = measured.core_seconds * factor / 3600
    lines.append(
        f"time: {measured.core_seconds / measured.problems:,.2f} core seconds a problem, "
        f"{hours:,.1f} core hours, {hours / asked.machines:,.1f} a machine"
    )
    if asked.core_hour is not None:
        lines.append(f"price of the cores: {hours * asked.core_hour:,.2f}")
    return lines


def _bytes(size: float) -> str:
    for unit in UNITS:
        if size < 1000 or unit == UNITS[-1]:
            break
        size /= 1000
    return f"{size:.1f} {unit}"
