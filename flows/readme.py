"""The measured table and the frontier figures, from the last report into the project's pages.

Knows: the report's Markdown, figures and HTML page, markers in a page. Does not know: how a
number was measured. People write the pages; this module writes between the markers only. The
README shows some rows of one domain and of GSM8K; the results of another domain, and of some
profiles, have pages of their own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from flows.origin import (
    CHANGED,
    NO_COMMIT,
    PROFILE,
    REPORT_NAME,
    Origin,
    changed_parameters,
    find_origin,
    model_digests,
    reported,
)
from selverify.errors import ArtifactError, SchemaError
from selverify.experiment.equal_cost import HULL, OURS
from selverify.params import Params
from selverify.report.names import FULL_METHOD, PAPER_METHOD, SHORT_LIST, method_name
from selverify.report.pages import ORIGIN, write_text
from selverify.storage import atomic_path

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
"""Around what is written into a page."""
SECOND_BEGIN, SECOND_END = "<!-- gsm8k:begin -->", "<!-- gsm8k:end -->"
"""Around what the README shows of the second domain."""
PAGE_NAME = "report.html"
README = Path("README.md")
RESULTS = Path("docs/results.md")
FIGURES = Path("docs/figures")
SPREAD = Path("docs/results/spread.csv")
"""What `make spread` writes: of each training the full method's accuracy, by B."""
README_DOMAIN = "word_problems"
OF_THEIR_OWN = ("long", "paper")
"""Profiles that have a page of their own."""
TITLES = {"grade_school": "gsm8k"}
"""What the page of a domain is called after where that is not its name."""
MAIN_SECTION = "Accuracy for a mean of at most B verifier calls a problem, %"
README_METHODS = tuple(method for method in SHORT_LIST if method not in ("cot", OURS))
"""What the README shows of the main table; the page of results shows all of it."""
SECOND_METHODS = (
    "majority_gated",
    "best_of_n_gated",
    HULL,
    "ranked_vote",
    PAPER_METHOD,
    FULL_METHOD,
)
"""The same of the second domain."""
CAPTIONS: Mapping[str, str] = {
    "equal_calls": "Accuracy for a mean of at most B verifier calls",
    "accuracy_calls": "Accuracy against measured verifier calls",
    "accuracy_n": "Accuracy against the generation budget N",
    "backbones": "Accuracy against N by backbone, with 0-shot lines",
}
"""The copied figures by their stem in the report."""
DRAWN = "equal_calls.csv"
"""What of the report is kept beside a page's figures: a figure of both benchmarks and numbers in
sentences are made from it."""
LEVELS = (
    *("method", "level", "accuracy", "accuracy_low", "accuracy_high", "verifier_calls"),
    "difference_mean",
)
BESIDE = "both"
"""That figure, by its stem."""
PANELS = {"Word problems, 0.8 million weights": "", "GSM8K, SmolLM2-135M": "gsm8k"}
"""Its panels by title, each by what the results page is called after."""
_OURS = method_name(FULL_METHOD)
_LINES = re.DOTALL | re.MULTILINE
CHOSEN_ON = " validation problems"
"""In the title of a report that no page shows: its problems choose settings."""
OPTIONAL = "backbones"
"""The figure that only some runs have."""


def fill(root: Path, report: Path, *, origin: Origin) -> tuple[Path, ...]:
    """Replace the marked blocks of the pages under ``root`` and copy the frontier figures.

    Equal reports and origins give equal files, however often this is done. Returns the pages.

    Raises:
        ArtifactError: the report, one of its figures or a page is missing.
        SchemaError: a page lacks its markers, the report lacks its main table, or it is of
            validation problems.
    """
    text = reported(report, REPORT_NAME).read_text(encoding="utf-8")
    if CHOSEN_ON in _split_title(text)[0]:
        raise SchemaError(
            f"{report / REPORT_NAME}: given a report of validation problems, expected one of test "
            "problems (evaluation.split)"
        )
    domain = _split_title(text)[0].partition(",")[0]
    about = _about(domain, origin.changes)
    results, figures = _page_of(about), FIGURES / about
    drawn = [stem for stem in CAPTIONS if stem != OPTIONAL or (report / f"{stem}.svg").is_file()]
    whole = _long(text, origin, figures.relative_to(RESULTS.parent), drawn)
    filled = {results: replaced(root / results, whole, BEGIN, END)}
    if results == RESULTS:
        filled = {README: replaced(root / README, _short(text, origin), BEGIN, END)} | filled
    elif domain in TITLES:
        short = _table(text, origin, results, SECOND_METHODS)
        filled = {README: replaced(root / README, short, SECOND_BEGIN, SECOND_END)} | filled
    _copy_figures(report, root / figures, drawn)
    if README in filled:
        _draw_beside(root / FIGURES)
    for page, content in filled.items():
        with atomic_path(root / page) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return tuple(filled)


