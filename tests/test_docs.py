"""What the pages name exists; what `flows.readme` writes is what the report says."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import selverify
from flows.__main__ import COMMANDS, EXECUTE
from flows.readme import BEGIN, END, Origin, fill, find_origin, section
from flows.stages import load_stages
from selverify.cli import app
from selverify.domains.word_problems import WordProblems
from selverify.errors import ArtifactError, SchemaError
from selverify.params import load_params
from selverify.policy import Solved, TrainedPolicy

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RECORDS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
STAGES = load_stages(load_params(ROOT / "params.yaml"), ROOT / "dvc.yaml")
# What tools keep in the project; outputs of stages are known from dvc.yaml.
KEPT_BY_TOOLS = (".venv", ".cache", ".prefect", ".mlflow", "dvc_plots")
PAPER = {
    "move_union",
    "gated_moves",
    "ctx_gate",
    "hybrid_score",
    "dtype_embed",
    "verifier_label",
    "r_model_embed",
    "rank_loss",
    "traj_loss",
    "training_loss",
    "kw",
    "ver_cost",
    "budgeted_objective",
}
PARTS = (
    "Algorithm 1",
    "0-shot CoT",
    "majority voting",
    "best-of-N",
    "beam search",
    "difficulty bins",
    "two-fold cross-validation",
    "Table 1",
    "Table 2",
    "Figure 2",
)
FILES = (".csv", ".parquet", ".svg", ".png", ".json", ".md")
OF_OTHERS = {"recorded-runs.md"}
"""Pages whose paths are those of other projects, where their records were found."""
RECORD_PARTS = ["Context", "Decision", "Alternative", "How it is compared"]

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES]
)


def code(page: Path) -> list[str]:
    """Every fenced line and every inline span of code."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in fenced for line in block.splitlines()] + re.findall(
        r"`([^`\n]+)`", rest
    )


def functions(page: Path) -> list[tuple[str, str]]:
    """Every ``file.py:name`` that a page names."""
    found = (re.fullmatch(r"([\w/]+\.py):([\w.]+)", span) for span in code(page))
    return [(match[1], match[2]) for match in found if match]


def parameters(page: Path) -> Iterator[str]:
    """Every dotted name of a section of params.yaml, and every key given to ``-S``."""
    for span in code(page):
        yield from re.findall(r"-S '?([\w.]+)=", span)
        match = re.fullmatch(r"([a-z_]+)((?:\.[a-z_]+)+)(?:[:=].*)?", span)
        if match and match[1] in PARAMS and not match[2].endswith(FILES):
            yield match[1] + match[2]


def paths(page: Path) -> Iterator[str]:
    """Every span that looks like a path of the project."""
    for span in code(page):
        match = re.fullmatch(r"(\.?[\w-][\w.-]*(?:/[\w.-]+)*/?)(?::[\w.]+)?", span)
        if match and ("/" in match[1] or (ROOT / match[1]).suffix in {".yaml", ".toml"}):
            yield match[1].rstrip("/")


def is_written(path: str) -> bool:
    """Whether a stage or a tool writes ``path``."""
    outputs = [output.as_posix() for stage in STAGES.values() for output in stage.outputs.values()]
    return any(
        f"{path}/".startswith(f"{one}/") or one.startswith(f"{path}/")
        for one in (*outputs, *KEPT_BY_TOOLS)
    )


@every_page
def test_every_make_target_exists(page: Path) -> None:
    """``make X`` in a page is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    named = {name for span in code(page) for name in re.findall(r"(?:^|&& )make ([a-z]+)", span)}
    assert named <= targets


@every_page
def test_every_flows_command_exists(page: Path) -> None:
    """``python -m flows X`` in a page is a stage or a command."""
    known = {*COMMANDS, EXECUTE, *(stage.task for stage in STAGES.values())}
    spans = code(page)
    named = {name for span in spans for name in re.findall(r"-m flows ([a-z_]+)", span)}
    assert named <= known


@every_page
def test_every_parameter_exists(page: Path) -> None:
    """A dotted key leads to a value of params.yaml."""
    for dotted in parameters(page):
        value = PARAMS
        for part in dotted.split("."):
            assert isinstance(value, dict) and part in value, dotted
            value = value[part]


@every_page
def test_every_path_exists_or_is_written_by_a_run(page: Path) -> None:
    """A path in code stands in the repository, or a stage or tool writes it."""
    if page.name in OF_OTHERS:
        return
    missing = [path for path in paths(page) if not (ROOT / path).exists() and not is_written(path)]
    assert missing == []


@every_page
def test_every_result_file_is_written_by_a_task(page: Path) -> None:
    """The name of a table or figure stands in the code of a stage."""
    tasks = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tasks").glob("*.py"))
    spans = (re.fullmatch(r"(?:[\w/]+/)?(\w+)\.(?:csv|parquet|svg)", span) for span in code(page))
    assert [match[1] for match in spans if match and match[1] not in tasks] == []


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link, of a page or a figure, names a file."""
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    relative = [link for link in links if "://" not in link]
    assert [link for link in relative if not (page.parent / link).exists()] == []


