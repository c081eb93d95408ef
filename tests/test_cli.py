"""The command line, and the text of a search's trace."""

import io
import json
import os
import random
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest
from fake_backend import FakeBackend
from rich.console import Console
from typer.testing import CliRunner, Result

import selverify.policy
from selverify import installation
from selverify.cli import POINT_COLUMNS, app
from selverify.data.benchmark import VERSION as BENCHMARK_VERSION
from selverify.data.benchmark import Task, benchmark_rows, build
from selverify.domains import domain_by_name
from selverify.experiment.methods import METHODS
from selverify.models.policy_settings import PolicySettings
from selverify.models.threshold import with_tau
from selverify.params import Benchmark, Split, load_params
from selverify.policy import Solved, TrainedPolicy
from selverify.report.trace_text import (
    END_REASONS,
    FALLBACKS,
    KEPT,
    OUTCOMES,
    RETRIEVED,
    Round,
    read_rounds,
    render_totals,
    render_trace,
)
from selverify.search.allocation import margin
from selverify.search.gated import REJECT_PROBABILITY
from selverify.search.ledger import Ledger
from selverify.storage import write_table
from selverify.types import State
from tasks.artifacts import VERSION

PARAMS = with_tau(load_params(Path(__file__).parents[1] / "params.yaml"), 0.4)
DOMAIN = domain_by_name("word_problems")
SPLITS = {name: Split(problems=8, seed=s) for s, name in enumerate(("train", "validation", "test"))}
TASKS = [
    t
    for t in build(DOMAIN, Benchmark(minimum=4, maximum=5, hard=0.3, **SPLITS))
    if t.split == "test"
]
TRUTHS = {task.problem.problem_id: task.truth for task in TASKS}
TEXT = "we count apples 7 . pears equal 3 times apples . find pears ?"
TAU = 0.4


def propose(state: State, rng: random.Random) -> str:
    """A right next move, a misread number, nonsense, or an answer out of turn."""
    truth = TRUTHS[state.problem.problem_id]
    told = {move.text for move in state.derivation}
    right = [move.text for move in DOMAIN.solution(state.problem, truth, random.Random(3))]
    rest = [text for text in right if text not in told]
    draw = rng.random()
    if draw < 0.55 and rest:
        return rest[0]
    if draw < 0.85:
        names = sorted(json.loads(truth.facts)["relations"])
        return f"{rng.choice(names)} {rng.randrange(3)} ;"
    return "= [b] ;" if draw < 0.95 else "answer 1 ;"


def guided(seed: int, *, max_moves: int = 12, **rules: object) -> TrainedPolicy:
    """A policy over the fake backend, whose verifier and ranks are noise."""
    changes = {"proposals": 4, "tau": TAU, "retrieval": True, **rules}
    search = PARAMS.search.model_copy(update=changes)
    settings = PolicySettings(
        domain="word_problems",
        backbone="none",
        sampling=PARAMS.sampling["word_problems"].model_copy(update={"max_moves": max_moves}),
        search=search,
        seed=seed,
    )
    backend = FakeBackend(DOMAIN, propose, name="guided", seed=seed, max_moves=8)
    return TrainedPolicy(DOMAIN, backend, settings, 0.25, ("answer", "add next 0 0 1"), 100)


@pytest.fixture(scope="module")
def traced() -> list[Solved]:
    """Searches of many kinds: short and long of calls and of samples."""
    problems = [task.problem for task in TASKS]
    few_samples = guided(2, max_moves=2, k_base=1.0, k_max=1, skip_below=0.0, retrieval=False)
    policies = [guided(0), guided(1), few_samples, guided(3, fallback=False)]
    return [
        solved
        for policy in policies
        for budget in (1, 4, 9)
        for solved in policy.solve_many(problems, budget=budget)
    ]


def plain(solved: Solved) -> str:
    """The trace as a wide terminal without colours shows it."""
    console = Console(file=io.StringIO(), width=200)
    for part in render_trace(DOMAIN, solved.events, tau=TAU, reference_dispersion=0.25):
        console.print(part)
    console.print(render_totals(solved.events))
    return console.file.getvalue()


def test_the_searches_show_everything_a_search_can_do(traced):
    """Each kind of event and of end occurs, or the tests below would say little."""
    events = [event for solved in traced for event in solved.events]
    known = set(OUTCOMES) - {"check"}  # no answer of this domain checks for free
    assert {event.event for event in events} >= known
    rules = {dict(event.data).get("rule") for event in events if event.event == "fallback"}
    assert rules == set(FALLBACKS)
    assert {solved.reason for solved in traced} == set(END_REASONS)
    rows = [row for one in traced for step in read(one) for row in step.rows]
    assert {row.source for row in rows} == {"", KEPT, RETRIEVED}
    assert any(row.judged for row in rows)


