"""What shows results in Prefect costs no result."""

from __future__ import annotations

import logging

import httpx
import pytest

from flows.artifacts import shown


def test_a_server_that_is_gone_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """One sentence, with the name of what was to be shown."""
    with caplog.at_level(logging.WARNING), shown("report"):
        raise httpx.ConnectError("refused")
    assert [record.getMessage() for record in caplog.records] == [
        "report: not shown in Prefect: refused"
    ]


def test_other_errors_stay_errors() -> None:
    """A fault of ours is no fault of the server."""
    with pytest.raises(KeyError), shown("report"):
        raise KeyError("main")
