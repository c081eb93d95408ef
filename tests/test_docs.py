"""What the pages name exists; what `flows.readme` writes is what the report says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from importlib import import_module
from pathlib import Path

import networkx as nx
import pytest
import yaml
from checkouts import commit, git
from test_layers import ROWS

from flows.__main__ import COMMANDS, EXECUTE
from flows.origin import Origin, find_origin, present_origin, record_origin
from flows.readme import (
    BEGIN,
    END,
    LEVELS,
    MAIN_SECTION,
    SECOND_BEGIN,
    SECOND_END,
    SPREAD,
    fill,
    published,
    section,
    stamp,
)
from flows.stages import load_stages
from selverify.cli import app
from selverify.errors import ArtifactError, SchemaError
from selverify.models.sources import write_source
from selverify.params import load_params

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
RECORD_PARTS = ["Context", "Decision", "Alternative and comparison"]
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
STAGES = load_stages(load_params(ROOT / "params.yaml"), ROOT / "dvc.yaml")
# What tools and `make run` keep in the project; outputs of stages are known from dvc.yaml.
KEPT_BY_TOOLS = (
    ".venv",
    ".cache",
    ".prefect",
    ".mlflow",
    "dvc_plots",
    "results/report.html",
    "docs/results",
    "docs/report.pdf",
)
EQUATIONS = (
    "budgeted_objective ctx_gate dtype_embed gated_moves hybrid_score kw move_union "
    "r_model_embed rank_loss training_loss traj_loss ver_cost verifier_label"
)
PARTS = (
    "Algorithm 1; 0-shot CoT; majority voting; best-of-N; beam search; difficulty bins; "
    "two-fold cross-validation; Table 1; Table 2; Figure 2"
)
FILES = (".csv", ".parquet", ".svg", ".png", ".json", ".md")
OF_OTHERS = {"recorded-runs.md"}
"""Pages whose paths are those of other projects, where their records were found."""
README_WORDS, README_ROWS = 600, (8, 6)
"""What the README holds at most: words outside its tables, and rows in each."""


def code(page: Path) -> list[str]:
    """Every fenced line and every inline span of code."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in fenced for line in block.splitlines()] + re.findall(
        r"`([^`\n]+)`", rest
    )


SPANS = [(page, span) for page in PAGES for span in code(page)]


def named(pattern: str) -> set[str]:
    """What the group of ``pattern`` finds in the code of all pages."""
    return {name for _, span in SPANS for name in re.findall(pattern, span)}


def parameters() -> Iterator[str]:
    """Every dotted name of a section of params.yaml, and every key given to ``-S``."""
    yield from named(r"-S '?([\w.]+)=")
    for _, span in SPANS:
        match = re.fullmatch(r"([a-z_]+)((?:\.[a-z_]+)+)(?:[:=].*)?", span)
        if match and match[1] in PARAMS and not match[2].endswith(FILES):
            yield match[1] + match[2]


def is_parameter(dotted: str) -> bool:
    """Whether a dotted name leads to a value of params.yaml."""
    value = PARAMS
    for part in dotted.split("."):
        if value is None:  # a section that a run can set
            return True
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True


def paths() -> Iterator[str]:
    """Every span that looks like a path of the project."""
    for page, span in SPANS:
        match = re.fullmatch(r"(\.?[\w-][\w.-]*(?:/[\w.-]+)*/?)(?::[\w.]+)?", span)
        if match and page.name not in OF_OTHERS:
            path = match[1].rstrip("/")
            if "/" in path or Path(path).suffix in {".yaml", ".toml"}:
                yield path


def is_written(path: str) -> bool:
    """Whether a stage or a tool writes ``path``."""
    outputs = [output.as_posix() for stage in STAGES.values() for output in stage.outputs.values()]
    return any(
        f"{path}/".startswith(f"{one}/") or one.startswith(f"{path}/")
        for one in (*outputs, *KEPT_BY_TOOLS)
    )


