"""``selverify``: solve one problem and show how, show the frontier, check the installation, and
ask a log of recorded runs what selective verification would have saved.

Errors of the library end as one sentence on stderr with exit code 1. Does not know: stages, flows.
"""

from __future__ import annotations

import atexit
import gc
import os
import socket
import sys
from contextlib import suppress
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from selverify.errors import ArtifactError, ParamsError, SchemaError, SelverifyError

if TYPE_CHECKING:
    import pandas as pd

    from selverify.data.benchmark import Task
    from selverify.policy import Solved, TrainedPolicy
    from selverify.types import Problem

SPLIT = "test"
FIGURES = (".svg", ".png")
POINT_COLUMNS = (
    "method",
    "n",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "verifier_calls",
    "generated_tokens",
)
ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    # Spinning threads starve each other as soon as anything else uses a core.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "20000",
}
FRONTIER_NOTE = (
    "Accuracy in percent with its 95 % interval; calls and tokens are means a problem. "
    "* no other row is as accurate with fewer calls (the oracles know the truth and stand aside)."
)
STYLES = {"ok": "green", "failed": "bold red", "skipped": "yellow"}

MODELS = Path("models/small-strong")
_Models = Annotated[
    Path, typer.Option(help="The folder of a trained policy: models/<backbone>-<strength>.")
]

_By = Annotated[
    str | None, typer.Option(help="Accept by label, or by score; labels where the log has any.")
]
_Tau = Annotated[
    float | None, typer.Option(help="Accept from this score on; 0.5 where scores are in [0, 1].")
]


class _Sentences(TyperGroup):
    """Shows an error of the library as its message, and what the system says of a file."""

    def invoke(self, ctx: Any) -> Any:
        # What is imported stays to the end, and no collection of garbage need look through it.
        gc.set_threshold(50_000)
        atexit.register(gc.freeze)
        if isinstance(sys.stdout, TextIOWrapper):  # names of files fit every terminal
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except (SelverifyError, OSError) as error:
            typer.echo(f"error: {_harmless(_sentence(error))}", err=True)
            raise typer.Exit(1) from error


