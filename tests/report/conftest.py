"""The report of the synthetic outcomes, made once."""

from __future__ import annotations

import pytest
import synthetic

from selverify.report.sections import ReportData


@pytest.fixture(scope="package")
def built() -> ReportData:
    """Tests that change a table make their own report with ``dataclasses.replace``."""
    return synthetic.report()