def test_every_command_exists() -> None:
    """Targets of make, stages and commands of ``flows``, and commands of ``selverify``."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    assert named(r"(?:^|&& )make ([a-z]+)") <= targets
    flows = {*COMMANDS, EXECUTE, *(stage.task for stage in STAGES.values())}
    assert named(r"-m flows ([a-z_]+)") <= flows
    known = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback}
    assert named(r"^selverify ([a-z]+)") <= known


def test_every_parameter_exists() -> None:
    """A dotted key leads to a value of params.yaml."""
    assert [dotted for dotted in parameters() if not is_parameter(dotted)] == []


def test_every_path_exists_or_is_written_by_a_run() -> None:
    """A path in code is in the repository, or a stage or tool writes it."""
    found = set(paths())
    assert len(found) > 50
    assert [path for path in found if not (ROOT / path).exists() and not is_written(path)] == []


def test_every_result_file_is_written_by_a_task() -> None:
    """The name of a table or figure is in the code of a stage."""
    tasks = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tasks").glob("*.py"))
    found = named(r"^(?:[\w/]+/)?(\w+)\.(?:csv|parquet|svg)$")
    assert {stem for stem in found if stem not in tasks} == set()


def test_every_link_leads_somewhere() -> None:
    """A relative link, of a page or a figure, names a file."""
    for page in PAGES:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        relative = [link for link in links if "://" not in link]
        assert [link for link in relative if not (page.parent / link).exists()] == [], page


def test_the_site_has_no_dead_link(tmp_path: Path) -> None:
    """Every page is built, every link and anchor leads somewhere, nothing comes from elsewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    built = (tmp_path / "own-system.html").read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|rel=\"stylesheet\" href)=\"https?://", built)


def test_no_page_names_a_machine() -> None:
    """An absolute path would be that of one machine."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        machine = re.findall(r"(?<![\w.:/])/(?:work|root|home|tmp|Users|opt|mnt)\b", text)
        assert machine == [], page


def test_every_function_imports() -> None:
    """``file.py:name`` is an attribute of that module."""
    found = {match for _, span in SPANS for match in re.findall(r"^([\w/]+)\.py:([\w.]+)$", span)}
    assert len(found) > 40
    for file, name in found:
        module = import_module(file.replace("/", "."))
        assert reduce(getattr, name.split("."), module) is not None


def test_the_paper_is_covered() -> None:
    """Each labelled equation and each part has a row that names at least one function."""
    text = (DOCS / "paper-to-code.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    left = {cells[1] for cells in rows if re.search(r"`[\w/]+\.py:\w", cells[2])}
    labels = {label for cell in left for label in re.findall(r"Eq\. (\w+)", cell)}
    assert " ".join(sorted(labels)) == EQUATIONS
    assert [part for part in PARTS.split("; ") if not any(part in cell for cell in left)] == []


def test_the_tree_has_the_layers_in_order() -> None:
    """A line a row of ``test_layers``."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    tree = re.findall(r"^  ([a-z_]+(?: [a-z]+)*)/?  ", text, flags=re.MULTILINE)
    assert tuple(tree) == ROWS