class _Formats(TyperCommand):
    """Names the formats below its options."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from selverify.audit.importers import IMPORTERS

        lines = [f"{name}: {importer.title}." for name, importer in IMPORTERS.items()]
        self.epilog = "\n\n".join(["FORMAT is one of", *lines])
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=_Sentences,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"selverify {version('selverify')}")
        raise typer.Exit


@app.callback()
def main(
    *,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show it and exit."),
    ] = False,
) -> None:
    """Where should a limited number of verifier calls be spent?"""


@app.command()
def solve(
    text: Annotated[
        str | None, typer.Argument(help="A problem in the domain's words, set off by spaces.")
    ] = None,
    *,
    problem: Annotated[
        str | None, typer.Option(help="The id of a test problem; without a text the first one.")
    ] = None,
    budget: Annotated[int, typer.Option(help="Verifier calls at most, at least 1.")] = 16,
    models: _Models = MODELS,
    benchmark: Annotated[Path, typer.Option(help="The folder of the benchmark's tables.")] = Path(
        "data/benchmark"
    ),
    trace: Annotated[bool, typer.Option(help="Show every step of the search.")] = True,
    device: Annotated[
        str,
        typer.Option(
            help="Where a model of the hub runs: cpu, cuda or cuda:NUMBER. Models that were "
            "trained here stay on the CPU; where there are no others, a warning says so."
        ),
    ] = "cpu",
) -> None:
    """Solve one problem with the trained policy and show how it went."""
    if text is not None and problem is not None:
        raise typer.BadParameter("give a text or --problem, not both")
    given: str | Problem
    if text is None:
        task = _find(benchmark, problem)
        given = task.problem
    else:
        task, given = None, text
    policy = _load(models, device)
    solved = policy.solve(given, budget=budget)
    _show(policy, solved, task, trace=trace)


@app.command("frontier")
def show_frontier(
    report: Annotated[Path, typer.Option(help="The folder that the stage report wrote.")] = Path(
        "results/report"
    ),
    methods: Annotated[
        str | None, typer.Option(help="Only these methods, separated by commas.")
    ] = None,
) -> None:
    """Show accuracy against verifier calls, method by method, and name the figures."""
    console = Console()
    points = _points(report / "points.csv", methods)
    console.print(_frontier_table(points))
    console.print(Text(FRONTIER_NOTE))
    for figure in sorted(file for file in report.iterdir() if file.suffix in FIGURES):
        console.print(Text(_harmless(str(figure))), soft_wrap=True)


@app.command()
def check(models: _Models = MODELS) -> None:
    """Check packages and models by solving a problem; exit code 1 if something is wrong."""
    _quieten()
    from selverify.installation import checks

    console = Console()
    failed = False
    for found in checks(models):
        failed = failed or found.status == "failed"
        line = Text.assemble((f"{found.status:<8}", STYLES[found.status]), f"{found.name:<13} ")
        console.print(line.append(found.text), soft_wrap=True)
    raise typer.Exit(int(failed))


@app.command("audit", cls=_Formats)
def audit_recorded(
    log: Annotated[
        Path,
        typer.Argument(help="A log of candidate lists or samples, or files of a FORMAT below."),
    ],
    *,
    by: _By = None,
    tau: _Tau = None,
    wanted: Annotated[
        float | None,
        typer.Option(help="In which share of the states an accepted move is to be found; 0.98."),
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="Leave out states with a candidate not verified.")
    ] = False,
    encoder: Annotated[
        str | None,
        typer.Option(help="Also learn an order from this encoder's embeddings (cross-validated)."),
    ] = None,
    figure: Annotated[Path, typer.Option(help="The folder that the figure is written to.")] = Path(
        "audit"
    ),
    csv: Annotated[Path | None, typer.Option(help="Also write the tables here.")] = None,
    resamples: Annotated[
        int | None, typer.Option(help="Resamples of the intervals; 10,000.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of folds and intervals; 0.")] = None,
) -> None:
    """Show what selective verification would have saved in a recorded run."""
    from selverify.audit.commands import audit_log
    from selverify.audit.list_audit import AuditSettings

    given: dict[str, Any] = {
        "by": by,
        "tau": tau,
        "complete": complete,
        "wanted": wanted,
        "resamples": resamples,
        "seed": seed,
    }
    settings = AuditSettings(**{name: one for name, one in given.items() if one is not None})
    learned = None
    if encoder is not None:
        _quieten()
        from selverify.audit.learned_orders import learned_orders

        learned = learned_orders(encoder, seed=settings.seed)
    console = Console()
    parts: list[Any] = []
    try:
        with console.status("Counting calls"):
            audit = audit_log(log, settings=settings, learned=learned, figures=figure, csv=csv)
            for part in audit:
                parts.append(part)
    finally:  # also what was found before something could not be
        for part in parts:
            if isinstance(part, str):
                typer.echo(_harmless(part))
            else:
                console.print(part)


@app.command("train", cls=_Formats)
def train_ranker(
    log: Annotated[
        Path,
        typer.Argument(help="A log of candidate lists with verdicts, or files of a FORMAT below."),
    ],
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The folder of the ranker; one there is replaced."),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            help="What reads the texts: wordllama, mean:MODEL, last:MODEL or server:MODEL@URL, "
            "each with or without +free, or free alone; wordllama+free."
        ),
    ] = None,
    by: _By = None,
    tau: _Tau = None,
    wanted: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="In which share of states with a choice an accepted move is wanted."
        ),
    ] = 0.98,
    seed: Annotated[int, typer.Option(min=0, help="Of folds, training and intervals.")] = 0,
) -> None:
    """Learn from a log which candidates to verify, and how many: a ranker for your own search."""
    _quieten()
    from selverify.audit.training_log import read_lists
    from selverify.ranker import DEFAULT_ENCODER, Ranker, check_folder

    check_folder(output)
    lists, left_out = read_lists(log)
    for line in left_out:
        typer.echo(_harmless(line))
    console = Console()
    with console.status("Training") as status:
        ranker = Ranker.train(
            lists,
            encoder=encoder or DEFAULT_ENCODER,
            by=by,
            tau=tau,
            wanted=wanted,
            seed=seed,
            source=_harmless(log.name),
            report=lambda line: status.update(f"Training: {line}"),
        )
        ranker.save(output)
    typer.echo(ranker.described.savings)
    typer.echo(_harmless(f"Written to {output}; its card is {output / 'README.md'}"))


@app.command()
def serve(
    *,
    model: Annotated[
        str,
        typer.Option(help="As its server calls it; or a folder, owner/name@revision of the hub."),
    ],
    url: Annotated[
        str | None,
        typer.Option(help="Its server, up to and with /v1; left out: the model runs here."),
    ] = None,
    verifier: Annotated[
        Path | None,
        typer.Option(help="YAML: the settings of a verifier, as verifier.source in params.yaml."),
    ] = None,
    ranker: Annotated[
        Path | None, typer.Option(help="The folder of a ranker: selverify train LOG.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="On the loopback address.")] = 8800,
    running: Annotated[int, typer.Option(min=1, help="Searches at once.")] = 8,
    waiting: Annotated[
        int, typer.Option(min=0, help="Searches that may wait; more are told to come again.")
    ] = 64,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="After which a client is told so.")
    ] = 600.0,
    tau: Annotated[float, typer.Option(help="The score from which on a step is accepted.")] = 0.5,
    key_variable: Annotated[
        str | None, typer.Option(help="The environment variable with the key of the server.")
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="A name beside localhost that clients call it by, such as a tunnel's."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="A file that keeps every reply of the models.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where a model of the hub runs.")] = "cpu",
) -> None:
    """Speak the OpenAI chat endpoint in front of a model: searches instead of single samples."""
    _quieten()
    from selverify.params import read_yaml

    try:
        import uvicorn

        from selverify.serving import HOSTS, Limits, proxy
    except ImportError as error:
        raise ParamsError(
            f"serve: expected its packages, pip install '.[serve]' in the clone ({error})"
        ) from error
    from selverify.solving import Solver, SolveSettings

    if url is None and key_variable is not None:
        raise ParamsError("--key-variable: given without --url, expected the server that it is for")
    place = {} if url is None else {"url": url, "key_variable": key_variable}
    settings = None if verifier is None else read_yaml(verifier)
    if verifier is not None and not isinstance(settings, dict):
        raise ParamsError(
            f"{verifier}: expected the settings of a verifier, a name and value a line"
        )
    with _listening(port) as listening, suppress(KeyboardInterrupt):
        solver = Solver(
            generator={"model": model, **place},
            verifier=settings,
            ranker=ranker,
            settings=SolveSettings(tau=tau, cache=cache, device=device),
        )
        names = (*HOSTS, *(host_name or ()))
        app = proxy(solver, model=model, limits=Limits(running, waiting, seconds), hosts=names)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        typer.echo(f"http://127.0.0.1:{port}/v1 searches with {_harmless(model)}")
        server.run(sockets=[listening])
        if not server.started:
            raise typer.Exit(1)


def _listening(port: int) -> socket.socket:
    """A socket at ``port`` of the loopback address."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ParamsError(
            f"--port: given {port} ({error.strerror}), expected one that is free"
        ) from error