@every_page
def test_no_page_names_a_machine(page: Path) -> None:
    """An absolute path would be that of one machine."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.:/])/(?:work|root|home|tmp|Users|opt|mnt)\b", text) == []


@every_page
def test_every_function_imports(page: Path) -> None:
    """``file.py:name`` is an attribute of that module."""
    for file, name in functions(page):
        module = import_module(file.removesuffix(".py").replace("/", "."))
        assert reduce(getattr, name.split("."), module) is not None


def test_the_paper_is_covered() -> None:
    """Each labelled equation and each part has a row that names at least one function."""
    text = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    left = {cells[1] for cells in rows if re.search(r"`[\w/]+\.py:\w", cells[2])}
    labels = {label for cell in left for label in re.findall(r"Eq\. (\w+)", cell)}
    assert labels == PAPER
    assert [part for part in PARTS if not any(part in cell for cell in left)] == []


def test_records_are_numbered_and_listed() -> None:
    """A record's number is its file's, and the index has every record under its title."""
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    for record in RECORDS:
        number, title = record.read_text(encoding="utf-8").splitlines()[0].split(". ", 1)
        assert number == f"# {record.name[:4]}"
        assert f"| [{record.name[:4]}]({record.name}) | {title} |" in index
    assert index.count("](0") == len(RECORDS)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_every_record_has_its_parts(record: Path) -> None:
    """Context, decision, alternative and comparison, in this order."""
    text = record.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == RECORD_PARTS


@every_page
def test_every_command_of_the_command_line_exists(page: Path) -> None:
    """``selverify X`` in a page is a command."""
    known = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback}
    named = {name for span in code(page) for name in re.findall(r"^selverify ([a-z]+)", span)}
    assert named <= known


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md"])
def test_the_library_example_uses_what_exists(name: str) -> None:
    """Five lines: names, the result's fields, and a text that the domain reads."""
    text = (ROOT / name).read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line]) == 5
    owners = {"selverify": selverify, "policy": TrainedPolicy, "solved": Solved}
    for node in ast.walk(ast.parse(example)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert hasattr(owners[node.value.id], node.attr), node.attr
    (problem,) = re.findall(r'^text = "(.*)"$', example, flags=re.MULTILINE)
    assert set(problem.split()) <= set(WordProblems.vocabulary)
    assert WordProblems().read(problem, problem_id="example").goal == "find pears ?"


REPORT = """# Report: word_problems, 20 problems, N = 4

## Main table

| Method | Accuracy, % |
| --- | ---: |
| Full | 70.0 |

Brackets are intervals.

## Targets

| Target | Met |
| --- | ---: |
| a | no |
"""
ORIGIN = Origin("abc1234", (), "2026-01-02", "a processor", 2, "3.11.9")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two pages with markers, and a report with its figures."""
    pages = {"README.md": "top", "docs/results.md": "results"}
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n{BEGIN}\nolder\n{END}\nend\n", encoding="utf-8")
    report = tmp_path / "report"
    report.mkdir()
    (report / "report.md").write_text(REPORT, encoding="utf-8")
    for stem in ("accuracy_calls", "accuracy_n"):
        for suffix in (".svg", ".png"):
            (report / f"{stem}{suffix}").write_bytes(f"{stem}{suffix}".encode())
    return tmp_path


def test_filling_replaces_what_stands_between_the_markers(project: Path) -> None:
    """Table, figure and origin are in; text around the markers stays; figures are copied."""
    fill(project, project / "report", origin=ORIGIN)
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"top\n{BEGIN}\n**word_problems, 20 problems, N = 4**\n")
    assert readme.endswith(f"\n{END}\nend\n")
    assert "| Full | 70.0 |" in readme
    assert "older" not in readme and "| a | no |" not in readme
    assert "at commit `abc1234`, 2026-01-02, on a processor (2 cores), Python 3.11.9." in readme
    results = (project / "docs" / "results.md").read_text(encoding="utf-8")
    assert "## Targets\n\n| Target | Met |" in results
    for page in (project / "README.md", project / "docs" / "results.md"):
        for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file()
    assert (project / "docs" / "figures" / "accuracy_n.png").read_bytes() == b"accuracy_n.png"


def test_the_figure_of_several_backbones_is_shown_where_it_was_drawn(project: Path) -> None:
    """On the page of results, and only by a run that has it."""
    fill(project, project / "report", origin=ORIGIN)
    page = project / "docs" / "results.md"
    assert "backbones.svg" not in page.read_text(encoding="utf-8")
    for suffix in (".svg", ".png"):
        (project / "report" / f"backbones{suffix}").write_bytes(b"drawn")
    fill(project, project / "report", origin=ORIGIN)
    assert "](figures/backbones.svg)" in page.read_text(encoding="utf-8")
    assert (project / "docs" / "figures" / "backbones.png").read_bytes() == b"drawn"


def test_another_domain_has_a_page_of_its_own(project: Path) -> None:
    """With figures of its own and the parameters that were changed; the README stays."""
    before = (project / "README.md").read_text(encoding="utf-8")
    text = (project / "report" / "report.md").read_text(encoding="utf-8")
    (project / "report" / "report.md").write_text(
        text.replace("word_problems", "countdown"), encoding="utf-8"
    )
    page = project / "docs" / "results-countdown.md"
    with pytest.raises(ArtifactError, match=r"results-countdown\.md: missing"):
        fill(project, project / "report", origin=ORIGIN)
    page.write_text(f"{BEGIN}{END}", encoding="utf-8")
    fill(project, project / "report", origin=replace(ORIGIN, changes=("domain=countdown",)))
    filled = page.read_text(encoding="utf-8")
    assert "Measured at commit `abc1234` with `domain=countdown`, 2026-01-02" in filled
    for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", filled):
        assert (page.parent / link).is_file()
    assert "figures/countdown/accuracy_n.svg" in filled
    assert (project / "README.md").read_text(encoding="utf-8") == before


def test_filling_twice_changes_nothing(project: Path) -> None:
    """Equal reports give equal pages, and a new origin replaces the old one."""
    fill(project, project / "report", origin=ORIGIN)
    once = [(project / name).read_bytes() for name in ("README.md", "docs/results.md")]
    fill(project, project / "report", origin=ORIGIN)
    assert [(project / name).read_bytes() for name in ("README.md", "docs/results.md")] == once
    fill(project, project / "report", origin=replace(ORIGIN, commit="fff0000"))
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert "fff0000" in readme and "abc1234" not in readme


@pytest.mark.parametrize("text", ["no markers", f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_refused(project: Path, text: str) -> None:
    """The message names the page, and no page is changed."""
    before = (project / "README.md").read_text(encoding="utf-8")
    (project / "docs" / "results.md").write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=r"results\.md: expected one <!-- results:begin -->"):
        fill(project, project / "report", origin=ORIGIN)
    assert (project / "README.md").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("name", ["report.md", "accuracy_n.png"])
def test_a_missing_part_of_the_report_is_named(project: Path, name: str) -> None:
    """With the command that writes it; no page is changed."""
    before = (project / "README.md").read_text(encoding="utf-8")
    (project / "report" / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name}: missing; stage 'report' .*make run"):
        fill(project, project / "report", origin=ORIGIN)
    assert (project / "README.md").read_text(encoding="utf-8") == before


def test_a_report_without_the_section_is_refused() -> None:
    """The section is named."""
    with pytest.raises(SchemaError, match="no section 'Main table'"):
        section("# Report: x\n\n## Targets\n", "Main table")


def test_the_origin_does_not_count_what_the_command_writes(project: Path) -> None:
    """A dirty page is no change of the code; a dirty or new module is."""
    (project / "params.yaml").write_text("domain: a\nsearch: {tau: 0.4}\n", encoding="utf-8")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all")
    (project / "README.md").write_text("changed", encoding="utf-8")
    clean = find_origin(project, project / "report")
    assert re.fullmatch(r"[0-9a-f]{7,}", clean.commit)
    assert clean.cores >= 1 and clean.processor
    assert clean.changes == ()
    (project / "params.yaml").write_text("domain: b\nsearch: {tau: 0.4}\n", encoding="utf-8")
    assert find_origin(project, project / "report").changes == ("domain=b",)
    assert find_origin(project, project / "report").commit == clean.commit
    (project / "profiles").mkdir()
    (project / "profiles" / "big.yaml").write_text("domain: b\n", encoding="utf-8")
    (project / "params.yaml").write_text("domain: b\nsearch: {tau: 0.5}\n", encoding="utf-8")
    found = find_origin(project, project / "report").changes
    assert found == ("profile big", "search.tau=0.5")
    (project / "module.py").write_text("x = 1\n", encoding="utf-8")
    changed = find_origin(project, project / "report")
    assert changed.commit == f"{clean.commit}+changes"


def git(folder: Path, *arguments: str) -> None:
    """Run git in ``folder``."""
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


def test_a_run_under_several_verifiers_alone_has_a_page_of_its_own(project: Path) -> None:
    """The README stays; with anything else changed it is filled as usual."""
    before = (project / "README.md").read_text(encoding="utf-8")
    page = project / "docs" / "results-strengths.md"
    page.write_text(f"{BEGIN}{END}", encoding="utf-8")
    alone = replace(ORIGIN, changes=("strengths=['strong', 'weak']",))
    fill(project, project / "report", origin=alone)
    assert "Measured at commit `abc1234` with `strengths=" in page.read_text(encoding="utf-8")
    assert (project / "docs" / "figures" / "strengths" / "accuracy_n.png").is_file()
    assert (project / "README.md").read_text(encoding="utf-8") == before
    more = replace(alone, changes=(*alone.changes, "evaluation.problems=500"))
    fill(project, project / "report", origin=more)
    assert (project / "README.md").read_text(encoding="utf-8") != before