def test_the_graph_of_stages_is_that_of_the_pipeline() -> None:
    """Without the edges that others imply."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    graph = re.findall(r"(\w+) -+> (?=(\w+))", text)
    needed = [
        (producer.partition("@")[0], stage.task)
        for stage in STAGES.values()
        for _, producer in stage.needed
    ]
    assert {*graph} == {*nx.transitive_reduction(nx.DiGraph(needed)).edges}


def test_records_are_numbered_listed_and_whole() -> None:
    """A record's number is its file's, the index has its title, and no part is missing."""
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert index.count("](0") == len(RECORDS)
    for record in RECORDS:
        text = record.read_text(encoding="utf-8")
        number, title = text.splitlines()[0].split(". ", 1)
        assert number == f"# {record.name[:4]}"
        assert f"| [{record.name[:4]}]({record.name}) | {title} |" in index
        assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == RECORD_PARTS, record


def cells_of(page: Path, heading: str) -> dict[str, list[str]]:
    """The cells of the first table below a heading, by the first one of their row."""
    below = page.read_text(encoding="utf-8").partition(f"\n## {heading}")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("| ")]
    return {name: cells for name, *cells in rows[2:]}


def test_the_report_states_what_the_pages_state() -> None:
    """Its two tables, cell by cell."""
    report = DOCS / "report.md"
    main = cells_of(DOCS / "results.md", MAIN_SECTION)
    told = cells_of(report, "Results")
    assert {"Ours (full)", "Hull of all baselines", "The paper's method"} <= told.keys()
    assert {name: main[name] for name in told} == told
    claims = cells_of(report, "What the paper claims")
    pages = [
        cells_of(DOCS / f"results{name}.md", "Claims of the paper")
        for name in ("", "-long", "-gsm8k")
    ]
    for name, (paper, *measured, _recorded, _verdict) in claims.items():
        assert paper == pages[0][name][0]
        assert measured == [page[name][1] if name in page else "-" for page in pages], name
    assert claims.keys() == pages[0].keys()


def test_the_readme_is_short() -> None:
    """The command in the first lines, few words, and one small table."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert "make run" in lines[:10]
    table = [line for line in lines if line.startswith("|")]
    assert [line.startswith("| ---") for line in table].count(True) <= len(README_ROWS)
    assert len(table) <= sum(README_ROWS) + 2 * len(README_ROWS)
    assert sum(len(line.split()) for line in lines if line not in table) <= README_WORDS