@app.command("import", cls=_Formats)
def import_(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help="Whose files; see below.")],
    source: Annotated[Path, typer.Argument(help="A file or a folder.")],
    target: Annotated[Path, typer.Argument(help="The log to write; compressed if it ends in .gz.")],
) -> None:
    """Rewrite recorded runs of others as a log."""
    from selverify.audit.importers import import_log

    for line in import_log(form, source, target):
        typer.echo(_harmless(line))


def _sentence(error: Exception) -> str:
    """Raises ``error`` again where it is none of ours and none of a file that was named."""
    if isinstance(error, SelverifyError):
        return str(error)
    if not isinstance(error, OSError) or error.filename is None:
        raise error
    return f"{error.filename}: {error.strerror}, expected a file or a folder that can be used"


def _harmless(text: str) -> str:
    """Messages quote names of files and fields, and none of them may steer the terminal."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


def _points(path: Path, methods: str | None) -> pd.DataFrame:
    """The rows of ``points.csv``, of the named methods only."""
    import pandas as pd

    if not path.is_file():
        raise ArtifactError(
            f"{path}: no such file; stage 'report' writes it (python -m flows report)"
        )
    try:
        points = pd.read_csv(path, dtype={"method": str})
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise SchemaError(f"{path}: {reason}; expected the table of stage 'report'") from error
    if (fault := _fault(points)) is not None:
        raise SchemaError(f"{path}: {fault}; expected the table of stage 'report'")
    if methods is None:
        return points
    chosen = [name.strip() for name in methods.split(",")]
    unknown = [name for name in chosen if name not in set(points["method"])]
    if unknown:
        known = ", ".join(points["method"].unique())
        raise ParamsError(f"--methods: given {unknown[0]!r}, expected among {known}")
    return points[points["method"].isin(chosen)]


def _fault(points: pd.DataFrame) -> str | None:
    """What keeps a table from being the report's, if anything."""
    import numpy as np
    from pandas import RangeIndex
    from pandas.api.types import is_numeric_dtype

    method, *numbers = POINT_COLUMNS
    for column in POINT_COLUMNS:
        if column not in points.columns:
            return f"no column {column!r}"
    if points.empty or points[method].isna().any():
        return "no row" if points.empty else "a row without a method"
    if not isinstance(points.index, RangeIndex):
        return "rows of more fields than the first line names"
    wrong = [
        column
        for column in numbers
        if not (is_numeric_dtype(points[column]) and np.isfinite(points[column]).all())
    ]
    return f"column {wrong[0]!r} holds something else than numbers" if wrong else None