def published(root: Path, report: Path) -> str | None:
    """What the results page under ``root`` states of the full method, beside a run's ``report``.

    None where the page of the report's domain, which people may change, does not state it.
    """
    if not (report / REPORT_NAME).is_file():
        return None
    run = _lenient(report / REPORT_NAME)
    title, _ = _split_title(run)
    if CHOSEN_ON in title:
        return None
    page = _page_of(_about(title.partition(",")[0], changed_parameters(root)))
    text = _lenient(root / page) if (root / page).is_file() else ""
    origin = re.search(r"^\*\*(.+)\*\*\n\nMeasured at commit `([^`]+)`", text, re.MULTILINE)
    stated, here = _ours(text), _ours(run)
    if origin is None or not stated:
        return None
    shown = ", ".join(
        f"{level}: {cell}{_difference(here.get(level, ''), cell)}" for level, cell in stated.items()
    )
    where = f"{page}: {origin[1]}, commit {origin[2]}"
    told = f"Published ({where}), {_OURS}, in brackets this run minus it: {shown}"
    return told + (_spread(root / SPREAD) if page == RESULTS else "")


def _spread(path: Path) -> str:
    """Between which accuracies trainings with other seeds lie; "" where none are known."""
    if not path.is_file():
        return ""
    table = pd.read_csv(path).dropna(subset="accuracy")
    ends = 100 * table.groupby("level")["accuracy"].agg(["min", "max"])
    shown = ", ".join(
        f"B = {level}: {low:.1f} to {high:.1f}" for level, low, high in ends.itertuples()
    )
    return (
        f"\n{table['training'].nunique()} trainings with other seeds, on the first problems of "
        f"these, as a default run: {shown}"
    )


def _ours(text: str) -> dict[str, str]:
    """The full method's accuracy in the main table of a page, by B; empty where it is not there."""
    table = re.search(_section_of(MAIN_SECTION), text, _LINES)
    own = re.search(rf"^\| {re.escape(_OURS)} \|(.+)\|$", table[1] if table else "", re.MULTILINE)
    if table is None or own is None:
        return {}
    levels = table[1].strip().partition("\n")[0].split("|")[2:-1]
    cells = (cell.split(" (")[0].strip() for cell in own[1].split("|"))
    return dict(zip(map(str.strip, levels), cells, strict=False))


def _difference(here: str, stated: str) -> str:
    """In points, in brackets; "" where one of the two is no number."""
    try:
        return f" ({float(here) - float(stated):+.1f})"
    except ValueError:
        return ""


def stamp(report: Path, params: Params, *, root: Path) -> Path:
    """A copy of the page in ``report``, beside that folder, with its origin; returns its path.

    Not in the folder: what a stage writes must not depend on the day or the machine.

    Raises:
        ArtifactError: the report is missing.
    """
    rows = _told(find_origin(root, report), params, root)
    listed = Markup("").join(
        Markup("<dt>{}</dt><dd>{}</dd>").format(name, value) for name, value in rows
    )
    block = Markup("<h2>Where these numbers come from</h2>\n<dl>{}</dl>").format(listed)
    page = reported(report, PAGE_NAME)
    copy = report.parent / PAGE_NAME
    write_text(page.read_text(encoding="utf-8").replace(ORIGIN, block), copy)
    return copy


def _told(origin: Origin | None, params: Params, root: Path) -> Iterator[tuple[str, str]]:
    yield "Project", f"selverify {version('selverify')}"
    if origin is None:
        yield "Computed", "elsewhere: this checkout has no record of it"
    else:
        yield "Commit", origin.commit.removesuffix(CHANGED)
        if origin.commit != NO_COMMIT:
            yield "Work tree", "clean" if origin.clean else "with changes that are not committed"
        yield "Parameters changed", ", ".join(origin.changes) or "none"
        yield "Day (UTC)", origin.day
        yield "Machine", f"{origin.processor}, {origin.cores} cores"
        yield "Python", origin.python
    yield from model_digests(params, root)


