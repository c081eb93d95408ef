"""Tests on recorded data are skipped where the data is absent."""

from __future__ import annotations

import pytest
from recorded import DATA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, whatever stands beside this file."""
    if DATA.is_dir():
        return
    reason = f"{DATA}: no such folder; the recorded data is no part of the project (SELVERIFY_DATA)"
    for item in items:
        if "real" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason=reason))