def _frontier_table(points: pd.DataFrame) -> Table:
    from selverify.experiment.statistics import pareto_frontier
    from selverify.report.names import ORACLES, method_name

    honest = points[~points["method"].isin(ORACLES)]
    best = set(pareto_frontier(honest["verifier_calls"], honest["accuracy"]))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for place, name in enumerate(("Method", "N", "Accuracy", "Interval", "Calls", "Tokens", "")):
        # A long name takes a second line rather than a number's column.
        table.add_column(name, justify="right" if place else "left", no_wrap=bool(place))
    for _, row in points.iterrows():
        at_best = row["method"] not in ORACLES and (row["verifier_calls"], row["accuracy"]) in best
        table.add_row(
            Text(_harmless(method_name(str(row["method"])))),
            str(row["n"]),
            f"{100 * row['accuracy']:.1f}",
            Text(f"[{100 * row['accuracy_low']:.1f}, {100 * row['accuracy_high']:.1f}]"),
            f"{row['verifier_calls']:.1f}",
            f"{row['generated_tokens']:.0f}",
            "*" if at_best else "",
        )
    return table


def _quieten() -> None:
    """Before torch and transformers are imported: no telemetry, spinning threads, loading bars."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _load(models: Path, device: str) -> TrainedPolicy:
    _quieten()
    from selverify.policy import load_policy

    return load_policy(models, device=device)


def _find(folder: Path, problem_id: str | None) -> Task:
    """The test problem called ``problem_id``, or the first one, with its truth."""
    from selverify.data.benchmark import read_split

    tasks = read_split(folder, SPLIT)
    for task in tasks:
        if problem_id in (None, task.problem.problem_id):
            return task
    ids = [task.problem.problem_id for task in tasks]
    known = f"one from {ids[0]!r} to {ids[-1]!r}" if ids else "a benchmark with test problems"
    raise ParamsError(f"{folder}: no test problem {problem_id!r}; expected {known}")


def _show(policy: TrainedPolicy, solved: Solved, task: Task | None, *, trace: bool) -> None:
    from selverify.models.threshold import known_tau
    from selverify.report.trace_text import render_totals, render_trace

    console = Console()
    console.print(
        Text(f"{solved.problem.problem_id}: {solved.problem.text}", style="bold"), soft_wrap=True
    )
    if trace:
        shown = render_trace(
            policy.domain,
            solved.events,
            tau=known_tau(policy.policy_settings.search.tau, "solver.json: search.tau"),
            reference_dispersion=policy.reference_dispersion,
        )
        for part in shown:
            console.print(part)
    console.print(Text("\n".join(["", "Derivation:", *(f"  {one}" for one in solved.derivation)])))
    console.print(_verdict(solved, task))
    console.print(render_totals(solved.events))


def _verdict(solved: Solved, task: Task | None) -> Text:
    """The answer, and whether it is right where the truth is known."""
    given = f"Answer: {solved.answer}" if solved.answer is not None else "No answer"
    if task is None:
        if solved.answer is not None and solved.unaccepted:
            given += " (a step was taken that the verifier did not accept)"
        return Text(given, style="bold")
    from selverify.data.grading import GRADING_SECONDS, Grader

    with Grader(GRADING_SECONDS, workers=1) as grader:
        right = grader.matches(task.truth.answer, solved.answer)
    if right:
        return Text(f"{given}, right", style="bold green")
    return Text(f"{given}, wrong: it is {task.truth.answer}", style="bold red")
