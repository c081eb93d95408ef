"""Which other settings would have led a gated competition the same way."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BACKEND, DOMAIN, gated_settings, problems
from toy import SETTINGS

from selverify.experiment.reuse import Decisions
from selverify.search.driver import Result, Search, run_searches
from selverify.search.gated import gated_competition
from selverify.types import Outcome, Problem

others = st.fixed_dictionaries(
    {},
    optional={
        "k_base": st.floats(0.5, 4),
        "beta": st.floats(-2, 2),
        "tau": st.floats(0, 1),
        "skip_below": st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]),
    },
)


def walked(problem: Problem, decisions: Decisions) -> Result[Outcome]:
    search = gated_competition(
        DOMAIN,
        problem,
        rules=decisions.recorded(decisions.settings.rules(DOMAIN)),
        budget=8,
        generation_cap=25,
    )
    searches = {"": Search(search, budget=8)}
    return run_searches(searches, BACKEND, end_of_move=DOMAIN.end_of_move, traced=True)[""]


@given(problems, gated_settings, st.lists(others, min_size=1, max_size=6))
def test_settings_said_to_lead_the_same_way_do(problem, settings, changes):
    """The law on random searches: same outcome, same cost, same path, move by move."""
    decisions = Decisions(settings)
    result = walked(problem, decisions)
    for change in changes:
        other = replace(settings, **change)
        if decisions.same_under(other):
            again = walked(problem, Decisions(other))
            assert again.outcome == result.outcome
            assert again.ledger.verifier_calls == result.ledger.verifier_calls
            assert again.ledger.generated_tokens == result.ledger.generated_tokens
            assert asked(again) == asked(result)


def asked(result: Result[Outcome]) -> list[object]:
    """All but Rank requests: a probability that no limit could use need not be asked for."""
    return [
        (event.event, event.state.derivation, event.data)
        for event in result.events
        if event.event in ("propose", "verify", "commit", "end")
    ]


@given(problems, gated_settings)
def test_a_walk_is_the_same_under_its_own_settings(problem, settings):
    decisions = Decisions(settings)
    walked(problem, decisions)
    assert decisions.same_under(settings)


RULES = replace(
    SETTINGS, proposals=4, scorer="hybrid", skip_below=0.1, allocation="adaptive", fallback=True
)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"tau": 0.41}, True),
        ({"tau": 0.6}, True),  # a score of tau is accepted
        ({"tau": 0.4}, False),  # and so the rejected one would be
        ({"tau": 0.61}, False),
        ({"skip_below": 0.021}, True),
        ({"skip_below": 0.02}, False),
        ({"skip_below": 0.3}, True),
        ({"skip_below": 0.31}, False),
        ({"skip_below": 0.0}, False),
        ({"k_base": 2.4}, True),
        ({"k_base": 3.0}, True),  # no more than two could be verified
        ({"k_base": 1.0}, False),
        ({"proposals": 5}, False),
        ({"commit": "joint"}, False),
    ],
)
def test_the_edges_of_what_is_the_same(change, same):
    """Accepted at 0.6, rejected at 0.4, skipped at 0.02, verified at 0.3, two of two verified."""
    decisions = Decisions(RULES)
    assert decisions.accept(0.6)
    assert not decisions.accept(0.4)
    assert decisions.skip(0.02)
    assert not decisions.skip(0.3)
    assert decisions.width((0.1, 0.2), 2) == 2
    assert decisions.same_under(replace(RULES, **change)) is same


def test_a_walk_that_skips_nowhere_says_nothing_of_one_that_may():
    settings = replace(RULES, skip_below=0.0)
    decisions = Decisions(settings)
    assert decisions.recorded(settings.rules(DOMAIN)).skip is None
    assert not decisions.same_under(replace(RULES, skip_below=0.01))
    assert decisions.same_under(replace(settings, tau=0.9))