def test_the_library_example_runs(
    tiny_models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its five lines as written, on models with random weights."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line]) == 5
    (tmp_path / "models").symlink_to(tiny_models.parent)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    answer, calls, derivation = capsys.readouterr().out.split(maxsplit=2)
    assert answer and int(calls) <= 16 and derivation.startswith("(")


REPORT = """# Report: word_problems, 20 problems, N = 4

## Accuracy for a mean of at most B verifier calls a problem, %

| Method | B = 4 |
| --- | ---: |
| Majority vote | 60.0 |
| Gates-only | 70.0 |

Brackets are intervals.

## Targets

| Target | Met |
| --- | ---: |
| a | no |
"""
WITH_OURS = REPORT.replace("\n\nBrackets", "\n| Ours (full) | 80.0 (+20.0) |\n\nBrackets")
ORIGIN = Origin("abc1234", (), "2026-01-02", "a processor", 2, "3.11.9")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Pages with markers, and a report with its figures."""
    names = ("README.md", "docs/results.md", "docs/results-countdown.md")
    names += tuple(f"docs/results-{name}.md" for name in ("long", "paper", "gsm8k"))
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"top\n{BEGIN}\nolder\n{END}\nend\n", encoding="utf-8")
    with (tmp_path / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(f"{SECOND_BEGIN}\nsecond\n{SECOND_END}\n")
    (tmp_path / ".gitignore").write_text("/.cache/\n", encoding="utf-8")
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text(REPORT, encoding="utf-8")
    for stem in ("equal_calls", "accuracy_calls", "accuracy_n"):
        (report / f"{stem}.svg").write_bytes(f"{stem}.svg".encode())
    levels = ("full,1,0.7,0.6,0.8,1,0,0.1", "majority_gated,1,0.5,0.4,0.6,0,0,0", "full,2")
    text = "\n".join((",".join((*LEVELS, "difference")), *levels))
    (report / "equal_calls.csv").write_text(text, encoding="utf-8")
    return tmp_path


def read_page(project: Path, name: str) -> str:
    """A page whose figures are all there."""
    text = (project / name).read_text(encoding="utf-8")
    for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert ((project / name).parent / link).is_file()
    return text


def test_the_readme_shows_both_benchmarks_in_one_figure(project: Path) -> None:
    """A benchmark without a filled page has no panel; the figure's bytes are its tables' alone."""
    figure = project / "docs" / "figures" / "both.svg"
    fill(project, project / "report", origin=ORIGIN)
    one = figure.read_bytes()
    report = project / "report" / "report.md"
    report.write_text(REPORT.replace("word_problems", "grade_school"), encoding="utf-8")
    drawn = []
    for _ in range(2):
        fill(project, project / "report", origin=ORIGIN)
        drawn.append(figure.read_bytes())
    assert drawn[0] == drawn[1] != one
    panels = [page.count(b'<g id="axes_') for page in (one, drawn[0])]
    assert panels == [1, 2]


def test_filling_replaces_what_is_between_the_markers(project: Path) -> None:
    """The README has some rows of the table, the results everything; filling twice is filling."""
    for _ in range(2):
        fill(project, project / "report", origin=ORIGIN)
        readme = read_page(project, "README.md")
        title = f"word_problems, 20 problems: {MAIN_SECTION}"
        assert readme.startswith(f"top\n{BEGIN}\n**{title}**\n")
        assert readme.endswith(f"\n{END}\nend\n{SECOND_BEGIN}\nsecond\n{SECOND_END}\n")
        assert "| Gates-only | 70.0 |" in readme
        assert not [one for one in ("older", "Majority", "| a | no |") if one in readme]
        origin = "at commit `abc1234`, 2026-01-02, on a processor (2 cores), Python 3.11.9."
        assert origin in readme
        results = read_page(project, "docs/results.md")
        assert "## Targets\n\n| Target | Met |" in results and "| Majority vote |" in results
        assert "older" in read_page(project, "docs/results-countdown.md")
    copied = project / "docs" / "figures" / "accuracy_n.svg"
    assert copied.read_bytes() == b"accuracy_n.svg"
    kept = copied.with_name("equal_calls.csv").read_text(encoding="utf-8")
    assert kept.startswith(f"{','.join(LEVELS)}\nfull,1,0.7,0.6,0.8,1.0,")
    assert "backbones.svg" not in results
    (project / "report" / "backbones.svg").write_bytes(b"drawn")
    fill(project, project / "report", origin=replace(ORIGIN, commit="fff0000"))
    assert "](figures/backbones.svg)" in read_page(project, "docs/results.md")
    readme = read_page(project, "README.md")
    assert "fff0000" in readme and "abc1234" not in readme


@pytest.mark.parametrize(
    ("domain", "change", "name"),
    [
        ("countdown", "domain=countdown", "countdown"),
        ("word_problems", "profile long", "long"),
        ("word_problems", "profile paper", "paper"),
        ("grade_school", "profile smollm2", "gsm8k"),
    ],
)
def test_some_runs_have_a_page_of_their_own(
    project: Path, domain: str, change: str, name: str
) -> None:
    """Another domain, or one of some profiles: with figures of their own; the README stays, but for
    its second table, which is GSM8K's."""
    before = read_page(project, "README.md")
    report = project / "report" / "report.md"
    report.write_text(REPORT.replace("word_problems", domain), encoding="utf-8")
    alone = replace(ORIGIN, changes=(change,))
    fill(project, project / "report", origin=alone)
    filled = read_page(project, f"docs/results-{name}.md")
    assert f"Measured at commit `abc1234` with `{change}`, 2026-01-02" in filled
    assert f"figures/{name}/accuracy_n.svg" in filled
    readme = read_page(project, "README.md")
    if name == "gsm8k":
        title = f"grade_school, 20 problems: {MAIN_SECTION}"
        told = readme.partition(f"{SECOND_BEGIN}\n")[2]
        assert told.startswith(f"**{title}**\n") and "second" not in told
        assert told.endswith(f"docs/results-gsm8k.md).\n{SECOND_END}\n")
        readme = readme.replace(told, f"second\n{SECOND_END}\n")
    assert readme == before


def test_a_run_shows_what_is_published_of_its_domain(project: Path) -> None:
    """The full method's row, and how far this run is from it; nothing where no page states it."""
    report = project / "report"
    assert published(project, report) is None
    fill(project, report, origin=ORIGIN)
    assert published(project, report) is None
    (report / "report.md").write_text(WITH_OURS, encoding="utf-8")
    fill(project, report, origin=ORIGIN)
    where = "docs/results.md: word_problems, 20 problems, N = 4, commit abc1234"
    said = f"Published ({where}), Ours (full), in brackets this run minus it: B = 4: 80.0"
    assert published(project, report) == f"{said} (+0.0)"
    for here, beside in (("78.5 (+18.5)", " (-1.5)"), ("-", "")):
        mine = WITH_OURS.replace("80.0 (+20.0)", here)
        (report / "report.md").write_text(mine, encoding="utf-8")
        assert published(project, report) == f"{said}{beside}"
    (project / SPREAD).parent.mkdir()
    trainings = "level,accuracy,training\n4,0.785,1\n4,0.81,2\n8,0.9,1\n8,,2\n"
    (project / SPREAD).write_text(trainings, encoding="utf-8")
    told = (published(project, report) or "").splitlines()[1]
    assert told.startswith("2 trainings with other seeds, on the first problems of these")
    assert told.endswith("B = 4: 78.5 to 81.0, B = 8: 90.0 to 90.0")
    (report / "report.md").write_text(WITH_OURS.replace("word_problems", "math"), encoding="utf-8")
    assert published(project, report) is None
    (report / "report.md").unlink()
    assert published(project, report) is None


def test_validation_problems_are_for_no_page(project: Path) -> None:
    """They choose settings: no page is filled from them, and nothing published is beside them."""
    report = project / "report"
    (report / "report.md").write_text(WITH_OURS, encoding="utf-8")
    fill(project, report, origin=ORIGIN)
    assert published(project, report)
    before = read_page(project, "README.md")
    text = WITH_OURS.replace("20 problems", "20 validation problems")
    (report / "report.md").write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"of validation problems, expected one of test problems"):
        fill(project, report, origin=ORIGIN)
    assert read_page(project, "README.md") == before
    assert published(project, report) is None


