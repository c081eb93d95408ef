"""``make screenshots``: the views of a finished run that the documentation shows."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chromium import browser, run
from PIL import Image
from rich.console import Console

from flows.launcher import show
from flows.server import pages
from flows.tracking import comparison_page
from selverify.errors import ParamsError

FOLDER = Path("docs/figures/views")
REPORT = Path("results/report.html")
DESKTOP, TALL, WIDE = (1000, 900), (1000, 1400), (1400, 900)
COLUMNS = 80
COLOURS = 128
SETTLED = 4_000
"""Milliseconds until pages that fetch what they show, and draw it, have done so."""


def terminal() -> str:
    """What ``make run`` prints at its end, as a drawing."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        show()
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(printed.getvalue(), highlight=False, markup=False)
    return console.export_svg(title="make run")


def explorer(page: Any) -> None:
    """Of the first problem that was answered wrongly where it went astray, and all methods."""
    page.wait_for_selector("#trace .problem")
    page.locator("#which").select_option("wrong")
    page.locator("#trace .astray").evaluate("one => one.scrollIntoView({block: 'center'})")


def settled(page: Any) -> None:
    """Without the assistant that MLflow opens beside a first visitor's page."""
    page.wait_for_timeout(SETTLED)
    beside = page.get_by_role("button", name="Close")
    if beside.count():
        beside.first.click()
        page.wait_for_timeout(SETTLED)


def runs(page: Any) -> None:
    """The list of runs, which stands below a chart."""
    settled(page)
    page.get_by_text("Items per page").scroll_into_view_if_needed()
    page.mouse.move(WIDE[0] // 2, WIDE[1] // 2)
    page.mouse.wheel(0, WIDE[1])
    page.wait_for_timeout(SETTLED)


def main() -> None:
    """Write every view as PNG.

    Raises:
        ParamsError: there is no Chromium, or no finished run.
    """
    if not REPORT.is_file():
        raise ParamsError(f"{REPORT}: missing; expected a finished run here (make run)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    printed = terminal()  # which also writes the page anew
    with pages() as (_, mlflow), browser() as opened:

        def shoot(
            name: str,
            address: str,
            size: tuple[int, int],
            prepare: Callable[[Any], None] = lambda page: None,
        ) -> None:
            width, height = size
            context = opened.new_context(viewport={"width": width, "height": height})
            page = context.new_page()
            page.goto(address)
            prepare(page)
            image = Image.open(io.BytesIO(page.screenshot()))
            context.close()
            image.convert("RGB").quantize(COLOURS).save(FOLDER / f"{name}.png", optimize=True)

        report = REPORT.resolve().as_uri()
        shoot("report", report, TALL)
        shoot("explorer", report, DESKTOP, explorer)
        with TemporaryDirectory() as folder:
            drawing = Path(folder, "terminal.svg")
            drawing.write_text(printed, encoding="utf-8")
            shoot("terminal", drawing.as_uri(), DESKTOP)
        shoot("mlflow", f"{mlflow}/{comparison_page()}", WIDE, settled)
        prefect = os.environ["PREFECT_API_URL"].removesuffix("/api")
        shoot("prefect", f"{prefect}/runs", WIDE, runs)
    print(f"{FOLDER}: {', '.join(sorted(one.name for one in FOLDER.iterdir()))}")


if __name__ == "__main__":
    run(main)
