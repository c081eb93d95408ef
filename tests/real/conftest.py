"""Tests on recorded data are skipped where the data is absent."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import DATA

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, whatever stands beside this file."""
    if DATA.is_dir():
        return
    reason = f"{DATA}: no such folder; the recorded data is no part of the project (SELVERIFY_DATA)"
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.skip(reason=reason))