def read(solved: Solved) -> list[Round]:
    return [step for step in read_rounds(DOMAIN, solved.events) if isinstance(step, Round)]


def test_rounds_say_what_the_search_recorded(traced):
    """Samples, survivors, refusals by reason, ranks, calls allotted and verdicts, all of them."""
    for solved in traced:
        rounds, data = read(solved), [(e.event, dict(e.data)) for e in solved.events]
        texts = [text for _, one in data for text in one.get("texts", ())]
        assert sum(step.sampled for step in rounds) == len(texts)
        refused = sum((Counter(one.get("refused", {})) for _, one in data), Counter())
        assert refused == sum((refusals(step) for step in rounds), Counter())
        allotted = [
            (one["sigma"], margin(one["scores"]), one["k"])
            for kind, one in data
            if kind == "allocate"
        ]
        found = [(step.sigma, step.margin, step.k) for step in rounds if step.k is not None]
        assert allotted == found
        asked = Counter((one["steps"][-1], one["score"]) for kind, one in data if kind == "verify")
        rows = [row for step in rounds for row in step.rows]
        assert asked == Counter((row.text, row.score) for row in rows if row.score is not None)
        ranked = [
            h
            for kind, one in data
            if kind == "rank" and one["scorer"] != REJECT_PROBABILITY
            for h in one["scores"]
        ]
        assert sorted(ranked) == sorted(row.h for row in rows if row.h is not None)


def refusals(step: Round) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in step.rows:
        if row.gate:
            found[f"{row.gate}: {row.reason}"] += row.times
    return found


def test_the_verified_stand_first_in_a_round(traced):
    """Survivors are in the order of h, so those asked about are the first ones."""
    for solved in traced:
        for step in read(solved):
            survivors = [row for row in step.rows if not row.gate and not row.judged]
            asked = [row.score is not None for row in survivors]
            assert asked == sorted(asked, reverse=True)
            if step.k is not None:
                assert sum(asked) == min(step.k, step.state.budget, len(survivors))


def test_the_trace_can_be_read(traced):
    """Every committed move, verdict and turn of the search is told; totals are the ledger's."""
    for solved in traced:
        text = plain(solved)
        seen = Counter(event.event for event in solved.events)
        assert text.count("Commit: ") == seen["commit"]
        assert text.count(", accepted") + text.count(", rejected") == seen["verify"]
        assert text.count(": retry ") == seen["retry"]
        assert text.count("Trusted without a call: ") == seen["trust"]
        assert text.count(": back from ") == seen["backtrack"]
        assert text.count(": more samples at ") == seen["resample"]
        total = sum((event.ledger for event in solved.events), start=Ledger())
        assert f"verifier calls {total.verifier_calls}, moves sampled" in text
        assert f"Stop: {END_REASONS[solved.reason]}." in text


def test_model_text_is_not_markup(traced):
    """What a model writes in brackets is shown, not obeyed."""
    assert any("= [b] ;" in plain(solved) for solved in traced)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    for name, rows in zip(("problems", "truths"), benchmark_rows(TASKS), strict=True):
        write_table(folder / f"{name}.parquet", rows, schema=f"benchmark.{name}", version=VERSION)
    return folder


def run(*arguments: object) -> Result:
    """The command in a terminal wide enough for every line."""
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "200"})


def sentence(result: Result) -> str:
    """The one line of a failed command."""
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr


def test_the_version_of_the_benchmark_is_the_pipelines():
    """The library reads what the stage writes."""
    assert BENCHMARK_VERSION == VERSION


def test_a_text_is_solved_and_shown(tiny_models):
    """With its trace, without a judgement on the answer."""
    result = run("solve", TEXT, "--models", tiny_models, "--budget", 3)
    assert result.exit_code == 0
    assert f": {TEXT}\n" in result.stdout
    assert "State after 0 moves; verifier calls left: 3" in result.stdout
    assert "structural gate" in result.stdout or "refused: structural" in result.stdout
    assert "Totals: verifier calls " in result.stdout
    assert "right" not in result.stdout.split("Derivation:")[1]


def shown(monkeypatch: pytest.MonkeyPatch, benchmark: Path, *arguments: object) -> Result:
    """``selverify solve`` with the guided policy in place of trained models."""
    monkeypatch.setattr(selverify.policy, "load_policy", lambda _, **__: guided(1))
    return run("solve", "--benchmark", benchmark, *arguments)


def expected(task: Task, budget: int) -> str:
    solved = guided(1).solve(task.problem, budget=budget)
    if solved.answer == task.truth.answer:
        return f"Answer: {solved.answer}, right"
    given = "No answer" if solved.answer is None else f"Answer: {solved.answer}"
    return f"{given}, wrong: it is {task.truth.answer}"