def test_what_is_missing_is_named_and_no_page_changes(project: Path) -> None:
    """A page without its markers, a page, a part of the report, its main table."""
    before = read_page(project, "README.md")
    page, report = project / "docs" / "results.md", project / "report"
    for text in ("no markers", f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(SchemaError, match=r"results\.md: expected one <!-- results:begin -->"):
            fill(project, report, origin=ORIGIN)
    page.unlink()
    with pytest.raises(ArtifactError, match=r"results\.md: missing"):
        fill(project, report, origin=ORIGIN)
    page.write_text(before, encoding="utf-8")
    for name in ("accuracy_n.svg", "report.md"):
        (report / name).unlink()
        with pytest.raises(ArtifactError, match=rf"{name}: missing; stage 'report' .*make run"):
            fill(project, report, origin=ORIGIN)
    assert read_page(project, "README.md") == before
    with pytest.raises(SchemaError, match="no section 'Main table'"):
        section("# Report: x\n\n## Targets\n", "Main table")


def computed(project: Path) -> Origin:
    """The origin of a report that is computed now."""
    record_origin(project, project / "report", present_origin(project))
    found = find_origin(project, project / "report")
    assert found is not None
    return found


def test_the_origin_does_not_count_what_the_command_writes(project: Path) -> None:
    """A dirty page is no change of the code; a dirty or new module is."""
    (project / "params.yaml").write_text("domain: a\nsearch: {tau: 0.4}\n", encoding="utf-8")
    commit(project)
    (project / "README.md").write_text("changed", encoding="utf-8")
    clean = computed(project)
    assert re.fullmatch(r"[0-9a-f]{7,}", clean.commit)
    assert clean.cores >= 1 and clean.processor
    assert clean.changes == ()
    assert clean.command == "make run"
    (project / "params.yaml").write_text("domain: b\nsearch: {tau: 0.4}\n", encoding="utf-8")
    assert computed(project).changes == ("domain=b",)
    assert computed(project).commit == clean.commit
    (project / "profiles").mkdir()
    (project / "profiles" / "big.yaml").write_text("domain: b\n", encoding="utf-8")
    (project / "params.yaml").write_text("domain: b\nsearch: {tau: 0.5}\n", encoding="utf-8")
    found = computed(project).changes
    assert found == ("profile big", "search.tau=0.5")
    assert computed(project).command == "make run PROFILE=big; dvc exp run -S search.tau=0.5"
    (project / "params.yaml").write_text(
        "domain: b\ntest: {path: /elsewhere/a.jsonl}\nmore: {source: known, path: /here/b.jsonl}\n"
    )
    found = computed(project).changes
    assert found == (
        *("profile big", "search.tau=None", "test.path=a.jsonl"),
        "more.source=known",
    ), "no path of a machine"
    (project / "module.py").write_text("x = 1\n", encoding="utf-8")
    changed = computed(project)
    assert changed.commit == f"{clean.commit}+changes"
    assert clean.clean and not changed.clean and not replace(clean, commit="none").clean


def test_the_origin_of_a_report_stays_until_it_is_computed_again(project: Path) -> None:
    """A later commit says nothing of numbers that were there; of others nothing is known."""
    report = project / "report"
    assert find_origin(project, report) is None
    git(project, "init", "-q")
    for message in ("first", "second"):
        git(project, "commit", "-qm", message, "--allow-empty")
        if message == "first":
            first = computed(project)
    assert find_origin(project, report) == first
    (report / "report.md").write_text("others", encoding="utf-8")
    assert find_origin(project, report) is None
    assert computed(project).commit != first.commit
    (report / "report.md").write_text(REPORT, encoding="utf-8")
    assert find_origin(project, report) == first, "of a report that comes back from DVC's cache"
    (kept,) = (
        path for path in (project / ".cache").rglob("*.json") if first.commit in path.read_text()
    )
    kept.write_text("{", encoding="utf-8")
    assert find_origin(project, report) is None, "damaged"


def test_the_page_says_where_its_numbers_come_from(project: Path) -> None:
    """In its place, as text; once. Digests are of the models that are there."""
    (project / "models" / "a-small").mkdir(parents=True)
    (project / "models" / "a-small" / "digests.json").write_text("{}", encoding="utf-8")
    (project / "params.yaml").write_text("domain: a\n", encoding="utf-8")
    page = project / "report" / "report.html"
    page.write_text("<p>before</p><!-- origin --><p>after</p>", encoding="utf-8")
    commit(project)
    (project / "params.yaml").write_text("domain: <script>\n", encoding="utf-8")
    params = load_params(ROOT / "params.yaml").model_copy(
        update={"domain": "a", "backbones": ("small",), "strengths": ("strong",)}
    )
    before = page.read_bytes()
    copy = stamp(project / "report", params, root=project)
    assert "computed elsewhere" in copy.read_text(encoding="utf-8").lower().replace(
        "</dt><dd>", " "
    )
    copy.unlink()
    record_origin(project, project / "report", present_origin(project))
    copy = stamp(project / "report", params, root=project)
    text = copy.read_text(encoding="utf-8")
    assert page.read_bytes() == before, "a stage's output is of no day and no machine"
    assert text.startswith("<p>before</p>") and text.endswith("<p>after</p>")
    assert "domain=&lt;script&gt;" in text and "<script>" not in text
    assert re.search(r"<dt>Commit</dt><dd>[0-9a-f]{7,}</dd><dt>Work tree</dt><dd>clean</dd>", text)
    assert re.search(r"<dt>models/a-small</dt><dd>[0-9a-f]{12}</dd>", text)
    assert "models/small-strong" not in text
    write_source(
        project / "models" / "a-small",
        load_params(ROOT / "params.yaml").generator["math"]["served"],
    )
    (project / "models" / "a-small" / "digests.json").unlink()
    sources = load_params(ROOT / "params.yaml").verifier.source
    for kind, called in (("countdown", "tool"), ("math", str(sources["math"].model))):
        write_source(project / "models" / "small-strong" / "verifier", sources[kind])
        text = stamp(project / "report", params, root=project).read_text(encoding="utf-8")
        assert "<dt>models/a-small</dt><dd>meta-llama/Llama-3.2-1B-Instruct</dd>" in text
        assert f"<dt>models/small-strong/verifier</dt><dd>{called}" in text
