"""The report page in a browser: what it does, at which widths, and for whom."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from operator import eq
from typing import Any

import pytest
from synthetic import stub_figures
from test_cli import DOMAIN, TASKS, guided

from selverify.report.explorer import Outcome, TracedSearch, explorer_data
from selverify.report.names import method_name
from selverify.report.pages import ORIGIN, to_html
from selverify.report.sections import ReportData

playwright = pytest.importorskip(
    "playwright.sync_api", reason="expected playwright, pip install '.[browser]' in the clone"
)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
PHONE, DESKTOP = {"width": 390, "height": 800}, {"width": 1280, "height": 900}
OFFLINE = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
# Rules of WCAG 2, levels A and AA; what keeps to them is not listed, which takes as long again.
LEVELS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}


@pytest.fixture(scope="module")
def address(built: ReportData, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page as a run writes it, but for its figures."""
    folder = tmp_path_factory.mktemp("report")
    stub_figures(built, folder)
    solved = guided(1, skip_below=0.2).solve_many([task.problem for task in TASKS], budget=6)
    searches = [TracedSearch(task, 1, one.events) for task, one in zip(TASKS, solved, strict=True)]
    made = {
        task.problem.problem_id: [
            Outcome("0-shot CoT", 1.0, 0.0, 40.0),
            Outcome("Majority vote", 1.0 if place else 0.0, 0.0, 160.0),
            Outcome(method_name("full"), 0.5 if place else 0.0, 3, 9),
        ]
        for place, task in enumerate(TASKS)
    }
    data = explorer_data(
        DOMAIN, searches, tau=0.5, reference_dispersion=0.25, matches=eq, outcomes=made
    )
    page = to_html(built, folder, data, remark=DOMAIN.remark)
    page = page.replace(
        ORIGIN, "<h2>Where these numbers come from</h2><dl><dt>a</dt><dd>b</dd></dl>"
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=OFFLINE)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page on a desktop; nothing may go wrong in it."""
    wrong: list[str] = []
    context = browser.new_context(viewport=DESKTOP)
    opened = context.new_page()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    opened.goto(address)
    opened.wait_for_selector("#trace .problem")  # the traces are unpacked after the page is there
    yield opened
    context.close()
    assert not wrong


def test_problems_are_walked_by_buttons_and_keys(page: Any) -> None:
    """To the end and back; the page's own scrolling is left alone."""
    names = page.locator("#problem option").evaluate_all("all => all.map(one => one.value)")
    assert names == [task.problem.problem_id for task in TASKS]

    def shown() -> str:
        return str(page.locator("#problem").input_value())

    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    assert shown() == names[1]
    page.keyboard.press("n")
    assert shown() == names[1], "a letter is the reader's own (WCAG 2.1.4)"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert shown() == names[0], "nothing comes before the first"
    page.locator("#next").click()
    assert shown() == names[1]
    assert page.locator("#trace .problem").inner_text() == TASKS[1].problem.text
    page.locator("#previous").click()
    assert shown() == names[0]


def test_a_problem_has_a_link(page: Any, address: str) -> None:
    """Which shows it, also from an open page; a wrong one is no error."""
    page.locator("#next").click()
    name = page.locator("#problem").input_value()
    link = page.locator("#link").evaluate("link => link.href")
    page.locator("#previous").click()
    for wrong in ("nothing", "%E0"):
        page.goto(f"{address}#problem={wrong}")
        assert page.locator("#problem").input_value() != name
    for again in (lambda: page.goto(link), page.reload):
        again()
        page.wait_for_function(
            "name => document.getElementById('problem').value === name", arg=name
        )


def test_moves_methods_and_the_first_mistake_are_shown(page: Any) -> None:
    page.locator("#which").select_option("wrong")
    assert "in reach from move" in page.locator("#trace .astray").inner_text()
    assert page.locator("#trace .good").count() and page.locator("#trace .bad").count()
    assert "0-shot CoT" in page.locator("#trace table").last.inner_text()
    assert "modulo" in page.locator("#explorer strong").inner_text()


def test_the_first_figure_says_what_it_shows_to_those_who_do_not_see_it(page: Any) -> None:
    lead = page.locator("#verdict .lead").inner_text()
    assert lead and page.locator("#verdict img").get_attribute("alt").endswith(lead)


def test_two_methods_are_compared(page: Any) -> None:
    """They stand first, with their difference; a list holds the problems on which they differ."""
    assert page.locator("#one").input_value() == method_name("full")
    page.locator("#other").select_option("Majority vote")
    page.locator("#which").select_option("differ")
    names = page.locator("#problem option").evaluate_all("all => all.map(one => one.value)")
    assert names == [task.problem.problem_id for task in TASKS[1:]]
    rows = page.locator("#trace table").last.locator("tbody tr")
    assert [row.split("\t") for row in rows.all_inner_texts()] == [
        [method_name("full"), "0.50", "3.0", "9"],
        ["Majority vote", "yes", "0.0", "160"],
        ["difference", "-0.50", "+3.0", "-151"],
        ["0-shot CoT", "yes", "0.0", "40"],
    ]
    page.locator("#other").select_option(method_name("full"))
    assert page.locator("#problem option").count() == 0
    page.locator("#which").select_option("all")
    assert page.locator("#trace table").last.locator("tbody tr").count() == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Any, address: str, scheme: str
) -> None:
    """Tables scroll inside their own boxes."""
    context = browser.new_context(viewport=PHONE, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    context.close()


def test_nothing_is_cut_on_paper(page: Any) -> None:
    """No table is wider than an A4 page in landscape."""
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1040, "height": 720})
    wide = page.locator("main table").evaluate_all(
        "all => all.filter(one => one.getBoundingClientRect().right > 1040).length"
    )
    assert wide == 0


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_it_breaks_no_rule_of_accessibility(browser: Any, address: str, scheme: str) -> None:
    """Levels A and AA, as axe-core checks them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = browser.new_context(viewport=DESKTOP, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    found = axe.run(page, options=LEVELS)
    context.close()
    assert found.violations_count == 0, found.generate_report()