def test_a_problem_of_the_benchmark_is_judged(monkeypatch, benchmark):
    """Right and wrong answers are told apart, and the truth is named where they differ."""
    endings = set()
    for task in TASKS:
        name = task.problem.problem_id
        result = shown(monkeypatch, benchmark, "--problem", name, "--budget", 9, "--no-trace")
        assert result.exit_code == 0
        assert result.stdout.startswith(f"{name}: {task.problem.text}\n")
        assert expected(task, 9) in result.stdout
        assert "State after" not in result.stdout
        endings.add(expected(task, 9).split(", ")[1].split(":")[0])
    assert endings == {"right", "wrong"}


def test_without_a_choice_the_first_test_problem_is_solved(monkeypatch, benchmark):
    """Under the default budget."""
    result = shown(monkeypatch, benchmark)
    assert result.stdout.startswith(f"{TASKS[0].problem.problem_id}: ")
    assert "verifier calls left: 16" in result.stdout


def test_an_unknown_problem_is_named(monkeypatch, benchmark):
    """With the ids there are."""
    said = sentence(shown(monkeypatch, benchmark, "--problem", "p7"))
    assert "no test problem 'p7'; expected one from 'word_problems-test-00000' to 'word" in said


def test_a_missing_benchmark_is_named(tmp_path):
    """With the stage that writes it."""
    said = sentence(run("solve", "--benchmark", tmp_path))
    assert "problems.parquet: no such file; stage 'benchmark' writes it" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (TEXT, "--budget", 0),
            "error: budget: given 0 verifier calls, expected a whole number, at least 1\n",
        ),
        (("find pearls ?",), "unknown word 'pearls'; expected words of word_problems"),
        (("",), "expected a question like 'how many apples ?'"),
        ((TEXT, "--device", "tpu"), "device: given 'tpu', expected one of cpu"),
        ((TEXT, "--device", "cuda:999"), "device: given 'cuda:999', expected one of cpu"),
        (("find pears ?",), "about a quantity that a statement tells: there is none"),
        (("\ud800",), r"unknown word '\ud800'; expected words of word_problems"),
    ],
)
def test_a_mistake_is_one_sentence(tiny_models, arguments, message):
    """On stderr, with exit code 1 and no traceback."""
    assert message in sentence(run("solve", *arguments, "--models", tiny_models))


def test_missing_models_are_one_sentence(tmp_path):
    """They name the stage to run."""
    said = sentence(run("solve", TEXT, "--models", tmp_path))
    assert "solver.json: no such file; stage 'evaluation' writes it" in said


def test_a_text_and_a_problem_are_one_too_many(tiny_models):
    """Usage errors have exit code 2, as everywhere."""
    result = run("solve", TEXT, "--problem", "p", "--models", tiny_models)
    assert result.exit_code == 2
    assert "not both" in result.stderr


POINTS = pd.DataFrame(
    [
        ("cot", 1, 0.2, 0.0),
        ("best_of_n_gated", 8, 0.5, 8.0),
        ("best_of_n_gated", 16, 0.55, 16.0),
        ("full", 8, 0.6, 4.0),
        ("full", 16, 0.7, 7.5),
        ("oracle", 8, 0.9, 3.0),
    ],
    columns=["method", "n", "accuracy", "verifier_calls"],
)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    points = POINTS.assign(
        accuracy_low=POINTS["accuracy"] - 0.1,
        accuracy_high=POINTS["accuracy"] + 0.1,
        generated_tokens=100.0 * POINTS["n"],
    )
    points.to_csv(tmp_path / "points.csv", index=False)
    for name in ("accuracy_calls.svg", "accuracy_calls.png", "main.csv"):
        (tmp_path / name).touch()
    return tmp_path


def lines(result: Result) -> dict[tuple[str, str], str]:
    """The table's rows by display name and N."""
    cut = (line.split("  ") for line in result.stdout.splitlines() if "[" in line)
    cells = [[cell.strip() for cell in row if cell.strip()] for row in cut]
    return {(row[0], row[1]): " ".join(row[2:]) for row in cells}


def test_the_frontier_is_a_table_with_its_figures(report):
    """One row a point; a star where no other row does as well for less, the oracle aside."""
    result = run("frontier", "--report", report)
    assert result.exit_code == 0
    assert lines(result) == {
        ("0-shot CoT", "1"): "20.0 [10.0, 30.0] 0.0 100 *",
        ("Best-of-N weighted + gates", "8"): "50.0 [40.0, 60.0] 8.0 800",
        ("Best-of-N weighted + gates", "16"): "55.0 [45.0, 65.0] 16.0 1600",
        ("Ours (full)", "8"): "60.0 [50.0, 70.0] 4.0 800 *",
        ("Ours (full)", "16"): "70.0 [60.0, 80.0] 7.5 1600 *",
        ("Oracle", "8"): "90.0 [80.0, 100.0] 3.0 800",
    }
    figures = [str(report / f"accuracy_calls.{suffix}") for suffix in ("png", "svg")]
    assert result.stdout.splitlines()[-2:] == figures


