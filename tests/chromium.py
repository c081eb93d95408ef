"""Chromium without a window, for the scripts that draw pages."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import sync_playwright

from selverify.errors import ParamsError, SelverifyError

OFFLINE = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@contextmanager
def browser() -> Iterator[Any]:
    """Playwright's browser.

    Raises:
        ParamsError: there is no Chromium.
    """
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise ParamsError("expected Chromium")
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=OFFLINE)
        try:
            yield opened
        finally:
            opened.close()


def run(main: Callable[[], None]) -> None:
    """A script whose errors are sentences."""
    try:
        main()
    except SelverifyError as error:
        sys.exit(f"error: {error}")
