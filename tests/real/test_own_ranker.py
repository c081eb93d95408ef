"""A ranker that was trained on half of recorded problems keeps on the others what it promised."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import DATA

from selverify.audit.log import RecordedList
from selverify.audit.training_log import read_lists
from selverify.ranker import CandidateList, Ranker


def halves(file: str) -> tuple[list[RecordedList], list[RecordedList]]:
    lists, _ = read_lists(DATA / "candidates" / file)
    names = sorted({one.problem_id for one in lists})
    first = set(names[::2])
    return (
        [one for one in lists if one.problem_id in first],
        [one for one in lists if one.problem_id not in first],
    )


def asked(one: RecordedList) -> CandidateList:
    return CandidateList(one.question, one.prefix, [each.text for each in one.candidates])


@pytest.mark.soak
@pytest.mark.parametrize(
    "file", ["prm800k_phase1test_candidates.jsonl.gz", "game24_tot_states.jsonl.gz"]
)
def test_what_is_saved_on_other_problems_is_what_was_promised(file: str, tmp_path: Path) -> None:
    """Calls within a tenth of the interval; found no less than its lower end, less its width."""
    first, second = halves(file)
    Ranker.train(first).save(tmp_path / "ranker")
    ranker = Ranker.load(tmp_path / "ranker")
    plans = ranker.plan_many([asked(one) for one in second])
    calls, found, reachable = 0, 0, 0
    for one, plan in zip(second, plans, strict=True):
        right = {place for place, each in enumerate(one.candidates) if each.label}
        calls += plan.verify
        reachable += bool(right)
        found += bool(right & set(plan.order[: max(plan.verify, 1)]))
    told = ranker.described.promised
    sizes = sum(len(one.candidates) for one in second) / len(second)
    print(
        file,
        told,
        calls / len(second),
        found / reachable,
        sizes,
        sum(p.familiar for p in plans) / len(plans),
    )
    assert 0.9 * told["calls_low"] <= calls / len(second) <= 1.1 * told["calls_high"] < sizes
    assert found / reachable >= told["found_low"] - (told["found_high"] - told["found_low"])
    others = halves(
        "game24_tot_states.jsonl.gz" if "prm" in file else "prm800k_phase1test_candidates.jsonl.gz"
    )[0]
    strange = ranker.plan_many([asked(one) for one in others[:100]])
    assert not any(plan.familiar for plan in strange)
