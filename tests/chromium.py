"""Chromium without a window, for the scripts that draw pages."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from selverify.errors import ParamsError, SelverifyError

OFFLINE = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@contextmanager
def browser() -> Iterator[Any]:
    """Playwright's browser.

    Raises:
        ParamsError: there is no Chromium, or no Playwright.
    """
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise ParamsError("expected Chromium")
    try:
        sync_playwright = import_module("playwright.sync_api").sync_playwright
    except ImportError as error:
        raise ParamsError("expected playwright: pip install '.[browser]' in the clone") from error
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