def section(text: str, title: str) -> str:
    """The text under the heading ``## title`` of a Markdown page, without the heading.

    Raises:
        SchemaError: there is no such heading.
    """
    found = re.search(_section_of(title), text, _LINES)
    if found is None:
        raise SchemaError(f"{REPORT_NAME}: no section {title!r}")
    return found[1].strip()


def _lenient(page: Path) -> str:
    """The text of a page that is only looked at."""
    return page.read_text(encoding="utf-8", errors="replace")


def _section_of(title: str) -> str:
    """A pattern whose group 1 is the text under ``## title``."""
    return rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)"


def _about(domain: str, changes: Sequence[str]) -> str:
    """What the results page of a run is called after; "" for the one that the README shows."""
    if domain != README_DOMAIN:
        return TITLES.get(domain, domain)
    return next((name for name in OF_THEIR_OWN if f"{PROFILE}{name}" in changes), "")


def _page_of(about: str) -> Path:
    return Path(f"docs/results-{about}.md") if about else RESULTS


def _short(text: str, origin: Origin) -> str:
    """The main table, the figure of both benchmarks, and where the rest is."""
    caption = f"{CAPTIONS['equal_calls']}: word problems and GSM8K"
    table, where = _table(text, origin, RESULTS, README_METHODS).rsplit("\n\n", 1)
    return "\n\n".join((table, f"![{caption}]({FIGURES.as_posix()}/{BESIDE}.svg)", where))


def _table(text: str, origin: Origin, results: Path, methods: Sequence[str]) -> str:
    """The rows of some methods of the main table, and where the rest is."""
    title, _ = _split_title(text)
    profiles = tuple(one for one in origin.changes if one.startswith(PROFILE))
    return "\n\n".join(
        (
            f"**{title.rpartition(',')[0]}: {MAIN_SECTION}**",
            _excerpt(section(text, MAIN_SECTION).partition("\n\n")[0], methods),
            f"{replace(origin, changes=profiles).sentence} In brackets the difference to the hull. "
            "All methods, intervals, claims, targets and changed parameters: "
            f"[{results.as_posix()}]({results.as_posix()}).",
        )
    )


def _excerpt(table: str, methods: Sequence[str]) -> str:
    """The rows of these methods of a Markdown table."""
    head, line, *rows = table.splitlines()
    starts = tuple(f"| {method_name(method)} |" for method in methods)
    return "\n".join((head, line, *(row for row in rows if row.startswith(starts))))


def _long(text: str, origin: Origin, figures: Path, drawn: Iterable[str]) -> str:
    """The figures and the whole report."""
    title, body = _split_title(text)
    shown = (f"![{CAPTIONS[stem]}]({figures.as_posix()}/{stem}.svg)" for stem in drawn)
    return "\n\n".join((f"**{title}**", origin.sentence, *shown, body))


def _split_title(text: str) -> tuple[str, str]:
    first, _, rest = text.partition("\n")
    return first.removeprefix("# Report: "), rest.strip()


def replaced(page: Path, block: str, begin: str, end: str) -> str:
    """The text of a page with ``block`` between its two markers.

    Raises:
        ArtifactError: the page is missing.
        SchemaError: it lacks its markers.
    """
    if not page.is_file():
        raise ArtifactError(f"{page}: missing; expected a page with {begin}")
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        raise SchemaError(f"{page}: expected one {begin} and after it one {end}")
    before, after = text.split(begin)[0], text.split(end)[1]
    return f"{before}{begin}\n{block}\n{end}{after}"


def _copy_figures(report: Path, folder: Path, drawn: Iterable[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem in drawn:
        source = reported(report, f"{stem}.svg")
        with atomic_path(folder / source.name) as temporary:
            shutil.copyfile(source, temporary)
    with atomic_path(folder / DRAWN) as temporary:
        pd.read_csv(reported(report, DRAWN))[list(LEVELS)].to_csv(temporary, index=False)


def _draw_beside(figures: Path) -> None:
    """The README's figure, from what is kept beside the figures of its benchmarks."""
    from selverify.report.plots import benchmarks_at_equal_calls  # imports matplotlib

    tables = {title: figures / about / DRAWN for title, about in PANELS.items()}
    benchmarks_at_equal_calls(
        {title: pd.read_csv(path) for title, path in tables.items() if path.is_file()},
        figures / BESIDE,
        methods=SECOND_METHODS,
    )