def test_the_frontier_keeps_its_numbers_at_80_columns(report):
    """The longest name takes two lines; nothing is cut."""
    path = report / "points.csv"
    points = pd.read_csv(path)
    longest = max(METHODS, key=lambda name: len(METHODS[name].label))
    points.iloc[0, points.columns.get_loc("method")] = longest
    points.to_csv(path, index=False)
    said = CliRunner().invoke(app, ["frontier", "--report", str(report)], env={"COLUMNS": "80"})
    head = next(line for line in said.stdout.splitlines() if "Method" in line)
    assert head.split() == ["Method", "N", "Accuracy", "Interval", "Calls", "Tokens"]
    assert "…" not in said.stdout and said.stdout.count("[") == len(points)


def test_the_frontier_of_chosen_methods(report):
    """Stars are among the methods shown; a misspelt one is named."""
    result = run("frontier", "--report", report, "--methods", "best_of_n_gated, oracle")
    assert {name: row[-1] for name, row in lines(result).items()} == {
        ("Best-of-N weighted + gates", "8"): "*",
        ("Best-of-N weighted + gates", "16"): "*",
        ("Oracle", "8"): "0",
    }
    said = sentence(run("frontier", "--report", report, "--methods", "ful"))
    assert "--methods: given 'ful', expected among cot, best_of_n_gated, full, oracle" in said


def test_names_of_a_report_are_no_markup_and_fit_every_terminal(report):
    """A method in brackets, a figure whose name is no UTF-8, a terminal that knows ASCII alone."""
    points = pd.read_csv(report / "points.csv")
    points["method"] = ["[/x]", "[red]é", *points["method"][2:]]
    points.to_csv(report / "points.csv", index=False)
    (report / os.fsdecode(b"\xff.svg")).touch()
    ended = CliRunner(charset="ascii").invoke(app, ["frontier", "--report", str(report)])
    assert ended.exit_code == 0, ended.output
    for text in ("[/x]", r"[red]\xe9", r"\udcff.svg"):
        assert text in ended.stdout


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("full,8,0.5,0.4,0.6,4,100,9", "rows of more fields than the first line names"),
        ("full,8,,0.4,0.6,4,100", "column 'accuracy' holds something else than numbers"),
        ("full,8,0.5,0.4,0.6,inf,100", "column 'verifier_calls' holds something else than numbers"),
    ],
)
def test_rows_that_are_no_points_are_refused(report, row, message):
    (report / "points.csv").write_text(f"{','.join(POINT_COLUMNS)}\n{row}\n")
    assert message in sentence(run("frontier", "--report", report))


def test_the_module_is_the_command():
    """And says which version it is."""
    told = subprocess.check_output([sys.executable, "-m", "selverify", "--version"], text=True)
    assert told == run("--version").stdout == f"selverify {version('selverify')}\n"


def test_a_report_that_is_not_there_or_another_is_refused(report):
    """The file and the stage, or the missing column, are named."""
    pd.DataFrame({"method": ["full"]}).to_csv(report / "points.csv")
    assert "points.csv: no column 'n'; expected" in sentence(run("frontier", "--report", report))
    (report / "points.csv").unlink()
    said = sentence(run("frontier", "--report", report))
    assert "points.csv: no such file; stage 'report' writes it (python -m flows report)" in said


def test_a_sound_installation_passes(tiny_models):
    """Packages, models and one solved problem, a line each."""
    result = run("check", "--models", tiny_models)
    assert result.exit_code == 0, result.stdout
    found = result.stdout.splitlines()
    assert all(line.startswith("ok ") for line in found)
    assert [line.split()[1] for line in found] == [
        "Python",
        *installation.PACKAGES,
        "models",
        "solving",
    ]


def test_what_is_wrong_is_told_and_ends_with_1(monkeypatch, tmp_path):
    """A missing package and missing models; what depends on them is skipped."""
    monkeypatch.setattr(installation, "PACKAGES", ("rich", "no-such-package"))
    result = run("check", "--models", tmp_path)
    assert result.exit_code == 1
    rows = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert [row[:2] for row in rows] == [
        ["ok", "Python"],
        ["ok", "rich"],
        ["failed", "no-such-package"],
        ["failed", "models"],
        ["skipped", "solving"],
    ]
    assert rows[3][2].startswith("ArtifactError: ") and "stage 'evaluation'" in rows[3][2]
