"""A ranker that was trained on half of recorded problems keeps on the others what it promised."""

from __future__ import annotations

import pytest
from recorded_rankers import LOGS, asked, halves, kept_by, trained_on


@pytest.mark.soak
@pytest.mark.parametrize("log", LOGS)
def test_what_is_saved_on_other_problems_is_what_was_promised(log: str) -> None:
    """Calls within a tenth of the interval; found no less than its lower end, less its width."""
    first, second = halves(LOGS[log])
    ranker = trained_on(first)
    told = kept_by(ranker, second)
    promised, kept = told.promised, told.kept
    assert 0.9 * promised["calls_low"] <= kept["calls"] <= 1.1 * promised["calls_high"] < told.all
    assert kept["found"] >= promised["found_low"] - (promised["found_high"] - promised["found_low"])
    (other,) = (one for one in LOGS if one != log)
    strange = ranker.plan_many([asked(one) for one in halves(LOGS[other])[0][:100]])
    assert not any(plan.familiar for plan in strange)
